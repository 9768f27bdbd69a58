#include "tuner/cli/commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>
#include "tuner/store/store.h"

struct merge_args {
    const char *db;
};

static const struct nt_opt merge_opts[] = {
    NT_OPT(NT_O_STR, merge_args, db, "db", 0, "PATH",
           "the database that is added to (default NCCLTUNE_DB, else "
           "${XDG_STATE_HOME:-~/.local/state}/nccltune/nccltune.db)"),
    {0}};

/* Looked at before the first of them makes a database that would stay empty. */
static int look_at(unsigned n, char **paths, struct nt_err *err)
{
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < n; i++) {
        struct nt_store *s = NULL;
        rc = access(paths[i], F_OK) != 0
                 ? nt_fail(err, NT_E_MISSING, errno, "%.300s, to be merged", paths[i])
                 : nt_store_open(paths[i], NT_STORE_READ, &s, err);
        nt_store_close(s);
    }
    return rc;
}

static int run_merge(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct merge_args *a = opts;
    struct nt_store *store = NULL;
    char path[PATH_MAX];
    uint64_t conflicts = 0, driven = 0;
    int rc = look_at(nargs, args, err);

    rc = rc == 0 ? nt_store_default_path(a->db, true, path, sizeof(path), err) : rc;
    if (rc == 0) {
        rc = nt_store_open(path, NT_STORE_WRITE, &store, err);
    }
    for (unsigned i = 0; rc == 0 && i < nargs; i++) {
        struct nt_store_merged m = {0};
        rc = nt_store_merge(store, args[i], &m, err);
        if (rc == 0) {
            (void)printf("%s: %llu jobs, %llu trials, %llu profiles, %llu measurements were new\n",
                         args[i], (unsigned long long)m.jobs, (unsigned long long)m.trials,
                         (unsigned long long)m.profiles, (unsigned long long)m.measurements);
            conflicts += m.conflicts;
            driven += m.driven;
        } else if (i > 0) {
            struct nt_err why = *err;
            (void)nt_fail(err, why.code, 0, "%.400s; what is said above to be new is here",
                          why.msg);
        }
    }
    nt_store_close(store);
    if (rc == 0 && driven > 0) {
        return nt_fail(err, NT_E_NO, 0,
                       "%llu jobs went further there, but a process here goes on with them, and "
                       "they were left alone: merge again when it has ended",
                       (unsigned long long)driven);
    }
    return rc == 0 && conflicts > 0
               ? nt_fail(err, NT_E_NO, 0,
                         "%llu jobs went different ways in the two databases and were left alone",
                         (unsigned long long)conflicts)
               : rc;
}

const struct nt_command nt_cmd_merge = {
    .name = "merge",
    .summary = "adds what other databases hold to this one",
    .args = "FILE...",
    .min_args = 1,
    .max_args = 64,
    .opts = merge_opts,
    .size = sizeof(struct merge_args),
    .run = run_merge,
    .details =
        "Rows are found again by their content, so merging twice adds nothing. The other "
        "databases are only read. A profile that no longer holds there does not hold here; the "
        "queue of a service is not taken over. A job that was resumed separately in two copies is "
        "left as it is here, and so is one that a process drives here at the moment: exit code 1 "
        "says so."};
