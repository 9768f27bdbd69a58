#include "tuner/deliver/doctor.h"
#include "schema/tunables.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tuner/base/json.h"
#include "tuner/deliver/doctor_private.h"

/* First release that asks an env plugin. */
enum { FIRST_ENV = 22807 };

const char *const nt_doctor_names[] = {
#define X(name, text) text,
    NT_VERDICTS(X)
#undef X
        NULL};

void nt_doctor_say(struct nt_doctor_verdict *v, const char *fmt, ...)
{
    va_list ap;
    if (v->n == NT_DOCTOR_REASONS) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(v->reason[v->n++], sizeof(v->reason[0]), fmt, ap);
    va_end(ap);
}

void nt_doctor_trouble(struct nt_doctor_verdict *v, enum nt_doctor_finding verdict)
{
    if (v->verdict == NT_DR_APPLIED) {
        v->verdict = verdict;
    }
}

static bool is_on(const char *value)
{
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}

/* ---- who ---- */

/* Programs known to set variables for their children. */
static const char *program_of(const struct nt_proc *p)
{
    static const struct {
        const char *word, *name;
    } known[] = {{"sglang", "SGLang"},       {"vllm", "vLLM"}, {"megatron", "Megatron"},
                 {"deepspeed", "DeepSpeed"}, {"verl", "verl"}, {"trtllm", "TensorRT-LLM"},
                 {"torchrun", "torchrun"},   {"ray::", "Ray"}, {"raylet", "Ray"}};
    const char *word;
    for (size_t i = 0; i < 16 && (word = nt_proc_word(p, i)) != NULL; i++) {
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
            if (strstr(word, known[k].word) != NULL) {
                return known[k].name;
            }
        }
    }
    return NULL;
}

static void name_of(const struct nt_proc *p, char *out, size_t size)
{
    const char *program = program_of(p);
    (void)snprintf(out, size, "process %u (%s)", p->pid, program != NULL ? program : p->name);
}

static bool had(const struct nt_proc *p, const char *name, const char *value)
{
    const char *v = nt_proc_env(p, name);
    return v != NULL && strcmp(v, value) == 0;
}

void nt_doctor_blame(const struct nt_doctor_facts *f, const char *name, char *out, size_t size)
{
    const char *value = nt_proc_env(f->proc, name);
    struct nt_receipt_change c;
    char who[96], clean[64];
    unsigned i = 0;

    if (nt_doctor_change(f, name, &c)) {
        name_of(f->proc, who, sizeof(who));
        (void)snprintf(out, size, "%s%s by %s itself (or an nccl.conf), after its start",
                       c.now != NULL ? nt_clean(c.now, clean, sizeof(clean)) : "",
                       c.now != NULL ? " was set" : "taken away", who);
        return;
    }
    if (!f->proc->environ_known) {
        (void)snprintf(out, size, "by whom is not known: its environment may not be read");
        return;
    }
    if (value == NULL) {
        name_of(f->proc, who, sizeof(who));
        (void)snprintf(out, size, "set by %s itself (or an nccl.conf), after its start", who);
        return;
    }
    (void)nt_clean(value, clean, sizeof(clean));
    while (i < f->nancestors && f->ancestors[i]->environ_known &&
           had(f->ancestors[i], name, value)) {
        i++;
    }
    if (i < f->nancestors && f->ancestors[i]->environ_known && f->ancestors[i]->environ_len > 0) {
        name_of(f->ancestors[i], who, sizeof(who));
        (void)snprintf(out, size, "%s was set by %s for its children", clean, who);
    } else {
        (void)snprintf(out, size, "%s came with the environment it was launched in", clean);
    }
}

/* ---- with a receipt ---- */

static bool proven(const struct nt_doctor_facts *f)
{
    for (unsigned i = 0; i < NT_RECEIPT_PARTS; i++) {
        if ((f->head.parts & 1U << i) != 0 && f->proc->plugin[i][0] != '\0') {
            return true;
        }
    }
    return false;
}

bool nt_doctor_has_part(const struct nt_doctor_facts *f, enum nt_receipt_part part)
{
    return (f->head.parts & 1U << part) != 0;
}

static void judge_tuner(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v)
{
    char clean[160];
    if (f->head.nrows == 0 || nt_doctor_has_part(f, NT_RECEIPT_TUNER)) {
        return;
    }
    nt_doctor_trouble(v, NT_DR_PARTLY);
    if (f->proc->foreign_tuner[0] != '\0') {
        nt_doctor_say(v, "the table's rows are not in use: another tuner plugin is loaded: %s",
                      nt_clean(f->proc->foreign_tuner, clean, sizeof(clean)));
    } else {
        nt_doctor_say(v, "the table's rows are not in use: the tuner plugin was not loaded");
    }
}

