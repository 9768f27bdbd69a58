#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/format/bytes.h"
#include "tests/deliver/make.h"

#define GPU   "1-2 rw-s 0 00:06 421 /dev/nvidia0\n"
#define NCCL  "1-2 r-xp 0 08:01 7001 /opt/nccl/lib/libnccl.so.2.28.9\n"
#define NCCL2 "1-2 r-xp 0 08:01 7002 /venv/nvidia/nccl/lib/libnccl.so.2\n"
#define TUNER "1-2 r-xp 0 08:01 7003 /lib/nccltune/libnccl-tuner-nccltune.so\n"
#define ENV   "1-2 r-xp 0 08:01 7004 /lib/nccltune/libnccl-env-nccltune.so\n"
#define OTHER "1-2 r-xp 0 08:01 7005 /opt/aws/libnccl-tuner-ofi.so\n"
#define TOLD                                                                                       \
    "NCCLTUNE_PROFILE=" HASH_A "|NCCLTUNE_TABLE=/t|NCCL_TUNER_PLUGIN=/lib/nccltune/"               \
    "x|NCCL_ENV_PLUGIN=/lib/libnccl-env-nccltune.so"
#define PARTS  (1U << NT_RECEIPT_TUNER | 1U << NT_RECEIPT_ENV)
#define PYTHON "/usr/bin/python3"

enum { NONE = UINT32_MAX };
struct judged {
    const char *name;
    const char *environment, *cmdline, *maps; /* of the process */
    const char *parent, *parent_name, *grandparent;
    const char *active; /* hash */
    bool active_env;
    uint32_t parts, nrows, nccl;     /* parts 0: no receipt */
    const char *kept;                /* a name that NCCL was told the user's value of */
    const char *user;                /* … of which the profile has none */
    struct nt_receipt_change change; /* what the program did to a variable */
    uint32_t flags;
    unsigned comms;            /* made after the first one */
    uint64_t applied, refused; /* calls of the first row, and where NCCL had not its choice */
    uint32_t serving;          /* rows that serve the communicators; 0: all; NONE */
    enum nt_doctor_loader loader;
    enum nt_doctor_finding verdict;
    bool counts;
    const char *says; /* in some reason; NULL: nothing */
};

