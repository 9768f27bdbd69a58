/* What the delivered variables mean: names, values, duplicates, pairs, memory; then file against
 * file. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "schema/tunables.h"
#include "tuner/base/text.h"
#include "tuner/lint/internal.h"

enum { LEVEL_PXB = 5 };
enum { NEAREST_MAX = 100, ASSIGN_MAX = 512, CONFLICTS_MAX = 64, GROUPS_MAX = 64 };

/* For a price in memory, a machine has to be assumed; the finding says which. */
#define PRICE_CHANNELS 16
#define PRICE_PEERS    2
#define PRICE_TOLD     ((int64_t)256 << 20)

/* Names that begin with NCCL_ and that NCCL itself does not read. An ending * stands for the rest.
 */
static const struct {
    const char *name, *who;
} foreign[] = {
    {"NCCL_FASTRAK_*", "Google's network plugin"},
    {"NCCL_SHIMNET_*", "Google's network plugin"},
    {"NCCL_GPUDIRECTTCPX_*", "Google's network plugin"},
    {"NCCL_TUNER_CONFIG_PATH", "Google's tuner plugin"},
    {"NCCL_DYNAMIC_CHUNK_SIZE", "a vendor's build of NCCL"},
    {"NCCL_TUNER_LL_MAX_*", "a tuner plugin"},
    {"NCCL_TUNER_LL128_MAX_*", "a tuner plugin"},
    {"NCCL_INSPECTOR_*", "NCCL's inspector plugin"},
    {"NCCL_PROFILE_*", "a profiler plugin"},
    {"NCCL_TESTS_*", "nccl-tests"},
    {"NCCL_ASYNC_ERROR_HANDLING", "PyTorch up to 2.1 (now TORCH_NCCL_ASYNC_ERROR_HANDLING)"},
    {"NCCL_BLOCKING_WAIT", "PyTorch up to 2.1 (now TORCH_NCCL_BLOCKING_WAIT)"},
    {"NCCL_DESYNC_DEBUG", "PyTorch up to 2.1 (now TORCH_NCCL_DESYNC_DEBUG)"},
    {"NCCL_ENABLE_TIMING", "PyTorch up to 2.1 (now TORCH_NCCL_ENABLE_TIMING)"},
    {"NCCL_AVOID_RECORD_STREAMS", "PyTorch (TORCH_NCCL_AVOID_RECORD_STREAMS)"},
    {"NCCL_TIMEOUT*", "frameworks, not NCCL"},
    {"NCCL_VERSION", "the image it describes"},
    {"NCCL_HOME", "build systems"},
    {"NCCL_ROOT*", "build systems"},
    {"NCCL_LIB*", "build systems and scripts"},
    {"NCCL_INCLUDE*", "build systems"},
    {"NCCL_PATH", "build systems and scripts"},
    {"NCCL_DIR", "build systems and scripts"},
    {"NCCL_UCX_*", "the UCX network plugin"},
    {"NCCL_SHARP_*", "the SHARP plugin"},
    {"NCCL_IBEXT_DISABLE", "the RDMA and SHARP plugin"},
    {"NCCL_PLUGIN_P2P", "the RDMA and SHARP plugin"},
    {"NCCL_GIB_*", "Google's network plugin"},
    {"NCCL_TEST_*", "scripts"},
    {"NCCL_REPO*", "build systems and scripts"},
    {"NCCL_BRANCH", "build systems and scripts"},
    {"NCCL_SRC*", "build systems and scripts"},
    {"NCCL_BUILD*", "build systems and scripts"},
    {"NCCL_CTRAN_*", "Meta's NCCLX"},
    {"NCCL_OFI_*", "scripts; the OFI plugin reads OFI_NCCL_*"},
    {"NCCLTUNE_*", "nccltune"},
};

/* Names from before 2.18 that the table of tunables does not have. */
static const struct {
    const char *name, *words;
} ancient[] = {
    {"NCCL_CHECKS_DISABLE", "gone since 2.2; NCCL_CHECK_POINTERS asks for the checks"},
    {"NCCL_RINGS", "gone since 2.5; NCCL_GRAPH_FILE gives rings"},
    {"NCCL_TOPOLOGY", "gone since 2.3"},
};

static const char *foreign_reader(const char *name)
{
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        const char *p = foreign[i].name;
        size_t n = strlen(p);
        if (p[n - 1] == '*' ? strncmp(name, p, n - 1) == 0 : strcmp(name, p) == 0) {
            return foreign[i].who;
        }
    }
    return NULL;
}

