/* The commands over the database, as a user calls them: output, words, exit codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tuner/store/store.h"

static const char *program;
static char folder[] = "/tmp/nt-cli-XXXXXX";

/* Runs `nccltune LINE` in the folder; what it says on both outputs goes to `out`. */
static int run(const char *line, char *out, size_t size)
{
    char command[1024];
    size_t n;
    int status;
    FILE *p;
    (void)snprintf(command, sizeof(command), "cd '%s' && '%s' %s 2>&1", folder, program, line);
    p = popen(command, "re");
    assert_non_null(p);
    n = fread(out, 1, size - 1, p);
    out[n] = '\0';
    status = pclose(p);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int fill(void **state)
{
    struct nt_err e = {0};
    struct nt_store *s = NULL;
    struct nt_store_job j = {.spec = "{}", .ranks = 4, .nodes = 1, .rig = NT_RIG_MPS_SOCKETS};
    char path[64];
    int64_t job = 0;
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/a.db", folder);
    assert_int_equal(nt_store_open(path, NT_STORE_WRITE, &s, &e), 0);
    assert_int_equal(nt_store_job_create(s, &j, &job, &e), 0);
    assert_int_equal(nt_store_add_event(s, job, "note", "a,b", &e), 0);
    nt_store_close(s);
    return 0;
}

static int clear(void **state)
{
    static const char *const names[] = {"a.db",     "a.db-wal", "a.db-shm", "b.db",
                                        "b.db-wal", "b.db-shm", "e.db"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[96];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

static void test_commands(void **state)
{
    static const struct {
        const char *line;
        int code;
        const char *says;
    } rows[] = {
        {"jobs --db a.db", 0, "mps-sockets"},
        {"jobs --db a.db --format json", 0, "\"rig\": \"mps-sockets\""},
        {"jobs --db a.db --format csv", 0, "job,state,stage,rig"},
        {"jobs --db a.db --format yaml", 2, "known: table, csv, json"},
        {"jobs --db none.db", 3, "no database at none.db yet"},
        {"jobs --db none.db --upgrade", 3, "no database at none.db yet"},
        {"jobs --db a.db extra", 2, "unknown action 'extra'"},
        {"query", 0, "speedups"},
        {"query --db a.db --view events --format csv", 0, "note,\"a,b\"\r\n"},
        {"query --db a.db --view events --format json", 0, "\"text\": \"a,b\""},
        {"query --db a.db --view speedup", 2, "did you mean 'speedups'"},
        {"query --db a.db --view jobs 'SELECT 1'", 2, "not both"},
        {"query --db a.db 'SELECT 40 + 2 AS n'", 0, " n\n42\n"},
        {"query --db a.db 'SELECT 1 UNION SELECT 2' -n 1", 0, "cut after 1 rows"},
        {"query --db a.db 'DELETE FROM job'", 2, "may only read"},
        {"query --db a.db 'SELECT nonsense'", 2, "no such column: nonsense"},
        {"query --db / 'SELECT 1'", 2, "is a folder"},
        {"query --db e.db 'SELECT 1'", 2, "is empty"},
        {"query --db a.db - < /dev/null", 2, "no SQL"},
        {"query --db a.db --timeout 30ms 'WITH t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t)"
         " SELECT max(n) FROM t'",
         1, "longer than 30 ms"},
        {"merge --db b.db a.db", 0, "1 jobs, 0 trials"},
        {"merge --db b.db a.db", 0, "0 jobs, 0 trials"},
        {"merge --db b.db none.db", 3, "none.db, to be merged: No such file"},
        {"merge --db b.db a.db e.db", 2, "e.db is empty"},
        {"merge --db b.db", 2, "FILE"},
    };
    char out[4096];
    (void)state;
    assert_int_equal(run("--version > e.db; : > e.db; true", out, sizeof(out)), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int code = run(rows[i].line, out, sizeof(out));
        if (code != rows[i].code || strstr(out, rows[i].says) == NULL) {
            fail_msg("%s: exit %d\n%s", rows[i].line, code, out);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_commands)};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s NCCLTUNE\n", argv[0]);
        return 2;
    }
    program = argv[1];
    (void)unsetenv("NCCLTUNE_DB");
    return cmocka_run_group_tests(tests, fill, clear);
}