static const struct judged cases[] = {
    {.name = "all of it",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_APPLIED,
     .counts = true},
    {.name = "an old NCCL asks no env plugin",
     .environment = TOLD,
     .maps = GPU NCCL TUNER,
     .parts = 1U << NT_RECEIPT_TUNER,
     .nrows = 3,
     .nccl = 22304,
     .verdict = NT_DR_APPLIED,
     .counts = true},
    {.name = "a receipt without the plugin in the process",
     .environment = TOLD,
     .maps = GPU NCCL,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_CLAIMED,
     .counts = true,
     .says = "not in the process"},
    {.name = "a receipt and no right to see the maps",
     .environment = TOLD,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_CLAIMED,
     .counts = true,
     .says = "may not be read"},
    {.name = "a program that sets a variable of the profile itself",
     .environment = TOLD,
     .cmdline = "python3|-m|sglang.launch_server",
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .kept = "NCCL_CUMEM_ENABLE",
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "NCCL_CUMEM_ENABLE: not the profile's value: set by process 40 (SGLang) itself"},
    {.name = "its parent set it, after its own start",
     .environment = TOLD "|NCCL_NVLS_ENABLE=0",
     .maps = GPU NCCL TUNER ENV,
     .parent = TOLD,
     .parent_name = "python3",
     .grandparent = TOLD,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .kept = "NCCL_NVLS_ENABLE",
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "0 was set by process 30 (python3) for its children"},
    {.name = "it came from the shell",
     .environment = TOLD "|NCCL_NVLS_ENABLE=0",
     .maps = GPU NCCL TUNER ENV,
     .parent = "NCCL_NVLS_ENABLE=0",
     .parent_name = "bash",
     .grandparent = "NCCL_NVLS_ENABLE=0",
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .kept = "NCCL_NVLS_ENABLE",
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "came with the environment"},
    {.name = "it masks the table itself, before its first communicator",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .user = "NCCL_ALGO",
     .change = {.name = "NCCL_ALGO", .now = "allreduce:ring"},
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "NCCL_ALGO: allreduce:ring was set by process 40 (worker) itself (or an nccl.conf), "
             "after its start: it masks the table"},
    {.name = "it masks the table, after its first communicator",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .user = "NCCL_ALGO",
     .change = {.name = "NCCL_ALGO", .now = "allreduce:ring", .comms = 1},
     .comms = 1,
     .applied = 3,
     .refused = 3,
     .verdict = NT_DR_TOO_LATE,
     .counts = true,
     .says = "NCCL_ALGO=allreduce:ring was set after a communicator existed: too late for the 1 "
             "made before"},
    {.name = "… and what NCCL does with it",
     .environment = TOLD,
     .maps = GPU NCCL TUNER,
     .parts = 1U << NT_RECEIPT_TUNER,
     .nrows = 3,
     .nccl = 22304,
     .change = {.name = "NCCL_ALGO", .now = "ring", .comms = 1},
     .comms = 2,
     .verdict = NT_DR_TOO_LATE,
     .counts = true,
     .says = "at each communicator, so the 2 made since have it; those made before go on without "
             "it. It masks the table"},
    {.name = "what NCCL reads once, after its first communicator",
     .environment = TOLD "|NCCL_BUFFSIZE=4",
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .change = {.name = "NCCL_BUFFSIZE", .before = "4194304", .now = "8388608", .comms = 1},
     .comms = 1,
     .verdict = NT_DR_TOO_LATE,
     .counts = true,
     .says = "NCCL_BUFFSIZE: NCCL read it once and goes on with 4194304"},
    {.name = "taken away after its first communicator",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .change = {.name = "NCCL_NTHREADS", .before = "256", .comms = 1},
     .comms = 1,
     .verdict = NT_DR_TOO_LATE,
     .counts = true,
     .says = "NCCL_NTHREADS was unset after"},
    {.name = "more logging after the first communicator is nobody's loss",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .change = {.name = "NCCL_DEBUG", .now = "INFO", .comms = 1},
     .comms = 1,
     .verdict = NT_DR_APPLIED,
     .counts = true},
    {.name = "a row whose choice NCCL never had",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .refused = 12,
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "1 row was not in force (row 1): NCCL did not offer the choice in any of 12 calls"},
    {.name = "a row whose choice NCCL had for most",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .applied = 100,
     .refused = 1,
     .verdict = NT_DR_APPLIED,
     .counts = true,
     .says = "not in force in 1 calls"},
    {.name = "no row is for its communicators",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .serving = NONE,
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "1 of 1 communicators have a number of ranks"},
    {.name = "SGLang masks the table for its ranks",
     .environment = TOLD "|NCCL_ALGO=allreduce:tree",
     .maps = GPU NCCL TUNER ENV,
     .parent = TOLD,
     .parent_name = "sglang::router",
     .grandparent = TOLD,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .user = "NCCL_ALGO",
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "NCCL_ALGO: allreduce:tree was set by process 30"},
    {.name = "masked, and an old NCCL asks no env plugin",
     .environment = TOLD "|NCCL_PROTO=Simple",
     .maps = GPU NCCL TUNER,
     .parts = 1U << NT_RECEIPT_TUNER,
     .nrows = 3,
     .nccl = 22304,
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "NCCL_PROTO: "},
    {.name = "variables alone are masked by nothing",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS,
     .nccl = 22809,
     .user = "NCCL_ALGO",
     .verdict = NT_DR_APPLIED,
     .counts = true},
    {.name = "the variables came after NCCL had started",
     .environment = "HOME=/root",
     .maps = GPU NCCL TUNER,
     .active = HASH_A,
     .active_env = true,
     .parts = 1U << NT_RECEIPT_TUNER,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_TOO_LATE,
     .counts = true,
     .says = "had started before"},
    {.name = "… and nothing is active on the host: the program set them itself",
     .environment = "HOME=/root",
     .maps = GPU NCCL TUNER,
     .flags = NT_RECEIPT_INSIDE | NT_RECEIPT_ENV_LATE,
     .parts = 1U << NT_RECEIPT_TUNER,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_TOO_LATE,
     .counts = true,
     .says = "had started before the variables were set inside the process"},
    {.name = "somebody else's env plugin",
     .environment = "NCCLTUNE_PROFILE=" HASH_A "|NCCL_ENV_PLUGIN=none",
     .maps = GPU NCCL TUNER,
     .parts = 1U << NT_RECEIPT_TUNER,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "names another plugin"},
    {.name = "somebody else's tuner",
     .environment = TOLD,
     .maps = GPU NCCL ENV OTHER,
     .parts = 1U << NT_RECEIPT_ENV,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "/opt/aws/libnccl-tuner-ofi.so"},
    {.name = "two copies of NCCL",
     .environment = TOLD,
     .maps = GPU NCCL NCCL2 TUNER ENV,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_TWO_NCCL,
     .counts = true,
     .says = "libnccl 2 of 2: /venv"},
    {.name = "another profile is active since",
     .environment = "HOME=/root",
     .maps = GPU NCCL TUNER ENV,
     .active = HASH_B,
     .active_env = true,
     .parts = PARTS,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_STALE,
     .counts = true,
     .says = "active since is bbbb"},
    {.name = "two profiles in one process",
     .environment = TOLD,
     .maps = GPU NCCL TUNER ENV,
     .parts = PARTS | NT_RECEIPT_MIXED,
     .nrows = 3,
     .nccl = 22809,
     .verdict = NT_DR_PARTLY,
     .counts = true,
     .says = "two different profiles"},
    {.name = "told, and nothing to show for it",
     .environment = TOLD,
     .maps = GPU NCCL,
     .verdict = NT_DR_CLAIMED,
     .counts = true,
     .says = "neither plugin nor receipt"},
    {.name = "told, the plugin is there, no receipt",
     .environment = TOLD,
     .maps = GPU NCCL TUNER,
     .verdict = NT_DR_CLAIMED,
     .counts = true,
     .says = "no receipt to prove"},
    {.name = "told, with another tuner named",
     .environment = "NCCLTUNE_PROFILE=" HASH_A "|NCCL_TUNER_PLUGIN=aws-ofi",
     .maps = GPU NCCL,
     .verdict = NT_DR_CLAIMED,
     .counts = true,
     .says = "names another plugin: aws-ofi"},
    {.name = "a shell on the way",
     .environment = TOLD,
     .maps = "1-2 r-xp 0 08:01 1 /bin/bash\n",
     .verdict = NT_DR_WAITING,
     .says = "has not made a communicator"},
    {.name = "turned off",
     .environment = TOLD "|NCCLTUNE_DISABLE=1",
     .maps = GPU NCCL,
     .verdict = NT_DR_OFF,
     .counts = true,
     .says = "NCCLTUNE_DISABLE"},
    {.name = "turned off by 0 is on",
     .environment = TOLD "|NCCLTUNE_DISABLE=0",
     .maps = GPU NCCL,
     .verdict = NT_DR_CLAIMED,
     .counts = true,
     .says = "neither"},
    {.name = "nothing to do with us",
     .environment = "HOME=/root",
     .maps = GPU NCCL,
     .verdict = NT_DR_NOT_TOLD,
     .counts = true},
    {.name = "environment not readable",
     .maps = GPU NCCL,
     .verdict = NT_DR_UNKNOWN,
     .counts = true,
     .says = "root may"},
    {.name = "lost behind srun",
     .environment = "HOME=/root",
     .maps = GPU NCCL,
     .parent = "HOME=/root",
     .parent_name = "slurmstepd",
     .grandparent = TOLD,
     .verdict = NT_DR_MISSED,
     .counts = true,
     .says = "lost between process 20 (launcher) and process 30 (slurmstepd): srun"},
    {.name = "lost behind sudo",
     .environment = "HOME=/root",
     .maps = GPU NCCL,
     .parent = TOLD,
     .parent_name = "sudo",
     .verdict = NT_DR_MISSED,
     .counts = true,
     .says = "sudo drops"},
    {.name = "loader: not installed there",
     .environment = "HOME=/root",
     .cmdline = PYTHON "|serve.py",
     .maps = GPU NCCL,
     .active = HASH_A,
     .loader = NT_LOADER_ABSENT,
     .verdict = NT_DR_NOT_TOLD,
     .counts = true,
     .says = "the loader is not installed into this interpreter"},
    {.name = "loader: installed, and no sign of it",
     .environment = "HOME=/root",
     .cmdline = PYTHON "|serve.py",
     .maps = GPU NCCL,
     .active = HASH_A,
     .loader = NT_LOADER_THERE,
     .verdict = NT_DR_CLAIMED,
     .counts = true,
     .says = "no communicator yet, or something kept it"},
    {.name = "loader: installed, and skipped",
     .environment = "HOME=/root",
     .cmdline = PYTHON "|-S|serve.py",
     .maps = GPU NCCL,
     .active = HASH_A,
     .loader = NT_LOADER_THERE,
     .verdict = NT_DR_MISSED,
     .counts = true,
     .says = "-S: Python runs no .pth"},
    {.name = "loader: -S",
     .environment = "HOME=/root",
     .cmdline = PYTHON "|-S|serve.py",
     .maps = GPU NCCL,
     .active = HASH_A,
     .verdict = NT_DR_MISSED,
     .counts = true,
     .says = "-S: Python runs no .pth"},
    {.name = "loader: -I",
     .environment = "HOME=/root",
     .cmdline = PYTHON "|-I|serve.py",
     .maps = GPU NCCL,
     .active = HASH_A,
     .verdict = NT_DR_MISSED,
     .counts = true,
     .says = "-I or -E"},
    {.name = "loader: lost PYTHONPATH",
     .environment = "HOME=/root",
     .cmdline = PYTHON "|serve.py",
     .maps = GPU NCCL,
     .parent = "PYTHONPATH=/opt/hook",
     .parent_name = "bash",
     .active = HASH_A,
     .verdict = NT_DR_MISSED,
     .counts = true,
     .says = "had a PYTHONPATH"},
    {.name = "loader: another sitecustomize",
     .environment = "PYTHONPATH=/opt/ddtrace",
     .cmdline = PYTHON "|serve.py",
     .maps = GPU NCCL,
     .active = HASH_A,
     .verdict = NT_DR_MISSED,
     .counts = true,
     .says = "may have come before"},
    {.name = "loader: not Python at all",
     .environment = "HOME=/root",
     .cmdline = "/usr/bin/trtllm-server",
     .maps = GPU NCCL,
     .active = HASH_A,
     .verdict = NT_DR_MISSED,
     .counts = true,
     .says = "no Python program"},
};

