#include "tuner/store/migrate.h"

#include <stddef.h>

int nt_migration_count(const struct nt_migration *list)
{
    int n = 0;
    while (list[n].name != NULL) {
        n++;
    }
    return n;
}

int nt_migrate(sqlite3 *db, const struct nt_migration *list, int from, const char **ret_name)
{
    for (int i = from; list[i].name != NULL; i++) {
        int rc = sqlite3_exec(db, list[i].sql, NULL, NULL, NULL);
        if (rc != SQLITE_OK) {
            *ret_name = list[i].name;
            return rc;
        }
    }
    return SQLITE_OK;
}
