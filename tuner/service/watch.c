#include "tuner/service/watch.h"
#include "tuner/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const nt_watch_kind_names[] = {"unreadable", "readable", "different", "back",
                                           "settled",    "finding",  "cured",     NULL};

/* --- sights -------------------------------------------------------------------------------------
 */

json_t *nt_sight_json(const struct nt_sight *s)
{
    json_t *list = json_array();
    json_t *o;

    for (size_t i = 0; i < s->nfindings; i++) {
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:b}", "finding", s->finding[i].name, "device",
                            s->finding[i].device, "text", s->finding[i].text, "unhealthy",
                            (int)s->finding[i].unhealthy));
    }
    o = json_pack("{s:b, s:s, s:s, s:s, s:s, s:s, s:o, s:b, s:I, s:I}", "seen", (int)s->seen, "why",
                  s->why, "driver", s->driver, "cuda", s->cuda, "nccl", s->nccl, "nccl_sha256",
                  s->nccl_sha256, "health", list, "load_known", (int)s->load_known, "busy",
                  (json_int_t)s->busy, "foreign", (json_int_t)s->foreign);
    if (o != NULL && s->seen) {
        (void)json_object_set_new(o, "identity", nt_identity_json(&s->identity));
    }
    return o;
}

static void copy(char *out, size_t size, const json_t *o, const char *name)
{
    (void)snprintf(out, size, "%s", nt_json_opt_str(o, name, ""));
}

int nt_sight_parse(const json_t *o, struct nt_sight *ret, struct nt_err *err)
{
    struct nt_sight s = {.seen = nt_json_opt_bool(o, "seen", false)};
    const json_t *list = json_object_get(o, "health"), *x;
    size_t i;
    int rc = 0;

    copy(s.why, sizeof(s.why), o, "why");
    copy(s.driver, sizeof(s.driver), o, "driver");
    copy(s.cuda, sizeof(s.cuda), o, "cuda");
    copy(s.nccl, sizeof(s.nccl), o, "nccl");
    copy(s.nccl_sha256, sizeof(s.nccl_sha256), o, "nccl_sha256");
    s.load_known = nt_json_opt_bool(o, "load_known", false);
    s.busy = (uint64_t)nt_json_opt_i64(o, "busy", 0);
    s.foreign = (uint64_t)nt_json_opt_i64(o, "foreign", 0);
    json_array_foreach(list, i, x)
    {
        if (s.nfindings < NT_SIGHT_FINDINGS) {
            size_t n = s.nfindings++;
            copy(s.finding[n].name, sizeof(s.finding[n].name), x, "finding");
            copy(s.finding[n].device, sizeof(s.finding[n].device), x, "device");
            copy(s.finding[n].text, sizeof(s.finding[n].text), x, "text");
            s.finding[n].unhealthy = nt_json_opt_bool(x, "unhealthy", false);
        }
    }
    if (s.seen) {
        rc = nt_identity_parse(json_object_get(o, "identity"), &s.identity, err);
    }
    if (rc == 0) {
        *ret = s;
    }
    return rc;
}

static bool differ(const char *a, const char *b)
{
    return a[0] != '\0' && b[0] != '\0' && strcmp(a, b) != 0;
}

static void put(struct nt_buf *why, const char *what, const char *was, const char *is)
{
    if (why != NULL) {
        nt_buf_printf(why, "%s%s was %s, is %s", why->len > 0 ? "; " : "", what, was, is);
    }
}

/* Jobs write what the driver offers ("13.0"), others the driver itself ("580.65.06"). */
static const char *like(const char *driver, const struct nt_sight *s)
{
    return strtol(driver, NULL, 10) < 100 ? s->cuda : s->driver;
}

static bool same_stack(const char *driver, const char *nccl, const char *sha256,
                       const struct nt_sight *b, struct nt_buf *why)
{
    bool same = true;
    if (differ(driver, like(driver, b))) {
        put(why, "driver", driver, like(driver, b));
        same = false;
    }
    if (differ(nccl, b->nccl)) {
        put(why, "NCCL", nccl, b->nccl);
        same = false;
    } else if (differ(sha256, b->nccl_sha256)) {
        put(why, "NCCL's file", sha256, b->nccl_sha256);
        same = false;
    }
    return same;
}

static bool same_machine(const struct nt_identity *a, const struct nt_identity *b,
                         struct nt_buf *why)
{
    uint32_t compared = 0, groups = nt_identity_compare(a, b, &compared);
    char mask[128];
    if (compared == 0) { /* nothing in common: cannot be told */
        return false;
    }
    if (groups != 0 && why != NULL) {
        nt_buf_printf(why, "%smachine was %s, is %s (%s)", why->len > 0 ? "; " : "", a->name,
                      b->name, nt_group_mask_text(groups, mask, sizeof(mask)));
    }
    return groups == 0;
}

bool nt_sight_same(const struct nt_sight *a, const struct nt_sight *b, struct nt_buf *why)
{
    bool machine = same_machine(&a->identity, &b->identity, why);
    bool stack = same_stack(a->driver, a->nccl, a->nccl_sha256, b, why);
    return machine && stack;
}