static bool says(const struct nt_doctor_verdict *v, const char *what)
{
    for (unsigned i = 0; i < v->n; i++) {
        if (strstr(v->reason[i], what) != NULL) {
            return true;
        }
    }
    return v->n == 0 && what == NULL;
}

static void fill_receipt(uint8_t *r, const struct judged *c)
{
    uint32_t serving = c->serving == NONE ? 0 : c->serving != 0 ? c->serving : c->nrows;

    nt_le_put(r + NT_RECEIPT_AT_COMMS + 28, 4, serving); /* of the one that is there */
    for (unsigned i = 0; i < c->comms; i++) {
        (void)nt_receipt_add_comm(
            r, &(struct nt_receipt_comm){.nranks = 8, .nnodes = 1, .abi = 5, .rows = serving});
    }
    if (c->change.name != NULL) {
        nt_receipt_add_change(r, &c->change);
    }
    nt_receipt_set_flags(r, c->flags);
    nt_le_put(r + nt_receipt_at_row(0), 8, c->applied);
    nt_le_put(r + nt_receipt_at_row(0) + 8, 8, c->refused);
}

static void judge(const struct judged *c, struct nt_doctor_verdict *v)
{
    struct nt_proc p = make_proc(40, "worker", c->environment, c->cmdline, c->maps);
    struct nt_proc parent =
        make_proc(30, c->parent_name != NULL ? c->parent_name : "bash", c->parent, NULL, NULL);
    struct nt_proc grandparent = make_proc(20, "launcher", c->grandparent, NULL, NULL);
    struct nt_doctor_world w = {.active_env = c->active_env};
    struct nt_doctor_facts f = {.proc = &p, .no_receipt = "", .loader = c->loader};
    uint8_t *r = NULL;

    (void)snprintf(w.active, sizeof(w.active), "%s", c->active != NULL ? c->active : "");
    if (c->parent != NULL) {
        f.ancestors[f.nancestors++] = &parent;
        if (c->grandparent != NULL) {
            f.ancestors[f.nancestors++] = &grandparent;
        }
    }
    if (c->parts != 0) {
        r = make_receipt(&p, HASH_A, c->parts, c->nrows, c->nccl);
        fill_receipt(r, c);
        if (c->kept != NULL) {
            nt_receipt_add_name(r, c->kept, NT_TOLD_KEPT);
        }
        if (c->user != NULL) {
            nt_receipt_add_name(r, c->user, NT_TOLD_USER);
        }
        nt_receipt_add_name(r, "NCCL_BUFFSIZE", NT_TOLD_PROFILE);
        assert_int_equal(nt_receipt_read(r, NT_RECEIPT_BYTES, &f.head, NULL), 0);
        f.receipt = r;
    }
    nt_doctor_judge(&f, &w, v);
    make_done(r);
    nt_proc_done(&p);
    nt_proc_done(&parent);
    nt_proc_done(&grandparent);
}

