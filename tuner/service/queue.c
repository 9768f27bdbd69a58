#include "tuner/service/queue.h"
#include "tuner/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DAY_MINUTES = 24 * 60,
    MINUTE_MS = 60000,
    RETRY_MS = 5000,  /* after a crash; four times that after the next */
    AGAIN_MS = 10000, /* after an interruption that was not ours */
    NOISY_MS = 60 * 60000,
    QUEUE_MAX = 4096,
};

/* --- windows ------------------------------------------------------------------------------------
 */

/* "22:00" */
static bool clock_time(const char *text, uint16_t *ret)
{
    static const char digits[] = "0123456789";
    size_t h = strspn(text, digits), m = text[h] == ':' ? strspn(text + h + 1, digits) : 0;
    unsigned long minutes;

    if (h < 1 || h > 2 || m != 2 || text[h + 1 + m] != '\0') {
        return false;
    }
    minutes = strtoul(text + h + 1, NULL, 10);
    if (minutes > 59) {
        return false;
    }
    minutes += 60 * strtoul(text, NULL, 10);
    *ret = (uint16_t)minutes;
    return minutes <= DAY_MINUTES;
}

int nt_windows_parse(const char *text, struct nt_window *ret, size_t *ret_n, struct nt_err *err)
{
    char copy[160], *rest = copy, *word;
    size_t n = 0;

    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy)) {
        return nt_fail(err, NT_E_INVAL, 0, "the time windows are longer than %zu",
                       sizeof(copy) - 1);
    }
    while (text[0] != '\0' && (word = strsep(&rest, ",")) != NULL) {
        char *dash = strchr(word, '-');
        word += strspn(word, " ");
        if (dash == NULL || n == NT_QUEUE_WINDOWS) {
            return nt_fail(err, NT_E_INVAL, 0, "'%s' is no time window, as 22:00-06:00", word);
        }
        *dash = '\0';
        if (!clock_time(word, &ret[n].from) || !clock_time(dash + 1, &ret[n].to)) {
            return nt_fail(err, NT_E_INVAL, 0, "'%s-%s' is no time window, as 22:00-06:00", word,
                           dash + 1);
        }
        if (ret[n].from == ret[n].to) { /* no job would ever start */
            return nt_fail(err, NT_E_INVAL, 0,
                           "'%s-%s' holds no minute; for always leave the window empty", word,
                           dash + 1);
        }
        n++;
    }
    *ret_n = n;
    return 0;
}

bool nt_windows_open(const struct nt_window *w, size_t n, unsigned minute)
{
    for (size_t i = 0; i < n; i++) {
        if (w[i].from <= w[i].to ? minute >= w[i].from && minute < w[i].to
                                 : minute >= w[i].from || minute < w[i].to) {
            return true;
        }
    }
    return n == 0;
}

/* --- items --------------------------------------------------------------------------------------
 */

void nt_queue_init(struct nt_queue *q, const struct nt_queue_policy *policy)
{
    memset(q, 0, sizeof(*q));
    q->policy = *policy;
}

void nt_queue_done(struct nt_queue *q)
{
    free(q->items);
    q->items = NULL;
    q->n = q->cap = 0;
}

int nt_queue_add(struct nt_queue *q, const struct nt_queue_item *item, struct nt_err *err)
{
    size_t at = q->n;
    if (q->n == q->cap) {
        size_t cap = q->cap != 0 ? 2 * q->cap : 16;
        struct nt_queue_item *more =
            cap <= QUEUE_MAX ? realloc(q->items, cap * sizeof(*more)) : NULL;
        if (more == NULL) {
            return nt_fail(err, NT_E_NOMEM, 0, "the queue cannot grow beyond %zu jobs", q->n);
        }
        q->items = more;
        q->cap = cap;
    }
    while (at > 0 && q->items[at - 1].id > item->id) {
        at--;
    }
    nt_assert(at == 0 || q->items[at - 1].id != item->id);
    memmove(&q->items[at + 1], &q->items[at], (q->n - at) * sizeof(*item));
    q->items[at] = *item;
    q->n++;
    return 0;
}

struct nt_queue_item *nt_queue_find(struct nt_queue *q, int64_t id)
{
    for (size_t i = 0; i < q->n; i++) {
        if (q->items[i].id == id) {
            return &q->items[i];
        }
    }
    return NULL;
}

static void drop(struct nt_queue *q, struct nt_queue_item *x)
{
    size_t at = (size_t)(x - q->items);
    memmove(x, x + 1, (q->n - at - 1) * sizeof(*x));
    q->n--;
}

static bool occupies(const struct nt_queue_item *x)
{
    return x->state == NT_Q_RUNNING || x->state == NT_Q_CANCELLING;
}

