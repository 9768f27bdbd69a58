/* Every state in which a database can be found, and what is said about it. */
#include "tests/store/fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { BUSY_MS = 50 };

static int open_fast(const char *path, enum nt_store_mode mode, struct nt_store **ret,
                     struct nt_err *e)
{
    return nt_db_open(path, mode, BUSY_MS, nt_migrations, ret, e);
}

static void make(const char *path)
{
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0;
    OK(open_fast(path, NT_STORE_WRITE, &s, &e));
    (void)start_job(s, &setting);
    nt_store_close(s);
}

static void write_file(const char *path, const char *text)
{
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void test_new_and_again(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    make(p->db);
    make(p->db);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM job"), 2);
    assert_int_equal(count_of(p->db, "PRAGMA application_id"), NT_APPLICATION_ID);
    assert_int_equal(count_of(p->db, "PRAGMA user_version"), nt_migration_count(nt_migrations));
    OK(open_fast(p->db, NT_STORE_READ, &s, &e));
    FAILS(nt_store_add_event(s, 0, "k", "t", &e), NT_E_STORE, "for reading only");
    nt_store_close(s);
}

static void test_empty_file_is_taken_for_writing_only(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    write_file(p->db, "");
    FAILS(open_fast(p->db, NT_STORE_READ, &s, &e), NT_E_INVAL, "is empty");
    make(p->db);
    OK(open_fast(p->db, NT_STORE_READ, &s, &e));
    nt_store_close(s);
}

static void prepare_nothing(const char *path)
{
    (void)path;
}
static void prepare_text(const char *path)
{
    write_file(path, "this is a text file, long enough to be taken for a header of a database: "
                     "................................................................\n");
}
static void prepare_foreign(const char *path)
{
    run_sql(path, "CREATE TABLE job (id); PRAGMA application_id = 252006673");
}
static void prepare_unmarked(const char *path)
{
    run_sql(path, "CREATE TABLE notes (id)");
}
static void prepare_newer(const char *path)
{
    make(path);
    run_sql(path, "PRAGMA user_version = 99");
}
static void prepare_none(const char *path)
{
    make(path);
    run_sql(path, "PRAGMA user_version = 0");
}
static void prepare_negative(const char *path)
{
    make(path);
    run_sql(path, "PRAGMA user_version = -1");
}
static void prepare_trigger(const char *path)
{
    make(path);
    run_sql(path, "CREATE TRIGGER t AFTER INSERT ON step BEGIN DELETE FROM job; END");
}
static void prepare_virtual(const char *path)
{
    make(path);
    run_sql(path, "CREATE VIRTUAL TABLE v USING fts5(x)");
}
static void prepare_endless(const char *path)
{
    make(path);
    run_sql(path, "DROP TABLE checkrow; CREATE VIEW CheckRow AS WITH RECURSIVE n(i) AS"
                  " (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS check_id FROM n");
}
static void prepare_cut(const char *path)
{
    make(path);
    assert_int_equal(truncate(path, 8192), 0);
}

static void test_what_is_not_ours(void **state)
{
    static const struct {
        const char *name;
        void (*prepare)(const char *path);
        enum nt_code read, write;
        const char *says;
    } rows[] = {
        {"missing", prepare_nothing, NT_E_MISSING, NT_OK, "nccltune tune"},
        {"text", prepare_text, NT_E_DAMAGED, NT_E_DAMAGED, "not an nccltune database"},
        {"foreign", prepare_foreign, NT_E_DAMAGED, NT_E_DAMAGED, "another program"},
        {"unmarked", prepare_unmarked, NT_E_DAMAGED, NT_E_DAMAGED, "another program"},
        {"newer", prepare_newer, NT_E_DAMAGED, NT_E_DAMAGED, "version 99, written by a newer"},
        {"no version", prepare_none, NT_E_DAMAGED, NT_E_DAMAGED, "which no nccltune writes"},
        {"negative", prepare_negative, NT_E_DAMAGED, NT_E_DAMAGED, "version -1, which no nccltune"},
        {"trigger", prepare_trigger, NT_E_DAMAGED, NT_E_DAMAGED, "triggers"},
        {"virtual table", prepare_virtual, NT_E_DAMAGED, NT_E_DAMAGED, "virtual tables"},
        {"view as a table", prepare_endless, NT_E_DAMAGED, NT_E_DAMAGED, "in place of"},
        {"cut off", prepare_cut, NT_E_DAMAGED, NT_E_DAMAGED, "damaged"},
    };
    struct place *p = *state;
    for (size_t i = 0; i < NT_COUNT(rows); i++) {
        for (int mode = NT_STORE_READ; mode <= NT_STORE_WRITE; mode++) {
            enum nt_code want = mode == NT_STORE_READ ? rows[i].read : rows[i].write;
            struct nt_err e = {0};
            struct nt_store *s = NULL;
            int rc;
            char path[128];
            (void)unlink(p->db);
            (void)snprintf(path, sizeof(path), "%s-wal", p->db);
            (void)unlink(path);
            rows[i].prepare(p->db);
            rc = open_fast(p->db, (enum nt_store_mode)mode, &s, &e);
            if (rc != -(int)want || (want != NT_OK && strstr(e.msg, rows[i].says) == NULL)) {
                fail_msg("%s, mode %d: %d '%s'", rows[i].name, mode, rc, e.msg);
            }
            assert_true((s != NULL) == (want == NT_OK));
            nt_store_close(s);
        }
    }
}

/* It says that it is older than it is: bringing it up stops, with what to do, and changes nothing.
 */
static void test_another_version_than_it_says(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;

    make(p->db);
    run_sql(p->db, "PRAGMA user_version = 3");
    FAILS(open_fast(p->db, NT_STORE_READ, &s, &e), NT_E_STORE, "brings it up");
    FAILS(open_fast(p->db, NT_STORE_WRITE, &s, &e), NT_E_STORE,
          "not of schema version 3, as it says; it stays as it is: take back a copy");
    assert_int_equal(count_of(p->db, "PRAGMA user_version"), 3);
}

static void test_what_is_no_file(void **state)
{
    static const struct {
        const char *path, *says;
        enum nt_code code;
    } rows[] = {{"/tmp", "is a folder", NT_E_INVAL},
                {"/dev/null", "device", NT_E_INVAL},
                {"", "empty", NT_E_INVAL},
                {"/dev/null/x.db", "Not a directory", NT_E_STORE}};
    (void)state;
    for (size_t i = 0; i < NT_COUNT(rows); i++) {
        struct nt_err e = {0};
        struct nt_store *s = NULL;
        FAILS(open_fast(rows[i].path, NT_STORE_WRITE, &s, &e), rows[i].code, rows[i].says);
        FAILS(open_fast(rows[i].path, NT_STORE_READ, &s, &e), rows[i].code, rows[i].says);
    }
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    FAILS(open_fast("/nonexistent/a.db", NT_STORE_WRITE, &s, &e), NT_E_STORE, "No such file");
}

/* A name must never be read as a URI with options of SQLite's. */
static void test_name_that_looks_like_a_uri(void **state)
{
    struct place *p = *state;
    char cwd[512];
    struct stat st;
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_int_equal(chdir(p->folder), 0);
    make("file:x?mode=memory.db");
    assert_int_equal(stat("file:x?mode=memory.db", &st), 0);
    assert_int_equal(chdir(cwd), 0);
}

static void test_uri(void **state)
{
    char *uri = nt_db_uri("/a b/x?y#z%1.db", "mode=ro");
    (void)state;
    assert_string_equal(uri, "file:///a b/x%3fy%23z%251.db?mode=ro");
    sqlite3_free(uri);
    uri = nt_db_uri("x.db", "mode=ro");
    assert_string_equal(uri, "file:./x.db?mode=ro");
    sqlite3_free(uri);
}

/* Root may write everywhere, so these run as somebody else. */
static void as_nobody(const struct place *p, void (*body)(const struct place *p))
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
            _exit(3);
        }
        body(p);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("child: status %x", (unsigned)status);
    }
}

