/* What the parts of doctor share; for this folder only. */
#pragma once
#include "tuner/base/err.h"
#include "tuner/deliver/doctor.h"

void nt_doctor_say(struct nt_doctor_verdict *v, const char *fmt, ...) NT_PRINTF(2, 3);
/* The first trouble is the verdict; later ones are only said. */
void nt_doctor_trouble(struct nt_doctor_verdict *v, enum nt_doctor_finding verdict);
bool nt_doctor_has_part(const struct nt_doctor_facts *f, enum nt_receipt_part part);
/* What the program did to a variable after its start; false: nothing that is on record. */
bool nt_doctor_change(const struct nt_doctor_facts *f, const char *name,
                      struct nt_receipt_change *ret);

/* With a receipt: variables that came too late, have another value than the profile's, or mask the
 * table; then rows that were not in force. idle: communicators that no row is for. */
void nt_doctor_variables(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v);
void nt_doctor_rows(const struct nt_doctor_facts *f, unsigned idle, struct nt_doctor_verdict *v);
/* What an engine's plugin took of the table of backends, and whose libnccl it calls. */
void nt_doctor_engine(const struct nt_doctor_facts *f, const struct nt_doctor_world *w,
                      struct nt_doctor_verdict *v);