static void test_verdicts(void **state)
{
    static struct nt_doctor_verdict v;
    bool seen[NT_DR_COUNT] = {false};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct judged *c = &cases[i];
        judge(c, &v);
        seen[v.verdict] = true;
        if (v.verdict != c->verdict || v.counts != c->counts) {
            fail_msg("%s: '%s', counts %d: %s", c->name, nt_doctor_names[v.verdict], v.counts,
                     v.n > 0 ? v.reason[0] : "");
        }
        if (!says(&v, c->says)) {
            fail_msg("%s: does not say '%s' but '%s'", c->name, c->says, v.reason[0]);
        }
    }
    for (int k = 0; k < NT_DR_COUNT; k++) {
        if (!seen[k] && k != NT_DR_LAUNCHER) { /* that takes a family */
            fail_msg("no case for '%s'", nt_doctor_names[k]);
        }
    }
}

/* Without the env plugin the environment at the start is held against the table. */
static void test_environment_against_table(void **state)
{
    struct nt_table_var vars[] = {{"NCCL_BUFFSIZE", "8388608", false},
                                  {"NCCL_MIN_NCHANNELS", "16", false}};
    struct nt_proc p = make_proc(40, "worker", TOLD "|NCCL_BUFFSIZE=4|NCCL_MIN_NCHANNELS=16", NULL,
                                 GPU NCCL TUNER);
    struct nt_doctor_facts f = {.proc = &p, .no_receipt = ""};
    static struct nt_doctor_verdict v;
    uint8_t *data = NULL, *r;
    char hash[65];
    size_t size = 0;
    struct nt_table t;
    (void)state;

    assert_int_equal(nt_table_write(NT_TABLE_TABLE, vars, 2, NULL, 0, &data, &size, hash, NULL), 0);
    assert_int_equal(nt_table_read(data, size, &t, NULL), 0);
    r = make_receipt(&p, hash, 1U << NT_RECEIPT_TUNER, 0, 22304);
    assert_int_equal(nt_receipt_read(r, NT_RECEIPT_BYTES, &f.head, NULL), 0);
    f.receipt = r;
    f.table = &t;
    nt_doctor_judge(&f, &(struct nt_doctor_world){.active_env = false}, &v);
    assert_int_equal(v.verdict, NT_DR_PARTLY);
    assert_int_equal(v.n, 1);
    assert_non_null(strstr(v.reason[0], "NCCL_BUFFSIZE: not the profile's value: 4 came with"));
    make_done(r);
    free(data);
    nt_proc_done(&p);
}

