/* Receipts of processes that are gone: what goes, what stays, and what is never touched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "profiles/format/receipt.h"
#include "profiles/format/receipt_tidy.h"

#define HASH "04fb8ba2c763d1c9964d3ff665ba7119c6f14d70a19d30a43bab7059c4d4fc9d"
#define HOUR (UINT64_C(3600) * 1000000000)
enum { DEAD_PID = 4194303 }; /* the largest that there can be: nobody has it here */

struct world {
    char dir[64];
    int fd;
};

static void world_open(struct world *w)
{
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/nt-tidy-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    w->fd = open(w->dir, O_RDONLY | O_DIRECTORY);
    assert_true(w->fd >= 0);
    (void)setenv("NCCLTUNE_RECEIPTS", w->dir, 1);
}

static unsigned count(const struct world *w, bool empty)
{
    DIR *d = opendir(w->dir);
    struct dirent *e;
    unsigned n = 0;
    while ((e = readdir(d)) != NULL) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            n++;
            if (empty && unlinkat(w->fd, e->d_name, 0) != 0) {
                (void)unlinkat(w->fd, e->d_name, AT_REMOVEDIR);
            }
        }
    }
    (void)closedir(d);
    return n;
}

static void world_close(struct world *w)
{
    (void)count(w, true);
    (void)close(w->fd);
    assert_int_equal(rmdir(w->dir), 0);
    (void)unsetenv("NCCLTUNE_RECEIPTS");
}

/* This process's receipt under another name, `age` hours old; boot and host as told (NULL: ours).
 */
static void put(struct world *w, const char *name, unsigned age, const char *boot, const char *host)
{
    struct nt_why why = {""};
    uint8_t *base =
        nt_receipt_attach(&(struct nt_receipt_start){.hash = HASH, .job = "", .nrows = 1}, &why);
    struct timespec t[2];
    char own[64];

    assert_non_null(base);
    (void)snprintf(own, sizeof(own), "%ld.%llu.receipt", (long)getpid(),
                   (unsigned long long)nt_start_ticks());
    if (boot != NULL) {
        (void)snprintf((char *)base + NT_RECEIPT_AT_BOOT, 40, "%s", boot);
    }
    if (host != NULL) {
        (void)snprintf((char *)base + NT_RECEIPT_AT_HOST, 80, "%s", host);
    }
    (void)munmap(base, NT_RECEIPT_BYTES);
    assert_int_equal(renameat(w->fd, own, w->fd, name), 0);
    (void)clock_gettime(CLOCK_REALTIME, &t[0]);
    t[0].tv_sec -= (time_t)age * 3600;
    t[1] = t[0];
    assert_int_equal(utimensat(w->fd, name, t, 0), 0);
}

