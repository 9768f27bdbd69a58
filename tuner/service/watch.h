/*
 * watch - what to make of what was seen of the machine: a state machine without clock, processes or
 * store.
 *
 * A change counts when it has stayed for a while; what comes and goes is only told. Facts that one
 * side does not know are no difference. Ownership: plain memory. Units: *_ms of the caller's clock.
 */
#pragma once
#include <jansson.h>
#include "tuner/base/buf.h"
#include "tuner/topology/topology.h"

enum { NT_SIGHT_FINDINGS = 48, NT_WATCH_EVENTS = 64, NT_WATCH_KEY = 96 };

struct nt_sight {
    bool seen; /* false: the machine could not be read; see why */
    char why[192];
    struct nt_identity identity;
    char driver[24], cuda[24]; /* the driver's own version, and what it offers */
    char nccl[24], nccl_sha256[NT_HEX_LEN + 1];
    struct {
        char name[32], device[48], text[192];
        bool unhealthy;
    } finding[NT_SIGHT_FINDINGS];
    size_t nfindings;
    bool load_known;
    uint64_t busy, foreign; /* GPUs, a bit each */
};
/* As `serve --look` writes it; NULL when out of memory. The caller owns it. */
json_t *nt_sight_json(const struct nt_sight *s);
NT_MUST_CHECK int nt_sight_parse(const json_t *o, struct nt_sight *ret, struct nt_err *err);
/* Whether machine and stack are the same as far as both are known; else what differs, in words,
 * appended to *why. */
bool nt_sight_same(const struct nt_sight *a, const struct nt_sight *b, struct nt_buf *why);
/* What a job about this machine and stack is for: equal for equal ones. Returns out. */
char *nt_sight_key(const struct nt_sight *s, char *out, size_t size);

enum nt_watch_kind {
    NT_WATCH_UNREADABLE, /* the machine cannot be read (any more) */
    NT_WATCH_READABLE,   /* it can again */
    NT_WATCH_DIFFERENT,  /* a change was seen, and is waited on */
    NT_WATCH_BACK,       /* it went away again */
    NT_WATCH_SETTLED,    /* this is the machine now: act */
    NT_WATCH_FINDING,    /* a finding of health came */
    NT_WATCH_CURED,      /* … went */
    NT_WATCH_KIND_COUNT
};
extern const char *const nt_watch_kind_names[]; /* "unreadable", … NULL */

struct nt_watch_event {
    enum nt_watch_kind kind;
    bool unhealthy;
    char text[320];
};
struct nt_watch {
    uint64_t settle_ms;
    bool have, pending;
    bool unreadable;         /* told */
    struct nt_sight settled; /* valid when have */
    struct nt_sight next;    /* valid when pending, since: */
    uint64_t since_ms;
    bool told_different;  /* of a machine that comes and goes, once until it settles */
    struct nt_sight last; /* the last readable one: findings are compared with it */
    bool have_last;
    struct nt_watch_event events[NT_WATCH_EVENTS];
    size_t nevents;
};

void nt_watch_init(struct nt_watch *w, uint64_t settle_ms);
/* What was settled before this process began. */
void nt_watch_restore(struct nt_watch *w, const struct nt_sight *settled);
/* Fills w->events. */
void nt_watch_tell(struct nt_watch *w, const struct nt_sight *s, uint64_t now_ms);
/* When to look again although the interval is not over: UINT64_MAX: no need. */
uint64_t nt_watch_wake(const struct nt_watch *w);

/* How a profile stands to the machine as it is now. */
enum nt_holds { NT_HOLDS, NT_HOLDS_NOT, NT_HOLDS_OTHER /* it was made for another machine */ };
struct nt_made_for { /* what a profile was made for */
    struct nt_identity identity;
    const char *driver; /* the driver's own version, or what it offers; "": not known */
    const char *nccl, *nccl_sha256;
    bool here; /* on this host, or on one that is not known */
};
/* was: the machine before (NULL: not known). A profile of what the machine was, and is not any
 * more, holds no longer; *why says what differs. */
enum nt_holds nt_watch_judge(const struct nt_made_for *p, const struct nt_sight *was,
                             const struct nt_sight *now, struct nt_buf *why);