/* torchrun's agent maps NCCL and a GPU and makes no communicator. */
static void test_launchers(void **state)
{
    static const struct {
        const char *name;
        unsigned ranks;   /* processes below the one in question */
        unsigned of;      /* ranks of their communicators; 0: they have no receipts */
        unsigned nnodes;  /* of these */
        bool own_receipt; /* it has a communicator itself */
        bool launcher;
    } members[] = {{"an agent", 4, 4, 1, false, true},
                   {"an agent, each rank a host of its own", 4, 4, 4, false, true},
                   {"an agent of two hosts", 4, 8, 2, false, true},
                   {"nobody was told", 4, 0, 0, false, true},
                   {"no children", 0, 0, 0, false, false},
                   {"the rank that is not among the others", 3, 4, 1, false, false},
                   {"rank 0 that started the others", 4, 5, 1, true, false}};
    (void)state;
    for (size_t i = 0; i < COUNT(members); i++) {
        struct nt_proc parent = make_proc(30, "pt_elastic", TOLD, NULL, GPU NCCL);
        struct nt_proc child = make_proc(40, "rank", TOLD, NULL, GPU NCCL TUNER);
        struct nt_doctor_facts f[2] = {{.proc = &parent}, {.proc = &child, .nancestors = 1}};
        struct nt_doctor_verdict *v = calloc(6, sizeof(*v));
        struct nt_doctor_member m[6];
        uint8_t byte = 0;
        f[0].receipt = members[i].own_receipt ? &byte : NULL;
        f[1].ancestors[0] = &parent;
        for (unsigned k = 0; k <= members[i].ranks; k++) {
            v[k].counts = true;
            v[k].verdict = k == 0 ? NT_DR_CLAIMED : NT_DR_APPLIED;
            v[k].max_local = k > 0 && members[i].of > 0 ? members[i].of / members[i].nnodes : 0;
            m[k] = (struct nt_doctor_member){&f[k > 0], &v[k]};
        }
        nt_doctor_family(m, members[i].ranks + 1U);
        if (v[0].counts == members[i].launcher ||
            (v[0].verdict == NT_DR_LAUNCHER) != members[i].launcher ||
            (members[i].ranks > 0 && !v[1].counts)) {
            fail_msg("%s: counts %d, '%s'", members[i].name, v[0].counts,
                     nt_doctor_names[v[0].verdict]);
        }
        free(v);
        nt_proc_done(&parent);
        nt_proc_done(&child);
    }
}

