#include "tuner/service/events.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nt_events_init(struct nt_events *e, uint64_t first_seq)
{
    memset(e, 0, sizeof(*e));
    e->last = first_seq > 0 ? first_seq - 1 : 0;
}

void nt_events_done(struct nt_events *e)
{
    for (size_t i = 0; i < NT_EVENTS; i++) {
        free(e->ring[i].data);
        e->ring[i].data = NULL;
    }
}

void nt_events_add(struct nt_events *e, const char *kind, int64_t job, const char *json)
{
    struct nt_event *x = &e->ring[(e->last + 1) % NT_EVENTS];
    char *copy = strdup(json);
    if (copy == NULL) {
        return;
    }
    free(x->data);
    *x = (struct nt_event){.seq = ++e->last, .job = job, .data = copy};
    (void)snprintf(x->kind, sizeof(x->kind), "%s", kind);
}

uint64_t nt_events_from(const struct nt_events *e, uint64_t seq)
{
    return seq <= e->last ? seq : 0;
}

const struct nt_event *nt_events_after(const struct nt_events *e, uint64_t seq, int64_t job)
{
    uint64_t oldest = e->last >= NT_EVENTS ? e->last - NT_EVENTS + 1 : 1;
    seq = seq + 1 < oldest ? oldest - 1 : seq;
    for (uint64_t i = seq + 1; i <= e->last; i++) {
        const struct nt_event *x = &e->ring[i % NT_EVENTS];
        if (x->seq == i && (job == 0 || x->job == job)) {
            return x;
        }
    }
    return NULL;
}

size_t nt_event_text(const struct nt_event *e, char *out, size_t max)
{
    int n =
        snprintf(out, max, "id: %" PRIu64 "\nevent: %s\ndata: %s\n\n", e->seq, e->kind, e->data);
    return n > 0 && (size_t)n < max ? (size_t)n : 0;
}
