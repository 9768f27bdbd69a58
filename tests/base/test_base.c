#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/base/buf.h"
#include "tuner/base/cli.h"
#include "tuner/base/hash.h"
#include "tuner/base/rng.h"
#include "tuner/base/text.h"

static void test_errors_wrap(void **state)
{
    struct nt_err e = {0};
    (void)state;
    assert_int_equal(nt_fail(&e, NT_E_IO, 2, "open %s", "/x"), -NT_E_IO);
    assert_string_equal(e.msg, "open /x: No such file or directory");
    assert_int_equal(nt_wrap(&e, -NT_E_IO, "profile %d", 7), -NT_E_IO);
    assert_string_equal(e.msg, "profile 7: open /x: No such file or directory");
    assert_int_equal(nt_exit_code(-NT_E_INVAL), 2);
    assert_int_equal(nt_exit_code(0), 0);
    assert_int_equal(nt_fail(NULL, NT_E_BUG, 0, "no receiver"), -NT_E_BUG);
}

static void test_bytes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } rows[] = {{"512", 512}, {"14K", 14336}, {"3.5M", 3670016},   {"1GiB", 1 << 30},
                {"", 0},      {"16x", 0},     {"-4", 0},           {"0x10", 0},
                {"1.3", 0},   {"4 K", 0},     {"99999999999G", 0}, {"nan", 0},
                {"1e3", 1000}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t v = 0;
        struct nt_err e = {0};
        int rc = nt_parse_bytes(rows[i].text, &v, &e);
        if ((rc == 0) != (rows[i].bytes != 0) || v != rows[i].bytes) {
            fail_msg("'%s': rc %d value %llu", rows[i].text, rc, (unsigned long long)v);
        }
    }
}

static void test_bytes_round_trip(void **state)
{
    static const uint64_t sizes[] = {1, 256, 1024, 14336, 1536, 3670016, 67108864, 1000, 1049600};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char text[24];
        uint64_t v = 0;
        assert_int_equal(nt_parse_bytes(nt_format_bytes(sizes[i], text, sizeof(text)), &v, NULL),
                         0);
        assert_int_equal(v, sizes[i]);
    }
}

static void test_times_to_read(void **state)
{
    static const struct {
        double ns;
        const char *text;
    } rows[] = {{0, "0 ns"},           {999.4, "999 ns"},  {999.6, "1 µs"},    {13700, "13.7 µs"},
                {999400, "999 µs"},    {999600, "1 ms"},   {999.6e6, "1 s"},   {176e9, "176 s"},
                {999.6e9, "16.7 min"}, {5400e9, "90 min"}, {36e12, "600 min"}, {72e12, "20 h"},
                {36e14, "1000 h"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[24];
        assert_string_equal(nt_format_ns(rows[i].ns, text, sizeof(text)), rows[i].text);
    }
}

static void test_durations(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } rows[] = {{"90", 90000000000},
                {"5m", 300000000000},
                {"1h30m", 5400000000000},
                {"250ms", 250000000},
                {"", 0},
                {"5x", 0},
                {"-5s", 0},
                {"m", 0},
                {"0", 0},
                {"0s", 0},
                {"0h0m", 0},
                {"0.1ns", 0}};
    struct nt_err err;
    uint64_t none = 1;
    (void)state;
    assert_int_equal(nt_parse_duration("0s", &none, &err), -NT_E_INVAL);
    assert_non_null(strstr(err.msg, "no time at all; write what there is"));
    assert_int_equal(nt_parse_wait("0s", &none, &err), 0);
    assert_int_equal(none, 0);
    assert_int_equal(nt_parse_wait("", &none, &err), -NT_E_INVAL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t v = 0;
        int rc = nt_parse_duration(rows[i].text, &v, NULL);
        if ((rc == 0) != (rows[i].ns != 0) || v != rows[i].ns) {
            fail_msg("'%s': rc %d value %llu", rows[i].text, rc, (unsigned long long)v);
        }
    }
}

static void test_suggestion(void **state)
{
    static const char *const names[] = {"all_reduce", "all_gather", "broadcast", NULL};
    struct nt_err e = {0};
    (void)state;
    assert_int_equal(nt_fail_name(&e, "collective", "allreduce", names), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "did you mean 'all_reduce'"));
    assert_int_equal(nt_fail_name(&e, "collective", "zzzzzzzzzzzz", names), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "known: all_reduce, all_gather, broadcast"));
}

