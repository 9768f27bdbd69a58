/* What may stand in a profile, what contradicts what, and what it costs in memory. */
#include "schema/tunables.h"
#include "tuner/base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PER_FUNCTION = 22403 };

static const char *assigned(const struct nt_assign *vars, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) { /* the first of two equal names wins, as in NCCL's files */
        if (strcmp(vars[i].name, name) == 0) {
            return vars[i].value[0] != '\0' ? vars[i].value : NULL;
        }
    }
    return NULL;
}

static bool take(const struct nt_assign *vars, size_t n, const char *name, unsigned version,
                 struct nt_taken *ret)
{
    const char *value = assigned(vars, n, name);
    const struct nt_tunable *t = nt_tunable_find(name, version);
    if (value == NULL || t == NULL) {
        return false;
    }
    nt_tunable_take(t, value, version, ret);
    return ret->how < NT_TAKE_DEFAULT && ret->how != NT_TAKE_UNSET;
}

/* ---- profile ---- */

static int refuse(const char *name, const char *why, struct nt_err *err)
{
    return nt_fail(err, NT_E_INVAL, 0, "%s: %s", name, why);
}

/* ALGO and PROTO of the variables-only product: per function, with a fallback, without LL128. */
static int check_list(const struct nt_tunable *t, const char *value, const struct nt_taken *taken,
                      struct nt_err *err)
{
    if (value[strcspn(value, ":;")] != ':') {
        return refuse(t->name, "a profile names the functions it means, as in allreduce:ring", err);
    }
    if (taken->forces_ll128) {
        return refuse(t->name, "a list that leaves LL128 on skips NCCL's hardware tests", err);
    }
    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        bool named = (taken->named >> c & 1) != 0;
        if (named && t->type == NT_T_ALGOS && (taken->mask[c] >> NT_RING & 1) == 0) {
            return refuse(t->name, "a list without Ring has no fallback", err);
        }
        if (named && taken->mask[c] == 0) {
            return refuse(t->name, "a list without any name", err);
        }
    }
    return 0;
}

int nt_tunable_for_profile(const char *name, const char *value, unsigned version, bool table,
                           struct nt_err *err)
{
    static const struct {
        unsigned flag;
        const char *why;
    } never[] = {
        {NT_F_GONE, "no supported release reads it"},
        {NT_F_NOT_NCCL, "not a variable of NCCL"},
        {NT_F_DEBUG, "only for diagnosis, never from a profile"},
        {NT_F_NO_PROFILE, "never from a profile"},
        {NT_F_SITE, "a site constraint, never from a profile"},
    };
    const struct nt_tunable *any = nt_tunable_any(name), *t = nt_tunable_find(name, version);
    struct nt_taken taken;
    char text[24];

    if (any == NULL) {
        const char *near = nt_tunable_nearest(name);
        return nt_fail(err, NT_E_INVAL, 0, "unknown variable '%.80s'%s%s%s", name,
                       near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                       near != NULL ? "'?" : "");
    }
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        if ((any->flags & never[i].flag) != 0) {
            return refuse(name, never[i].why, err);
        }
    }
    if (t == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "%s: NCCL %s does not read it", name,
                       nt_nccl_version_text(version, text, sizeof(text)));
    }
    if (table && (t->flags & NT_F_MASKS_TABLE) != 0) {
        return refuse(name, "would mask the tuner table", err);
    }
    if (value[0] == '\0' ||
        value[strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                            "_.,:;^|+- ")] != '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "%s: '%.80s' is no value for a profile", name, value);
    }
    if ((t->type == NT_T_ALGOS || t->type == NT_T_PROTOS) && version < PER_FUNCTION) {
        return refuse(name, "before NCCL 2.24 it has no per-function form", err);
    }
    nt_tunable_take(t, value, version, &taken);
    if (taken.how != NT_TAKE_AS_MEANT) {
        return refuse(name, taken.why, err);
    }
    return (t->flags & NT_F_MASKS_TABLE) != 0 && t->type != NT_T_TEXT
               ? check_list(t, value, &taken, err)
               : 0;
}

/* ---- conflicts ---- */

