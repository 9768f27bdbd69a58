#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "profiles/export/export.h"
#include "tests/json/sample.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct result {
    struct nt_buf out, notes;
    struct nt_err err;
    char hash[65];
    int rc;
};

static struct result run(struct nt_profile *p, const char *format,
                         const struct nt_export_options *options)
{
    struct result r = {.err = {0}};
    const struct nt_export_format *f = nt_export_find(format, NULL);
    struct nt_buf bytes;

    assert_non_null(f);
    assert_int_equal(nt_profile_finish(p, NULL), 0);
    nt_buf_init(&r.out, 1 << 20);
    nt_buf_init(&r.notes, 1 << 20);
    nt_buf_init(&bytes, 1 << 20);
    assert_int_equal(nt_profile_delivery(p, options->variables_only ? NT_STATIC : NT_TABLE, &bytes,
                                         r.hash, NULL),
                     0);
    nt_buf_done(&bytes);
    r.rc = nt_export(p, f, options, &r.out, &r.notes, &r.err);
    return r;
}

static void done(struct result *r, struct nt_profile *p)
{
    nt_buf_done(&r->out);
    nt_buf_done(&r->notes);
    nt_profile_free(p);
}

#define DEFAULTS ((struct nt_export_options){.allow_rig = -1})

/* Lines of a form that are no comments, joined by '|'; HASH stands for the hash. */
static void lines(const struct result *r, char *out, size_t size)
{
    const char *p = nt_buf_str(&r->out);
    size_t n = 0;
    while (*p != '\0') {
        size_t len = strcspn(p, "\n");
        if (*p != '#') {
            for (size_t i = 0; i < len && n + 6 < size;) {
                if (strncmp(p + i, r->hash, 64) == 0) {
                    n += (size_t)snprintf(out + n, size - n, "HASH");
                    i += 64;
                } else {
                    out[n++] = p[i++];
                }
            }
            out[n++] = '|';
        }
        p += len + (p[len] == '\n');
    }
    out[n] = '\0';
}

