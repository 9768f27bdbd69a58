#include "tuner/cli/env.h"
#include "schema/tunables.h"
#include "tuner/base/log.h"
#include "tuner/base/text.h"
#include "tuner/topology/topology.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void nt_env_init(struct nt_env *e)
{
    *e = (struct nt_env){0};
    nt_buf_init(&e->text, 1 << 18);
    nt_buf_init(&e->said, 1 << 16);
    nt_found_places(&e->places);
}

void nt_env_done(struct nt_env *e)
{
    nt_buf_done(&e->text);
    nt_buf_done(&e->said);
}

static void add(struct nt_env *e, const char *name, const char *value)
{
    nt_buf_printf(&e->text, "%s=%s", name, value);
    nt_buf_add(&e->text, "", 1);
}

const char *const *nt_env_list(struct nt_env *e)
{
    size_t n = 0;
    for (size_t at = 0; at < e->text.len && n + 1 < sizeof(e->list) / sizeof(e->list[0]);
         at += strlen(e->text.data + at) + 1) {
        e->list[n++] = e->text.data + at;
    }
    e->list[n] = NULL;
    return e->list;
}

/* Appends a word to a blank-separated list; values with blanks cannot stand in one. */
static int add_word(char *list, size_t size, const char *name, const char *value,
                    struct nt_err *err)
{
    size_t n = strlen(list);

    if (strpbrk(value, " \t\n") != NULL) {
        return nt_fail(
            err, NT_E_INVAL, 0,
            "%s='%.100s': a value with blanks cannot be kept; unset it, or name it without", name,
            value);
    }
    if (snprintf(list + n, size - n, "%s%s=%s", n > 0 ? " " : "", name, value) >= (int)(size - n)) {
        return nt_fail(err, NT_E_INVAL, 0, "too many variables at %s", name);
    }
    return 0;
}

static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)) != NULL; p += n) {
        if ((p == list || p[-1] == ' ') && p[n] == '=') {
            return true;
        }
    }
    return false;
}

static bool is_in(const char *name, const char *const *list)
{
    while (*list != NULL && strcmp(*list, name) != 0) {
        list++;
    }
    return *list != NULL;
}

/* What NCCL reads, or a tuner plugin that it loads: a profile that is in force is "as found", too.
 */
static bool is_setting(const char *name)
{
    static const char *const plugins[] = {"NCCL_TUNER_CONFIG_FILE", "NCCLTUNE_PROFILE",
                                          "NCCLTUNE_TABLE", "NCCLTUNE_CSV", NULL};
    const struct nt_tunable *t = nt_tunable_any(name);

    return is_in(name, plugins) || (t != NULL && strncmp(name, "NCCL_", 5) == 0 &&
                                    (t->flags & (NT_F_DEBUG | NT_F_NOT_NCCL | NT_F_GONE)) == 0);
}

/* One variable of the caller: a constraint goes into every arm, another setting is "as found". */
static int take_one(struct nt_env *e, struct nt_spec *s, const char *name, const char *value,
                    struct nt_err *err)
{
    int rc = 0;

    if (nt_tunable_is_site(name) || nt_tunable_forbids(name, value)) {
        add(e, name, value);
        if (strpbrk(value, " \t\n") == NULL) {
            rc = add_word(s->fixed, sizeof(s->fixed), name, value, err);
        }
    } else if (is_setting(name)) {
        rc = add_word(s->as_found, sizeof(s->as_found), name, value, err);
    }
    return rc;
}

struct taking {
    struct nt_env *e;
    struct nt_spec *s;
};

