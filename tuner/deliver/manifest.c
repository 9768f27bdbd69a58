#include "tuner/deliver/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/deliver/safe.h"

enum { MAX_MANIFEST = 4 << 20, LOCK_MS = 10000 };

static const char *const kept_prefixes[] = {
    "NCCL", "TORCH_", "SGLANG_", "VLLM_", "CUDA_",   "UCX_",        "NVSHMEM_", "MSCCLPP_",
    "FI_",  "OMP_",   "NVIDIA_", "XLA_",  "TRTLLM_", "FLASHINFER_", "PYTORCH_", NULL};
static const char *const kept_names[] = {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH",
                                         "PATH",       "VIRTUAL_ENV",     NULL};
static const char *const secret_words[] = {"KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", NULL};

static bool looks_secret(const char *name)
{
    for (size_t i = 0; secret_words[i] != NULL; i++) {
        if (strcasestr(name, secret_words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

bool nt_manifest_keeps(const char *name)
{
    bool keeps = false;
    for (size_t i = 0; kept_prefixes[i] != NULL; i++) {
        keeps = keeps || strncmp(name, kept_prefixes[i], strlen(kept_prefixes[i])) == 0;
    }
    for (size_t i = 0; kept_names[i] != NULL; i++) {
        keeps = keeps || strcmp(name, kept_names[i]) == 0;
    }
    return keeps && !looks_secret(name);
}

json_t *nt_manifest_variables(const char *const *env)
{
    json_t *o = json_object();
    char name[128];

    for (; env != NULL && *env != NULL; env++) {
        const char *equals = strchr(*env, '=');
        if (equals == NULL || (size_t)(equals - *env) >= sizeof(name)) {
            continue;
        }
        (void)snprintf(name, sizeof(name), "%.*s", (int)(equals - *env), *env);
        if (nt_manifest_keeps(name)) {
            (void)json_object_set_new(o, name, nt_json_text(equals + 1));
        }
    }
    return o;
}

json_t *nt_manifest_command(const char *const *argv)
{
    json_t *list = json_array();
    bool hide = false;

    for (; *argv != NULL; argv++) {
        const char *equals = strchr(*argv, '=');
        bool names = looks_secret(*argv) && ((*argv)[0] == '-' || equals != NULL);
        if (hide) {
            (void)json_array_append_new(list, json_string("…"));
        } else if (names && equals != NULL) {
            (void)json_array_append_new(list, json_sprintf("%.*s=…", (int)(equals - *argv), *argv));
        } else {
            (void)json_array_append_new(list, nt_json_text(*argv));
        }
        hide = !hide && names && equals == NULL;
    }
    return list;
}

/* ---- files ---- */

static bool is_id(const char *id)
{
    return id[0] != '\0' && id[0] != '.' &&
           id[strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzT.-")] == '\0';
}

static int path_of(const char *id, char *out, size_t size, struct nt_err *err)
{
    char folder[PATH_MAX];
    int rc = nt_state_folder("runs", folder, sizeof(folder), err);
    if (rc == 0 && (!is_id(id) || (size_t)snprintf(out, size, "%s/%s.json", folder, id) >= size)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "'%.80s' is no id of a run", id);
    }
    return rc;
}

int nt_manifest_save(const json_t *m, struct nt_err *err)
{
    char path[PATH_MAX];
    struct nt_buf text;
    int rc = path_of(nt_json_opt_str(m, "id", ""), path, sizeof(path), err);

    nt_buf_init(&text, MAX_MANIFEST);
    if (rc == 0) {
        nt_json_dump(m, true, &text);
        rc = text.failed ? nt_fail(err, NT_E_INVAL, 0, "the manifest is too large")
                         : nt_write_file(path, text.data, text.len, 0600, err);
    }
    nt_buf_done(&text);
    return rc;
}

void nt_manifest_drop(const char *id)
{
    char path[PATH_MAX];
    if (path_of(id, path, sizeof(path), NULL) == 0) {
        (void)unlink(path);
    }
}

static int is_manifest(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return e->d_name[0] != '.' && n > 5 && strcmp(e->d_name + n - 5, ".json") == 0;
}

/* "last" is 0, "last~2" is 2; -1: not of this form. */
static int back_from_last(const char *name)
{
    uint64_t n = 0;
    if (strcmp(name, "last") == 0) {
        return 0;
    }
    return strncmp(name, "last~", 5) == 0 && nt_parse_u64(name + 5, &n, NULL) == 0 && n < 100000
               ? (int)n
               : -1;
}

/* Ids begin with the time, so that the order of names is that of time. */
static int find_id(const char *name, char *id, size_t size, struct nt_err *err)
{
    char folder[PATH_MAX];
    struct dirent **list = NULL;
    int n, back = back_from_last(name), found = -1, rc = 0, many = 0;

    rc = nt_state_path("runs", folder, sizeof(folder), err);
    if (rc != 0) {
        return rc;
    }
    n = scandir(folder, &list, is_manifest, alphasort);
    if (back >= 0) {
        found = n - 1 - back;
    }
    for (int i = 0; back < 0 && i < n; i++) {
        if (strncmp(list[i]->d_name, name, strlen(name)) == 0) {
            found = i;
            many++;
        }
    }
    if (many > 1) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%d runs begin with '%.80s'", many, name);
    } else if (found < 0 || name[0] == '\0') {
        rc = nt_fail(err, NT_E_INVAL, 0, "no run '%.80s' in %.300s", name, folder);
    } else {
        (void)snprintf(id, size, "%.*s", (int)strlen(list[found]->d_name) - 5, list[found]->d_name);
    }
    for (int i = 0; i < n; i++) {
        free(list[i]);
    }
    free(list);
    return rc;
}

int nt_manifest_load(const char *name, json_t **ret, struct nt_err *err)
{
    char id[NAME_MAX + 1] = "", path[PATH_MAX];
    json_t *m = NULL;
    int rc = 0;

    if (strchr(name, '/') != NULL) {
        (void)snprintf(path, sizeof(path), "%s", name);
    } else {
        rc = find_id(name, id, sizeof(id), err);
        rc = rc == 0 ? path_of(id, path, sizeof(path), err) : rc;
    }
    rc = rc == 0 ? nt_json_load(path, MAX_MANIFEST, &m, err) : rc;
    if (rc == 0 && (strcmp(nt_json_opt_str(m, "format", ""), NT_RUN_FORMAT) != 0 ||
                    nt_json_opt_i64(m, "version", 0) != 1)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: no manifest of a run that this version reads", path);
    }
    if (rc == 0) {
        *ret = m;
        m = NULL;
    }
    json_decref(m);
    return rc;
}

/* A note is read on terminals, a line each. */
static bool is_one_line(const char *text)
{
    uint32_t code = 0;
    size_t len = strlen(text), n;

    for (; len > 0; text += n, len -= n) {
        n = nt_utf8(text, len, &code);
        if (n == 0 || nt_is_control(code)) {
            return false;
        }
    }
    return true;
}

int nt_manifest_note(json_t *m, const char *assignment, struct nt_err *err)
{
    size_t len = strcspn(assignment, "=");
    char name[80];
    double number;
    json_t *notes = json_object_get(m, "notes"), *value;

    if (assignment[len] != '=' || len == 0 || len >= sizeof(name)) {
        return nt_fail(err, NT_E_INVAL, 0, "'%.80s': a note is NAME=VALUE", assignment);
    }
    if (!is_one_line(assignment)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "a note is one line of text, without control characters");
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)len, assignment);
    if (!json_is_object(notes)) {
        notes = json_object();
        (void)json_object_set_new(m, "notes", notes);
    }
    value = nt_parse_double(assignment + len + 1, &number, NULL) == 0
                ? json_real(number)
                : json_string(assignment + len + 1);
    if (value == NULL || json_object_set_new(notes, name, value) != 0) {
        return nt_fail(err, NT_E_INVAL, 0, "'%.80s': not text", assignment);
    }
    return 0;
}

/* Of the folder, since a save puts another file in the place of the old one. -1 where there is
 * none, or the file system knows no locks. */
static int lock_runs(int *ret_lock, struct nt_err *err)
{
    const struct timespec wait = {.tv_nsec = 10000000};
    char folder[PATH_MAX];
    int rc = nt_state_path("runs", folder, sizeof(folder), err); /* made by whoever saves */
    int fd = rc == 0 ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    for (int ms = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; ms += 10) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            (void)close(fd);
            fd = -1;
        } else if (ms >= LOCK_MS) {
            (void)close(fd);
            return nt_fail(err, NT_E_IO, 0, "another note holds %.300s; let it finish", folder);
        } else {
            (void)nanosleep(&wait, NULL);
        }
    }
    *ret_lock = fd;
    return rc;
}

int nt_manifest_annotate(const char *name, char *const *assignments, unsigned n, json_t **ret,
                         struct nt_err *err)
{
    json_t *m = NULL;
    int lock = -1;
    int rc = lock_runs(&lock, err);

    rc = rc == 0 ? nt_manifest_load(name, &m, err) : rc;
    for (unsigned i = 0; i < n && rc == 0; i++) {
        rc = nt_manifest_note(m, assignments[i], err);
    }
    rc = rc == 0 ? nt_manifest_save(m, err) : rc;
    if (lock >= 0) {
        (void)close(lock);
    }
    if (rc != 0) {
        json_decref(m);
        return rc;
    }
    *ret = m;
    return 0;
}