static void nobody_reads(const struct place *p)
{
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    char wal[128];
    struct stat st;
    (void)snprintf(wal, sizeof(wal), "%s-shm", p->db);
    if (open_fast(p->db, NT_STORE_WRITE, &s, &e) != -NT_E_STORE ||
        strstr(e.msg, "cannot be written") == NULL) {
        (void)fprintf(stderr, "write: %s\n", e.msg);
        _exit(1);
    }
    if (open_fast(p->db, NT_STORE_READ, &s, &e) != 0) {
        (void)fprintf(stderr, "read: %s\n", e.msg);
        _exit(1);
    }
    nt_store_close(s);
    if (stat(wal, &st) == 0) {
        (void)fprintf(stderr, "a file was made\n");
        _exit(1);
    }
}

static void test_read_only_folder_and_file(void **state)
{
    struct place *p = *state;
    make(p->db);
    assert_int_equal(chmod(p->db, 0444), 0);
    assert_int_equal(chmod(p->folder, 0555), 0);
    as_nobody(p, nobody_reads);
    assert_int_equal(chmod(p->folder, 0700), 0);
}

static void nobody_is_refused(const struct place *p)
{
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    if (open_fast(p->db, NT_STORE_READ, &s, &e) != -NT_E_STORE || s != NULL) {
        _exit(1);
    }
}

