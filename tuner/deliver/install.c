#include "tuner/deliver/install.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "tuner/base/hash.h"
#include "tuner/base/json.h"
#include "tuner/deliver/made.h"
#include "tuner/deliver/safe.h"

#define MANIFEST_FOLDER "/var/lib/nccltune"
#define MANIFEST_NAME   "installed.json"
enum { MAX_FILE = 16 << 20, LOCK_MS = 5000 };

const char *const nt_file_state_names[] = {"unchanged", "changed", "missing", "unreadable", NULL};

/* A file of the plan. */
struct item {
    const struct nt_install_file *file;
    int folder; /* -1: not there yet (dry run) */
    char name[NAME_MAX + 1], temp[128], backup[128];
    enum { IT_NEW, IT_REPLACE, IT_SAME, IT_SAME_FOREIGN } state;
    bool placed;
};

int nt_install_where_check(const struct nt_install_where *w, struct nt_err *err)
{
    struct stat st;

    if (w->root == NULL) {
        return 0;
    }
    if (w->root[0] == '\0') {
        return nt_fail(err, NT_E_INVAL, 0,
                       "--root '' names no folder; leave it out for this machine's own /");
    }
    if (stat(w->root, &st) == 0) {
        return S_ISDIR(st.st_mode) ? 0 : nt_fail(err, NT_E_INVAL, ENOTDIR, "--root %s", w->root);
    }
    return errno == ENOENT
               ? nt_fail(err, NT_E_INVAL, 0,
                         "--root %s: there is no such folder; mkdir -p %s first", w->root, w->root)
               : nt_fail(err, NT_E_INVAL, errno, "--root %s", w->root);
}

/* ---- the manifest ---- */

/* As root, or for another root, the machine's own; else one of the user's. */
static bool is_system_wide(const struct nt_install_where *w)
{
    return w->root != NULL || geteuid() == 0;
}

/* Root's lies where root's files lie, a user's in his own state folder. */
static int manifest_folder(const struct nt_install_where *w, unsigned flags, struct nt_err *err)
{
    char path[PATH_MAX];
    int rc, fd;

    if (is_system_wide(w)) {
        return nt_safe_folder(w->root, MANIFEST_FOLDER, geteuid(), flags, err);
    }
    rc = nt_state_path("installed", path, sizeof(path), err);
    if ((flags & NT_SAFE_CREATE) == 0 && (rc != 0 || access(path, X_OK) != 0)) {
        return nt_fail(err, NT_E_MISSING, 0, "nothing of this user is installed");
    }
    rc = rc == 0 ? nt_own_folder(path, err) : rc;
    if (rc != 0) {
        return rc;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : nt_fail(err, NT_E_IO, errno, "%s", path);
}

/* One installer at a time: a second one would write down what was there before the first. Returns
 * a descriptor that holds the lock, -1 when there is nothing to lock (*ret_rc 0) or it failed. */
static int lock_manifest(const struct nt_install_where *w, unsigned flags, int *ret_rc,
                         struct nt_err *err)
{
    const struct timespec wait = {.tv_nsec = 50000000};
    int folder = manifest_folder(w, w->dry_run ? 0 : flags, err);

    *ret_rc = folder >= 0 || folder == -NT_E_MISSING ? 0 : folder;
    for (int ms = 0; folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) != 0; ms += 50) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || ms >= LOCK_MS) {
            *ret_rc = nt_fail(err, NT_E_IO, 0,
                              "another install or uninstall is at work here; let it finish");
            (void)close(folder);
            return -1;
        }
        (void)nanosleep(&wait, NULL);
    }
    return folder >= 0 ? folder : -1;
}

static void unlock_manifest(int lock)
{
    if (lock >= 0) {
        (void)close(lock);
    }
}

static json_t *empty_manifest(void)
{
    return json_pack("{s:s, s:i, s:[]}", "format", "nccltune-installed", "version", 1, "files");
}

