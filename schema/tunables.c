#include "schema/tunables.h"
#include "tuner/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const launchmodes[] = {"PARALLEL", "GROUP", NULL};
static const char *const ctapolicies[] = {"DEFAULT", "EFFICIENCY", "ZERO", NULL};
static const char *const checkmodes[] = {"DEBUG_LOCAL", "DEBUG_GLOBAL", NULL};
static const char *const families[] = {"AF_INET", "AF_INET6", NULL};
static const char *const mergepolicies[] = {"ALL", "RAIL", NULL};
static const char *const mergelevels[] = {"LOC", "PORT", "PIX", "PXB", "PXN",
                                          "P2C", "PHB",  "SYS", "NET", NULL};
static const char *const debugs[] = {"VERSION", "WARN", "INFO", "ABORT", "TRACE", NULL};

/* Short words for the columns of the rows. */
#define INT(lo_, hi_, step_)   .type = NT_T_INT, .lo = (lo_), .hi = (hi_), .step = (step_)
#define BYTES(lo_, hi_, step_) .type = NT_T_BYTES, .lo = (lo_), .hi = (hi_), .step = (step_)
#define BOOL                   INT(0, 1, 1)
#define ENUM(words_)           .type = NT_T_ENUM, .words = (words_)
#define LEVEL                  .type = NT_T_LEVEL
#define ALGOS                  .type = NT_T_ALGOS
#define PROTOS                 .type = NT_T_PROTOS
#define TEXT                   .type = NT_T_TEXT
enum { P = NT_SCOPE_PARAM, S = NT_SCOPE_STATIC, C = NT_SCOPE_COMM, X = NT_SCOPE_CALL };
enum {
    CORRUPT = NT_F_CORRUPT,
    HANG = NT_F_HANG,
    CRASH = NT_F_CRASH,
    ALL_RANKS = NT_F_ALL_RANKS,
    SITE = NT_F_SITE,
    FORBIDS = NT_F_FORBIDS,
    NO_PROFILE = NT_F_NO_PROFILE,
    MASKS_TABLE = NT_F_MASKS_TABLE,
    DEBUG = NT_F_DEBUG,
    POW2 = NT_F_POW2,
    NOT_NCCL = NT_F_NOT_NCCL,
    GONE = NT_F_GONE,
    EXACT = NT_F_EXACT,
    JOINED = NT_F_JOINED,
    BY_TUPLE = NT_F_BY_TUPLE,
};
/* domain is two or more members: the macro of a domain expands to them. */
#define R(name_, since_, until_, domain, ...) R_(name_, since_, until_, (domain), __VA_ARGS__)
#define UNPAREN(...)                          __VA_ARGS__
#define R_(name_, since_, until_, domain, scope_, pcie_, nvl_, net_, flags_, def_, source_, ...)   \
    {.name = (name_),                                                                              \
     .since = (since_),                                                                            \
     .until = (until_),                                                                            \
     UNPAREN domain,                                                                               \
     .scope = (scope_),                                                                            \
     .pcie = (pcie_),                                                                              \
     .nvl = (nvl_),                                                                                \
     .net = (net_),                                                                                \
     .flags = (flags_),                                                                            \
     .def = (def_),                                                                                \
     .source = (source_),                                                                          \
     .help = __VA_ARGS__},

const struct nt_tunable nt_tunables[] = {
#include "schema/tunables_a_k.def"
#include "schema/tunables_l_z.def"
};
const size_t nt_tunables_count = sizeof(nt_tunables) / sizeof(nt_tunables[0]);

const char *const nt_box_names[NT_BOX_COUNT + 1] = {[NT_BOX_PCIE] = "pcie",
                                                    [NT_BOX_NVLINK] = "nvlink",
                                                    [NT_BOX_IB] = "ib",
                                                    [NT_BOX_SOCKETS] = "sockets",
                                                    [NT_BOX_SHARED_GPU] = "shared-gpu"};

#define VALUES(...) ((const char *const[]){__VA_ARGS__, NULL})
/* What the search tries, by box: PCIe, NVLink, InfiniBand or RoCE, sockets, several ranks on one
 * GPU; 1 first order, 2 second. Variables that only act together are one knob. Never a site
 * constraint. On a shared GPU all ranks' blocks must be resident at once, so channels only shrink
 * there. */
