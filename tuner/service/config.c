#include "tuner/service/config.h"
#include "schema/tunables.h"
#include "schema/vocab.h"
#include "tuner/base/text.h"
#include "tuner/job/spec.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_MAX_BYTES = 1 << 20 };
enum type { TEXT, BOOL, U32, OCTAL, BYTES, DURATION };

struct row {
    const char *section, *name;
    enum type type;
    size_t offset, size;
    const char *otherwise; /* the default, as written */
    const char *help;
    const char *const *choices;
};

static const char *const changes[] = {"off", "propose", "queue", NULL};
static const char *const stales[] = {"warn", "withhold", NULL};
static const char *const foreigns[] = {"pause", "ignore", NULL};
static const char *const others[] = {"none", "read", "submit", NULL};
static const char *const efforts[] = {"quick", "standard", "thorough", NULL};
static const char *const paces[] = {"none", "real", NULL};

#define C(section_, type_, field, otherwise_, choices_, help_)                                     \
    {                                                                                              \
        .section = (section_), .name = #field, .type = (type_),                                    \
        .offset = offsetof(struct nt_config, field),                                               \
        .size = sizeof(((struct nt_config *)0)->field), .otherwise = (otherwise_),                 \
        .help = (help_), .choices = (choices_)                                                     \
    }
#define CN(section_, name_, type_, field, otherwise_, choices_, help_)                             \
    {                                                                                              \
        .section = (section_), .name = (name_), .type = (type_),                                   \
        .offset = offsetof(struct nt_config, field),                                               \
        .size = sizeof(((struct nt_config *)0)->field), .otherwise = (otherwise_),                 \
        .help = (help_), .choices = (choices_)                                                     \
    }
#define R(name_, type_, field, otherwise_, choices_, help_)                                        \
    {                                                                                              \
        .section = "rig", .name = (name_), .type = (type_),                                        \
        .offset = offsetof(struct nt_config_rig, field),                                           \
        .size = sizeof(((struct nt_config_rig *)0)->field), .otherwise = (otherwise_),             \
        .help = (help_), .choices = (choices_)                                                     \
    }

