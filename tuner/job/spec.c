#include "tuner/job/spec.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const nt_effort_names[NT_EFFORT_COUNT + 1] = {
    [NT_QUICK] = "quick", [NT_STANDARD] = "standard", [NT_THOROUGH] = "thorough"};

/* Pairs of the confirm: 2^pairs sign flips must reach α, and the noise of a class must average out.
 */
static const unsigned effort_pairs[NT_EFFORT_COUNT] = {
    [NT_QUICK] = 9, [NT_STANDARD] = 12, [NT_THOROUGH] = 16};

void nt_spec_init(struct nt_spec *s)
{
    *s = (struct nt_spec){
        .rig = NT_RIG_NCCL,
        .shown_rig = NT_RIG_NCCL,
        .effort = NT_STANDARD,
        .seed = 1,
        .nodes = 1,
        .margin = 1.02,
        .guard = 1.03,
        .alpha = 0.005,
        .nsettings = 1,
        .backends = {[NT_BE_NCCL] = true},
        .extra_guards = true,
    };
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void take_raced_dtype(struct nt_spec *s)
{
    for (int d = 0; d < NT_DTYPE_COUNT && !s->dtypes[s->raced_dtype]; d++) {
        s->raced_dtype = s->dtypes[d] ? (enum nt_dtype)d : s->raced_dtype;
    }
}

static bool any(const bool *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (table[i]) {
            return true;
        }
    }
    return false;
}

/* Whole elements in every type, and for every rank where each has a share. */
static int check_size(const struct nt_spec *s, uint64_t bytes, struct nt_err *err)
{
    uint64_t grain = 1;

    for (int d = 0; d < NT_DTYPE_COUNT; d++) {
        uint64_t n = nt_dtype_bytes((enum nt_dtype)d);
        grain = s->dtypes[d] && n > grain ? n : grain;
    }
    if (bytes < UINT64_C(4) * s->ranks || bytes % grain != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "size %llu: needs a multiple of %llu of at least %llu",
                       (unsigned long long)bytes, (unsigned long long)grain, 4ULL * s->ranks);
    }
    for (int c = 0; c < NT_COLL_COUNT; c++) {
        if (s->colls[c] && nt_coll_shares((enum nt_coll)c) && bytes % (grain * s->ranks) != 0) {
            return nt_fail(err, NT_E_INVAL, 0,
                           "size %llu: %s gives each of %u ranks as much, so it needs a multiple "
                           "of %llu; %llu is one",
                           (unsigned long long)bytes, nt_coll_names[c], s->ranks,
                           (unsigned long long)(grain * s->ranks),
                           (unsigned long long)(bytes / (grain * s->ranks) * (grain * s->ranks)));
        }
    }
    return 0;
}

static int check_colls(const struct nt_spec *s, struct nt_err *err)
{
    for (int c = 0; c < NT_COLL_COUNT; c++) {
        if (s->colls[c] && !nt_coll_in_place((enum nt_coll)c) && !s->places[NT_OUT_OF_PLACE]) {
            return nt_fail(err, NT_E_INVAL, 0, "%s does not exist in place", nt_coll_names[c]);
        }
    }
    return 0;
}

int nt_spec_finish(struct nt_spec *s, struct nt_err *err)
{
    size_t kept = 0;

    if (s->pairs == 0) {
        s->pairs = effort_pairs[s->effort];
    }
    if (s->ranks < 2 || s->ranks > 1024) {
        return nt_fail(err, NT_E_INVAL, 0, "%u ranks: a collective needs 2 to 1024", s->ranks);
    }
    if (s->seed > INT64_MAX || s->budget_ns > INT64_MAX || s->max_memory_bytes > INT64_MAX) {
        return nt_fail(err, NT_E_INVAL, 0, "a %s above %lld cannot be kept",
                       s->seed > INT64_MAX        ? "seed"
                       : s->budget_ns > INT64_MAX ? "budget (in ns)"
                                                  : "memory limit",
                       (long long)INT64_MAX);
    }
    if (s->pairs < 8 || s->pairs > 16) {
        return nt_fail(err, NT_E_INVAL, 0, "%u pairs: a confirm takes 8 to 16", s->pairs);
    }
    if (!any(s->colls, NT_COLL_COUNT) || !any(s->modes, NT_MODE_COUNT) ||
        !any(s->dtypes, NT_DTYPE_COUNT) || !any(s->places, NT_PLACE_COUNT) || s->nsizes == 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "nothing to tune: collectives, sizes, modes, types or placements are empty");
    }
    take_raced_dtype(s);
    qsort(s->sizes, s->nsizes, sizeof(s->sizes[0]), by_value);
    for (size_t i = 0; i < s->nsizes; i++) {
        if (check_size(s, s->sizes[i], err) != 0) {
            return -NT_E_INVAL;
        }
        if (kept == 0 || s->sizes[kept - 1] != s->sizes[i]) {
            s->sizes[kept++] = s->sizes[i];
        }
    }
    s->nsizes = kept;
    return check_colls(s, err);
}

