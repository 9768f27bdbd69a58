#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiles/format/sha256.h"
#include "profiles/format/table.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define ROW(c, r, n, lo, hi, reg, a, p, ch)                                                        \
    {                                                                                              \
        .coll = (c), .nranks = (r), .nnodes = (n), .min_bytes = (lo), .max_bytes = (hi),           \
        .reg_buff = (reg), .algo = (a), .proto = (p), .channels = (ch)                             \
    }

static const struct nt_table_var two_vars[] = {{"NCCL_P2P_LEVEL", "SYS", false},
                                               {"NCCL_NVLS_ENABLE", "0", true}};
static const struct nt_table_row three_rows[] = {ROW(4, 8, 1, 65537, UINT64_MAX, 0, 1, 2, 16),
                                                 ROW(4, 8, 1, 0, 65536, 0, 0, 0, 4),
                                                 ROW(2, 4, 2, 1024, 2048, 2, 1, 1, 0)};

struct file {
    uint8_t *data;
    size_t size;
    char hash[NT_HASH_HEX + 1];
};

static struct file sample(void)
{
    struct file f = {0};
    struct nt_why why = {""};
    if (nt_table_write(NT_TABLE_TABLE, two_vars, COUNT(two_vars), three_rows, COUNT(three_rows),
                       &f.data, &f.size, f.hash, &why) != 0) {
        fail_msg("%s", why.text);
    }
    return f;
}

