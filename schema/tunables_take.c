/* What NCCL makes of a text. Follows ncclLoadParam (src/misc/param.cc), ncclGetLevel
 * (src/graph/paths.cc) and parseList (src/graph/tuning.cc) of the release asked for, quirks
 * included. */
#include "schema/tunables.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PER_FUNCTION = 22403, HAS_PAT = 22304, HAS_C2C = 22602, HAS_P2C = 22703 };

static void NT_PRINTF(3, 4) say(struct nt_taken *t, enum nt_take how, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    t->how = how;
    (void)vsnprintf(t->why, sizeof(t->why), fmt, ap);
    va_end(ap);
}

static bool blank(const char *s)
{
    return s[strspn(s, " \t\r\n\v\f")] == '\0';
}

static void domain_text(const struct nt_tunable *t, char *out, size_t size)
{
    int n = snprintf(out, size, "%" PRId64 " to %" PRId64, t->lo, t->hi);
    if (t->flags & NT_F_POW2) {
        (void)snprintf(out + n, size - (size_t)n, ", a power of two");
    } else if (t->step > 1) {
        (void)snprintf(out + n, size - (size_t)n, ", a multiple of %" PRId64, t->step);
    }
}

static bool in_domain(const struct nt_tunable *t, int64_t v)
{
    bool multiple = t->step <= 1 || v % t->step == 0;
    bool power = (t->flags & NT_F_POW2) == 0 || v < 0 || (v & (v - 1)) == 0;
    return v >= t->lo && v <= t->hi && multiple && power;
}