/* The prefix CCL, NCLL, CNCL, …: one slip from NCCL. Another first letter is another library. */
static bool slipped_prefix(const char *name)
{
    static const char right[] = "NCCL";
    size_t n = strcspn(name, "_"), same = 0, tail = 0;
    char word[8];
    if (name[n] != '_' || n < 3 || n > 5) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        word[i] = (char)toupper((unsigned char)name[i]);
    }
    word[n] = '\0';
    if (n == 4 && word[0] != 'N') {
        return strcmp(word, "CNCL") == 0;
    }
    while (same < n && same < 4 && word[same] == right[same]) {
        same++;
    }
    while (tail < n && tail < 4 && word[n - 1 - tail] == right[3 - tail]) {
        tail++;
    }
    return same + tail >= (n < 4 ? n : 3);
}

bool nt_lint_is_ours(const char *name)
{
    return strncmp(name, "NCCL_", 5) == 0 || strncmp(name, "NCCLTUNE_", 9) == 0 ||
           slipped_prefix(name);
}

/* A slip of the pen, not another word: about one letter in six, or the case of them all. */
static const char *slip_of(const char *name)
{
    enum { SHORT = 9 }; /* NCCL_ and four letters: two of them make another word */
    const char *near = NULL;
    size_t n = strlen(name), limit = n <= SHORT ? 1 : n / 6 > 2 ? n / 6 : 2;
    for (size_t i = 0; i < nt_tunables_count; i++) {
        size_t d = (nt_tunables[i].flags & NT_F_GONE) == 0
                       ? nt_edit_distance(name, nt_tunables[i].name)
                       : limit + 1;
        if (d <= limit && (near == NULL || d < limit)) {
            near = nt_tunables[i].name;
            limit = d;
        }
    }
    return near;
}

