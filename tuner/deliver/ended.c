#include "tuner/deliver/ended.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tuner/base/json.h"
#include "tuner/deliver/safe.h"

enum { MOST_RANKS = 1024, MAX_TABLE = 4 << 20, MOST_COMMS = 512 };

/* Communicators within this host: what several receipts say of one belongs together. */
struct comms {
    struct {
        uint64_t id;
        uint32_t ranks, seen;
    } v[MOST_COMMS];
    unsigned n;
    bool lost; /* not all were kept: nothing can be said of missing ones */
};

bool nt_ended_can_prove(const json_t *manifest)
{
    size_t i;
    json_t *v;

    json_array_foreach(json_object_get(manifest, "applied"), i, v)
    {
        const char *name = nt_json_opt_str(v, "name", ""), *how = nt_json_opt_str(v, "how", "");
        if (strcmp(how, "kept") != 0 &&
            (strcmp(name, "NCCL_TUNER_PLUGIN") == 0 || strcmp(name, "NCCL_ENV_PLUGIN") == 0)) {
            return true;
        }
    }
    return false;
}

/* The delivery file lies in a folder of this user's, by its hash. */
static bool read_table(const json_t *profile, struct nt_buf *bytes, struct nt_table *ret)
{
    char folder[PATH_MAX], *slash;
    int fd;
    bool ok;

    (void)snprintf(folder, sizeof(folder), "%s", nt_json_opt_str(profile, "table", ""));
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ok = fd >= 0 && nt_safe_read(fd, slash + 1, geteuid(), bytes, NULL) == 0 &&
         nt_table_read(bytes->data, bytes->len, ret, NULL) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return ok;
}

/* NAME=VALUE, each with its NUL: the variables that the command was started with. */
static void take_variables(const json_t *manifest, struct nt_buf *out)
{
    json_t *vars = json_object_get(manifest, "variables"), *v;
    const char *name;

    json_object_foreach(vars, name, v)
    {
        nt_buf_printf(out, "%s=%s", name, json_is_string(v) ? json_string_value(v) : "");
        nt_buf_add(out, "", 1);
    }
}

static bool is_of_run(int folder, const char *name, const char *id)
{
    char job[128] = "";
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool is = fd >= 0 && pread(fd, job, sizeof(job), NT_RECEIPT_AT_JOB) == (ssize_t)sizeof(job) &&
              memchr(job, '\0', sizeof(job)) != NULL && strcmp(job, id) == 0;

    if (fd >= 0) {
        (void)close(fd);
    }
    return is;
}

static void judge(const struct nt_buf *receipt, const struct nt_buf *vars,
                  const struct nt_table *table, const char *hash, struct nt_doctor_verdict *ret)
{
    struct nt_doctor_world world = {{0}, {0}, {0}, false, {0}};
    struct nt_proc proc = {.uid = (uint32_t)geteuid(),
                           .environ_known = true,
                           .environ = vars->data,
                           .environ_len = vars->len};
    struct nt_doctor_facts f = {.proc = &proc, .no_receipt = "", .table = table};

    if (nt_receipt_read(receipt->data, receipt->len, &f.head, NULL) != 0) {
        *ret = (struct nt_doctor_verdict){.verdict = NT_DR_CLAIMED, .counts = true, .n = 1};
        (void)snprintf(ret->reason[0], sizeof(ret->reason[0]), "a receipt that cannot be read");
        return;
    }
    f.receipt = (const uint8_t *)receipt->data;
    proc.pid = proc.inner_pid = f.head.pid;
    for (unsigned i = 0; i < NT_RECEIPT_PARTS; i++) {
        (void)snprintf(proc.plugin[i], sizeof(proc.plugin[i]), "%s", f.head.path[i]);
    }
    nt_doctor_judge(&f, &world, ret);
    if (strcmp(ret->hash, hash) != 0 && ret->verdict == NT_DR_APPLIED) {
        ret->verdict = NT_DR_STALE;
        (void)snprintf(ret->reason[0], sizeof(ret->reason[0]), "had profile %.12s", ret->hash);
        ret->n = 1;
    }
}

