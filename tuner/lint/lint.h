/*
 * lint - configuration files of other people, and what NCCL of a given release really makes of each
 * line.
 *
 * Each kind of file ("form") has a reader that delivers what its consumer would hand to NCCL: the
 * shell takes quotes off, `docker --env-file` and nccl.conf keep them. One checker then judges what
 * is delivered by the table of tunables. Nothing is executed, sourced, expanded by a shell or
 * opened because a file names it.
 *
 * Ownership  nt_lint_read() gives *ret to the caller, who passes it to nt_lint_free(). Texts passed
 *            in are borrowed until the call returns.
 * Errors     0 or -enum nt_code. A file that cannot be understood as its form is a finding, not an
 *            error of the call.
 * Bounds     files of at most NT_LINT_MAX_BYTES; variables and findings are counted and capped.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "tuner/base/json.h"

enum {
    NT_LINT_MAX_BYTES = 4 << 20,
    NT_LINT_MAX_VARS = 20000,
    NT_LINT_MAX_FINDINGS = 5000,
};

/* name, id (as --form takes it), words */
#define NT_LINT_FORMS(X)                                                                           \
    X(CONF, "nccl-conf", "nccl.conf")                                                              \
    X(ENV, "env", "file of assignments whose consumer is not known")                               \
    X(DOCKER_ENV, "docker-env", "docker --env-file")                                               \
    X(SHELL, "shell", "shell fragment")                                                            \
    X(SLURM, "slurm", "Slurm batch script")                                                        \
    X(DOCKERFILE, "dockerfile", "Dockerfile")                                                      \
    X(YAML, "yaml", "Kubernetes or Compose manifest")                                              \
    X(JSON_ENV, "json", "JSON with an environment")                                                \
    X(SYSTEMD, "systemd", "systemd unit")                                                          \
    X(ENVIRON, "environ", "environment of a process")                                              \
    X(LOG, "log", "log of NCCL")                                                                   \
    X(TUNER_CSV, "tuner-csv", "rules of NCCL's example tuner")                                     \
    X(TUNER_PROTO, "tuner-textproto", "tuner file in protobuf text form")                          \
    X(POLICY, "guest-policy", "guest policy in protobuf text form")                                \
    X(UCC, "ucc-conf", "UCC configuration")                                                        \
    X(GRAPH_XML, "graph-xml", "graph file of NCCL")                                                \
    X(TOPO_XML, "topology-xml", "topology file of NCCL")                                           \
    X(MEASUREMENTS, "measurements", "table of measurements")                                       \
    X(THRESHOLDS, "thresholds-json", "JSON without an environment")                                \
    X(SETTINGS, "settings", "file of another language with an environment")                        \
    X(UNKNOWN, "unknown", "file of an unknown kind")

enum nt_lint_form {
#define X(name, id, words) NT_LINT_##name,
    NT_LINT_FORMS(X)
#undef X
        NT_LINT_FORM_COUNT
};
extern const char *const nt_lint_form_names[]; /* "nccl-conf", … for --form; NULL-terminated */
extern const char *const nt_lint_form_words[];

