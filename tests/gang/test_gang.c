/* Real ranks that do everything wrong, many gangs at once on one loop; afterwards nothing is left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tuner/gang/gang.h"

enum { WORLD = 2, MEASURES = 10, LONG_MS = 40000, SHORT_MS = 400, COUNT_MAX = 64 };
enum manner { ASK, STOP_AT_ONCE, STOP_BUSY, KILL_BUSY, INTRUDE, STALL };
enum { NO_RESULT = -1 };

struct row {
    const char *fault;
    enum nt_gang_end how;
    int status;       /* of every result that is not told wrong by `wrong`; NO_RESULT: none comes */
    unsigned wrong;   /* measures whose data is wrong */
    bool late;        /* ends in a crashed measure, the first or the one after */
    const char *says; /* in the words of the end, or of the last result */
    enum manner manner;
    struct nt_gang_times times; /* zero: LONG_MS */
};

#define SHORT(stage) .times = {.stage = SHORT_MS}
static const struct row rows[] = {
    {.fault = "", .how = NT_GANG_DONE, .says = ""},
    {.fault = "hang at start",
     .how = NT_GANG_TIMEOUT,
     .status = NO_RESULT,
     .says = "did not say hello",
     SHORT(hello_ms)},
    {.fault = "silent",
     .how = NT_GANG_TIMEOUT,
     .status = NO_RESULT,
     .says = "did not say hello",
     SHORT(hello_ms)},
    {.fault = "hang at init",
     .how = NT_GANG_TIMEOUT,
     .status = NO_RESULT,
     .says = "rank 1 did not get ready",
     SHORT(init_ms)},
    {.fault = "hang at measure",
     .how = NT_GANG_TIMEOUT,
     .status = NT_ST_TIMEOUT,
     .says = "rank 1 did not answer",
     SHORT(slack_ms)},
    {.fault = "hang at cells",
     .how = NT_GANG_TIMEOUT,
     .status = NO_RESULT,
     .says = "rank 1 did not answer",
     SHORT(cells_ms)},
    {.fault = "hang at quit",
     .how = NT_GANG_TIMEOUT,
     .says = "rank 1 did not end when told to",
     SHORT(quit_ms)},
    {.fault = "deaf at quit",
     .how = NT_GANG_TIMEOUT,
     .says = "rank 1 did not end when told to",
     .times = {.quit_ms = SHORT_MS, .grace_ms = SHORT_MS}},
    {.fault = "deaf at measure",
     .how = NT_GANG_TIMEOUT,
     .status = NT_ST_TIMEOUT,
     .says = "rank 1 did not answer",
     .times = {.slack_ms = SHORT_MS, .grace_ms = SHORT_MS}},
    {.fault = "exit at start",
     .how = NT_GANG_CRASHED,
     .status = NO_RESULT,
     .says = "rank 1 ended with exit code 3; its log ends: words of a rank that ends"},
    {.fault = "exit at init",
     .how = NT_GANG_CRASHED,
     .status = NO_RESULT,
     .says = "rank 1 ended with exit code 3"},
    {.fault = "crash at init",
     .how = NT_GANG_CRASHED,
     .status = NO_RESULT,
     .says = "rank 1 ended by signal 11"},
    {.fault = "crash at measure",
     .how = NT_GANG_CRASHED,
     .status = NT_ST_CRASHED,
     .says = "rank 1 ended by signal 11"},
    {.fault = "exit at quit", .how = NT_GANG_CRASHED, .says = "rank 1 ended with exit code 3"},
    {.fault = "error at hello",
     .how = NT_GANG_SAID,
     .status = NO_RESULT,
     .says = "a rank that has not said hello: no such GPU"},
    {.fault = "error at init",
     .how = NT_GANG_SAID,
     .status = NO_RESULT,
     .says = "rank 1: no such GPU"},
    {.fault = "error at measure",
     .how = NT_GANG_SAID,
     .status = NT_ST_ERROR,
     .says = "rank 1: no such GPU"},
    {.fault = "other world",
     .how = NT_GANG_BROKE,
     .status = NO_RESULT,
     .says = "is one of 3, this gang has 2"},
    {.fault = "unknown rank", .how = NT_GANG_BROKE, .status = NO_RESULT, .says = "is one of 3"},
    {.fault = "same rank",
     .how = NT_GANG_BROKE,
     .status = NO_RESULT,
     .says = "the number of one that is there already"},
    {.fault = "other version",
     .how = NT_GANG_BROKE,
     .status = NO_RESULT,
     .says = "protocol version 2, the driver 1"},
    {.fault = "no hello", .how = NT_GANG_BROKE, .status = NO_RESULT, .says = "first message"},
    {.fault = "hello twice", .how = NT_GANG_BROKE, .status = NO_RESULT, .says = "hello twice"},
    {.fault = "ready unasked",
     .how = NT_GANG_BROKE,
     .status = NO_RESULT,
     .says = "ready without being asked"},
    {.fault = "uid unasked",
     .how = NT_GANG_BROKE,
     .status = NO_RESULT,
     .says = "id without being asked"},
    {.fault = "garbage",
     .how = NT_GANG_BROKE,
     .status = NT_ST_CRASHED,
     .says = "rank 1: message is not JSON"},
    {.fault = "long line",
     .how = NT_GANG_BROKE,
     .status = NT_ST_CRASHED,
     .says = "rank 1: a line that is too long"},
    {.fault = "answer twice",
     .how = NT_GANG_BROKE,
     .status = NT_ST_OK,
     .late = true,
     .says = "rank 1:"},
    {.fault = "other id",
     .how = NT_GANG_BROKE,
     .status = NT_ST_CRASHED,
     .says = "rank 1: answered question 1 when asked 0"},
    {.fault = "fewer samples",
     .how = NT_GANG_BROKE,
     .status = NT_ST_CRASHED,
     .says = "gave 4 samples when asked for 5"},
    {.fault = "answer and exit",
     .how = NT_GANG_CRASHED,
     .status = NT_ST_OK,
     .late = true,
     .says = "rank 1 ended with exit code 3"},
    {.fault = "driver's words",
     .how = NT_GANG_BROKE,
     .status = NT_ST_CRASHED,
     .says = "only the driver"},
    {.fault = "cells instead",
     .how = NT_GANG_BROKE,
     .status = NT_ST_CRASHED,
     .says = "an answer to no question"},
    {.fault = "closed stream", .how = NT_GANG_CRASHED, .status = NT_ST_CRASHED, .says = "rank 1 "},
    {.fault = "other tuple",
     .how = NT_GANG_DONE,
     .status = NT_ST_DISAGREE,
     .says = "ring/ll/4/8 and ring/ll/5/8"},
    {.fault = "unavailable",
     .how = NT_GANG_DONE,
     .status = NT_ST_DISAGREE,
     .says = "some ranks only"},
    {.fault = "wrong above 2M", .how = NT_GANG_DONE, .wrong = 0x3e0, .says = "wrong"},
    {.fault = "wrong in place", .how = NT_GANG_DONE, .wrong = 0x2aa, .says = "wrong"},
    {.fault = "wrong 3 of 10", .how = NT_GANG_DONE, .wrong = 0x007, .says = ""},
    {.fault = "grandchild", .how = NT_GANG_DONE, .says = ""},
    {.fault = "",
     .how = NT_GANG_CANCELLED,
     .status = NO_RESULT,
     .manner = STOP_AT_ONCE,
     .says = ""},
    {.fault = "hang at measure",
     .how = NT_GANG_TIMEOUT,
     .status = NO_RESULT,
     .manner = STOP_BUSY,
     .says = "did not end when told to",
     SHORT(quit_ms)},
    {.fault = "deaf at measure",
     .how = NT_GANG_CANCELLED,
     .status = NO_RESULT,
     .manner = KILL_BUSY,
     .says = "cancelled"},
    {.fault = "", .how = NT_GANG_DONE, .manner = INTRUDE, .says = ""},
    {.fault = "", .how = NT_GANG_DONE, .manner = STALL, .says = "", SHORT(slack_ms)},
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

struct run {
    const struct row *row;
    struct nt_gang *gang;
    char dir[64];
    unsigned asked, results, dropped, ends, readys, answered_cells;
    bool started;
    char words[1100]; /* of the last failed result and of the end */
};

static void bad(const struct run *r, const char *what)
{
    fail_msg("'%s' (manner %d): %s; %s", r->row->fault, (int)r->row->manner, what, r->words);
}

static void measure(struct run *r)
{
    struct nt_measure m = {.id = r->asked,
                           .cs = {.bytes = r->asked < 5 ? 1 << 20 : 4 << 20,
                                  .coll = NT_ALL_REDUCE,
                                  .place = r->asked % 2},
                           .call = NT_CALL_DEFAULT,
                           .samples = 5,
                           .deadline_ms = 100};
    r->asked++;
    nt_gang_measure(r->gang, &m);
}

static void intrude(const struct run *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/driver", r->dir);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(write(fd, "hello\n", 6), 6);
    (void)close(fd);
}

static void on_ready(void *data, struct nt_gang *g, const struct nt_hello *hello,
                     const struct nt_ready *ready)
{
    struct run *r = data;
    r->readys++;
    if (!r->started || g != r->gang || hello[1].rank != 1 || ready[1].init_ns != 8) {
        bad(r, "not the right ranks");
    }
    if (r->row->manner == INTRUDE) {
        intrude(r);
    }
    nt_gang_cells(g, &(struct nt_case){.bytes = 1024, .coll = NT_ALL_REDUCE});
}

static void on_cells(void *data, struct nt_gang *g, const struct nt_cells *cells)
{
    struct run *r = data;
    r->answered_cells++;
    if (cells == NULL) {
        return;
    }
    if (cells->cost[NT_RING][NT_LL] != 3 || !cells->asked) {
        bad(r, "not the greatest cost");
    }
    measure(r);
    if (r->row->manner == STOP_BUSY) {
        nt_gang_stop(g);
    } else if (r->row->manner == KILL_BUSY) {
        nt_gang_kill(g);
    }
}

static void on_result(void *data, struct nt_gang *g, const struct nt_gang_result *result)
{
    struct run *r = data;
    bool wrong = (r->row->wrong >> result->id) & 1;
    enum nt_status want = wrong ? NT_ST_WRONG : (enum nt_status)r->row->status;

    (void)snprintf(r->words, sizeof(r->words), "%s", result->error);
    if (r->row->late && result->status == NT_ST_CRASHED) {
        want = NT_ST_CRASHED;
    }
    if (result->id != r->results || result->status != want) {
        bad(r, nt_status_names[result->status]);
    }
    if (want == NT_ST_OK &&
        (result->count != 5 || result->ns[0] != 1001 || result->ns[4] != 1041)) {
        bad(r, "not the slowest rank's samples");
    }
    r->results++;
    /* A question inside the answer of a gang that failed is dropped. */
    r->dropped += want == NT_ST_TIMEOUT || want == NT_ST_CRASHED || want == NT_ST_ERROR;
    if (r->results < MEASURES) {
        measure(r);
        if (r->row->manner == STALL && r->results == 3) { /* the answer is there, and not heard */
            (void)usleep(1000 * (100 + SHORT_MS + 200));
        }
    } else {
        nt_gang_stop(g);
    }
}

static void on_end(void *data, struct nt_gang *g, enum nt_gang_end how, const struct nt_err *err)
{
    struct run *r = data;
    size_t n = strlen(r->words);

    r->ends++;
    (void)snprintf(r->words + n, sizeof(r->words) - n, " / %s", err->msg);
    if (!r->started || g != r->gang) {
        bad(r, "ended before it had started");
    }
    if (how != r->row->how || strstr(r->words, r->row->says) == NULL) {
        bad(r, nt_gang_end_names[how]);
    }
    if ((how == NT_GANG_DONE) != (err->code == NT_OK)) {
        bad(r, "error code and end differ");
    }
}

static void start(uv_loop_t *loop, struct run *r, const struct row *row)
{
    char fault[64];
    const char *env[] = {"FAULT_RANK=1", fault, NULL};
    struct nt_gang_events events = {on_ready, on_cells, on_result, on_end, r};
    uint32_t long_ms = LONG_MS;
    struct nt_gang_spec spec = {.world = WORLD,
                                .program = getenv("FAULT_PROBE"),
                                .env = env,
                                .dir = r->dir,
                                .init = {.backend = "test"},
                                .times = row->times};
    uint32_t *ms[] = {&spec.times.hello_ms, &spec.times.init_ms, &spec.times.cells_ms,
                      &spec.times.slack_ms, &spec.times.quit_ms, &spec.times.grace_ms};
    struct nt_err err = {0};

    for (size_t i = 0; i < sizeof(ms) / sizeof(ms[0]); i++) {
        *ms[i] = *ms[i] != 0 ? *ms[i] : long_ms;
    }
    *r = (struct run){.row = row};
    (void)snprintf(r->dir, sizeof(r->dir), "/tmp/nt-gang-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    (void)snprintf(fault, sizeof(fault), "FAULT=%s", row->fault);
    if (nt_gang_start(loop, &spec, &events, &r->gang, &err) != 0) {
        fail_msg("%s: %s", row->fault, err.msg);
    }
    r->started = true;
    if (row->manner == STOP_AT_ONCE) {
        nt_gang_stop(r->gang);
    }
}

/* ---- what must not be left ---- */

static bool group_lives(long group)
{
    DIR *dir = opendir("/proc");
    struct dirent *e;
    bool lives = false;

    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL) {
        char path[300], line[600] = "", *end;
        FILE *in;
        (void)snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
        in = e->d_name[0] >= '0' && e->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (in == NULL) {
            continue;
        }
        /* "PID (NAME) STATE PARENT GROUP ..." */
        if (fgets(line, sizeof(line), in) != NULL && (end = strrchr(line, ')')) != NULL &&
            strlen(end) > 4 && end[2] != 'Z' && end[2] != 'X') {
            (void)strtol(end + 3, &end, 10);
            lives = lives || strtol(end, NULL, 10) == group;
        }
        (void)fclose(in);
    }
    (void)closedir(dir);
    return lives;
}

static long pid_of(const struct run *r, unsigned rank)
{
    char path[100], text[32];
    long pid = 0;
    FILE *in;
    (void)snprintf(path, sizeof(path), "%s/rank-%u.pid", r->dir, rank);
    in = fopen(path, "re");
    if (in != NULL) {
        if (fgets(text, sizeof(text), in) != NULL) {
            pid = strtol(text, NULL, 10);
        }
        (void)fclose(in);
    }
    return pid;
}

static bool exists(const char *dir, const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void check_gone(const struct run *r)
{
    for (unsigned rank = 0; rank < WORLD; rank++) {
        long pid = pid_of(r, rank);
        char name[32];
        (void)snprintf(name, sizeof(name), "nccl-%06ld", pid);
        if (pid > 0 && exists("/dev/shm", name)) {
            bad(r, "left its shared memory");
        }
        for (unsigned i = 0; pid > 0 && group_lives(pid); i++) {
            if (i == 200) { /* KILL was sent; the kernel may need a moment */
                bad(r, "left a process");
            }
            (void)usleep(10000);
        }
    }
    if (exists(r->dir, "driver") || exists(r->dir, "barrier")) {
        bad(r, "left its socket or barrier");
    }
    if (!exists(r->dir, "rank-0.log") || !exists(r->dir, "rank-1.log")) {
        bad(r, "kept no log");
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static unsigned open_files(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        n++;
    }
    (void)closedir(dir);
    return n;
}

static void test_faults(void **state)
{
    static struct run runs[ROWS];
    static const char foreign[] = "/dev/shm/nccl-not-of-this-gang";
    unsigned before = open_files();
    uv_loop_t loop;
    int fd = open(foreign, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(uv_loop_init(&loop), 0);
    for (size_t i = 0; i < ROWS; i++) {
        start(&loop, &runs[i], &rows[i]);
    }
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(open_files(), before);
    for (size_t i = 0; i < ROWS; i++) {
        const struct run *r = &runs[i];
        unsigned want = rows[i].status == NO_RESULT ? 0 : r->asked - r->dropped;
        if (r->ends != 1 || r->results != want || r->readys > 1 || r->answered_cells != r->readys ||
            (rows[i].how == NT_GANG_DONE && r->results != MEASURES)) {
            bad(r, "answers are missing or too many");
        }
        check_gone(r);
        (void)nftw(r->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    assert_int_equal(access(foreign, F_OK), 0);
    (void)unlink(foreign);
}

/* ---- starts ---- */

struct outcome {
    unsigned ends;
    enum nt_gang_end how;
    struct nt_err err;
};

static void stop_when_ready(void *data, struct nt_gang *g, const struct nt_hello *hello,
                            const struct nt_ready *ready)
{
    (void)data;
    (void)hello;
    (void)ready;
    nt_gang_stop(g);
}

static void note_end(void *data, struct nt_gang *g, enum nt_gang_end how, const struct nt_err *err)
{
    struct outcome *o = data;
    (void)g;
    o->ends++;
    o->how = how;
    o->err = *err;
}

static struct outcome run_one(const struct nt_gang_spec *spec)
{
    struct outcome o = {0};
    struct nt_gang_events events = {.on_ready = stop_when_ready, .on_end = note_end, .data = &o};
    struct nt_gang *g = NULL;
    uv_loop_t loop;

    assert_int_equal(uv_loop_init(&loop), 0);
    if (nt_gang_start(&loop, spec, &events, &g, &o.err) == 0) {
        assert_int_equal(o.ends, 0);
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        assert_int_equal(o.ends, 1);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
    return o;
}

static void test_starts_that_fail(void **state)
{
    char dir[] = "/tmp/nt-gang-XXXXXX", path[200];
    char deep[200];
    struct nt_gang_spec good = {.world = WORLD, .program = getenv("FAULT_PROBE"), .dir = dir}, s;
    struct outcome o;

    (void)state;
    assert_non_null(mkdtemp(dir));
    s = good;
    s.program = "/no/such/probe";
    o = run_one(&s);
    assert_int_equal(o.how, NT_GANG_NO_START);
    assert_int_equal(o.err.code, NT_E_MISSING);
    assert_non_null(strstr(o.err.msg, "start /no/such/probe: No such file"));

    s = good;
    s.dir = "/no/such/folder";
    o = run_one(&s);
    assert_int_equal(o.how, NT_GANG_NO_START);
    assert_non_null(strstr(o.err.msg, "/no/such/folder"));

    (void)snprintf(path, sizeof(path), "%s/driver", dir); /* something lies where the socket goes */
    assert_int_equal(mkdir(path, 0700), 0);
    o = run_one(&good);
    assert_int_equal(o.how, NT_GANG_NO_START);
    assert_non_null(strstr(o.err.msg, "listen on"));
    assert_int_equal(rmdir(path), 0);

    memset(deep, 'd', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    s = good;
    s.dir = deep;
    o = run_one(&s);
    assert_int_equal(o.ends, 0);
    assert_non_null(strstr(o.err.msg, "room for a socket's name"));
    s = good;
    s.world = 0;
    o = run_one(&s);
    assert_int_equal(o.ends, 0);
    assert_int_equal(o.err.code, NT_E_INVAL);

    o = run_one(&good); /* and after all that the folder still serves */
    assert_int_equal(o.how, NT_GANG_DONE);
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void read_log(const char *dir, unsigned rank, struct nt_buf *b)
{
    char path[200];
    nt_launch_log_path(dir, rank, path, sizeof(path));
    nt_buf_init(b, 1 << 20);
    assert_int_equal(nt_buf_read_file(b, path, NULL), 0);
}

static void test_what_ranks_get(void **state)
{
    char dir[] = "/tmp/nt-gang-XXXXXX", expect[400];
    char name[] = "NCCL_HOSTID", h0[] = "h0", h1[] = "h1", debug[] = "NCCL_DEBUG", warn[] = "WARN";
    struct nt_var rank_vars[WORLD] = {{name, h0}, {name, h1}};
    unsigned devices[WORLD] = {3, 5};
    const char *env[] = {"FAULT_PRINT=1", NULL};
    struct nt_gang_spec spec = {.world = WORLD,
                                .program = getenv("FAULT_PROBE"),
                                .env = env,
                                .dir = dir,
                                .mps = "/m",
                                .init = {.vars = {{debug, warn}}, .nvars = 1, .gang = 77},
                                .devices = devices,
                                .rank_vars = rank_vars,
                                .nrank_vars = 1};
    struct nt_buf b;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(run_one(&spec).how, NT_GANG_DONE);
    read_log(dir, 1, &b);
    (void)snprintf(expect, sizeof(expect),
                   "env FAULT_PRINT=1\nenv NCCLTUNE_WORLD=2\nenv NCCLTUNE_DRIVER=unix:%s/driver\n"
                   "env CUDA_MPS_PIPE_DIRECTORY=/m/pipe\nenv CUDA_MPS_LOG_DIRECTORY=/m/log\n"
                   "env NCCLTUNE_RANK=1\nvar NCCL_DEBUG=WARN\nvar NCCL_HOSTID=h1\n"
                   "device 5 gang 77\n",
                   dir);
    assert_string_equal(nt_buf_str(&b), expect); /* nothing else: no PATH, no HOME */
    nt_buf_done(&b);
    read_log(dir, 0, &b);
    assert_non_null(strstr(nt_buf_str(&b), "var NCCL_HOSTID=h0\ndevice 3 gang 77\n"));
    nt_buf_done(&b);
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_starts_that_fail),
                                       cmocka_unit_test(test_what_ranks_get),
                                       cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
