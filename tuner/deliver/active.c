#include "tuner/deliver/active.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiles/format/table.h"

static const char first_line[] = "nccltune-active 1\nboot=";

static bool ends(const char *name, const char *tail)
{
    size_t n = strlen(name), t = strlen(tail);
    return n >= t && strcmp(name + n - t, tail) == 0;
}

/* A hash and the path of what has it: of the profile, and of the backends for an engine's plugin.
 */
enum { PROFILE, TABLE, BACKENDS, BACKENDS_TABLE, OURS };
static const struct {
    const char *name;
    bool path;
} ours[OURS] = {[PROFILE] = {"NCCLTUNE_PROFILE", false},
                [TABLE] = {"NCCLTUNE_TABLE", true},
                [BACKENDS] = {"NCCLTUNE_BACKENDS", false},
                [BACKENDS_TABLE] = {"NCCLTUNE_BACKENDS_TABLE", true}};

/* The loader's own list: names that it sets, and the only libraries that it names. */
static bool allowed(const char *name, const char *value)
{
    static const char *const plugins[] = {"TUNER", "tuner", "ENV", "env", "PROFILER", "profiler"};
    static const char *const prefixes[] = {"NCCL_",   "TORCH_NCCL_", "TORCH_SYMM_MEM_",
                                           "SGLANG_", "VLLM_",       "NVSHMEM_"};
    static const char *const never[] = {"_FILE", "_SO_PATH", "HOSTID", "COMM_ID", "_PLUGIN"};
    bool ok = false;

    for (size_t i = 0; i < sizeof(plugins) / sizeof(plugins[0]); i += 2) {
        char want[64], file[64];
        (void)snprintf(want, sizeof(want), "NCCL_%s_PLUGIN", plugins[i]);
        (void)snprintf(file, sizeof(file), "/libnccl-%s-nccltune.so", plugins[i + 1]);
        if (strcmp(name, want) == 0) {
            return value[0] == '/' && ends(value, file);
        }
    }
    for (int i = 0; i < OURS; i++) {
        if (strcmp(name, ours[i].name) == 0) {
            return ours[i].path ? value[0] == '/' : nt_table_is_hash(value);
        }
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        ok = ok || strncmp(name, prefixes[i], strlen(prefixes[i])) == 0;
    }
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        ok = ok && !ends(name, never[i]);
    }
    return ok;
}

static bool printable(const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s < 0x20 || *s > 0x7e) {
            return false;
        }
    }
    return true;
}

static int check_var(const char *name, const char *value, struct nt_err *err)
{
    if (strlen(name) > NT_TABLE_MAX_NAME || strlen(value) > NT_TABLE_MAX_VALUE ||
        value[0] == '\0' || !printable(name) || !printable(value) || !allowed(name, value)) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "active file: %.64s=%.64s is nothing that the loader sets", name, value);
    }
    return 0;
}

static void note(bool told[OURS], const char *name)
{
    for (int i = 0; i < OURS; i++) {
        told[i] = told[i] || strcmp(name, ours[i].name) == 0;
    }
}

static bool told_whole(const bool told[OURS])
{
    return told[PROFILE] && told[TABLE] && told[BACKENDS] == told[BACKENDS_TABLE];
}

int nt_active_write(const struct nt_assign *vars, size_t n, const char *boot, struct nt_buf *out,
                    struct nt_err *err)
{
    bool told[OURS] = {false};
    size_t before = out->len;

    nt_buf_printf(out, "%s%s\n", first_line, boot);
    for (size_t i = 0; i < n; i++) {
        int rc = check_var(vars[i].name, vars[i].value, err);
        if (rc != 0) {
            return rc;
        }
        note(told, vars[i].name);
        nt_buf_printf(out, "%s=%s\n", vars[i].name, vars[i].value);
    }
    if (!told_whole(told) || boot[0] == '\0' || out->failed || out->len - before > NT_ACTIVE_MAX) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "active file: no profile, half a table, no boot id, or too large");
    }
    return 0;
}

static int take_line(struct nt_active *a, const char *line, size_t len, struct nt_err *err)
{
    struct nt_active_var *v = &a->v[a->n];
    const char *equals;
    int rc;

    if (a->n == NT_ACTIVE_VARS) {
        return nt_fail(err, NT_E_INVAL, 0, "active file: more than %d lines", NT_ACTIVE_VARS);
    }
    v->override = len > 0 && line[0] == '!';
    line += v->override;
    len -= v->override;
    equals = memchr(line, '=', len);
    if (equals == NULL || (size_t)(equals - line) > NT_TABLE_MAX_NAME ||
        len - (size_t)(equals - line) - 1 > NT_TABLE_MAX_VALUE) {
        return nt_fail(err, NT_E_INVAL, 0, "active file: line %zu is no NAME=VALUE", a->n + 3);
    }
    (void)snprintf(v->name, sizeof(v->name), "%.*s", (int)(equals - line), line);
    (void)snprintf(v->value, sizeof(v->value), "%.*s", (int)(len - (size_t)(equals - line) - 1),
                   equals + 1);
    rc = check_var(v->name, v->value, err);
    a->n += rc == 0;
    return rc;
}

int nt_active_parse(const char *text, size_t len, struct nt_active *ret, struct nt_err *err)
{
    struct nt_active a = {.n = 0};
    const char *end = text + len, *line = text + sizeof(first_line) - 1, *stop;
    bool told[OURS] = {false};
    int rc = 0;

    if (len > NT_ACTIVE_MAX || len < sizeof(first_line) ||
        memcmp(text, first_line, sizeof(first_line) - 1) != 0 || end[-1] != '\n' ||
        memchr(text, '\0', len) != NULL) {
        return nt_fail(err, NT_E_INVAL, 0, "no active file of version 1");
    }
    stop = memchr(line, '\n', (size_t)(end - line));
    if ((size_t)(stop - line) >= sizeof(a.boot)) {
        return nt_fail(err, NT_E_INVAL, 0, "active file: no boot id");
    }
    memcpy(a.boot, line, (size_t)(stop - line));
    a.v = calloc(NT_ACTIVE_VARS + 1, sizeof(*a.v));
    if (a.v == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "active file");
    }
    for (line = stop + 1; line < end && rc == 0; line = stop + 1) {
        stop = memchr(line, '\n', (size_t)(end - line));
        rc = take_line(&a, line, (size_t)(stop - line), err);
    }
    for (size_t i = 0; i < a.n; i++) {
        note(told, a.v[i].name);
    }
    if (rc == 0 && !told_whole(told)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "active file: names no profile, or half a table");
    }
    if (rc != 0) {
        nt_active_done(&a);
        return rc;
    }
    *ret = a;
    return 0;
}

void nt_active_done(struct nt_active *a)
{
    free(a->v);
    a->v = NULL;
    a->n = 0;
}

const char *nt_active_get(const struct nt_active *a, const char *name)
{
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(a->v[i].name, name) == 0) {
            return a->v[i].value;
        }
    }
    return NULL;
}

void nt_boot_id(char out[40])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f == NULL || fgets(out, 40, f) == NULL) {
        out[0] = '\0';
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    out[strcspn(out, "\n")] = '\0';
}