enum nt_rig nt_spec_told_rig(const struct nt_spec *s)
{
    return s->rig == NT_RIG_RECORDING && s->shown_rig == NT_RIG_NCCL ? NT_RIG_RECORDING
                                                                     : s->shown_rig;
}

bool nt_spec_has_backends(const struct nt_spec *s)
{
    for (int b = NT_BE_NCCL + 1; b < NT_BACKEND_COUNT; b++) {
        if (s->backends[b]) {
            return true;
        }
    }
    return false;
}

int nt_spec_add_size(struct nt_spec *s, uint64_t bytes, struct nt_err *err)
{
    if (s->nsizes == NT_MAX_SIZES) {
        return nt_fail(err, NT_E_INVAL, 0, "more than %d sizes", NT_MAX_SIZES);
    }
    if (bytes > (UINT64_C(1) << 34)) {
        return nt_fail(err, NT_E_INVAL, 0, "size %llu is above 16G", (unsigned long long)bytes);
    }
    s->sizes[s->nsizes++] = bytes;
    return 0;
}

static int add_range(struct nt_spec *s, char *word, struct nt_err *err)
{
    char *colon = strchr(word, ':');
    uint64_t lo = 0, hi = 0;
    int rc;

    if (colon != NULL) {
        *colon = '\0';
    }
    rc = nt_parse_bytes(word, &lo, err);
    hi = lo;
    if (rc == 0 && colon != NULL) {
        rc = nt_parse_bytes(colon + 1, &hi, err);
    }
    if (rc == 0 && hi < lo) {
        rc = nt_fail(err, NT_E_INVAL, 0, "'%.40s:%.40s' is an empty range: write the smaller first",
                     word, colon + 1);
    } else if (rc == 0 && lo == 0) {
        rc = nt_fail(err, NT_E_INVAL, 0, "a size is above 0");
    }
    for (; rc == 0 && lo <= hi; lo *= 2) {
        rc = nt_spec_add_size(s, lo, err);
    }
    return rc;
}

/* Calls each(word) for the words between commas; an empty word is an error. */
static int for_words(const char *text, int (*each)(void *, char *, struct nt_err *), void *arg,
                     struct nt_err *err)
{
    char *copy = strdup(text), *rest = copy, *word;
    int rc = copy == NULL ? nt_fail(err, NT_E_NOMEM, 0, "list") : 0;

    while (rc == 0 && (word = strsep(&rest, ",")) != NULL) {
        rc = word[0] == '\0' ? nt_fail(err, NT_E_INVAL, 0, "'%.100s' holds an empty word", text)
                             : each(arg, word, err);
    }
    free(copy);
    return rc;
}

static int each_size(void *s, char *word, struct nt_err *err)
{
    return add_range(s, word, err);
}

int nt_spec_add_sizes(struct nt_spec *s, const char *text, struct nt_err *err)
{
    return nt_wrap(err, for_words(text, each_size, s, err), "sizes");
}

struct set_arg {
    const char *const *names;
    const char *what;
    bool *table;
};

static int each_name(void *arg, char *word, struct nt_err *err)
{
    struct set_arg *a = arg;
    int i = nt_vocab_find(a->names, a->what, word, err);
    if (i < 0) {
        return i;
    }
    a->table[i] = true;
    return 0;
}

int nt_spec_set(const char *text, const char *const *names, const char *what, bool *table, size_t n,
                struct nt_err *err)
{
    struct set_arg a = {names, what, table};
    memset(table, 0, n * sizeof(table[0]));
    return for_words(text, each_name, &a, err);
}