size_t nt_queue_running(const struct nt_queue *q)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n; i++) {
        n += occupies(&q->items[i]);
    }
    return n;
}

static bool collide(const struct nt_queue_item *a, const struct nt_queue_item *b)
{
    return a->gpus != 0 || b->gpus != 0 ? (a->gpus & b->gpus) != 0 : a->lane == b->lane;
}

/* --- tells --------------------------------------------------------------------------------------
 */

void nt_queue_tell_load(struct nt_queue *q, bool known, uint64_t busy, uint64_t foreign,
                        uint64_t now_ms)
{
    for (unsigned i = 0; i < NT_QUEUE_GPUS; i++) {
        bool is_busy = (busy >> i & 1) != 0;
        if (is_busy) {
            q->idle_since_ms[i] = UINT64_MAX;
        } else if (!q->load_known || q->idle_since_ms[i] == UINT64_MAX) {
            q->idle_since_ms[i] = now_ms;
        }
    }
    q->load_known = known;
    q->foreign = known ? foreign : 0;
    for (size_t i = 0; i < q->n; i++) {
        struct nt_queue_item *x = &q->items[i];
        if (q->policy.pause_foreign && x->state == NT_Q_RUNNING && x->stop == NT_STOP_NONE &&
            (x->gpus & q->foreign) != 0) {
            x->stop = NT_STOP_PAUSE;
        }
    }
}

enum nt_queue_state nt_queue_cancel(struct nt_queue *q, int64_t id)
{
    struct nt_queue_item *x = nt_queue_find(q, id);
    nt_assert(x != NULL);
    if (!occupies(x)) {
        drop(q, x);
        return NT_Q_CANCELLED;
    }
    x->state = NT_Q_CANCELLING;
    x->stop_sent = x->stop_sent && x->stop == NT_STOP_CANCEL;
    x->stop = NT_STOP_CANCEL;
    return NT_Q_CANCELLING;
}

void nt_queue_accept(struct nt_queue *q, int64_t id)
{
    struct nt_queue_item *x = nt_queue_find(q, id);
    if (x != NULL && x->state == NT_Q_PROPOSED) {
        x->state = NT_Q_QUEUED;
    }
}

void nt_queue_stop_all(struct nt_queue *q)
{
    q->stopping = true;
    for (size_t i = 0; i < q->n; i++) {
        struct nt_queue_item *x = &q->items[i];
        if (x->state == NT_Q_RUNNING && x->stop == NT_STOP_NONE) {
            x->stop = NT_STOP_SHUTDOWN;
        }
    }
}

static void back(struct nt_queue_item *x, uint64_t at_ms, const char *why)
{
    x->state = NT_Q_QUEUED;
    x->not_before_ms = at_ms;
    (void)snprintf(x->reason, sizeof(x->reason), "%s", why);
}

static void failed(struct nt_queue_item *x, const struct nt_queue_end *end)
{
    x->state = NT_Q_FAILED;
    if (!end->spawned) {
        (void)snprintf(x->reason, sizeof(x->reason), "could not be started, %u times", x->attempts);
    } else if (end->signal != 0) {
        (void)snprintf(x->reason, sizeof(x->reason), "ended by signal %d, %u times", end->signal,
                       x->attempts);
    } else {
        (void)snprintf(x->reason, sizeof(x->reason), "exit code %d after %u attempt%s",
                       end->exit_code, x->attempts, x->attempts == 1 ? "" : "s");
    }
}

static void decide_end(struct nt_queue_item *x, const struct nt_queue_end *end, uint64_t now_ms)
{
    bool clean = end->spawned && end->signal == 0;
    bool more = x->attempts < NT_QUEUE_ATTEMPTS;

    if (clean && end->exit_code == 0) { /* whatever was asked meanwhile: it is done */
        x->state = NT_Q_DONE;
        x->reason[0] = '\0';
    } else if (x->stop == NT_STOP_CANCEL) {
        x->state = NT_Q_CANCELLED;
        (void)snprintf(x->reason, sizeof(x->reason), "cancelled while it ran");
    } else if (x->stop != NT_STOP_NONE) { /* our doing: costs no attempt */
        x->attempts -= x->attempts > 0;
        back(x, now_ms,
             x->stop == NT_STOP_PAUSE ? "paused: others work on its GPUs"
                                      : "paused: the service was stopped");
    } else if (clean && end->exit_code == 5) {
        x->attempts -= x->attempts > 0;
        back(x, now_ms + AGAIN_MS, "interrupted from outside; goes on where it was");
    } else if (clean && end->exit_code == 4 && more) {
        back(x, now_ms + NOISY_MS, "too noisy to tune; tried again in an hour");
    } else if (more && (!clean || end->exit_code == 1 || end->exit_code == 70)) {
        back(x, now_ms + (uint64_t)RETRY_MS * (x->attempts > 1 ? 4 : 1),
             "it failed; tried again from where it was");
    } else {
        failed(x, end);
    }
    x->stop = NT_STOP_NONE;
    x->stop_sent = false;
}

