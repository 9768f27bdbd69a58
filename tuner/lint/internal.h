/* internal - what the readers and checkers of tuner/lint share. */
#pragma once
#include "tuner/lint/lint.h"

/* One text, line by line. */
struct nt_lines {
    const char *p, *end;
    uint32_t line; /* of the text last returned */
};
/* The next line without its end; false when there is none. *ret_len excludes "\n" only. */
bool nt_lines_next(struct nt_lines *l, const char **ret, size_t *ret_len);

void nt_lint_find(struct nt_lint_file *f, enum nt_lint_rule rule, uint32_t line, const char *name,
                  const char *fmt, ...) NT_PRINTF(5, 6);
/* Copies; NULL when full. value NULL: from the host. */
struct nt_lint_var *nt_lint_add(struct nt_lint_file *f, enum nt_lint_where where, uint32_t line,
                                const char *name, size_t name_len, const char *value,
                                size_t value_len);
/* [A-Za-z_][A-Za-z0-9_]* */
bool nt_lint_is_name(const char *s, size_t len);
/* Of interest: names that begin with NCCL_ or NCCLTUNE_, or with a slip of it. */
bool nt_lint_is_ours(const char *name);

typedef void (*nt_lint_reader)(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_conf(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_env(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_docker_env(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_environ(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_systemd(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_shell(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_dockerfile(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_yaml(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_settings(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_json(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_log(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_tuner_csv(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_textproto(struct nt_lint_file *f, const char *text, size_t len);
void nt_read_ucc(struct nt_lint_file *f, const char *text, size_t len);

/* A line as nccl.conf reads it; shared with scripts that write one. */
void nt_conf_line(struct nt_lint_file *f, const char *line, size_t len, uint32_t number);
/* A line of an env file. known: it is read by pam_env or another that takes quotes off. */
void nt_env_line(struct nt_lint_file *f, const char *line, size_t len, uint32_t number, bool known);
/* What a file of that name is made of: lines for NCCL, lines of an environment, or anything else.
 */
enum nt_lint_target { NT_TO_OTHER, NT_TO_CONF, NT_TO_ENV };
enum nt_lint_target nt_lint_target(const char *path);
/* A shell text inside another file (RUN, command:). first_line: of its first line. */
void nt_shell_text(struct nt_lint_file *f, const char *text, size_t len, uint32_t first_line,
                   bool exports_all);
/* Variables: duplicates by the form's rule, then each value, then the set. */
void nt_lint_check(struct nt_lint_file *f);