static const struct row rows[] = {
    C("server", TEXT, listen, "unix:/run/nccltune/nccltune.sock", NULL,
      "where to listen, comma-separated: unix:PATH, ADDRESS:PORT (with tokens; loopback only)"),
    C("server", OCTAL, socket_mode, "0660", NULL, "mode of the Unix socket"),
    C("server", TEXT, others, "read", others,
      "what a local user may who is neither root nor the service's own: none, read, submit"),
    C("server", TEXT, tokens, "", NULL,
      "file of 'ROLE TOKEN [NAME]' lines (read, submit, admin), mode 0600; needed for TCP"),
    C("server", BOOL, behind_proxy, "no", NULL,
      "a proxy with TLS stands in front: TCP beyond loopback, any Host"),
    C("server", TEXT, hosts, "", NULL, "further names that a Host header may say, comma-separated"),
    C("server", TEXT, database, "", NULL, "the database (empty: as for every command)"),
    C("server", U32, max_connections, "1024", NULL, "connections at once"),
    C("server", U32, max_streams, "256", NULL, "event streams at once"),
    C("server", BYTES, max_body_bytes, "1M", NULL, "largest body of a request"),
    C("queue", TEXT, window, "", NULL,
      "when jobs may start, local time, comma-separated: 22:00-06:00 (empty: always)"),
    C("queue", U32, max_running, "2", NULL, "jobs at once; one at a time per set of GPUs anyway"),
    C("queue", U32, max_queued, "100", NULL, "jobs that may wait"),
    CN("queue", "idle_busy_percent", U32, idle_busy_percent, "5", NULL,
       "a GPU busier than this is not idle"),
    CN("queue", "idle_memory", BYTES, idle_memory_bytes, "1G", NULL,
       "nor one with more of its memory in use"),
    CN("queue", "idle_for", DURATION, idle_ns, "30s", NULL,
       "how long GPUs must be idle before a job starts"),
    CN("queue", "load_interval", DURATION, load_ns, "5s", NULL, "how often load is looked at"),
    C("queue", TEXT, foreign, "pause", foreigns,
      "somebody else's work on the GPUs of a running job: pause (it goes on later), ignore"),
    CN("watch", "interval", DURATION, interval_ns, "5m", NULL,
       "how often identity, health and stack are looked at; 0: only at the start"),
    CN("watch", "settle", DURATION, settle_ns, "1m", NULL,
       "how long a change must stay before anything is done about it"),
    C("watch", TEXT, topology, "", NULL,
      "a topology file instead of the live machine: NCCL's XML, or nvidia-smi topo -m"),
    C("watch", TEXT, nvml, "", NULL, "NVML library (empty: libnvidia-ml.so.1)"),
    C("watch", TEXT, load, "", NULL,
      "a file that says how busy the GPUs are, in percent, instead of NVML"),
    C("watch", TEXT, on_change, "propose", changes,
      "another machine or stack: off, propose a job, queue it"),
    C("watch", TEXT, on_stale, "warn", stales, "a profile that no longer holds: warn, withhold it"),
    C("watch", TEXT, rig, "", NULL, "the rig that such a job runs on; empty: there is no such job"),
    C("retention", U32, samples_days, "90", NULL,
      "raw samples older than this are thinned to 16 a trial; summaries and evidence stay; 0: "
      "never"),
    R("rig", TEXT, rig, "nccl", NULL, "nccl, mps-sockets, mps-p2p, recording:NAME, model:TOPO.xml"),
    R("gpus", TEXT, gpus, "all", NULL, "what it occupies: all, none, or numbers: 0,1,2,3"),
    R("devices", TEXT, devices, "", NULL, "CUDA devices, one a rank"),
    R("ranks", U32, ranks, "0", NULL, "ranks; 0: one for each GPU, or as recorded"),
    R("nccl", TEXT, nccl, "", NULL, "libnccl to tune"),
    R("workload", TEXT, workload, "", NULL, "workload file whose weights decide"),
    R("fix", TEXT, fix, "", NULL, "site constraints, blank-separated NAME=VALUE"),
    R("env", TEXT, env, "", NULL, "further variables of the ranks, blank-separated NAME=VALUE"),
    R("effort", TEXT, effort, "standard", efforts, "unless the job says it"),
    R("budget", DURATION, budget_ns, "0", NULL, "unless the job says it; 0: none"),
    R("collectives", TEXT, collectives, "", NULL, "unless the job says it"),
    R("sizes", TEXT, sizes, "", NULL, "unless the job says it"),
    R("modes", TEXT, modes, "", NULL, "unless the job says it"),
    R("dtypes", TEXT, dtypes, "", NULL, "unless the job says it"),
    R("no_groups", BOOL, no_groups, "no", NULL,
      "as tune --no-groups: no program here calls several collectives as one NCCL group"),
    R("no_overlap", BOOL, no_overlap, "no", NULL,
      "as tune --no-overlap: no program here computes beside its calls"),
    R("pace", TEXT, pace, "none", paces, "recordings, models: keep the real durations"),
    R("check", DURATION, check_ns, "0", NULL,
      "how often its newest profile is checked against the default; 0: never"),
};
enum { NROWS = sizeof(rows) / sizeof(rows[0]) };

/* --- values -------------------------------------------------------------------------------------
 */

static int take_bool(const char *text, bool *ret, struct nt_err *err)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1", NULL};
    int i = nt_vocab_find(words, "yes or no", text, err);
    if (i >= 0) {
        *ret = i % 2 != 0;
    }
    return i < 0 ? i : 0;
}