char *nt_sight_key(const struct nt_sight *s, char *out, size_t size)
{
    (void)snprintf(out, size, "machine %s nccl %s%s%.8s driver %s", s->identity.name, s->nccl,
                   s->nccl_sha256[0] != '\0' ? " " : "", s->nccl_sha256, s->driver);
    return out;
}

/* --- tells --------------------------------------------------------------------------------------
 */

static void event(struct nt_watch *w, enum nt_watch_kind kind, bool unhealthy, const char *text)
{
    if (w->nevents < NT_WATCH_EVENTS) {
        struct nt_watch_event *e = &w->events[w->nevents++];
        e->kind = kind;
        e->unhealthy = unhealthy;
        (void)snprintf(e->text, sizeof(e->text), "%s", text);
    }
}

void nt_watch_init(struct nt_watch *w, uint64_t settle_ms)
{
    memset(w, 0, sizeof(*w));
    w->settle_ms = settle_ms;
}

void nt_watch_restore(struct nt_watch *w, const struct nt_sight *settled)
{
    w->settled = w->last = *settled;
    w->have = w->have_last = true;
}

static bool has_finding(const struct nt_sight *s, const char *name, const char *device)
{
    for (size_t i = 0; i < s->nfindings; i++) {
        if (strcmp(s->finding[i].name, name) == 0 && strcmp(s->finding[i].device, device) == 0) {
            return true;
        }
    }
    return false;
}

/* Findings of `a` that `b` has not. */
static void tell_findings(struct nt_watch *w, const struct nt_sight *a, const struct nt_sight *b,
                          enum nt_watch_kind kind)
{
    char text[320];
    for (size_t i = 0; i < a->nfindings; i++) {
        if (!has_finding(b, a->finding[i].name, a->finding[i].device)) {
            (void)snprintf(text, sizeof(text), "%s%s%s: %s", a->finding[i].name,
                           a->finding[i].device[0] != '\0' ? " at " : "", a->finding[i].device,
                           a->finding[i].text);
            event(w, kind, a->finding[i].unhealthy, text);
        }
    }
}

static void settle(struct nt_watch *w, const struct nt_sight *s, const char *why)
{
    w->settled = *s;
    w->have = true;
    w->pending = w->told_different = false;
    event(w, NT_WATCH_SETTLED, false, why);
}

static void compare(struct nt_watch *w, const struct nt_sight *s, uint64_t now_ms)
{
    struct nt_buf why;
    nt_buf_init(&why, 1024);
    if (nt_sight_same(&w->settled, s, &why)) {
        if (w->pending) {
            w->pending = false;
            if (w->told_different) {
                w->told_different = false;
                event(w, NT_WATCH_BACK, false, "the machine is again what it was");
            }
        }
        /* Facts that were not known before are kept. */
        w->settled = *s;
    } else if (!w->pending || !nt_sight_same(&w->next, s, NULL)) {
        w->pending = true;
        w->next = *s;
        w->since_ms = now_ms;
        if (w->settle_ms == 0) {
            settle(w, s, nt_buf_str(&why));
        } else if (!w->told_different) {
            w->told_different = true;
            event(w, NT_WATCH_DIFFERENT, false, nt_buf_str(&why));
        }
    } else if (now_ms - w->since_ms >= w->settle_ms) {
        settle(w, s, nt_buf_str(&why));
    }
    nt_buf_done(&why);
}

void nt_watch_tell(struct nt_watch *w, const struct nt_sight *s, uint64_t now_ms)
{
    static const struct nt_sight healthy = {.seen = true};

    w->nevents = 0;
    if (!s->seen) {
        if (!w->unreadable) {
            event(w, NT_WATCH_UNREADABLE, false, s->why);
        }
        w->unreadable = true;
        w->pending = false; /* what it is meanwhile cannot be told */
        return;
    }
    if (w->unreadable) {
        w->unreadable = false;
        event(w, NT_WATCH_READABLE, false, "the machine can be read again");
    }
    tell_findings(w, s, w->have_last ? &w->last : &healthy, NT_WATCH_FINDING);
    if (w->have_last) {
        tell_findings(w, &w->last, s, NT_WATCH_CURED);
    }
    w->last = *s;
    w->have_last = true;
    if (!w->have) {
        settle(w, s, "seen for the first time");
    } else {
        compare(w, s, now_ms);
    }
}

uint64_t nt_watch_wake(const struct nt_watch *w)
{
    return w->pending ? w->since_ms + w->settle_ms : UINT64_MAX;
}

/* --- profiles -----------------------------------------------------------------------------------
 */

enum nt_holds nt_watch_judge(const struct nt_made_for *p, const struct nt_sight *was,
                             const struct nt_sight *now, struct nt_buf *why)
{
    uint32_t compared = 0;

    if (same_machine(&p->identity, &now->identity, NULL)) {
        return !p->here                                                   ? NT_HOLDS_OTHER
               : same_stack(p->driver, p->nccl, p->nccl_sha256, now, why) ? NT_HOLDS
                                                                          : NT_HOLDS_NOT;
    }
    (void)nt_identity_compare(&p->identity, &now->identity, &compared);
    if (compared == 0 || !p->here || was == NULL ||
        !same_machine(&p->identity, &was->identity, NULL)) {
        return NT_HOLDS_OTHER;
    }
    (void)same_machine(&p->identity, &now->identity, why);
    return NT_HOLDS_NOT;
}