static void test_lines_of_each_form(void **state)
{
    static const struct {
        const char *format;
        bool variables_only;
        const char *lines;
    } rows[] = {
        {"env", false,
         "NCCL_BUFFSIZE=8388608|NCCL_MIN_NCHANNELS=16|"
         "NCCL_TUNER_PLUGIN=/usr/local/lib/nccltune/libnccl-tuner-nccltune.so|"
         "NCCLTUNE_PROFILE=HASH|NCCLTUNE_TABLE=/etc/nccltune/HASH.nctable|"},
        {"env", true, "NCCL_ALGO='allreduce:tree,ring;allgather:ring'|NCCL_BUFFSIZE=8388608|"},
        {"sh", true,
         "export NCCL_ALGO='allreduce:tree,ring;allgather:ring'|export NCCL_BUFFSIZE='8388608'|"},
        {"nccl-conf", true, "NCCL_ALGO=allreduce:tree,ring;allgather:ring|NCCL_BUFFSIZE=8388608|"},
        {"docker", true, "NCCL_ALGO=allreduce:tree,ring;allgather:ring|NCCL_BUFFSIZE=8388608|"},
        {"slurm", true,
         "export SLURM_EXPORT_ENV=ALL|export NCCL_ALGO='allreduce:tree,ring;allgather:ring'|"
         "export NCCL_BUFFSIZE='8388608'|"},
        {"systemd", true,
         "[Service]|Environment=\"NCCL_ALGO=allreduce:tree,ring;allgather:ring\"|"
         "Environment=\"NCCL_BUFFSIZE=8388608\"|"},
        {"tuner-csv", false,
         "allreduce,8192,32768,ring,ll,2,1,8,1,-1|"
         "allreduce,8388609,67108864,tree,simple,-1,1,8,1,-1|"},
        {"ray", true,
         "{|  \"env_vars\": {|    \"NCCL_ALGO\": \"allreduce:tree,ring;allgather:ring\",|"
         "    \"NCCL_BUFFSIZE\": \"8388608\"|  }|}|"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_export_options o = DEFAULTS;
        char text[1024];
        struct result r;
        o.variables_only = rows[i].variables_only;
        r = run(p, rows[i].format, &o);
        lines(&r, text, sizeof(text));
        if (r.rc != 0 || strcmp(text, rows[i].lines) != 0) {
            fail_msg("%s: rc %d %s\n%s", rows[i].format, r.rc, r.err.msg, text);
        }
        done(&r, p);
    }
}

static void test_header_says_what_it_is(void **state)
{
    static const char *const commented[] = {"env",   "sh",     "nccl-conf", "tuner-csv",
                                            "slurm", "docker", "systemd",   "k8s"};
    static const char *const says[] = {
        "0123456789ab", "8 ranks on 1 node", "NCCL 2.28.9",       "580.65",
        "Example GPU",  "rig nccl",          "NCCL_NVLS_ENABLE 0"};
    (void)state;
    for (size_t i = 0; i < COUNT(commented); i++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_export_options o = DEFAULTS;
        struct result r = run(p, commented[i], &o);
        const char *text = nt_buf_str(&r.out);
        assert_non_null(strstr(text, r.hash));
        for (size_t s = 0; s < COUNT(says); s++) {
            if (strstr(text, says[s]) == NULL) {
                fail_msg("%s does not say '%s'", commented[i], says[s]);
            }
        }
        assert_null(strstr(text, "NCCL_NVLS_ENABLE=")); /* the site's, not ours */
        done(&r, p);
    }
}

/* NCCL before 2.26 took a comment with '=' for an assignment; a backslash joins lines in some. */
static void test_comments_are_inert(void **state)
{
    (void)state;
    for (const struct nt_export_format *f = nt_export_formats; f->name != NULL; f++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_export_options o = DEFAULTS;
        struct result r;
        p->stack.gpu = "A=1 \\";
        *NT_PROFILE_ADD(p, &p->health) = "link x8 = narrow\\";
        r = run(p, f->name, &o);
        assert_int_equal(r.rc, 0);
        for (const char *c = nt_buf_str(&r.out); c != NULL && *c != '\0';) {
            size_t len = strcspn(c, "\n");
            if (*c == '#' &&
                (memchr(c, '=', len) != NULL || memchr(c, '\\', len) != NULL || len > 254)) {
                fail_msg("%s: %.*s", f->name, (int)len, c);
            }
            c += len + (c[len] == '\n');
        }
        done(&r, p);
    }
}

static void test_target_release(void **state)
{
    static const struct {
        const char *format;
        bool variables_only;
        unsigned nccl;
        const char *has, *lacks, *notes;
    } rows[] = {
        {"env", true, 22399, "NCCL_BUFFSIZE=8388608", "NCCL_ALGO", "no per-function form"},
        {"env", true, 22499, "NCCL_ALGO=", NULL, "written for 2.24: not confirmed"},
        {"env", false, 22099, "NCCL_BUFFSIZE=8388608", "NCCLTUNE_PROFILE", "no tuner interface"},
        {"env", false, 22199, "NCCLTUNE_PROFILE=", NULL, "not confirmed"},
        {"tuner-csv", false, 0, "# needs NCCL_BUFFSIZE 8388608, which this form cannot set",
         "NCCL_BUFFSIZE=", "NCCL_BUFFSIZE: this form carries"},
        {"tuner-csv", false, 0, "allreduce,", NULL, "on one channel"},
        {"tuner-csv", false, 22699, "allreduce,", NULL, "reads CSV from NCCL 2.27.5"},
        {"ray", false, 0, "NCCLTUNE_PROFILE", NULL, "no comments"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_export_options o = DEFAULTS;
        struct result r;
        o.variables_only = rows[i].variables_only;
        o.nccl = rows[i].nccl;
        r = run(p, rows[i].format, &o);
        if (r.rc != 0 || strstr(nt_buf_str(&r.out), rows[i].has) == NULL ||
            (rows[i].lacks != NULL && strstr(nt_buf_str(&r.out), rows[i].lacks) != NULL) ||
            strstr(nt_buf_str(&r.notes), rows[i].notes) == NULL) {
            fail_msg("%s for %u: rc %d %s\n%s\n%s", rows[i].format, rows[i].nccl, r.rc, r.err.msg,
                     nt_buf_str(&r.out), nt_buf_str(&r.notes));
        }
        done(&r, p);
    }
}

/* NVIDIA's plugin has no column for a chunk: the row is left out, and that is said. All that names
 * the row names its chunk. */
static void test_row_with_chunk(void **state)
{
    struct nt_profile *p = nt_sample_profile();
    struct nt_export_options o = DEFAULTS;
    struct nt_profile_choice choice;
    struct nt_err err;
    struct nt_buf without, with;
    char text[1024];
    struct result r;
    (void)state;

    p->product[NT_TABLE].rows.v[0].chunk_bytes = 262144; /* that of the large sizes */
    r = run(p, "tuner-csv", &o);
    lines(&r, text, sizeof(text));
    assert_int_equal(r.rc, 0);
    assert_string_equal(text, "allreduce,8192,32768,ring,ll,2,1,8,1,-1|");
    assert_non_null(strstr(nt_buf_str(&r.notes), "row 1: asks for a chunk size"));
    assert_int_equal(nt_profile_choose(p, NT_TABLE, NT_ALL_REDUCE, 64 << 20, -1, &choice, &err), 0);
    assert_string_equal(choice.setting, "tree/simple asked-chunk=256K");
    nt_buf_init(&without, 4096);
    nt_buf_init(&with, 4096);
    nt_profile_reproduce(p, NT_TABLE, choice.evidence, NULL, NULL, &without, &with);
    assert_null(strstr(nt_buf_str(&without), "chunk"));
    assert_non_null(strstr(nt_buf_str(&with), "# without the row's chunk of 262144 bytes"));
    nt_buf_done(&with);
    nt_buf_init(&with, 4096);
    nt_profile_reproduce(p, NT_TABLE, choice.evidence, "/opt/t.so", "/opt/x.nctable", &without,
                         &with);
    assert_null(strstr(nt_buf_str(&with), "chunk"));
    nt_buf_done(&without);
    nt_buf_done(&with);
    nt_buf_done(&r.out);
    nt_buf_done(&r.notes);
    r = run(p, "env", &o);
    assert_non_null(strstr(nt_buf_str(&r.out), "tree/simple asked-chunk:256K"));
    assert_non_null(strstr(nt_buf_str(&r.notes), "row 1: NCCL 2.28.9 does not ask"));
    nt_buf_done(&r.out);
    nt_buf_done(&r.notes);
    o.nccl = 23003;
    r = run(p, "env", &o);
    assert_null(strstr(nt_buf_str(&r.notes), "row 1:"));
    done(&r, p);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *format, *plugin, *dir, *says;
        int rig, allow, rc;
        bool variables_only, no_table;
    } rows[] = {
        {"env", NULL, NULL, "mps-sockets", NT_RIG_MPS_SOCKETS, -1, -NT_E_NO, false, false},
        {"env", NULL, NULL, "recording", NT_RIG_RECORDING, -1, -NT_E_NO, true, false},
        {"env", NULL, NULL, "recording", NT_RIG_RECORDING, NT_RIG_MODEL, -NT_E_NO, true, false},
        {"env", NULL, NULL, NULL, NT_RIG_RECORDING, NT_RIG_RECORDING, 0, true, false},
        {"tuner-csv", NULL, NULL, "only the rows", NT_RIG_NCCL, -1, -NT_E_INVAL, true, false},
        {"env", NULL, NULL, "no table product", NT_RIG_NCCL, -1, -NT_E_INVAL, false, true},
        {"env", "plugin.so", NULL, "absolute", NT_RIG_NCCL, -1, -NT_E_INVAL, false, false},
        {"env", "/a b.so", NULL, "absolute", NT_RIG_NCCL, -1, -NT_E_INVAL, false, false},
        {"env", NULL, "/x;rm -rf", "absolute", NT_RIG_NCCL, -1, -NT_E_INVAL, false, false},
        {"env", NULL, "/x\ny", "absolute", NT_RIG_NCCL, -1, -NT_E_INVAL, false, false},
    };
    struct nt_err e = {0};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_export_options o = {.allow_rig = rows[i].allow,
                                      .variables_only = rows[i].variables_only,
                                      .plugin = rows[i].plugin,
                                      .table_dir = rows[i].dir};
        struct result r;
        p->rig = rows[i].rig;
        p->product[NT_TABLE].present = !rows[i].no_table;
        r = run(p, rows[i].format, &o);
        if (r.rc != rows[i].rc ||
            (rows[i].says != NULL && strstr(r.err.msg, rows[i].says) == NULL) ||
            (r.rc != 0 && r.out.len > 0)) {
            fail_msg("row %zu: rc %d '%s'", i, r.rc, r.err.msg);
        }
        if (r.rc == 0) {
            assert_non_null(strstr(nt_buf_str(&r.out), "functional rig"));
        }
        done(&r, p);
    }
    assert_null(nt_export_find("kubernets", &e));
    assert_null(nt_export_find("nccl_conf", &e));
    assert_non_null(strstr(e.msg, "did you mean 'nccl-conf'"));
}

