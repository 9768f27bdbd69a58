#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiles/format/bytes.h"
#include "profiles/format/receipt.h"

#define HASH "04fb8ba2c763d1c9964d3ff665ba7119c6f14d70a19d30a43bab7059c4d4fc9d"

struct world {
    char dir[64], receipts[128], runtime[128];
};

static void world_open(struct world *w)
{
    (void)snprintf(w->dir, sizeof(w->dir), "/tmp/nt-receipt-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void)snprintf(w->receipts, sizeof(w->receipts), "%s/receipts", w->dir);
    (void)snprintf(w->runtime, sizeof(w->runtime), "%s/runtime", w->dir);
    assert_int_equal(mkdir(w->receipts, 0700), 0);
    assert_int_equal(mkdir(w->runtime, 0700), 0);
    (void)setenv("NCCLTUNE_RECEIPTS", w->receipts, 1);
}

static void file_of(const char *folder, char *out, size_t size)
{
    (void)snprintf(out, size, "%s/%ld.%llu.receipt", folder, (long)getpid(),
                   (unsigned long long)nt_start_ticks());
}

static void world_close(struct world *w)
{
    char path[300];
    file_of(w->receipts, path, sizeof(path));
    (void)unlink(path);
    (void)rmdir(w->receipts);
    (void)rmdir(w->runtime);
    (void)rmdir(w->dir);
    (void)unsetenv("NCCLTUNE_RECEIPTS");
}

static uint8_t *attach(const char *hash, struct nt_why *why)
{
    return nt_receipt_attach(&(struct nt_receipt_start){.hash = hash, .job = "j", .nrows = 7}, why);
}

/* Two plugins of one process, each through a mapping of its own. */
static void fill(uint8_t *a, uint8_t *b)
{
    nt_receipt_set_part(a, NT_RECEIPT_TUNER, "/lib/tuner.so");
    nt_receipt_set_part(b, NT_RECEIPT_ENV, "/lib/env.so");
    nt_receipt_set_nccl(b, 22809, "/lib/libnccl.so.2");
    nt_receipt_set_nccl(b, 0, NULL); /* knows nothing new */
    assert_int_equal(
        nt_receipt_add_comm(
            a, &(struct nt_receipt_comm){.nranks = 8, .nnodes = 2, .abi = 6, .rows = 3, .id = 9}),
        0);
    nt_receipt_end_comm(a, 0);
    nt_receipt_end_comm(a, -1);
    nt_receipt_add_name(a, "NCCL_ALGO", NT_TOLD_USER);
    nt_receipt_add_name(b, "NCCL_ALGO", NT_TOLD_KEPT);
    nt_receipt_count(a, nt_receipt_at_row(6));
    nt_receipt_count(b, nt_receipt_at_row(6));
    nt_receipt_count(b, nt_receipt_at_row(6) + 8);
    nt_receipt_count(a, nt_receipt_at_class(4, 39, NT_FATE_GROUPED));
    nt_receipt_add_executed(a, 4, 1024, 21, 12, true);
    nt_receipt_add_executed(a, 4, 1024, 21, 3, true);
    nt_receipt_add_executed(a, 4, 1024, 21, 0, false);
}

static void check_content(const uint8_t *b)
{
    struct nt_receipt_comm c;
    struct nt_receipt_name n;
    unsigned names = 0;
    assert_true(nt_receipt_comm(b, 0, &c));
    assert_int_equal(c.nnodes, 2);
    assert_int_equal(c.rows, 3);
    assert_int_equal(c.id, 9);
    assert_true(c.ended_ns > 0);
    for (uint32_t i = 0; i < NT_RECEIPT_NAMES; i++) {
        if (nt_receipt_name(b, i, &n)) {
            names++;
            assert_string_equal(n.name, "NCCL_ALGO");
            assert_int_equal(n.asked, 2);
            assert_string_equal(nt_receipt_told_names[n.told], "kept");
        }
    }
    assert_int_equal(names, 1);
    assert_int_equal(nt_receipt_row_applied(b, 6), 2);
    assert_int_equal(nt_receipt_row_unavailable(b, 6), 1);
    assert_int_equal(nt_receipt_row_applied(b, 5), 0);
    assert_int_equal(nt_receipt_class(b, 4, 39).grouped, 1);
    struct nt_receipt_executed x = nt_receipt_executed(b, 4, 10, 21);
    assert_int_equal(x.captured, 2);
    assert_int_equal(x.eager, 1);
    assert_int_equal(x.min_channels, 3);
    assert_int_equal(x.max_channels, 12);
}

static void test_written_and_read(void **state)
{
    struct world w;
    struct nt_receipt_head h;
    struct nt_why why = {""};
    uint8_t *a, *b, *other;
    (void)state;
    world_open(&w);
    a = attach(HASH, &why);
    assert_non_null(a);
    b = attach(HASH, &why);
    assert_non_null(b);
    assert_ptr_not_equal(a, b);
    fill(a, b);
    assert_int_equal(nt_receipt_read(b, NT_RECEIPT_BYTES, &h, &why), 0);
    assert_int_equal(h.pid, getpid());
    assert_int_equal(h.start_ticks, nt_start_ticks());
    assert_true(h.start_ticks > 0);
    assert_int_equal(h.nrows, 7);
    assert_int_equal(h.nccl_version, 22809);
    assert_int_equal(h.parts, 3);
    assert_string_equal(h.hash, HASH);
    assert_string_equal(h.job, "j");
    assert_string_equal(h.path[NT_RECEIPT_TUNER], "/lib/tuner.so");
    assert_string_equal(h.path[NT_RECEIPT_ENV], "/lib/env.so");
    assert_string_equal(h.path[NT_RECEIPT_PROFILER], "");
    assert_string_equal(h.path[NT_RECEIPT_LIBNCCL], "/lib/libnccl.so.2");
    check_content(b);

    /* another plugin that was told something else leaves a mark */
    other = attach("a4fb8ba2c763d1c9964d3ff665ba7119c6f14d70a19d30a43bab7059c4d4fc9d", &why);
    assert_non_null(other);
    assert_int_equal(nt_receipt_read(a, NT_RECEIPT_BYTES, &h, &why), 0);
    assert_int_equal(h.parts, 3 | NT_RECEIPT_MIXED);
    (void)munmap(a, NT_RECEIPT_BYTES);
    (void)munmap(b, NT_RECEIPT_BYTES);
    (void)munmap(other, NT_RECEIPT_BYTES);
    world_close(&w);
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* What a program did to its variables: the first sight is kept, the last value too. */
static void test_changes(void **state)
{
    char lengthy[300];
    const struct nt_receipt_change said[] = {{"NCCL_ALGO", NULL, "ring", 1},
                                             {"NCCL_BUFFSIZE", "4194304", NULL, 0},
                                             {"NCCL_ALGO", "tree", "ring;tree", 2},
                                             {"NCCL_TOPO_FILE", "", lengthy, 3}};
    const struct nt_receipt_change kept[] = {{"NCCL_ALGO", NULL, "ring;tree", 1},
                                             {"NCCL_BUFFSIZE", "4194304", NULL, 0},
                                             {"NCCL_TOPO_FILE", "", lengthy, 3}};
    struct world w;
    struct nt_receipt_head h;
    struct nt_receipt_change c;
    struct nt_why why = {""};
    uint8_t *r;
    (void)state;

    memset(lengthy, 'x', sizeof(lengthy));
    lengthy[sizeof(lengthy) - 1] = '\0';
    world_open(&w);
    r = attach(HASH, &why);
    assert_non_null(r);
    assert_false(nt_receipt_change(r, 0, &c));
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        nt_receipt_add_change(r, &said[i]);
    }
    lengthy[NT_RECEIPT_CHANGE_VALUE - 1] = '\0'; /* longer ones are cut */
    for (uint32_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        assert_true(nt_receipt_change(r, i, &c));
        assert_string_equal(c.name, kept[i].name);
        assert_true(same(c.before, kept[i].before));
        assert_true(same(c.now, kept[i].now));
        assert_int_equal(c.comms, kept[i].comms);
    }
    assert_false(nt_receipt_change(r, 3, &c));
    for (unsigned i = 0; i < NT_RECEIPT_CHANGES; i++) {
        char name[NT_RECEIPT_NAME];
        (void)snprintf(name, sizeof(name), "NCCL_NAME_%u", i);
        nt_receipt_add_change(r, &(struct nt_receipt_change){.name = name, .now = "1"});
    }
    nt_receipt_set_flags(r, NT_RECEIPT_INSIDE);
    nt_receipt_set_flags(r, NT_RECEIPT_ENV_LATE);
    assert_int_equal(nt_receipt_read(r, NT_RECEIPT_BYTES, &h, &why), 0);
    assert_int_equal(h.lost_changes, 3);
    assert_int_equal(h.flags, NT_RECEIPT_INSIDE | NT_RECEIPT_ENV_LATE);
    (void)munmap(r, NT_RECEIPT_BYTES);
    world_close(&w);
}

static void test_more_communicators_than_room(void **state)
{
    uint8_t *r = nt_receipt_nowhere();
    struct nt_receipt_comm c = {.nranks = 2, .nnodes = 1};
    (void)state;
    for (int i = 0; i < NT_RECEIPT_COMMS + 5; i++) {
        assert_int_equal(nt_receipt_add_comm(r, &c), i < NT_RECEIPT_COMMS ? i : -1);
    }
    assert_int_equal(nt_le32(r + NT_RECEIPT_AT_NCOMMS), NT_RECEIPT_COMMS + 5);
    assert_int_equal(nt_receipt_row_applied(r, 0), 0); /* nothing ran over into what follows */
    (void)munmap(r, NT_RECEIPT_BYTES);
}

/* Something else in the file's place is never written to. */
static void test_foreign_files(void **state)
{
    struct world w;
    struct nt_why why = {""};
    char path[300], victim[300], text[16] = "";
    struct stat st;
    int fd;
    (void)state;
    world_open(&w);
    file_of(w.receipts, path, sizeof(path));
    (void)snprintf(victim, sizeof(victim), "%s/victim", w.dir);
    fd = open(victim, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "precious", 8), 8);

    assert_int_equal(symlink(victim, path), 0);
    assert_null(attach(HASH, &why));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(victim, path), 0); /* of the wrong size */
    assert_null(attach(HASH, &why));
    assert_non_null(strstr(why.text, "not this process's receipt"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(attach(HASH, &why));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(fd, NT_RECEIPT_BYTES), 0); /* of the right size */
    assert_int_equal(link(victim, path), 0);
    assert_null(attach(HASH, &why));
    assert_int_equal(pread(fd, text, 8, 0), 8);
    assert_string_equal(text, "precious");
    assert_int_equal(fstat(fd, &st), 0);
    (void)close(fd);
    (void)unlink(victim);
    world_close(&w);
}