enum cond {
    IS,            /* the number is arg */
    IS_NOT,        /* set, and the number is not arg */
    UNSET_OR_ZERO, /* not set, or 0 */
    IS_SET,
    TEXT_IS,
    PROTO_WITHOUT, /* no function is left a protocol of the mask arg */
    ALGO_WITHOUT,
};
struct inert {
    const char *name; /* ends in '*': every name with this beginning */
    const char *other;
    enum cond cond;
    int64_t arg;
    const char *text;
    const char *why;
};
#define BIT(x) (INT64_C(1) << (x))
static const struct inert inerts[] = {
    {"NCCL_BUFFSIZE", "NCCL_PROTO", PROTO_WITHOUT, BIT(NT_SIMPLE), NULL,
     "only Simple uses this buffer, which is allocated all the same"},
    {"NCCL_LL_BUFFSIZE", "NCCL_PROTO", PROTO_WITHOUT, BIT(NT_LL), NULL,
     "only LL uses this buffer, which is allocated all the same"},
    {"NCCL_LL128_*", "NCCL_PROTO", PROTO_WITHOUT, BIT(NT_LL128), NULL, "LL128 is off"},
    {"NCCL_NTHREADS", "NCCL_PROTO", PROTO_WITHOUT, BIT(NT_LL) | BIT(NT_SIMPLE), NULL,
     "LL128 has its own thread count"},
    {"NCCL_NVLS_N*", "NCCL_ALGO", ALGO_WITHOUT, BIT(NT_NVLS) | BIT(NT_NVLS_TREE), NULL,
     "NVLS is not among the algorithms"},
    {"NCCL_NVLS_C*", "NCCL_ALGO", ALGO_WITHOUT, BIT(NT_NVLS) | BIT(NT_NVLS_TREE), NULL,
     "NVLS is not among the algorithms"},
    {"NCCL_NVLSTREE_*", "NCCL_ALGO", ALGO_WITHOUT, BIT(NT_NVLS_TREE), NULL,
     "NVLSTree is not among the algorithms"},
    {"NCCL_PAT_ENABLE", "NCCL_ALGO", ALGO_WITHOUT, BIT(NT_PAT), NULL,
     "PAT is not among the algorithms"},
    {"NCCL_NVLS_N*", "NCCL_NVLS_ENABLE", IS, 0, NULL, "NVLS is off"},
    {"NCCL_NVLS_C*", "NCCL_NVLS_ENABLE", IS, 0, NULL, "NVLS is off"},
    {"NCCL_NVLSTREE_*", "NCCL_NVLS_ENABLE", IS, 0, NULL, "NVLS is off"},
    {"NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE", IS, 1, NULL, "peer access is off"},
    {"NCCL_P2P_READ_ENABLE", "NCCL_P2P_DISABLE", IS, 1, NULL, "peer access is off"},
    {"NCCL_P2P_DIRECT_DISABLE", "NCCL_P2P_DISABLE", IS, 1, NULL, "peer access is off"},
    {"NCCL_P2P_USE_CUDA_MEMCPY", "NCCL_P2P_DISABLE", IS, 1, NULL, "peer access is off"},
    {"NCCL_IGNORE_DISABLED_P2P", "NCCL_P2P_DISABLE", IS, 1, NULL, "peer access is off"},
    {"NCCL_NVB_*", "NCCL_P2P_DISABLE", IS, 1, NULL, "peer access is off"},
    {"NCCL_SHM_LOCALITY", "NCCL_SHM_DISABLE", IS, 1, NULL, "shared memory is off"},
    {"NCCL_SHM_USE_CUDA_MEMCPY", "NCCL_SHM_DISABLE", IS, 1, NULL, "shared memory is off"},
    {"NCCL_SHM_MEMCPY_MODE", "NCCL_SHM_DISABLE", IS, 1, NULL, "shared memory is off"},
    {"NCCL_SHM_MEMCPY_MODE", "NCCL_SHM_USE_CUDA_MEMCPY", UNSET_OR_ZERO, 0, NULL,
     "the copy engine is not used"},
    {"NCCL_CUMEM_HOST_ENABLE", "NCCL_CUMEM_ENABLE", IS, 0, NULL, "cuMem is off"},
    {"NCCL_RUNTIME_CONNECT", "NCCL_CUMEM_ENABLE", IS, 0, NULL, "cuMem is off"},
    {"NCCL_NVLS_*", "NCCL_CUMEM_ENABLE", IS, 0, NULL, "cuMem is off"},
    {"NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE", IS, 0, NULL, "cuMem is off"},
    {"NCCL_WIN_*", "NCCL_CUMEM_ENABLE", IS, 0, NULL, "cuMem is off"},
    {"NCCL_SYM_*", "NCCL_CUMEM_ENABLE", IS, 0, NULL, "cuMem is off"},
    {"NCCL_SYM_*", "NCCL_WIN_ENABLE", IS, 0, NULL, "symmetric windows are off"},
    {"NCCL_IB_*", "NCCL_IB_DISABLE", IS, 1, NULL, "InfiniBand is off"},
    {"NCCL_IB_*", "NCCL_NET", TEXT_IS, 0, "Socket", "sockets are asked for"},
    {"NCCL_NET_GDR_*", "NCCL_NET", TEXT_IS, 0, "Socket", "sockets have no GPU Direct"},
    {"NCCL_SOCKET_NTHREADS", "NCCL_NET", TEXT_IS, 0, "IB", "InfiniBand is asked for"},
    {"NCCL_NSOCKS_PERTHREAD", "NCCL_NET", TEXT_IS, 0, "IB", "InfiniBand is asked for"},
    {"NCCL_SOCKET_INLINE", "NCCL_NET", TEXT_IS, 0, "IB", "InfiniBand is asked for"},
    {"NCCL_SOCKET_MIN_TASKSIZE", "NCCL_NET", TEXT_IS, 0, "IB", "InfiniBand is asked for"},
    {"NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS", UNSET_OR_ZERO, 0, NULL,
     "without helper threads there is one socket; set both"},
    {"NCCL_SOCKET_RCVBUF", "NCCL_SOCKET_SNDBUF", UNSET_OR_ZERO, 0, NULL,
     "set both or neither: one alone stops TCP's own tuning of windows"},
    {"NCCL_SOCKET_SNDBUF", "NCCL_SOCKET_RCVBUF", UNSET_OR_ZERO, 0, NULL,
     "set both or neither: one alone stops TCP's own tuning of windows"},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", "NCCL_IB_QPS_PER_CONNECTION", IS, 1, NULL,
     "one queue pair has nothing to split"},
    {"NCCL_COLLNET_NODE_THRESHOLD", "NCCL_COLLNET_ENABLE", UNSET_OR_ZERO, 0, NULL,
     "CollNet is off"},
    {"NCCL_P2P_PXN_LEVEL", "NCCL_PXN_DISABLE", IS, 1, NULL, "PXN is off"},
    {"NCCL_PXN_C2C", "NCCL_PXN_DISABLE", IS, 1, NULL, "PXN is off"},
    {"NCCL_NET_SHARED_COMMS", "NCCL_PXN_DISABLE", IS, 1, NULL, "PXN is off"},
    {"NCCL_P2P_NET_CHUNKSIZE", "NCCL_CHUNK_SIZE", IS_NOT, 0, NULL, "it overrides the chunk"},
    {"NCCL_P2P_PCI_CHUNKSIZE", "NCCL_CHUNK_SIZE", IS_NOT, 0, NULL, "it overrides the chunk"},
    {"NCCL_P2P_NVL_CHUNKSIZE", "NCCL_CHUNK_SIZE", IS_NOT, 0, NULL, "it overrides the chunk"},
    {"NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS", IS_SET, 0, NULL, "the new name wins"},
    {"NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS", IS_SET, 0, NULL, "the new name wins"},
    {"NCCL_CTA_POLICY", "NCCL_ALGO", IS_SET, 0, NULL, "a forced algorithm switches it off"},
    {"NCCL_CTA_POLICY", "NCCL_PROTO", IS_SET, 0, NULL, "a forced protocol switches it off"},
    {"NCCL_GDRCOPY_F*", "NCCL_GDRCOPY_ENABLE", UNSET_OR_ZERO, 0, NULL, "gdrcopy is off"},
    {"NCCL_GDRCOPY_S*", "NCCL_GDRCOPY_ENABLE", UNSET_OR_ZERO, 0, NULL, "gdrcopy is off"},
    {"NCCL_OOB_NET_IFNAME", "NCCL_OOB_NET_ENABLE", UNSET_OR_ZERO, 0, NULL,
     "the bootstrap uses sockets"},
    {"NCCL_TOPO_DUMP_FILE_RANK", "NCCL_TOPO_DUMP_FILE", UNSET_OR_ZERO, 0, NULL, "no file is named"},
    {"NCCL_GRAPH_DUMP_FILE_RANK", "NCCL_GRAPH_DUMP_FILE", UNSET_OR_ZERO, 0, NULL,
     "no file is named"},
    {"NCCL_DEBUG_SUBSYS", "NCCL_DEBUG", UNSET_OR_ZERO, 0, NULL, "logging is off"},
    {"NCCL_DEBUG_FILE", "NCCL_DEBUG", UNSET_OR_ZERO, 0, NULL, "logging is off"},
};