static void manifest_path(const struct nt_install_where *w, char *out, size_t size)
{
    size_t n;

    if (is_system_wide(w)) {
        (void)snprintf(out, size, "%s" MANIFEST_FOLDER "/" MANIFEST_NAME,
                       w->root != NULL ? w->root : "");
    } else if (nt_state_path("installed", out, size, NULL) != 0) {
        (void)snprintf(out, size, MANIFEST_NAME);
    } else {
        n = strlen(out);
        (void)snprintf(out + n, size - n, "/" MANIFEST_NAME);
    }
}

static bool is_manifest(const json_t *m)
{
    return strcmp(nt_json_opt_str(m, "format", ""), "nccltune-installed") == 0 &&
           nt_json_opt_i64(m, "version", 0) == 1 && json_is_array(json_object_get(m, "files"));
}

/* An empty one when there is none. */
static int load_manifest(const struct nt_install_where *w, json_t **ret, struct nt_err *err)
{
    char path[PATH_MAX];
    struct nt_buf text;
    json_t *m = NULL;
    int rc, folder = manifest_folder(w, 0, err);

    if (folder == -NT_E_MISSING) {
        *ret = empty_manifest();
        return *ret != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "manifest");
    }
    if (folder < 0) {
        return folder;
    }
    nt_buf_init(&text, MAX_FILE);
    rc = nt_safe_read(folder, MANIFEST_NAME, geteuid(), &text, err);
    (void)close(folder);
    if (rc == -NT_E_MISSING) {
        m = empty_manifest();
        rc = 0;
    } else if (rc == 0 &&
               (nt_json_parse(nt_buf_str(&text), text.len, "", &m, NULL) != 0 || !is_manifest(m))) {
        manifest_path(w, path, sizeof(path));
        rc = nt_fail(err, NT_E_INVAL, 0,
                     "%.250s %s: put a copy of it back, or remove it; what it listed is then "
                     "nobody's, and to be removed by hand",
                     path,
                     text.len == 0 ? "is empty"
                     : m == NULL   ? "is not JSON"
                                   : "is not of a version that is read here");
    }
    nt_buf_done(&text);
    if (rc == 0) {
        *ret = m;
        m = NULL;
    }
    json_decref(m);
    return rc;
}

static int save_manifest(const struct nt_install_where *w, const json_t *m, struct nt_err *err)
{
    char temp[128];
    struct nt_buf text;
    bool empty = json_array_size(json_object_get(m, "files")) == 0;
    int rc, folder = manifest_folder(w, empty ? 0 : NT_SAFE_CREATE, err);

    if (folder < 0) {
        return empty && folder == -NT_E_MISSING ? 0 : folder;
    }
    nt_buf_init(&text, MAX_FILE);
    if (empty) {
        rc = unlinkat(folder, MANIFEST_NAME, 0) == 0 || errno == ENOENT
                 ? 0
                 : nt_fail(err, NT_E_IO, errno, "remove " MANIFEST_NAME);
    } else {
        nt_json_dump(m, true, &text);
        rc = nt_safe_write_temp(folder, MANIFEST_NAME, text.data, text.len, 0644, temp,
                                sizeof(temp), err);
        if (rc == 0 && renameat(folder, temp, folder, MANIFEST_NAME) != 0) {
            rc = nt_fail(err, NT_E_IO, errno, "write " MANIFEST_NAME);
            (void)unlinkat(folder, temp, 0);
        }
        (void)fsync(folder);
    }
    nt_buf_done(&text);
    (void)close(folder);
    return rc;
}

static json_t *find_entry(const json_t *m, const char *path)
{
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(m, "files"), i, e)
    {
        if (strcmp(nt_json_opt_str(e, "path", ""), path) == 0) {
            return e;
        }
    }
    return NULL;
}

/* ---- looking ---- */

static int split(const char *path, char *folder, size_t size, char *name, struct nt_err *err)
{
    const char *slash = strrchr(path, '/');
    if (path[0] != '/' || slash[1] == '\0' || strlen(slash + 1) > NAME_MAX ||
        (size_t)snprintf(folder, size, "%.*s", (int)(slash - path), path) >= size) {
        return nt_fail(err, NT_E_INVAL, 0, "%.200s: no path of a file", path);
    }
    (void)snprintf(name, NAME_MAX + 1, "%s", slash + 1);
    return 0;
}