static void test_job(void **state)
{
    static const struct {
        const char *name;
        struct nt_doctor_verdict v[4];
        size_t n;
        bool applied, disagree;
        const char *text;
    } rows[] = {
        {"nobody", {{.verdict = NT_DR_WAITING}}, 1, false, false, "no process here"},
        {"all",
         {{.verdict = NT_DR_APPLIED, .counts = true, .hash = HASH_A},
          {.verdict = NT_DR_APPLIED, .counts = true, .hash = HASH_A},
          {.verdict = NT_DR_WAITING, .hash = HASH_A}},
         3,
         true,
         false,
         "applied in 2 of 2"},
        {"one on defaults",
         {{.verdict = NT_DR_APPLIED, .counts = true, .hash = HASH_A},
          {.verdict = NT_DR_MISSED, .counts = true}},
         2,
         false,
         true,
         "the ranks disagree: applied in 1 of 2, missed in 1"},
        {"two profiles",
         {{.verdict = NT_DR_APPLIED, .counts = true, .hash = HASH_A},
          {.verdict = NT_DR_APPLIED, .counts = true, .hash = HASH_B}},
         2,
         false,
         true,
         "the ranks disagree: applied in 2 of 2"},
        {"partly everywhere",
         {{.verdict = NT_DR_PARTLY, .counts = true, .hash = HASH_A},
          {.verdict = NT_DR_PARTLY, .counts = true, .hash = HASH_A}},
         2,
         false,
         false,
         "applied in 0 of 2, partly in 2"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_doctor_job job;
        nt_doctor_job(rows[i].v, rows[i].n, false, &job);
        if (job.applied != rows[i].applied || job.disagree != rows[i].disagree ||
            strstr(job.text, rows[i].text) != job.text) {
            fail_msg("%s: %d %d '%s'", rows[i].name, job.applied, job.disagree, job.text);
        }
    }
}

static void test_calls(void **state)
{
    struct nt_table_row rows[] = {{.coll = NT_TABLE_ALL_REDUCE,
                                   .nranks = 8,
                                   .nnodes = 1,
                                   .min_bytes = 8193,
                                   .max_bytes = 65536,
                                   .algo = NT_TABLE_RING,
                                   .proto = NT_TABLE_LL}};
    struct nt_proc p = make_proc(40, "worker", TOLD, NULL, GPU NCCL TUNER);
    struct nt_doctor_facts f = {.proc = &p, .no_receipt = ""};
    struct nt_doctor_calls *calls = calloc(1, sizeof(*calls));
    unsigned class = nt_size_class(16384);
    uint8_t *data = NULL, *r;
    char hash[65];
    size_t size = 0;
    struct nt_table t;
    struct nt_buf out;
    json_t *json;
    (void)state;

    assert_non_null(calls);
    assert_int_equal(nt_table_write(NT_TABLE_TABLE, NULL, 0, rows, 1, &data, &size, hash, NULL), 0);
    assert_int_equal(nt_table_read(data, size, &t, NULL), 0);
    r = make_receipt(&p, hash, PARTS | 1U << NT_RECEIPT_PROFILER, 1, 22809);
    for (int i = 0; i < 5; i++) {
        nt_receipt_count(r, nt_receipt_at_class(NT_TABLE_ALL_REDUCE, class, NT_FATE_SERVED));
    }
    nt_receipt_add_executed(r, NT_TABLE_ALL_REDUCE, 16384, NT_TABLE_RING * 3 + NT_TABLE_LL, 2,
                            true);
    assert_int_equal(nt_receipt_read(r, NT_RECEIPT_BYTES, &f.head, NULL), 0);
    f.receipt = r;
    f.table = &t;
    nt_doctor_calls_add(calls, &f);
    nt_doctor_calls_add(calls, &f); /* a second rank */
    nt_buf_init(&out, 1 << 16);
    nt_doctor_calls_text(calls, &out);
    assert_non_null(strstr(nt_buf_str(&out), "summed over 2 receipts"));
    assert_non_null(strstr(nt_buf_str(&out), "to 16K    10 by the table, 0 left to NCCL; executed "
                                             "ring/ll, 2 channels: 0 eager, captured 2, replays "
                                             "unknown"));
    assert_non_null(strstr(nt_buf_str(&out), "to 32K    no NCCL call seen in this class"));
    assert_null(strstr(nt_buf_str(&out), "to 8K"));
    json = nt_doctor_calls_json(calls);
    assert_int_equal(json_array_size(json), 3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json, 0), "by_table")), 10);
    json_decref(json);
    nt_buf_done(&out);
    free(calls);
    make_done(r);
    free(data);
    nt_proc_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),  cmocka_unit_test(test_environment_against_table),
        cmocka_unit_test(test_launchers), cmocka_unit_test(test_job),
        cmocka_unit_test(test_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