int nt_spec_set_dtypes(struct nt_spec *s, const char *text, struct nt_err *err)
{
    char first[16];
    int k, rc = nt_spec_set(text, nt_dtype_names, "data type", s->dtypes, NT_DTYPE_COUNT, err);

    if (rc == 0) { /* every word was known, and there is one */
        (void)snprintf(first, sizeof(first), "%.*s", (int)strcspn(text, ","), text);
        rc = k = nt_vocab_find(nt_dtype_names, "data type", first, err);
        s->raced_dtype = k < 0 ? s->raced_dtype : (enum nt_dtype)k;
    }
    return rc < 0 ? rc : 0;
}

/* JSON: the tables as lists of names, the rest by one table of members. */

enum member_type { M_U64, M_UNSIGNED, M_DOUBLE, M_BOOL, M_TEXT, M_OPT_TEXT };

#define MEMBER(f, t)                                                                               \
    {                                                                                              \
#f, t, offsetof(struct nt_spec, f), sizeof(((struct nt_spec *)0)->f)                       \
    }
static const struct {
    const char *name;
    enum member_type type;
    size_t offset, size;
} members[] = {
    MEMBER(seed, M_U64),        MEMBER(ranks, M_UNSIGNED),       MEMBER(nodes, M_UNSIGNED),
    MEMBER(budget_ns, M_U64),   MEMBER(max_memory_bytes, M_U64), MEMBER(pairs, M_UNSIGNED),
    MEMBER(margin, M_DOUBLE),   MEMBER(guard, M_DOUBLE),         MEMBER(alpha, M_DOUBLE),
    MEMBER(fixed, M_TEXT),      MEMBER(as_found, M_TEXT),        MEMBER(extra_guards, M_BOOL),
    MEMBER(source, M_OPT_TEXT), MEMBER(stand_in, M_OPT_TEXT),    MEMBER(probe, M_OPT_TEXT),
    MEMBER(same_bits, M_BOOL),  MEMBER(devices, M_OPT_TEXT),     MEMBER(no_groups, M_BOOL),
    MEMBER(no_overlap, M_BOOL),
};
enum { NMEMBERS = sizeof(members) / sizeof(members[0]) };

#define TABLE(f, n)                                                                                \
    {                                                                                              \
#f, n, offsetof(struct nt_spec, f), sizeof(((struct nt_spec *)0)->f)                       \
    }
static const struct {
    const char *name;
    const char *const *names;
    size_t offset, size;
} tables[] = {
    TABLE(colls, nt_coll_names),   TABLE(modes, nt_mode_names),       TABLE(dtypes, nt_dtype_names),
    TABLE(places, nt_place_names), TABLE(backends, nt_backend_names),
};
enum { NTABLES = sizeof(tables) / sizeof(tables[0]) };

static json_t *member_json(const struct nt_spec *s, size_t i)
{
    const void *field = (const char *)s + members[i].offset;
    switch (members[i].type) {
    case M_U64:
        return json_integer((json_int_t) * (const uint64_t *)field);
    case M_UNSIGNED:
        return json_integer(*(const unsigned *)field);
    case M_DOUBLE:
        return json_real(*(const double *)field);
    case M_BOOL:
        return json_boolean(*(const bool *)field);
    case M_TEXT:
    case M_OPT_TEXT:
        return json_string(field);
    }
    return NULL;
}

static int write_weights(const struct nt_spec *s, json_t *o)
{
    json_t *list = json_array();
    int bad = json_object_set_new(o, "weights", list);

    for (size_t i = 0; i < s->nweights && bad == 0; i++) {
        const struct nt_weight *x = &s->weights[i];
        bad = json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:f}", "collective",
                                                    nt_coll_names[x->coll], "mode",
                                                    nt_mode_names[x->mode], "bytes",
                                                    (json_int_t)x->bytes, "calls", x->calls));
    }
    return bad;
}