/* What two names begin with alike makes them no nearer. */
static void test_only_what_is_near_is_suggested(void **state)
{
    static const char *const names[] = {"NCCL_ALGO", "NCCL_BUFFSIZE", "graph",
                                        "ll",        "docker",        NULL};
    static const char *const rows[][2] = {{"NCCL_BOGUS", NULL},
                                          {"NCCL_FOO", NULL},
                                          {"NCCL_ALG", "NCCL_ALGO"},
                                          {"nccl_bufsize", "NCCL_BUFFSIZE"},
                                          {"graf", "graph"},
                                          {"dokcer", "docker"},
                                          {"l", "ll"},
                                          {"x", NULL},
                                          {"", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *near = nt_nearest(rows[i][0], names);
        assert_true(rows[i][1] == NULL ? near == NULL
                                       : near != NULL && strcmp(near, rows[i][1]) == 0);
    }
}

static void test_buf_limit(void **state)
{
    struct nt_buf b;
    (void)state;
    nt_buf_init(&b, 8);
    nt_buf_puts(&b, "12345");
    assert_false(b.failed);
    nt_buf_printf(&b, "%d", 6789);
    assert_true(b.failed);
    assert_string_equal(nt_buf_str(&b), "12345");
    nt_buf_clear(&b);
    nt_buf_puts(&b, "abcdefgh");
    assert_false(b.failed);
    nt_buf_consume(&b, 6);
    assert_string_equal(nt_buf_str(&b), "gh");
    nt_buf_done(&b);
}

static void test_sha256(void **state)
{
    char hex[NT_HEX_LEN + 1];
    (void)state;
    nt_sha256_hex("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_false(nt_sha256_file_hex("/dev/zero", hex)); /* would not end */
    assert_string_equal(hex, "");
    nt_sha256_hex("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void test_turns(void **state)
{
    static const unsigned turns[] = {0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0};
    (void)state;
    for (unsigned i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
        assert_int_equal(nt_rng_abba(i), turns[i]);
    }
}

static void test_rng_repeats(void **state)
{
    struct nt_rng a, b;
    uint64_t seen = 0;
    (void)state;
    nt_rng_seed(&a, 7);
    nt_rng_seed(&b, 7);
    for (int i = 0; i < 1000; i++) {
        uint64_t x = nt_rng_below(&a, 64);
        assert_int_equal(x, nt_rng_below(&b, 64));
        seen |= UINT64_C(1) << x;
    }
    assert_int_equal(seen, UINT64_MAX);
}

struct demo {
    uint32_t ranks;
    bool dry;
    uint64_t budget, bytes;
    const char *effort;
    struct nt_strs fix, also;
};
static const char *const efforts[] = {"quick", "standard", NULL};
static const struct nt_opt demo_opts[] = {
    NT_OPT_SOME(NT_O_U32, demo, ranks, "ranks", 'n', "COUNT", "ranks"),
    NT_OPT(NT_O_FLAG, demo, dry, "dry-run", 0, NULL, "plan"),
    NT_OPT(NT_O_DURATION, demo, budget, "budget", 0, "TIME", "time"),
    NT_OPT_SOME(NT_O_BYTES, demo, bytes, "bytes", 0, "SIZE", "size"),
    {.name = "effort",
     .type = NT_O_STR,
     .offset = offsetof(struct demo, effort),
     .arg = "E",
     .help = "e",
     .choices = efforts},
    NT_OPT(NT_O_STRS, demo, fix, "fix", 0, "NAME=VALUE", "fix"),
    {.name = "also",
     .type = NT_O_STRS,
     .offset = offsetof(struct demo, also),
     .arg = "E",
     .help = "a",
     .choices = efforts},
    {0}};
static const struct nt_command demo_cmd = {.name = "demo",
                                           .summary = "s",
                                           .args = "[FILE]",
                                           .max_args = 1,
                                           .opts = demo_opts,
                                           .size = sizeof(struct demo)};

static void test_options(void **state)
{
    char *argv[] = {"-n",  "4",     "file", "--budget=5m", "--dry-run", "--fix",
                    "A=1", "--fix", "B=2",  "--effort",    "quick"};
    struct demo d;
    unsigned nargs = 0;
    bool help = false;
    (void)state;
    assert_int_equal(nt_cli_parse(&demo_cmd, 11, argv, &d, &nargs, &help, NULL), 0);
    assert_int_equal(d.ranks, 4);
    assert_true(d.dry);
    assert_int_equal(d.budget, 300000000000);
    assert_int_equal(d.fix.n, 2);
    assert_string_equal(d.fix.v[1], "B=2");
    assert_string_equal(d.effort, "quick");
    assert_int_equal(nargs, 1);
    assert_string_equal(argv[0], "file");
}

static void test_bad_options(void **state)
{
    static const struct {
        char *word, *value;
        const char *says;
    } rows[] = {{"--rank", "4", "did you mean 'ranks'"},
                {"--ranks", "16x", "--ranks: '16x' is not a whole number"},
                {"--ranks", "99999999999", "too large"},
                {"--ranks", NULL, "needs COUNT"},
                {"--ranks", "0", "--ranks: at least 1"},
                {"--bytes", "0", "--bytes: at least 1"},
                {"--dry-run=1", NULL, "takes no value"},
                {"--effort", "quik", "did you mean 'quick'"},
                {"--also", "standart", "did you mean 'standard'"},
                {"-z", NULL, "unknown option"},
                {"a", "b", "too many arguments"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *argv[] = {rows[i].word, rows[i].value};
        struct demo d;
        unsigned nargs = 0;
        bool help = false;
        struct nt_err e = {0};
        int rc =
            nt_cli_parse(&demo_cmd, rows[i].value != NULL ? 2 : 1, argv, &d, &nargs, &help, &e);
        if (rc != -NT_E_INVAL || strstr(e.msg, rows[i].says) == NULL) {
            fail_msg("%s: rc %d, '%s'", rows[i].word, rc, e.msg);
        }
    }
}

/* No line of --help is longer than a screen, and the usage line can be typed as it stands. */
static void test_help(void **state)
{
    static const struct nt_opt long_opts[] = {
        NT_OPT(NT_O_STR, demo, effort, "a-name-that-takes-all-of-its-column", 'x', "VALUE",
               "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o"),
        {0}};
    static const struct nt_command cmd = {
        .name = "long",
        .summary = "s",
        .args = "[options] -- COMMAND",
        .opts = long_opts,
        .details = "µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ µ "
                   "µ µ µ µ µ µ µ µ µ µ µ µ µ\n\nnext"};
    char *text = NULL, *rest, *line;
    size_t size = 0, lines = 0;
    FILE *f = open_memstream(&text, &size);
    (void)state;

    assert_non_null(f);
    nt_cli_help("p", &cmd, f);
    assert_int_equal(fclose(f), 0);
    assert_non_null(strstr(text, "usage: p long [options] -- COMMAND\n"));
    assert_non_null(strstr(text, "µ µ\nµ"));
    assert_non_null(strstr(text, "µ\n\nnext\n\nOptions:\n"));
    assert_non_null(strstr(text, "all-of-its-column VALUE\n                               a b "));
    assert_non_null(strstr(text, "\n                               h i j"));
    for (rest = text; (line = strsep(&rest, "\n")) != NULL; lines++) {
        size_t shown = 0;
        for (const char *c = line; *c != '\0'; c++) {
            shown += ((unsigned char)*c & 0xc0) != 0x80;
        }
        assert_in_range(shown, 0, 96);
    }
    assert_in_range(lines, 8, 16);
    free(text);
}

/* One page a command and one that lists them; a line of text that begins with a dot is no request
 * of roff. */
static void test_man_pages(void **state)
{
    static const struct nt_command dotted = {
        .name = "dot", .summary = "s", .args = "", .details = ".first\n\n'second with \\ and -"};
    static const struct nt_command *const commands[] = {&demo_cmd, &dotted, NULL};
    static const struct {
        const char *file, *says;
    } rows[] = {{"p.1", "\n.BR p\\-demo (1)\ns\n"},
                {"p-demo.1", "\n.B \\-n, \\-\\-ranks COUNT\n"},
                {"p-demo.1", "; one of: quick, standard\n"},
                {"p-demo.1", "\n.B 70\n"},
                {"p-dot.1", "\n\\&.first\n.PP\n\\&'second with \\e and \\-\n"}};
    char dir[] = "/tmp/nt-man-XXXXXX", path[64], text[4096];
    struct nt_err e = {0};
    (void)state;

    assert_non_null(mkdtemp(dir));
    assert_int_equal(nt_cli_man_pages("p", "1", "does it", commands, dir, &e), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        FILE *f;
        (void)snprintf(path, sizeof(path), "%s/%s", dir, rows[i].file);
        f = fopen(path, "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
        (void)fclose(f);
        if (strstr(text, rows[i].says) == NULL) {
            fail_msg("%s has no '%s':\n%s", rows[i].file, rows[i].says, text);
        }
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, rows[i].file);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(nt_cli_man_pages("p", "1", "does it", commands, dir, &e), -NT_E_IO);
}

/* Links in a private folder stand for the devices: a writer that renames loses only the link. */
static void test_write_file_to_device(void **state)
{
    static const struct {
        const char *target;
        int rc;
    } rows[] = {{"/dev/null", 0}, {"/dev/full", -NT_E_IO}, {"/", -NT_E_INVAL}};
    char dir[] = "/tmp/nt-base-XXXXXX", path[64], file[64];
    struct stat st;
    int out, rc;
    (void)state;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/out", dir);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_err e = {0};
        assert_int_equal(symlink(rows[i].target, path), 0);
        assert_int_equal(nt_write_file(path, "x", 1, 0644, &e), rows[i].rc);
        assert_int_equal(lstat(path, &st), 0);
        assert_true(S_ISLNK(st.st_mode));
        assert_int_equal(unlink(path), 0);
    }
    (void)snprintf(file, sizeof(file), "%s/file", dir);
    assert_int_equal(mkfifo(file, 0600), 0); /* nobody reads: not waited for */
    assert_int_equal(nt_write_file(file, "x", 1, 0600, NULL), -NT_E_INVAL);
    out = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(out >= 0);
    assert_int_equal(nt_write_file(file, "x", 1, 0600, NULL), 0);
    (void)close(out);
    assert_int_equal(unlink(file), 0);
    (void)snprintf(file, sizeof(file), "%s/file", dir);
    assert_int_equal(nt_write_file(file, "old", 3, 0600, NULL), 0);
    assert_int_equal(symlink(file, path), 0);
    assert_int_equal(nt_write_file(path, "newer", 5, 0600, NULL), 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(file, &st), 0);
    assert_int_equal(st.st_size, 5);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(unlink(path), 0);
    /* a link to what stdout is, as /dev/stdout: neither link nor file is replaced */
    out = dup(STDOUT_FILENO);
    assert_true(out >= 0 && fflush(stdout) == 0 && freopen(file, "w", stdout) != NULL);
    assert_int_equal(symlink("/proc/self/fd/1", path), 0);
    rc = nt_write_file(path, "12", 2, 0600, NULL);
    rc = rc == 0 && fputs("3", stdout) >= 0 && fflush(stdout) == 0 ? 0 : -1;
    assert_true(dup2(out, STDOUT_FILENO) >= 0 && close(out) == 0);
    assert_int_equal(rc, 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(file, &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(nt_write_file("", "x", 1, 0644, NULL), -NT_E_INVAL);
    assert_int_equal(nt_write_file(path, "x", 1, 0600, NULL), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Tried: what lies there stays, nothing is left, and a pipe's reader meets no end by it. */
static void test_write_is_tried(void **state)
{
    static const struct {
        const char *path;
        int rc;
    } rows[] = {{"/dev/null", 0},  {"/dev/full", -NT_E_IO},  {"/", -NT_E_INVAL},
                {"", -NT_E_INVAL}, {"/proc/x", -NT_E_INVAL}, {"/none/x", -NT_E_INVAL}};
    char dir[] = "/tmp/nt-base-XXXXXX", file[64], byte;
    struct stat st;
    int in, hold = 0;
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(nt_write_try(rows[i].path, &hold, NULL), rows[i].rc);
        assert_int_equal(hold, -1);
    }
    assert_non_null(mkdtemp(dir));
    (void)snprintf(file, sizeof(file), "%s/file", dir);
    assert_int_equal(nt_write_try(file, &hold, NULL), 0);
    assert_int_equal(lstat(file, &st), -1);
    assert_int_equal(nt_write_file(file, "old", 3, 0600, NULL), 0);
    assert_int_equal(nt_write_try(file, &hold, NULL), 0);
    assert_int_equal(lstat(file, &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    assert_int_equal(nt_write_try(file, &hold, NULL), -NT_E_INVAL); /* nobody reads */
    in = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(nt_write_try(file, &hold, NULL), 0);
    assert_true(hold >= 0);
    assert_int_equal(read(in, &byte, 1), -1); /* nothing yet, which is not the end */
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(nt_write_file(file, "x", 1, 0600, NULL), 0);
    assert_int_equal(read(in, &byte, 1), 1);
    (void)close(hold);
    assert_int_equal(read(in, &byte, 1), 0);
    (void)close(in);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(dir), 0); /* empty */
}

/* A name given by mistake costs nothing that was measured. */
static void test_measurements_are_not_written_over(void **state)
{
    static const struct {
        const char *head;
        size_t n;
        bool refused;
    } rows[] = {{"SQLite format 3", 16, true},
                {"SQLite format 3, or not", 23, false},
                {"SQLite", 6, false},
                {"\x1f\x8b\x08", 3, true},
                {"#nccltune-recording=1\n", 22, true},
                {"#nccltune", 9, false},
                {"", 0, false}};
    char dir[] = "/tmp/nt-base-XXXXXX", file[64], link[64];
    int hold;
    (void)state;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(file, sizeof(file), "%s/file", dir);
    (void)snprintf(link, sizeof(link), "%s/link", dir);
    assert_int_equal(symlink(file, link), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600),
            rc = rows[i].refused ? -NT_E_INVAL : 0;
        assert_int_equal(write(fd, rows[i].head, rows[i].n), rows[i].n);
        (void)close(fd);
        assert_int_equal(nt_write_try(link, &hold, NULL), rc);
        assert_int_equal(nt_write_file(file, "x", 1, 0600, NULL), rc);
        assert_int_equal(nt_write_file(link, "x", 1, 0600, NULL), rc);
        assert_int_equal(unlink(file), 0);
    }
    assert_int_equal(nt_write_file(file, "x", 1, 0600, NULL), 0);
    assert_int_equal(nt_write_apart(link, file, NULL), -NT_E_INVAL);
    assert_int_equal(nt_write_apart(NULL, file, NULL), 0);
    assert_int_equal(nt_write_apart(dir, file, NULL), 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(nt_write_apart(link, file, NULL), 0); /* neither is there */
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void test_foreign_text_is_made_plain(void **state)
{
    static const char *const rows[][2] = {
        {"plain \xc2\xb5s", "plain \xc2\xb5s"},
        {"\x1b[31mred\x07\n", "?[31mred??"},
        {"\xc2\x9b"
         "31m",
         "?31m"}, /* CSI in one character */
        {"\xe2\x80\xae"
         "turned",
         "?turned"},
        {"\xff\xfe cut \xe2\x82", "?? cut ??"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "%s", rows[i][0]);
        nt_text_plain(text);
        assert_string_equal(text, rows[i][1]);
    }
}

static void test_doubles(void **state)
{
    static const char *const bad[] = {"", " 1", "1 ", "0x10", "nan", "inf", "1e999", "1,5", "1x"};
    double v = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(nt_parse_double(bad[i], &v, NULL), -NT_E_INVAL);
    }
    assert_int_equal(nt_parse_double("-1.5e3", &v, NULL), 0);
    assert_true(v == -1500);
}

static void test_words_for_a_shell(void **state)
{
    static const char *const rows[][2] = {{"", "''"},
                                          {"plain", "'plain'"},
                                          {"two words $x", "'two words $x'"},
                                          {"it's", "'it'\\''s'"},
                                          {"'", "''\\'''"},
                                          {"''", "''\\'''\\'''"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_buf out;
        nt_buf_init(&out, 64);
        nt_buf_put_quoted(&out, rows[i][0]);
        assert_string_equal(nt_buf_str(&out), rows[i][1]);
        nt_buf_done(&out);
    }
}

static void test_numbers_of_other_locales(void **state)
{
    static const struct {
        const char *text;
        double plain, decimal_comma; /* 0: no number */
    } rows[] = {{"12.5", 12.5, 12.5},
                {"12,5", 12.5, 12.5},
                {"1,234.5", 1234.5, 1234.5},
                {"1.234,5", 1234.5, 1234.5},
                {"1,234", 1234, 1.234},
                {"1,234,567", 1234567, 1234567},
                {"1.234.567", 1234567, 1234567},
                {"0,123", 0.123, 0.123},
                {"1'048'576", 1048576, 1048576},
                {"1.234", 1.234, 1.234},
                {"12,34,56", 0, 0},
                {"1,2.3,4", 0, 0},
                {"", 0, 0},
                {",", 0, 0},
                {"0x10", 0, 0},
                {"1e999", 0, 0},
                {"1,5us", 0, 0},
                {"-1,5e3", -1500, -1500}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t n = strlen(rows[i].text);
        for (int comma = 0; comma < 2; comma++) {
            double v = 0, want = comma ? rows[i].decimal_comma : rows[i].plain;
            if (nt_parse_local(rows[i].text, n, comma == 1, &v) != (want != 0) || v != want) {
                fail_msg("'%s': %g", rows[i].text, v);
            }
        }
    }
}

static void test_utf16_is_known(void **state)
{
    (void)state;
    assert_true(nt_is_utf16("\xff\xfeN\0", 4));
    assert_true(nt_is_utf16("\xfe\xff\0N", 4));
    assert_true(nt_is_utf16("N\0C\0C\0L\0", 8));
    assert_true(nt_is_utf16("\0N\0C\0C\0L", 8));
    assert_false(nt_is_utf16("NCCL_ALG", 8));
    assert_false(nt_is_utf16("A=1\0B=2\0", 8)); /* an environment */
    assert_false(nt_is_utf16("\0\0\0\0\0\0\0\0", 8));
    assert_false(nt_is_utf16("", 0));
}

/* A wrong path is the caller's to change, whatever is wrong with it: never the answer "no". */
static void test_unreadable_paths_are_bad_input(void **state)
{
    char dir[] = "/tmp/nt-base-XXXXXX", path[64];
    static const char *const paths[] = {"/nonexistent/x", "/proc/self/loginuid/x", "/"};
    struct nt_buf b;
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        nt_buf_init(&b, 100);
        assert_int_equal(nt_buf_read_file(&b, paths[i], NULL), -NT_E_INVAL);
        nt_buf_done(&b);
    }
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/loop", dir);
    assert_int_equal(symlink("loop", path), 0);
    nt_buf_init(&b, 100);
    assert_int_equal(nt_buf_read_file(&b, path, NULL), -NT_E_INVAL);
    nt_buf_done(&b);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* A pipe that somebody writes to, late and slowly, is read to its end; one that nobody does is no
 * reason to wait for ever. */
static void test_pipes(void **state)
{
    char dir[] = "/tmp/nt-base-XXXXXX", path[64];
    struct nt_buf b;
    struct nt_err e = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    for (int writes = 1; writes >= 0; writes--) {
        pid_t pid = fork();
        if (pid == 0) {
            int fd;
            (void)usleep(50000);
            fd = writes ? open(path, O_WRONLY) : -1;
            for (int i = 0; fd >= 0 && i < 3; i++) {
                (void)usleep(20000);
                (void)(write(fd, "abc", 3) == 3);
            }
            _exit(0);
        }
        assert_true(pid > 0);
        nt_buf_init(&b, 100);
        assert_int_equal(nt_buf_read_file(&b, path, &e), writes ? 0 : -NT_E_INVAL);
        assert_string_equal(nt_buf_str(&b), writes ? "abcabcabc" : "");
        nt_buf_done(&b);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
    assert_non_null(strstr(e.msg, "nobody writes to"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_wrap),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_bytes_round_trip),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_suggestion),
        cmocka_unit_test(test_only_what_is_near_is_suggested),
        cmocka_unit_test(test_buf_limit),
        cmocka_unit_test(test_sha256),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_rng_repeats),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_man_pages),
        cmocka_unit_test(test_write_file_to_device),
        cmocka_unit_test(test_write_is_tried),
        cmocka_unit_test(test_measurements_are_not_written_over),
        cmocka_unit_test(test_foreign_text_is_made_plain),
        cmocka_unit_test(test_words_for_a_shell),
        cmocka_unit_test(test_numbers_of_other_locales),
        cmocka_unit_test(test_utf16_is_known),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_unreadable_paths_are_bad_input),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_times_to_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