static void test_empty_profile(void **state)
{
    struct nt_profile *p = nt_sample_empty();
    struct nt_export_options o = DEFAULTS;
    struct result r = run(p, "env", &o);
    char text[256];
    (void)state;
    assert_int_equal(r.rc, 0);
    lines(&r, text, sizeof(text));
    assert_string_equal(text, "");
    assert_non_null(strstr(nt_buf_str(&r.out), "defaults are the best"));
    done(&r, p);
}

/* A row of the profile's backends is for the plugin, where the engine can do what was measured. */
static void test_rows_for_an_engine(void **state)
{
    static const struct {
        const char *engine;
        int backend, algo, proto;
        const char *row, *says; /* row NULL: it is none of the table's */
    } rows[] = {
        {"vllm", NT_BE_TORCH_SYMM_MEM, -1, -1,
         "all_reduce,graph,1024,16384,torch-symm-mem,bf16/out", "VLLM_ALLREDUCE_USE_SYMM_MEM=1"},
        {"vllm", NT_BE_FLASHINFER, -1, -1, "all_reduce,graph,1024,16384,flashinfer,bf16/out",
         "VLLM_ALLREDUCE_USE_FLASHINFER=1"},
        {"sglang", NT_BE_MSCCLPP, -1, -1, "all_reduce,graph,1024,16384,mscclpp,bf16/out",
         "--enable-mscclpp"},
        {"sglang", NT_BE_PYNCCL, -1, -1, "all_reduce,graph,1024,16384,pynccl,bf16/out", "start"},
        {"vllm", NT_BE_TORCH_SYMM_MEM, NT_ONE_SHOT, NT_PULL, NULL,
         "graph torch-symm-mem one_shot, 1K to 16K: vllm's class chooses its algorithm by itself"},
        {"vllm", NT_BE_MSCCLPP, -1, -1, NULL, "vllm has no such backend"},
        {"sglang", NT_BE_IPC, NT_ONE_SHOT, NT_PUSH, NULL, "sglang has no such backend"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_export_options o = DEFAULTS;
        struct result r;
        p->backends.rows.v[0].backend = rows[i].backend;
        p->backends.rows.v[0].algo = rows[i].algo;
        p->backends.rows.v[0].proto = rows[i].proto;
        r = run(p, rows[i].engine, &o);
        if (r.rc != 0 || strstr(nt_buf_str(&r.notes), rows[i].says) == NULL ||
            (rows[i].row != NULL ? strstr(nt_buf_str(&r.out), rows[i].row) == NULL
                                 : strstr(nt_buf_str(&r.out), "all_reduce,graph") != NULL) ||
            (strstr(nt_buf_str(&r.out), "NCCLTUNE_BACKENDS_TABLE") != NULL) !=
                (rows[i].row != NULL) ||
            (rows[i].row == NULL && strstr(nt_buf_str(&r.out), "SYMM_MEM") != NULL)) {
            fail_msg("row %zu: rc %d\n%s\n%s", i, r.rc, nt_buf_str(&r.out), nt_buf_str(&r.notes));
        }
        done(&r, p);
    }
}

/* What was asked for and not to be had was not measured: the engine keeps its own kernels, and no
 * row says that NCCL is better than these. What was measured and lost is kept out. */
static void test_engines_keep_what_nobody_measured(void **state)
{
    static const struct {
        const char *why; /* noted of the custom all-reduce; NULL: nothing */
        bool kept_out;
    } rows[] = {
        {NULL, true},
        {"custom-allreduce: vllm: ModuleNotFoundError: No module named 'vllm'", false},
        {"unavailable", false},
        {"wrong: 3 elements differ", true},
        {"from 32M to 64M: larger than its buffer", true},
    };
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(rows); i++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_export_options o = DEFAULTS;
        const char *why = rows[i / 2].why, *engine = i % 2 == 0 ? "sglang" : "vllm", *form, *said;
        bool out;
        struct result r;
        *(const char **)NT_PROFILE_ADD(p, &p->backends.asked) = "custom-allreduce";
        p->backends.classes.v[0].verdict = NT_VD_DEFAULT;
        p->backends.rows.n = 0;
        if (why != NULL) {
            *(struct nt_noted *)NT_PROFILE_ADD(p, &p->backends.notes) =
                (struct nt_noted){.setting = "custom-allreduce", .why = why};
        }
        r = run(p, engine, &o);
        form = nt_buf_str(&r.out), said = nt_buf_str(&r.notes);
        out = strstr(form, "--disable-custom-all-reduce") != NULL;
        if (r.rc != 0 || out != rows[i / 2].kept_out || out != (strstr(form, ",nccl,") != NULL) ||
            out != (strstr(said, "custom all-reduce was not raced") == NULL) ||
            out != (strstr(said, "custom-allreduce, in any case: not to be had") == NULL)) {
            fail_msg("%s, %s: rc %d\n%s\n%s", engine, why, r.rc, form, said);
        }
        done(&r, p);
    }
}

