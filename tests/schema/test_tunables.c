#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/tunables.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
enum { V218 = 21806, V223 = 22304, V228 = 22809, V230 = 23007 };

/* ---- the table itself ---- */

static void test_rows_are_sorted_and_whole(void **state)
{
    (void)state;
    assert_true(nt_tunables_count > 250);
    for (size_t i = 0; i < nt_tunables_count; i++) {
        const struct nt_tunable *t = &nt_tunables[i], *next = t + 1;
        if (t->help[0] == '\0' || t->source == NULL || t->def == NULL || t->pcie > 2 ||
            t->nvl > 2 || t->net > 2) {
            fail_msg("%s: incomplete row", t->name);
        }
        if (t->until != 0 && t->since >= t->until) {
            fail_msg("%s: since %u, until %u", t->name, t->since, t->until);
        }
        if (t->type == NT_T_ENUM && t->words == NULL) {
            fail_msg("%s: no words", t->name);
        }
        if ((t->type == NT_T_INT || t->type == NT_T_BYTES) && t->lo > t->hi) {
            fail_msg("%s: empty domain", t->name);
        }
        if (i + 1 < nt_tunables_count) {
            int order = strcmp(t->name, next->name);
            if (order > 0 || (order == 0 && (t->until == 0 || t->until > next->since))) {
                fail_msg("%s (%u) before %s (%u)", t->name, t->since, next->name, next->since);
            }
        }
    }
}

static void test_numeric_defaults_are_inside_their_domains(void **state)
{
    unsigned seen = 0;
    (void)state;
    for (size_t i = 0; i < nt_tunables_count; i++) {
        const struct nt_tunable *t = &nt_tunables[i];
        char *end;
        long long v = strtoll(t->def, &end, 0);
        struct nt_taken taken;
        bool number = end != t->def && (*end == '\0' || *end == ' ');
        if ((t->type != NT_T_INT && t->type != NT_T_BYTES) || !number ||
            (t->flags & NT_F_GONE) != 0) {
            continue;
        }
        char text[32];
        (void)snprintf(text, sizeof(text), "%lld", v);
        nt_tunable_take(t, text, t->since, &taken);
        if (taken.how != NT_TAKE_AS_MEANT) {
            fail_msg("%s: default %s: %s", t->name, text, taken.why);
        }
        seen++;
    }
    assert_true(seen > 150);
}

static void test_safety_flags(void **state)
{
    (void)state;
    for (size_t i = 0; i < nt_tunables_count; i++) {
        const struct nt_tunable *t = &nt_tunables[i];
        size_t len = strlen(t->name);
        bool file = len > 5 && strcmp(t->name + len - 5, "_FILE") == 0;
        bool plugin = len > 7 && strcmp(t->name + len - 7, "_PLUGIN") == 0;
        bool closed = file || plugin || strcmp(t->name, "NCCL_HOSTID") == 0 ||
                      strcmp(t->name, "NCCL_COMM_ID") == 0;
        if (closed && (t->flags & NT_F_NO_PROFILE) == 0) {
            fail_msg("%s may not come from a profile", t->name);
        }
    }
}

/* ---- finding ---- */

static void test_find(void **state)
{
    static const struct {
        const char *name;
        unsigned version;
        int64_t hi; /* of the row found; -1: none */
    } rows[] = {{"NCCL_MIN_NCHANNELS", V223, 32},      {"NCCL_MIN_NCHANNELS", 22501, 64},
                {"NCCL_MIN_NCHANNELS", V230, 64},      {"NCCL_PAT_ENABLE", V218, -1},
                {"NCCL_PAT_ENABLE", V223, 2},          {"NCCL_SHM_MEMCPY_MODE", V228, 3},
                {"NCCL_SHM_MEMCPY_MODE", V230, -1},    {"NCCL_TREE_THRESHOLD", V218, -1},
                {"NCCL_NCHANNELS_PER_PEER", V228, -1}, {"nccl_buffsize", V228, -1}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct nt_tunable *t = nt_tunable_find(rows[i].name, rows[i].version);
        if ((t == NULL) != (rows[i].hi < 0) || (t != NULL && t->hi != rows[i].hi)) {
            fail_msg("%s under %u: %s", rows[i].name, rows[i].version, t ? "found" : "not found");
        }
    }
    assert_string_equal(nt_tunable_any("NCCL_TREE_THRESHOLD")->instead, "NCCL_ALGO");
    assert_int_equal(nt_tunable_any("NCCL_CTA_POLICY")->type, NT_T_ENUM);
    assert_null(nt_tunable_any("NCCL_BUFSIZE"));
    assert_string_equal(nt_tunable_nearest("NCCL_BUFSIZE"), "NCCL_BUFFSIZE");
    assert_string_equal(nt_tunable_nearest("CCL_NET_GDR_LEVEL"), "NCCL_NET_GDR_LEVEL");
    assert_string_equal(nt_tunable_nearest("NCLL_NET_GDR_LEVEL"), "NCCL_NET_GDR_LEVEL");
    assert_null(nt_tunable_nearest("PATH"));
}