/* NCCL asks for an env plugin once, at its first call; a tuner plugin, at each communicator. */
static void judge_order(const struct nt_doctor_facts *f, const struct nt_doctor_world *w,
                        struct nt_doctor_verdict *v)
{
    const char *named = nt_proc_env(f->proc, "NCCL_ENV_PLUGIN");
    bool at_start = named != NULL && strstr(named, "libnccl-env-nccltune.so") != NULL;
    bool late = (f->head.flags & NT_RECEIPT_ENV_LATE) != 0;
    bool told = at_start || late || (w->active_env && strcmp(w->active, v->hash) == 0);

    if (named != NULL && !at_start) {
        nt_doctor_trouble(v, NT_DR_PARTLY);
        nt_doctor_say(v,
                      "NCCL_ENV_PLUGIN names another plugin: what NCCL was told is not on record");
        return;
    }
    if (nt_doctor_has_part(f, NT_RECEIPT_ENV) || !told ||
        (f->head.nccl_version != 0 && f->head.nccl_version < FIRST_ENV)) {
        return;
    }
    if (!at_start && (late || f->proc->environ_known)) {
        nt_doctor_trouble(v, NT_DR_TOO_LATE);
        nt_doctor_say(v,
                      "NCCL had started before the variables were set%s: it took the table, but no "
                      "variable of the profile",
                      (f->head.flags & NT_RECEIPT_INSIDE) != 0 ? " inside the process" : "");
    } else {
        nt_doctor_trouble(v, NT_DR_PARTLY);
        nt_doctor_say(
            v, "the env plugin was named and not loaded: what NCCL was told is not on record");
    }
}

/* Returns how many have a number of ranks for which there is no row. */
static unsigned judge_comms(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v)
{
    struct nt_receipt_comm c;
    unsigned idle = 0;

    for (uint32_t i = 0; i < NT_RECEIPT_COMMS; i++) {
        if (nt_receipt_comm(f->receipt, i, &c)) {
            unsigned local = c.nnodes > 0 ? c.nranks / c.nnodes : c.nranks;
            v->max_ranks = c.nranks > v->max_ranks ? c.nranks : v->max_ranks;
            v->max_local = local > v->max_local ? local : v->max_local;
            idle += c.rows == 0 && f->head.nrows > 0 && c.abi != 0;
        }
    }
    v->comms = f->head.ncomms;
    return idle;
}

static void judge_receipt(const struct nt_doctor_facts *f, const struct nt_doctor_world *w,
                          struct nt_doctor_verdict *v)
{
    const char *at_start = nt_proc_env(f->proc, "NCCLTUNE_PROFILE");
    unsigned idle;

    (void)nt_clean(f->head.hash, v->hash, sizeof(v->hash));
    (void)nt_clean(f->head.job, v->job, sizeof(v->job));
    v->verdict = NT_DR_APPLIED;
    idle = judge_comms(f, v);
    if (!proven(f)) {
        v->verdict = NT_DR_CLAIMED;
        nt_doctor_say(v, f->proc->maps_known
                             ? "there is a receipt, but the plugin that wrote it is not in "
                               "the process"
                             : "there is a receipt, but the process's maps may not be read");
        return;
    }
    if (v->comms == 0 && f->head.nrows > 0) {
        v->verdict = NT_DR_WAITING;
        nt_doctor_say(v, "no communicator yet");
    }
    if ((f->head.parts & NT_RECEIPT_MIXED) != 0) {
        nt_doctor_trouble(v, NT_DR_PARTLY);
        nt_doctor_say(v, "the plugins of this process were told two different profiles");
    }
    if (w->active[0] != '\0' && at_start == NULL && strcmp(w->active, v->hash) != 0) {
        nt_doctor_trouble(v, NT_DR_STALE);
        nt_doctor_say(v, "has profile %.12s; active since is %.12s", v->hash, w->active);
    }
    nt_doctor_variables(f, v);
    judge_order(f, w, v);
    judge_tuner(f, v);
    nt_doctor_rows(f, idle, v);
    if (f->head.lost_names > 0) {
        nt_doctor_say(v, "%u questions of NCCL found no room in the receipt", f->head.lost_names);
    }
}

/* ---- without one ---- */

