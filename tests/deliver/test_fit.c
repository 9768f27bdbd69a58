/* Whether a profile fits, and what becomes of its variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/json/sample.h"
#include "tests/topology/support.h"
#include "tuner/deliver/apply.h"
#include "tuner/deliver/fit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
/* The sample profile's group of GPUs, and another. */
#define GPUS  "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define OTHER "00000000000000000000000000000000000000000000000000000000000000ff"

struct fit_case {
    const char *name;
    const char *gpus; /* hash of the machine's GPUs; NULL: not known; "": no machine */
    int finding;      /* enum nt_finding_kind of an unhealthy one, -1 none */
    const char *had;  /* a finding that the profile was made with */
    const char *driver, *cuda, *nccl[2];
    const char *made_with; /* driver of the profile */
    int rig, allow_rig;
    const char *despite;
    const char *env;
    bool fits;
    enum nt_fit_kind kind;
    const char *says;
};

#define OK .finding = -1, .allow_rig = -1, .driver = "580.65.06", .nccl = {"2.28.9"}
static const struct fit_case cases[] = {
    {"as it was", GPUS, OK, .fits = true, .kind = NT_FIT_NOTE, .says = "compared over gpus"},
    {"another machine", OTHER, OK, .kind = NT_FIT_IDENTITY, .says = "different in gpus"},
    {"another machine is never passed over", OTHER, OK, .despite = "unknown",
     .kind = NT_FIT_IDENTITY, .says = "another machine"},
    {"nothing to compare", NULL, OK, .kind = NT_FIT_UNKNOWN, .says = "no facts"},
    {"nothing to compare, by name", NULL, OK, .despite = "unknown", .fits = true,
     .kind = NT_FIT_UNKNOWN, .says = "no facts"},
    {"no machine", "", OK, .kind = NT_FIT_UNKNOWN, .says = "cannot be looked at"},
    {"unhealthy", GPUS, .finding = NT_F_NARROW_LINK, .allow_rig = -1, .nccl = {"2.28.9"},
     .kind = NT_FIT_HEALTH, .says = "unhealthy: sick"},
    {"unhealthy, by name", GPUS, .finding = NT_F_NARROW_LINK, .allow_rig = -1, .nccl = {"2.28.9"},
     .despite = "narrow_link", .fits = true, .kind = NT_FIT_HEALTH, .says = "unhealthy"},
    {"unhealthy, by another name", GPUS, .finding = NT_F_NARROW_LINK, .allow_rig = -1,
     .nccl = {"2.28.9"}, .despite = "acs_on", .kind = NT_FIT_HEALTH, .says = "unhealthy"},
    {"made while it was so", GPUS, .finding = NT_F_NARROW_LINK, .allow_rig = -1, .nccl = {"2.28.9"},
     .had = "sick", .fits = true, .kind = NT_FIT_NOTE, .says = "compared"},
    {"another driver", GPUS, .finding = -1, .allow_rig = -1, .driver = "575.10", .nccl = {"2.28.9"},
     .kind = NT_FIT_STACK, .says = "made with 580.65, here is 575.10"},
    {"another driver, by name", GPUS, .finding = -1, .allow_rig = -1, .driver = "575.10",
     .nccl = {"2.28.9"}, .despite = "stack", .fits = true, .kind = NT_FIT_STACK, .says = "575.10"},
    {"no prefix by digits alone", GPUS, .finding = -1, .allow_rig = -1, .driver = "580.650",
     .nccl = {"2.28.9"}, .kind = NT_FIT_STACK, .says = "580.650"},
    {"the driver as CUDA names it", GPUS, OK, .cuda = "13.0", .made_with = "13.0", .fits = true,
     .kind = NT_FIT_NOTE, .says = "compared"},
    {"another one as CUDA names it", GPUS, OK, .cuda = "12.8", .made_with = "13.0",
     .kind = NT_FIT_STACK, .says = "here is 12.8"},
    {"another NCCL", GPUS, .finding = -1, .allow_rig = -1, .driver = "580.65", .nccl = {"2.27.3"},
     .kind = NT_FIT_STACK, .says = "is 2.27.3"},
    {"two copies, one of them right", GPUS, .finding = -1, .allow_rig = -1, .driver = "580.65",
     .nccl = {"2.27.3", "2.28.9"}, .fits = true, .kind = NT_FIT_NOTE, .says = "may be loaded"},
    {"no copy to be seen", GPUS, .finding = -1, .allow_rig = -1, .driver = "580.65", .fits = true,
     .kind = NT_FIT_NOTE, .says = "not known before"},
    {"another rig", GPUS, OK, .rig = NT_RIG_MPS_SOCKETS, .kind = NT_FIT_RIG, .says = "mps-sockets"},
    {"another rig, allowed", GPUS, .finding = -1, .driver = "580.65", .nccl = {"2.28.9"},
     .rig = NT_RIG_MPS_SOCKETS, .allow_rig = NT_RIG_MPS_SOCKETS, .fits = true, .kind = NT_FIT_RIG,
     .says = "mps-sockets"},
    {"another rig than allowed", GPUS, .finding = -1, .driver = "580.65", .nccl = {"2.28.9"},
     .rig = NT_RIG_MPS_SOCKETS, .allow_rig = NT_RIG_RECORDING, .kind = NT_FIT_RIG, .says = "rig"},
    {"site constraint not set", GPUS, OK, .fits = true, .kind = NT_FIT_SITE,
     .says = "NCCL_NVLS_ENABLE=0, which is not set here"},
    {"site constraint set otherwise", GPUS, OK, .env = "NCCL_NVLS_ENABLE=1", .fits = true,
     .kind = NT_FIT_SITE, .says = "which is 1 here"},
};