struct pair {
    const char *low, *high;
    const char *why;
};
static const struct pair pairs[] = {
    {"NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "the minimum wins over the maximum"},
    {"NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "an empty range of blocks"},
    {"NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "the minimum wins over the maximum"},
    {"NCCL_MIN_NCHANNELS", "NCCL_MAX_CTAS", "the minimum wins over the maximum"},
};

/* Every collective lacks the bits: nothing that the variable acts on can run. */
static bool list_without(const struct nt_taken *t, int64_t bits)
{
    int64_t seen = 0;
    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        seen |= t->mask[c];
    }
    return (seen & bits) == 0;
}

static bool holds(const struct inert *r, const struct nt_assign *vars, size_t n, unsigned version)
{
    struct nt_taken t = {0};
    const char *text = assigned(vars, n, r->other);
    bool set = take(vars, n, r->other, version, &t);

    switch (r->cond) {
    case IS:
        return set && t.number == r->arg;
    case IS_NOT:
        return set && t.number != r->arg;
    case UNSET_OR_ZERO: /* texts have no number */
        return nt_tunable_find(r->other, version) != NULL &&
               (!set || (t.number == 0 && text[0] == '0'));
    case IS_SET:
        return set;
    case TEXT_IS:
        return set && strcasecmp(text, r->text) == 0;
    case PROTO_WITHOUT:
    case ALGO_WITHOUT:
        return set && list_without(&t, r->arg);
    }
    return false;
}

static bool named(const char *pattern, const char *name)
{
    size_t len = strlen(pattern);
    return pattern[len - 1] == '*' ? strncmp(pattern, name, len - 1) == 0
                                   : strcmp(pattern, name) == 0;
}

struct found {
    struct nt_conflict *out;
    size_t n, max;
};

static void add(struct found *f, enum nt_conflict_kind kind, const char *name, const char *other,
                const char *why)
{
    for (size_t i = 0; i < f->n && i < f->max; i++) {
        if (strcmp(f->out[i].name, name) == 0 && strcmp(f->out[i].other, other) == 0) {
            return; /* one reason a pair is enough */
        }
    }
    if (f->n < f->max) {
        f->out[f->n] = (struct nt_conflict){kind, name, other, why};
    }
    f->n++;
}

/* A function whose algorithms and protocols share no kernel: NVLS with LL alone. */
static bool strands(const struct nt_assign *vars, size_t n, unsigned version)
{
    struct nt_taken a = {0}, p = {0};
    if (version < PER_FUNCTION || !take(vars, n, "NCCL_ALGO", version, &a) ||
        !take(vars, n, "NCCL_PROTO", version, &p)) {
        return false;
    }
    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        bool small = (a.mask[c] & (BIT(NT_RING) | BIT(NT_TREE))) != 0;
        bool simple = (p.mask[c] >> NT_SIMPLE & 1) != 0;
        if (a.mask[c] != 0 && !small && !simple) {
            return true;
        }
    }
    return false;
}

static void unsafe(const struct nt_assign *vars, size_t n, unsigned version, struct found *f)
{
    static const char *const masking[] = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_THREAD_THRESHOLDS"};
    static const char *const tables[] = {"NCCLTUNE_TABLE", "NCCL_TUNER_CONFIG_FILE",
                                         "NCCL_TUNER_PLUGIN"};
    struct nt_taken a = {0}, b = {0}, c = {0};

    for (size_t t = 0; t < 3; t++) {
        const char *table = assigned(vars, n, tables[t]);
        for (size_t m = 0; table != NULL && strcmp(table, "none") != 0 && m < 3; m++) {
            if (assigned(vars, n, masking[m]) != NULL) {
                add(f, NT_X_UNSAFE, masking[m], tables[t], "masks what the tuner table chooses");
            }
        }
        if (table != NULL && strcmp(table, "none") != 0) {
            break;
        }
    }
    if (strands(vars, n, version)) {
        add(f, NT_X_UNSAFE, "NCCL_ALGO", "NCCL_PROTO",
            "a function has no kernel for these algorithms with these protocols: its calls fail");
    }
    if (take(vars, n, "NCCL_SOCKET_NTHREADS", version, &a) &&
        take(vars, n, "NCCL_NSOCKS_PERTHREAD", version, &b) && a.number > 0 &&
        b.number > 64 / a.number) {
        add(f, NT_X_UNSAFE, "NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS",
            "threads x sockets is above 64: NCCL cuts it");
    }
    if (take(vars, n, "NCCL_CHUNK_SIZE", version, &a) && a.number > 0 &&
        a.number > (take(vars, n, "NCCL_BUFFSIZE", version, &b) ? b.number : 4194304) / 8) {
        add(f, NT_X_UNSAFE, "NCCL_CHUNK_SIZE", "NCCL_BUFFSIZE", "the chunk exceeds its buffer");
    }
    if (take(vars, n, "NCCL_P2P_DISABLE", version, &a) && a.number == 1 &&
        take(vars, n, "NCCL_SHM_DISABLE", version, &b) && b.number == 1 &&
        take(vars, n, "NCCL_NET_DISABLE_INTRA", version, &c) && c.number == 1) {
        add(f, NT_X_UNSAFE, "NCCL_NET_DISABLE_INTRA", "NCCL_SHM_DISABLE",
            "no transport is left inside a node");
    }
}

size_t nt_tunable_conflicts(const struct nt_assign *vars, size_t n, unsigned version,
                            struct nt_conflict *out, size_t max)
{
    struct found f = {out, 0, max};

    for (size_t i = 0; i < sizeof(inerts) / sizeof(inerts[0]); i++) {
        const struct inert *r = &inerts[i];
        for (size_t v = 0; v < n; v++) {
            if (named(r->name, vars[v].name) && strcmp(vars[v].name, r->other) != 0 &&
                assigned(vars, n, vars[v].name) != NULL && holds(r, vars, n, version)) {
                add(&f, NT_X_INERT, vars[v].name, r->other, r->why);
            }
        }
    }
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct nt_taken low = {0}, high = {0};
        if (take(vars, n, pairs[i].low, version, &low) &&
            take(vars, n, pairs[i].high, version, &high) && low.number > high.number) {
            add(&f, NT_X_MIN_MAX, pairs[i].low, pairs[i].high, pairs[i].why);
        }
    }
    unsafe(vars, n, version, &f);
    return f.n;
}

