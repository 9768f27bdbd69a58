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

enum { ANSWER_MS = 20000 };

/* -I: nothing from the caller's folder or environment is imported on the way. */
static int start(const char *python, int out, pid_t *ret)
{
    static char script[] = "import sysconfig; print(sysconfig.get_path('purelib'))";
    static char path[] = "PATH=/usr/bin:/bin", off[] = "NCCLTUNE_DISABLE=1";
    char *argv[] = {(char *)(uintptr_t)python, "-I", "-c", script, NULL},
         *env[] = {path, off, NULL};
    posix_spawn_file_actions_t files;
    int e = posix_spawn_file_actions_init(&files);

    if (e == 0) {
        (void)posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
        (void)posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
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

/* Whoever can write to the interpreter would be run by us. */
static int check_interpreter(const char *python, struct nt_err *err)
{
    struct stat st;
    if (python[0] != '/' && strchr(python, '/') == NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "--python %s: name it by its path", python);
    }
    if (stat(python, &st) != 0) {
        return nt_fail(err, NT_E_INVAL, errno, "%s", python);
    }
    if (!S_ISREG(st.st_mode) || (st.st_uid != 0 && st.st_uid != geteuid()) ||
        (st.st_mode & S_IWOTH) != 0) {
        return nt_fail(err, NT_E_NO, 0,
                       "%s: must be a file of root or of this user that others cannot write to",
                       python);
    }
    return 0;
}

int nt_python_packages(const char *python, char *out, size_t size, struct nt_err *err)
{
    char text[PATH_MAX] = "";
    int fds[2], e, status = 0, rc = check_interpreter(python, err);
    bool told = false;
    pid_t child = -1;

    if (rc != 0) {
        return rc;
    }
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return nt_fail(err, NT_E_IO, errno, "pipe");
    }
    e = start(python, fds[1], &child);
    (void)close(fds[1]);
    if (e == 0) {
        told = answer(fds[0], text, sizeof(text));
        if (!told) {
            (void)kill(child, SIGKILL);
        }
        (void)waitpid(child, &status, 0);
    }
    (void)close(fds[0]);
    text[strcspn(text, "\n")] = '\0';
    if (e != 0 || !told || status != 0 || text[0] != '/' ||
        (size_t)snprintf(out, size, "%s", text) >= size) {
        return nt_fail(err, NT_E_INVAL, e, "%s does not say where its packages lie: no Python?",
                       python);
    }
    return 0;
}