static void run_case(const struct fit_case *c)
{
    static struct nt_fit fit;
    struct nt_profile *p = nt_sample_profile();
    struct nt_finding finding = {.unhealthy = true, .text = "sick"};
    struct nt_topology t = {.nfindings = 0, .findings = &finding};
    struct nt_machine m = {.topology = &t};
    struct nt_strs despite = {.n = 0};
    const char *env[] = {c->env, NULL};
    struct nt_fit_opts o = {.allow_rig = c->allow_rig, .despite = &despite, .env = env};
    bool said = false;

    assert_non_null(p);
    p->rig = c->rig;
    p->stack.driver = c->made_with != NULL ? c->made_with : p->stack.driver;
    if (c->had != NULL) {
        *NT_PROFILE_ADD(p, &p->health) = c->had;
    }
    if (c->gpus != NULL && c->gpus[0] == '\0') {
        m.topology = NULL;
    } else if (c->gpus != NULL) {
        t.identity.known = 1U << NT_G_GPUS;
        memcpy(t.identity.group[NT_G_GPUS], c->gpus, NT_HEX_LEN + 1);
    }
    if (c->finding >= 0) {
        finding.kind = (enum nt_finding_kind)c->finding;
        t.nfindings = 1;
    }
    (void)snprintf(m.driver, sizeof(m.driver), "%s", c->driver != NULL ? c->driver : "");
    (void)snprintf(m.cuda, sizeof(m.cuda), "%s", c->cuda != NULL ? c->cuda : "");
    for (size_t i = 0; i < 2 && c->nccl[i] != NULL; i++) {
        (void)snprintf(m.nccl.v[i].version, sizeof(m.nccl.v[i].version), "%s", c->nccl[i]);
        m.nccl.n++;
    }
    if (c->despite != NULL) {
        despite.v[despite.n++] = c->despite;
    }
    nt_fit(p, &m, &o, &fit);
    for (size_t i = 0; i < fit.n; i++) {
        said = said || (fit.v[i].kind == c->kind && strstr(fit.v[i].text, c->says) != NULL);
    }
    if (fit.fits != c->fits || !said) {
        fail_msg("%s: fits %d, first: %s", c->name, fit.fits, fit.v[0].text);
    }
    nt_profile_free(p);
}

static void test_fit(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        run_case(&cases[i]);
    }
}

/* A profile for some of the machine's GPUs: which ones the command uses matters where they differ.
 */
