#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/base/json.h"
#include "tuner/deliver/install.h"
#include "tuner/deliver/safe.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static char root[64];
static const struct nt_install_file files[] = {
    {"/etc/nccltune/a", "one", 3, 0644, "profile"},
    {"/etc/nccltune/b", "two", 3, 0444, "profile"},
    {"/run/nccltune/active", "three", 5, 0644, "active"}};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/nt-install-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static char *in_root(const char *path)
{
    static char out[256];
    (void)snprintf(out, sizeof(out), "%s%s", root, path);
    return out;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(in_root(path), "we");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

/* "" when there is no such file. */
static const char *get(const char *path)
{
    static char text[256];
    FILE *f = fopen(in_root(path), "re");
    size_t n = f != NULL ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL) {
        (void)fclose(f);
    }
    return text;
}

static bool exists(const char *path)
{
    return access(in_root(path), F_OK) == 0;
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(in_root(path), &st), 0);
    return st.st_mode & 07777;
}

static int install(bool dry_run, struct nt_err *err)
{
    struct nt_buf said;
    int rc;
    nt_buf_init(&said, 4096);
    rc = nt_install(&(struct nt_install_where){root, dry_run}, files, COUNT(files), &said, err);
    nt_buf_done(&said);
    return rc;
}

static int uninstall(const char *part, const char *prefix, struct nt_err *err)
{
    struct nt_buf said;
    int rc;
    nt_buf_init(&said, 4096);
    rc = nt_uninstall(&(struct nt_install_where){root, false}, part, prefix, &said, err);
    nt_buf_done(&said);
    return rc;
}

/* Nothing but folders is there: no file of ours, no temporary, no manifest. */
static unsigned leftovers;
static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path, (void)st, (void)ftw;
    leftovers += type != FTW_D && type != FTW_DP;
    return 0;
}
static unsigned files_below(void)
{
    leftovers = 0;
    assert_int_equal(nftw(root, count_one, 16, FTW_PHYS), 0);
    return leftovers;
}

static void test_there_and_back(void **state)
{
    (void)state;
    assert_int_equal(install(true, NULL), 0);
    assert_int_equal(files_below(), 0);
    assert_int_equal(install(false, NULL), 0);
    assert_string_equal(get("/etc/nccltune/a"), "one");
    assert_string_equal(get("/run/nccltune/active"), "three");
    assert_int_equal(mode_of("/etc/nccltune/b"), 0444);
    assert_int_equal(files_below(), 4);        /* and the manifest */
    assert_int_equal(install(false, NULL), 0); /* again is nothing new */
    assert_int_equal(files_below(), 4);
    assert_int_equal(uninstall("active", NULL, NULL), 0);
    assert_false(exists("/run/nccltune/active"));
    assert_true(exists("/etc/nccltune/a"));
    assert_int_equal(uninstall(NULL, "/etc/nccl", NULL), 0); /* no folder of that name */
    assert_true(exists("/etc/nccltune/a"));
    assert_int_equal(uninstall(NULL, NULL, NULL), 0);
    assert_int_equal(files_below(), 0);
    assert_int_equal(uninstall(NULL, NULL, NULL), 0);
}

static void test_replace_own(void **state)
{
    struct nt_install_file newer = files[0];
    struct nt_buf said;
    (void)state;
    newer.data = "ONE!";
    newer.len = 4;
    assert_int_equal(install(false, NULL), 0);
    nt_buf_init(&said, 4096);
    assert_int_equal(nt_install(&(struct nt_install_where){root, false}, &newer, 1, &said, NULL),
                     0);
    assert_string_equal(nt_buf_str(&said), "replaced /etc/nccltune/a\n");
    nt_buf_done(&said);
    assert_string_equal(get("/etc/nccltune/a"), "ONE!");
    assert_int_equal(files_below(), 4);
    assert_int_equal(uninstall(NULL, NULL, NULL), 0);
    assert_int_equal(files_below(), 0);
}

static void make_etc(void)
{
    assert_int_equal(mkdir(in_root("/etc"), 0755), 0);
    assert_int_equal(mkdir(in_root("/etc/nccltune"), 0755), 0);
}

/* What is in the way of the second file leaves the first one out too. */
enum obstacle { FOREIGN, LINK, FOLDER, FIFO, LINKED_PARENT, OPEN_PARENT, OPEN_FILE };
static const struct {
    enum obstacle what;
    const char *says;
} obstacles[] = {
    {FOREIGN, "is there and not ours"}, {LINK, "symbolic link"},
    {FOLDER, "no regular file"},        {FIFO, "no regular file"},
    {LINKED_PARENT, "symbolic link"},   {OPEN_PARENT, "writable by others"},
    {OPEN_FILE, "writable by others"},
};