static int take(const struct row *r, void *base, const char *text, struct nt_err *err)
{
    char *at = (char *)base + r->offset;
    uint64_t x = 0;
    char *end;
    int rc = 0;

    switch (r->type) {
    case TEXT:
        if (r->choices != NULL && nt_vocab_find(r->choices, r->name, text, err) < 0) {
            return -NT_E_INVAL;
        }
        return snprintf(at, r->size, "%s", text) < (int)r->size
                   ? 0
                   : nt_fail(err, NT_E_INVAL, 0, "longer than %zu bytes", r->size - 1);
    case BOOL:
        return take_bool(text, (bool *)at, err);
    case OCTAL:
        x = strtoull(text, &end, 8);
        rc = *end != '\0' || x > 0777 ? nt_fail(err, NT_E_INVAL, 0, "'%s' is no mode", text) : 0;
        break;
    case U32:
        rc = nt_parse_u64(text, &x, err);
        rc = rc == 0 && x > UINT32_MAX ? nt_fail(err, NT_E_INVAL, 0, "%s is too much", text) : rc;
        break;
    case BYTES:
        rc = nt_parse_bytes(text, &x, err);
        break;
    case DURATION:
        rc = nt_parse_wait(text, &x, err);
        break;
    }
    if (rc == 0 && r->size == sizeof(uint32_t)) {
        *(uint32_t *)(void *)at = (uint32_t)x;
    } else if (rc == 0) {
        *(uint64_t *)(void *)at = x;
    }
    return rc;
}

/* --- what a value must say, so that it is refused when the service starts, not when a job does ---
 */

static int gpu_mask(const char *text, uint64_t *ret, struct nt_err *err)
{
    char copy[128], *rest = copy, *word;
    *ret = 0;
    if (strcmp(text, "none") == 0) {
        return 0;
    }
    if (strcmp(text, "all") == 0) {
        *ret = UINT64_MAX;
        return 0;
    }
    (void)snprintf(copy, sizeof(copy), "%s", text);
    while ((word = strsep(&rest, ",")) != NULL) {
        uint64_t x = 0;
        int rc = nt_parse_u64(word, &x, err);
        if (rc != 0 || x > 63) {
            return nt_fail(err, NT_E_INVAL, 0,
                           "gpus: '%s' is neither all, none nor numbers below 64", text);
        }
        *ret |= UINT64_C(1) << x;
    }
    return 0;
}

static int check_gpus(const char *text, struct nt_err *err)
{
    uint64_t mask;
    return gpu_mask(text, &mask, err);
}

static int check_window(const char *text, struct nt_err *err)
{
    struct nt_window windows[NT_QUEUE_WINDOWS];
    size_t n;
    return nt_windows_parse(text, windows, &n, err);
}

/* A recording's name is looked up by who knows where they are. */
static int check_rig(const char *text, struct nt_err *err)
{
    static const char *const known[] = {
        "auto", "nccl", "mps-sockets", "mps-p2p", "recording:NAME", "model:TOPO.xml", NULL};
    if (strncmp(text, "model:", 6) == 0) {
        return access(text + 6, R_OK) == 0 ? 0 : nt_fail(err, NT_E_INVAL, errno, "%s", text);
    }
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(known[i], text) == 0) {
            return 0;
        }
    }
    return strncmp(text, "recording:", 10) == 0 && text[10] != '\0'
               ? 0
               : nt_fail_name(err, "rig", text, known);
}

static int check_words(const char *text, const char *what, const char *const *names,
                       struct nt_err *err)
{
    char copy[NT_CONFIG_TEXT], *rest = copy, *word;
    int i = 0;

    (void)snprintf(copy, sizeof(copy), "%s", text);
    while (i >= 0 && text[0] != '\0' && (word = strsep(&rest, ",")) != NULL) {
        i = nt_vocab_find(names, what, word, err);
    }
    return i < 0 ? i : 0;
}

static int check_collectives(const char *text, struct nt_err *err)
{
    return check_words(text, "collective", nt_coll_names, err);
}

static int check_modes(const char *text, struct nt_err *err)
{
    return check_words(text, "mode", nt_mode_names, err);
}

static int check_dtypes(const char *text, struct nt_err *err)
{
    return check_words(text, "data type", nt_dtype_names, err);
}