/* What a check took away, or could not be proved, may still be the better of the engine's two. */
static void test_what_could_not_be_told_is_not_kept_out(void **state)
{
    static const int verdicts[] = {NT_VD_DEFAULT, NT_VD_GUARD, NT_VD_UNDECIDED, NT_VD_NOISY};
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(verdicts); i++) {
        struct nt_profile *p = nt_sample_profile();
        struct nt_export_options o = DEFAULTS;
        bool told = verdicts[i / 2] == NT_VD_DEFAULT;
        struct result r;
        *(const char **)NT_PROFILE_ADD(p, &p->backends.asked) = "custom-allreduce";
        p->backends.classes.v[0].verdict = verdicts[i / 2];
        p->backends.rows.n = 0;
        r = run(p, i % 2 == 0 ? "sglang" : "vllm", &o);
        if (r.rc != 0 ||
            told != (strstr(nt_buf_str(&r.out), "--disable-custom-all-reduce") != NULL) ||
            told != (strstr(nt_buf_str(&r.notes), "nor is it known to be slower") == NULL)) {
            fail_msg("%zu: rc %d\n%s\n%s", i, r.rc, nt_buf_str(&r.out), nt_buf_str(&r.notes));
        }
        done(&r, p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_of_each_form),
        cmocka_unit_test(test_header_says_what_it_is),
        cmocka_unit_test(test_comments_are_inert),
        cmocka_unit_test(test_target_release),
        cmocka_unit_test(test_row_with_chunk),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_empty_profile),
        cmocka_unit_test(test_rows_for_an_engine),
        cmocka_unit_test(test_engines_keep_what_nobody_measured),
        cmocka_unit_test(test_what_could_not_be_told_is_not_kept_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