json_t *nt_spec_to_json(const struct nt_spec *s)
{
    json_t *o = json_object(), *list = json_array(), *settings = json_array();
    int bad = 0;

    bad |= json_object_set_new(o, "rig", json_string(nt_rig_names[s->rig]));
    bad |= json_object_set_new(o, "shown_rig", json_string(nt_rig_names[s->shown_rig]));
    bad |= json_object_set_new(o, "effort", json_string(nt_effort_names[s->effort]));
    bad |= json_object_set_new(o, "raced_dtype", json_string(nt_dtype_names[s->raced_dtype]));
    for (size_t i = 0; i < NMEMBERS; i++) {
        bad |= json_object_set_new(o, members[i].name, member_json(s, i));
    }
    for (size_t t = 0; t < NTABLES; t++) {
        const bool *on = (const bool *)((const char *)s + tables[t].offset);
        json_t *names = json_array();
        for (size_t i = 0; tables[t].names[i] != NULL; i++) {
            if (on[i]) {
                bad |= json_array_append_new(names, json_string(tables[t].names[i]));
            }
        }
        bad |= json_object_set_new(o, tables[t].name, names);
    }
    for (size_t i = 0; i < s->nsizes; i++) {
        bad |= json_array_append_new(list, json_integer((json_int_t)s->sizes[i]));
    }
    for (size_t i = 0; i < s->nsettings; i++) {
        bad |= json_array_append_new(settings, json_string(s->settings[i]));
    }
    bad |= json_object_set_new(o, "sizes", list);
    bad |= json_object_set_new(o, "settings", settings);
    bad |= s->nweights > 0 ? write_weights(s, o) : 0;
    if (bad != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static int read_member(const json_t *o, size_t i, struct nt_spec *s, struct nt_err *err)
{
    void *field = (char *)s + members[i].offset;
    const char *text = NULL;
    uint64_t u = 0;
    int rc = 0;

    switch (members[i].type) {
    case M_U64:
        rc = nt_json_u64(o, members[i].name, field, err);
        break;
    case M_UNSIGNED:
        rc = nt_json_u64(o, members[i].name, &u, err);
        if (rc == 0 && u > UINT_MAX) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s: too large", members[i].name);
        }
        *(unsigned *)field = (unsigned)u;
        break;
    case M_DOUBLE:
        rc = nt_json_num(o, members[i].name, field, err);
        break;
    case M_BOOL:
        *(bool *)field = nt_json_opt_bool(o, members[i].name, false);
        break;
    case M_TEXT:
    case M_OPT_TEXT:
        text = nt_json_opt_str(o, members[i].name, "");
        rc = members[i].type == M_TEXT ? nt_json_str(o, members[i].name, &text, err) : 0;
        if (rc == 0 && snprintf(field, members[i].size, "%s", text) >= (int)members[i].size) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s: too long", members[i].name);
        }
        break;
    }
    return rc;
}

static int read_table(const json_t *o, size_t t, struct nt_spec *s, struct nt_err *err)
{
    bool *on = (bool *)((char *)s + tables[t].offset);
    json_t *list = NULL, *v;
    size_t i;
    int rc;

    if (on == s->backends && json_object_get(o, tables[t].name) == NULL) {
        return 0; /* a spec of before there were backends */
    }
    rc = nt_json_arr(o, tables[t].name, &list, err);

    json_array_foreach(list, i, v)
    {
        int k = json_is_string(v)
                    ? nt_vocab_find(tables[t].names, tables[t].name, json_string_value(v), err)
                    : nt_fail(err, NT_E_INVAL, 0, "%s: must hold names", tables[t].name);
        if (k < 0) {
            return k;
        }
        on[k] = true;
    }
    return rc;
}

static int read_lists(const json_t *o, struct nt_spec *s, struct nt_err *err)
{
    json_t *sizes = NULL, *settings = NULL, *v;
    size_t i;
    int rc = nt_json_arr(o, "sizes", &sizes, err);

    if (rc == 0) {
        rc = nt_json_arr(o, "settings", &settings, err);
    }
    if (rc == 0 &&
        (json_array_size(settings) == 0 || json_array_size(settings) > NT_MAX_SETTINGS)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "settings: 1 to %d", NT_MAX_SETTINGS);
    }
    if (rc != 0) {
        return rc;
    }
    json_array_foreach(sizes, i, v)
    {
        rc = json_is_integer(v) && json_integer_value(v) > 0
                 ? nt_spec_add_size(s, (uint64_t)json_integer_value(v), err)
                 : nt_fail(err, NT_E_INVAL, 0, "sizes: must hold bytes");
        if (rc != 0) {
            return rc;
        }
    }
    s->nsettings = 0;
    json_array_foreach(settings, i, v)
    {
        const char *text = json_string_value(v);
        if (text == NULL ||
            snprintf(s->settings[i], NT_SETTING_LEN, "%s", text) >= NT_SETTING_LEN) {
            return nt_fail(err, NT_E_INVAL, 0, "settings: must hold short texts");
        }
        s->nsettings++;
    }
    return 0;
}