static int check_sizes(const char *text, struct nt_err *err)
{
    struct nt_spec *spec = calloc(1, sizeof(*spec));
    int rc = spec == NULL ? nt_fail(err, NT_E_NOMEM, 0, "config") : 0;
    if (rc == 0 && text[0] != '\0') {
        nt_spec_init(spec);
        spec->nsizes = 0;
        rc = nt_spec_add_sizes(spec, text, err);
    }
    free(spec);
    return rc;
}

/* Blank-separated NAME=VALUE; NCCL's names must be such. */
static int check_assigns(const char *text, bool nccl, struct nt_err *err)
{
    char copy[NT_CONFIG_TEXT], *rest = NULL, *word;

    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *eq = strchr(word, '=');
        if (eq == NULL || eq == word) {
            return nt_fail(err, NT_E_INVAL, 0, "'%s' is no NAME=VALUE", word);
        }
        *eq = '\0';
        if (strncmp(word, "NCCL_", 5) == 0 && (!nccl || nt_tunable_any(word) == NULL)) {
            const char *near = nccl ? nt_tunable_nearest(word) : NULL;
            return nt_fail(err, NT_E_INVAL, 0, "%s: %s%s%s%s", word,
                           nccl ? "NCCL reads no such variable" : "for NCCL's variables use fix",
                           near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                           near != NULL ? "?" : "");
        }
    }
    return 0;
}

static int check_fix(const char *text, struct nt_err *err)
{
    return check_assigns(text, true, err);
}

static int check_env(const char *text, struct nt_err *err)
{
    return check_assigns(text, false, err);
}

static const struct {
    const char *section, *name;
    int (*check)(const char *text, struct nt_err *err);
} checks[] = {{"queue", "window", check_window}, {"rig", "rig", check_rig},
              {"rig", "gpus", check_gpus},       {"rig", "collectives", check_collectives},
              {"rig", "modes", check_modes},     {"rig", "dtypes", check_dtypes},
              {"rig", "sizes", check_sizes},     {"rig", "fix", check_fix},
              {"rig", "env", check_env}};

static int check(const struct row *r, const char *text, struct nt_err *err)
{
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        if (strcmp(checks[i].section, r->section) == 0 && strcmp(checks[i].name, r->name) == 0) {
            return checks[i].check(text, err);
        }
    }
    return 0;
}

static void set_defaults(const char *section, void *base)
{
    for (size_t i = 0; i < NROWS; i++) {
        if ((strcmp(rows[i].section, "rig") == 0) == (strcmp(section, "rig") == 0)) {
            struct nt_err e = {0};
            nt_assert(take(&rows[i], base, rows[i].otherwise, &e) == 0);
        }
    }
}

void nt_config_init(struct nt_config *c)
{
    memset(c, 0, sizeof(*c));
    set_defaults("", c);
}

/* --- lines --------------------------------------------------------------------------------------
 */

static int row_of(const char *section, const char *name, const struct row **ret, struct nt_err *err)
{
    const char *names[NROWS + 1];
    size_t n = 0;
    for (size_t i = 0; i < NROWS; i++) {
        if (strcmp(rows[i].section, section) == 0) {
            if (strcmp(rows[i].name, name) == 0) {
                *ret = &rows[i];
                return 0;
            }
            names[n++] = rows[i].name;
        }
    }
    names[n] = NULL;
    return nt_fail_name(err, "setting", name, names);
}

struct reading {
    struct nt_config *c;
    struct nt_config_rig *rig; /* whose section it is; NULL: none's */
    char section[32];
    unsigned line;
    unsigned set[NROWS]; /* line; 0: not yet, of a rig not in this one */
};

