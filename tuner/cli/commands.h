/* commands - one row a subcommand, each in its own cmd_<name>.c; main.c holds the table. */
#pragma once
#include "tuner/base/cli.h"

extern const struct nt_command nt_cmd_tune;
extern const struct nt_command nt_cmd_record;
extern const struct nt_command nt_cmd_serve;
extern const struct nt_command nt_cmd_pull;
extern const struct nt_command nt_cmd_backup;
extern const struct nt_command nt_cmd_import;
extern const struct nt_command nt_cmd_lint;
extern const struct nt_command nt_cmd_workload;
extern const struct nt_command nt_cmd_explain;
extern const struct nt_command nt_cmd_show;
extern const struct nt_command nt_cmd_report;
extern const struct nt_command nt_cmd_export;
extern const struct nt_command nt_cmd_decide;
extern const struct nt_command nt_cmd_topo;
extern const struct nt_command nt_cmd_predict;
extern const struct nt_command nt_cmd_jobs;
extern const struct nt_command nt_cmd_query;
extern const struct nt_command nt_cmd_merge;
extern const struct nt_command nt_cmd_run;
extern const struct nt_command nt_cmd_ab;
extern const struct nt_command nt_cmd_note;
extern const struct nt_command nt_cmd_diff;
extern const struct nt_command nt_cmd_doctor;
extern const struct nt_command nt_cmd_install;
extern const struct nt_command nt_cmd_uninstall;
extern const struct nt_command nt_cmd_status;
extern const struct nt_command nt_cmd_check;
