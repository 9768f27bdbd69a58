/* Live processes and hostile files, as doctor's shell finds them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiles/format/bytes.h"
#include "tests/plugin/host.h"
#include "tuner/deliver/active.h"
#include "tuner/deliver/scan.h"

/* ---- live processes ---- */

struct live {
    pid_t pid;
    int in; /* closing it ends the process */
};

static const struct nt_table_var vars[] = {{"NCCL_BUFFSIZE", "8388608", false},
                                           {"NCCL_MIN_NCHANNELS", "16", false}};
static const struct nt_table_row rows[] = {{.coll = NT_TABLE_ALL_REDUCE,
                                            .nranks = 8,
                                            .nnodes = 1,
                                            .min_bytes = 8193,
                                            .max_bytes = 65536,
                                            .algo = NT_TABLE_RING,
                                            .proto = NT_TABLE_LL}};
static struct host_dir dir; /* the profile of all live processes */
static char env_text[16][512];
static char *env_list[17];
static size_t env_n;

static void give(const char *name, const char *value)
{
    (void)snprintf(env_text[env_n], sizeof(env_text[0]), "%s=%s", name, value);
    env_list[env_n] = env_text[env_n];
    env_list[++env_n] = NULL;
}

static void told(void)
{
    env_n = 0;
    give("NCCLTUNE_PROFILE", dir.hash);
    give("NCCLTUNE_TABLE", dir.table);
    give("NCCLTUNE_RECEIPTS", dir.receipts);
    give("NCCL_TUNER_PLUGIN", NT_TUNER_LIB);
    give("NCCL_ENV_PLUGIN", NT_ENV_LIB);
}

static struct live start(char *const argv[])
{
    posix_spawn_file_actions_t files;
    struct live l = {.pid = -1};
    int in[2], out[2];
    char byte;

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_adddup2(&files, in[0], 0);
    (void)posix_spawn_file_actions_adddup2(&files, out[1], 1);
    assert_int_equal(posix_spawn(&l.pid, argv[0], &files, NULL, argv, env_list), 0);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)close(in[0]);
    (void)close(out[1]);
    l.in = in[1];
    assert_int_equal(read(out[0], &byte, 1), 1); /* it is ready */
    (void)close(out[0]);
    return l;
}

static struct live start_live(const char *a, const char *b)
{
    char *argv[] = {(char *)(uintptr_t)NT_LIVE, (char *)(uintptr_t)a, (char *)(uintptr_t)b, NULL};
    return start(argv);
}

static void stop(struct live *l)
{
    int status = 0;
    (void)close(l->in);
    assert_int_equal(waitpid(l->pid, &status, 0), l->pid);
    assert_int_equal(status, 0);
}