/* One variable of a file. */
static int take_found(void *data, enum nt_found_in in, const char *path, const char *name,
                      const char *value, struct nt_err *err)
{
    /* These have a value of their own in every arm. */
    static const char *const ours[] = {
        "NCCL_TUNER_PLUGIN", "NCCL_ENV_PLUGIN",        "NCCL_PROFILER_PLUGIN",
        "NCCL_CONF_FILE",    "NCCLTUNE_PROFILE",       "NCCLTUNE_TABLE",
        "NCCLTUNE_CSV",      "NCCL_TUNER_CONFIG_FILE", NULL};
    struct taking *k = data;
    const struct nt_tunable *t = nt_tunable_any(name);
    bool constraint = nt_tunable_is_site(name) || nt_tunable_forbids(name, value);

    if (getenv(name) != NULL || in_list(k->s->fixed, name) || in_list(k->s->as_found, name) ||
        (!constraint && !is_setting(name))) {
        return 0;
    }
    if (strpbrk(value, " \t\r\n") != NULL && !constraint) {
        nt_buf_printf(&k->e->said,
                      "%s: %s='%.100s' has a blank: it is left out of what is as found\n", path,
                      name, value);
        return 0;
    }
    if (in != NT_FOUND_SYSTEM || constraint || is_in(name, ours)) {
        return take_one(k->e, k->s, name, value, err);
    }
    if (t != NULL && t->scope == NT_SCOPE_PARAM) {
        add(k->e, name, ""); /* beats the file, and a number that is empty is none */
        nt_buf_printf(
            &k->e->said,
            "%s sets %s=%s: that is as found; the profile is proved without it, so take the "
            "line out where the profile goes\n",
            path, name, value);
        return take_one(k->e, k->s, name, value, err);
    }
    nt_buf_printf(
        &k->e->said,
        "%s sets %s=%s in every process, NCCL's default included: what depends on it is not "
        "tuned; without that line it is\n",
        path, name, value);
    add(k->e, name, value);
    return add_word(k->s->fixed, sizeof(k->s->fixed), name, value, err);
}

/* Takes "NAME=VALUE" out of a list. */
static void drop_word(char *list, const char *name)
{
    size_t n = strlen(name);
    char *from = list, *to = list;

    while (*from != '\0') {
        size_t len = strcspn(from, " ");
        if (strncmp(from, name, n) != 0 || from[n] != '=') {
            if (to != list) {
                *to++ = ' ';
            }
            memmove(to, from, len);
            to += len;
        }
        from += len + (from[len] == ' ');
    }
    *to = '\0';
}

/* Of a profile whose table is gone no communicator is made: nobody has that baseline. */
static void check_table(struct nt_env *e, struct nt_spec *s)
{
    const char *word = strstr(s->as_found, "NCCLTUNE_TABLE="), *off = getenv("NCCLTUNE_DISABLE");
    char path[1024];

    if (word == NULL || (off != NULL && off[0] != '\0' && strcmp(off, "0") != 0)) {
        drop_word(s->as_found, "NCCLTUNE_PROFILE");
        drop_word(s->as_found, "NCCLTUNE_TABLE");
        return;
    }
    word += strlen("NCCLTUNE_TABLE=");
    (void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(word, " "), word);
    if (access(path, R_OK) != 0) {
        nt_buf_printf(&e->said,
                      "the profile that is in force here cannot be read: %s is not there\n", path);
        drop_word(s->as_found, "NCCLTUNE_PROFILE");
        drop_word(s->as_found, "NCCLTUNE_TABLE");
    }
}

static int add_fix(struct nt_env *e, struct nt_spec *s, const char *word, struct nt_err *err)
{
    char name[128];
    const char *eq = strchr(word, '='), *old;

    if (eq == NULL || eq == word || (size_t)(eq - word) >= sizeof(name)) {
        return nt_fail(err, NT_E_INVAL, 0, "--fix %.100s: write NAME=VALUE", word);
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(eq - word), word);
    if (nt_tunable_any(name) == NULL && strncmp(name, "NCCL_", 5) == 0) {
        const char *near = nt_tunable_nearest(name);
        return nt_fail(err, NT_E_INVAL, 0, "--fix %s: NCCL reads no such variable%s%s%s", name,
                       near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                       near != NULL ? "?" : "");
    }
    old = getenv(name);
    if (old != NULL && nt_tunable_forbids(name, old) && strcmp(old, eq + 1) != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "--fix %s: the environment forbids this with %s=%s",
                       word, name, old);
    }
    if (in_list(s->fixed, name)) {
        return nt_fail(err, NT_E_INVAL, 0, "--fix %s: set by the environment or given twice", name);
    }
    add(e, name, eq + 1);
    return add_word(s->fixed, sizeof(s->fixed), name, eq + 1, err);
}