/* The number by which NCCL's source says that a variable is not set: as good as leaving it out. */
static bool says_unset(const struct nt_tunable *t, int64_t v)
{
    static const struct {
        const char *name;
        int64_t unset;
    } rows[] = {
        {"NCCL_AGG_CHANNEL_SIZE", -2},
        {"NCCL_BUFFSIZE", -2},
        {"NCCL_CUMEM_ENABLE", -2},
        {"NCCL_CUMEM_HOST_ENABLE", -1},
        {"NCCL_GIN_EXCLUSIVE_CONTEXTS", -1},
        {"NCCL_GIN_GDAKI_MAX_DEST_RD_ATOMIC", -2},
        {"NCCL_GIN_GDAKI_MAX_QP_RD_ATOMIC", -2},
        {"NCCL_GIN_IB_TC", -1},
        {"NCCL_GIN_NCONNECTIONS", -2},
        {"NCCL_GIN_NCONTEXTS", -1},
        {"NCCL_GIN_PROXY_QUEUE_SIZE", -1},
        {"NCCL_GIN_TYPE", -1},
        {"NCCL_IB_ADAPTIVE_ROUTING", -2},
        {"NCCL_IB_AR_THRESHOLD", -2},
        {"NCCL_IB_FIFO_TC", -1},
        {"NCCL_IB_GID_INDEX", -1},
        {"NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS", -2},
        {"NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME", -2},
        {"NCCL_IB_SL", -1},
        {"NCCL_IB_TC", -1},
        {"NCCL_LL128_BUFFSIZE", -2},
        {"NCCL_LL128_NTHREADS", -2},
        {"NCCL_LL_BUFFSIZE", -2},
        {"NCCL_MAX_NCHANNELS", -2},
        {"NCCL_MAX_NRINGS", -2},
        {"NCCL_MIN_NCHANNELS", -2},
        {"NCCL_MIN_NRINGS", -2},
        {"NCCL_MNNVL_CLIQUE_ID", -1},
        {"NCCL_MNNVL_UUID", -1},
        {"NCCL_NCHANNELS_PER_NET_PEER", -1},
        {"NCCL_NET_GDR_READ", -2},
        {"NCCL_NET_OVERHEAD", -2},
        {"NCCL_NET_SHARED_BUFFERS", -2},
        {"NCCL_NSOCKS_PERTHREAD", -2},
        {"NCCL_NTHREADS", -2},
        {"NCCL_NVLSTREE_MAX_CHUNKSIZE", -2},
        {"NCCL_P2P_READ_ENABLE", -2},
        {"NCCL_PROXY_DUMP_SIGNAL", -1},
        {"NCCL_RMA_PROXY_DUMP_SIGNAL", -1},
        {"NCCL_RMA_PROXY_QUEUE_SIZE", -1},
        {"NCCL_SOCKET_NTHREADS", -2},
        {"NCCL_SOCKET_RCVBUF", -1},
        {"NCCL_SOCKET_SNDBUF", -1},
        {"NCCL_SYM_RS_GIN_CHUNK_SIZE", -1},
        {"NCCL_WIN_STRIDE", -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && v < 0; i++) {
        if (v == rows[i].unset && strcmp(t->name, rows[i].name) == 0) {
            return true;
        }
    }
    return false;
}

static void take_number(const struct nt_tunable *t, const char *value, struct nt_taken *r)
{
    char *end, domain[96];
    const char *digits = value + strspn(value, " \t+-");

    errno = 0;
    r->number = strtoll(value, &end, 0);
    if (errno != 0) {
        say(r, NT_TAKE_DEFAULT, "'%.40s' does not fit 64 bits: NCCL uses its default (%s)", value,
            t->def);
    } else if (end == value) {
        say(r, NT_TAKE_OTHER, "'%.40s' is no number: NCCL takes 0", value);
    } else if (!blank(end)) {
        say(r, NT_TAKE_OTHER, "NCCL takes %" PRId64 " and drops '%.40s'", r->number, end);
    } else if (digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9') {
        say(r, NT_TAKE_OTHER, "octal: NCCL takes %" PRId64, r->number);
    } else if (!in_domain(t, r->number) && !says_unset(t, r->number)) {
        domain_text(t, domain, sizeof(domain));
        say(r, NT_TAKE_OUTSIDE, "%" PRId64 " is outside %s", r->number, domain);
    }
}

static void take_level(const char *value, unsigned version, struct nt_taken *r)
{
    static const struct {
        const char *name;
        unsigned since;
    } levels[] = {{"LOC", 0}, {"NVL", 0},       {"NVB", 0}, {"C2C", HAS_C2C}, {"PIX", 0},
                  {"PXB", 0}, {"P2C", HAS_P2C}, {"PXN", 0}, {"PHB", 0},       {"SYS", 0}};
    static const int64_t old[] = {0, 4, 5, 8, 9, 9}; /* LOC PIX PXB PHB SYS SYS */
    enum { LEVELS = sizeof(levels) / sizeof(levels[0]), OLD = sizeof(old) / sizeof(old[0]) };

    for (int i = 0; i < LEVELS; i++) {
        if (strcmp(value, levels[i].name) == 0 && version >= levels[i].since) {
            r->number = i;
            return;
        }
    }
    if (value[0] >= '0' && value[0] <= '9') {
        char *end;
        long n = strtol(value, &end, 0);
        r->number = old[n < OLD ? n : OLD - 1];
        if (!blank(end)) { /* more than 4 is SYS, as NCCL's documentation says */
            say(r, NT_TAKE_OTHER, "old numbering: NCCL takes %s and drops '%.40s'",
                levels[r->number].name, end);
        }
        return;
    }
    for (int i = 0; i < LEVELS; i++) {
        if (strncasecmp(value, levels[i].name, 3) == 0 && version >= levels[i].since) {
            say(r, NT_TAKE_DEFAULT, "'%.40s' is not a level: NCCL uses its default; write %s",
                value, levels[i].name);
            return;
        }
    }
    say(r, NT_TAKE_DEFAULT, "'%.40s' is not a level of this release: NCCL uses its default", value);
}

static int find_word(const struct nt_tunable *t, const char *word, size_t len)
{
    for (int i = 0; t->words[i] != NULL; i++) {
        bool same = strlen(t->words[i]) == len &&
                    ((t->flags & NT_F_EXACT) ? strncmp(t->words[i], word, len)
                                             : strncasecmp(t->words[i], word, len)) == 0;
        if (same) {
            return i;
        }
    }
    return -1;
}

static void take_word(const struct nt_tunable *t, const char *value, struct nt_taken *r)
{
    int found = -1;
    const char *p = value;

    if ((t->flags & NT_F_JOINED) != 0 && value[0] >= '0' && value[0] <= '9') {
        r->number = value[0] - '0'; /* the old numbering looks at one digit */
        if (value[0] > '2') {
            say(r, NT_TAKE_DEFAULT, "'%.40s' is unknown: NCCL uses its default (%s)", value,
                t->def);
        } else if (value[1] != '\0') {
            say(r, NT_TAKE_OTHER, "NCCL takes %c and drops the rest", value[0]);
        }
        return;
    }
    do {
        size_t len = (t->flags & NT_F_JOINED) ? strcspn(p, "|") : strlen(p);
        int i = find_word(t, p, len);
        found = i > found ? i : found;
        if (i < 0) {
            say(r, found < 0 ? NT_TAKE_DEFAULT : NT_TAKE_OTHER,
                "'%.*s' is unknown: NCCL uses its default (%s)", (int)(len > 40 ? 40 : len), p,
                t->def);
        }
        p += len + (p[len] == '|');
    } while (*p != '\0');
    r->number = found < 0 ? 0 : found;
}

/* strtok_r over borrowed text: the next token of [*p, end), false when there is none. */
static bool token(const char **p, const char *end, char sep, const char **tok, size_t *len)
{
    while (*p < end && **p == sep) {
        (*p)++;
    }
    if (*p == end) {
        return false;
    }
    *tok = *p;
    while (*p < end && **p != sep) {
        (*p)++;
    }
    *len = (size_t)(*p - *tok);
    if (*p < end) {
        (*p)++; /* strtok_r overwrites the separator and goes on behind it */
    }
    return true;
}

struct grammar {
    const char *const *names;
    int count;
};

const char *const nt_nccl_functions[NT_TUNER_COLLS + 1] = {"Broadcast", "Reduce", "AllGather",
                                                           "ReduceScatter", "AllReduce"};
const char *const nt_nccl_algos[NT_ALGO_COUNT + 1] = {
    "Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"};
const char *const nt_nccl_protos[NT_PROTO_COUNT + 1] = {"LL", "LL128", "Simple"};

static int same_word(const char *const *words, int n, const char *tok, size_t len)
{
    for (int i = 0; i < n; i++) {
        if (strlen(words[i]) == len && strncasecmp(words[i], tok, len) == 0) {
            return i;
        }
    }
    return -1;
}

/* One list of names into a mask; *unknown gets the first name that is none, NULL if all are. */
static uint16_t list_mask(const struct grammar *g, const char *list, size_t len,
                          const char **unknown, size_t *unknown_len)
{
    const char *end = list + len, *tok;
    size_t n;
    bool inverted = len > 0 && list[0] == '^';
    unsigned mask = 0;

    *unknown = NULL;
    list += inverted;
    while (token(&list, end, ',', &tok, &n)) {
        int e = same_word(g->names, g->count, tok, n);
        if (e >= 0) {
            mask |= 1U << e;
        } else if (*unknown == NULL) {
            *unknown = tok;
            *unknown_len = n;
        }
    }
    if (inverted) {
        mask ^= (1U << g->count) - 1U;
    }
    return (uint16_t)(mask & UINT16_MAX);
}

/* NCCL 2.24 and later: [function:]list;… Every entry rewrites the whole row of its function. */
static void take_entries(const struct grammar *g, const char *value, struct nt_taken *r)
{
    const char *p = value, *end = value + strlen(value), *entry;
    size_t len;

    while (token(&p, end, ';', &entry, &len)) {
        const char *in = entry, *first, *list, *unknown;
        size_t first_len, list_len, unknown_len = 0;
        int f = -1;
        uint16_t mask;
        if (!token(&in, entry + len, ':', &first, &first_len)) {
            say(r, NT_TAKE_FAILS, "an entry without names");
            return;
        }
        if (token(&in, entry + len, ':', &list, &list_len)) {
            f = same_word(nt_nccl_functions, NT_TUNER_COLLS, first, first_len);
            if (f < 0) {
                say(r, NT_TAKE_FAILS, "unknown function '%.*s': communicators fail",
                    (int)(first_len > 40 ? 40 : first_len), first);
                return;
            }
        } else if (entry != value) {
            say(r, NT_TAKE_FAILS, "only the first entry may have no function: communicators fail");
            return;
        } else {
            list = first;
            list_len = first_len;
        }
        mask = list_mask(g, list, list_len, &unknown, &unknown_len);
        if (unknown != NULL) {
            say(r, NT_TAKE_FAILS, "unknown name '%.*s': communicators fail",
                (int)(unknown_len > 40 ? 40 : unknown_len), unknown);
            return;
        }
        for (int c = 0; c < NT_TUNER_COLLS; c++) {
            if (f < 0 || f == c) {
                r->mask[c] = mask;
                r->named = (uint16_t)(r->named | 1U << c);
            }
        }
    }
}

/* Up to 2.23: one flat list; unknown names are ignored, and Ring backs up what is left empty. */
static void take_flat(const struct grammar *g, const char *value, struct nt_taken *r)
{
    const char *unknown;
    size_t len = 0;
    uint16_t mask = list_mask(g, value, strlen(value), &unknown, &len);

    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        r->mask[c] = mask;
    }
    r->named = (1U << NT_TUNER_COLLS) - 1;
    if (unknown != NULL) {
        say(r, NT_TAKE_OTHER, "unknown name '%.*s' is ignored", (int)(len > 40 ? 40 : len),
            unknown);
    }
}

