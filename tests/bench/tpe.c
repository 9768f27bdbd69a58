#include "tests/bench/tpe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct tpe {
    pid_t pid;
    FILE *to, *from;
};

static int read_line(struct tpe *t, char *out, int size, struct nt_err *err)
{
    return fgets(out, size, t->from) != NULL
               ? 0
               : nt_fail(err, NT_E_PROTO, 0, "Optuna's process ended");
}

static struct tpe *start(const char *python, const char *script, struct nt_err *err)
{
    struct tpe *t = calloc(1, sizeof(*t));
    int in[2] = {-1, -1}, out[2] = {-1, -1};

    if (t == NULL || pipe(in) != 0 || pipe(out) != 0 || (t->pid = fork()) < 0) {
        (void)nt_fail(err, NT_E_IO, 0, "a process for Optuna");
        free(t);
        return NULL;
    }
    if (t->pid == 0) {
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        (void)close(in[1]);
        (void)close(out[0]);
        (void)execlp(python, python, script, (char *)NULL);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    t->to = fdopen(in[1], "w");
    t->from = fdopen(out[0], "r");
    return t;
}

struct tpe *tpe_open(const char *python, const char *script, struct nt_err *err)
{
    char line[128];
    struct tpe *t;

    (void)signal(SIGPIPE, SIG_IGN);
    t = start(python, script, err);
    if (t != NULL &&
        (read_line(t, line, sizeof(line), err) != 0 || strncmp(line, "ready", 5) != 0)) {
        (void)nt_fail(err, NT_E_MISSING, 0, "%s has no optuna (pip install optuna)", python);
        tpe_close(t);
        return NULL;
    }
    return t;
}

void tpe_close(struct tpe *t)
{
    if (t != NULL) {
        (void)fclose(t->to);
        (void)fclose(t->from);
        (void)waitpid(t->pid, NULL, 0);
        free(t);
    }
}

int tpe_study(struct tpe *t, uint32_t study, const struct land_case *c, uint64_t seed,
              struct nt_err *err)
{
    (void)fprintf(t->to, "study %u %llu", study, (unsigned long long)seed);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct nt_executed *x = &c->arm[i].executed;
        (void)fprintf(t->to, " %s/%s:%u", nt_algo_names[x->algo], nt_proto_names[x->proto],
                      x->channels);
    }
    return fprintf(t->to, "\n") > 0 ? 0 : nt_fail(err, NT_E_PROTO, 0, "Optuna's process ended");
}

int tpe_choice(struct tpe *t, uint32_t study, uint32_t n, uint64_t seed, struct nt_err *err)
{
    (void)fprintf(t->to, "study %u %llu", study, (unsigned long long)seed);
    for (uint32_t i = 0; i < n; i++) {
        (void)fprintf(t->to, " %u:1", i);
    }
    return fprintf(t->to, "\n") > 0 ? 0 : nt_fail(err, NT_E_PROTO, 0, "Optuna's process ended");
}

int tpe_ask(struct tpe *t, uint32_t study, uint32_t *ret_arm, struct nt_err *err)
{
    char line[64];
    int rc;

    (void)fprintf(t->to, "ask %u\n", study);
    (void)fflush(t->to);
    rc = read_line(t, line, sizeof(line), err);
    *ret_arm = rc == 0 ? (uint32_t)strtoul(line, NULL, 10) : 0;
    return rc;
}

int tpe_tell(struct tpe *t, uint32_t study, double y, struct nt_err *err)
{
    return fprintf(t->to, "tell %u %.9f\n", study, y) > 0
               ? 0
               : nt_fail(err, NT_E_PROTO, 0, "Optuna's process ended");
}
