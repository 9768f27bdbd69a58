#include "tuner/cli/commands.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include "tuner/store/service.h"

struct backup_args {
    const char *db;
};

static const struct nt_opt backup_opts[] = {
    NT_OPT(NT_O_STR, backup_args, db, "db", 0, "PATH",
           "the database (default NCCLTUNE_DB, else "
           "${XDG_STATE_HOME:-~/.local/state}/nccltune/nccltune.db)"),
    {0}};

static volatile sig_atomic_t stop;

static void on_signal(int signum)
{
    stop = signum;
}

static int run_backup(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct backup_args *a = opts;
    struct nt_store *store = NULL;
    char path[PATH_MAX];
    int rc = nt_store_default_path(a->db, false, path, sizeof(path), err);
    (void)nargs;

    rc = rc == 0 ? nt_store_open(path, NT_STORE_READ, &store, err) : rc;
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    rc = rc == 0 ? nt_store_backup(store, args[0], &stop, err) : rc;
    nt_store_close(store);
    if (rc == 0) {
        (void)printf("%s: a copy of %s\n", args[0], path);
    }
    return rc;
}

const struct nt_command nt_cmd_backup = {
    .name = "backup",
    .summary = "a consistent copy of the database, while others use it",
    .args = "FILE",
    .min_args = 1,
    .max_args = 1,
    .opts = backup_opts,
    .size = sizeof(struct backup_args),
    .run = run_backup,
    .details = "Writes FILE, which must not exist: the database as it is at this moment, without "
               "the space that deleted rows left. FILE is there when it is whole and on disk, "
               "not before. Jobs and the service go on meanwhile. To "
               "restore, stop who uses the database and put the copy in its place."};