static bool several(const char *value)
{
    const char *p = value != NULL ? strstr(value, "NCCL_") : NULL;
    return p != NULL && p[5 + strspn(p + 5, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '=';
}

/* Whether the text itself uses $NAME or ${NAME…: then it is read there. */
static bool used_in_text(const struct nt_lint_file *f, const char *name)
{
    size_t n = strlen(name);
    const char *p = f->text, *end = f->text + f->len;
    while (p != NULL && p < end && (p = memmem(p, (size_t)(end - p), name, n)) != NULL) {
        size_t at = (size_t)(p - f->text);
        const char *after = p + n;
        bool whole = after == end || !(isalnum((unsigned char)*after) || *after == '_');
        if (whole && at > 0 &&
            (p[-1] == '$' || (at > 1 && strchr("{(", p[-1]) != NULL && p[-2] == '$'))) {
            return true;
        }
        p = after;
    }
    return false;
}

static void unknown(struct nt_lint_file *f, const struct nt_lint_var *v, unsigned *budget)
{
    const char *who = foreign_reader(v->name), *near = NULL;
    bool own = false;
    if (who != NULL) {
        nt_lint_find(f, NT_R_NOT_NCCL, v->line, v->name, "read by %s, not by NCCL", who);
        return;
    }
    for (size_t i = 0; i < sizeof(ancient) / sizeof(ancient[0]); i++) {
        if (strcmp(v->name, ancient[i].name) == 0) {
            nt_lint_find(f, NT_R_REMOVED, v->line, v->name, "%s", ancient[i].words);
            return;
        }
    }
    if (*budget > 0) {
        (*budget)--;
        near = slip_of(v->name);
        own = used_in_text(f, v->name);
    }
    if (own && (near == NULL || v->where == NT_W_SHELL)) {
        if (strncmp(v->name, "NCCL_", 5) == 0) {
            nt_lint_find(f, NT_R_NOT_NCCL, v->line, v->name,
                         "read by this text itself, not by NCCL");
        }
        return;
    }
    if (several(v->value)) {
        nt_lint_find(
            f, NT_R_SEVERAL, v->line, v->name,
            "several settings in one variable: NCCL reads none of them, and a comma inside a value "
            "cannot be told from one between settings");
        return;
    }
    if (near != NULL) {
        nt_lint_find(f, NT_R_MISSPELT, v->line, v->name, "NCCL has no %s; did you mean %s?",
                     v->name, near);
    } else if (strncmp(v->name, "NCCL_", 5) == 0) {
        nt_lint_find(f, NT_R_UNKNOWN_NAME, v->line, v->name,
                     "no release of NCCL from 2.18 to 2.32 reads %s", v->name);
    }
}

/* The row that holds, or NULL with the reason told. */
static const struct nt_tunable *row_of(struct nt_lint_file *f, const struct nt_lint_var *v,
                                       unsigned *budget)
{
    const struct nt_tunable *t = nt_tunable_find(v->name, f->version),
                            *any = nt_tunable_any(v->name);
    char now[24], then[24];
    (void)nt_nccl_version_text(f->version, now, sizeof(now));
    if (t != NULL && (t->flags & NT_F_NOT_NCCL) != 0) {
        nt_lint_find(f, NT_R_NOT_NCCL, v->line, v->name, "read by a plugin, not by NCCL: %s",
                     t->help);
        return NULL;
    }
    if (t != NULL && (t->flags & NT_F_GONE) == 0) {
        return t;
    }
    if (any == NULL) {
        unknown(f, v, budget);
    } else if ((any->flags & NT_F_GONE) == 0 && f->version < any->since) {
        nt_lint_find(f, NT_R_TOO_NEW, v->line, v->name,
                     "NCCL %s does not read it; %s is the first that does", now,
                     nt_nccl_version_text(any->since, then, sizeof(then)));
    } else {
        nt_lint_find(
            f, NT_R_REMOVED, v->line, v->name, "NCCL %s does not read it any more (%s)%s%s", now,
            any->until != 0 && (any->flags & NT_F_GONE) == 0 ? "removed" : any->help,
            any->instead != NULL ? "; use " : "", any->instead != NULL ? any->instead : "");
    }
    return NULL;
}

static void functions_text(uint16_t mask, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        if ((mask >> c & 1) != 0 && n + 1 < size) {
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", nt_coll_names[c]);
        }
    }
}

static void hints(struct nt_lint_file *f, const struct nt_lint_var *v, const struct nt_tunable *t,
                  const struct nt_taken *taken)
{
    static const char *const lists[] = {"NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME"};
    static const char *const files[] = {"NCCL_TOPO_FILE", "NCCL_GRAPH_FILE"};
    char number[24];
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (strcmp(v->name, lists[i]) == 0 && v->value[v->value[0] == '^'] == '=') {
            nt_lint_find(
                f, NT_R_EXACT_LIST, v->line, v->name,
                "the second = belongs to the value and asks for exact names: right if meant");
        }
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (strcmp(v->name, files[i]) == 0) {
            nt_lint_find(
                f, NT_R_MACHINE_FILE, v->line, v->name,
                "%s holds for one kind of machine: elsewhere paths are wrong or communicators fail",
                v->value);
        }
    }
    if (t->type == NT_T_LEVEL &&
        taken->number <= LEVEL_PXB) { /* no farther than NCCL itself goes */
        return;
    }
    (void)snprintf(number, sizeof(number), "%lld", (long long)taken->number);
    if (taken->how == NT_TAKE_AS_MEANT && (t->flags & NT_F_CORRUPT) != 0 && t->type <= NT_T_LEVEL &&
        strcmp(number, t->def) != 0 && strcmp(v->value, t->def) != 0 && taken->number > 0) {
        nt_lint_find(f, NT_R_RISKY, v->line, v->name, "%s can give wrong data on some machines: %s",
                     v->value, t->help);
    }
}

/* "03": octal, and the same number. */
static bool harmless_octal(const char *text, int64_t taken)
{
    char *end = NULL;
    long long v = strtoll(text, &end, 10);
    return end != text && v == taken && text[0] == '0' && end[strspn(end, " \t\r\n")] == '\0';
}