static void test_placement(void **state)
{
    static const struct {
        const char *machine;
        uint16_t made_on[2];
        const char *env; /* CUDA_VISIBLE_DEVICES */
        const char *despite;
        bool fits;
        const char *says;
    } rows[] = {
        {"nvswitch8.xml", {4, 5}, NULL, NULL, true, NULL}, /* all pairs are alike */
        {"nvswitch8.xml", {4, 5}, "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2", NULL, true, NULL},
        {"pcie4.xml", {2, 3}, NULL, NULL, true, NULL}, /* 0 and 1 are below one switch, too */
        {"pcie4.xml", {2, 3}, "CUDA_VISIBLE_DEVICES=0,1", NULL, true, NULL},
        {"pcie4.xml", {2, 3}, "CUDA_VISIBLE_DEVICES=0,2", NULL, false, "are of class"},
        {"pcie4.xml", {0, 2}, NULL, NULL, false, "are of class"},
        {"pcie4.xml", {0, 2}, "CUDA_VISIBLE_DEVICES=1,3", NULL, true, NULL},
        {"pcie4.xml", {0, 2}, "CUDA_VISIBLE_DEVICES=0,1,2,3", NULL, false, "cannot be told"},
        {"pcie4.xml", {0, 2}, "CUDA_VISIBLE_DEVICES=0,1,2,3", "placement", true, "cannot be told"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        static struct nt_fit fit;
        struct nt_profile *p = nt_sample_profile();
        struct nt_topology *t = read_data(rows[i].machine);
        struct nt_machine m = {.topology = t};
        struct nt_strs despite = {.n = 1, .v = {rows[i].despite}};
        const char *env[] = {rows[i].env, NULL};
        struct nt_fit_opts o = {.allow_rig = -1, .env = env};
        struct nt_placement made;
        const struct nt_fit_item *said = NULL;

        o.despite = rows[i].despite != NULL ? &despite : NULL;
        assert_int_equal(nt_placement_of(t, rows[i].made_on, 2, &made, NULL), 0);
        p->placement = made.key;
        p->ranks = 2;
        p->nodes = 1;
        p->identity.groups.n = 1; /* that of the machine: held against itself */
        p->identity.groups.v[0] =
            (struct nt_assign){nt_group_names[NT_G_PATHS], t->identity.group[NT_G_PATHS]};
        nt_fit(p, &m, &o, &fit);
        for (size_t k = 0; k < fit.n; k++) {
            said = fit.v[k].kind == NT_FIT_PLACEMENT ? &fit.v[k] : said;
        }
        if (fit.fits != rows[i].fits || (said != NULL) != (rows[i].says != NULL) ||
            (said != NULL && strstr(said->text, rows[i].says) == NULL)) {
            fail_msg("row %zu: fits %d: %s", i, fit.fits, said != NULL ? said->text : "-");
        }
        nt_topology_free(t);
        nt_profile_free(p);
    }
}

/* A profile of several nodes is held against one of them, and says which communicators it serves.
 */
static void test_nodes(void **state)
{
    static const struct {
        unsigned nodes;
        const char *says;
    } rows[] = {{1, NULL}, {2, "2 nodes with 4 ranks each"}};
    (void)state;

    for (size_t i = 0; i < COUNT(rows); i++) {
        static struct nt_fit fit;
        struct nt_profile *p = nt_sample_profile();
        struct nt_machine none = {.topology = NULL};
        const struct nt_fit_item *said = NULL;

        p->rig = NT_RIG_NCCL;
        p->ranks = 8;
        p->nodes = rows[i].nodes;
        nt_fit(p, &none, &(struct nt_fit_opts){.allow_rig = -1}, &fit);
        for (size_t k = 0; k < fit.n; k++) {
            said = strstr(fit.v[k].text, "ranks each") != NULL ? &fit.v[k] : said;
        }
        assert_int_equal(said != NULL, rows[i].says != NULL);
        assert_true(said == NULL || strstr(said->text, rows[i].says) != NULL);
        assert_true(said == NULL || !said->stops);
        nt_profile_free(p);
    }
}

/* What is named makes it fit; nothing is named where nothing would. */
static void test_forced_by(void **state)
{
    static struct nt_fit fit;
    struct nt_profile *p = nt_sample_profile();
    struct nt_finding finding = {.unhealthy = true, .text = "sick", .kind = NT_F_NARROW_LINK};
    struct nt_topology t = {.nfindings = 1, .findings = &finding};
    struct nt_machine none = {.topology = NULL}, other = {.topology = &t};
    struct nt_fit_opts o = {.allow_rig = -1};
    char text[128] = "?";
    (void)state;

    assert_non_null(p);
    p->rig = NT_RIG_RECORDING;
    nt_fit(p, &none, &o, &fit);
    assert_true(nt_fit_forced_by(p, &fit, text, sizeof(text)));
    assert_string_equal(text, "--allow-rig recording --despite unknown");
    assert_false(nt_fit_forced_by(p, &fit, text, 20)); /* half of it would not help */
    t.identity.known = 1U << NT_G_GPUS;
    memcpy(t.identity.group[NT_G_GPUS], OTHER, NT_HEX_LEN + 1);
    nt_fit(p, &other, &o, &fit);
    assert_false(nt_fit_forced_by(p, &fit, text, sizeof(text)));
    assert_string_equal(text, "");
    nt_profile_free(p);
}

/* Every name of --despite is one that some finding or kind has. */
static void test_names(void **state)
{
    (void)state;
    for (size_t i = 3; nt_fit_names[i] != NULL; i++) {
        bool found = false;
        for (int k = 0; k < NT_FINDING_COUNT; k++) {
            found = found || strcmp(nt_finding_names[k], nt_fit_names[i]) == 0;
        }
        if (!found) {
            fail_msg("%s is no finding", nt_fit_names[i]);
        }
    }
}

/* ---- apply ---- */

struct apply_case {
    const char *name;
    const char *env[4];
    bool variables_only, no_tuner;
    unsigned nccl;
    int rc;
    size_t set, kept, same;
    const char *says; /* in the notes or the error */
};
static const struct apply_case applies[] = {
    {"nothing is set yet", {NULL}, .set = 7},
    {"the user's value stays",
     {"NCCL_BUFFSIZE=4"},
     .set = 6,
     .kept = 1,
     .says = "is yours and stays"},
    {"the same value", {"NCCL_BUFFSIZE=8388608"}, .set = 6, .same = 1},
    {"set to nothing is set",
     {"NCCL_BUFFSIZE="},
     .set = 6,
     .kept = 1,
     .says = "is yours and stays"},
    {"what masks the table is said",
     {"NCCL_ALGO=Ring"},
     .set = 7,
     .says = "the table cannot choose"},
    {"a foreign tuner", {"NCCL_TUNER_PLUGIN=aws"}, .rc = -NT_E_NO, .says = "never replaced"},
    {"a foreign tuner beside variables",
     {"NCCL_TUNER_PLUGIN=aws"},
     .variables_only = true,
     .set = 6},
    {"another profile", {"NCCLTUNE_PROFILE=abc"}, .rc = -NT_E_NO, .says = "another profile"},
    {"the user's own job", {"NCCLTUNE_JOB=mine"}, .set = 6, .kept = 1},
    {"no tuner plugin", {NULL}, .no_tuner = true, .rc = -NT_E_NO, .says = "not installed"},
    {"an NCCL without tuner interface", {NULL}, .nccl = 22005, .rc = -NT_E_NO, .says = "--static"},
    {"an NCCL without env plugin", {NULL}, .nccl = 22304, .set = 6},
    {"only variables", {NULL}, .variables_only = true, .set = 6},
    {"only variables for an old NCCL",
     {NULL},
     .variables_only = true,
     .nccl = 22304,
     .set = 4,
     .says = "left out"},
};

static void test_apply(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(applies); i++) {
        const struct apply_case *c = &applies[i];
        static struct nt_apply a;
        struct nt_profile *p = nt_sample_profile();
        struct nt_apply_opts o = {.product = c->variables_only ? NT_STATIC : NT_TABLE,
                                  .nccl = c->nccl,
                                  .hash = "h",
                                  .table = "/t",
                                  .tuner = c->no_tuner ? NULL : "/tuner",
                                  .env_plugin = "/env",
                                  .job = "job"};
        struct nt_err err = {.code = NT_OK};
        size_t n[NT_APPLY_COUNT] = {0};
        struct nt_buf notes;
        int rc;

        nt_buf_init(&notes, 4096);
        rc = nt_apply(p, &o, c->env, &a, &notes, &err);
        for (size_t k = 0; rc == 0 && k < a.n; k++) {
            n[a.v[k].how]++;
        }
        if (rc != c->rc || n[NT_APPLY_SET] != c->set || n[NT_APPLY_KEPT] != c->kept ||
            n[NT_APPLY_SAME] != c->same) {
            fail_msg("%s: rc %d set %zu kept %zu same %zu: %s", c->name, rc, n[0], n[2], n[1],
                     err.msg);
        }
        if (c->says != NULL && strstr(nt_buf_str(&notes), c->says) == NULL &&
            strstr(err.msg, c->says) == NULL) {
            fail_msg("%s: '%s' '%s'", c->name, nt_buf_str(&notes), err.msg);
        }
        nt_buf_done(&notes);
        nt_profile_free(p);
    }
}

/* The defaults win: no process is told anything. */
static void test_apply_empty(void **state)
{
    static struct nt_apply a;
    struct nt_profile *p = nt_sample_empty();
    struct nt_buf notes;
    (void)state;
    nt_buf_init(&notes, 4096);
    assert_int_equal(
        nt_apply(p,
                 &(struct nt_apply_opts){
                     .product = NT_TABLE, .hash = "h", .table = "/t", .env_plugin = "/e"},
                 NULL, &a, &notes, NULL),
        0);
    assert_int_equal(a.n, 0);
    nt_buf_done(&notes);
    nt_profile_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fit),         cmocka_unit_test(test_forced_by),
        cmocka_unit_test(test_placement),   cmocka_unit_test(test_names),
        cmocka_unit_test(test_nodes),       cmocka_unit_test(test_apply),
        cmocka_unit_test(test_apply_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
