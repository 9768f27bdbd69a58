/* tree - a folder of a test's own, whose path is the test's state. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline int tree_make(void **state)
{
    char *path =
        strdup(access("/dev/shm", W_OK) == 0 ? "/dev/shm/nt-job-XXXXXX" : "/tmp/nt-job-XXXXXX");
    assert_non_null(path);
    assert_non_null(mkdtemp(path));
    *state = path;
    return 0;
}

static inline int tree_remove_one(const char *path, const struct stat *st, int type,
                                  struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline int tree_remove(void **state)
{
    assert_int_equal(nftw(*state, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    free(*state);
    return 0;
}

/* Entries of a folder. */
static inline size_t tree_count(const char *path)
{
    size_t n = 0;
    DIR *d = opendir(path);

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    (void)closedir(d);
    return n;
}