static void value(struct nt_lint_file *f, const struct nt_lint_var *v, const struct nt_tunable *t)
{
    static const int rules[] = {[NT_TAKE_AS_MEANT] = -1,
                                [NT_TAKE_UNSET] = NT_R_EMPTY,
                                [NT_TAKE_OTHER] = NT_R_NUMBER,
                                [NT_TAKE_OUTSIDE] = NT_R_OUTSIDE,
                                [NT_TAKE_DEFAULT] = NT_R_REFUSED,
                                [NT_TAKE_FAILS] = NT_R_FAILS,
                                [NT_TAKE_NOTHING] = -1};
    struct nt_taken taken;
    char list[120];
    nt_tunable_take(t, v->value, f->version, &taken);
    if (taken.how == NT_TAKE_OTHER && harmless_octal(v->value, taken.number)) {
        taken.how = NT_TAKE_AS_MEANT;
    }
    if (taken.how == NT_TAKE_OUTSIDE && f->rccl) {
        nt_lint_find(f, NT_R_VERSIONED, v->line, v->name,
                     "%.100s: %s in NCCL; RCCL has limits of its own", v->value, taken.why);
        return;
    }
    if (rules[taken.how] >= 0) {
        nt_lint_find(f, (enum nt_lint_rule)rules[taken.how], v->line, v->name, "%.100s: %s",
                     v->value, taken.why);
    }
    if (taken.how == NT_TAKE_FAILS) {
        return;
    }
    if (taken.stranded != 0) {
        functions_text(taken.stranded, list, sizeof(list));
        nt_lint_find(
            f, NT_R_STRANDED, v->line, v->name,
            "%.60s leaves nothing for %s: their calls fail; name the function, as in allreduce:…",
            v->value, list);
    }
    if (taken.forces_ll128) {
        nt_lint_find(f, NT_R_LL128, v->line, v->name,
                     "%.60s leaves LL128 on by an explicit list, which skips NCCL's test of the "
                     "links: data may "
                     "be corrupted silently",
                     v->value);
    }
    hints(f, v, t, &taken);
}

/* Whether two assignments meet in one place, so that one of them loses. */
static bool same_place(const struct nt_lint_var *a, const struct nt_lint_var *b)
{
    bool file_a = a->where == NT_W_FILE, file_b = b->where == NT_W_FILE;
    return a->where != NT_W_LOG && b->where != NT_W_LOG && file_a == file_b &&
           a->where != NT_W_POLICY && b->where != NT_W_POLICY && strcmp(a->group, b->group) == 0;
}

static int by_name(const void *a, const void *b)
{
    const struct nt_lint_var *const *x = a, *const *y = b;
    int c = strcmp((*x)->name, (*y)->name);
    return c != 0 ? c : (*x < *y ? -1 : *x > *y);
}

static void duplicate(struct nt_lint_file *f, struct nt_lint_var *first, struct nt_lint_var *later)
{
    bool first_wins = first->where == NT_W_FILE || f->form == NT_LINT_ENVIRON;
    struct nt_lint_var *loser = first_wins ? later : first, *winner = first_wins ? first : later;
    bool equal =
        first->value != NULL && later->value != NULL && strcmp(first->value, later->value) == 0;
    loser->dead = true;
    nt_lint_find(f, NT_R_DUPLICATE, loser->line, loser->name, "also set at line %u%s%s%s%s",
                 winner->line,
                 equal                   ? " to the same value"
                 : winner->value == NULL ? ", which wins: the host's value"
                                         : ", which wins: ",
                 equal || winner->value == NULL ? "" : winner->value,
                 first_wins ? " (the first wins in " : " (the last wins in ",
                 first->where == NT_W_FILE ? "nccl.conf)" : "an environment)");
}

/* The environment beats the file that the same script writes. */
static void overridden(struct nt_lint_file *f, struct nt_lint_var *a, struct nt_lint_var *b)
{
    struct nt_lint_var *file = a->where == NT_W_FILE ? a : b, *env = a->where == NT_W_FILE ? b : a;
    if (file->value != NULL && env->value != NULL && strcmp(file->value, env->value) != 0 &&
        env->where == NT_W_ENV && file->where == NT_W_FILE) {
        nt_lint_find(f, NT_R_OVERRIDDEN, file->line, file->name,
                     "%.80s in nccl.conf loses to %.80s in the environment (line %u)", file->value,
                     env->value, env->line);
        file->dead = true;
    }
}

static void duplicates(struct nt_lint_file *f)
{
    struct nt_lint_var **v = f->nvars > 0 ? malloc(f->nvars * sizeof(struct nt_lint_var *)) : NULL;
    if (v == NULL) {
        f->full = f->full || f->nvars > 0;
        return;
    }
    for (size_t i = 0; i < f->nvars; i++) {
        v[i] = &f->vars[i];
    }
    qsort(v, f->nvars, sizeof(struct nt_lint_var *), by_name);
    for (size_t i = 0, k; i < f->nvars; i = k) {
        for (k = i + 1; k < f->nvars && strcmp(v[k]->name, v[i]->name) == 0; k++) {
            struct nt_lint_var *last = NULL;
            bool beaten = false;
            for (size_t m = k; m > i && last == NULL; m--) {
                last = same_place(v[m - 1], v[k]) && !v[m - 1]->dead ? v[m - 1] : NULL;
            }
            if (!nt_lint_is_ours(v[k]->name) || v[k]->dead) {
                continue;
            }
            if (last != NULL) {
                duplicate(f, last, v[k]);
            }
            for (size_t m = k; m > i && !beaten; m--) {
                beaten =
                    !v[m - 1]->dead && (v[m - 1]->where == NT_W_FILE) != (v[k]->where == NT_W_FILE);
                if (beaten) {
                    overridden(f, v[m - 1], v[k]);
                }
            }
        }
    }
    free(v);
}

