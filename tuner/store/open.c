/* Opening: is it there, is it ours, is it of this version; and where it is by default. */
#include "tuner/store/db.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_MS = 10 };

/* What a view must not stand in for: reading it might never end. */
#define OUR_TABLES                                                                                 \
    "'topology', 'host', 'stack', 'setting', 'executed', 'cases', 'job', 'step', 'gang', 'cells'," \
    " 'trial', 'verdict', 'profile', 'profile_row', 'event', 'import', 'measurement', 'queue',"    \
    " 'snapshot', 'profile_state', 'checkrun', 'checkrow'"

/* --- names of files
 * -------------------------------------------------------------------------------- */

char *nt_db_uri(const char *path, const char *query)
{
    static const char hex[] = "0123456789abcdef";
    size_t len = strlen(path), n = 0;
    size_t size = 3 * len + strlen(query) + 16;
    char *uri = sqlite3_malloc64(size);
    if (uri == NULL) {
        return NULL;
    }
    n = (size_t)snprintf(uri, size, "file:%s", path[0] == '/' ? "//" : "./");
    for (const char *c = path; *c != '\0'; c++) {
        if (strchr("%?#", *c) != NULL) {
            uri[n++] = '%';
            uri[n++] = hex[(unsigned char)*c >> 4];
            uri[n++] = hex[(unsigned char)*c & 15];
        } else {
            uri[n++] = *c;
        }
    }
    (void)snprintf(uri + n, size - n, "?%s", query);
    return uri;
}

/* What is only in the log must be read; true, too, where that cannot be told. */
static bool has_log(const char *path)
{
    char wal[PATH_MAX];
    struct stat st;
    return snprintf(wal, sizeof(wal), "%s-wal", path) >= (int)sizeof(wal) ||
           (stat(wal, &st) == 0 && st.st_size > 0);
}

bool nt_db_immutable(const char *path)
{
    char folder[PATH_MAX];
    char *slash;
    if (has_log(path)) {
        return false;
    }
    (void)snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash != NULL) {
        slash[slash == folder] = '\0';
    }
    return access(slash != NULL ? folder : ".", W_OK) != 0;
}

static int make_folders(char *path, struct nt_err *err)
{
    for (char *c = path + 1; *c != '\0'; c++) {
        if (*c == '/') {
            *c = '\0';
            if (mkdir(path, 0700) != 0 && errno != EEXIST) {
                return nt_fail(err, NT_E_STORE, errno,
                               "folder %s for the database cannot be made; name another place "
                               "with --db or NCCLTUNE_DB",
                               path);
            }
            *c = '/';
        }
    }
    return 0;
}

int nt_store_default_path(const char *given, bool folders, char *out, size_t size,
                          struct nt_err *err)
{
    const char *env = getenv("NCCLTUNE_DB"), *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n;

    if (given == NULL && env != NULL && env[0] != '\0') {
        given = env;
    }
    if (given != NULL) {
        n = snprintf(out, size, "%s", given);
    } else if (state != NULL && state[0] == '/') { /* relative ones are to be ignored (XDG) */
        n = snprintf(out, size, "%s/nccltune/nccltune.db", state);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(out, size, "%s/.local/state/nccltune/nccltune.db", home);
    } else {
        return nt_fail(err, NT_E_INVAL, 0,
                       "no HOME to keep the database in; name it with --db or NCCLTUNE_DB");
    }
    if (n < 0 || (size_t)n >= size) {
        return nt_fail(err, NT_E_INVAL, 0, "the path of the database is longer than %zu bytes",
                       size - 1);
    }
    return folders && given == NULL ? make_folders(out, err) : 0;
}