void nt_queue_tell_ended(struct nt_queue *q, int64_t id, const struct nt_queue_end *end,
                         uint64_t now_ms, struct nt_queue_item *ret)
{
    struct nt_queue_item *x = nt_queue_find(q, id);
    nt_assert(x != NULL && occupies(x));
    decide_end(x, end, now_ms);
    *ret = *x;
    if (x->state != NT_Q_QUEUED) {
        drop(q, x);
    }
}

/* --- asks ---------------------------------------------------------------------------------------
 */

/* When all its GPUs will have been idle for long enough; UINT64_MAX: one is busy. */
static uint64_t idle_at(const struct nt_queue *q, const struct nt_queue_item *x)
{
    uint64_t at = 0;
    for (unsigned i = 0; q->load_known && i < NT_QUEUE_GPUS; i++) {
        uint64_t since = q->idle_since_ms[i];
        if ((x->gpus >> i & 1) == 0) {
            continue;
        }
        if (since == UINT64_MAX) {
            return UINT64_MAX;
        }
        at = since + q->policy.idle_ms > at ? since + q->policy.idle_ms : at;
    }
    return at;
}

static void say(struct nt_queue_item *x, const char *why)
{
    (void)snprintf(x->reason, sizeof(x->reason), "%s", why);
}

/* Whether an entry could start if nothing stood in its way; else why not, and when to look again.
 */
static bool due(const struct nt_queue *q, struct nt_queue_item *x, uint64_t now_ms, uint64_t *wake)
{
    uint64_t at = x->not_before_ms;
    if (at <= now_ms) {
        at = idle_at(q, x);
        if (at > now_ms) {
            say(x,
                at == UINT64_MAX ? "waits: its GPUs are busy" : "waits: its GPUs just became idle");
        }
    }
    if (at > now_ms) {
        *wake = at < *wake ? at : *wake;
        return false;
    }
    return true;
}

static bool blocked(const struct nt_queue *q, const struct nt_queue_item *x,
                    const struct nt_queue_item *const *first, size_t nfirst)
{
    for (size_t i = 0; i < q->n; i++) {
        if (occupies(&q->items[i]) && collide(&q->items[i], x)) {
            return true;
        }
    }
    for (size_t i = 0; i < nfirst; i++) { /* what is before it in the queue has the GPUs first */
        if (collide(first[i], x)) {
            return true;
        }
    }
    return false;
}

static struct nt_queue_item *best_after(struct nt_queue *q, const struct nt_queue_item *last)
{
    struct nt_queue_item *best = NULL;
    for (size_t i = 0; i < q->n; i++) {
        struct nt_queue_item *x = &q->items[i];
        bool after = last == NULL || x->priority < last->priority ||
                     (x->priority == last->priority && x->id > last->id);
        if (x->state == NT_Q_QUEUED && after && (best == NULL || x->priority > best->priority)) {
            best = x;
        }
    }
    return best;
}

void nt_queue_next(struct nt_queue *q, uint64_t now_ms, unsigned minute, struct nt_queue_step *ret)
{
    const struct nt_queue_item *first[64];
    size_t nfirst = 0;
    bool open = nt_windows_open(q->policy.windows, q->policy.nwindows, minute);

    *ret = (struct nt_queue_step){.what = NT_QUEUE_WAIT, .wake_ms = UINT64_MAX};
    for (size_t i = 0; i < q->n; i++) {
        struct nt_queue_item *x = &q->items[i];
        if (occupies(x) && x->stop != NT_STOP_NONE && !x->stop_sent) {
            x->stop_sent = true;
            *ret = (struct nt_queue_step){.what = NT_QUEUE_STOP, .id = x->id};
            return;
        }
    }
    for (struct nt_queue_item *x = best_after(q, NULL); x != NULL && !(q->stopping || q->held);
         x = best_after(q, x)) {
        if (!open) {
            say(x, "waits for its time window");
            ret->wake_ms = now_ms + MINUTE_MS;
            continue;
        }
        if (!due(q, x, now_ms, &ret->wake_ms)) {
            continue;
        }
        if (nt_queue_running(q) >= q->policy.max_running || blocked(q, x, first, nfirst)) {
            say(x, "waits for its turn");
            if (nfirst < sizeof(first) / sizeof(first[0])) {
                first[nfirst++] = x;
            }
            continue;
        }
        x->state = NT_Q_RUNNING;
        x->attempts++;
        x->reason[0] = '\0';
        *ret = (struct nt_queue_step){.what = NT_QUEUE_START, .id = x->id};
        return;
    }
}