static bool counts(const struct nt_lint_var *v)
{
    return !v->dead && !v->unresolved && v->value != NULL && v->where != NT_W_POLICY &&
           v->where != NT_W_SHELL && v->where != NT_W_LOG && nt_lint_is_ours(v->name);
}

static const struct nt_lint_var *find_var(const struct nt_lint_file *f, const char *name,
                                          const char *group)
{
    const struct nt_lint_var *found = NULL;
    for (size_t i = 0; i < f->nvars; i++) {
        const struct nt_lint_var *v = &f->vars[i];
        if (counts(v) && strcmp(v->name, name) == 0 &&
            (v->group[0] == '\0' || strcmp(v->group, group) == 0)) {
            found = v;
        }
    }
    return found;
}

static void one_conflict(struct nt_lint_file *f, const struct nt_conflict *c, const char *group)
{
    const struct nt_lint_var *v = find_var(f, c->name, group),
                             *other = find_var(f, c->other, group);
    const struct nt_tunable *t = nt_tunable_find(c->name, f->version);
    bool mine = (v != NULL && strcmp(v->group, group) == 0) ||
                (other != NULL && strcmp(other->group, group) == 0);
    enum nt_lint_rule rule = c->kind == NT_X_INERT                   ? NT_R_INERT
                             : c->kind == NT_X_MIN_MAX               ? NT_R_CONTRADICTION
                             : strstr(c->why, "tuner table") != NULL ? NT_R_MASKS_TUNER
                                                                     : NT_R_UNSAFE;
    if (v == NULL || !mine) {
        return;
    }
    nt_lint_find(f, rule, v->line, v->name, "%s%s%s: %s%s%s",
                 rule == NT_R_INERT ? "does nothing beside " : "with ", c->other,
                 other != NULL ? "" : " unset", c->why,
                 rule == NT_R_INERT && t != NULL && t->price != NULL ? "; it still costs memory: "
                                                                     : "",
                 rule == NT_R_INERT && t != NULL && t->price != NULL ? t->price : "");
}

static void memory(struct nt_lint_file *f, const struct nt_assign *a, size_t n, const char *group)
{
    static const char *const names[] = {"NCCL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_LL_BUFFSIZE",
                                        "NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS"};
    const struct nt_memory_shape shape = {.channels = PRICE_CHANNELS, .peers = PRICE_PEERS};
    int64_t bytes = nt_tunable_memory_bytes(a, n, f->version, &shape);
    for (size_t i = 0; bytes >= PRICE_TOLD && i < sizeof(names) / sizeof(names[0]); i++) {
        const struct nt_lint_var *v = find_var(f, names[i], group);
        if (v != NULL && strcmp(v->group, group) == 0) {
            nt_lint_find(f, NT_R_MEMORY, v->line, v->name,
                         "buffers and channels as set here cost about %lld MiB more on every GPU "
                         "than NCCL's "
                         "defaults (%d channels, %d peers assumed)",
                         (long long)(bytes >> 20), PRICE_CHANNELS, PRICE_PEERS);
            return;
        }
    }
}

static void together(struct nt_lint_file *f, const char *group)
{
    struct nt_assign a[ASSIGN_MAX];
    struct nt_conflict c[CONFLICTS_MAX];
    size_t n = 0, found;
    for (size_t i = 0; i < f->nvars && n < ASSIGN_MAX; i++) {
        const struct nt_lint_var *v = &f->vars[i];
        if (counts(v) && (v->group[0] == '\0' || strcmp(v->group, group) == 0)) {
            a[n++] = (struct nt_assign){v->name, v->value};
        }
    }
    found = nt_tunable_conflicts(a, n, f->version, c, CONFLICTS_MAX);
    for (size_t i = 0; i < found && i < CONFLICTS_MAX; i++) {
        one_conflict(f, &c[i], group);
    }
    memory(f, a, n, group);
}