int nt_env_take(struct nt_env *e, struct nt_spec *s, const char *nccl, const struct nt_strs *fix,
                const struct nt_strs *extra, struct nt_err *err)
{
    static const char *const kept[] = {"PATH",   "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES",
                                       "TMPDIR", NULL};
    static const char *const set[][2] = {{"NCCL_RAS_ENABLE", "0"},
                                         {"NCCL_ENV_PLUGIN", "none"},
                                         {"NCCL_CONF_FILE", "/dev/null"},
                                         {"NCCL_DEBUG", "WARN"}};
    int rc = 0;

    s->fixed[0] = s->as_found[0] = '\0';
    for (const char *const *k = kept; *k != NULL; k++) {
        if (getenv(*k) != NULL) {
            add(e, *k, getenv(*k));
        }
    }
    for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
        add(e, set[i][0], set[i][1]);
    }
    if (nccl != NULL) {
        if (access(nccl, R_OK) != 0) {
            return nt_fail(err, NT_E_INVAL, 0, "--nccl %s cannot be read", nccl);
        }
        add(e, "NCCLTUNE_NCCL_LIB", nccl);
    } else if (getenv("NCCLTUNE_NCCL_LIB") != NULL) {
        add(e, "NCCLTUNE_NCCL_LIB", getenv("NCCLTUNE_NCCL_LIB"));
    }
    for (char **v = environ; *v != NULL && rc == 0; v++) {
        char name[128];
        const char *eq = strchr(*v, '=');
        if (eq != NULL && (size_t)(eq - *v) < sizeof(name)) {
            (void)snprintf(name, sizeof(name), "%.*s", (int)(eq - *v), *v);
            rc = take_one(e, s, name, eq + 1, err);
        }
    }
    rc = rc == 0 ? nt_found_read(&e->places, take_found, &(struct taking){e, s}, err) : rc;
    if (rc == 0) {
        check_table(e, s);
    }
    for (size_t i = 0; i < fix->n && rc == 0; i++) {
        rc = add_fix(e, s, fix->v[i], err);
    }
    for (size_t i = 0; i < extra->n && rc == 0; i++) {
        if (strchr(extra->v[i], '=') == NULL || extra->v[i][0] == '=' ||
            strncmp(extra->v[i], "NCCL_", 5) == 0) {
            return nt_fail(err, NT_E_INVAL, 0,
                           "--env %.100s: write NAME=VALUE; for NCCL's variables use --fix",
                           extra->v[i]);
        }
        nt_buf_add(&e->text, extra->v[i], strlen(extra->v[i]) + 1);
    }
    return rc;
}

static void read_version(struct nt_env *e)
{
    const char *file = "libnccl.so.2";
    int (*get_version)(int *) = NULL;
    int v = 0;
    void *lib;

    for (const char *const *w = nt_env_list(e); *w != NULL; w++) {
        if (strncmp(*w, "NCCLTUNE_NCCL_LIB=", 18) == 0) {
            file = *w + 18;
        }
    }
    lib =
        dlopen(file, RTLD_LAZY | RTLD_LOCAL); /* asks for its version only; no CUDA call is made */
    if (lib != NULL) {
        *(void **)&get_version = dlsym(lib, "ncclGetVersion");
    }
    if (get_version != NULL && get_version(&v) == 0 && v > 0) {
        e->version = (unsigned)v;
    }
}

/* Somebody else's work on a GPU makes every figure doubtful: said, not refused, for the noise is
 * measured anyway. */
static void warn_busy(const struct nt_topology *t)
{
    static const uint64_t QUIET_BYTES =
        UINT64_C(2) << 30; /* a driver's own share, and an idle context or two */

    for (int i = 0; i < t->ngpus; i++) {
        const struct nt_topo_gpu *g = &t->gpus[i];
        if (g->busy_percent > 5 || g->used_bytes > QUIET_BYTES) {
            nt_log(NT_WARN,
                   "GPU %d is not idle: busy %d %%, memory taken %llu MiB; stop what runs there, "
                   "or figures will suffer",
                   g->dev >= 0 ? g->dev : i, g->busy_percent > 0 ? g->busy_percent : 0,
                   (unsigned long long)(g->used_bytes >> 20));
        }
    }
}

/* Peer traffic through an IOMMU, a lost link: what no setting of NCCL's makes up for is said before
 * an hour of search, not after it. */
static void warn_unhealthy(const struct nt_topology *t)
{
    for (int i = 0; i < t->nfindings; i++) {
        if (t->findings[i].unhealthy) {
            nt_log(NT_WARN, "unhealthy (%s): %s; the profile will hold for the machine as it is",
                   nt_finding_names[t->findings[i].kind], t->findings[i].text);
        }
    }
}

/* false where there is one GPU, or where it cannot be told of some pair. */
static bool peers_off(const struct nt_topology *t)
{
    for (int a = 0; a < t->ngpus; a++) {
        for (int b = 0; b < t->ngpus && t->p2p != NULL; b++) {
            uint8_t s = t->p2p[a * t->ngpus + b];
            if (a != b && (s == NT_P2P_OK || s == NT_P2P_UNKNOWN)) {
                return false;
            }
        }
    }
    return t->ngpus > 1 && t->p2p != NULL;
}