static void judge_told(const struct nt_doctor_facts *f, const char *hash,
                       struct nt_doctor_verdict *v)
{
    const char *tuner = nt_proc_env(f->proc, "NCCL_TUNER_PLUGIN");
    bool loaded = false;
    char clean[160];

    (void)nt_clean(hash, v->hash, sizeof(v->hash));
    (void)nt_clean(
        nt_proc_env(f->proc, "NCCLTUNE_JOB") != NULL ? nt_proc_env(f->proc, "NCCLTUNE_JOB") : "",
        v->job, sizeof(v->job));
    for (unsigned i = 0; i < NT_RECEIPT_PARTS; i++) {
        loaded = loaded || f->proc->plugin[i][0] != '\0';
    }
    v->verdict = v->counts || loaded ? NT_DR_CLAIMED : NT_DR_WAITING;
    if (f->no_receipt[0] != '\0') {
        nt_doctor_say(v, "receipt: %.200s", f->no_receipt);
    }
    if (loaded) {
        nt_doctor_say(v, "the plugin is loaded, but there is no receipt to prove what it did");
    } else if (tuner != NULL && strstr(tuner, "nccltune") == NULL) {
        nt_doctor_say(v, "NCCL_TUNER_PLUGIN names another plugin: %s",
                      nt_clean(tuner, clean, sizeof(clean)));
    } else if (v->counts) {
        nt_doctor_say(
            v, "told of a profile, but neither plugin nor receipt: no communicator yet, or this "
               "NCCL does not load plugins");
    } else {
        nt_doctor_say(v, "told of a profile; NCCL has not made a communicator");
    }
}

/* What is known to drop an environment on the way. */
static const char *dropper(const struct nt_proc *p)
{
    static const struct {
        const char *name, *why;
    } known[] = {{"srun", "srun passes on what --export says"},
                 {"slurmstepd", "srun passes on what --export says"},
                 {"sshd", "ssh passes no variables on"},
                 {"sudo", "sudo drops variables"},
                 {"raylet", "Ray workers get the raylet's environment, not the driver's"},
                 {"orted", "mpirun passes remote ranks only what -x names"},
                 {"prted", "mpirun passes remote ranks only what -x names"},
                 {"containerd-shim", "containers get only the variables that they are given"},
                 {"systemd", "units get only the variables that they are given"}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strncmp(p->name, known[i].name, strlen(known[i].name)) == 0) {
            return known[i].why;
        }
    }
    return NULL;
}

/* An ancestor was told, this one was not: says between whom it was lost. */
static bool lost_on_the_way(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v)
{
    const struct nt_proc *below = f->proc;
    char a[96], b[96];

    for (unsigned i = 0; i < f->nancestors; i++) {
        const struct nt_proc *p = f->ancestors[i];
        if (nt_proc_env(p, "NCCLTUNE_PROFILE") != NULL) {
            const char *why = dropper(below) != NULL ? dropper(below) : dropper(p);
            name_of(p, a, sizeof(a));
            name_of(below, b, sizeof(b));
            nt_doctor_say(v, "lost between %s and %s%s%s", a, b, why != NULL ? ": " : "",
                          why != NULL ? why : "");
            return true;
        }
        below = p;
    }
    return false;
}

static void loader_reasons(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v)
{
    const struct nt_proc *p = f->proc;
    const char *parent_path = f->nancestors > 0 ? nt_proc_env(f->ancestors[0], "PYTHONPATH") : NULL;

    if (!nt_proc_is_python(p)) {
        nt_doctor_say(
            v, "no Python program: the loader does not reach it; nccltune run, the nccl-conf form "
               "or the env plugin do");
        return;
    }
    nt_doctor_say(v, "the loader did not run in this interpreter");
    if (nt_proc_python_flag(p, 'S')) {
        nt_doctor_say(v, "started with -S: Python runs no .pth file");
        return;
    }
    if (nt_proc_python_flag(p, 'I') || nt_proc_python_flag(p, 'E')) {
        nt_doctor_say(v, "started with -I or -E: PYTHONPATH and NCCLTUNE_ACTIVE are not looked at");
    }
    if (parent_path != NULL && nt_proc_env(p, "PYTHONPATH") == NULL && p->environ_known) {
        nt_doctor_say(v, "its parent had a PYTHONPATH, it has none");
    }
    if (nt_proc_env(p, "PYTHONPATH") != NULL) {
        nt_doctor_say(v, "a sitecustomize on PYTHONPATH may have come before the loader's");
    }
    nt_doctor_say(v, "nccltune status tells into which interpreters the loader is installed");
}