/* A good receipt that is reached through a link, or is another process's, is not joined. */
static void test_only_its_own(void **state)
{
    struct world w;
    struct nt_why why = {""};
    char path[300], real[300];
    uint8_t *r;
    (void)state;
    world_open(&w);
    file_of(w.receipts, path, sizeof(path));
    (void)snprintf(real, sizeof(real), "%s/real", w.dir);
    r = attach(HASH, &why);
    assert_non_null(r);
    assert_int_equal(rename(path, real), 0);
    assert_int_equal(symlink(real, path), 0);
    assert_null(attach(HASH, &why));
    assert_int_equal(rename(real, path), 0);
    nt_le_put(r + NT_RECEIPT_AT_PID, 4, (uint64_t)getpid() + 1);
    assert_null(attach(HASH, &why));
    nt_le_put(r + NT_RECEIPT_AT_PID, 4, (uint64_t)getpid());
    nt_le_put(r + NT_RECEIPT_AT_START, 8, nt_start_ticks() + 1);
    assert_null(attach(HASH, &why));
    nt_le_put(r + NT_RECEIPT_AT_START, 8, nt_start_ticks());
    uint8_t *again = attach(HASH, &why);
    assert_non_null(again);
    (void)munmap(again, NT_RECEIPT_BYTES);
    (void)munmap(r, NT_RECEIPT_BYTES);
    world_close(&w);
}