static bool there(const struct world *w, const char *name)
{
    return faccessat(w->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void dead(char *out, size_t size, unsigned serial)
{
    (void)snprintf(out, size, "%d.%u.receipt", DEAD_PID, serial);
}

static void test_what_goes(void **state)
{
    const struct nt_tidy_rule rule = {.older_ns = 24 * HOUR, .most = 100};
    struct nt_tidied t;
    struct world w;
    char old[64], young[64], boot[64], away[64], gone[64], own[64];
    (void)state;
    world_open(&w);
    dead(old, sizeof(old), 1);
    dead(young, sizeof(young), 2);
    dead(boot, sizeof(boot), 3);
    dead(away, sizeof(away), 4);
    dead(gone, sizeof(gone), 5);
    (void)snprintf(own, sizeof(own), "%ld.7.receipt", (long)getpid());
    put(&w, old, 30, NULL, NULL);
    put(&w, young, 2, NULL, NULL);
    put(&w, boot, 0, "00000000-0000-0000-0000-000000000000", NULL);
    put(&w, away, 300, NULL, "a-container");
    put(&w, gone, 300, "00000000-0000-0000-0000-000000000000", "a-container");
    put(&w, own, 300, NULL, NULL);
    assert_int_equal(
        nt_receipts_tidy(
            w.fd, &(struct nt_tidy_rule){.older_ns = 24 * HOUR, .most = 100, .dry_run = true}, &t),
        0);
    assert_int_equal(t.removed, 3);
    assert_int_equal(count(&w, false), 6); /* only said */
    assert_int_equal(nt_receipts_tidy(w.fd, &rule, &t), 0);
    assert_int_equal(t.seen, 6);
    assert_int_equal(t.removed, 3);
    assert_int_equal(t.young, 1);
    assert_int_equal(t.alive, 2);
    assert_int_equal(t.failed + t.foreign, 0);
    assert_true(t.bytes >= 3 * 4096);
    assert_true(!there(&w, old) && !there(&w, boot) && !there(&w, gone));
    assert_true(there(&w, young) && there(&w, away) && there(&w, own));
    world_close(&w);
}

static void test_never_touched(void **state)
{
    static const char *const names[] = {"notes.txt",   "1.receipt",
                                        "x.1.receipt", "1.2.receipts",
                                        "0.2.receipt", "00112233445566778899aabbccddeeff.meets"};
    const struct nt_tidy_rule rule = {.older_ns = 0, .most = 0};
    char name[64], target[64];
    struct nt_tidied t;
    struct world w;
    (void)state;
    world_open(&w);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)close(openat(w.fd, names[i], O_CREAT | O_WRONLY, 0600));
    }
    dead(target, sizeof(target), 1);
    put(&w, "kept", 300, NULL, NULL);
    assert_int_equal(symlinkat("kept", w.fd, target), 0); /* a link is not followed */
    dead(name, sizeof(name), 2);
    assert_int_equal(mkdirat(w.fd, name, 0700), 0);
    dead(name, sizeof(name), 3);
    assert_int_equal(mkfifoat(w.fd, name, 0600), 0); /* nobody waits for a pipe */
    dead(name, sizeof(name), 4);
    (void)close(openat(w.fd, name, O_CREAT | O_WRONLY, 0600)); /* empty: no receipt */
    assert_int_equal(nt_receipts_tidy(w.fd, &rule, &t), 0);
    assert_int_equal(t.removed, 0);
    assert_int_equal(t.foreign, 4);
    assert_int_equal(count(&w, true), sizeof(names) / sizeof(names[0]) + 5);
    world_close(&w);
}

static void test_pages_and_temporaries(void **state)
{
    static const char page[] = "00112233445566778899aabbccddeeff.meet";
    const struct nt_tidy_rule rule = {.older_ns = 24 * HOUR, .most = 100};
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 1};
    struct nt_tidied t;
    struct world w;
    char temporary[96];
    int fd;
    (void)state;
    world_open(&w);
    put(&w, page, 300, NULL, NULL);
    (void)snprintf(temporary, sizeof(temporary), ".%d.5.receipt.0x7f.0", DEAD_PID);
    put(&w, temporary, 3, NULL, NULL);
    fd = openat(w.fd, page, O_RDWR);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &l), 0); /* a rank sits there */
    assert_int_equal(nt_receipts_tidy(w.fd, &rule, &t), 0);
    assert_true(there(&w, page) && !there(&w, temporary));
    (void)close(fd);
    assert_int_equal(nt_receipts_tidy(w.fd, &rule, &t), 0);
    assert_false(there(&w, page));
    world_close(&w);
}

/* Those of engines are texts; a temporary has ".new" behind its name. */
static void put_text(struct world *w, const char *name, unsigned age, const char *boot,
                     const char *host)
{
    struct timespec t[2];
    char text[256];
    int fd = openat(w->fd, name, O_CREAT | O_WRONLY, 0600);
    int n = snprintf(text, sizeof(text),
                     "nccltune-backends 1\nprocess %d 7 %s %s\nengine sglang 0.5.23\n", DEAD_PID,
                     boot, host);

    assert_int_equal(write(fd, text, (size_t)n), n);
    (void)close(fd);
    (void)clock_gettime(CLOCK_REALTIME, &t[0]);
    t[0].tv_sec -= (time_t)age * 3600;
    t[1] = t[0];
    assert_int_equal(utimensat(w->fd, name, t, 0), 0);
}

