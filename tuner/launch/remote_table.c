/* The table of launchers, and commands made from it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/text.h"
#include "tuner/launch/greet.h"
#include "tuner/launch/remote.h"

#define W(...) ((const char *const[]){__VA_ARGS__, NULL})
static const char *const nothing[] = {NULL};

const struct nt_remote_kind nt_remote_kinds[] = {
    /* Steps of one allocation run beside each other, for two gangs are compared alive. */
    {.name = "slurm",
     .program = "srun",
     .also = "srun",
     .before = W("--overlap", "--cpu-bind=none"),
     .after = W("--nodes=@N", "--ntasks=@N", "--ntasks-per-node=1", "--export=ALL"),
     .hosts = W("--nodelist=@H"),
     .agent = W("@A", "--number-from", "SLURM_PROCID"),
     .number = "SLURM_PROCID",
     .says = "inside an allocation (salloc, sbatch)"},
    {.name = "mpi",
     .program = "mpirun",
     .also = "mpiexec",
     .before = W("--bind-to", "none"),
     .after = W("-np", "@N", "--map-by", "ppr:1:node", "-x", NT_ENV_LAUNCH),
     .hosts = W("--host", "@H"),
     .agent = W("@A", "--number-from", "OMPI_COMM_WORLD_RANK"),
     .number = "OMPI_COMM_WORLD_RANK",
     .says = "Open MPI"},
    {.name = "hydra",
     .program = "mpiexec.hydra",
     .also = "mpiexec.hydra",
     .before = nothing,
     .after = W("-n", "@N", "-ppn", "1", "-genvlist", NT_ENV_LAUNCH),
     .hosts = W("-hosts", "@H"),
     .agent = W("@A", "--number-from", "PMI_RANK"),
     .number = "PMI_RANK",
     .says = "MPICH, Intel MPI"},
    {.name = "ssh",
     .program = "ssh",
     .also = "ssh",
     .each = true,
     .before = W("-T", "-o", "BatchMode=yes"),
     .after = W("@h"),
     .hosts = nothing,
     .agent = W("exec @Q --stdin --node @I"),
     .says = "one connection a host; needs --hosts"},
    {.name = "kubernetes",
     .program = "kubectl",
     .also = "kubectl",
     .each = true,
     .before = W("exec", "-i"),
     .after = W("@h", "--"),
     .hosts = nothing,
     .agent = W("@A", "--stdin", "--node", "@I"),
     .says = "in running pods, one a node: --hosts names them"},
    {0}};

static const struct nt_remote_kind *find(const char *word)
{
    const char *slash = strrchr(word, '/'), *base = slash != NULL ? slash + 1 : word;

    for (const struct nt_remote_kind *k = nt_remote_kinds; k->name != NULL; k++) {
        if (strcmp(word, k->name) == 0 || strcmp(base, k->program) == 0 ||
            strcmp(base, k->also) == 0) {
            return k;
        }
    }
    return NULL;
}

static int unknown(const char *word, struct nt_err *err)
{
    const char *names[32];
    size_t n = 0;

    for (const struct nt_remote_kind *k = nt_remote_kinds; k->name != NULL; k++) {
        names[n++] = k->name;
        names[n++] = k->program;
    }
    names[n] = NULL;
    return nt_wrap(err, nt_fail_name(err, "launcher", word, names), "--launch");
}

static int split_hosts(const char *hosts, char *copy, size_t size, struct nt_remote *r,
                       struct nt_err *err)
{
    char *rest = copy, *word;
    size_t n = 0;

    if (snprintf(copy, size, "%s", hosts) >= (int)size) {
        return nt_fail(err, NT_E_INVAL, 0, "--hosts: too long");
    }
    while ((word = strsep(&rest, ",")) != NULL) {
        if (word[0] == '\0' || word[0] == '-' || strpbrk(word, " \t\n/") != NULL) {
            return nt_fail(err, NT_E_INVAL, 0, "--hosts: '%.60s' is no name of a host", word);
        }
        for (size_t i = 0; i < n; i++) {
            if (strcmp(r->hosts[i], word) == 0) {
                return nt_fail(err, NT_E_INVAL, 0, "--hosts: %s is there twice", word);
            }
        }
        if (n == NT_REMOTE_HOSTS) {
            return nt_fail(err, NT_E_INVAL, 0, "--hosts: more than %d", NT_REMOTE_HOSTS);
        }
        r->hosts[n++] = word;
    }
    return 0;
}

/* Of the allocation that we run in. */
static unsigned allocated(const struct nt_remote_kind *k)
{
    const char *text = strcmp(k->name, "slurm") == 0 ? getenv("SLURM_JOB_NUM_NODES") : NULL;
    uint64_t v = 0;

    return text != NULL && nt_parse_u64(text, &v, NULL) == 0 && v <= NT_REMOTE_HOSTS ? (unsigned)v
                                                                                     : 0;
}