static const struct nt_knob knobs[] = {
    {{"NCCL_MIN_NCHANNELS"}, VALUES("4", "8", "16", "32"), {1, 0, 1, 0, 0}},
    {{"NCCL_MIN_NCHANNELS"}, VALUES("16", "24", "32"), {0, 1, 0, 0, 0}},
    {{"NCCL_MIN_NCHANNELS"}, VALUES("2", "4", "8"), {0, 0, 0, 1, 0}},
    {{"NCCL_MAX_CTAS"}, VALUES("2", "4", "8"), {0, 0, 0, 0, 1}},
    {{"NCCL_MAX_NCHANNELS"}, VALUES("1", "2", "4"), {2, 0, 0, 2, 0}},
    {{"NCCL_MAX_NCHANNELS"}, VALUES("8", "16"), {0, 2, 2, 0, 0}},
    {{"NCCL_BUFFSIZE"}, VALUES("1048576", "2097152", "8388608", "16777216"), {1, 2, 1, 1, 2}},
    {{"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"},
     VALUES("1,1", "2,2", "4,1", "4,4", "2,8"),
     {0, 0, 0, 1, 0}},
    {{"NCCL_P2P_LEVEL"}, VALUES("PIX", "PHB", "SYS"), {1, 0, 0, 0, 0}},
    {{"NCCL_P2P_DISABLE"}, VALUES("1"), {1, 0, 0, 0, 0}},
    {{"NCCL_NVLS_NCHANNELS"}, VALUES("8", "16", "24", "32"), {0, 1, 0, 0, 0}},
    {{"NCCL_CTA_POLICY"}, VALUES("1"), {0, 2, 0, 0, 0}},
    {{"NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SPLIT_DATA_ON_QPS"},
     VALUES("2,0", "4,0", "2,1", "4,1", "8,1"),
     {0, 0, 1, 0, 0}},
    {{"NCCL_CROSS_NIC"}, VALUES("0", "1"), {0, 0, 1, 0, 0}},
    {{"NCCL_NET_GDR_READ"}, VALUES("0", "1"), {0, 0, 1, 0, 0}},
    {{"NCCL_PXN_DISABLE"}, VALUES("1"), {0, 0, 1, 0, 0}},
    {{"NCCL_NTHREADS"}, VALUES("128", "256", "512"), {2, 2, 0, 2, 1}},
    {{"NCCL_CUMEM_ENABLE"}, VALUES("0", "1"), {2, 0, 0, 2, 0}},
    {{"NCCL_CUMEM_HOST_ENABLE"}, VALUES("0", "1"), {2, 0, 0, 0, 0}},
    {{"NCCL_SHM_LOCALITY"}, VALUES("1"), {2, 0, 0, 0, 0}},
    {{"NCCL_P2P_PCI_CHUNKSIZE"}, VALUES("65536", "262144", "524288"), {2, 0, 0, 0, 0}},
    {{"NCCL_P2P_NVL_CHUNKSIZE"}, VALUES("262144", "1048576"), {0, 2, 0, 0, 2}},
    {{"NCCL_P2P_NET_CHUNKSIZE"}, VALUES("65536", "262144", "524288"), {0, 0, 2, 2, 0}},
    {{"NCCL_NVLS_CHUNKSIZE"}, VALUES("65536", "262144"), {0, 2, 0, 0, 0}},
    {{"NCCL_CGA_CLUSTER_SIZE"}, VALUES("0", "2", "8"), {0, 2, 0, 0, 0}},
    {{"NCCL_LL128_NTHREADS"}, VALUES("320"), {0, 2, 0, 0, 0}},
    {{"NCCL_NCHANNELS_PER_NET_PEER"}, VALUES("1", "2", "4"), {0, 0, 2, 0, 0}},
    {{"NCCL_IB_AR_THRESHOLD"}, VALUES("0", "65536"), {0, 0, 2, 0, 0}},
    {{"NCCL_SOCKET_INLINE"}, VALUES("0", "1024", "8192"), {0, 0, 0, 2, 0}},
    {{"NCCL_SOCKET_MIN_TASKSIZE"}, VALUES("16384", "262144"), {0, 0, 0, 2, 0}},
    {{"NCCL_PAT_ENABLE"}, VALUES("0"), {0, 0, 2, 2, 0}},
};
enum { KNOBS = sizeof(knobs) / sizeof(knobs[0]) };

int nt_nccl_version_parse(const char *text, unsigned *ret, struct nt_err *err)
{
    unsigned part[3] = {0, 0, 99};
    const char *p = text;

    for (unsigned i = 0; i < 3; i++) {
        char *end;
        unsigned long v = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 100;
        if (v > 99) {
            return nt_fail(err, NT_E_INVAL, 0, "'%s' is not an NCCL version such as 2.28.9", text);
        }
        part[i] = (unsigned)v;
        p = end;
        if (*p == '\0' && i > 0) {
            *ret = NT_V(part[0], part[1], part[2]);
            return 0;
        }
        if (*p++ != '.') {
            break;
        }
    }
    return nt_fail(err, NT_E_INVAL, 0, "'%s' is not an NCCL version such as 2.28.9", text);
}