static void test_site_constraints(void **state)
{
    (void)state;
    assert_true(nt_tunable_is_site("NCCL_SOCKET_IFNAME"));
    assert_true(nt_tunable_is_site("NCCL_IB_HCA"));
    assert_true(nt_tunable_is_site("NCCL_NVLS_ENABLE"));
    assert_true(nt_tunable_is_site("TORCH_SYMM_MEM_DISABLE_MULTICAST"));
    assert_true(nt_tunable_is_site("NVSHMEM_DISABLE_NVLS"));
    assert_false(nt_tunable_is_site("NCCL_BUFFSIZE"));
    assert_false(nt_tunable_is_site("PATH"));
    assert_true(nt_tunable_forbids("NCCL_NVLS_ENABLE", "0"));
    assert_false(nt_tunable_forbids("NCCL_NVLS_ENABLE", "2"));
    assert_true(nt_tunable_forbids("NCCL_P2P_DISABLE", "1"));
    assert_false(nt_tunable_forbids("NCCL_P2P_DISABLE", "0"));
    assert_true(nt_tunable_forbids("NVSHMEM_DISABLE_NVLS", "1"));
    assert_false(nt_tunable_forbids("NCCL_BUFFSIZE", "0"));
}

static void test_versions(void **state)
{
    static const struct {
        const char *text;
        unsigned version; /* 0: refused */
    } rows[] = {{"2.28.9", 22809}, {"2.23", 22399}, {"2.30.7", 23007}, {"2", 0},     {"2.x", 0},
                {"", 0},           {"2.28.", 0},    {"2.28.9.1", 0},   {"-2.28", 0}, {"2.128", 0}};
    char text[24];
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        unsigned v = 0;
        int rc = nt_nccl_version_parse(rows[i].text, &v, NULL);
        if ((rc == 0) != (rows[i].version != 0) || v != rows[i].version) {
            fail_msg("'%s': rc %d, %u", rows[i].text, rc, v);
        }
    }
    assert_string_equal(nt_nccl_version_text(22809, text, sizeof(text)), "2.28.9");
    assert_string_equal(nt_nccl_version_text(22399, text, sizeof(text)), "2.23");
}

/* ---- what NCCL makes of a text ---- */

