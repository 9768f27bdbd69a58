#include "tuner/cli/commands.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "tuner/base/text.h"
#include "tuner/cli/rows.h"

enum { SQL_MAX_BYTES = 1 << 16 };

struct query_args {
    const char *view, *format, *db;
    uint64_t rows, time_ns;
};

static const struct query_args query_defaults = {.format = "table", .time_ns = 60000000000};
static const struct nt_opt query_opts[] = {
    NT_OPT(NT_O_STR, query_args, view, "view", 'v', "NAME",
           "a documented view instead of SQL; without either, lists them"),
    {.name = "format",
     .letter = 'f',
     .type = NT_O_STR,
     .offset = offsetof(struct query_args, format),
     .arg = "FORM",
     .help = "table, csv or json (default table)",
     .choices = nt_rows_formats},
    NT_OPT_SOME(NT_O_U64, query_args, rows, "rows", 'n', "COUNT",
                "at most so many rows (default all)"),
    NT_OPT(NT_O_DURATION, query_args, time_ns, "timeout", 0, "TIME",
           "give up after this long (default 60s)"),
    NT_OPT(NT_O_STR, query_args, db, "db", 0, "PATH",
           "the database, anybody's (default NCCLTUNE_DB, else "
           "${XDG_STATE_HOME:-~/.local/state}/nccltune/nccltune.db)"),
    {0}};

static void list_views(void)
{
    for (const struct nt_store_view *v = nt_store_views; v->name != NULL; v++) {
        (void)printf("%-13s %s\n", v->name, v->help);
    }
}

static int answer(const struct query_args *a, const char *sql, struct nt_err *err)
{
    const struct nt_query_limits limits = {.time_ns = a->time_ns, .rows = a->rows};
    struct nt_store *store = NULL;
    struct nt_rows *rows = NULL;
    char path[PATH_MAX];
    bool cut = false;
    int format = nt_vocab_find(nt_rows_formats, "format", a->format, err);
    int rc = format < 0 ? format : nt_store_default_path(a->db, false, path, sizeof(path), err);

    if (rc == 0) {
        rc = nt_store_open(path, NT_STORE_READ, &store, err);
    }
    if (rc == 0) {
        rc = nt_rows_open((enum nt_rows_format)format, stdout, &rows, err);
    }
    if (rc == 0) {
        rc = nt_store_query(store, sql, NULL, 0, &limits, nt_rows_add, rows, &cut, err);
        rc = nt_rows_close(rows, rc, err);
    }
    nt_store_close(store);
    if (rc == 0 && cut) {
        (void)fprintf(stderr, "nccltune: cut after %llu rows\n", (unsigned long long)a->rows);
    }
    return rc;
}

/* Who mistypes a name is told where the names are. */
static int with_hint(int rc, struct nt_err *err)
{
    char said[sizeof(err->msg)];

    if (rc == 0 || strstr(err->msg, "no such ") == NULL) {
        return rc;
    }
    (void)snprintf(said, sizeof(said), "%s", err->msg);
    return nt_fail(err, NT_E_INVAL, 0,
                   "%s; `nccltune query` lists the views, `nccltune query --view NAME --rows 1` "
                   "the columns of one",
                   said);
}

static int run_query(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct query_args *a = opts;
    const char *sql = nargs > 0 ? args[0] : NULL;
    struct nt_buf input;
    int rc = 0;

    if (a->view != NULL && sql != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "SQL or --view, not both");
    }
    if (a->view == NULL && sql == NULL) {
        list_views();
        return 0;
    }
    nt_buf_init(&input, SQL_MAX_BYTES);
    if (a->view != NULL) {
        rc = nt_store_view_sql(a->view, &sql, err);
    } else if (strcmp(sql, "-") == 0) {
        rc = nt_buf_read_file(&input, "-", err);
        sql = nt_buf_str(&input);
    }
    if (rc == 0) {
        rc = with_hint(answer(a, sql, err), err);
    }
    nt_buf_done(&input);
    return rc;
}

const struct nt_command nt_cmd_query = {
    .name = "query",
    .summary = "a named view of the database, or read-only SQL",
    .args = "[SQL]",
    .max_args = 1,
    .opts = query_opts,
    .defaults = &query_defaults,
    .size = sizeof(struct query_args),
    .run = run_query,
    .details =
        "Answers one SELECT over the database of measurements; SQL '-' is read from standard "
        "input. "
        "Nothing can be changed by it: writing, PRAGMA, ATTACH and functions that reach outside "
        "are "
        "refused, so that other people's databases and other people's SQL are safe to try.\n\n"
        "Times in views are microseconds (_us) or nanoseconds (_ns), gains percent of the time "
        "that is "
        "saved (_pct). docs/database.md describes tables and views.\n\n"
        "The ten largest gains: nccltune query \"SELECT * FROM speedups ORDER BY gain_pct DESC "
        "LIMIT 10\". "
        "The noisiest cases: nccltune query \"SELECT * FROM noise ORDER BY between_gangs_pct DESC "
        "LIMIT 10\"."};
