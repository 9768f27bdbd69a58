/* The file of the database: one service at a time, and whether it is still where it was. */
#include "tuner/base/log.h"
#include "tuner/service/service_i.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

/* One service a database: two would start each other's jobs. The lock is on the database itself and
 * of another kind than SQLite's, goes with the process whatever ends it, and is not inherited. Its
 * descriptor must be closed after the store, whose own locks would go with it. */
int nt_service_lock(struct nt_service *s, struct nt_err *err)
{
    const char *path = s->database;

    s->lock = open(path, O_RDONLY | O_CLOEXEC);
    if (s->lock < 0) {
        return nt_fail(err, NT_E_IO, errno, "database %s", path);
    }
    if (flock(s->lock, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK
                   ? nt_fail(err, NT_E_MISSING, 0,
                             "another service works on %s; end it, or name another database for "
                             "this one",
                             path)
                   : nt_fail(err, NT_E_IO, errno, "lock %s", path);
    }
    return 0;
}

int nt_service_database(struct nt_service *s, struct nt_err *err)
{
    struct stat open_one, named;
    bool there = fstat(s->lock, &open_one) == 0 && stat(s->database, &named) == 0 &&
                 open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
    struct nt_err e = {0};
    int rc = there ? 0
                   : nt_fail(&e, NT_E_STORE, 0,
                             "database %s was moved, removed or replaced while the service works "
                             "on it: put it back, or start the service anew",
                             s->database);

    if (s->gone == there) {
        s->gone = !there;
        nt_log(there ? NT_INFO : NT_ERROR, "%s", there ? "the database is back" : e.msg);
    }
    if (rc != 0 && err != NULL) {
        *err = e;
    }
    return rc;
}