/* ---- memory ---- */

#define MOST_BYTES    1e18
#define MOST_CHANNELS 64.0

int64_t nt_tunable_memory_bytes(const struct nt_assign *vars, size_t n, unsigned version,
                                const struct nt_memory_shape *shape)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } buffers[] = {
        {"NCCL_LL_BUFFSIZE", 524288}, {"NCCL_LL128_BUFFSIZE", 4915200}, {"NCCL_BUFFSIZE", 4194304}};
    static const char *const floors[] = {"NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS"};
    static const char *const ceilings[] = {"NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"};
    /* Numbers come from any file: doubles cannot overflow, and are exact up to 2^53 bytes. */
    double channels = shape->channels, now = 0, before = 0, bytes;
    struct nt_taken t;

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        before += (double)buffers[i].bytes;
        now += (double)(take(vars, n, buffers[i].name, version, &t) ? t.number : buffers[i].bytes);
    }
    for (size_t i = 0; i < 2; i++) {
        if (take(vars, n, ceilings[i], version, &t) && (double)t.number < channels) {
            channels = (double)t.number;
        }
    }
    for (size_t i = 0; i < 2; i++) { /* the minimum wins */
        if (take(vars, n, floors[i], version, &t) && (double)t.number > channels) {
            channels = (double)t.number;
        }
    }
    channels = fmin(fmax(channels, 1), MOST_CHANNELS); /* as NCCL cuts them */
    bytes = 2.0 * shape->peers * (now * channels - before * shape->channels);
    return (int64_t)fmin(fmax(bytes, -MOST_BYTES), MOST_BYTES);
}