static void put_obstacle(enum obstacle o)
{
    char to[256];
    switch (o) {
    case FOREIGN:
        put("/etc/nccltune/b", "mine");
        break;
    case LINK:
        put("/etc/target", "two");
        (void)snprintf(to, sizeof(to), "%s", in_root("/etc/target"));
        assert_int_equal(symlink(to, in_root("/etc/nccltune/b")), 0);
        break;
    case FOLDER:
        assert_int_equal(mkdir(in_root("/etc/nccltune/b"), 0755), 0);
        break;
    case FIFO:
        assert_int_equal(mkfifo(in_root("/etc/nccltune/b"), 0600), 0);
        break;
    case LINKED_PARENT:
        (void)snprintf(to, sizeof(to), "%s", in_root("/etc/elsewhere"));
        assert_int_equal(rename(in_root("/etc/nccltune"), to), 0);
        assert_int_equal(symlink(to, in_root("/etc/nccltune")), 0);
        break;
    case OPEN_PARENT:
        assert_int_equal(chmod(in_root("/etc/nccltune"), 0777), 0);
        break;
    case OPEN_FILE:
        put("/etc/nccltune/b", "two");
        assert_int_equal(chmod(in_root("/etc/nccltune/b"), 0666), 0);
        break;
    }
}

static void test_obstacles(void **state)
{
    for (size_t i = 0; i < COUNT(obstacles); i++) {
        struct nt_err err = {.code = NT_OK};
        unsigned before;
        int rc;
        if (i > 0) {
            assert_int_equal(teardown(state), 0);
            assert_int_equal(setup(state), 0);
        }
        make_etc();
        put_obstacle(obstacles[i].what);
        before = files_below();
        rc = install(false, &err);
        if (rc != -NT_E_NO || strstr(err.msg, obstacles[i].says) == NULL) {
            fail_msg("obstacle %zu: %d '%s'", i, rc, err.msg);
        }
        if (files_below() != before || exists("/run/nccltune/active")) {
            fail_msg("obstacle %zu: something was left half done", i);
        }
    }
}

static void test_same_bytes_of_another(void **state)
{
    (void)state;
    make_etc();
    put("/etc/nccltune/b", "two");
    assert_int_equal(install(false, NULL), 0);
    assert_int_equal(uninstall(NULL, NULL, NULL), 0);
    assert_string_equal(get("/etc/nccltune/b"), "two"); /* never was ours to take away */
    assert_int_equal(files_below(), 1);
}

static void test_changed_since(void **state)
{
    struct nt_err err = {.code = NT_OK};
    struct nt_install_file newer = files[0];
    struct nt_buf said;
    json_t *list = NULL;
    (void)state;
    assert_int_equal(install(false, NULL), 0);
    put("/etc/nccltune/a", "mine now");
    newer.data = "ONE!";
    newer.len = 4;
    nt_buf_init(&said, 4096);
    assert_int_equal(nt_install(&(struct nt_install_where){root, false}, &newer, 1, &said, &err),
                     -NT_E_NO);
    assert_non_null(strstr(err.msg, "was changed since"));
    nt_buf_done(&said);
    assert_string_equal(get("/etc/nccltune/a"), "mine now");
    assert_int_equal(unlink(in_root("/run/nccltune/active")), 0); /* as after a boot */
    assert_int_equal(nt_installed(&(struct nt_install_where){root, false}, &list, NULL), 0);
    assert_int_equal(json_array_size(list), 3);
    assert_string_equal(nt_json_opt_str(json_array_get(list, 0), "state", ""), "changed");
    assert_string_equal(nt_json_opt_str(json_array_get(list, 1), "state", ""), "unchanged");
    assert_string_equal(nt_json_opt_str(json_array_get(list, 2), "state", ""), "missing");
    json_decref(list);
    assert_int_equal(uninstall(NULL, NULL, &err), -NT_E_NO);
    assert_non_null(strstr(err.msg, "/etc/nccltune/a was left"));
    assert_string_equal(get("/etc/nccltune/a"), "mine now");
    assert_false(exists("/etc/nccltune/b"));
}

/* The manifest cannot be written: nothing is installed. A bad one stops everything. */
static void test_manifest_in_the_way(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {{"{\"format\":\"nccltune-installed\",\"version\":2}",
                 "is not of a version that is read here"},
                {"[]", "is not of a version that is read here"},
                {"{\"format\"", "is not JSON"},
                {"", "is empty"}};
    struct nt_err err = {.code = NT_OK};
    (void)state;
    assert_int_equal(mkdir(in_root("/var"), 0755), 0);
    assert_int_equal(mkdir(in_root("/var/lib"), 0755), 0);
    put("/var/lib/nccltune", "a file where the folder should be");
    assert_int_not_equal(install(false, &err), 0);
    assert_int_equal(files_below(), 1);
    assert_int_equal(unlink(in_root("/var/lib/nccltune")), 0);
    assert_int_equal(mkdir(in_root("/var/lib/nccltune"), 0755), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char says[4096];
        (void)snprintf(says, sizeof(says), "%s %s: put a copy of it back, or remove it",
                       in_root("/var/lib/nccltune/installed.json"), rows[i].says);
        put("/var/lib/nccltune/installed.json", rows[i].text);
        assert_int_equal(install(false, &err), -NT_E_INVAL);
        assert_non_null(strstr(err.msg, says));
        assert_int_equal(files_below(), 1);
    }
}