static void test_folders(void **state)
{
    struct world w;
    struct nt_why why = {""};
    char path[4096], made[300], link[300];
    struct stat st;
    int fd;
    (void)state;
    world_open(&w);
    fd = nt_receipt_folder(path, sizeof(path), &why);
    assert_true(fd >= 0);
    assert_string_equal(path, w.receipts);
    (void)close(fd);

    (void)snprintf(link, sizeof(link), "%s/link", w.dir);
    assert_int_equal(symlink(w.receipts, link), 0);
    const char *const bad[] = {"relative", "/nonexistent", "/tmp", link, "/etc/passwd"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)setenv("NCCLTUNE_RECEIPTS", bad[i], 1);
        assert_int_equal(nt_receipt_folder(path, sizeof(path), &why), -1);
    }
    (void)unlink(link);
    (void)unsetenv("NCCLTUNE_RECEIPTS");

    (void)snprintf(path, sizeof(path), "/run/nccltune/%u", (unsigned)geteuid());
    if (access(path, F_OK) != 0) { /* else the machine's own folder is taken */
        (void)setenv("XDG_RUNTIME_DIR", w.runtime, 1);
        fd = nt_receipt_folder(path, sizeof(path), &why);
        assert_true(fd >= 0);
        (void)snprintf(made, sizeof(made), "%s/nccltune", w.runtime);
        assert_string_equal(path, made);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        (void)close(fd);
        assert_int_equal(rmdir(made), 0);
        assert_int_equal(chmod(w.runtime, 0777), 0); /* others could put a link there */
        assert_int_equal(nt_receipt_folder(path, sizeof(path), &why), -1);
        (void)unsetenv("XDG_RUNTIME_DIR");
        assert_int_equal(nt_receipt_folder(path, sizeof(path), &why), -1);
        assert_non_null(strstr(why.text, "XDG_RUNTIME_DIR"));
    }
    world_close(&w);
}