static void warn_found(struct nt_env *e)
{
    char *save = NULL;
    char *text = e->said.len > 0 ? strdup(nt_buf_str(&e->said)) : NULL;

    for (char *l = text != NULL ? strtok_r(text, "\n", &save) : NULL; l != NULL;
         l = strtok_r(NULL, "\n", &save)) {
        nt_log(NT_WARN, "%s", l);
    }
    free(text);
}

int nt_env_visible(const char *text, int gpus)
{
    int n = 0;

    if (text == NULL) {
        return gpus;
    }
    for (const char *p = text; *p != '\0' && strncmp(p, "-1", 2) != 0; p += *p == ',') {
        n += *p != ',';
        p += strcspn(p, ",");
    }
    return n < gpus ? n : gpus;
}

void nt_env_look(struct nt_env *e)
{
    read_version(e);
    warn_found(e);
}

int nt_env_ranks(struct nt_env *e, struct nt_spec *s, struct nt_err *err)
{
    struct nt_topology *t = NULL;
    bool shared = s->rig == NT_RIG_MPS_SOCKETS || s->rig == NT_RIG_MPS_P2P;
    int gpus = -1, all = -1;

    nt_env_look(e);
    if (nt_topology_read_live(&(struct nt_live_opts){0}, &t, NULL) == 0) {
        all = t->ngpus;
        gpus = nt_env_visible(getenv("CUDA_VISIBLE_DEVICES"), t->ngpus);
        warn_busy(t);
        e->no_peers = peers_off(t);
        if (!shared) {
            warn_unhealthy(t);
        }
        nt_topology_free(t);
    }
    if (shared) {
        s->ranks = s->ranks == 0 ? 4 : s->ranks;
        for (unsigned r = 0; r < s->ranks && r < NT_GANG_MAX && !e->have_devices; r++) {
            e->devices[r] = 0;
        }
        if (s->rig == NT_RIG_MPS_P2P && e->version != 0 && e->version < NT_V(2, 30, 3)) {
            return nt_fail(
                err, NT_E_MISSING, 0,
                "mps-p2p needs NCCL 2.30.3 or later, this one is %u.%u.%u; name one with "
                "--nccl",
                e->version / 10000, e->version / 100 % 100, e->version % 100);
        }
        if (s->rig == NT_RIG_MPS_P2P &&
            !in_list(s->fixed, "NCCL_MAX_CTAS")) { /* all ranks' blocks must be resident */
            char cap[16];
            (void)snprintf(cap, sizeof(cap), "%u", s->ranks <= 2 ? 16 : s->ranks <= 4 ? 8 : 4);
            add(e, "NCCL_MAX_CTAS", cap);
            return add_word(s->fixed, sizeof(s->fixed), "NCCL_MAX_CTAS", cap, err);
        }
        return 0;
    }
    for (unsigned r = 0; r < NT_GANG_MAX && !e->have_devices; r++) {
        e->devices[r] = r;
    }
    if (gpus >= 0 && s->ranks == 0) {
        s->ranks = (unsigned)gpus;
    }
    if (gpus >= 0 && ((unsigned)gpus < s->ranks || s->ranks < 2)) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "%d GPU%s here%s: a real node needs one for each of %u ranks; --rig "
                       "mps-sockets exercises several "
                       "ranks on one GPU, `tune --rig recording:NAME` needs none",
                       gpus, gpus == 1 ? "" : "s", gpus < all ? " by CUDA_VISIBLE_DEVICES" : "",
                       s->ranks < 2 ? 2 : s->ranks);
    }
    if (gpus < 0 && s->ranks == 0) {
        return nt_fail(err, NT_E_MISSING, 0,
                       "no GPU can be seen here (NVML does not answer); `tune --rig "
                       "recording:NAME` needs none");
    }
    return 0;
}