int nt_install_read(const struct nt_install_where *w, const char *path, struct nt_buf *out,
                    struct nt_err *err)
{
    char folder[PATH_MAX], name[NAME_MAX + 1];
    int fd, rc = split(path, folder, sizeof(folder), name, err);

    if (rc != 0) {
        return rc;
    }
    fd = nt_safe_folder(w->root, folder, geteuid(), 0, err);
    if (fd < 0) {
        return fd;
    }
    rc = nt_safe_read(fd, name, geteuid(), out, err);
    (void)close(fd);
    return rc;
}

/* A dry run finds what would stop the first file of a folder: it, or where it would be made, takes
 * none. */
static int would_take(const struct nt_install_where *w, const char *folder, struct nt_err *err)
{
    size_t len = w->root != NULL ? strlen(w->root) : 0;
    char path[2 * PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s%s", w->root != NULL ? w->root : "", folder);
    while (access(path, F_OK) != 0 && errno == ENOENT && strlen(path) > len) {
        *strrchr(path, '/') = '\0';
    }
    if (faccessat(AT_FDCWD, path[0] != '\0' ? path : "/", W_OK | X_OK, AT_EACCESS) != 0) {
        return nt_fail(err, NT_E_IO, errno, "%s takes no files", path[0] != '\0' ? path : "/");
    }
    return 0;
}

static int look_at(const struct nt_install_where *w, const json_t *m, struct item *it,
                   struct nt_err *err)
{
    char folder[PATH_MAX], hash[NT_HEX_LEN + 1];
    const json_t *entry = find_entry(m, it->file->path);
    struct nt_buf there;
    bool equal;
    int rc = split(it->file->path, folder, sizeof(folder), it->name, err);

    if (rc != 0) {
        return rc;
    }
    it->folder = nt_safe_folder(w->root, folder, geteuid(), w->dry_run ? 0 : NT_SAFE_CREATE, err);
    if (it->folder == -NT_E_MISSING && w->dry_run) {
        it->folder = -1;
        it->state = IT_NEW;
        return would_take(w, folder, err);
    }
    if (it->folder < 0) {
        rc = it->folder;
        it->folder = -1;
        return rc;
    }
    nt_buf_init(&there, MAX_FILE);
    rc = nt_safe_read(it->folder, it->name, geteuid(), &there, err);
    equal = rc == 0 && there.len == it->file->len &&
            (there.len == 0 || memcmp(there.data, it->file->data, there.len) == 0);
    nt_sha256_hex(nt_buf_str(&there), there.len, hash);
    nt_buf_done(&there);
    if (rc == -NT_E_MISSING) {
        it->state = IT_NEW;
        return w->dry_run ? would_take(w, folder, err) : 0;
    }
    if (rc != 0) {
        return nt_wrap(err, rc, "%s", folder);
    }
    if (equal) {
        it->state = entry != NULL ? IT_SAME : IT_SAME_FOREIGN;
        return 0;
    }
    if (entry == NULL) {
        return nt_fail(err, NT_E_NO, 0, "%s is there and not ours; nothing was installed",
                       it->file->path);
    }
    if (strcmp(hash, nt_json_opt_str(entry, "sha256", "")) != 0) {
        return nt_fail(err, NT_E_NO, 0,
                       "%s was changed since it was installed; nothing was installed",
                       it->file->path);
    }
    it->state = IT_REPLACE;
    return 0;
}

/* ---- doing ---- */

static int stage(struct item *it, struct nt_err *err)
{
    int rc;

    if (it->state == IT_SAME || it->state == IT_SAME_FOREIGN) {
        return 0;
    }
    rc = nt_safe_write_temp(it->folder, it->name, it->file->data, it->file->len, it->file->mode,
                            it->temp, sizeof(it->temp), err);
    if (rc != 0) {
        it->temp[0] = '\0';
        return rc;
    }
    if (it->state == IT_REPLACE) {
        (void)snprintf(it->backup, sizeof(it->backup), ".%.64s.%ld.old", it->name, (long)getpid());
        (void)unlinkat(it->folder, it->backup, 0);
        if (linkat(it->folder, it->name, it->folder, it->backup, 0) != 0) {
            rc = nt_fail(err, NT_E_IO, errno, "keep the old %s", it->file->path);
            it->backup[0] = '\0';
        }
    }
    return rc;
}

static int place(struct item *it, struct nt_err *err)
{
    int rc;

    if (it->temp[0] == '\0') {
        return 0;
    }
    rc = it->state == IT_NEW
             ? renameat2(it->folder, it->temp, it->folder, it->name, RENAME_NOREPLACE)
             : renameat(it->folder, it->temp, it->folder, it->name);
    if (rc != 0) {
        return nt_fail(err, errno == EEXIST ? NT_E_NO : NT_E_IO, errno, "%s", it->file->path);
    }
    it->temp[0] = '\0';
    it->placed = true;
    (void)fsync(it->folder);
    return 0;
}

static void undo(struct item *it)
{
    if (it->placed && it->backup[0] != '\0') {
        (void)renameat(it->folder, it->backup, it->folder, it->name);
        it->backup[0] = '\0';
    } else if (it->placed) {
        (void)unlinkat(it->folder, it->name, 0);
    }
    it->placed = false;
}

static void clear(struct item *it)
{
    if (it->temp[0] != '\0') {
        (void)unlinkat(it->folder, it->temp, 0);
    }
    if (it->backup[0] != '\0') {
        (void)unlinkat(it->folder, it->backup, 0);
    }
    if (it->folder >= 0) {
        (void)close(it->folder);
    }
}

static void enter(json_t *m, const struct item *it)
{
    char hash[NT_HEX_LEN + 1];
    json_t *entry = find_entry(m, it->file->path);

    if (it->state == IT_SAME_FOREIGN) {
        return; /* somebody else's, and just what is needed: used, never taken away */
    }
    nt_sha256_hex(it->file->data, it->file->len, hash);
    if (entry == NULL) {
        (void)json_array_append_new(json_object_get(m, "files"),
                                    json_pack("{s:s, s:s, s:s}", "path", it->file->path, "sha256",
                                              hash, "part", it->file->part));
    } else {
        (void)json_object_set_new(entry, "sha256", json_string(hash));
        (void)json_object_set_new(entry, "part", json_string(it->file->part));
    }
}

static void tell(const struct item *it, bool dry_run, struct nt_buf *said)
{
    static const char *const done[] = {"installed", "replaced", "unchanged", "there already"};
    static const char *const would[] = {"would install", "would replace", "unchanged",
                                        "there already"};
    nt_buf_printf(said, "%s %s\n", dry_run ? would[it->state] : done[it->state], it->file->path);
}

static int put_in_place(const struct nt_install_where *w, struct item *items, size_t n,
                        const json_t *before, struct nt_err *err)
{
    json_t *after = json_deep_copy(before);
    int rc = after != NULL ? 0 : nt_fail(err, NT_E_NOMEM, 0, "manifest");

    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = stage(&items[i], err);
        enter(after, &items[i]);
    }
    if (rc == 0) {
        rc = save_manifest(w, after, err);
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = place(&items[i], err);
    }
    if (rc != 0) {
        for (size_t i = n; i > 0; i--) {
            undo(&items[i - 1]);
        }
        (void)(save_manifest(w, before, NULL) == 0); /* what it then lists is not there */
    }
    json_decref(after);
    return rc;
}