/* What the file system says before SQLite is asked: its words are better here. */
static int look(const char *path, enum nt_store_mode mode, struct nt_err *err)
{
    struct stat st;
    if (path[0] == '\0') {
        return nt_fail(err, NT_E_INVAL, 0, "the path of the database is empty");
    }
    if (stat(path, &st) != 0) {
        if (errno == ENOENT && mode == NT_STORE_WRITE) {
            return 0;
        }
        return errno == ENOENT
                   ? nt_fail(err, NT_E_MISSING, 0,
                             "no database at %s yet: 'nccltune tune' makes it; name another with "
                             "--db or NCCLTUNE_DB",
                             path)
                   : nt_fail(err, NT_E_STORE, errno, "database %s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return nt_fail(err, NT_E_INVAL, 0, "database %s is a %s, not a file", path,
                       S_ISDIR(st.st_mode) ? "folder" : "device or pipe");
    }
    if (mode != NT_STORE_READ && access(path, W_OK) != 0) {
        return nt_fail(err, NT_E_STORE, errno,
                       "database %s cannot be written; see owner and mode of the file, its folder "
                       "and its file system",
                       path);
    }
    if (st.st_size == 0 && mode == NT_STORE_READ) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "database %s is empty: nothing was ever written to it; name another", path);
    }
    return 0;
}

/* --- opening
 * --------------------------------------------------------------------------------------- */

static int number(struct nt_store *s, const char *text, int64_t *ret, struct nt_err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(s->db, text, -1, &st, NULL);
    if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW) {
        *ret = sqlite3_column_int64(st, 0);
        rc = 0;
    } else {
        rc = nt_db_fail(s, err, NULL);
    }
    (void)sqlite3_finalize(st);
    return rc;
}

static int connect(struct nt_store *s, const char *uri, int busy_ms, struct nt_err *err)
{
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_URI |
                (s->mode == NT_STORE_WRITE ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                                           : SQLITE_OPEN_READONLY);
    if (sqlite3_open_v2(uri, &s->db, flags, NULL) != SQLITE_OK) {
        return s->db != NULL ? nt_db_fail(s, err, NULL)
                             : nt_fail(err, NT_E_NOMEM, 0, "database %s: out of memory", s->path);
    }
    (void)sqlite3_busy_timeout(s->db, busy_ms);
    /* The file may be anybody's: nothing in its schema is trusted. */
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DQS_DML, 0, (int *)NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DQS_DDL, 0, (int *)NULL);
    return nt_db_exec(s,
                      "PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON;"
                      "PRAGMA mmap_size = 0; PRAGMA cache_size = -16000;",
                      err);
}

static bool helpers_missing(const struct nt_err *e)
{
    int primary = -e->sys & 0xff;
    return primary == SQLITE_CANTOPEN || primary == SQLITE_READONLY;
}

/* Reads the header for the first time; a database in a folder that cannot be written is then read
 * as one that nobody changes, since its helper files cannot be made. So is one that is only looked
 * at, since they are not to be left. */
static int first_look(struct nt_store *s, int busy_ms, int64_t *ret_app, struct nt_err *err)
{
    struct nt_err first = {0};
    char *uri = NULL;
    bool only = s->mode == NT_STORE_LOOK && !has_log(s->path);
    int rc = only ? 0 : connect(s, s->path, busy_ms, &first);
    if (rc == 0 && !only) {
        rc = number(s, "SELECT count(*) FROM sqlite_schema", ret_app, &first);
    }
    if (only || (rc != 0 && s->mode == NT_STORE_READ && helpers_missing(&first) &&
                 nt_db_immutable(s->path))) {
        (void)sqlite3_close(s->db);
        s->db = NULL;
        uri = nt_db_uri(s->path, "mode=ro&immutable=1");
        rc = uri != NULL ? connect(s, uri, busy_ms, &first)
                         : nt_fail(&first, NT_E_NOMEM, 0, "database %s: out of memory", s->path);
        sqlite3_free(uri);
    }
    if (rc == 0) {
        rc = number(s, "PRAGMA application_id", ret_app, &first);
    }
    if (rc != 0 && err != NULL) {
        *err = first;
    }
    return rc;
}