int nt_remote_read(const char *launch, const char *hosts, unsigned nodes, struct nt_remote *ret,
                   struct nt_err *err)
{
    char *copy = ret->text, *save = NULL, *word;
    size_t half = sizeof(ret->text) / 2, n = 0, given = 0;
    int rc = 0;

    *ret = (struct nt_remote){.kind = NULL};
    if (snprintf(copy, half, "%s", launch) >= (int)half) {
        return nt_fail(err, NT_E_INVAL, 0, "--launch: too long");
    }
    word = strtok_r(copy, " \t", &save);
    ret->kind = word != NULL ? find(word) : NULL;
    if (ret->kind == NULL) {
        return unknown(word != NULL ? word : "", err);
    }
    ret->program = strcmp(word, ret->kind->name) == 0 ? ret->kind->program : word;
    while ((word = strtok_r(NULL, " \t", &save)) != NULL) {
        if (n + 1 == NT_REMOTE_WORDS) {
            return nt_fail(err, NT_E_INVAL, 0, "--launch: more than %d words", NT_REMOTE_WORDS - 1);
        }
        ret->words[n++] = word;
    }
    rc = hosts != NULL ? split_hosts(hosts, copy + half, half, ret, err) : 0;
    while (rc == 0 && ret->hosts[given] != NULL) {
        given++;
    }
    ret->nodes = nodes != 0 ? nodes : given > 0 ? (unsigned)given : allocated(ret->kind);
    if (rc == 0 && given > 0 && ret->nodes != given) {
        rc = nt_fail(err, NT_E_INVAL, 0, "--hosts names %zu for %u nodes", given, ret->nodes);
    } else if (rc == 0 && ret->kind->each && given == 0) {
        rc = nt_fail(err, NT_E_INVAL, 0, "--launch %s: name the %s with --hosts a,b",
                     ret->kind->name, strcmp(ret->kind->name, "ssh") == 0 ? "hosts" : "pods");
    } else if (rc == 0 && (ret->nodes < 1 || ret->nodes > NT_REMOTE_HOSTS)) {
        rc =
            nt_fail(err, NT_E_INVAL, 0,
                    "--launch %s: say over how many nodes with --nodes N (1 to %d), or --hosts a,b",
                    ret->kind->name, NT_REMOTE_HOSTS);
    }
    return rc;
}

static void all_hosts(const struct nt_remote *r, struct nt_buf *out)
{
    for (size_t i = 0; r->hosts[i] != NULL; i++) {
        nt_buf_printf(out, "%s%s", i > 0 ? "," : "", r->hosts[i]);
    }
}

/* A word of the table with its places filled, NUL-ended. */
static void fill(const struct nt_remote *r, unsigned i, const char *word, struct nt_buf *out)
{
    for (const char *c = word; *c != '\0'; c++) {
        if (*c != '@') {
            nt_buf_add(out, c, 1);
            continue;
        }
        switch (*++c) {
        case 'N':
            nt_buf_printf(out, "%u", r->nodes);
            break;
        case 'I':
            nt_buf_printf(out, "%u", i);
            break;
        case 'H':
            all_hosts(r, out);
            break;
        case 'h':
            nt_buf_puts(out, r->hosts[i]);
            break;
        case 'Q':
            nt_buf_put_quoted(out, r->agent);
            break;
        default:
            nt_buf_puts(out, r->agent);
        }
    }
    nt_buf_add(out, "", 1);
}

int nt_remote_command(const struct nt_remote *r, unsigned i, struct nt_buf *out,
                      const char *words[], size_t max, struct nt_err *err)
{
    const char *const *lists[] = {r->kind->before, r->words, r->kind->after,
                                  r->hosts[0] != NULL ? r->kind->hosts : nothing, r->kind->agent};
    size_t n = 0;

    nt_buf_clear(out);
    nt_buf_add(out, r->program, strlen(r->program) + 1);
    for (size_t l = 0; l < sizeof(lists) / sizeof(lists[0]); l++) {
        for (const char *const *w = lists[l]; *w != NULL; w++) {
            if (l == 1) {
                nt_buf_add(out, *w, strlen(*w) + 1); /* the user's own stay as they are */
            } else {
                fill(r, i, *w, out);
            }
        }
    }
    for (size_t at = 0; !out->failed && at < out->len && n + 1 < max;
         at += strlen(out->data + at) + 1) {
        words[n++] = out->data + at;
    }
    words[n] = NULL;
    return out->failed || n + 1 >= max
               ? nt_fail(err, NT_E_INVAL, 0, "the launcher's command is too long")
               : 0;
}