static void groups(struct nt_lint_file *f)
{
    const char *done[GROUPS_MAX] = {""};
    size_t n = 1;
    together(f, "");
    for (size_t i = 0; i < f->nvars && n < GROUPS_MAX; i++) {
        bool seen = !counts(&f->vars[i]);
        for (size_t k = 0; k < n && !seen; k++) {
            seen = strcmp(done[k], f->vars[i].group) == 0;
        }
        if (!seen) {
            done[n++] = f->vars[i].group;
            together(f, f->vars[i].group);
        }
    }
}

/* A level that an old release logs as 0: it did not know the word. */
static void logged(struct nt_lint_file *f, const struct nt_lint_var *v)
{
    const struct nt_tunable *t = nt_tunable_any(v->name);
    if (t != NULL && t->type == NT_T_LEVEL && strcmp(v->value, "0") == 0) {
        nt_lint_find(
            f, NT_R_VERSIONED, v->line, v->name,
            "NCCL took 0: releases before 2.6 know numbers only and read a word such as NVL as 0");
    } else {
        nt_lint_find(f, NT_R_LOG_SET, v->line, v->name, "NCCL said that it takes %.100s", v->value);
    }
}

void nt_lint_check(struct nt_lint_file *f)
{
    unsigned budget = NEAREST_MAX;
    duplicates(f);
    for (size_t i = 0; i < f->nvars; i++) {
        const struct nt_lint_var *v = &f->vars[i];
        const struct nt_tunable *t;
        if (v->dead || v->where == NT_W_POLICY || !nt_lint_is_ours(v->name)) {
            continue;
        }
        if (v->where == NT_W_LOG) {
            logged(f, v);
            continue;
        }
        t = row_of(f, v, &budget);
        if (t != NULL && v->where == NT_W_SHELL) {
            nt_lint_find(f, NT_R_NOT_EXPORTED, v->line, v->name,
                         f->form == NT_LINT_DOCKERFILE
                             ? "set while the image is built only: it takes ENV to reach a program"
                             : "never exported: programs started here do not see it");
        }
        if (t != NULL && v->value != NULL && !v->unresolved) {
            value(f, v, t);
        }
    }
    groups(f);
}

/* ---- between files ---- */

static bool live(const struct nt_lint_var *v)
{
    return !v->dead && v->value != NULL && (v->where == NT_W_ENV || v->where == NT_W_FILE) &&
           nt_lint_is_ours(v->name);
}

static void against_policy(struct nt_lint_file *f, const struct nt_lint_var *v,
                           const struct nt_lint_file *site, const struct nt_lint_var *p)
{
    if (p->where == NT_W_POLICY && p->enforced && strcmp(p->value, v->value) != 0) {
        nt_lint_find(f, NT_R_POLICY_BROKEN, v->line, v->name,
                     "%.80s, but %s:%u insists on %.80s: the start-up check refuses it", v->value,
                     site->name, p->line, p->value);
    }
}

static void pair(struct nt_lint_file *f, struct nt_lint_file *g, bool g_earlier)
{
    for (size_t i = 0; i < f->nvars; i++) {
        struct nt_lint_var *v = &f->vars[i];
        if (!live(v)) {
            continue;
        }
        for (size_t k = 0; k < g->nvars; k++) {
            const struct nt_lint_var *w = &g->vars[k];
            bool stronger;
            if (strcmp(v->name, w->name) != 0) {
                continue;
            }
            against_policy(f, v, g, w);
            stronger = w->where == NT_W_ENV
                           ? v->where == NT_W_FILE
                           : w->where == NT_W_FILE && v->where == NT_W_FILE && g_earlier;
            if (live(w) && strcmp(v->value, w->value) != 0) {
                if (stronger) {
                    nt_lint_find(f, NT_R_OVERRIDDEN, v->line, v->name,
                                 "%.80s loses to %.80s in %s:%u (%s)", v->value, w->value, g->name,
                                 w->line,
                                 w->where == NT_W_ENV ? "the environment beats a file"
                                                      : "the file read first wins");
                } else if (v->where == NT_W_ENV && w->where == NT_W_ENV && g_earlier) {
                    nt_lint_find(f, NT_R_OVERRIDDEN, v->line, v->name,
                                 "%.80s here and %.80s in %s:%u: which one counts depends on what "
                                 "is applied "
                                 "last",
                                 v->value, w->value, g->name, w->line);
                }
                break;
            }
        }
    }
}

void nt_lint_across(struct nt_lint_file *const *files, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            if (i != k) {
                pair(files[i], files[k], k < i);
            }
        }
    }
}
