#include "tuner/cli/changed.h"
#include "tuner/base/json.h"
#include "tuner/service/look.h"
#include "tuner/store/service.h"
#include "profiles/json/profile.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIGHT_MAX_BYTES = 1 << 20, ASKED_MAX_BYTES = 16 << 20 };

static bool among(const char *name, const char *const *list)
{
    while (*list != NULL && strcmp(*list, name) != 0) {
        list++;
    }
    return *list != NULL;
}

static void put_value(const struct nt_opt *o, const void *values, struct nt_buf *b)
{
    const void *at = (const char *)values + o->offset;
    const char *const *text = at;
    const struct nt_strs *list = at;

    nt_buf_printf(b, "%s\n", o->name);
    switch (o->type) {
    case NT_O_STR:
        nt_buf_puts(b, *text != NULL ? *text : "");
        break;
    case NT_O_STRS:
        for (size_t i = 0; i < list->n; i++) {
            nt_buf_printf(b, "%s\t", list->v[i]);
        }
        break;
    case NT_O_FLAG:
        nt_buf_add(b, at, sizeof(bool));
        break;
    case NT_O_U32:
        nt_buf_add(b, at, sizeof(uint32_t));
        break;
    default:
        nt_buf_add(b, at, sizeof(uint64_t));
    }
    nt_buf_puts(b, "\n");
}

int nt_changed_asked(const struct nt_opt *opts, const void *values, const char *const *except,
                     char hex[NT_HEX_LEN + 1], struct nt_err *err)
{
    struct nt_buf b;
    int rc = 0;

    nt_buf_init(&b, ASKED_MAX_BYTES);
    for (const struct nt_opt *o = opts; rc == 0 && o->name != NULL; o++) {
        const char *const *file = (const void *)((const char *)values + o->offset);
        if (strcmp(o->name, "workload") == 0 && *file != NULL) {
            rc = nt_buf_read_file(&b, *file, err);
        } else if (!among(o->name, except)) {
            put_value(o, values, &b);
        }
    }
    if (rc == 0 && b.failed) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "--if-changed");
    }
    if (rc == 0) {
        nt_sha256_hex(nt_buf_str(&b), b.len, hex);
    }
    nt_buf_done(&b);
    return rc;
}

struct state {
    struct nt_config config;
    struct nt_sight now, was;
    struct nt_store *store;
    char name[96];
};

static int open_state(const struct nt_changed *c, struct state *s, struct nt_err *err)
{
    struct nt_config_rig *r = &s->config.rigs[0];
    char path[PATH_MAX];
    bool model = strncmp(c->rig, "model:", 6) == 0;
    int rc;

    if (strncmp(c->rig, "recording", 9) == 0) {
        return nt_fail(err, NT_E_INVAL, 0, "--if-changed: a recording never changes");
    }
    nt_config_init(&s->config);
    s->config.nrigs = 1;
    (void)snprintf(s->config.rig, sizeof(s->config.rig), "job");
    (void)snprintf(r->name, sizeof(r->name), "job");
    (void)snprintf(r->rig, sizeof(r->rig), "%s", model ? "model" : "nccl");
    (void)snprintf(r->nccl, sizeof(r->nccl), "%s", c->nccl != NULL ? c->nccl : "");
    (void)snprintf(s->config.topology, sizeof(s->config.topology), "%s", model ? c->rig + 6 : "");
    (void)snprintf(s->name, sizeof(s->name), "tune %.32s %u %.16s", model ? "model" : c->rig,
                   c->ranks, c->asked);
    nt_look(&s->config, (int)getpid(), &s->now);
    if (!s->now.seen) {
        return nt_fail(err, NT_E_MISSING, 0, "--if-changed: %s", s->now.why);
    }
    rc = nt_store_default_path(c->db, true, path, sizeof(path), err);
    return rc == 0 ? nt_store_open(path, NT_STORE_WRITE, &s->store, err) : rc;
}