int nt_env_devices(struct nt_env *e, struct nt_spec *s, const char *list, struct nt_err *err)
{
    char copy[sizeof(s->devices)], *rest = copy, *word;
    unsigned n = 0;

    if (list == NULL || list[0] == '\0') {
        return 0;
    }
    if (snprintf(copy, sizeof(copy), "%s", list) >= (int)sizeof(copy)) {
        return nt_fail(err, NT_E_INVAL, 0, "--devices: too long");
    }
    (void)snprintf(s->devices, sizeof(s->devices), "%s", copy);
    while ((word = strsep(&rest, ",")) != NULL) {
        uint64_t v = 0;
        int rc = nt_parse_u64(word, &v, err);
        if (rc != 0 || v > 255 || n == NT_GANG_MAX) {
            return rc != 0 ? nt_wrap(err, rc, "--devices")
                           : nt_fail(err, NT_E_INVAL, 0, "--devices: too many, or above 255");
        }
        e->devices[n++] = (unsigned)v;
    }
    if (s->ranks != 0 && s->ranks != n) {
        return nt_fail(err, NT_E_INVAL, 0, "--devices names %u for %u ranks", n, s->ranks);
    }
    s->ranks = n;
    e->have_devices = true;
    return 0;
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n) {
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0')) {
            return true;
        }
    }
    return false;
}

int nt_env_go_on(struct nt_env *e, const struct nt_spec *now, const struct nt_spec *job,
                 struct nt_err *err)
{
    char copy[sizeof(now->fixed)], *save = NULL;

    (void)snprintf(copy, sizeof(copy), "%s", now->fixed);
    for (char *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        if (!has_word(job->fixed, w)) {
            return nt_fail(
                err, NT_E_INVAL, 0,
                "%.200s is in force now, and was not when the job began: take it away, or "
                "start anew without --resume",
                w);
        }
    }
    (void)snprintf(copy, sizeof(copy), "%s", job->fixed);
    for (char *w = strtok_r(copy, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        if (eq != NULL && !has_word(now->fixed, w)) {
            *eq = '\0';
            add(e, w, eq + 1);
        }
    }
    return 0;
}

/* Why one of these does nothing, or harm, beside the constraints; NULL: it may act. */
static const char *ruled_out(const struct nt_env *e, const struct nt_spec *s,
                             const struct nt_assign *vars, size_t n)
{
    enum { MOST = 64, FOUND = 16 };
    char copy[sizeof(s->fixed)], *save = NULL;
    struct nt_assign all[MOST + 1 + NT_KNOB_VARS];
    struct nt_conflict found[FOUND];
    size_t nall = 0, nfound;

    (void)snprintf(copy, sizeof(copy), "%s", s->fixed);
    for (char *w = strtok_r(copy, " ", &save); w != NULL && nall < MOST;
         w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        if (eq != NULL) {
            *eq = '\0';
            all[nall++] = (struct nt_assign){w, eq + 1};
        }
    }
    if (e->no_peers && n == 1 && strcmp(vars[0].name, "NCCL_P2P_DISABLE") == 0) {
        return "peer access is off";
    }
    if (e->no_peers) {
        all[nall++] = (struct nt_assign){"NCCL_P2P_DISABLE", "1"}; /* as good as */
    }
    memcpy(all + nall, vars, n * sizeof(vars[0]));
    nfound = nt_tunable_conflicts(all, nall + n, e->version != 0 ? e->version : NT_V(2, 28, 9),
                                  found, FOUND);
    for (size_t i = 0; i < nfound && i < FOUND; i++) {
        for (size_t v = 0; v < n; v++) {
            if (found[i].kind != NT_X_MIN_MAX && strcmp(found[i].name, vars[v].name) == 0) {
                return found[i].why;
            }
        }
    }
    return NULL;
}

/* A constraint is never searched: passed over in the table's, refused where it was asked for. */
static int add_setting(struct nt_spec *s, const struct nt_assign *vars, size_t n, bool asked,
                       struct nt_err *err)
{
    char text[NT_SETTING_LEN] = "";
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        if (in_list(s->fixed, vars[i].name)) {
            return asked ? nt_fail(err, NT_E_INVAL, 0,
                                   "--try %s: it is fixed, by --fix or by the site, and a "
                                   "constraint is never searched",
                                   vars[i].name)
                         : 0;
        }
    }
    if (n == 2 && strcmp(vars[0].name, vars[1].name) > 0) {
        rc = add_word(text, sizeof(text), vars[1].name, vars[1].value, err);
        rc = rc == 0 ? add_word(text, sizeof(text), vars[0].name, vars[0].value, err) : rc;
    } else {
        for (size_t i = 0; i < n && rc == 0; i++) {
            rc = add_word(text, sizeof(text), vars[i].name, vars[i].value, err);
        }
    }
    if (rc == 0 && s->nsettings < NT_MAX_SETTINGS) {
        (void)snprintf(s->settings[s->nsettings++], NT_SETTING_LEN, "%s", text);
    }
    return rc;
}