/* A profile is active, and this process shows nothing of it. What a program sets inside itself is
 * not seen from outside until a plugin writes it down. */
static void judge_loader(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v)
{
    const struct nt_proc *p = f->proc;
    bool python = nt_proc_is_python(p), skipped = nt_proc_python_flag(p, 'S');

    if (python && f->loader == NT_LOADER_ABSENT) {
        v->verdict = NT_DR_NOT_TOLD;
        nt_doctor_say(v, "no communicator with the plugin; a profile is active on this host, but "
                         "the loader is not installed into this interpreter");
    } else if (python && f->loader == NT_LOADER_THERE && !skipped) {
        v->verdict = v->counts ? NT_DR_CLAIMED : NT_DR_WAITING;
        nt_doctor_say(v, "the loader is in this interpreter, but there is neither plugin nor "
                         "receipt: no communicator yet, or something kept it from running");
    } else {
        loader_reasons(f, v);
    }
}

static void judge_untold(const struct nt_doctor_facts *f, const struct nt_doctor_world *w,
                         struct nt_doctor_verdict *v)
{
    v->verdict = NT_DR_NOT_TOLD;
    if (!f->proc->environ_known) {
        v->verdict = NT_DR_UNKNOWN;
        nt_doctor_say(v, "its environment may not be read; root may");
        return;
    }
    if (lost_on_the_way(f, v)) {
        v->verdict = NT_DR_MISSED;
    } else if (w->active[0] != '\0') {
        v->verdict = NT_DR_MISSED;
        judge_loader(f, v);
    }
    if (f->no_receipt[0] != '\0') {
        nt_doctor_say(v, "receipt: %.200s", f->no_receipt);
    }
}

void nt_doctor_judge(const struct nt_doctor_facts *f, const struct nt_doctor_world *w,
                     struct nt_doctor_verdict *ret)
{
    const char *told = nt_proc_env(f->proc, "NCCLTUNE_PROFILE");

    memset(ret, 0, sizeof(*ret));
    /* Only the tuner plugin sees communicators: without rows a receipt is all there is. */
    ret->counts = (f->receipt != NULL && (f->head.ncomms > 0 || f->head.nrows == 0)) ||
                  (f->proc->nnccl > 0 && f->proc->gpu);
    if (f->receipt != NULL) {
        judge_receipt(f, w, ret);
    } else if (is_on(nt_proc_env(f->proc, "NCCLTUNE_DISABLE"))) {
        ret->verdict = NT_DR_OFF;
        nt_doctor_say(ret, "NCCLTUNE_DISABLE is set");
    } else if (told != NULL && told[0] != '\0') {
        judge_told(f, told, ret);
    } else {
        judge_untold(f, w, ret);
    }
    nt_doctor_engine(f, w, ret);
    if (f->proc->nnccl > 1) {
        nt_doctor_trouble(ret, NT_DR_TWO_NCCL);
        for (unsigned i = 0; i < f->proc->nnccl; i++) {
            nt_doctor_say(ret, "libnccl %u of %u: %.200s", i + 1, f->proc->nnccl,
                          f->proc->nccl[i].path);
        }
    }
}

/* ---- the family ---- */

static bool is_below(const struct nt_doctor_facts *f, const struct nt_doctor_facts *above)
{
    for (unsigned i = 0; i < f->nancestors; i++) {
        if (f->ancestors[i]->pid == above->proc->pid) {
            return true;
        }
    }
    return false;
}

/* Where those below it are fewer than their communicators have ranks here, it may be the rank that
 * is not among them. */
void nt_doctor_family(struct nt_doctor_member *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned below = 0, local = 0;
        for (size_t k = 0; k < n; k++) {
            if (m[k].verdict->counts && is_below(m[k].facts, m[i].facts)) {
                unsigned l = m[k].verdict->max_local;
                below++;
                local = l > local ? l : local;
            }
        }
        if (m[i].verdict->counts && m[i].facts->receipt == NULL && below > 0 && below >= local) {
            m[i].verdict->counts = false;
            m[i].verdict->verdict = NT_DR_LAUNCHER;
            m[i].verdict->n = 0;
            nt_doctor_say(m[i].verdict,
                          "started ranks and is none: no communicator with the plugin, and %u "
                          "process%s below it counted",
                          below, below == 1 ? " is" : "es are");
        }
    }
}

/* ---- the job ---- */

