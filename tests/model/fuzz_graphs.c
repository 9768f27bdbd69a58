/* Whatever a topology says, its graphs are found in finite time and its times are numbers. */
#include <math.h>
#include <stdint.h>

#include "probes/model/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void times(const struct nt_sim *s)
{
    struct nt_call none = NT_CALL_DEFAULT;
    struct nt_sim_gang g;
    struct nt_executed x;

    nt_assert(nt_sim_gang_init(&g, s, 1, NULL, 0, NULL) == 0);
    for (int coll = 0; coll < NT_COLL_COUNT; coll++) {
        for (uint64_t bytes = 1; bytes < UINT64_C(1) << 34; bytes = bytes * 64 + 1) {
            struct nt_case cs = {.bytes = bytes, .coll = (uint8_t)coll};
            nt_assert(nt_sim_executed(&g, &cs, &none, &x)); /* rings are always there */
            nt_assert(x.channels >= 1 && x.channels <= 64);
            nt_assert(isfinite(nt_sim_true_ns(&g, &cs, 0, &x)));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nt_topology *t = NULL;

    if (nt_topology_read_text((const char *)data, size, &t, NULL) != 0) {
        return 0;
    }
    for (unsigned nodes = 1; nodes <= 3; nodes++) {
        struct nt_sim *s = NULL;
        if (nt_sim_new(t, 0, nodes, &nt_sim_quiet, 1, 1, &s, NULL, NULL) == 0) {
            times(s);
        }
        nt_sim_free(s);
    }
    nt_topology_free(t);
    return 0;
}