static void test_take(void **state)
{
    static const struct {
        const char *name, *value;
        unsigned version;
        enum nt_take how;
        int64_t number;
    } rows[] = {
        {"NCCL_BUFFSIZE", "4194304", V228, NT_TAKE_AS_MEANT, 4194304},
        {"NCCL_BUFFSIZE", "0x400000", V228, NT_TAKE_AS_MEANT, 4194304},
        {"NCCL_BUFFSIZE", " 4194304 ", V228, NT_TAKE_AS_MEANT, 4194304},
        {"NCCL_BUFFSIZE", "4M", V228, NT_TAKE_OTHER, 4},
        {"NCCL_BUFFSIZE", "\"4194304\"", V228, NT_TAKE_OTHER, 0},
        {"NCCL_BUFFSIZE", "", V228, NT_TAKE_UNSET, 0},
        {"NCCL_BUFFSIZE", "5000000", V228, NT_TAKE_OUTSIDE, 5000000},
        {"NCCL_BUFFSIZE", "99999999999999999999", V228, NT_TAKE_DEFAULT, INT64_MAX},
        {"NCCL_P2P_DISABLE", "true", V228, NT_TAKE_OTHER, 0},
        {"NCCL_MIN_NCHANNELS", "08", V228, NT_TAKE_OTHER, 0},
        {"NCCL_MIN_NCHANNELS", "010", V228, NT_TAKE_OTHER, 8},
        {"NCCL_MIN_NCHANNELS", "0", V228, NT_TAKE_OUTSIDE, 0},
        {"NCCL_MIN_NCHANNELS", "48", V228, NT_TAKE_AS_MEANT, 48},
        {"NCCL_MIN_NCHANNELS", "48", V223, NT_TAKE_OUTSIDE, 48},
        {"NCCL_NTHREADS", "100", V228, NT_TAKE_OUTSIDE, 100},
        {"NCCL_LL128_BUFFSIZE", "131072", V228, NT_TAKE_OUTSIDE, 131072},
        {"NCCL_LL128_BUFFSIZE", "123000", V228, NT_TAKE_OUTSIDE, 123000},
        {"NCCL_LL128_BUFFSIZE", "122880", V228, NT_TAKE_AS_MEANT, 122880},
        {"NCCL_P2P_LEVEL", "NVL", V228, NT_TAKE_AS_MEANT, 1},
        {"NCCL_P2P_LEVEL", "SYS", V228, NT_TAKE_AS_MEANT, 9},
        {"NCCL_P2P_LEVEL", "sys", V228, NT_TAKE_DEFAULT, 0},
        {"NCCL_P2P_LEVEL", "4", V228, NT_TAKE_AS_MEANT, 9},
        {"NCCL_BUFFSIZE", "-2", V228, NT_TAKE_AS_MEANT, -2},
        {"NCCL_BUFFSIZE", "-1", V228, NT_TAKE_OUTSIDE, -1},
        {"NCCL_NCHANNELS_PER_NET_PEER", "-1", V228, NT_TAKE_AS_MEANT, -1},
        {"NCCL_P2P_LEVEL", "9", V228, NT_TAKE_AS_MEANT, 9},
        {"NCCL_P2P_LEVEL", "P2C", V223, NT_TAKE_DEFAULT, 0},
        {"NCCL_P2P_LEVEL", "P2C", V228, NT_TAKE_AS_MEANT, 6},
        {"NCCL_LAUNCH_MODE", "group", V228, NT_TAKE_AS_MEANT, 1},
        {"NCCL_LAUNCH_MODE", "serial", V228, NT_TAKE_DEFAULT, 0},
        {"NCCL_SOCKET_FAMILY", "af_inet", V228, NT_TAKE_DEFAULT, 0},
        {"NCCL_CTA_POLICY", "EFFICIENCY|ZERO", V230, NT_TAKE_AS_MEANT, 2},
        {"NCCL_CTA_POLICY", "efficiency", V230, NT_TAKE_AS_MEANT, 1},
        {"NCCL_CTA_POLICY", "2", V230, NT_TAKE_AS_MEANT, 2},
        {"NCCL_CTA_POLICY", "EFFICIENCY", V228, NT_TAKE_OTHER, 0},
        {"NCCL_CTA_POLICY", "FAST", V230, NT_TAKE_DEFAULT, 0},
        {"NCCL_NET", "Socket", V228, NT_TAKE_AS_MEANT, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct nt_tunable *t = nt_tunable_find(rows[i].name, rows[i].version);
        struct nt_taken taken;
        assert_non_null(t);
        nt_tunable_take(t, rows[i].value, rows[i].version, &taken);
        if (taken.how != rows[i].how || taken.number != rows[i].number ||
            (taken.how == NT_TAKE_AS_MEANT) != (taken.why[0] == '\0')) {
            fail_msg("%s='%s': how %d, number %lld, '%s'", rows[i].name, rows[i].value,
                     (int)taken.how, (long long)taken.number, taken.why);
        }
    }
}

#define ALL_ALGOS 0x7f
static void test_lists(void **state)
{
    enum {
        B = 1 << NT_BROADCAST,
        R = 1 << NT_REDUCE,
        G = 1 << NT_ALL_GATHER,
        S = 1 << NT_REDUCE_SCATTER,
        A = 1 << NT_ALL_REDUCE
    };
    static const struct {
        const char *name, *value;
        unsigned version;
        enum nt_take how;
        unsigned reduce, gather, named, stranded; /* masks of all_reduce and all_gather */
        bool ll128;
    } rows[] = {
        {"NCCL_ALGO", "Ring", V228, NT_TAKE_AS_MEANT, 2, 2, 31, 0, false},
        {"NCCL_ALGO", "Tree", V228, NT_TAKE_AS_MEANT, 1, 1, 31, B | R | G | S, false},
        {"NCCL_ALGO", "allreduce:tree,RING", V228, NT_TAKE_AS_MEANT, 3, ALL_ALGOS, A, 0, false},
        {"NCCL_ALGO", "^Tree", V228, NT_TAKE_AS_MEANT, 0x7e, 0x7e, 31, 0, false},
        {"NCCL_ALGO", "ring;allreduce:tree", V228, NT_TAKE_AS_MEANT, 1, 2, 31, 0, false},
        {"NCCL_ALGO", "allreduce:ring;allreduce:^ring", V228, NT_TAKE_AS_MEANT, 0x7d, ALL_ALGOS, A,
         0, false},
        {"NCCL_ALGO", "allreduce:ring:junk", V228, NT_TAKE_AS_MEANT, 2, ALL_ALGOS, A, 0, false},
        {"NCCL_ALGO", "Ring, Tree", V228, NT_TAKE_FAILS, 0, 0, 0, 0, false},
        {"NCCL_ALGO", "allreduce:ring;tree", V228, NT_TAKE_FAILS, 0, 0, 0, 0, false},
        {"NCCL_ALGO", ";ring", V228, NT_TAKE_FAILS, 0, 0, 0, 0, false},
        {"NCCL_ALGO", "alltoall:ring", V228, NT_TAKE_FAILS, 0, 0, 0, 0, false},
        {"NCCL_ALGO", "allreduce:", V228, NT_TAKE_FAILS, 0, 0, 0, 0, false},
        {"NCCL_ALGO", ":", V228, NT_TAKE_FAILS, 0, 0, 0, 0, false},
        {"NCCL_ALGO", "allreduce:tree", V223, NT_TAKE_OTHER, 0, 0, 31, 0, false},
        {"NCCL_ALGO", "Ring,Foo", V223, NT_TAKE_OTHER, 2, 2, 31, 0, false},
        {"NCCL_ALGO", "PAT", V218, NT_TAKE_OTHER, 0, 0, 31, 0, false},
        {"NCCL_PROTO", "LL", V228, NT_TAKE_AS_MEANT, 1, 1, 31, 0, false},
        {"NCCL_PROTO", "^LL", V228, NT_TAKE_AS_MEANT, 6, 6, 31, 0, true},
        {"NCCL_PROTO", "^LL128", V228, NT_TAKE_AS_MEANT, 5, 5, 31, 0, false},
        {"NCCL_PROTO", "^LL128", V223, NT_TAKE_AS_MEANT, 5, 5, 31, 0, false},
        {"NCCL_PROTO", "allreduce:ll128,simple", V228, NT_TAKE_AS_MEANT, 6, 7, A, 0, true},
        {"NCCL_PROTO", "simple,LL128", V223, NT_TAKE_AS_MEANT, 6, 6, 31, 0, true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_taken t;
        nt_tunable_take(nt_tunable_find(rows[i].name, rows[i].version), rows[i].value,
                        rows[i].version, &t);
        if (t.how != rows[i].how ||
            (t.how != NT_TAKE_FAILS &&
             (t.mask[NT_ALL_REDUCE] != rows[i].reduce || t.mask[NT_ALL_GATHER] != rows[i].gather ||
              t.named != rows[i].named || t.stranded != rows[i].stranded ||
              t.forces_ll128 != rows[i].ll128))) {
            fail_msg("%s='%s' under %u: how %d masks %x %x named %x stranded %x ll128 %d '%s'",
                     rows[i].name, rows[i].value, rows[i].version, (int)t.how,
                     t.mask[NT_ALL_REDUCE], t.mask[NT_ALL_GATHER], t.named, t.stranded,
                     t.forces_ll128, t.why);
        }
    }
}

/* ---- profile ---- */

static void test_for_profile(void **state)
{
    static const struct {
        const char *name, *value;
        unsigned version;
        bool table;
        const char *says; /* NULL: allowed */
    } rows[] = {
        {"NCCL_BUFFSIZE", "8388608", V228, true, NULL},
        {"NCCL_MIN_NCHANNELS", "48", V228, true, NULL},
        {"NCCL_P2P_LEVEL", "SYS", V228, true, NULL},
        {"NCCL_ALGO", "allreduce:tree,ring", V228, false, NULL},
        {"NCCL_PROTO", "allreduce:ll,simple", V228, false, NULL},
        {"NCCL_BUFFSIZE", "8M", V228, true, "drops 'M'"},
        {"NCCL_BUFFSIZE", "8388608; rm -rf /", V228, true, "no value for a profile"},
        {"NCCL_BUFFSIZE", "$(id)", V228, true, "no value for a profile"},
        {"NCCL_BUFFSIZE", "8388608\nLD_PRELOAD=x", V228, true, "no value for a profile"},
        {"NCCL_BUFSIZE", "1", V228, true, "did you mean 'NCCL_BUFFSIZE'"},
        {"LD_PRELOAD", "x", V228, true, "unknown variable"},
        {"NCCL_ALGO", "allreduce:tree,ring", V228, true, "mask the tuner table"},
        {"NCCL_THREAD_THRESHOLDS", "8 8 64 8 8 64", V228, true, "mask the tuner table"},
        {"NCCL_ALGO", "ring", V228, false, "names the functions"},
        {"NCCL_ALGO", "ring;allreduce:tree,ring", V228, false, "names the functions"},
        {"NCCL_ALGO", "allreduce:tree", V228, false, "no fallback"},
        {"NCCL_ALGO", "allreduce:ring", V223, false, "no per-function form"},
        {"NCCL_ALGO", "Ring", V223, false, "no per-function form"},
        {"NCCL_PROTO", "allreduce:^ll", V228, false, "hardware tests"},
        {"NCCL_TUNER_PLUGIN", "/tmp/x.so", V228, true, "never from a profile"},
        {"NCCL_CONF_FILE", "x", V228, true, "never from a profile"},
        {"NCCL_TOPO_FILE", "x", V228, true, "never from a profile"},
        {"NCCL_HOSTID", "x", V228, true, "never from a profile"},
        {"NCCL_COMM_ID", "x", V228, true, "never from a profile"},
        {"NCCL_NVLS_ENABLE", "0", V228, true, "site constraint"},
        {"NCCL_SOCKET_FAMILY", "AF_INET", V228, true, "never from a profile"},
        {"NCCL_GDR_FLUSH_DISABLE", "1", V228, true, "never from a profile"},
        {"NCCL_DEBUG", "INFO", V228, true, "only for diagnosis"},
        {"NCCL_TREE_THRESHOLD", "0", V228, true, "no supported release"},
        {"NCCL_PAT_ENABLE", "0", V218, true, "NCCL 2.18.6 does not read it"},
        {"NCCL_LL128_BUFFSIZE", "131072", V228, true, "outside"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_err e = {0};
        int rc =
            nt_tunable_for_profile(rows[i].name, rows[i].value, rows[i].version, rows[i].table, &e);
        if ((rc == 0) != (rows[i].says == NULL) ||
            (rc != 0 && strstr(e.msg, rows[i].says) == NULL)) {
            fail_msg("%s=%s: rc %d, '%s'", rows[i].name, rows[i].value, rc, e.msg);
        }
    }
}

static void test_conflicts(void **state)
{
    static const struct {
        struct nt_assign vars[3];
        const char *name, *other; /* NULL: no conflict */
        enum nt_conflict_kind kind;
    } rows[] = {
        {{{"NCCL_BUFFSIZE", "8388608"}, {"NCCL_PROTO", "LL"}},
         "NCCL_BUFFSIZE",
         "NCCL_PROTO",
         NT_X_INERT},
        {{{"NCCL_BUFFSIZE", "8388608"}, {"NCCL_PROTO", "allreduce:LL"}}, NULL, NULL, 0},
        {{{"NCCL_BUFFSIZE", "8388608"}, {"NCCL_PROTO", "^LL128"}}, NULL, NULL, 0},
        {{{"NCCL_LL128_NTHREADS", "320"}, {"NCCL_PROTO", "^LL128"}},
         "NCCL_LL128_NTHREADS",
         "NCCL_PROTO",
         NT_X_INERT},
        {{{"NCCL_P2P_LEVEL", "SYS"}, {"NCCL_P2P_DISABLE", "1"}},
         "NCCL_P2P_LEVEL",
         "NCCL_P2P_DISABLE",
         NT_X_INERT},
        {{{"NCCL_P2P_LEVEL", "SYS"}, {"NCCL_P2P_DISABLE", "0"}}, NULL, NULL, 0},
        {{{"NCCL_IB_QPS_PER_CONNECTION", "4"}, {"NCCL_NET", "Socket"}},
         "NCCL_IB_QPS_PER_CONNECTION",
         "NCCL_NET",
         NT_X_INERT},
        {{{"NCCL_NSOCKS_PERTHREAD", "4"}},
         "NCCL_NSOCKS_PERTHREAD",
         "NCCL_SOCKET_NTHREADS",
         NT_X_INERT},
        {{{"NCCL_NSOCKS_PERTHREAD", "4"}, {"NCCL_SOCKET_NTHREADS", "4"}}, NULL, NULL, 0},
        {{{"NCCL_NSOCKS_PERTHREAD", "8"}, {"NCCL_SOCKET_NTHREADS", "16"}},
         "NCCL_NSOCKS_PERTHREAD",
         "NCCL_SOCKET_NTHREADS",
         NT_X_UNSAFE},
        {{{"NCCL_MIN_NCHANNELS", "16"}, {"NCCL_MAX_NCHANNELS", "8"}},
         "NCCL_MIN_NCHANNELS",
         "NCCL_MAX_NCHANNELS",
         NT_X_MIN_MAX},
        {{{"NCCL_MIN_NCHANNELS", "8"}, {"NCCL_MAX_NCHANNELS", "8"}}, NULL, NULL, 0},
        {{{"NCCL_ALGO", "allreduce:ring"}, {"NCCLTUNE_TABLE", "/x"}},
         "NCCL_ALGO",
         "NCCLTUNE_TABLE",
         NT_X_UNSAFE},
        {{{"NCCL_ALGO", "allreduce:ring"}, {"NCCL_TUNER_PLUGIN", "none"}}, NULL, NULL, 0},
        {{{"NCCL_ALGO", "allreduce:nvls"}, {"NCCL_PROTO", "LL"}},
         "NCCL_ALGO",
         "NCCL_PROTO",
         NT_X_UNSAFE},
        {{{"NCCL_CHUNK_SIZE", "1048576"}}, "NCCL_CHUNK_SIZE", "NCCL_BUFFSIZE", NT_X_UNSAFE},
        {{{"NCCL_P2P_DISABLE", "1"}, {"NCCL_SHM_DISABLE", "1"}, {"NCCL_NET_DISABLE_INTRA", "1"}},
         "NCCL_NET_DISABLE_INTRA",
         "NCCL_SHM_DISABLE",
         NT_X_UNSAFE},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_conflict c[8];
        size_t vars = 0, n;
        while (vars < 3 && rows[i].vars[vars].name != NULL) {
            vars++;
        }
        n = nt_tunable_conflicts(rows[i].vars, vars, V228, c, COUNT(c));
        if (n != (rows[i].name != NULL) ||
            (n == 1 && (strcmp(c[0].name, rows[i].name) != 0 ||
                        strcmp(c[0].other, rows[i].other) != 0 || c[0].kind != rows[i].kind))) {
            fail_msg("row %zu (%s): %zu conflicts, first %s beside %s", i, rows[i].vars[0].name, n,
                     n > 0 ? c[0].name : "-", n > 0 ? c[0].other : "-");
        }
    }
}

static void test_memory(void **state)
{
    static const struct nt_memory_shape shape = {.channels = 16, .peers = 2};
    static const struct nt_assign bigger[] = {{"NCCL_BUFFSIZE", "8388608"}};
    static const struct nt_assign fewer[] = {{"NCCL_MAX_NCHANNELS", "8"}};
    static const struct nt_assign more[] = {{"NCCL_MIN_NCHANNELS", "32"}};
    static const struct nt_assign absurd[] = {{"NCCL_MIN_NCHANNELS", "9223372036854775807"},
                                              {"NCCL_BUFFSIZE", "-9223372036854775808"}};
    (void)state;
    assert_int_equal(nt_tunable_memory_bytes(NULL, 0, V228, &shape), 0);
    assert_int_equal(nt_tunable_memory_bytes(bigger, 1, V228, &shape), 2 * 2 * 16 * 4194304LL);
    assert_int_equal(nt_tunable_memory_bytes(absurd, 2, V228, &shape), -1000000000000000000);
    assert_int_equal(nt_tunable_memory_bytes(fewer, 1, V228, &shape),
                     -2 * 2 * 8 * (4194304LL + 524288 + 4915200));
    assert_int_equal(nt_tunable_memory_bytes(more, 1, V228, &shape),
                     2 * 2 * 16 * (4194304LL + 524288 + 4915200));
}

/* ---- search ---- */

static void test_knobs_are_legal(void **state)
{
    static const unsigned versions[] = {V218, V223, V228, V230, NT_NCCL_NEWEST};
    (void)state;
    for (int box = 0; box < NT_BOX_COUNT; box++) {
        for (size_t v = 0; v < COUNT(versions); v++) {
            const struct nt_knob *k[NT_KNOBS_MAX];
            size_t n = nt_knobs((enum nt_box)box, versions[v], k);
            assert_true(n >= 3 && n < NT_KNOBS_MAX);
            for (size_t i = 0; i < n; i++) {
                for (size_t j = 0; j <= nt_knob_values(k[i]); j++) {
                    struct nt_assign a[NT_KNOB_VARS];
                    char text[64];
                    struct nt_err e = {0};
                    size_t m = nt_knob_assign(k[i], j, a, text, sizeof(text));
                    assert_int_equal(m == 0, j == 0);
                    for (size_t x = 0; x < m; x++) {
                        if (nt_tunable_for_profile(a[x].name, a[x].value, versions[v], true, &e) !=
                            0) {
                            fail_msg("%s=%s: %s", a[x].name, a[x].value, e.msg);
                        }
                        assert_false(nt_tunable_is_site(a[x].name));
                    }
                }
                assert_true(i == 0 || k[i - 1]->order[box] <= k[i]->order[box]);
            }
        }
    }
}

static void test_knob_of_two(void **state)
{
    const struct nt_knob *k[NT_KNOBS_MAX];
    size_t n = nt_knobs(NT_BOX_SOCKETS, V228, k), seen = 0;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        struct nt_assign a[NT_KNOB_VARS];
        char text[64];
        if (strcmp(k[i]->vars[0], "NCCL_SOCKET_NTHREADS") == 0) {
            assert_int_equal(nt_knob_assign(k[i], 2, a, text, sizeof(text)), 2);
            assert_string_equal(a[0].name, "NCCL_SOCKET_NTHREADS");
            assert_string_equal(a[0].value, "2");
            assert_string_equal(a[1].name, "NCCL_NSOCKS_PERTHREAD");
            assert_string_equal(a[1].value, "2");
            seen++;
        }
    }
    assert_int_equal(seen, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_sorted_and_whole),
        cmocka_unit_test(test_numeric_defaults_are_inside_their_domains),
        cmocka_unit_test(test_safety_flags),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_site_constraints),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_take),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_for_profile),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_knobs_are_legal),
        cmocka_unit_test(test_knob_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