/* id, level, what it means (SARIF's help) */
#define NT_LINT_RULES(X)                                                                           \
    X(NUMBER, "value-misread", ERROR, "NCCL takes another value than the text says")               \
    X(OUTSIDE, "value-outside", ERROR, "the value is outside what is known to work")               \
    X(REFUSED, "value-refused", ERROR, "NCCL refuses the value and goes on with its default")      \
    X(FAILS, "value-fails", ERROR, "communicators or calls fail with this value")                  \
    X(EMPTY, "value-empty", WARN, "an empty value is the same as none")                            \
    X(STRANDED, "no-algorithm", ERROR, "collectives are left without any algorithm")               \
    X(LL128, "ll128-forced", WARN, "an explicit list that leaves LL128 on skips safety tests")     \
    X(MISSPELT, "name-misspelt", ERROR, "no release reads this name, but one much like it")        \
    X(UNKNOWN_NAME, "name-unknown", WARN, "no release reads this name")                            \
    X(REMOVED, "name-removed", WARN, "this release no longer reads the name")                      \
    X(TOO_NEW, "name-too-new", WARN, "this release does not read the name yet")                    \
    X(NOT_NCCL, "name-not-nccl", INFO, "read by a plugin, a framework or a build, not by NCCL")    \
    X(BLANKS, "blanks-kept", ERROR, "blanks become part of the name or value")                     \
    X(QUOTES, "quotes-kept", ERROR, "quotes become part of the value")                             \
    X(COMMENT_KEPT, "comment-kept", ERROR, "a comment becomes part of the value")                  \
    X(COMMENT_SET, "comment-sets", WARN, "a comment with = is taken as an assignment")             \
    X(EXPORT_KEPT, "export-kept", ERROR, "`export ` becomes part of the name")                     \
    X(CRLF, "crlf", ERROR, "a carriage return becomes part of the value")                          \
    X(BOM, "byte-order-mark", ERROR, "a byte order mark becomes part of the first name")           \
    X(TOO_LONG, "line-too-long", ERROR, "longer than the reader's buffer")                         \
    X(NO_NEWLINE, "no-final-newline", INFO, "what is appended joins the last line")                \
    X(NO_ASSIGNMENT, "not-an-assignment", WARN, "the line is ignored")                             \
    X(NO_EXPANSION, "not-expanded", ERROR, "a placeholder or variable stays as it is written")     \
    X(UNRESOLVED, "not-resolved", INFO, "the value is only known when the shell runs")             \
    X(REDIRECTION, "redirection", ERROR, "the shell takes < or > as a redirection")                \
    X(CONSUMER, "depends-on-consumer", WARN, "consumers of such files take different values")      \
    X(FROM_HOST, "from-host", INFO, "the value comes from whoever starts the program")             \
    X(NOT_EXPORTED, "not-exported", WARN, "the shell keeps the variable to itself")                \
    X(SOURCED, "sourced", INFO, "another file is read here; it was not looked at")                 \
    X(COMMAND_ENDS, "command-ends", ERROR, "backslash and blank: the command ends here")           \
    X(CUT, "value-cut", ERROR, "a separator of the consumer ends the value early")                 \
    X(SEVERAL, "several-in-one", ERROR, "several settings in one variable: NCCL reads none")       \
    X(DUPLICATE, "duplicate", WARN, "the name is set twice")                                       \
    X(OVERRIDDEN, "overridden", WARN, "another file or place wins")                                \
    X(NOT_STRING, "not-a-string", ERROR, "the consumer wants a string here")                       \
    X(BAD_SYNTAX, "bad-syntax", ERROR, "the file does not parse as what it is")                    \
    X(INERT, "inert", WARN, "does nothing beside another setting")                                 \
    X(CONTRADICTION, "contradiction", ERROR, "contradicts another setting")                        \
    X(UNSAFE, "unsafe-together", ERROR, "together these can hang, corrupt or fail")                \
    X(MASKS_TUNER, "masks-tuner", WARN, "hides choices from a tuner plugin")                       \
    X(MEMORY, "memory-price", WARN, "costs memory on every GPU")                                   \
    X(RISKY, "risky", WARN, "a value that can hang or corrupt on some machines")                   \
    X(MACHINE_FILE, "machine-file", INFO, "a file that holds for one machine only")                \
    X(EXACT_LIST, "exact-list", INFO, "the second = is part of the value: exact names")            \
    X(VERSIONED, "version-dependent", WARN, "releases differ in what they take")                   \
    X(POLICY_BROKEN, "policy-broken", ERROR, "a policy of the site insists on another value")      \
    X(POLICY_SET, "policy", INFO, "the site fixes this value: shown as fixed, not searched")       \
    X(RULE_TEXT, "rule-unknown-text", ERROR, "the tuner silently takes something else")            \
    X(RULE_SKIPPED, "rule-skipped", ERROR, "the tuner skips the line")                             \
    X(RULE_SHADOWED, "rule-shadowed", WARN, "an earlier rule always matches first")                \
    X(RULE_EMPTY, "rule-never-matches", ERROR, "the range of the rule is empty")                   \
    X(RULE_CHANNELS, "rule-one-channel", WARN, "-1 channels run on a single channel")              \
    X(RULE_KERNEL, "rule-no-kernel", WARN, "NCCL has no such kernel: the rule does nothing")       \
    X(OTHER_KIND, "other-kind", INFO, "not a file of NCCL settings")                               \
    X(TUNER_INACTIVE, "tuner-not-active", WARN, "the log says that no tuner plugin is active")     \
    X(NVLS_CAUSE, "multicast-unavailable", WARN, "the machine, not a setting, is the cause")       \
    X(LOG_SET, "set-in-log", INFO, "what NCCL said that it took")                                  \
    X(LIMIT, "limit", WARN, "more was found than is kept")