/* "NAME=A NAME=B": variables that act together, one setting. */
static int add_together(const struct nt_env *e, struct nt_spec *s, char *words, struct nt_err *err)
{
    struct nt_assign vars[NT_KNOB_VARS];
    char *save = NULL;
    size_t n = 0;
    int rc = 0;

    for (char *w = strtok_r(words, " ", &save); w != NULL && rc == 0;
         w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        if (eq == NULL || eq == w || n == NT_KNOB_VARS) {
            return nt_fail(err, NT_E_INVAL, 0,
                           "--try: write NAME=VALUE,VALUE or 'NAME=VALUE NAME=VALUE', not '%.100s'",
                           w);
        }
        *eq = '\0';
        vars[n++] = (struct nt_assign){w, eq + 1};
        rc = nt_tunable_for_profile(w, eq + 1, e->version != 0 ? e->version : NT_NCCL_NEWEST, true,
                                    err);
    }
    return rc == 0 ? add_setting(s, vars, n, true, err) : nt_wrap(err, rc, "--try");
}

/* "NAME=A,B": each value a setting. */
static int add_given(const struct nt_env *e, struct nt_spec *s, const char *word,
                     struct nt_err *err)
{
    char copy[512], *eq, *rest, *value;
    int rc = 0;

    (void)snprintf(copy, sizeof(copy), "%s", word);
    if (strchr(copy, ' ') != NULL) {
        return add_together(e, s, copy, err);
    }
    eq = strchr(copy, '=');
    if (eq == NULL || eq == copy) {
        return nt_fail(err, NT_E_INVAL, 0, "--try %.100s: write NAME=VALUE,VALUE", word);
    }
    *eq = '\0';
    rest = eq + 1;
    while (rc == 0 && (value = strsep(&rest, ",")) != NULL) {
        struct nt_assign a = {copy, value};
        rc = nt_tunable_for_profile(copy, value, e->version != 0 ? e->version : NT_NCCL_NEWEST,
                                    true, err);
        rc = rc == 0 ? add_setting(s, &a, 1, true, err) : nt_wrap(err, rc, "--try");
    }
    return rc;
}

static enum nt_box box_of(const struct nt_env *e, const struct nt_spec *s)
{
    struct nt_topology *t = NULL;
    bool nvlink = e->modelled && e->nvlink;

    if (s->rig == NT_RIG_MPS_SOCKETS) {
        return NT_BOX_SOCKETS;
    }
    if (s->rig == NT_RIG_MPS_P2P) {
        return NT_BOX_SHARED_GPU;
    }
    if (s->rig == NT_RIG_NCCL && s->nodes > 1) { /* what lies between them is what is slow */
        return has_word(s->fixed, "NCCL_NET=Socket") || has_word(s->fixed, "NCCL_IB_DISABLE=1")
                   ? NT_BOX_SOCKETS
                   : NT_BOX_IB;
    }
    if (!e->modelled && strstr(s->fixed, "NCCL_P2P_DISABLE=1") == NULL &&
        nt_topology_read_live(&(struct nt_live_opts){0}, &t, NULL) == 0) {
        for (int i = 0; i < t->ngpus; i++) {
            nvlink = nvlink || t->gpus[i].nvlinks > 0;
        }
    }
    nt_topology_free(t);
    return nvlink ? NT_BOX_NVLINK : NT_BOX_PCIE;
}

int nt_env_settings(struct nt_env *e, struct nt_spec *s, const struct nt_strs *given,
                    struct nt_err *err)
{
    const struct nt_knob *knobs[NT_KNOBS_MAX];
    enum nt_box box = box_of(e, s);
    size_t n =
        given->n > 0 ? 0 : nt_knobs(box, e->version != 0 ? e->version : NT_V(2, 28, 9), knobs);
    int rc = 0;

    for (size_t i = 0; i < given->n && rc == 0; i++) {
        rc = add_given(e, s, given->v[i], err);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (s->effort == NT_QUICK && knobs[i]->order[box] > 1) {
            continue;
        }
        for (size_t v = 1; v <= nt_knob_values(knobs[i]) && rc == 0; v++) {
            struct nt_assign vars[NT_KNOB_VARS];
            char text[64];
            size_t k = nt_knob_assign(knobs[i], v, vars, text, sizeof(text));
            rc = ruled_out(e, s, vars, k) == NULL ? add_setting(s, vars, k, false, err) : 0;
        }
    }
    return rc;
}