/* Refuses what is not ours, what a newer program wrote, and what nccltune never makes. */
static int identify(struct nt_store *s, int64_t app, int current, int64_t *ret_version,
                    struct nt_err *err)
{
    int64_t version = 0, objects = 0, strange = 0;
    int rc = number(s, "PRAGMA user_version", &version, err);
    if (rc == 0) {
        rc = number(s, "SELECT count(*) FROM sqlite_schema", &objects, err);
    }
    if (rc == 0) {
        rc = number(s,
                    "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'"
                    " OR (type = 'table' AND rootpage = 0)"
                    " OR (type = 'view' AND lower(name) IN (" OUR_TABLES "))",
                    &strange, err);
    }
    if (rc != 0) {
        return rc;
    }
    if (app == 0 && objects == 0 && version == 0 && s->mode != NT_STORE_READ) {
        *ret_version = 0;
        return 0;
    }
    if (app != NT_APPLICATION_ID) {
        return nt_fail(err, NT_E_DAMAGED, 0,
                       "database %s belongs to another program (application id 0x%llx); name "
                       "another",
                       s->path, (unsigned long long)app);
    }
    if (version > current) {
        return nt_fail(err, NT_E_DAMAGED, 0,
                       "database %s has schema version %lld, written by a newer nccltune; this "
                       "one knows up to %d: use that nccltune, or name another database",
                       s->path, (long long)version, current);
    }
    if (version <= 0) {
        return nt_fail(err, NT_E_DAMAGED, 0,
                       "database %s has schema version %lld, which no nccltune writes: take back a "
                       "copy that 'nccltune backup' made, or name another",
                       s->path, (long long)version);
    }
    if (version < current && s->mode == NT_STORE_READ) {
        return nt_fail(err, NT_E_STORE, 0,
                       "database %s has schema version %lld, this nccltune reads %d: a command "
                       "that writes to it, such as 'nccltune jobs --upgrade --db %s', brings it up",
                       s->path, (long long)version, current, s->path);
    }
    if (strange > 0) {
        return nt_fail(err, NT_E_DAMAGED, 0,
                       "database %s holds %lld triggers, virtual tables or views in place of "
                       "tables, which nccltune never makes: refused",
                       s->path, (long long)strange);
    }
    *ret_version = version;
    return 0;
}