enum nt_lint_rule {
#define X(name, id, level, words) NT_R_##name,
    NT_LINT_RULES(X)
#undef X
        NT_LINT_RULE_COUNT
};
enum nt_lint_level { NT_LINT_INFO, NT_LINT_WARN, NT_LINT_ERROR };
extern const char *const nt_lint_level_names[]; /* "info", "warning", "error" */
const char *nt_lint_rule_id(enum nt_lint_rule rule);
const char *nt_lint_rule_words(enum nt_lint_rule rule);
enum nt_lint_level nt_lint_rule_level(enum nt_lint_rule rule);

struct nt_lint_finding {
    enum nt_lint_rule rule;
    uint32_t line; /* 0: the whole file */
    char *name;    /* the variable, or NULL; owned */
    char *text;    /* owned */
};

/* Where a variable takes effect. */
enum nt_lint_where {
    NT_W_ENV,    /* the environment of processes */
    NT_W_SHELL,  /* a shell variable that nobody exports */
    NT_W_FILE,   /* a line of an nccl.conf, written by a script or being the file itself */
    NT_W_POLICY, /* what a site insists on */
    NT_W_LOG,    /* what a log says was taken */
};

struct nt_lint_var {
    char *name, *value; /* as the consumer delivers them; owned. value NULL: comes from the host */
    char *group;        /* container, service or target; "" for the file itself; owned */
    uint32_t line;
    uint8_t where;   /* enum nt_lint_where */
    bool unresolved; /* holds what only a running shell knows */
    bool dead;       /* another assignment of the name wins */
    bool enforced;   /* of a policy */
};

struct nt_lint_file {
    char *name;
    enum nt_lint_form form;
    unsigned version; /* of NCCL */
    struct nt_lint_var *vars;
    size_t nvars;
    struct nt_lint_finding *findings;
    size_t nfindings;
    bool full;
    bool rccl;     /* the text speaks of it: AMD's library takes some names and values of its own */
    uint8_t depth; /* while reading: texts inside texts */
    const char *text; /* while reading: the whole of it, borrowed */
    size_t len;
};

struct nt_lint_opts {
    unsigned version; /* of NCCL, NT_V() */
    int form;         /* enum nt_lint_form, or -1: by name and content */
};

/* Reads and checks one file. name also hints at the form. */
NT_MUST_CHECK int nt_lint_read(const char *name, const char *text, size_t len,
                               const struct nt_lint_opts *opts, struct nt_lint_file **ret,
                               struct nt_err *err);
void nt_lint_free(struct nt_lint_file *f);

/* Findings between files: which of them wins, and what breaks a policy. Precedence: process
 * environment, then the first nccl.conf given, then the next. Findings go to the file that loses.
 */
void nt_lint_across(struct nt_lint_file *const *files, size_t n);

size_t nt_lint_errors(const struct nt_lint_file *f);

/* What NCCL takes, one line a variable; then the findings. */
void nt_lint_text(const struct nt_lint_file *f, struct nt_buf *out);
json_t *nt_lint_json(const struct nt_lint_file *f);
/* SARIF 2.1.0 of one run over all files. */
json_t *nt_lint_sarif(struct nt_lint_file *const *files, size_t n, const char *version);