/* With several hosts it is not known how many of the ranks should be here. */
static void count_ranks(const struct nt_buf *receipt, struct comms *all)
{
    struct nt_receipt_head head;
    struct nt_receipt_comm c;

    if (nt_receipt_read(receipt->data, receipt->len, &head, NULL) != 0) {
        return;
    }
    all->lost = all->lost || head.ncomms > NT_RECEIPT_COMMS;
    for (uint32_t i = 0; i < NT_RECEIPT_COMMS; i++) {
        unsigned k = 0;
        if (!nt_receipt_comm(receipt->data, i, &c) || c.nnodes != 1 || c.id == 0) {
            continue;
        }
        while (k < all->n && (all->v[k].id != c.id || all->v[k].ranks != c.nranks)) {
            k++;
        }
        if (k == MOST_COMMS) {
            all->lost = true;
            return;
        }
        if (k == all->n) {
            all->v[all->n].id = c.id;
            all->v[all->n].seen = 0;
            all->v[all->n++].ranks = c.nranks;
        }
        all->v[k].seen++;
    }
}

static void judge_ranks(const struct comms *all, struct nt_ended *ret)
{
    for (unsigned k = 0; k < all->n && !all->lost; k++) {
        unsigned missing = all->v[k].seen < all->v[k].ranks ? all->v[k].ranks - all->v[k].seen : 0;
        if (missing > ret->missing) {
            ret->missing = missing;
            ret->of = all->v[k].ranks;
        }
    }
    if (ret->missing > 0 && ret->why[0] == '\0') {
        (void)snprintf(ret->why, sizeof(ret->why),
                       "%u of %u ranks of a communicator on this host left no receipt",
                       ret->missing, ret->of);
    }
}

static void keep_reason(const struct nt_doctor_verdict *v, uint32_t pid, struct nt_ended *ret)
{
    if (v->counts && v->verdict != NT_DR_APPLIED && ret->why[0] == '\0') {
        (void)snprintf(ret->why, sizeof(ret->why), "process %u: %.200s", pid,
                       v->n > 0 ? v->reason[0] : nt_doctor_names[v->verdict]);
    }
}

static size_t judge_all(int folder, const json_t *manifest, struct nt_doctor_verdict *v,
                        struct comms *all, struct nt_ended *ret)
{
    const char *id = nt_json_opt_str(manifest, "id", "");
    const json_t *profile = json_object_get(manifest, "profile");
    struct nt_buf receipt, vars, bytes;
    struct nt_table table;
    bool have_table;
    DIR *d = fdopendir(dup(folder));
    struct dirent *e;
    size_t n = 0;

    nt_buf_init(&receipt, NT_RECEIPT_BYTES);
    nt_buf_init(&vars, 1 << 20);
    nt_buf_init(&bytes, MAX_TABLE);
    take_variables(manifest, &vars);
    have_table = read_table(profile, &bytes, &table);
    while (d != NULL && n < MOST_RANKS && (e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.' || strstr(e->d_name, NT_RECEIPT_SUFFIX) == NULL ||
            !is_of_run(folder, e->d_name, id)) {
            continue;
        }
        nt_buf_clear(&receipt);
        if (nt_safe_read(folder, e->d_name, geteuid(), &receipt, NULL) != 0) {
            nt_buf_clear(&receipt);
        }
        judge(&receipt, &vars, have_table ? &table : NULL, nt_json_opt_str(profile, "hash", ""),
              &v[n]);
        count_ranks(&receipt, all);
        keep_reason(&v[n], (uint32_t)strtoul(e->d_name, NULL, 10), ret);
        n++;
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    nt_buf_done(&receipt);
    nt_buf_done(&vars);
    nt_buf_done(&bytes);
    return n;
}

int nt_ended(const json_t *manifest, struct nt_ended *ret, struct nt_err *err)
{
    struct nt_doctor_verdict *v = calloc(MOST_RANKS, sizeof(*v));
    struct comms *comms = calloc(1, sizeof(*comms));
    char path[PATH_MAX];
    struct nt_why why = {""};
    struct nt_ended found = {.receipts = 0};
    int folder;

    if (v == NULL || comms == NULL) {
        free(v);
        free(comms);
        return nt_fail(err, NT_E_NOMEM, 0, "receipts");
    }
    folder = nt_receipt_folder(path, sizeof(path), &why);
    if (folder < 0) {
        free(v);
        free(comms);
        return nt_fail(err, NT_E_MISSING, 0, "no folder of receipts: %s", why.text);
    }
    found.receipts = (unsigned)judge_all(folder, manifest, v, comms, &found);
    judge_ranks(comms, &found);
    nt_doctor_job(v, found.receipts, false, &found.job);
    found.job.applied = found.job.applied && found.missing == 0;
    (void)close(folder);
    free(v);
    free(comms);
    *ret = found;
    return 0;
}
