/* Asks an interpreter where its packages lie. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tuner/deliver/install.h"

enum { ANSWER_MS = 9000, END_MS = 2000 };

struct question {
    const char *script, *arg; /* of python -c */
    const void *input;        /* on its standard input, at most what a pipe takes at once */
    size_t len;
};
enum { MOST_INPUT = 32768, MOST_ANSWER = 1 << 20 };

/* -I: nothing from the caller's folder or environment is imported on the way, and -S: nothing that
 * a .pth file of the packages names; they may be another user's. What is compiled has no columns of
 * its instructions (Python 3.11; older ones pass over the option): less to read at each start. */
static int start(const char *python, const struct question *q, int in, int out, pid_t *ret)
{
    static char path[] = "PATH=/usr/bin:/bin", off[] = "NCCLTUNE_DISABLE=1";
    char *argv[] = {(char *)(uintptr_t)python,    "-ISXno_debug_ranges",     "-c",
                    (char *)(uintptr_t)q->script, (char *)(uintptr_t)q->arg, NULL},
         *env[] = {path, off, NULL};
    posix_spawn_file_actions_t files;
    int e = posix_spawn_file_actions_init(&files);

    if (e == 0) {
        (void)posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
        (void)posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
        (void)posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        e = posix_spawn(ret, python, &files, NULL, argv, env);
        (void)posix_spawn_file_actions_destroy(&files);
    }
    return e;
}

/* One line, within the time. */
static bool answer(int fd, char *out, size_t size)
{
    size_t len = 0;
    struct timespec t0, t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t0);
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        long left =
            ANSWER_MS - ((t.tv_sec - t0.tv_sec) * 1000 + (t.tv_nsec - t0.tv_nsec) / 1000000);
        if (left <= 0 || len + 1 == size || poll(&p, 1, (int)left) == 0) {
            return false;
        }
        n = read(fd, out + len, size - len - 1);
        if (n <= 0) {
            out[len] = '\0';
            return n == 0;
        }
        len += (size_t)n;
    }
}

static bool is_safe(const struct stat *st)
{
    return (st->st_uid == 0 || st->st_uid == geteuid()) &&
           ((st->st_mode & S_IWOTH) == 0 || (S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX) != 0));
}

/* Whoever can write to the interpreter would be run by us; and whoever can write to the environment
 * that it lies in, whose pyvenv.cfg says where it finds its modules. */
static int check_interpreter(const char *python, struct nt_err *err)
{
    static const char *const around[] = {".", "..", "pyvenv.cfg", "../pyvenv.cfg"};
    const char *slash = strrchr(python, '/');
    char path[PATH_MAX];
    struct stat st;
    if (slash == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "--python %s: name it by its path", python);
    }
    if (stat(python, &st) != 0) {
        return nt_fail(err, NT_E_INVAL, errno, "%s", python);
    }
    if (!S_ISREG(st.st_mode) || !is_safe(&st)) {
        return nt_fail(err, NT_E_NO, 0,
                       "%s: must be a file of root or of this user that others cannot write to",
                       python);
    }
    for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++) {
        (void)snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - python), python, around[i]);
        if (stat(path, &st) == 0 && !is_safe(&st)) {
            return nt_fail(err, NT_E_NO, 0,
                           "%s: %s must be root's or this user's, and nothing that others can "
                           "write to",
                           python, path);
        }
    }
    return 0;
}

/* Its end within the time. One that closes its output and goes on is ended. */
static bool ended_well(pid_t child)
{
    const struct timespec wait = {.tv_nsec = 10000000};
    int status = 0;

    for (int ms = 0; ms < END_MS; ms += 10) {
        if (waitpid(child, &status, WNOHANG) != 0) {
            return status == 0;
        }
        (void)nanosleep(&wait, NULL);
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
    return false;
}

/* What the script prints; false: it could not be started, failed, or took too long. */
static bool ask(const char *python, const struct question *q, char *out, size_t size)
{
    int in[2], fds[2];
    bool told = false;
    pid_t child = -1;

    if (q->len > MOST_INPUT || pipe2(in, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(fds, O_CLOEXEC) != 0) {
        (void)close(in[0]);
        (void)close(in[1]);
        return false;
    }
    told = write(in[1], q->input, q->len) == (ssize_t)q->len &&
           start(python, q, in[0], fds[1], &child) == 0;
    (void)close(in[0]);
    (void)close(in[1]);
    (void)close(fds[1]);
    if (told) {
        told = answer(fds[0], out, size);
        if (!told) {
            (void)kill(child, SIGKILL);
        }
        told = ended_well(child) && told;
    }
    (void)close(fds[0]);
    return told;
}

int nt_python_packages(const char *python, char *out, size_t size, struct nt_err *err)
{
    /* Only `site`, which is not run, would know of a virtual environment before Python 3.14. */
    static const char script[] =
        "import os, sys, sysconfig as s\n"
        "b = os.path.dirname(os.path.abspath(sys.executable))\n"
        "v = [d for d in (b, os.path.dirname(b)) if os.path.isfile(os.path.join(d, "
        "'pyvenv.cfg'))]\n"
        "print(s.get_path('purelib', 'posix_prefix', {'base': os.path.dirname(b)}) if v "
        "else s.get_path('purelib'))\n";
    const struct question q = {.script = script, .input = ""};
    char text[PATH_MAX] = "";
    int rc = check_interpreter(python, err);

    if (rc != 0) {
        return rc;
    }
    if (!ask(python, &q, text, sizeof(text))) {
        text[0] = '\0';
    }
    text[strcspn(text, "\n")] = '\0';
    if (text[0] != '/' || (size_t)snprintf(out, size, "%s", text) >= size) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%s does not say where its packages lie (it has %d s): no Python?", python,
                       ANSWER_MS / 1000);
    }
    return 0;
}

static int nibble(char c)
{
    const char *digits = "0123456789abcdef", *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* Code by hash and not to be checked: no start needs to look at the source, and none writes the
 * file anew. */
bool nt_python_compile(const char *python, const char *source, size_t len, const char *path,
                       char *ret_name, size_t size, struct nt_buf *out)
{
    static const char script[] =
        "import sys, marshal, importlib.util as u\n"
        "s = sys.stdin.buffer.read()\n"
        "c = compile(s, sys.argv[1], 'exec', dont_inherit=True, optimize=2)\n"
        "print(u.cache_from_source('nccltune_loader.py'))\n"
        "print((u.MAGIC_NUMBER + (1).to_bytes(4, 'little') + u.source_hash(s) "
        "+ marshal.dumps(c)).hex())\n";
    const struct question q = {.script = script, .arg = path, .input = source, .len = len};
    char *text = calloc(1, MOST_ANSWER), *hex, *end;
    bool good = text != NULL && ask(python, &q, text, MOST_ANSWER);

    hex = good ? strchr(text, '\n') : NULL;
    good = hex != NULL && strncmp(text, "__pycache__/", 12) == 0;
    if (good) {
        *hex++ = '\0';
        end = hex + strcspn(hex, "\n");
        good = (size_t)snprintf(ret_name, size, "%s", text) < size &&
               strchr(text + 12, '/') == NULL && end > hex && (end - hex) % 2 == 0;
        for (; good && hex < end; hex += 2) {
            int high = nibble(hex[0]), low = nibble(hex[1]);
            char byte = (char)(high * 16 + low);
            good = high >= 0 && low >= 0;
            nt_buf_add(out, &byte, 1);
        }
    }
    free(text);
    return good && !out->failed;
}
