/* note: what the user measured of a run. */
#include "tuner/cli/commands.h"

#include <limits.h>
#include <stdio.h>
#include "tuner/deliver/manifest.h"

static int run_note(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    json_t *m = NULL;
    int rc = nt_manifest_annotate(args[0], args + 1, nargs - 1, &m, err);
    (void)opts;

    if (rc == 0) {
        (void)printf("run %s:", json_string_value(json_object_get(m, "id")));
        for (unsigned i = 1; i < nargs; i++) {
            (void)printf(" %s", args[i]);
        }
        (void)printf("\n");
    }
    json_decref(m);
    return rc;
}

const struct nt_command nt_cmd_note = {
    .name = "note",
    .summary = "attach a figure that you measured to a run",
    .args = "RUN NAME=VALUE [NAME=VALUE...]",
    .min_args = 2,
    .max_args = UINT_MAX,
    .run = run_note,
    .details = "RUN is the id that 'nccltune run' printed or the beginning of one; 'last' is the "
               "newest, 'last~1' the one before. A note of the same name is replaced: "
               "nccltune note last tok/s=82.2"};