/* Brings the schema up; several programs may try at once, the lock lets one do it. */
static int upgrade(struct nt_store *s, const struct nt_migration *list, struct nt_err *err)
{
    int current = nt_migration_count(list);
    int64_t version = 0;
    const char *file = NULL;
    int rc = nt_store_begin(s, err);
    if (rc != 0) {
        return rc;
    }
    rc = number(s, "PRAGMA user_version", &version, err);
    if (rc == 0 && version < current) {
        if (nt_migrate(s->db, list, (int)version, &file) != SQLITE_OK) {
            bool strange = (sqlite3_errcode(s->db) & 0xff) == SQLITE_ERROR;
            rc = nt_db_fail(s, err, file);
            if (strange) {
                rc = nt_wrap(err, rc,
                             "what it holds is not of schema version %lld, as it says; it stays as "
                             "it is: take back a copy that 'nccltune backup' made",
                             (long long)version);
            }
        } else {
            char text[96];
            (void)snprintf(text, sizeof(text),
                           "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                           NT_APPLICATION_ID, current);
            rc = nt_db_exec(s, text, err);
        }
    }
    return nt_store_end(s, rc, err);
}

/* WAL, so that a reader never waits for the job. The change of mode asks for the file alone, and
 * SQLite does not wait for that by itself. */
static int write_ahead(struct nt_store *s, int busy_ms, struct nt_err *err)
{
    struct timespec pause = {.tv_nsec = RETRY_MS * 1000000L};
    for (int waited = 0;; waited += RETRY_MS) {
        struct nt_err e = {0};
        int rc = nt_db_exec(s,
                            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                            "PRAGMA journal_size_limit = 16777216;",
                            &e);
        if (rc == 0 || (-e.sys & 0xff) != SQLITE_BUSY || waited >= busy_ms) {
            if (rc != 0 && err != NULL) {
                *err = e;
            }
            return rc;
        }
        (void)nanosleep(&pause, NULL);
    }
}

static int open_checked(struct nt_store *s, int busy_ms, const struct nt_migration *list,
                        struct nt_err *err)
{
    static const enum nt_stmt_id always[] = {NT_SQL_BEGIN, NT_SQL_COMMIT, NT_SQL_ROLLBACK};
    int64_t app = 0, version = 0;
    int rc = first_look(s, busy_ms, &app, err);
    if (rc == 0) {
        rc = identify(s, app, nt_migration_count(list), &version, err);
    }
    if (rc == 0 && s->mode == NT_STORE_WRITE && sqlite3_db_readonly(s->db, "main") != 0) {
        rc = nt_fail(err, NT_E_STORE, 0,
                     "database %s cannot be written; see owner and mode of the file and its folder",
                     s->path);
    }
    /* Now, because a rollback that must allocate fails just when memory ran out. */
    for (size_t i = 0; rc == 0 && i < NT_COUNT(always); i++) {
        rc = nt_db_prepare(s, always[i], err);
    }
    if (rc == 0 && s->mode == NT_STORE_WRITE && version < nt_migration_count(list)) {
        rc = upgrade(s, list, err);
    }
    if (rc == 0 && s->mode == NT_STORE_WRITE) {
        rc = write_ahead(s, busy_ms, err);
    }
    return rc;
}

int nt_db_open(const char *path, enum nt_store_mode mode, int busy_ms,
               const struct nt_migration *list, struct nt_store **ret, struct nt_err *err)
{
    /* A relative name could be taken for a URI. */
    const char *dot = strncmp(path, "file:", 5) == 0 ? "./" : "";
    struct nt_store *s = NULL;
    size_t size;
    int rc = look(path, mode, err);
    if (rc != 0) {
        return rc;
    }
    size = strlen(path) + strlen(dot) + 1;
    s = sqlite3_malloc64(sizeof(*s) + size);
    if (s == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "database %s: out of memory", path);
    }
    memset(s, 0, sizeof(*s));
    (void)snprintf(s->path, size, "%s%s", dot, path);
    s->mode = mode;
    rc = open_checked(s, busy_ms, list, err);
    if (rc == 0) {
        *ret = s;
        s = NULL;
    }
    nt_store_close(s);
    return rc;
}

int nt_store_open(const char *path, enum nt_store_mode mode, struct nt_store **ret,
                  struct nt_err *err)
{
    return nt_db_open(path, mode, NT_STORE_BUSY_MS, nt_migrations, ret, err);
}

int nt_store_try(const char *path, struct nt_err *err)
{
    struct nt_store *s = NULL;
    struct stat st;
    int hold, rc;

    if (path[0] != '\0' && stat(path, &st) != 0 && errno == ENOENT) {
        rc = nt_write_try(path, &hold, err);
        return rc == 0 ? 0 : nt_wrap(err, rc, "database %.300s cannot be made", path);
    }
    rc = nt_store_open(path, NT_STORE_LOOK, &s, err);
    nt_store_close(s);
    return rc;
}

void nt_store_close(struct nt_store *s)
{
    if (s == NULL) {
        return;
    }
    if (s->db != NULL && !sqlite3_get_autocommit(s->db)) {
        (void)sqlite3_step(s->stmt[NT_SQL_ROLLBACK]);
    }
    for (size_t i = 0; i < NT_SQL_COUNT; i++) {
        (void)sqlite3_finalize(s->stmt[i]);
    }
    (void)sqlite3_close(s->db);
    sqlite3_free(s->scratch);
    sqlite3_free(s);
}