static int take_section(struct reading *r, char *text, struct nt_err *err)
{
    struct nt_config *c = r->c;
    static const char *const names[] = {"server", "queue", "watch", "retention", "rig NAME", NULL};
    char *end = strchr(text, ']');

    if (end == NULL || end[1] != '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "a section is written [name]");
    }
    *end = '\0';
    r->rig = NULL;
    if (strncmp(text, "rig ", 4) != 0) {
        (void)snprintf(r->section, sizeof(r->section), "%s", text);
        for (size_t i = 0; i + 1 < sizeof(names) / sizeof(names[0]) - 1; i++) {
            if (strcmp(names[i], text) == 0) {
                return 0;
            }
        }
        return nt_fail_name(err, "section", text, names);
    }
    text += 4 + strspn(text + 4, " ");
    if (text[0] == '\0' || strlen(text) >= sizeof(c->rigs[0].name) ||
        text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] !=
            '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "a rig's name is of letters, digits, '.', '_' and '-'");
    }
    if (nt_config_rig(c, text) != NULL || c->nrigs == NT_CONFIG_RIGS) {
        return nt_fail(err, NT_E_INVAL, 0, "rig %s is named twice, or is one of more than %d", text,
                       NT_CONFIG_RIGS);
    }
    (void)snprintf(r->section, sizeof(r->section), "rig");
    r->rig = &c->rigs[c->nrigs++];
    memset(r->rig, 0, sizeof(*r->rig));
    set_defaults("rig", r->rig);
    (void)snprintf(r->rig->name, sizeof(r->rig->name), "%s", text);
    for (size_t i = 0; i < NROWS; i++) {
        r->set[i] = strcmp(rows[i].section, "rig") == 0 ? 0 : r->set[i];
    }
    return 0;
}

static char *trim(char *text)
{
    size_t n;
    text += strspn(text, " \t\r");
    n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1]) != NULL) {
        text[--n] = '\0';
    }
    return text;
}

/* Where it is said, for what can only be looked up when the whole file is read. */
static void note_line(const struct reading *r, const struct row *row)
{
    struct nt_config *c = r->c;
    bool rig = row->offset == offsetof(struct nt_config, rig) && c->rig[0] != '\0';
    bool queue = row->offset == offsetof(struct nt_config, on_change) && c->rig[0] == '\0' &&
                 strcmp(c->on_change, "queue") == 0;

    if (r->rig != NULL && row->offset == offsetof(struct nt_config_rig, rig)) {
        r->rig->line = r->line;
    } else if (r->rig == NULL && (rig || queue)) {
        c->rig_line = r->line;
    }
}

static int take_value(struct reading *r, const char *name, const char *text, struct nt_err *err)
{
    const struct row *row = NULL;
    unsigned *set;
    int rc = row_of(r->section, name, &row, err);

    if (rc != 0) {
        return rc;
    }
    set = &r->set[row - rows];
    if (*set != 0) { /* which of the two was meant? */
        return nt_fail(err, NT_E_INVAL, 0, "%s is set in line %u already", name, *set);
    }
    *set = r->line;
    rc = take(row, r->rig != NULL ? (void *)r->rig : (void *)r->c, text, err);
    rc = nt_wrap(err, rc == 0 ? check(row, text, err) : rc, "%s", row->name);
    note_line(r, row);
    return rc;
}

static int take_line(struct reading *r, char *line, struct nt_err *err)
{
    char *eq;

    line = trim(line);
    if (line[0] == '\0' || line[0] == '#' || line[0] == ';') {
        return 0;
    }
    if (line[0] == '[') {
        return take_section(r, line + 1, err);
    }
    eq = strchr(line, '=');
    if (eq == NULL || r->section[0] == '\0') {
        return nt_fail(err, NT_E_INVAL, 0,
                       eq == NULL ? "neither [section] nor name = value"
                                  : "stands before the first [section]");
    }
    *eq = '\0';
    return take_value(r, trim(line), trim(eq + 1), err);
}