/* What will be made for these files and their manifest. */
static void note_folders(const struct nt_install_where *w, const struct nt_install_file *files,
                         size_t n, struct nt_made *made)
{
    char folder[PATH_MAX], name[NAME_MAX + 1];

    if (is_system_wide(w)) {
        nt_made_note(made, w->root, MANIFEST_FOLDER);
    } else if (nt_state_path("installed", folder, sizeof(folder), NULL) == 0) {
        nt_made_note(made, NULL, folder);
    }
    for (size_t i = 0; i < n; i++) {
        if (split(files[i].path, folder, sizeof(folder), name, NULL) == 0) {
            nt_made_note(made, w->root, folder);
        }
    }
}

int nt_install(const struct nt_install_where *w, const struct nt_install_file *files, size_t n,
               struct nt_buf *said, struct nt_err *err)
{
    struct nt_made made = {0};
    struct item *items = calloc(n + 1, sizeof(*items));
    json_t *manifest = NULL;
    size_t looked = 0;
    int rc, lock;

    if (items == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "install");
    }
    if (!w->dry_run) {
        note_folders(w, files, n, &made);
    }
    lock = lock_manifest(w, NT_SAFE_CREATE, &rc, err);
    rc = rc == 0 ? load_manifest(w, &manifest, err) : rc;
    while (rc == 0 && looked < n) {
        items[looked].file = &files[looked];
        rc = look_at(w, manifest, &items[looked], err);
        looked++;
    }
    if (rc == 0 && !w->dry_run) {
        rc = put_in_place(w, items, n, manifest, err);
    }
    for (size_t i = 0; i < looked; i++) {
        if (rc == 0) {
            tell(&items[i], w->dry_run, said);
        }
        clear(&items[i]);
    }
    if (rc != 0) {
        nt_made_take_away(&made);
    }
    nt_made_done(&made);
    unlock_manifest(lock);
    json_decref(manifest);
    free(items);
    return rc;
}

