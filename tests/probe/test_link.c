#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "probes/protocol/protocol.h"

enum { PATIENCE_MS = 10000 };

/* Starts one fake rank with just these variables. */
static pid_t spawn(const char *const *env)
{
    char program[512];
    const char *dir = getenv("NT_BUILD_DIR");
    pid_t pid;
    (void)snprintf(program, sizeof(program), "%s/tests/probe/nccltune-probe-fake",
                   dir != NULL ? dir : "build/release");
    pid = fork();
    if (pid == 0) {
        (void)freopen("/dev/null", "w", stderr);
        (void)execle(program, program, (char *)NULL, env);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static int exit_code(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What a launcher got wrong: exit code 2, or 1 where nobody listens. */
static void test_bad_starts(void **state)
{
    static const struct {
        const char *env[4];
        int code;
    } rows[] = {{{NULL}, 2},
                {{"NCCLTUNE_RANK=0", "NCCLTUNE_WORLD=1"}, 2},
                {{"NCCLTUNE_RANK=x", "NCCLTUNE_WORLD=1", "NCCLTUNE_DRIVER=unix:/x"}, 2},
                {{"NCCLTUNE_RANK=1", "NCCLTUNE_WORLD=1", "NCCLTUNE_DRIVER=unix:/x"}, 2},
                {{"NCCLTUNE_RANK=0", "NCCLTUNE_WORLD=0", "NCCLTUNE_DRIVER=unix:/x"}, 2},
                {{"NCCLTUNE_RANK=0", "NCCLTUNE_WORLD=1", "NCCLTUNE_DRIVER=ftp:/x"}, 2},
                {{"NCCLTUNE_RANK=0", "NCCLTUNE_WORLD=1", "NCCLTUNE_DRIVER=tcp:host"}, 2},
                {{"NCCLTUNE_RANK=0", "NCCLTUNE_WORLD=1", "NCCLTUNE_DRIVER=unix:/nowhere/x"}, 1},
                {{"NCCLTUNE_RANK=0", "NCCLTUNE_WORLD=1", "NCCLTUNE_DRIVER=tcp:127.0.0.1:1:s"}, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int code = exit_code(spawn(rows[i].env));
        if (code != rows[i].code) {
            fail_msg("row %zu: exit code %d", i, code);
        }
    }
}

static int listen_on(int family, unsigned *ret_port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr *a = family == AF_INET ? (struct sockaddr *)&four : (struct sockaddr *)&six;
    socklen_t len = family == AF_INET ? sizeof(four) : sizeof(six);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (bind(fd, a, len) != 0 || listen(fd, 1) != 0 || getsockname(fd, a, &len) != 0)) {
        (void)close(fd);
        fd = -1;
    }
    *ret_port = ntohs(family == AF_INET ? four.sin_port : six.sin6_port);
    return fd;
}

/* Returns the connection, still open: its end is one of the things that end a rank. */
static int read_lines(int listener, unsigned lines, char *out, size_t size)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    size_t len = 0;
    int fd;
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    for (unsigned seen = 0; seen < lines && len + 1 < size;) {
        p = (struct pollfd){.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
        if (read(fd, out + len, 1) != 1) {
            break;
        }
        seen += out[len++] == '\n';
    }
    out[len] = '\0';
    return fd;
}

/* Over TCP the secret comes first; then everything is as over a Unix socket. What is missing is
 * said in words, with exit code 3. */
static void test_tcp(void **state)
{
    static const struct {
        int family;
        const char *host, *more, *says;
        int code;
    } rows[] = {
        {AF_INET, "127.0.0.1", "X=1", "\"hello\"", 5},
        {AF_INET6, "[::1]", "X=1", "\"hello\"", 5},
        {AF_INET, "127.0.0.1", "FAKE_DEV_COUNT=0", "no usable GPU: none visible; look at", 3},
        {AF_INET, "127.0.0.1", "NCCLTUNE_NCCL_LIB=/nowhere/libnccl.so.2",
         "set NCCLTUNE_NCCL_LIB to the path", 3},
        {AF_INET, "127.0.0.1", "NCCLTUNE_NCCL_LIB=libc.so.6", "has no ncclGetVersion; NCCL 2.", 3},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char driver[128], lib[512], text[8192];
        const char *env[] = {rows[i].more, "NCCLTUNE_RANK=0", "NCCLTUNE_WORLD=1", driver, lib,
                             NULL};
        const char *dir = getenv("NT_BUILD_DIR");
        unsigned port = 0;
        pid_t pid;
        int fd, listener = listen_on(rows[i].family, &port);
        if (listener < 0 && rows[i].family == AF_INET6) {
            continue; /* a machine without IPv6 */
        }
        assert_true(listener >= 0);
        (void)snprintf(driver, sizeof(driver), "NCCLTUNE_DRIVER=tcp:%s:%u:s3cret", rows[i].host,
                       port);
        (void)snprintf(lib, sizeof(lib), "NCCLTUNE_NCCL_LIB=%s/tests/probe/libfakenccl.so",
                       dir != NULL ? dir : "build/release");
        pid = spawn(env);
        fd = read_lines(listener, 2, text, sizeof(text));
        (void)close(listener);
        if (strncmp(text, "s3cret\n{", 8) != 0 || strstr(text, rows[i].says) == NULL) {
            fail_msg("row %zu: %s", i, text);
        }
        if (rows[i].code == 5) {
            (void)shutdown(fd, SHUT_RDWR);
        }
        assert_int_equal(exit_code(pid), rows[i].code);
        (void)close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_starts),
        cmocka_unit_test(test_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