static void test_unreadable(void **state)
{
    struct place *p = *state;
    make(p->db);
    assert_int_equal(chmod(p->db, 0), 0);
    assert_int_equal(chmod(p->folder, 0755), 0);
    as_nobody(p, nobody_is_refused);
}

static void test_locked(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL, *r = NULL;
    sqlite3 *other = NULL;
    make(p->db);
    OK(open_fast(p->db, NT_STORE_WRITE, &s, &e));
    assert_int_equal(sqlite3_open(p->db, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    FAILS(nt_store_add_event(s, 0, "k", "t", &e), NT_E_STORE, "locked by another program");
    OK(open_fast(p->db, NT_STORE_READ, &r, &e)); /* readers never wait */
    nt_store_close(r);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    OK(nt_store_add_event(s, 0, "k", "t", &e));
    nt_store_close(s);
    assert_int_equal(sqlite3_exec(other,
                                  "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE;"
                                  "BEGIN EXCLUSIVE",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    FAILS(open_fast(p->db, NT_STORE_WRITE, &s, &e), NT_E_STORE, "locked by another program");
    FAILS(open_fast(p->db, NT_STORE_READ, &r, &e), NT_E_STORE, "locked by another program");
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

/* Flipped bytes anywhere: an error or the right data, never a crash; and errors say so. */
static void test_flipped_bytes(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0, job;
    unsigned refused = 0;
    long size;
    FILE *f;
    OK(open_fast(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    for (uint64_t i = 2; i < 60; i++) {
        struct nt_store_trial t = some_trial(i, setting);
        OK(nt_store_add_trial(s, job, &t, &e));
    }
    nt_store_close(s);
    s = NULL;
    f = fopen(p->db, "r+be");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size = ftell(f);
    for (long at = 16; at < size; at += 509) {
        struct nt_store_cursor *c = NULL;
        const struct nt_store_step *step = NULL;
        int byte, rc;
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        byte = fgetc(f);
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        (void)fputc(byte ^ 0x55, f);
        assert_int_equal(fflush(f), 0);
        rc = open_fast(p->db, NT_STORE_READ, &s, &e);
        if (rc == 0) {
            rc = nt_store_steps_open(s, job, 1, &c, &e);
        }
        while (rc == 0 && (rc = nt_store_steps_next(c, &step, &e)) == 0 && step != NULL) {
        }
        if (rc != 0) {
            assert_true((rc == -NT_E_STORE || rc == -NT_E_DAMAGED) && e.msg[0] != '\0');
            refused++;
        }
        nt_store_steps_close(c);
        nt_store_close(s);
        s = NULL;
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        (void)fputc(byte, f);
        assert_int_equal(fflush(f), 0);
    }
    assert_int_equal(fclose(f), 0);
    assert_true(refused > 5);
}

static void test_disk_full(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    int64_t setting = 0, job;
    uint64_t seq = 2;
    int rc;
    OK(open_fast(p->db, NT_STORE_WRITE, &s, &e));
    job = start_job(s, &setting);
    OK(nt_db_exec(s, "PRAGMA max_page_count = 60", &e));
    do {
        struct nt_store_trial t = some_trial(seq, setting);
        rc = nt_store_add_trial(s, job, &t, &e);
    } while (rc == 0 && ++seq < 10000);
    assert_int_equal(rc, -NT_E_STORE);
    assert_non_null(strstr(e.msg, "no space left"));
    assert_int_equal(count_of(p->db, "SELECT max(seq) FROM step"), seq - 1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM trial"), seq - 2);
    OK(nt_db_exec(s, "PRAGMA max_page_count = 1000", &e)); /* space came back */
    struct nt_store_trial t = some_trial(seq, setting);
    OK(nt_store_add_trial(s, job, &t, &e));
    nt_store_close(s);
}

/* The file system refuses to let the log grow: as a full disk does, but in write(). */
static void test_file_size_limit(void **state)
{
    struct place *p = *state;
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct rlimit lim = {.rlim_cur = 400000, .rlim_max = 400000};
        struct nt_err e = {0};
        struct nt_store *s = NULL;
        int64_t setting = 0, job;
        uint64_t seq = 2;
        int rc = 0;
        (void)signal(SIGXFSZ, SIG_IGN);
        if (open_fast(p->db, NT_STORE_WRITE, &s, &e) != 0) {
            _exit(2);
        }
        job = start_job(s, &setting);
        (void)setrlimit(RLIMIT_FSIZE, &lim);
        for (; rc == 0 && seq < 20000; seq++) {
            struct nt_store_trial t = some_trial(seq, setting);
            rc = nt_store_add_trial(s, job, &t, &e);
        }
        _exit(rc == -NT_E_STORE && strstr(e.msg, "committed is safe") != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(count_of(p->db, "SELECT count(*) FROM trial") > 10);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM step"),
                     count_of(p->db, "SELECT count(*) FROM trial") + 1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM pragma_integrity_check"
                                     " WHERE integrity_check <> 'ok'"),
                     0);
}

/* --- migrations ----------------------------------------------------------------------------------
 */

/* A database as each older version left it, with a row, comes up to today's. */
static void test_from_every_older_version(void **state)
{
    struct place *p = *state;
    int current = nt_migration_count(nt_migrations);
    for (int old = 1; old < current; old++) {
        struct nt_migration list[32] = {{NULL, NULL}};
        struct nt_err e = {0};
        struct nt_store *s = NULL;
        memcpy(list, nt_migrations, (size_t)old * sizeof(list[0]));
        (void)unlink(p->db);
        OK(nt_db_open(p->db, NT_STORE_WRITE, BUSY_MS, list, &s, &e));
        nt_store_close(s);
        assert_int_equal(count_of(p->db, "PRAGMA user_version"), old);
        run_sql(p->db, "INSERT INTO host (hash, name, facts)"
                       " VALUES (hex(zeroblob(32)), 'kept', '')");
        FAILS(open_fast(p->db, NT_STORE_READ, &s, &e), NT_E_STORE, "jobs --upgrade");
        OK(open_fast(p->db, NT_STORE_WRITE, &s, &e));
        nt_store_close(s);
        assert_int_equal(count_of(p->db, "PRAGMA user_version"), current);
        assert_int_equal(count_of(p->db, "SELECT count(*) FROM host WHERE name = 'kept'"), 1);
        OK(open_fast(p->db, NT_STORE_READ, &s, &e));
        nt_store_close(s);
    }
    assert_true(current >= 2);
}

static void test_failing_migration_changes_nothing(void **state)
{
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    const struct nt_migration good[] = {{"one", "CREATE TABLE a (x)"}, {NULL, NULL}};
    const struct nt_migration bad[] = {{"one", "CREATE TABLE a (x)"},
                                       {"two", "CREATE TABLE b (x); CREATE TABLE a (x)"},
                                       {NULL, NULL}};
    OK(nt_db_open(p->db, NT_STORE_WRITE, BUSY_MS, good, &s, &e));
    nt_store_close(s);
    FAILS(nt_db_open(p->db, NT_STORE_WRITE, BUSY_MS, bad, &s, &e), NT_E_STORE, "two");
    assert_int_equal(count_of(p->db, "PRAGMA user_version"), 1);
    assert_int_equal(count_of(p->db, "SELECT count(*) FROM sqlite_schema"), 1);
}

/* --- default path
 * ----------------------------------------------------------------------------------- */

static void set(const char *name, const char *value)
{
    assert_int_equal(value != NULL ? setenv(name, value, 1) : unsetenv(name), 0);
}

static void test_default_path(void **state)
{
    static const struct {
        const char *given, *db, *state, *home, *path;
    } rows[] = {
        {"/g.db", "/e.db", "/s", "/h", "/g.db"},
        {NULL, "/e.db", "/s", "/h", "/e.db"},
        {NULL, NULL, "/s", "/h", "/s/nccltune/nccltune.db"},
        {NULL, "", "relative", "/h", "/h/.local/state/nccltune/nccltune.db"},
        {NULL, NULL, NULL, "/h", "/h/.local/state/nccltune/nccltune.db"},
        {NULL, NULL, NULL, NULL, NULL},
    };
    struct place *p = *state;
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct stat st;
    char out[256], tiny[8], home[96];
    for (size_t i = 0; i < NT_COUNT(rows); i++) {
        set("NCCLTUNE_DB", rows[i].db);
        set("XDG_STATE_HOME", rows[i].state);
        set("HOME", rows[i].home);
        if (rows[i].path != NULL) {
            OK(nt_store_default_path(rows[i].given, false, out, sizeof(out), &e));
            assert_string_equal(out, rows[i].path);
        } else {
            FAILS(nt_store_default_path(NULL, false, out, sizeof(out), &e), NT_E_INVAL, "--db");
        }
    }
    FAILS(nt_store_default_path("/long/enough", false, tiny, sizeof(tiny), &e), NT_E_INVAL,
          "longer than 7");
    (void)snprintf(home, sizeof(home), "%s/h", p->folder);
    set("HOME", home);
    OK(nt_store_default_path(NULL, true, out, sizeof(out), &e));
    OK(open_fast(out, NT_STORE_WRITE, &s, &e));
    nt_store_close(s);
    assert_int_equal(unlink(out), 0);
    for (char *slash = strrchr(out, '/'); strlen(out) > strlen(p->folder) + 1;
         slash = strrchr(out, '/')) {
        *slash = '\0';
        if (strcmp(out, p->folder) == 0) {
            break;
        }
        assert_int_equal(stat(out, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        assert_int_equal(rmdir(out), 0);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, place_make, place_remove)
    const struct CMUnitTest tests[] = {
        T(test_new_and_again),
        T(test_empty_file_is_taken_for_writing_only),
        T(test_what_is_not_ours),
        T(test_what_is_no_file),
        T(test_name_that_looks_like_a_uri),
        T(test_uri),
        T(test_read_only_folder_and_file),
        T(test_unreadable),
        T(test_locked),
        T(test_flipped_bytes),
        T(test_disk_full),
        T(test_file_size_limit),
        T(test_from_every_older_version),
        T(test_another_version_than_it_says),
        T(test_failing_migration_changes_nothing),
        T(test_default_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
