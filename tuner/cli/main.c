#include "tuner/cli/commands.h"

/* In the order of `nccltune --help`; one line a command, so that branches merge. */
/* clang-format off */
static const struct nt_command *const commands[] = {
    &nt_cmd_tune,
    &nt_cmd_record,
    &nt_cmd_import,
    &nt_cmd_lint,
    &nt_cmd_workload,
    &nt_cmd_explain,
    &nt_cmd_show,
    &nt_cmd_report,
    &nt_cmd_export,
    &nt_cmd_decide,
    &nt_cmd_topo,
    &nt_cmd_predict,
    &nt_cmd_run,
    &nt_cmd_ab,
    &nt_cmd_note,
    &nt_cmd_diff,
    &nt_cmd_install,
    &nt_cmd_uninstall,
    &nt_cmd_status,
    &nt_cmd_doctor,
    &nt_cmd_check,
    &nt_cmd_jobs,
    &nt_cmd_query,
    &nt_cmd_merge,
    &nt_cmd_backup,
    &nt_cmd_serve,
    &nt_cmd_pull,
    NULL,
};
/* clang-format on */

int main(int argc, char **argv)
{
    return nt_cli_main("nccltune", NT_VERSION, commands, argc, argv);
}