/* The rig of [watch] may stand below it. */
static int check_watch_rig(const struct nt_config *c, struct nt_err *err)
{
    const char *names[NT_CONFIG_RIGS + 1] = {NULL};

    if (c->rig[0] == '\0' && strcmp(c->on_change, "queue") == 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "on_change = queue: on which rig? Name it, as rig = NAME of a [rig NAME]");
    }
    if (c->rig[0] == '\0' || nt_config_rig(c, c->rig) != NULL) {
        return 0;
    }
    for (size_t i = 0; i < c->nrigs; i++) {
        names[i] = c->rigs[i].name;
    }
    return c->nrigs > 0
               ? nt_fail_name(err, "rig", c->rig, names)
               : nt_fail(err, NT_E_INVAL, 0, "rig = %s: there is no [rig %s]", c->rig, c->rig);
}

int nt_config_parse(struct nt_config *c, const char *text, const char *what, struct nt_err *err)
{
    struct reading r = {.c = c};
    char *copy = strdup(text), *rest = copy, *line;
    int rc = copy == NULL ? nt_fail(err, NT_E_NOMEM, 0, "config") : 0;

    while (rc == 0 && (line = strsep(&rest, "\n")) != NULL) {
        r.line++;
        rc = nt_wrap(err, take_line(&r, line, err), "%s:%u", what, r.line);
    }
    free(copy);
    return rc == 0 ? nt_wrap(err, check_watch_rig(c, err), "%s:%u: [watch]", what, c->rig_line)
                   : rc;
}

int nt_config_read(struct nt_config *c, const char *path, struct nt_err *err)
{
    struct nt_buf b;
    int rc;
    nt_buf_init(&b, CONFIG_MAX_BYTES);
    rc = nt_buf_read_file(&b, path, err);
    if (rc == 0 && strlen(nt_buf_str(&b)) != b.len) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: a NUL inside", path);
    }
    rc = rc == 0 ? nt_config_parse(c, nt_buf_str(&b), path, err) : rc;
    nt_buf_done(&b);
    return rc;
}

/* --- what belongs together ----------------------------------------------------------------------
 */

int nt_config_finish(struct nt_config *c, struct nt_err *err)
{
    int rc = nt_windows_parse(c->window, c->windows, &c->nwindows, err);

    c->change = (enum nt_on_change)nt_vocab_find(changes, "", c->on_change, NULL);
    c->stale = (enum nt_on_stale)nt_vocab_find(stales, "", c->on_stale, NULL);
    c->pause_foreign = strcmp(c->foreign, "pause") == 0;
    for (size_t i = 0; rc == 0 && i < c->nrigs; i++) {
        rc = nt_wrap(err, gpu_mask(c->rigs[i].gpus, &c->rigs[i].gpu_mask, err), "rig %s",
                     c->rigs[i].name);
    }
    if (rc == 0 && (c->max_connections < 8 || c->max_running == 0 || c->load_ns < 1000000)) {
        rc = nt_fail(err, NT_E_INVAL, 0,
                     "max_connections is at least 8, max_running 1, load_interval 1ms");
    }
    return rc;
}

const struct nt_config_rig *nt_config_rig(const struct nt_config *c, const char *name)
{
    for (size_t i = 0; i < c->nrigs; i++) {
        if (strcmp(c->rigs[i].name, name) == 0) {
            return &c->rigs[i];
        }
    }
    return NULL;
}

bool nt_config_rig_measures(const struct nt_config_rig *r)
{
    return strncmp(r->rig, "recording:", 10) != 0 && strncmp(r->rig, "model:", 6) != 0;
}

void nt_config_print(FILE *out)
{
    const char *section = "";
    (void)fprintf(out, "# The configuration of `nccltune serve`; every line shows its default.\n");
    for (size_t i = 0; i < NROWS; i++) {
        const struct row *r = &rows[i];
        bool rig = strcmp(r->section, "rig") == 0;
        if (strcmp(section, r->section) != 0) {
            section = r->section;
            (void)fprintf(out,
                          rig ? "\n# What jobs may run on, by name; any number of sections.\n"
                                "#[rig node]\n"
                              : "\n[%s]\n",
                          section);
        }
        (void)fprintf(out, "# %s\n%s%s =%s%s\n", r->help, rig ? "#" : "", r->name,
                      r->otherwise[0] != '\0' ? " " : "", r->otherwise);
    }
}
