/*
 * doctor_hosts - what doctors of several hosts said of one job, as one verdict. Pure.
 *
 * What they say is the document of `doctor --format json`. Everything in it is foreign: another
 * host wrote it.
 */
#pragma once
#include <jansson.h>
#include "tuner/base/buf.h"

enum { NT_DOCTOR_HOSTS = 256 };

struct nt_doctor_host {
    const char *name; /* what to call it where the document names no host */
    const json_t *doc;
};
struct nt_doctor_hosts {
    bool applied; /* on all hosts, in all that count, the same profile */
    unsigned hosts, counted, ranks;
    char text[320]; /* one sentence */
    json_t *lines;  /* what differs or is missing, most important first: texts; owned */
    json_t *each;   /* {host, verdict, applied, counted, profiles[], nccl[], driver}; owned */
};

/* NT_E_INVAL names a document that is none of doctor's, or a host that is there twice. */
NT_MUST_CHECK int nt_doctor_hosts(const struct nt_doctor_host *hosts, size_t n,
                                  struct nt_doctor_hosts *ret, struct nt_err *err);
void nt_doctor_hosts_done(struct nt_doctor_hosts *h);
void nt_doctor_hosts_text(const struct nt_doctor_hosts *h, struct nt_buf *out);
json_t *nt_doctor_hosts_json(const struct nt_doctor_hosts *h); /* new reference */
