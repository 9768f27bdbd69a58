/* migrate - the numbered changes of the schema, embedded from schema/sql at build time. */
#pragma once
#include <sqlite3.h>
#include "tuner/base/err.h"

enum { NT_APPLICATION_ID = 0x6e63746e }; /* "nctn", in the file's header */

struct nt_migration {
    const char *name; /* of the file */
    const char *sql;
};
/* In order; the schema's version is how many have been applied. Ended by a NULL name. */
extern const struct nt_migration nt_migrations[];
extern const char nt_merge_sql[];

/* Applies those from `from` on; the caller holds the transaction and raises user_version. The error
 * is SQLite's code, *ret_name the file that failed. */
NT_MUST_CHECK int nt_migrate(sqlite3 *db, const struct nt_migration *list, int from,
                             const char **ret_name);
int nt_migration_count(const struct nt_migration *list);
