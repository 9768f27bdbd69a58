#include "tuner/job/workdir.h"
#include "tuner/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "nccltune-"

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    (void)remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* An MPS daemon outlives a killed driver. It is known by the folder in its own environment. */
static void end_daemon(const char *dir)
{
    char want[128];
    struct dirent *e;
    DIR *proc = opendir("/proc");
    int n = snprintf(want, sizeof(want), "CUDA_MPS_PIPE_DIRECTORY=%s/", dir);

    while (proc != NULL && (e = readdir(proc)) != NULL) {
        char path[300], env[16384], comm[64] = "";
        long pid = strtol(e->d_name, NULL, 10);
        FILE *f;
        size_t len;
        if (pid <= 1) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
        f = fopen(path, "re");
        if (f == NULL || fgets(comm, sizeof(comm), f) == NULL ||
            strncmp(comm, "nvidia-cuda-mps", 15) != 0) {
            if (f != NULL) {
                (void)fclose(f);
            }
            continue;
        }
        (void)fclose(f);
        (void)snprintf(path, sizeof(path), "/proc/%ld/environ", pid);
        f = fopen(path, "re");
        len = f != NULL ? fread(env, 1, sizeof(env), f) : 0;
        if (f != NULL) {
            (void)fclose(f);
        }
        if (memmem(env, len, want, (size_t)n) != NULL) {
            (void)kill((pid_t)pid, SIGKILL);
        }
    }
    if (proc != NULL) {
        (void)closedir(proc);
    }
}

/* A folder of ours without a living owner: nobody holds its lock. */
static void sweep(const char *base)
{
    struct dirent *e;
    DIR *dir = opendir(base);

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        char path[PATH_MAX], lock[PATH_MAX];
        struct stat st;
        int fd;
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
            strlen(e->d_name) != strlen(PREFIX) + 6) {
            continue;
        }
        if (snprintf(path, sizeof(path), "%s/%s", base, e->d_name) >= (int)sizeof(path) ||
            snprintf(lock, sizeof(lock), "%s/lock", path) >= (int)sizeof(lock) ||
            lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
            (st.st_mode & 077) != 0) {
            continue;
        }
        fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            nt_log(NT_INFO, "clearing %s, left by a job that was killed", path);
            end_daemon(path);
            remove_tree(path);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

/* Under its name only once it is held: who sweeps at that moment never finds it free. */
static int make_lock(const char *dir)
{
    char fresh[96], lock[96];
    int fd;

    (void)snprintf(fresh, sizeof(fresh), "%s/lock.new", dir);
    (void)snprintf(lock, sizeof(lock), "%s/lock", dir);
    fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) != 0 || rename(fresh, lock) != 0)) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

int nt_workdir_make(const char *tmpdir, struct nt_workdir *ret, struct nt_err *err)
{
    const char *named = tmpdir != NULL && tmpdir[0] != '\0' ? tmpdir : "/tmp";
    char base[PATH_MAX]; /* absolute: the ranks run elsewhere */
    struct nt_workdir w = {.lock = -1};

    if (realpath(named, base) == NULL) {
        return nt_fail(err, NT_E_IO, errno, "create a private folder in %.200s", named);
    }

    sweep(base);
    if (snprintf(w.path, sizeof(w.path), "%s/" PREFIX "XXXXXX", base) >= (int)sizeof(w.path)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "%.200s: too long for sockets below it; set TMPDIR to a shorter folder",
                       base);
    }
    if (mkdtemp(w.path) == NULL) {
        return nt_fail(err, NT_E_IO, errno, "create a private folder in %s", base);
    }
    w.lock = make_lock(w.path);
    if (w.lock < 0) {
        int saved = errno;
        remove_tree(w.path);
        return nt_fail(err, NT_E_IO, saved, "lock %s", w.path);
    }
    *ret = w;
    return 0;
}

void nt_workdir_remove(struct nt_workdir *w)
{
    if (w->path[0] != '\0') {
        remove_tree(w->path);
        (void)close(w->lock);
        *w = (struct nt_workdir){.lock = -1};
    }
}
