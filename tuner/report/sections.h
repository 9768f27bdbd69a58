/* sections - the parts of the page below its head, one function each; report.c puts them in order.
 * All of one shape, for its table. */
#pragma once
#include "tuner/report/report.h"

/* Published because another mode of its size proved the gain: by itself this class did not. */
bool nt_served_only(const struct nt_profile_class *c);

#define NT_SECTION(name)                                                                           \
    NT_MUST_CHECK int nt_section_##name(const struct nt_report_in *in, struct nt_buf *out,         \
                                        struct nt_err *err)

NT_SECTION(served);     /* rows and variables that a process gets */
NT_SECTION(classes);    /* every class of a product with its figures */
NT_SECTION(backends);   /* who moves the bytes, and why not others */
NT_SECTION(rejected);   /* what was tried and is in no product */
NT_SECTION(machine);    /* identity, health, topology */
NT_SECTION(provenance); /* where the figures come from */
NT_SECTION(reproduce);  /* two commands a class */

/* Below the plots: the times of all settings that were raced. */
void nt_raced_table(const struct nt_report_in *in, struct nt_buf *out);