static void test_those_of_engines(void **state)
{
    static const struct {
        const char *before, *behind; /* the process's number */
        bool own, last_boot, away, goes;
        unsigned age;
    } rows[] = {
        {"engine-", ".1.backends", false, false, false, true, 30},
        {"engine-", ".2.backends", false, false, false, false, 2},
        {"engine-", ".3.backends", false, true, false, true, 0},
        {"engine-", ".4.backends", false, false, true, false, 300},
        {"engine-", ".5.backends", true, false, false, false, 300},
        {"engine-", ".6.backends.new", false, false, false, true, 3},
        {"engine-", ".7.backends.new", false, false, false, false, 0},
        {"engine-", ".8.backends.old", false, false, false, false, 300},
        {"motor-", ".9.backends", false, false, false, false, 300},
        {"", ".10.receipt.new", false, false, false, false, 300},
    };
    const struct nt_tidy_rule rule = {.older_ns = 24 * HOUR, .most = 100};
    struct nt_tidied t;
    struct world w;
    char boot[64] = "", host[80] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    (void)state;
    assert_int_equal(fscanf(f, "%63s", boot), 1);
    (void)fclose(f);
    (void)gethostname(host, sizeof(host) - 1);
    world_open(&w);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            char name[96];
            (void)snprintf(name, sizeof(name), "%s%d%s", rows[i].before,
                           rows[i].own ? getpid() : DEAD_PID, rows[i].behind);
            if (pass == 0) {
                put_text(&w, name, rows[i].age,
                         rows[i].last_boot ? "00000000-0000-0000-0000-000000000000" : boot,
                         rows[i].away ? "a-container" : host);
            } else if (there(&w, name) == rows[i].goes) {
                fail_msg("%s: there is %d", name, there(&w, name));
            }
        }
        assert_int_equal(nt_receipts_tidy(w.fd, &rule, &t), 0);
        assert_int_equal(t.removed, pass == 0 ? 3 : 0);
        assert_int_equal(t.foreign, 0);
    }
    world_close(&w);
}

/* The oldest of the dead go when there are too many, however young. */
static void test_most(void **state)
{
    const struct nt_tidy_rule rule = {.older_ns = UINT64_MAX, .most = 4};
    struct nt_tidied t;
    struct world w;
    char name[64];
    (void)state;
    world_open(&w);
    for (unsigned i = 0; i < 9; i++) {
        dead(name, sizeof(name), i);
        put(&w, name, 9 - i, NULL, NULL);
    }
    assert_int_equal(nt_receipts_tidy(w.fd, &rule, &t), 0);
    assert_int_equal(t.removed, 5);
    dead(name, sizeof(name), 4);
    assert_false(there(&w, name));
    dead(name, sizeof(name), 5);
    assert_true(there(&w, name));
    world_close(&w);
}

/* A writer that finds the folder full makes room by itself. */
static void test_writer(void **state)
{
    struct nt_why why = {""};
    struct world w;
    char name[64], first[64];
    (void)state;
    world_open(&w);
    dead(first, sizeof(first), 0);
    put(&w, first, 1, NULL, NULL);
    for (unsigned i = 1; i < NT_RECEIPTS_MOST; i++) {
        int from = openat(w.fd, first, O_RDONLY), to;
        char head[512];
        dead(name, sizeof(name), i);
        to = openat(w.fd, name, O_CREAT | O_WRONLY, 0600);
        assert_int_equal(read(from, head, sizeof(head)), sizeof(head));
        assert_int_equal(write(to, head, sizeof(head)), sizeof(head));
        (void)close(from);
        (void)close(to);
    }
    assert_int_equal(count(&w, false), NT_RECEIPTS_MOST);
    assert_non_null(
        nt_receipt_attach(&(struct nt_receipt_start){.hash = HASH, .job = "", .nrows = 1}, &why));
    assert_int_equal(count(&w, false), NT_RECEIPTS_MOST / 4 * 3 + 1);
    assert_false(there(&w, first));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_goes),
                                       cmocka_unit_test(test_never_touched),
                                       cmocka_unit_test(test_pages_and_temporaries),
                                       cmocka_unit_test(test_those_of_engines),
                                       cmocka_unit_test(test_most),
                                       cmocka_unit_test(test_writer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
