/* run: a command with a profile applied, and a manifest of what that run was. */
#include "tuner/cli/commands.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tuner/cli/run_start.h"

static const struct nt_opt run_opts[] = {
    NT_RUN_ROWS("the profile to apply; without one only the manifest is kept"),
    NT_OPT(NT_O_FLAG, nt_run_opts, observe, "observe", 0, NULL,
           "count what NCCL executes, with the profiler plugin"),
    NT_OPT(NT_O_FLAG, nt_run_opts, dry_run, "dry-run", 'n', NULL,
           "print what would be set, and why it fits or not; start nothing"),
    NT_OPT(NT_O_FLAG, nt_run_opts, verbose, "verbose", 'v', NULL, "say everything on stderr"),
    {0}};

static int run_run(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const char **argv = calloc(nargs + 1U, sizeof(*argv));
    struct nt_err why = {.code = NT_OK};
    int shell = 0, rc;

    if (argv == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "run");
    }
    memcpy(argv, args, nargs * sizeof(*argv));
    rc = nt_run_start(opts, argv, NULL, &shell, &why);
    if (shell != 0) { /* not to be mistaken for an exit code of ours */
        (void)fprintf(stderr, "nccltune: %s\n", why.msg);
        (void)fflush(NULL);
        _exit(shell);
    }
    free(argv);
    if (rc != 0 && err != NULL) {
        *err = why;
    }
    return rc;
}

const struct nt_command nt_cmd_run = {
    .name = "run",
    .summary = "a command with a profile applied, and a manifest of the run",
    .args = "[options] -- COMMAND [ARG...]",
    .min_args = 1,
    .max_args = UINT_MAX,
    .opts = run_opts,
    .size = sizeof(struct nt_run_opts),
    .run = run_run,
    .hands_on = true,
    .details =
        "Checks that the profile fits this machine, sets its variables for the command and all "
        "its children, writes a manifest, and becomes the command. A value that is set already "
        "stays, and is said.\n\nThe manifest lies in "
        "${XDG_STATE_HOME:-~/.local/state}/nccltune/runs; 'nccltune note' adds what you measured, "
        "'nccltune diff' compares two. Where it cannot be written the command starts without, and "
        "that "
        "is said; where the profile's own files cannot be written nothing is started. "
        "NCCLTUNE_DISABLE=1 applies nothing.\n\nExit code: the "
        "command's; 127 when there is no such command, 126 when it cannot be started; before "
        "that, those of nccltune."};