/* ---- taking away ---- */

static enum nt_file_state state_of(const struct nt_install_where *w, const json_t *entry)
{
    char hash[NT_HEX_LEN + 1];
    struct nt_buf text;
    enum nt_file_state s = NT_FILE_UNREADABLE;
    int rc;

    nt_buf_init(&text, MAX_FILE);
    rc = nt_install_read(w, nt_json_opt_str(entry, "path", ""), &text, NULL);
    if (rc == 0) {
        nt_sha256_hex(nt_buf_str(&text), text.len, hash);
        s = strcmp(hash, nt_json_opt_str(entry, "sha256", "")) == 0 ? NT_FILE_OURS
                                                                    : NT_FILE_CHANGED;
    } else if (rc == -NT_E_MISSING) {
        s = NT_FILE_MISSING;
    }
    nt_buf_done(&text);
    return s;
}

/* A folder of our own goes with its last file: an empty one would still be a package, and one of
 * metadata without any, which pip warns of for ever. */
static void remove_own_folder(const struct nt_install_where *w, char *folder)
{
    char *base = strrchr(folder, '/');
    int fd;

    if (base == NULL || base == folder || strncmp(base + 1, "nccltune_", 9) != 0) {
        return;
    }
    *base = '\0';
    fd = nt_safe_folder(w->root, folder, geteuid(), 0, NULL);
    if (fd >= 0) {
        (void)unlinkat(fd, base + 1, AT_REMOVEDIR); /* not while there is anything in it */
        (void)close(fd);
    }
}

static int remove_file(const struct nt_install_where *w, const char *path, struct nt_err *err)
{
    char folder[PATH_MAX], name[NAME_MAX + 1];
    int fd, rc = split(path, folder, sizeof(folder), name, err);

    if (rc != 0) {
        return rc;
    }
    fd = nt_safe_folder(w->root, folder, geteuid(), 0, err);
    if (fd < 0) {
        return fd;
    }
    rc = unlinkat(fd, name, 0) == 0 ? 0 : nt_fail(err, NT_E_IO, errno, "remove %s", path);
    (void)close(fd);
    if (rc == 0) {
        remove_own_folder(w, folder);
    }
    return rc;
}

