#include "tuner/gang/gang_spec.h"

#include <string.h>

#include "tuner/gang/mps.h"

static void default_to(uint32_t *ms, uint32_t otherwise)
{
    *ms = *ms != 0 ? *ms : otherwise;
}

struct nt_gang_times nt_gang_times_of(const struct nt_gang_spec *spec)
{
    struct nt_gang_times t = spec->times;

    default_to(&t.hello_ms, 60000);
    default_to(&t.init_ms, 120000);
    default_to(&t.cells_ms, 30000);
    default_to(&t.slack_ms, 2000);
    default_to(&t.quit_ms, 10000);
    default_to(&t.grace_ms, 3000);
    return t;
}

int nt_gang_spec_check(const struct nt_gang_spec *spec, struct nt_err *err)
{
    if (spec->world == 0 || spec->world > NT_GANG_MAX) {
        return nt_fail(err, NT_E_INVAL, 0, "%u ranks: must be 1 to %d", spec->world, NT_GANG_MAX);
    }
    if (strlen(spec->dir) > NT_GANG_DIR_MAX) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "folder %s: %zu bytes, more than the %d that leave room for a socket's name",
                       spec->dir, strlen(spec->dir), NT_GANG_DIR_MAX);
    }
    if (spec->mps != NULL && strlen(spec->mps) > NT_MPS_DIR_MAX) {
        return nt_fail(err, NT_E_INVAL, 0, "MPS folder %s: more than %d bytes", spec->mps,
                       NT_MPS_DIR_MAX);
    }
    return 0;
}