static struct nt_scan scan(const pid_t *pids, size_t n, const char *proc, const char *active)
{
    uint32_t list[4];
    struct nt_scan s = {.n = 0};
    struct nt_err err = {.code = NT_OK};
    for (size_t i = 0; i < n; i++) {
        list[i] = (uint32_t)pids[i];
    }
    if (nt_scan(&(struct nt_scan_opts){.pids = list,
                                       .npids = n,
                                       .proc = proc,
                                       .active = active != NULL ? active : "/nonexistent/active"},
                &s, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    return s;
}

static void test_two_ranks(void **state)
{
    struct live a, b;
    struct nt_doctor_verdict v[2];
    struct nt_doctor_job job;
    struct nt_doctor_calls *calls = calloc(1, sizeof(*calls));
    struct nt_scan s;
    (void)state;

    told();
    a = start_live("NCCL_BUFFSIZE", NULL);
    b = start_live("NCCL_BUFFSIZE", NULL);
    s = scan((pid_t[]){a.pid, b.pid}, 2, NULL, NULL);
    assert_int_equal(s.n, 2);
    for (size_t i = 0; i < 2; i++) {
        v[i] = s.v[i]->verdict;
        if (v[i].verdict != NT_DR_APPLIED) {
            fail_msg("%s: %s", nt_doctor_names[v[i].verdict], v[i].reason[0]);
        }
        nt_doctor_calls_add(calls, &s.v[i]->facts);
    }
    nt_doctor_job(v, 2, false, &job);
    assert_string_equal(job.text, "applied in 2 of 2");
    assert_true(job.applied);
    assert_int_equal(calls->of[NT_TABLE_ALL_REDUCE][nt_size_class(16384)].served, 6);
    assert_true(calls->of[NT_TABLE_ALL_REDUCE][nt_size_class(65536)].in_table);
    nt_scan_done(&s);
    stop(&a);
    stop(&b);
    free(calls);
}

static size_t trick_now; /* for messages */

static void expect(struct nt_scan *s, size_t i, enum nt_doctor_finding verdict, const char *says)
{
    const struct nt_doctor_verdict *v = &s->v[i]->verdict;
    bool said = says == NULL;
    for (unsigned k = 0; k < v->n; k++) {
        said = said || strstr(v->reason[k], says) != NULL;
    }
    if (v->verdict != verdict || !said) {
        fail_msg("trick %zu: '%s' instead of '%s': %s", trick_now, nt_doctor_names[v->verdict],
                 nt_doctor_names[verdict], v->n > 0 ? v->reason[0] : "no reason");
    }
}

static void test_overwritten(void **state)
{
    struct live l;
    struct nt_scan s;
    (void)state;

    told(); /* as a framework that sets a variable before its communicator */
    l = start_live("NCCL_BUFFSIZE=4194304", "NCCL_BUFFSIZE");
    s = scan(&l.pid, 1, NULL, NULL);
    expect(&s, 0, NT_DR_PARTLY,
           "NCCL_BUFFSIZE: not the profile's value: 4194304 was set by process");
    nt_scan_done(&s);
    stop(&l);

    told();
    give("NCCL_BUFFSIZE", "4");
    l = start_live("NCCL_BUFFSIZE", NULL);
    s = scan(&l.pid, 1, NULL, NULL);
    expect(&s, 0, NT_DR_PARTLY, "4 was set by process");
    nt_scan_done(&s);
    stop(&l);
}

/* An active profile that carries the env plugin, and a process whose NCCL started before it. */
static void test_too_late(void **state)
{
    char path[300], boot[40];
    struct nt_assign active[] = {{"NCCLTUNE_PROFILE", dir.hash},
                                 {"NCCLTUNE_TABLE", dir.table},
                                 {"NCCL_ENV_PLUGIN", NT_ENV_LIB}};
    struct nt_buf text;
    struct live l;
    struct nt_scan s;
    (void)state;

    nt_buf_init(&text, 4096);
    nt_boot_id(boot);
    assert_int_equal(nt_active_write(active, 3, boot, &text, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/active", dir.path);
    host_put(path, text.data, text.len, 0644);
    nt_buf_done(&text);
    env_n = 0; /* nothing told at exec; the program gets the rest as the loader gives it */
    give("NCCLTUNE_RECEIPTS", dir.receipts);
    give("NCCL_TUNER_PLUGIN", NT_TUNER_LIB);
    {
        char profile[128], table[300];
        (void)snprintf(profile, sizeof(profile), "NCCLTUNE_PROFILE=%s", dir.hash);
        (void)snprintf(table, sizeof(table), "NCCLTUNE_TABLE=%s", dir.table);
        l = start_live(profile, table);
    }
    s = scan(&l.pid, 1, NULL, path);
    assert_string_equal(s.world.active, dir.hash);
    expect(&s, 0, NT_DR_TOO_LATE, "had started before");
    nt_scan_done(&s);
    stop(&l);
    (void)unlink(path);
}

/* A program that sets variables between its communicators. */
static void test_between_communicators(void **state)
{
    struct live l;
    struct nt_scan s;
    (void)state;

    told();
    l = start_live("later:NCCL_ALGO=allreduce:tree", "NCCL_BUFFSIZE");
    s = scan(&l.pid, 1, NULL, NULL);
    expect(&s, 0, NT_DR_TOO_LATE,
           "NCCL_ALGO=allreduce:tree was set after a communicator existed: too late for the 1");
    expect(&s, 0, NT_DR_TOO_LATE, "so the 1 made since have it");
    nt_scan_done(&s);
    stop(&l);

    told();
    l = start_live("later:NCCL_BUFFSIZE=4194304", "NCCL_BUFFSIZE");
    s = scan(&l.pid, 1, NULL, NULL);
    expect(&s, 0, NT_DR_TOO_LATE, "goes on with the profile's 8388608");
    nt_scan_done(&s);
    stop(&l);
}

static void test_nothing_and_nobody(void **state)
{
    struct live l;
    struct nt_scan s = {.n = 0};
    struct nt_err err = {.code = NT_OK};
    (void)state;

    env_n = 0;
    env_list[0] = NULL;
    l = start_live(NULL, NULL);
    s = scan(&l.pid, 1, NULL, NULL);
    expect(&s, 0, NT_DR_NOT_TOLD, NULL);
    nt_scan_done(&s);
    stop(&l);
    assert_int_equal(
        nt_scan(&(struct nt_scan_opts){.pids = &(uint32_t){(uint32_t)l.pid}, .npids = 1}, &s, &err),
        -NT_E_INVAL);
    assert_non_null(strstr(err.msg, "there is no process"));
}

/* ---- a made-up /proc with a file system of its own ---- */

static char tree[64]; /* tree/proc/40, tree/root */

static void put_text(const char *name, const char *text, size_t len)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", tree, name);
    host_put(path, text, len, 0644);
}

static void make_folder(const char *name, unsigned mode)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", tree, name);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, (mode_t)mode), 0);
}

/* uid: owner of process and files. */
static void make_tree(unsigned uid)
{
    static const char stat[] = "40 (rank) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1\n";
    static const char maps[] = "1-2 rw-s 0 00:06 421 /dev/nvidia0\n"
                               "1-2 r-xp 0 08:01 7 /opt/libnccl.so.2\n"
                               "1-2 r-xp 0 08:01 8 /opt/libnccl-tuner-nccltune.so\n";
    char text[400], path[128], to[256];
    int n;

    (void)snprintf(tree, sizeof(tree), "/tmp/nt-scan-XXXXXX");
    assert_non_null(mkdtemp(tree));
    assert_int_equal(chmod(tree, 0755), 0);
    make_folder("proc", 0755);
    make_folder("proc/40", 0755);
    make_folder("root", 0755);
    make_folder("root/run", 0755);
    make_folder("root/run/nccltune", 0755);
    (void)snprintf(path, sizeof(path), "root/run/nccltune/%u", uid);
    make_folder(path, 0700);
    (void)snprintf(to, sizeof(to), "%s/%s", tree, path);
    assert_int_equal(chown(to, uid, (gid_t)-1), 0);
    put_text("proc/40/stat", stat, sizeof(stat) - 1);
    n = snprintf(text, sizeof(text), "Name:\trank\nUid:\t%u\t%u\t%u\t%u\nNSpid:\t40\n", uid, uid,
                 uid, uid);
    put_text("proc/40/status", text, (size_t)n);
    n = snprintf(text, sizeof(text), "NCCLTUNE_PROFILE=%s%cNCCLTUNE_TABLE=/nowhere", dir.hash, 0);
    put_text("proc/40/environ", text, (size_t)n + 1);
    put_text("proc/40/cmdline", "rank", 5);
    put_text("proc/40/maps", maps, sizeof(maps) - 1);
    (void)snprintf(path, sizeof(path), "%s/proc/40/root", tree);
    (void)snprintf(to, sizeof(to), "%s/root", tree);
    assert_int_equal(symlink(to, path), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void drop_tree(void)
{
    assert_int_equal(nftw(tree, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* A good receipt of process 40, to be spoiled. */
static uint8_t *good_receipt(unsigned uid, uint64_t ticks)
{
    uint8_t *r = calloc(1, NT_RECEIPT_BYTES);
    char boot[40];
    assert_non_null(r);
    nt_boot_id(boot);
    memcpy(r, nt_receipt_magic, 8);
    nt_le_put(r + NT_RECEIPT_AT_VERSION, 4, NT_RECEIPT_VERSION);
    nt_le_put(r + NT_RECEIPT_AT_SIZE, 4, NT_RECEIPT_BYTES);
    nt_le_put(r + NT_RECEIPT_AT_START, 8, ticks);
    nt_le_put(r + NT_RECEIPT_AT_PID, 4, 40);
    nt_le_put(r + NT_RECEIPT_AT_UID, 4, uid);
    nt_le_put(r + NT_RECEIPT_AT_NROWS, 4, 1);
    nt_le_put(r + NT_RECEIPT_AT_NCCL, 4, 22304);
    nt_le_put(r + NT_RECEIPT_AT_PARTS, 4, 1U << NT_RECEIPT_TUNER);
    memcpy(r + NT_RECEIPT_AT_BOOT, boot, strlen(boot));
    memcpy(r + NT_RECEIPT_AT_HASH, dir.hash, NT_HASH_HEX);
    (void)nt_receipt_add_comm(
        r, &(struct nt_receipt_comm){.nranks = 8, .nnodes = 1, .abi = 5, .rows = 1});
    return r;
}

enum trick {
    GOOD,
    GROUP_CAN_WRITE,
    OTHERS_FILE,
    SHORT,
    LONG,
    GARBAGE,
    NO_END,
    ANOTHER_PID,
    EARLIER,
    OTHER_BOOT,
    LINK,
    FIFO,
    FOLDER,
    LINKED_FOLDER,
    OPEN_FOLDER,
    NOTHING,
    HUGE_NUMBERS,
    ESCAPES
};

static const struct {
    enum trick trick;
    enum nt_doctor_finding verdict;
    const char *says;
} tricks[] = {
    {GOOD, NT_DR_APPLIED, NULL},
    {GROUP_CAN_WRITE, NT_DR_CLAIMED, "writable by others"},
    {OTHERS_FILE, NT_DR_CLAIMED, "owned by another user"},
    {SHORT, NT_DR_CLAIMED, "receipt of"},
    {LONG, NT_DR_CLAIMED, "larger than"},
    {GARBAGE, NT_DR_CLAIMED, "not a receipt"},
    {NO_END, NT_DR_CLAIMED, "text without end"},
    {ANOTHER_PID, NT_DR_CLAIMED, "names another process"},
    {EARLIER, NT_DR_CLAIMED, "stale: of an earlier process"},
    {OTHER_BOOT, NT_DR_CLAIMED, "before the last boot"},
    {LINK, NT_DR_CLAIMED, "symbolic link"},
    {FIFO, NT_DR_CLAIMED, "no regular file"},
    {FOLDER, NT_DR_CLAIMED, "no regular file"},
    {LINKED_FOLDER, NT_DR_CLAIMED, "symbolic link"},
    {OPEN_FOLDER, NT_DR_CLAIMED, "writable by others"},
    {NOTHING, NT_DR_CLAIMED, "no receipt to prove"},
    {HUGE_NUMBERS, NT_DR_APPLIED, "no rows"},
    {ESCAPES, NT_DR_PARTLY, "NCCL_?[31mX"},
};

static void play(enum trick t, unsigned uid)
{
    uint8_t *r = good_receipt(uid, t == EARLIER ? 76 : 77);
    char folder[128], path[256], to[256];
    size_t len = NT_RECEIPT_BYTES;
    unsigned mode = t == GROUP_CAN_WRITE ? 0620 : 0600;

    (void)snprintf(folder, sizeof(folder), "%s/root/run/nccltune/%u", tree, uid);
    (void)snprintf(path, sizeof(path), "%s/40.%d.receipt", folder, t == EARLIER ? 76 : 77);
    (void)snprintf(to, sizeof(to), "%s/moved", tree);
    if (t == SHORT) {
        len -= 100;
    } else if (t == GARBAGE) {
        memset(r, 'x', len);
    } else if (t == NO_END) {
        memset(r + NT_RECEIPT_AT_JOB, 'x', 128);
    } else if (t == ANOTHER_PID) {
        nt_le_put(r + NT_RECEIPT_AT_PID, 4, 41);
    } else if (t == OTHER_BOOT) {
        r[NT_RECEIPT_AT_BOOT] = 'z';
    } else if (t ==
               HUGE_NUMBERS) { /* more communicators than there are slots, counters at the top */
        memset(r + NT_RECEIPT_AT_ROWS, 0xff, NT_RECEIPT_AT_NAMES - NT_RECEIPT_AT_ROWS);
        nt_le_put(r + NT_RECEIPT_AT_NCOMMS, 4, UINT32_MAX);
        nt_le_put(r + NT_RECEIPT_AT_COMMS + 28, 4, 0);
    } else if (t == ESCAPES) {
        nt_receipt_add_name(r, "NCCL_\x1b[31mX", NT_TOLD_KEPT);
    }
    if (t == FIFO) {
        assert_int_equal(mkfifo(path, 0600), 0);
    } else if (t == FOLDER) {
        assert_int_equal(mkdir(path, 0700), 0);
    } else if (t != NOTHING) {
        host_put(t == LINK ? to : path, r, len, mode);
    }
    if (t == LONG) {
        int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        assert_int_equal(write(fd, "x", 1), 1);
        (void)close(fd);
    } else if (t == LINK) {
        assert_int_equal(symlink(to, path), 0);
    } else if (t == LINKED_FOLDER) {
        assert_int_equal(rename(folder, to), 0);
        assert_int_equal(symlink(to, folder), 0);
    } else if (t == OPEN_FOLDER) {
        assert_int_equal(chmod(folder, 0777), 0);
    }
    if (t != NOTHING && t != LINK && t != LINKED_FOLDER && geteuid() == 0) {
        assert_int_equal(lchown(path, t == OTHERS_FILE ? 12345 : uid, (gid_t)-1), 0);
    }
    free(r);
}

static void play_all(unsigned uid)
{
    char proc[80];
    for (size_t i = 0; i < COUNT(tricks); i++) {
        struct nt_scan s;
        if (tricks[i].trick == OTHERS_FILE && geteuid() != 0) {
            continue; /* only root can give a file away */
        }
        make_tree(uid);
        play(tricks[i].trick, uid);
        (void)snprintf(proc, sizeof(proc), "%s/proc", tree);
        s = scan((pid_t[]){40}, 1, proc, NULL);
        assert_int_equal(s.n, 1);
        trick_now = i;
        expect(&s, 0, tricks[i].verdict, tricks[i].says);
        nt_scan_done(&s);
        drop_tree();
    }
}

static void test_own_receipts(void **state)
{
    (void)state;
    play_all(geteuid());
}

/* What root meets of somebody else's. */
static void test_others_receipts(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: nobody else's files to look at\n");
        skip();
    }
    play_all(54321);
}

/* ---- the receipt of an engine's plugin: the same doors ---- */

static const struct {
    enum trick trick;
    const char *says; /* in why not; NULL: it is taken */
} engine_tricks[] = {
    {GOOD, NULL},
    {GROUP_CAN_WRITE, "writable by others"},
    {OTHERS_FILE, "owned by another user"},
    {SHORT, "cut or too long"},
    {LONG, "larger than"},
    {GARBAGE, "not a receipt of"},
    {NO_END, "cut or too long"},
    {ANOTHER_PID, "names another process"},
    {EARLIER, ""},
    {OTHER_BOOT, "before the last boot"},
    {LINK, "symbolic link"},
    {FIFO, "no regular file"},
    {FOLDER, "no regular file"},
    {NOTHING, ""},
    {ESCAPES, NULL},
};

static void play_engine(enum trick t, unsigned uid)
{
    static char text[NT_ENGINE_BYTES + 2];
    char path[256], to[256], boot[40];
    size_t len;

    nt_boot_id(boot);
    (void)snprintf(path, sizeof(path), "%s/root/run/nccltune/%u/engine-40.%d.backends", tree, uid,
                   t == EARLIER ? 76 : 77);
    (void)snprintf(to, sizeof(to), "%s/moved", tree);
    memset(text, '\n', sizeof(text));
    len = (size_t)snprintf(text, sizeof(text),
                           "%s 1\nprocess %d 77 %s node\nengine sglang 0.5.23\ntable %s\nstate "
                           "on\ngroup %s of 8: on\n",
                           t == GARBAGE ? "something" : "nccltune-backends",
                           t == ANOTHER_PID ? 41 : 40, t == OTHER_BOOT ? "z" : boot, dir.hash,
                           t == ESCAPES ? "\x1b[31m" : "tp:0");
    text[len] = '\n';
    len = t == SHORT ? len - 1 : t == LONG ? NT_ENGINE_BYTES + 1 : len;
    if (t == NO_END) {
        memset(text + len, 'x', 5000);
        len += 5000;
    }
    if (t == FIFO) {
        assert_int_equal(mkfifo(path, 0600), 0);
    } else if (t == FOLDER) {
        assert_int_equal(mkdir(path, 0700), 0);
    } else if (t != NOTHING) {
        host_put(t == LINK ? to : path, text, len, t == GROUP_CAN_WRITE ? 0620 : 0600);
    }
    if (t == LINK) {
        assert_int_equal(symlink(to, path), 0);
    } else if (t != NOTHING && geteuid() == 0) {
        assert_int_equal(lchown(path, t == OTHERS_FILE ? 12345 : uid, (gid_t)-1), 0);
    }
}

static void play_engines(unsigned uid)
{
    char proc[80];
    for (size_t i = 0; i < COUNT(engine_tricks); i++) {
        const struct nt_engine *e;
        struct nt_scan s;
        if (engine_tricks[i].trick == OTHERS_FILE && geteuid() != 0) {
            continue;
        }
        make_tree(uid);
        play(GOOD, uid);
        play_engine(engine_tricks[i].trick, uid);
        (void)snprintf(proc, sizeof(proc), "%s/proc", tree);
        s = scan((pid_t[]){40}, 1, proc, NULL);
        assert_int_equal(s.n, 1);
        trick_now = i;
        expect(&s, 0, NT_DR_APPLIED, NULL);
        e = s.v[0]->facts.engine;
        if ((e != NULL) != (engine_tricks[i].says == NULL) ||
            (e == NULL && (engine_tricks[i].says[0] == '\0'
                               ? s.v[0]->engine_why[0] != '\0'
                               : strstr(s.v[0]->engine_why, engine_tricks[i].says) == NULL))) {
            fail_msg("trick %zu: %d '%s'", i, e != NULL, s.v[0]->engine_why);
        }
        if (e != NULL) {
            assert_string_equal(e->groups[0].name,
                                engine_tricks[i].trick == ESCAPES ? "?[31m" : "tp:0");
        }
        nt_scan_done(&s);
        drop_tree();
    }
}

static void test_own_engines(void **state)
{
    (void)state;
    play_engines(geteuid());
}

static void test_others_engines(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: nobody else's files to look at\n");
        skip();
    }
    play_engines(54321);
}

/* A launcher that maps NCCL and a GPU, above a rank with a receipt. */
static void test_a_launcher(void **state)
{
    static const char agent[] = "30 (pt_elastic) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 70 1\n";
    static const char rank[] = "40 (rank) S 30 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 1\n";
    static const char maps[] = "1-2 rw-s 0 00:06 421 /dev/nvidiactl\n"
                               "1-2 r-xp 0 08:01 7 /opt/libnccl.so.2\n";
    struct nt_doctor_verdict v[2];
    struct nt_doctor_job job;
    struct nt_scan s;
    char proc[80];
    (void)state;

    make_tree(geteuid());
    play(GOOD, geteuid());
    make_folder("proc/30", 0755);
    put_text("proc/30/stat", agent, sizeof(agent) - 1);
    put_text("proc/30/environ", "NCCLTUNE_PROFILE=x", 19);
    put_text("proc/30/cmdline", "torchrun", 9);
    put_text("proc/30/maps", maps, sizeof(maps) - 1);
    put_text("proc/40/stat", rank, sizeof(rank) - 1);
    /* eight ranks of eight nodes: one of them here */
    {
        char path[200];
        uint8_t nodes[4] = {8};
        int fd;
        (void)snprintf(path, sizeof(path), "%s/root/run/nccltune/%u/40.77.receipt", tree,
                       geteuid());
        fd = open(path, O_WRONLY | O_CLOEXEC);
        assert_int_equal(pwrite(fd, nodes, 4, NT_RECEIPT_AT_COMMS + 4), 4);
        (void)close(fd);
    }
    (void)snprintf(proc, sizeof(proc), "%s/proc", tree);
    s = scan((pid_t[]){30}, 1, proc, NULL);
    assert_int_equal(s.n, 2);
    expect(&s, 0, NT_DR_LAUNCHER, "started ranks and is none");
    expect(&s, 1, NT_DR_APPLIED, NULL);
    v[0] = s.v[0]->verdict;
    v[1] = s.v[1]->verdict;
    nt_doctor_job(v, 2, false, &job);
    assert_string_equal(job.text, "applied in 1 of 1");
    assert_true(job.applied);
    nt_scan_done(&s);
    drop_tree();
}

/* Where an interpreter would find the loader. */
static void test_finds_the_loader(void **state)
{
    static const char environment[] = "HOME=/nobody\0PYTHONPATH=/hook:/other\0PATH=/bin:/venv/bin";
    static const char *const folders[] = {"root/home",
                                          "root/usr",
                                          "root/usr/lib",
                                          "root/usr/lib/python3.12",
                                          "root/usr/lib/python3.12/site-packages",
                                          "root/venv",
                                          "root/venv/bin",
                                          "root/venv/lib",
                                          "root/venv/lib/python3.12",
                                          "root/venv/lib/python3.12/site-packages"};
    static const char usr[] = "/usr/bin/python3.12";
    static const struct {
        const char *word, *cwd;             /* how it was called, and where */
        enum nt_doctor_loader empty, there; /* with the packages of /venv, and the loader there */
    } calls[] = {
        {"/venv/bin/python3", "/", NT_LOADER_ABSENT, NT_LOADER_THERE},
        {"venv/bin/python3", "/", NT_LOADER_ABSENT, NT_LOADER_THERE},
        {"../venv/bin/python3", "/home", NT_LOADER_ABSENT, NT_LOADER_THERE},
        {"bin/python3", "/venv", NT_LOADER_ABSENT, NT_LOADER_THERE},
        {"python3", "/", NT_LOADER_ABSENT, NT_LOADER_THERE}, /* along PATH */
        {"venv/bin/python3", "", NT_LOADER_UNKNOWN, NT_LOADER_UNKNOWN},
        {"python3.99", "/", NT_LOADER_UNKNOWN, NT_LOADER_UNKNOWN}, /* no program of that name */
        {"VLLM::Worker", "/", NT_LOADER_UNKNOWN, NT_LOADER_UNKNOWN},
        {"", "/", NT_LOADER_UNKNOWN, NT_LOADER_UNKNOWN},
        {"/other/bin/python3", "/", NT_LOADER_ABSENT, NT_LOADER_ABSENT},
    };
    char root[100], words[64], path[128];
    struct nt_proc p = {.uid = geteuid(),
                        .environ_known = true,
                        .environ = (char *)(uintptr_t)environment,
                        .environ_len = sizeof(environment),
                        .cmdline = words};
    (void)state;

    make_tree(geteuid());
    (void)snprintf(root, sizeof(root), "%s/root", tree);
    for (int step = 0; step < 3; step++) {
        if (step == 1) {
            for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
                make_folder(folders[i], 0755);
            }
            (void)snprintf(path, sizeof(path), "%s/venv/bin/python3", root);
            host_put(path, "", 0, 0755);
        } else if (step == 2) {
            put_text("root/venv/lib/python3.12/site-packages/nccltune.pth", "", 0);
        }
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
            enum nt_doctor_loader want = step == 0   ? NT_LOADER_UNKNOWN
                                         : step == 1 ? calls[i].empty
                                                     : calls[i].there,
                                  is;
            p.cmdline_len = (size_t)snprintf(words, sizeof(words), "%s", calls[i].word) + 1;
            is = nt_scan_loader(root, &p, usr, calls[i].cwd);
            if (is != want) {
                fail_msg("%s in '%s', step %d: %d", calls[i].word, calls[i].cwd, step, is);
            }
        }
    }
    p.cmdline_len = (size_t)snprintf(words, sizeof(words), "/other/python3") + 1;
    make_folder("root/hook", 0755);
    put_text("root/hook/nccltune_loader.py", "", 0);
    assert_int_equal(nt_scan_loader(root, &p, "", "/"), NT_LOADER_THERE);
    p.uid = geteuid() + 1;
    assert_int_equal(nt_scan_loader(root, &p, "", "/"), NT_LOADER_UNKNOWN);
    drop_tree();
}

static int setup(void **state)
{
    (void)state;
    host_dir_vars(&dir, NT_TABLE_TABLE, vars, COUNT(vars), rows, COUNT(rows));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    host_clean(&dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_overwritten),
        cmocka_unit_test(test_too_late),
        cmocka_unit_test(test_nothing_and_nobody),
        cmocka_unit_test(test_between_communicators),
        cmocka_unit_test(test_a_launcher),
        cmocka_unit_test(test_finds_the_loader),
        cmocka_unit_test(test_own_receipts),
        cmocka_unit_test(test_others_receipts),
        cmocka_unit_test(test_own_engines),
        cmocka_unit_test(test_others_engines),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