static bool chosen(const json_t *entry, const char *part, const char *prefix)
{
    const char *path = nt_json_opt_str(entry, "path", "");
    size_t len = prefix != NULL ? strlen(prefix) : 0;
    return (part == NULL || strcmp(nt_json_opt_str(entry, "part", ""), part) == 0) &&
           (prefix == NULL || (strncmp(path, prefix, len) == 0 && path[len] == '/'));
}

int nt_install_forget(const struct nt_install_where *w, const char *prefix, struct nt_buf *said,
                      struct nt_err *err)
{
    json_t *m = NULL, *files;
    size_t forgotten = 0;
    int rc, lock = lock_manifest(w, 0, &rc, err);

    rc = rc == 0 ? load_manifest(w, &m, err) : rc;
    files = json_object_get(m, "files");
    for (size_t i = json_array_size(files); rc == 0 && i > 0; i--) {
        const json_t *entry = json_array_get(files, i - 1);
        if (chosen(entry, "loader", prefix) && state_of(w, entry) == NT_FILE_MISSING) {
            nt_buf_printf(said, "%s %s\n", w->dry_run ? "would forget" : "forgot",
                          nt_json_opt_str(entry, "path", ""));
            (void)json_array_remove(files, i - 1);
            forgotten++;
        }
    }
    if (rc == 0 && forgotten == 0) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s is not there, and nothing that lay there is installed",
                     prefix);
    } else if (rc == 0 && !w->dry_run) {
        rc = save_manifest(w, m, err);
    }
    unlock_manifest(lock);
    json_decref(m);
    return rc;
}

/* Takes one file away; true: its entry goes too. */
static bool take_away(const struct nt_install_where *w, const json_t *entry, int *rc,
                      struct nt_buf *said, struct nt_err *err)
{
    const char *path = nt_json_opt_str(entry, "path", "");
    enum nt_file_state s = state_of(w, entry);

    if (s == NT_FILE_MISSING) {
        return true;
    }
    if (s != NT_FILE_OURS) {
        nt_buf_printf(said, "left %s: %s since it was installed\n", path, nt_file_state_names[s]);
        *rc = nt_fail(err, NT_E_NO, 0, "%s was left: it is not as it was installed", path);
        return false;
    }
    if (w->dry_run) {
        nt_buf_printf(said, "would remove %s\n", path);
        return false;
    }
    if (remove_file(w, path, err) != 0) {
        *rc = -NT_E_IO;
        return false;
    }
    nt_buf_printf(said, "removed %s\n", path);
    return true;
}

int nt_uninstall(const struct nt_install_where *w, const char *part, const char *prefix,
                 struct nt_buf *said, struct nt_err *err)
{
    json_t *m = NULL, *files;
    int saved, rc, lock = lock_manifest(w, 0, &rc, err);

    rc = rc == 0 ? load_manifest(w, &m, err) : rc;
    if (rc != 0) {
        unlock_manifest(lock);
        return rc;
    }
    files = json_object_get(m, "files");
    for (size_t i = json_array_size(files); i > 0; i--) {
        const json_t *entry = json_array_get(files, i - 1);
        if (chosen(entry, part, prefix) && take_away(w, entry, &rc, said, err)) {
            (void)json_array_remove(files, i - 1);
        }
    }
    saved = w->dry_run ? 0 : save_manifest(w, m, rc == 0 ? err : NULL);
    unlock_manifest(lock);
    json_decref(m);
    return rc != 0 ? rc : saved;
}

int nt_installed(const struct nt_install_where *w, json_t **ret, struct nt_err *err)
{
    json_t *m = NULL, *list = json_array(), *entry;
    size_t i;
    int rc = load_manifest(w, &m, err);

    json_array_foreach(json_object_get(m, "files"), i, entry)
    {
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "path",
                                                    nt_json_opt_str(entry, "path", ""), "part",
                                                    nt_json_opt_str(entry, "part", ""), "state",
                                                    nt_file_state_names[state_of(w, entry)]));
    }
    json_decref(m);
    if (rc != 0) {
        json_decref(list);
        return rc;
    }
    *ret = list;
    return 0;
}
