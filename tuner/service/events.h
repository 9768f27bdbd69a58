/*
 * events - the last things that happened, numbered, for streams: a ring in memory. What must last
 * is also stored by whoever adds it.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

enum { NT_EVENTS = 1024, NT_EVENT_KIND = 32 };

struct nt_event {
    uint64_t seq; /* from 1; 0: empty */
    int64_t job;  /* queue entry that it is about; 0: none */
    char kind[NT_EVENT_KIND];
    char *data; /* JSON; owned by the ring */
};
struct nt_events {
    struct nt_event ring[NT_EVENTS];
    uint64_t last; /* seq of the newest */
};

void nt_events_init(struct nt_events *e, uint64_t first_seq);
void nt_events_done(struct nt_events *e);
/* Copies the text. Nothing is added when memory ran out. */
void nt_events_add(struct nt_events *e, const char *kind, int64_t job, const char *json);
/* Where to go on for who has seen `seq`: there, or from the oldest for one that was never here. It
 * is of a service before this one, whose clock was ahead: numbers begin with the time of a start.
 */
uint64_t nt_events_from(const struct nt_events *e, uint64_t seq);
/* The first after `seq` (of one job unless that is 0); NULL: none. What fell out of the ring is
 * passed over. */
const struct nt_event *nt_events_after(const struct nt_events *e, uint64_t seq, int64_t job);
/* The event as a stream's text: bytes written, 0: it does not fit. */
size_t nt_event_text(const struct nt_event *e, char *out, size_t max);
