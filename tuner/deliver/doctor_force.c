/* Whether what a process was given was in force: variables and rows. */
#include <stdio.h>
#include <string.h>
#include "schema/tunables.h"
#include "schema/vocab.h"
#include "tuner/deliver/doctor_private.h"

enum { HARMLESS = NT_F_DEBUG | NT_F_NOT_NCCL | NT_F_GONE };

static const struct nt_tunable *tunable(const struct nt_doctor_facts *f, const char *name)
{
    const struct nt_tunable *t =
        f->head.nccl_version != 0 ? nt_tunable_find(name, f->head.nccl_version) : NULL;
    return t != NULL ? t : nt_tunable_any(name);
}

static bool is_mask(const struct nt_doctor_facts *f, const char *name)
{
    const struct nt_tunable *t = f->head.nrows > 0 ? tunable(f, name) : NULL;
    return t != NULL && (t->flags & NT_F_MASKS_TABLE) != 0;
}

bool nt_doctor_change(const struct nt_doctor_facts *f, const char *name,
                      struct nt_receipt_change *ret)
{
    for (uint32_t i = 0; f->receipt != NULL && i < NT_RECEIPT_CHANGES; i++) {
        if (nt_receipt_change(f->receipt, i, ret) && strcmp(ret->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_late(const struct nt_doctor_facts *f, const char *name)
{
    struct nt_receipt_change c;
    return nt_doctor_change(f, name, &c) && c.comms > 0;
}

static bool profile_has(const struct nt_doctor_facts *f, const char *name,
                        struct nt_table_var_text *ret)
{
    size_t at = 0;
    while (f->table != NULL && nt_table_next_var(f->table, &at, ret)) {
        if (strcmp(ret->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- too late ---- */

/* What NCCL read when it read the variable once. */
static void first_value(const struct nt_doctor_facts *f, const struct nt_receipt_change *c,
                        char *out, size_t size)
{
    struct nt_table_var_text t;
    char clean[NT_RECEIPT_CHANGE_VALUE];

    if (profile_has(f, c->name, &t) && (c->before == NULL || t.override) &&
        nt_doctor_has_part(f, NT_RECEIPT_ENV)) {
        (void)snprintf(out, size, "the profile's %.80s", t.value);
    } else if (c->before != NULL) {
        (void)snprintf(out, size, "%s", nt_clean(c->before, clean, sizeof(clean)));
    } else {
        (void)snprintf(out, size, "its default");
    }
}

static void judge_late(const struct nt_doctor_facts *f, const struct nt_receipt_change *c,
                       struct nt_doctor_verdict *v)
{
    const struct nt_tunable *t = tunable(f, c->name);
    char name[NT_RECEIPT_NAME], value[NT_RECEIPT_CHANGE_VALUE + 1] = "", used[128];
    unsigned since = f->head.ncomms > c->comms ? f->head.ncomms - c->comms : 0;

    (void)nt_clean(c->name, name, sizeof(name));
    if (c->now != NULL) {
        value[0] = '=';
        (void)nt_clean(c->now, value + 1, sizeof(value) - 1);
    }
    if (t == NULL || (t->flags & HARMLESS) != 0) {
        return; /* NCCL would not be faster or slower by it */
    }
    nt_doctor_trouble(v, NT_DR_TOO_LATE);
    nt_doctor_say(v, "%s%s was %s after a communicator existed: too late for the %u made before",
                  name, value, c->now != NULL ? "set" : "unset", c->comms);
    if (t->scope == NT_SCOPE_COMM || t->scope == NT_SCOPE_CALL) {
        nt_doctor_say(v,
                      "%s: NCCL reads it at each communicator, so the %u made since %s; those made "
                      "before go on with%s%.80s%s",
                      name, since, c->now != NULL ? "have it" : "are without it",
                      c->before != NULL ? " " : "out it",
                      c->before != NULL ? nt_clean(c->before, used, sizeof(used)) : "",
                      is_mask(f, c->name) && c->now != NULL
                          ? ". It masks the table: what it rules out the table cannot choose"
                          : "");
    } else {
        first_value(f, c, used, sizeof(used));
        nt_doctor_say(v, "%s: NCCL read it once and goes on with %s in all communicators", name,
                      used);
    }
}

/* ---- another's ---- */

static void judge_mask(const struct nt_doctor_facts *f, const char *name,
                       struct nt_doctor_verdict *v)
{
    char who[160];
    nt_doctor_blame(f, name, who, sizeof(who));
    nt_doctor_trouble(v, NT_DR_PARTLY);
    nt_doctor_say(v, "%s: %s: it masks the table: what it rules out the table cannot choose", name,
                  who);
}

static void judge_other(const struct nt_doctor_facts *f, const char *name,
                        struct nt_doctor_verdict *v)
{
    char who[160], clean[NT_RECEIPT_NAME];
    nt_doctor_blame(f, name, who, sizeof(who));
    nt_doctor_trouble(v, NT_DR_PARTLY);
    nt_doctor_say(v, "%s: not the profile's value: %s", nt_clean(name, clean, sizeof(clean)), who);
}

/* What NCCL asked the env plugin and was told. */
static void judge_names(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v)
{
    struct nt_receipt_name n;

    for (uint32_t i = 0; i < NT_RECEIPT_NAMES; i++) {
        if (!nt_receipt_name(f->receipt, i, &n) || is_late(f, n.name)) {
            continue;
        }
        if (n.told == NT_TOLD_KEPT) {
            judge_other(f, n.name, v);
        } else if (n.told == NT_TOLD_USER && is_mask(f, n.name)) {
            judge_mask(f, n.name, v);
        }
    }
}

/* A variable's value at the first communicator; NULL: none. */
static const char *value_of(const struct nt_doctor_facts *f, const char *name)
{
    struct nt_receipt_change c;
    if (nt_doctor_change(f, name, &c)) {
        return c.comms == 0 ? c.now : c.before;
    }
    return nt_proc_env(f->proc, name);
}

/* Without the env plugin: the environment at the start and what the program did to it. */
static void judge_environment(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v)
{
    struct nt_table_var_text t;
    struct nt_receipt_change c;
    size_t at = 0;

    while (f->table != NULL && f->proc->environ_known && nt_table_next_var(f->table, &at, &t)) {
        const char *here = value_of(f, t.name);
        bool removed = here == NULL && nt_doctor_change(f, t.name, &c) && c.comms == 0;
        if ((here != NULL && strcmp(here, t.value) != 0 && !t.override) || removed) {
            judge_other(f, t.name, v);
        }
    }
    for (size_t i = 0; i < nt_tunables_count; i++) {
        const char *name = nt_tunables[i].name;
        bool again = i > 0 && strcmp(nt_tunables[i - 1].name, name) == 0;
        if (!again && is_mask(f, name) && !is_late(f, name) && value_of(f, name) != NULL) {
            judge_mask(f, name, v);
        }
    }
}

void nt_doctor_variables(const struct nt_doctor_facts *f, struct nt_doctor_verdict *v)
{
    struct nt_receipt_change c;

    for (uint32_t i = 0; i < NT_RECEIPT_CHANGES; i++) {
        if (nt_receipt_change(f->receipt, i, &c) && c.comms > 0) {
            judge_late(f, &c, v);
        }
    }
    judge_names(f, v);
    if (!nt_doctor_has_part(f, NT_RECEIPT_ENV)) {
        judge_environment(f, v);
    }
    if (f->head.lost_changes > 0) {
        nt_doctor_say(v, "%u changes of variables found no room in the receipt",
                      f->head.lost_changes);
    }
}

/* ---- rows ---- */

static void row_name(const struct nt_doctor_facts *f, uint32_t i, char *out, size_t size)
{
    if (f->table == NULL || i >= f->table->nrows) {
        (void)snprintf(out, size, "row %u", i + 1);
        return;
    }
    struct nt_table_row r = nt_table_row(f->table, i);
    (void)snprintf(out, size, "%s of %llu to %llu bytes, %s/%s", nt_coll_names[r.coll],
                   (unsigned long long)r.min_bytes, (unsigned long long)r.max_bytes,
                   r.algo >= 0 ? nt_algo_names[r.algo] : "any",
                   r.proto >= 0 ? nt_proto_names[r.proto] : "any");
}

/* NCCL shows a tuner only what variables and the machine leave; a row whose choice was not there is
 * not in force, whoever took it away. */
void nt_doctor_rows(const struct nt_doctor_facts *f, unsigned idle, struct nt_doctor_verdict *v)
{
    uint32_t never = 0, sometimes = 0, first = 0;
    uint64_t calls = 0, missed = 0;
    char row[128];

    if (idle > 0) {
        if (idle == v->comms) {
            nt_doctor_trouble(v, NT_DR_PARTLY);
        }
        nt_doctor_say(v,
                      "%u of %u communicators have a number of ranks for which the profile has no "
                      "rows",
                      idle, v->comms);
    }
    for (uint32_t i = 0; i < f->head.nrows; i++) {
        uint64_t applied = nt_receipt_row_applied(f->receipt, i);
        uint64_t unavailable = nt_receipt_row_unavailable(f->receipt, i);
        first = unavailable > 0 && applied == 0 && never == 0 ? i : first;
        never += unavailable > 0 && applied == 0;
        calls += applied == 0 ? unavailable : 0;
        sometimes += unavailable > 0 && applied > 0;
        missed += applied > 0 ? unavailable : 0;
    }
    if (never > 0) {
        row_name(f, first, row, sizeof(row));
        nt_doctor_trouble(v, NT_DR_PARTLY);
        nt_doctor_say(v,
                      "%u row%s not in force (%s%s): NCCL did not offer the choice in any of %llu "
                      "calls, which were left to it",
                      never, never == 1 ? " was" : "s were", row, never > 1 ? " …" : "",
                      (unsigned long long)calls);
    }
    if (sometimes > 0) {
        nt_doctor_say(v, "%u row%s not in force in %llu calls: NCCL did not offer the choice there",
                      sometimes, sometimes == 1 ? " was" : "s were", (unsigned long long)missed);
    }
}