/* The last rename fails: those before it are taken back, what was replaced is as it was. */
static void test_taken_back(void **state)
{
    struct nt_install_file again[] = {{"/etc/nccltune/a", "ONE!", 4, 0644, "profile"},
                                      {"/etc/nccltune/c", "new", 3, 0644, "profile"},
                                      {"/etc/nccltune/c", "twice", 5, 0644, "profile"}};
    struct nt_err err = {.code = NT_OK};
    struct nt_buf said;
    (void)state;
    assert_int_equal(install(false, NULL), 0);
    nt_buf_init(&said, 4096);
    assert_int_not_equal(nt_install(&(struct nt_install_where){root, false}, again, 3, &said, &err),
                         0);
    nt_buf_done(&said);
    assert_string_equal(get("/etc/nccltune/a"), "one");
    assert_false(exists("/etc/nccltune/c"));
    assert_int_equal(files_below(), 4);
    assert_int_equal(uninstall(NULL, NULL, NULL), 0);
    assert_int_equal(files_below(), 0);
}

static unsigned folders;
static int count_folder(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)path, (void)st;
    folders += type == FTW_D && ftw->level > 0;
    return 0;
}

/* No room for the first file, or for the manifest: not even a folder is left, of those that were
 * not there; and one that takes no files is known beforehand. */
static void test_no_room(void **state)
{
    static const rlim_t rooms[] = {0, 4, 100}; /* bytes a file: none, not the third, no manifest */
    struct rlimit before, now;
    struct nt_err err;
    (void)state;

    assert_int_equal(mkdir(in_root("/etc"), 0755), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < COUNT(rooms); i++) {
        now = (struct rlimit){rooms[i], before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        assert_int_equal(install(false, &err), -NT_E_IO);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        folders = 0;
        assert_int_equal(nftw(root, count_folder, 16, FTW_PHYS), 0);
        assert_int_equal(folders, 1);
        assert_true(exists("/etc"));
        assert_int_equal(files_below(), 0);
    }
    assert_int_equal(install(false, NULL), 0);
}

static void test_a_dry_run_knows(void **state)
{
    struct nt_err err;
    (void)state;
    if (geteuid() == 0) {
        print_message("root writes to any folder\n");
        skip();
    }
    assert_int_equal(chmod(root, 0555), 0);
    assert_int_equal(install(true, &err), -NT_E_IO);
    assert_non_null(strstr(err.msg, "takes no files"));
    assert_int_equal(chmod(root, 0755), 0);
}

static void test_paths(void **state)
{
    static const char *const bad[] = {"relative", "/etc/../up/x", "/", "/etc/nccltune/"};
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct nt_install_file f = {bad[i], "x", 1, 0644, "profile"};
        struct nt_buf said;
        nt_buf_init(&said, 4096);
        if (nt_install(&(struct nt_install_where){root, false}, &f, 1, &said, NULL) == 0) {
            fail_msg("%s was installed", bad[i]);
        }
        nt_buf_done(&said);
    }
    assert_int_equal(files_below(), 0);
}

/* A sticky folder of root's on the way is fine, as the last one it is not. */
static void test_sticky(void **state)
{
    struct nt_err err = {.code = NT_OK};
    int fd;
    (void)state;
    if (geteuid() != 0) {
        print_message("not root: no sticky folder of root's to make\n");
        skip();
    }
    assert_int_equal(mkdir(in_root("/tmp"), 0755), 0);
    assert_int_equal(chmod(in_root("/tmp"), 01777), 0);
    fd = nt_safe_folder(root, "/tmp/x/y", 0, NT_SAFE_CREATE, &err);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(nt_safe_folder(root, "/tmp", 0, 0, &err), -NT_E_NO);
    assert_int_equal(chown(in_root("/tmp/x"), 12345, 12345), 0);
    assert_int_equal(nt_safe_folder(root, "/tmp/x/y", 0, 0, &err), -NT_E_NO);
    assert_non_null(strstr(err.msg, "owned by another user"));
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_there_and_back),  TEST(test_replace_own),
        TEST(test_obstacles),       TEST(test_same_bytes_of_another),
        TEST(test_changed_since),   TEST(test_manifest_in_the_way),
        TEST(test_taken_back),      TEST(test_paths),
        TEST(test_sticky),          TEST(test_no_room),
        TEST(test_a_dry_run_knows),
    };
    (void)umask(022);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