void nt_doctor_job(const struct nt_doctor_verdict *v, size_t n, bool disagree,
                   struct nt_doctor_job *ret)
{
    const char *hash = NULL;
    int at;

    memset(ret, 0, sizeof(*ret));
    ret->disagree = disagree;
    for (size_t i = 0; i < n; i++) {
        if (v[i].counts) {
            ret->counted++;
            ret->by_verdict[v[i].verdict]++;
            ret->disagree = ret->disagree || (hash != NULL && strcmp(hash, v[i].hash) != 0);
            hash = v[i].hash;
        }
    }
    ret->applied =
        ret->counted > 0 && ret->by_verdict[NT_DR_APPLIED] == ret->counted && !ret->disagree;
    if (ret->counted == 0) {
        (void)snprintf(ret->text, sizeof(ret->text),
                       "no process here has NCCL and a GPU, or has made a communicator");
        return;
    }
    at = snprintf(ret->text, sizeof(ret->text), "%sapplied in %u of %u",
                  ret->disagree ? "the ranks disagree: " : "", ret->by_verdict[NT_DR_APPLIED],
                  ret->counted);
    for (int k = NT_DR_APPLIED + 1; k < NT_DR_COUNT; k++) {
        if (ret->by_verdict[k] > 0 && at > 0 && (size_t)at < sizeof(ret->text)) {
            at += snprintf(ret->text + at, sizeof(ret->text) - (size_t)at, ", %s in %u",
                           nt_doctor_names[k], ret->by_verdict[k]);
        }
    }
}

/* NCCL's settings at the process's start: what another host's doctor is held against. */
static json_t *settings_json(const struct nt_proc *p)
{
    json_t *o = json_object();

    for (size_t at = 0; p->environ_known && at < p->environ_len;
         at += strlen(p->environ + at) + 1) {
        const char *word = p->environ + at, *eq = strchr(word, '=');
        char name[NT_RECEIPT_NAME], value[NT_RECEIPT_CHANGE_VALUE];
        const struct nt_tunable *t;
        if (eq == NULL || (size_t)(eq - word) >= sizeof(name) || strncmp(word, "NCCL_", 5) != 0) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "%.*s", (int)(eq - word), word);
        t = nt_tunable_any(name);
        if (t != NULL && (t->flags & NT_F_DEBUG) == 0) {
            (void)json_object_set_new(o, name, json_string(nt_clean(eq + 1, value, sizeof(value))));
        }
    }
    return o;
}

json_t *nt_doctor_verdict_json(const struct nt_doctor_facts *f, const struct nt_doctor_verdict *v)
{
    json_t *reasons = json_array(), *nccl = json_array(), *changes = json_array();
    struct nt_receipt_change c;

    for (unsigned i = 0; i < v->n; i++) {
        (void)json_array_append_new(reasons, json_string(v->reason[i]));
    }
    for (unsigned i = 0; i < f->proc->nnccl; i++) {
        (void)json_array_append_new(nccl, nt_json_text(f->proc->nccl[i].path));
    }
    for (uint32_t i = 0; f->receipt != NULL && i < NT_RECEIPT_CHANGES; i++) {
        char name[NT_RECEIPT_NAME], before[NT_RECEIPT_CHANGE_VALUE], now[NT_RECEIPT_CHANGE_VALUE];
        if (nt_receipt_change(f->receipt, i, &c)) {
            (void)json_array_append_new(
                changes,
                json_pack("{s:s, s:s?, s:s?, s:i}", "name", nt_clean(c.name, name, sizeof(name)),
                          "before",
                          c.before != NULL ? nt_clean(c.before, before, sizeof(before)) : NULL,
                          "now", c.now != NULL ? nt_clean(c.now, now, sizeof(now)) : NULL,
                          "communicators_before", (int)c.comms));
        }
    }
    return json_pack("{s:I, s:I, s:s, s:s, s:b, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o}",
                     "pid", (json_int_t)f->proc->pid, "uid", (json_int_t)f->proc->uid, "name",
                     f->proc->name, "verdict", nt_doctor_names[v->verdict], "counts", v->counts,
                     "profile", v->hash, "job", v->job, "communicators", (int)v->comms, "ranks",
                     (int)v->max_ranks, "nccl_version",
                     f->receipt != NULL ? (int)f->head.nccl_version : 0, "nccl", nccl, "changed",
                     changes, "backends", nt_doctor_engine_json(f->engine), "variables",
                     settings_json(f->proc), "reasons", reasons);
}