static void take_list(const struct nt_tunable *t, const char *value, unsigned version,
                      struct nt_taken *r)
{
    /* Algorithms with a kernel for the function (src/device/generate.py). */
    static const uint16_t kernels[NT_TUNER_COLLS] = {
        [NT_BROADCAST] = 1U << NT_RING,
        [NT_REDUCE] = 1U << NT_RING,
        [NT_ALL_GATHER] = 1U << NT_RING | 1U << NT_COLLNET_DIRECT | 1U << NT_NVLS | 1U << NT_PAT,
        [NT_REDUCE_SCATTER] =
            1U << NT_RING | 1U << NT_COLLNET_DIRECT | 1U << NT_NVLS | 1U << NT_PAT,
        [NT_ALL_REDUCE] = (1U << NT_PAT) - 1,
    };
    bool algos = t->type == NT_T_ALGOS;
    struct grammar g = {algos ? nt_nccl_algos : nt_nccl_protos, !algos ? NT_PROTO_COUNT
                                                                : version >= HAS_PAT ? NT_ALGO_COUNT
                                                                                     : NT_PAT};

    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        r->mask[c] = (uint16_t)((1U << g.count) - 1);
    }
    if (version >= PER_FUNCTION) {
        take_entries(&g, value, r);
    } else {
        take_flat(&g, value, r);
    }
    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        bool named = (r->named >> c & 1) != 0;
        if (named && !algos && (r->mask[c] >> NT_LL128 & 1) != 0) {
            r->forces_ll128 = true;
        }
        if (named && (algos ? r->mask[c] & kernels[c] : r->mask[c]) == 0 &&
            version >= PER_FUNCTION) {
            r->stranded = (uint16_t)(r->stranded | 1U << c);
        }
    }
}

void nt_tunable_take(const struct nt_tunable *t, const char *value, unsigned version,
                     struct nt_taken *ret)
{
    *ret = (struct nt_taken){.how = NT_TAKE_AS_MEANT};
    if ((t->flags & NT_F_GONE) != 0 || version < t->since ||
        (t->until != 0 && version >= t->until)) {
        char text[24];
        say(ret, NT_TAKE_NOTHING, "NCCL %s does not read %s",
            nt_nccl_version_text(version, text, sizeof(text)), t->name);
    } else if (*value == '\0') {
        say(ret, NT_TAKE_UNSET, "empty: as if it were not set");
    } else if (t->type == NT_T_INT || t->type == NT_T_BYTES) {
        take_number(t, value, ret);
    } else if (t->type == NT_T_LEVEL) {
        take_level(value, version, ret);
    } else if (t->type == NT_T_ENUM) {
        take_word(t, value, ret);
    } else if (t->type == NT_T_ALGOS || t->type == NT_T_PROTOS) {
        take_list(t, value, version, ret);
    }
}
