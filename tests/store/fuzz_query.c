/* SQL of strangers: whatever it is, it ends, and the database stays as it was. */
#include "tuner/store/db.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int ignore(void *data, unsigned n, const char *const *names, const struct nt_value *values,
                  struct nt_err *err)
{
    (void)data;
    (void)n;
    (void)names;
    (void)values;
    (void)err;
    return 0;
}

static struct nt_store *database(void)
{
    static struct nt_store *s;
    if (s == NULL) {
        struct nt_err e = {0};
        nt_assert(nt_store_open(":memory:", NT_STORE_WRITE, &s, &e) == 0);
        nt_assert(nt_store_add_event(s, 0, "kind", "text", &e) == 0);
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct nt_query_limits limits = {
        .time_ns = 5000000, .rows = 1000, .bytes = 1 << 20};
    struct nt_store *s = database();
    struct nt_err e = {0};
    int before = sqlite3_total_changes(s->db);
    char *sql = malloc(size + 1);
    if (sql != NULL) {
        memcpy(sql, data, size);
        sql[size] = '\0';
        int rc;
        alarm(2); /* the limits hold, whatever one call of a function does */
        rc = nt_store_query(s, sql, NULL, 0, &limits, ignore, NULL, NULL, &e);
        alarm(0);
        nt_assert(rc == 0 || e.msg[0] != '\0');
        free(sql);
    }
    nt_assert(sqlite3_total_changes(s->db) == before && sqlite3_get_autocommit(s->db));
    nt_assert(nt_store_query(s, "SELECT count(*) FROM event", NULL, 0, &limits, ignore, NULL, NULL,
                             &e) == 0);
    return 0;
}