static void test_sha256(void **state)
{
    static const struct {
        size_t len; /* of 'a's */
        const char *hex;
    } rows[] = {{0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                {1, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
                {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
                {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
                {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
                {1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
    char *a = malloc(1000000), hex[NT_HASH_HEX + 1];
    (void)state;
    memset(a, 'a', 1000000);
    for (size_t i = 0; i < COUNT(rows); i++) {
        nt_format_sha256_hex(a, rows[i].len, hex);
        assert_string_equal(hex, rows[i].hex);
    }
    free(a);
}

static void test_round_trip(void **state)
{
    struct file f = sample();
    struct nt_table t;
    struct nt_table_var_text v;
    size_t at = 0;
    (void)state;
    assert_int_equal(nt_table_read(f.data, f.size, &t, NULL), 0);
    assert_int_equal(t.product, NT_TABLE_TABLE);
    assert_int_equal(t.nvars, 2);
    assert_int_equal(t.nrows, 3);
    assert_true(nt_table_next_var(&t, &at, &v));
    assert_string_equal(v.name, "NCCL_NVLS_ENABLE");
    assert_string_equal(v.value, "0");
    assert_true(v.override);
    assert_true(nt_table_next_var(&t, &at, &v));
    assert_string_equal(v.name, "NCCL_P2P_LEVEL");
    assert_false(v.override);
    assert_false(nt_table_next_var(&t, &at, &v));
    /* sorted by collective, then by bytes */
    static const unsigned order[] = {2, 1, 0};
    for (uint32_t i = 0; i < 3; i++) {
        struct nt_table_row r = nt_table_row(&t, i), want = three_rows[order[i]];
        assert_int_equal(r.coll, want.coll);
        assert_int_equal(r.nranks, want.nranks);
        assert_int_equal(r.nnodes, want.nnodes);
        assert_int_equal(r.min_bytes, want.min_bytes);
        assert_int_equal(r.max_bytes, want.max_bytes);
        assert_int_equal(r.reg_buff, want.reg_buff);
        assert_int_equal(r.algo, want.algo);
        assert_int_equal(r.proto, want.proto);
        assert_int_equal(r.channels, want.channels);
    }
    free(f.data);
}

/* Equal content has one hash, in whatever order it was given: the layout is pinned here. */
static void test_one_encoding(void **state)
{
    const struct nt_table_row other[] = {three_rows[2], three_rows[0], three_rows[1]};
    const struct nt_table_var swapped[] = {two_vars[1], two_vars[0]};
    struct file a = sample(), b = {0};
    (void)state;
    assert_int_equal(
        nt_table_write(NT_TABLE_TABLE, swapped, 2, other, 3, &b.data, &b.size, b.hash, NULL), 0);
    assert_string_equal(a.hash, b.hash);
    assert_int_equal(a.size, 64 + 40 + 3 * 48);
    assert_string_equal(a.hash, "04fb8ba2c763d1c9964d3ff665ba7119c6f14d70a19d30a43bab7059c4d4fc9d");
    free(a.data);
    free(b.data);
}

static void test_empty_is_fine(void **state)
{
    struct file f = {0};
    struct nt_table t;
    size_t at = 0;
    struct nt_table_var_text v;
    (void)state;
    for (int product = NT_TABLE_STATIC; product <= NT_TABLE_TABLE; product++) {
        assert_int_equal(nt_table_write((enum nt_table_product)product, NULL, 0, NULL, 0, &f.data,
                                        &f.size, f.hash, NULL),
                         0);
        assert_int_equal(nt_table_read(f.data, f.size, &t, NULL), 0);
        assert_false(nt_table_next_var(&t, &at, &v));
        free(f.data);
    }
}

static void test_bad_rows(void **state)
{
    static const struct {
        const char *says;
        struct nt_table_row rows[2];
    } cases[] = {
        {"unknown collective", {ROW(5, 8, 1, 0, 1, 0, 1, 2, 0)}},
        {"impossible numbers", {ROW(4, 1, 1, 0, 1, 0, 1, 2, 0)}},
        {"impossible numbers", {ROW(4, 4, 5, 0, 1, 0, 1, 2, 0)}},
        {"impossible numbers", {ROW(4, 4, 0, 0, 1, 0, 1, 2, 0)}},
        {"empty byte range", {ROW(4, 8, 1, 2, 1, 0, 1, 2, 0)}},
        {"unknown registration", {ROW(4, 8, 1, 0, 1, 3, 1, 2, 0)}},
        {"go together", {ROW(4, 8, 1, 0, 1, 0, 1, -1, 0)}},
        {"no such combination", {ROW(2, 8, 1, 0, 1, 0, 0, 2, 0)}}, /* all_gather has no tree */
        {"no such combination", {ROW(4, 8, 1, 0, 1, 0, 4, 0, 0)}}, /* NVLS is Simple only */
        {"no such combination", {ROW(4, 8, 1, 0, 1, 0, 6, 2, 0)}}, /* all_reduce has no PAT */
        {"no such combination", {ROW(4, 8, 1, 0, 1, 0, 7, 2, 0)}},
        {"too many channels", {ROW(4, 8, 1, 0, 1, 0, 1, 2, 65)}},
        {"does not check channels", {ROW(4, 8, 1, 0, 1, 0, 2, 2, 4)}},
        {"does not check channels", {ROW(4, 16, 2, 0, 1, 0, 4, 2, 4)}},
        {"does not check channels", {ROW(4, 16, 2, 0, 1, 0, -1, -1, 4)}},
        {"asks for nothing", {ROW(4, 8, 1, 0, 1, 0, -1, -1, 0)}},
        {"same calls", {ROW(4, 8, 1, 0, 10, 0, 1, 2, 0), ROW(4, 8, 1, 10, 20, 0, 1, 2, 1)}},
        {"same calls", {ROW(4, 8, 1, 0, 10, 1, 1, 2, 0), ROW(4, 8, 1, 0, 10, 0, 1, 2, 1)}},
        {"same calls", {ROW(4, 8, 1, 0, 10, 0, 1, 2, 0), ROW(4, 8, 1, 5, 6, 2, 1, 2, 1)}},
        {"same calls", {ROW(4, 8, 1, 0, 10, 0, 1, 2, 0), ROW(4, 8, 1, 0, 10, 0, 1, 2, 0)}},
        {"same calls",
         {ROW(4, 8, 1, 0, UINT64_MAX, 0, 1, 2, 0),
          ROW(4, 8, 1, UINT64_MAX, UINT64_MAX, 0, 1, 2, 0)}}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct file f = {0};
        struct nt_why why = {""};
        size_t n = cases[i].rows[1].nranks != 0 ? 2 : 1;
        int rc = nt_table_write(NT_TABLE_TABLE, NULL, 0, cases[i].rows, n, &f.data, &f.size, f.hash,
                                &why);
        if (rc == 0 || strstr(why.text, cases[i].says) == NULL) {
            fail_msg("%zu '%s': rc %d, '%s'", i, cases[i].says, rc, why.text);
        }
    }
}

static void test_good_pairs(void **state)
{
    static const struct nt_table_row rows[][2] = {
        {ROW(4, 8, 1, 0, 10, 0, 1, 2, 0), ROW(4, 8, 1, 11, 20, 0, 1, 2, 1)},
        {ROW(4, 8, 1, 0, 10, 1, 1, 2, 0), ROW(4, 8, 1, 0, 10, 2, 0, 2, 1)}, /* split by buffers */
        {ROW(4, 8, 1, 0, 10, 0, 1, 2, 0), ROW(4, 4, 1, 0, 10, 0, 1, 2, 1)},
        {ROW(4, 16, 2, 0, 10, 0, 1, 2, 0), ROW(4, 16, 1, 0, 10, 0, 1, 2, 1)},
        {ROW(4, 8, 1, 0, 10, 0, -1, -1, 4), ROW(0, 8, 1, 0, 10, 0, 1, 1, 1)}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct file f = {0};
        struct nt_why why = {""};
        if (nt_table_write(NT_TABLE_TABLE, NULL, 0, rows[i], 2, &f.data, &f.size, f.hash, &why) !=
            0) {
            fail_msg("%zu: %s", i, why.text);
        }
        free(f.data);
    }
}

static void test_chunks(void **state)
{
    static const struct {
        uint32_t chunk;
        int8_t algo, proto;
        bool good;
    } rows[] = {{512, 1, 2, true},      {256, 1, 2, false},
                {1920, 1, 1, true},     {2048, 1, 1, false},
                {16, 1, 0, true},       {512, -1, -1, false},
                {1U << 26, 1, 2, true}, {(1U << 26) + 512, 1, 2, false}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_table_row r = ROW(4, 8, 1, 0, 1, 0, rows[i].algo, rows[i].proto, 1);
        struct file f = {0};
        r.chunk_bytes = rows[i].chunk;
        int rc = nt_table_write(NT_TABLE_TABLE, NULL, 0, &r, 1, &f.data, &f.size, f.hash, NULL);
        if ((rc == 0) != rows[i].good) {
            fail_msg("chunk %u: rc %d", rows[i].chunk, rc);
        }
        free(f.data);
    }
}

static void test_bad_vars(void **state)
{
    static char long_value[NT_TABLE_MAX_VALUE + 2];
    const struct {
        const char *says;
        enum nt_table_product product;
        struct nt_table_var vars[2];
    } cases[] = {{"not a name", 0, {{"", "1", false}}},
                 {"not a name", 0, {{"NCCL ALGO", "1", false}}},
                 {"not a name", 0, {{"nccl_algo", "1", false}}},
                 {"may not set", 0, {{"LD_PRELOAD", "1", false}}},
                 {"may not set", 0, {{"PATH", "1", false}}},
                 {"may not set", 0, {{"NCCL_TUNER_PLUGIN", "/x.so", false}}},
                 {"may not set", 0, {{"NCCL_CONF_FILE", "/x", false}}},
                 {"may not set", 0, {{"NCCL_HOSTID", "x", false}}},
                 {"may not set", 0, {{"NCCL_COMM_ID", "x", false}}},
                 {"may not set", 0, {{"SGLANG_NCCL_SO_PATH", "x", false}}},
                 {"may not set", 0, {{"NCCL_DEBUG_SUBSYS", "ALL", false}}},
                 {"would mask", NT_TABLE_TABLE, {{"NCCL_ALGO", "allreduce:ring", false}}},
                 {"would mask", NT_TABLE_TABLE, {{"NCCL_PROTO", "allreduce:ll", false}}},
                 {"value of 0", 0, {{"NCCL_BUFFSIZE", "", false}}},
                 {"value of 1024", 0, {{"NCCL_BUFFSIZE", long_value, false}}},
                 {"not printable", 0, {{"NCCL_BUFFSIZE", "1\n2", false}}},
                 {"twice", 0, {{"NCCL_BUFFSIZE", "1", false}, {"NCCL_BUFFSIZE", "2", true}}}};
    (void)state;
    memset(long_value, 'x', sizeof(long_value) - 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct file f = {0};
        struct nt_why why = {""};
        size_t n = cases[i].vars[1].name != NULL ? 2 : 1;
        int rc = nt_table_write(cases[i].product, cases[i].vars, n, NULL, 0, &f.data, &f.size,
                                f.hash, &why);
        if (rc == 0 || strstr(why.text, cases[i].says) == NULL) {
            fail_msg("%zu '%s': rc %d, '%s'", i, cases[i].says, rc, why.text);
        }
    }
}

static void test_damage_is_refused(void **state)
{
    struct file f = sample();
    uint8_t *copy = malloc(f.size + 8);
    struct nt_table t;
    unsigned accepted = 0;
    (void)state;
    for (size_t n = 0; n < f.size; n++) { /* exact allocation, so that ASan sees a read beyond */
        uint8_t *cut = malloc(n > 0 ? n : 1);
        memcpy(cut, f.data, n);
        if (nt_table_read(cut, n, &t, NULL) == 0) {
            fail_msg("truncated at %zu of %zu accepted", n, f.size);
        }
        free(cut);
    }
    for (size_t bit = 0; bit < 8 * f.size; bit++) {
        size_t byte = bit / 8, in_row = (byte - 104) % 48; /* rows begin at 64 + 40 */
        memcpy(copy, f.data, f.size);
        copy[byte] ^= (uint8_t)(1U << bit % 8);
        if (nt_table_read(copy, f.size, &t, NULL) == 0) {
            accepted++; /* another valid content is possible, but not another structure */
            assert_true(byte >= 64 && (byte < 104 || in_row < 36));
        }
    }
    memcpy(copy, f.data, f.size);
    memset(copy + f.size, 0, 8);
    assert_int_equal(nt_table_read(copy, f.size + 8, &t, NULL), -1);
    /* Bits of ranks, bytes, channels and values give other valid tables; all structure is held. */
    assert_in_range(accepted, 1, 8 * f.size / 2);
    free(copy);
    free(f.data);
}

static void put(const char *path, const struct file *f, size_t size, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, f->data, size), size);
    assert_int_equal(fchmod(fd, mode), 0);
    (void)close(fd);
}

static void test_map(void **state)
{
    struct file f = sample();
    char dir[] = "/tmp/nt-format-XXXXXX", path[64], link[64], fifo[64], other[NT_HASH_HEX + 1];
    struct nt_table t = {0};
    struct nt_why why = {""};
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/file", dir);
    (void)snprintf(link, sizeof(link), "%s/link", dir);
    (void)snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
    memset(other, 'a', NT_HASH_HEX);
    other[NT_HASH_HEX] = '\0';
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);

    put(path, &f, f.size, 0644);
    assert_int_equal(nt_table_map(path, f.hash, &t, &why), 0);
    assert_int_equal(t.nrows, 3);
    /* what is written to the file later does not reach the process */
    put(path, &f, f.size / 2, 0644);
    assert_int_equal(nt_table_row(&t, 0).nranks, 4);
    nt_table_unmap(&t);
    nt_table_unmap(&t);

    const struct {
        const char *path, *hash, *says;
        size_t size;
        mode_t mode;
    } cases[] = {{"/nonexistent/x", f.hash, "No such file", f.size, 0644},
                 {"file", f.hash, "not an absolute path", f.size, 0644},
                 {path, "x", "is no SHA-256", f.size, 0644},
                 {path, other, f.hash, f.size, 0644},
                 {path, f.hash, "SHA-256 is", f.size - 1, 0644},
                 {path, f.hash, "this size", 0, 0644},
                 {path, f.hash, "writable by others", f.size, 0666},
                 {path, f.hash, "writable by others", f.size, 0664},
                 {link, f.hash, "symbolic link", f.size, 0644},
                 {fifo, f.hash, "not a regular file", f.size, 0644},
                 {dir, f.hash, "not a regular file", f.size, 0644},
                 {"/dev/zero", f.hash, "not a regular file", f.size, 0644}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        put(path, &f, cases[i].size, cases[i].mode);
        int rc = nt_table_map(cases[i].path, cases[i].hash, &t, &why);
        if (rc == 0 || strstr(why.text, cases[i].says) == NULL) {
            fail_msg("%zu '%s': rc %d, '%s'", i, cases[i].says, rc, why.text);
        }
    }
    (void)unlink(path);
    (void)unlink(link);
    (void)unlink(fifo);
    (void)rmdir(dir);
    free(f.data);
}

static void test_size_classes(void **state)
{
    static const struct {
        uint64_t bytes;
        unsigned class;
    } rows[] = {{0, 0},          {1, 0},     {2, 1},
                {3, 2},          {4, 2},     {5, 3},
                {1024, 10},      {1025, 11}, {UINT64_C(1) << 39, 39},
                {UINT64_MAX, 39}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(nt_size_class(rows[i].bytes), rows[i].class);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_one_encoding),
        cmocka_unit_test(test_empty_is_fine),
        cmocka_unit_test(test_bad_rows),
        cmocka_unit_test(test_good_pairs),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_bad_vars),
        cmocka_unit_test(test_damage_is_refused),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_size_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