char *nt_nccl_version_text(unsigned version, char *out, size_t size)
{
    if (version % 100 == 99) {
        (void)snprintf(out, size, "%u.%u", version / 10000, version / 100 % 100);
    } else {
        (void)snprintf(out, size, "%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
    }
    return out;
}

static int by_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct nt_tunable *)row)->name);
}

/* First row of the name, NULL if there is none. */
static const struct nt_tunable *first_row(const char *name)
{
    const struct nt_tunable *t =
        bsearch(name, nt_tunables, nt_tunables_count, sizeof(nt_tunables[0]), by_name);
    while (t != NULL && t > nt_tunables && strcmp(t[-1].name, name) == 0) {
        t--;
    }
    return t;
}

static bool same_name(const struct nt_tunable *t, const char *name)
{
    return t < nt_tunables + nt_tunables_count && strcmp(t->name, name) == 0;
}

const struct nt_tunable *nt_tunable_find(const char *name, unsigned version)
{
    const struct nt_tunable *t = first_row(name);
    for (; t != NULL && same_name(t, name); t++) {
        if ((t->flags & NT_F_GONE) == 0 && version >= t->since &&
            (t->until == 0 || version < t->until)) {
            return t;
        }
    }
    return NULL;
}

const struct nt_tunable *nt_tunable_any(const char *name)
{
    const struct nt_tunable *t = first_row(name);
    while (t != NULL && same_name(t + 1, name)) {
        t++;
    }
    return t;
}

const char *nt_tunable_nearest(const char *name)
{
    enum { MAX_NAMES = 512, LONGEST = 80 };
    const char *names[MAX_NAMES + 1];
    size_t n = 0;

    nt_assert(nt_tunables_count <= MAX_NAMES);
    if (strlen(name) > LONGEST) {
        return NULL; /* near to none, and the distance is not cheap */
    }
    for (size_t i = 0; i < nt_tunables_count; i++) {
        if ((nt_tunables[i].flags & NT_F_GONE) == 0 &&
            (n == 0 || strcmp(names[n - 1], nt_tunables[i].name) != 0)) {
            names[n++] = nt_tunables[i].name;
        }
    }
    names[n] = NULL;
    return nt_nearest(name, names);
}

bool nt_tunable_is_site(const char *name)
{
    const struct nt_tunable *t = nt_tunable_any(name);
    return t != NULL && (t->flags & NT_F_SITE) != 0;
}

bool nt_tunable_forbids(const char *name, const char *value)
{
    static const char off[] = "DISABLE";
    const struct nt_tunable *t = nt_tunable_any(name);
    bool disables;
    if (t == NULL || (t->flags & NT_F_FORBIDS) == 0 || *value == '\0') {
        return false;
    }
    disables = strstr(name, off) != NULL;
    return (strtoll(value, NULL, 0) != 0) == disables;
}

size_t nt_knobs(enum nt_box box, unsigned version, const struct nt_knob *out[NT_KNOBS_MAX])
{
    size_t n = 0;

    nt_assert((unsigned)box < NT_BOX_COUNT);
    for (unsigned order = 1; order <= 2; order++) {
        for (size_t i = 0; i < KNOBS && n < NT_KNOBS_MAX; i++) {
            bool read = knobs[i].order[box] == order;
            for (size_t v = 0; read && knobs[i].vars[v] != NULL; v++) {
                read = nt_tunable_find(knobs[i].vars[v], version) != NULL;
            }
            if (read) {
                out[n++] = &knobs[i];
            }
        }
    }
    return n;
}

size_t nt_knob_values(const struct nt_knob *k)
{
    size_t n = 0;
    while (k->values[n] != NULL) {
        n++;
    }
    return n;
}

size_t nt_knob_assign(const struct nt_knob *k, size_t i, struct nt_assign out[NT_KNOB_VARS],
                      char *text, size_t size)
{
    char *part = text;
    size_t n = 0;

    if (i == 0) {
        return 0;
    }
    nt_assert(i <= nt_knob_values(k) && strlen(k->values[i - 1]) < size);
    (void)snprintf(text, size, "%s", k->values[i - 1]);
    for (; k->vars[n] != NULL; n++) {
        char *comma = strchr(part, ',');
        if (k->vars[n + 1] != NULL && comma != NULL) {
            *comma = '\0';
        }
        out[n] = (struct nt_assign){k->vars[n], part};
        part = comma != NULL ? comma + 1 : part + strlen(part);
    }
    return n;
}
