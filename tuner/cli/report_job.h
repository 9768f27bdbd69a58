/*
 * report_job - what the database knows of a job beyond its profile, for its report.
 * Ownership: nt_report_job_load() fills *ret, whose memory nt_report_job_done() frees.
 */
#pragma once
#include "tuner/report/report.h"
#include "tuner/store/store.h"

enum { NT_REPORT_FACTS = 12 };

struct nt_report_job {
    struct nt_report_arm *arms;
    size_t narms;
    struct nt_report_fact facts[NT_REPORT_FACTS];
    size_t nfacts;
    struct nt_buf drawing; /* empty: no topology was kept */
    char **texts;          /* private: what the rest points to */
    size_t ntexts;
};

NT_MUST_CHECK int nt_report_job_load(struct nt_store *s, int64_t job, struct nt_report_job *ret,
                                     struct nt_err *err);
void nt_report_job_done(struct nt_report_job *j);
/* Appends the drawing of a topology in a form that nt_topology_read_text() knows. */
NT_MUST_CHECK int nt_report_draw(const char *text, size_t len, struct nt_buf *out,
                                 struct nt_err *err);