static void test_damaged(void **state)
{
    struct world w;
    struct nt_receipt_head h;
    struct nt_why why = {""};
    uint8_t *r, *copy = NULL;
    (void)state;
    static const struct {
        size_t at;
        unsigned n;
        uint64_t v;
        const char *says;
    } cases[] = {{0, 1, 'X', "not a receipt"},
                 {NT_RECEIPT_AT_VERSION, 4, 1, "version 1"},
                 {NT_RECEIPT_AT_SIZE, 4, 1, "bytes instead of"},
                 {NT_RECEIPT_AT_NROWS, 4, NT_TABLE_MAX_ROWS + 1, "damaged header"},
                 {NT_RECEIPT_AT_HASH, 1, 'G', "damaged header"},
                 {NT_RECEIPT_AT_HASH + 10, 1, 0, "damaged header"}};
    static const struct {
        size_t at, size;
    } texts[] = {{NT_RECEIPT_AT_BOOT, 40},   {NT_RECEIPT_AT_HASH, 72},
                 {NT_RECEIPT_AT_HOST, 80},   {NT_RECEIPT_AT_JOB, 128},
                 {NT_RECEIPT_AT_PATHS, 256}, {NT_RECEIPT_AT_PATHS + 768, 256}};
    world_open(&w);
    r = attach(HASH, &why);
    assert_non_null(r);
    assert_int_equal(posix_memalign((void **)&copy, 64, NT_RECEIPT_BYTES), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memcpy(copy, r, NT_RECEIPT_BYTES);
        nt_le_put(copy + cases[i].at, cases[i].n, cases[i].v);
        assert_int_equal(nt_receipt_read(copy, NT_RECEIPT_BYTES, &h, &why), -1);
        assert_non_null(strstr(why.text, cases[i].says));
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        memcpy(copy, r, NT_RECEIPT_BYTES);
        memset(copy + texts[i].at, 'a', texts[i].size);
        assert_int_equal(nt_receipt_read(copy, NT_RECEIPT_BYTES, &h, &why), -1);
        assert_non_null(strstr(why.text, "without end"));
    }
    for (size_t n = 0; n < NT_RECEIPT_BYTES; n = n * 3 / 2 + 1) {
        assert_int_equal(nt_receipt_read(r, n, &h, NULL), -1);
    }
    free(copy);
    (void)munmap(r, NT_RECEIPT_BYTES);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_and_read),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_more_communicators_than_room),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_only_its_own),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
