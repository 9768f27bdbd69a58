#include "tuner/gang/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tuner/launch/log_tail.h"

const char *const nt_gang_end_names[NT_GANG_END_COUNT + 1] = {
    [NT_GANG_DONE] = "done",         [NT_GANG_CANCELLED] = "cancelled",
    [NT_GANG_NO_START] = "no_start", [NT_GANG_TIMEOUT] = "timeout",
    [NT_GANG_CRASHED] = "crashed",   [NT_GANG_BROKE] = "broke",
    [NT_GANG_SAID] = "said",         [NT_GANG_STUCK] = "stuck",
};

static const enum nt_code codes[NT_GANG_END_COUNT] = {
    [NT_GANG_DONE] = NT_OK,         [NT_GANG_CANCELLED] = NT_E_INTERRUPTED,
    [NT_GANG_NO_START] = NT_E_IO,   [NT_GANG_TIMEOUT] = NT_E_PROTO,
    [NT_GANG_CRASHED] = NT_E_PROTO, [NT_GANG_BROKE] = NT_E_PROTO,
    [NT_GANG_SAID] = NT_E_PROTO,    [NT_GANG_STUCK] = NT_E_PROTO,
};

/* What a rank did not do in time. */
static const char *const missed[NT_GF_STATE_COUNT] = {
    [NT_GF_HELLO] = "did not say hello",       [NT_GF_UID] = "did not make a communicator's id",
    [NT_GF_INIT] = "did not get ready",        [NT_GF_BUSY] = "did not answer",
    [NT_GF_QUIT] = "did not end when told to",
};

static void how_ended(const struct nt_launch_exit *x, bool has_ended, char *out, size_t size)
{
    if (!has_ended) {
        (void)snprintf(out, size, "closed its stream");
    } else if (x->signal != 0) {
        (void)snprintf(out, size, "ended by signal %d (%s)", x->signal, strsignal(x->signal));
    } else {
        (void)snprintf(out, size, "ended with exit code %lld", (long long)x->status);
    }
}

static void describe(const struct nt_gang_facts *x, struct nt_err *err)
{
    const struct nt_gang_fsm *f = x->fsm;
    enum nt_code code = codes[f->how];
    char how[120];
    int error;

    switch (f->how) {
    case NT_GANG_DONE:
        *err = (struct nt_err){.code = NT_OK};
        break;
    case NT_GANG_CANCELLED:
        (void)nt_fail(err, code, 0, "cancelled");
        break;
    case NT_GANG_NO_START:
        error = x->exits[f->whom].error;
        (void)nt_fail(err, error == -ENOENT ? NT_E_MISSING : code, -error, "start %.200s",
                      x->program);
        break;
    case NT_GANG_CRASHED:
        how_ended(&x->exits[f->whom], f->ended[f->whom], how, sizeof(how));
        (void)nt_fail(err, code, 0, "rank %u %s", f->whom, how);
        break;
    case NT_GANG_STUCK:
        (void)nt_fail(err, code, 0, "rank %u does not end even when it is killed", f->whom);
        break;
    default:
        (void)nt_fail(err, code, 0, "rank %u %s", f->whom,
                      f->how == NT_GANG_TIMEOUT && missed[f->when] != NULL ? missed[f->when]
                                                                           : "failed");
    }
}

void nt_gang_words(const struct nt_gang_facts *x, struct nt_err *err)
{
    const struct nt_gang_fsm *f = x->fsm;
    char path[4096], tail[260];
    size_t n;

    if (x->said != NULL &&
        (f->how == NT_GANG_BROKE || f->how == NT_GANG_SAID || f->how == NT_GANG_NO_START)) {
        (void)nt_fail(err, x->missing ? NT_E_MISSING : codes[f->how], 0, "%s", x->said);
    } else {
        describe(x, err);
    }
    if (f->whom >= f->world) {
        return;
    }
    if (f->how == NT_GANG_TIMEOUT || f->how == NT_GANG_CRASHED || f->how == NT_GANG_BROKE ||
        f->how == NT_GANG_SAID) {
        nt_launch_log_path(x->dir, f->whom, path, sizeof(path));
        nt_log_tail(path, tail, sizeof(tail));
        n = strlen(err->msg);
        if (tail[0] != '\0' && n < sizeof(err->msg)) {
            (void)snprintf(err->msg + n, sizeof(err->msg) - n, "; its log ends: %s", tail);
        }
    }
}
