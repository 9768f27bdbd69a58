/* The daemon's part is played by shell scripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tuner/base/buf.h"
#include "tuner/gang/mps.h"

/* A daemon that opens its socket (a plain file will do) and ends when a second one reads "quit". */
#define CLIENT                                                                                     \
    "if [ \"$1\" != -f ]; then read w; echo \"$w\" > \"$CUDA_MPS_PIPE_DIRECTORY/said\"; exit; "    \
    "fi\n"
#define OPEN "echo $$ > pid; : > \"$CUDA_MPS_PIPE_DIRECTORY/control\"\n"
#define WAIT "while [ ! -s \"$CUDA_MPS_PIPE_DIRECTORY/said\" ]; do sleep 0.02; done\n"

struct run {
    struct nt_mps *mps;
    unsigned readys, ends;
    bool failed;
    struct nt_err err;
};

static void on_ready(void *data, struct nt_mps *m)
{
    struct run *r = data;
    r->readys++;
    nt_mps_stop(m);
}

static void on_end(void *data, struct nt_mps *m, const struct nt_err *err)
{
    struct run *r = data;
    assert_ptr_equal(m, r->mps); /* so nt_mps_start() has returned */
    r->ends++;
    r->failed = err != NULL;
    if (err != NULL) {
        r->err = *err;
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static struct run run_daemon(const char *script, char *dir)
{
    struct run r = {0};
    struct nt_mps_events events = {on_ready, on_end, &r};
    const char *env[] = {"CUDA_VISIBLE_DEVICES=0", NULL};
    char path[100];
    struct nt_mps_spec spec = {
        .dir = dir, .program = path, .env = env, .start_ms = 400, .stop_ms = 300};
    uv_loop_t loop;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/daemon", dir);
    if (script != NULL) {
        char text[1000];
        (void)snprintf(text, sizeof(text), "#!/bin/sh\n%s", script);
        assert_int_equal(nt_write_file(path, text, strlen(text), 0700, NULL), 0);
    }
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(nt_mps_start(&loop, &spec, &events, &r.mps, NULL), 0);
    assert_int_equal(r.ends, 0);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(r.ends, 1);
    (void)snprintf(path, sizeof(path), "%s/pipe", dir);
    assert_int_not_equal(access(path, F_OK), 0);
    (void)snprintf(path, sizeof(path), "%s/log", dir);
    assert_int_not_equal(access(path, F_OK), 0);
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return r;
}

static void test_daemons(void **state)
{
    static const struct {
        const char *name, *script;
        unsigned readys;
        enum nt_code code; /* NT_OK: ended well */
        const char *says;
    } rows[] = {
        {"works", CLIENT OPEN WAIT, 1, NT_OK, ""},
        {"deaf to quit", CLIENT OPEN "sleep 60", 1, NT_OK, ""},
        {"deaf to all", CLIENT "trap '' TERM\n" OPEN "sleep 60; sleep 60", 1, NT_OK, ""},
        {"never opens", CLIENT "sleep 60", 0, NT_E_IO, "did not open its control socket"},
        {"ends at once", CLIENT "echo no device; exit 7", 0, NT_E_IO,
         "ended by itself (exit code 7, signal 0); its log ends: no device"},
        {"is not there", NULL, 0, NT_E_MISSING, "is not here"},
        {"sees its variables",
         CLIENT "[ \"$CUDA_VISIBLE_DEVICES\" = 0 ] && [ -z \"$HOME\" ] && "
                "[ -d \"$CUDA_MPS_LOG_DIRECTORY\" ] || exit 9\n" OPEN WAIT,
         1, NT_OK, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char dir[] = "/tmp/nt-mps-XXXXXX";
        struct run r = run_daemon(rows[i].script, dir);
        if (r.readys != rows[i].readys || r.failed != (rows[i].code != NT_OK) ||
            (r.failed && (r.err.code != rows[i].code || strstr(r.err.msg, rows[i].says) == NULL))) {
            fail_msg("%s: readys %u, '%s'", rows[i].name, r.readys, r.err.msg);
        }
    }
}

static void on_ready_die(void *data, struct nt_mps *m)
{
    (void)data;
    (void)m;
    (void)kill(getpid(), SIGKILL);
}

/* A daemon that heeds no TERM, with a server in a session of its own; who started it is killed. */
static void test_ends_with_the_driver(void **state)
{
    static const char script[] =
        "#!/bin/sh\ntrap '' TERM\nsetsid sleep 1000 &\n" OPEN "while :; do sleep 1000; done";
    const struct nt_mps_events events = {on_ready_die, on_end, NULL};
    char dir[] = "/tmp/nt-mps-XXXXXX", path[64];
    struct nt_mps_spec spec = {.dir = dir, .program = path};
    struct nt_mps *m;
    uv_loop_t loop;
    int how, left = 1000;
    pid_t driver, pid;
    (void)state;

    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0); /* all orphans are ours */
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/daemon", dir);
    assert_int_equal(nt_write_file(path, script, strlen(script), 0700, NULL), 0);
    driver = fork();
    if (driver == 0) {
        if (uv_loop_init(&loop) == 0 && nt_mps_start(&loop, &spec, &events, &m, NULL) == 0) {
            (void)uv_run(&loop, UV_RUN_DEFAULT);
        }
        _exit(1);
    }
    assert_int_equal(waitpid(driver, &how, 0), driver);
    assert_true(WIFSIGNALED(how));
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && left-- > 0) {
        (void)usleep(pid == 0 ? 10000 : 0);
    }
    assert_true(left > 0);
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_long_folder(void **state)
{
    struct nt_mps_events events = {on_ready, on_end, NULL};
    struct nt_mps *m = NULL;
    struct nt_err err;
    uv_loop_t loop;
    (void)state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(
        nt_mps_start(&loop,
                     &(struct nt_mps_spec){
                         .dir = "/tmp/a/folder/with/a/name/that/leaves/no/room/for/the/sockets/of/"
                                "the/daemon/below/it"},
                     &events, &m, &err),
        -NT_E_INVAL);
    assert_non_null(strstr(err.msg, "room for its sockets"));
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_env(void **state)
{
    char vars[NT_MPS_VARS][NT_MPS_VAR_SIZE];
    (void)state;
    nt_mps_env("/run/x", vars);
    assert_string_equal(vars[0], "CUDA_MPS_PIPE_DIRECTORY=/run/x/pipe");
    assert_string_equal(vars[1], "CUDA_MPS_LOG_DIRECTORY=/run/x/log");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_daemons), cmocka_unit_test(test_ends_with_the_driver),
        cmocka_unit_test(test_long_folder), cmocka_unit_test(test_env)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