static int read_weight(const json_t *v, struct nt_spec *s, struct nt_err *err)
{
    struct nt_weight *x = &s->weights[s->nweights];
    const char *coll = NULL, *mode = NULL;
    int c = 0, m = 0, rc;

    if (s->nweights == NT_MAX_WEIGHTS) {
        return nt_fail(err, NT_E_INVAL, 0, "weights: more than %d", NT_MAX_WEIGHTS);
    }
    rc = nt_json_str(v, "collective", &coll, err);
    rc = rc == 0 ? nt_json_str(v, "mode", &mode, err) : rc;
    rc = rc == 0 ? nt_json_u64(v, "bytes", &x->bytes, err) : rc;
    rc = rc == 0 ? nt_json_num(v, "calls", &x->calls, err) : rc;
    if (rc != 0 || (c = nt_vocab_find(nt_coll_names, "collective", coll, err)) < 0 ||
        (m = nt_vocab_find(nt_mode_names, "mode", mode, err)) < 0) {
        return rc != 0 ? rc : c < 0 ? c : m;
    }
    if (!(x->calls > 0) || isinf(x->calls)) {
        return nt_fail(err, NT_E_INVAL, 0, "calls: must be above 0");
    }
    x->coll = (uint8_t)c;
    x->mode = (uint8_t)m;
    s->nweights++;
    return 0;
}

/* A spec of before there were weights has none. */
static int read_weights(const json_t *o, struct nt_spec *s, struct nt_err *err)
{
    json_t *list = NULL, *v;
    size_t i;
    int rc;

    if (json_object_get(o, "weights") == NULL) {
        return 0;
    }
    rc = nt_json_arr(o, "weights", &list, err);
    json_array_foreach(list, i, v)
    {
        rc = rc == 0 ? nt_wrap(err, read_weight(v, s, err), "weights: %zu", i) : rc;
    }
    return rc;
}

int nt_spec_from_json(const json_t *o, struct nt_spec *ret, struct nt_err *err)
{
    struct nt_spec s;
    const char *word = NULL;
    int rc, k;

    nt_spec_init(&s);
    rc = nt_json_str(o, "rig", &word, err);
    if (rc != 0 || (rc = k = nt_vocab_find(nt_rig_names, "rig", word, err)) < 0) {
        return rc;
    }
    s.rig = (enum nt_rig)k;
    rc = nt_json_str(o, "shown_rig", &word, err);
    if (rc != 0 || (rc = k = nt_vocab_find(nt_rig_names, "rig", word, err)) < 0) {
        return rc;
    }
    s.shown_rig = (enum nt_rig)k;
    rc = nt_json_str(o, "effort", &word, err);
    if (rc != 0 || (rc = k = nt_vocab_find(nt_effort_names, "effort", word, err)) < 0) {
        return rc;
    }
    s.effort = (enum nt_effort)k;
    word =
        nt_json_opt_str(o, "raced_dtype", nt_dtype_names[s.raced_dtype]); /* later than the rest */
    if ((rc = k = nt_vocab_find(nt_dtype_names, "raced_dtype", word, err)) < 0) {
        return rc;
    }
    s.raced_dtype = (enum nt_dtype)k;
    rc = 0;
    for (size_t i = 0; i < NMEMBERS && rc == 0; i++) {
        rc = read_member(o, i, &s, err);
    }
    for (size_t t = 0; t < NTABLES && rc == 0; t++) {
        rc = read_table(o, t, &s, err);
    }
    rc = rc == 0 ? read_lists(o, &s, err) : rc;
    rc = rc == 0 ? read_weights(o, &s, err) : rc;
    rc = rc == 0 ? nt_spec_finish(&s, err) : rc;
    if (rc == 0) {
        *ret = s;
    }
    return rc;
}