static bool same_health(const struct nt_sight *a, const struct nt_sight *b)
{
    bool same = a->nfindings == b->nfindings;
    for (size_t i = 0; same && i < a->nfindings; i++) {
        same = strcmp(a->finding[i].name, b->finding[i].name) == 0 &&
               strcmp(a->finding[i].device, b->finding[i].device) == 0;
    }
    return same;
}

static void judge(struct state *s, uint64_t at_ms, bool *ret_changed, char *words, size_t size)
{
    struct nt_buf why;
    time_t t = (time_t)(at_ms / 1000);
    struct tm tm = {0};
    char when[32] = "";

    nt_buf_init(&why, 4096);
    *ret_changed = !nt_sight_same(&s->was, &s->now, &why);
    if (!same_health(&s->was, &s->now)) {
        *ret_changed = true;
        nt_buf_printf(&why, "%sother findings of health", why.len > 0 ? "; " : "");
    }
    (void)localtime_r(&t, &tm);
    (void)strftime(when, sizeof(when), "%F %T", &tm);
    (void)snprintf(words, size, *ret_changed ? "changed since %s: %s" : "unchanged since %s%s",
                   when, nt_buf_str(&why));
    nt_buf_done(&why);
}

/* What it ended well with: without it, doing nothing would leave the caller with nothing. */
static bool profile_kept(const char *path)
{
    struct nt_profile *p = NULL;
    bool kept = nt_profile_load(path, &p, NULL) == 0;
    nt_profile_free(p);
    return kept;
}

int nt_changed_look(const struct nt_changed *c, bool *ret_changed, char *words, size_t size,
                    struct nt_err *err)
{
    struct state *s = calloc(1, sizeof(*s));
    struct nt_buf text;
    json_t *o = NULL;
    uint64_t at_ms = 0;
    bool found = false;
    int rc = s == NULL ? nt_fail(err, NT_E_NOMEM, 0, "--if-changed") : open_state(c, s, err);

    nt_buf_init(&text, SIGHT_MAX_BYTES);
    rc = rc == 0 ? nt_store_snapshot_get(s->store, s->name, &text, &at_ms, &found, err) : rc;
    if (rc == 0 && found) {
        rc = nt_json_parse(nt_buf_str(&text), text.len, "what was seen last", &o, err);
        rc = rc == 0 ? nt_sight_parse(o, &s->was, err) : rc;
        if (rc == 0) {
            judge(s, at_ms, ret_changed, words, size);
        }
        if (rc == 0 && !*ret_changed && !profile_kept(c->out)) {
            *ret_changed = true;
            (void)snprintf(words, size, "no profile can be read at %s", c->out);
        }
    } else if (rc == 0) {
        *ret_changed = true;
        (void)snprintf(words, size, "never tuned like this before");
    }
    json_decref(o);
    nt_buf_done(&text);
    if (s != NULL) {
        nt_store_close(s->store);
    }
    free(s);
    return rc;
}

int nt_changed_remember(const struct nt_changed *c, struct nt_err *err)
{
    struct state *s = calloc(1, sizeof(*s));
    struct nt_buf text;
    json_t *o = NULL;
    int rc = s == NULL ? nt_fail(err, NT_E_NOMEM, 0, "--if-changed") : open_state(c, s, err);

    nt_buf_init(&text, SIGHT_MAX_BYTES);
    if (rc == 0) {
        o = nt_sight_json(&s->now);
        nt_json_dump(o, false, &text);
        rc = o == NULL || text.failed
                 ? nt_fail(err, NT_E_NOMEM, 0, "--if-changed")
                 : nt_store_snapshot_put(s->store, s->name, nt_buf_str(&text), err);
    }
    json_decref(o);
    nt_buf_done(&text);
    if (s != NULL) {
        nt_store_close(s->store);
    }
    free(s);
    return rc;
}
