/* What was decided and executed, per collective and size class, summed over the receipts. */
#include <stdio.h>
#include <string.h>
#include "schema/vocab.h"
#include "tuner/base/text.h"
#include "tuner/deliver/doctor.h"

static void add_executed(struct nt_receipt_executed *to, struct nt_receipt_executed more)
{
    to->eager += more.eager;
    to->captured += more.captured;
    if (more.max_channels > 0) {
        to->min_channels = to->min_channels == 0 || more.min_channels < to->min_channels
                               ? more.min_channels
                               : to->min_channels;
        to->max_channels =
            more.max_channels > to->max_channels ? more.max_channels : to->max_channels;
    }
}

static void mark_rows(struct nt_doctor_calls *c, const struct nt_table *t)
{
    for (uint32_t i = 0; i < t->nrows; i++) {
        struct nt_table_row r = nt_table_row(t, i);
        for (unsigned k = nt_size_class(r.min_bytes); k <= nt_size_class(r.max_bytes); k++) {
            c->of[r.coll][k].in_table = true;
        }
    }
}

void nt_doctor_calls_add(struct nt_doctor_calls *c, const struct nt_doctor_facts *f)
{
    if (f->receipt == NULL) {
        return;
    }
    c->receipts++;
    c->observed = c->observed || (f->head.parts & 1U << NT_RECEIPT_PROFILER) != 0;
    for (unsigned coll = 0; coll < NT_TABLE_COLLS; coll++) {
        for (unsigned k = 0; k < NT_CLASS_COUNT; k++) {
            struct nt_receipt_class calls = nt_receipt_class(f->receipt, coll, k);
            struct nt_doctor_class *to = &c->of[coll][k];
            to->served += calls.served;
            to->left += calls.left;
            to->grouped += calls.grouped;
            for (unsigned cell = 0; cell < NT_RECEIPT_CELLS; cell++) {
                add_executed(&to->executed[cell], nt_receipt_executed(f->receipt, coll, k, cell));
            }
        }
    }
    if (f->table != NULL) {
        mark_rows(c, f->table);
    }
}

static bool seen(const struct nt_doctor_class *c)
{
    uint64_t n = c->served + c->left + c->grouped;
    for (unsigned i = 0; i < NT_RECEIPT_CELLS; i++) {
        n += c->executed[i].eager + c->executed[i].captured;
    }
    return n > 0;
}

static void cell_name(unsigned cell, char *out, size_t size)
{
    if (cell + 1 == NT_RECEIPT_CELLS) {
        (void)snprintf(out, size, "other");
    } else {
        (void)snprintf(out, size, "%s/%s", nt_algo_names[cell / NT_TABLE_PROTOS],
                       nt_proto_names[cell % NT_TABLE_PROTOS]);
    }
}

static void class_name(unsigned class, char *out, size_t size)
{
    char bytes[24];
    if (class + 1 == NT_CLASS_COUNT) {
        (void)snprintf(out, size, "larger");
    } else {
        (void)snprintf(out, size, "to %s",
                       nt_format_bytes((uint64_t)1 << class, bytes, sizeof(bytes)));
    }
}

static void class_text(const struct nt_doctor_class *c, struct nt_buf *out)
{
    if (!seen(c)) {
        nt_buf_puts(out,
                    "no NCCL call seen in this class: not made yet, or another backend has it");
        return;
    }
    nt_buf_printf(out, "%llu by the table, %llu left to NCCL", (unsigned long long)c->served,
                  (unsigned long long)c->left);
    if (c->grouped > 0) {
        nt_buf_printf(out, ", %llu in groups left to NCCL", (unsigned long long)c->grouped);
    }
    for (unsigned i = 0; i < NT_RECEIPT_CELLS; i++) {
        const struct nt_receipt_executed *e = &c->executed[i];
        char name[40];
        if (e->eager + e->captured == 0) {
            continue;
        }
        cell_name(i, name, sizeof(name));
        nt_buf_printf(out, "; executed %s", name);
        if (e->max_channels > 0) {
            nt_buf_printf(
                out, e->min_channels == e->max_channels ? ", %u channels" : ", %u to %u channels",
                e->min_channels, e->max_channels);
        }
        nt_buf_printf(out, ": %llu eager", (unsigned long long)e->eager);
        if (e->captured > 0) {
            nt_buf_printf(out, ", captured %llu, replays unknown", (unsigned long long)e->captured);
        }
    }
}

void nt_doctor_calls_text(const struct nt_doctor_calls *c, struct nt_buf *out)
{
    bool any = false;

    for (unsigned coll = 0; coll < NT_TABLE_COLLS; coll++) {
        for (unsigned k = 0; k < NT_CLASS_COUNT; k++) {
            const struct nt_doctor_class *class = &c->of[coll][k];
            char name[40];
            if (!seen(class) && !class->in_table) {
                continue;
            }
            if (!any) {
                nt_buf_printf(out, "calls, summed over %u receipt%s:\n", c->receipts,
                              c->receipts == 1 ? "" : "s");
                any = true;
            }
            class_name(k, name, sizeof(name));
            nt_buf_printf(out, "  %-14s %-9s ", nt_coll_names[coll], name);
            class_text(class, out);
            nt_buf_puts(out, "\n");
        }
    }
    if (any && !c->observed) {
        nt_buf_puts(out, "  what was executed is known only with --observe at the start\n");
    }
}

static json_t *executed_json(const struct nt_doctor_class *c)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < NT_RECEIPT_CELLS; i++) {
        const struct nt_receipt_executed *e = &c->executed[i];
        char name[40];
        if (e->eager + e->captured > 0) {
            cell_name(i, name, sizeof(name));
            (void)json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:i, s:i}", "cell", name,
                                                        "eager", (json_int_t)e->eager, "captured",
                                                        (json_int_t)e->captured, "min_channels",
                                                        (int)e->min_channels, "max_channels",
                                                        (int)e->max_channels));
        }
    }
    return list;
}

json_t *nt_doctor_calls_json(const struct nt_doctor_calls *c)
{
    json_t *list = json_array();

    for (unsigned coll = 0; coll < NT_TABLE_COLLS; coll++) {
        for (unsigned k = 0; k < NT_CLASS_COUNT; k++) {
            const struct nt_doctor_class *class = &c->of[coll][k];
            if (!seen(class) && !class->in_table) {
                continue;
            }
            (void)json_array_append_new(
                list, json_pack("{s:s, s:I, s:b, s:I, s:I, s:I, s:o}", "collective",
                                nt_coll_names[coll], "up_to_bytes", (json_int_t)1 << k, "in_table",
                                class->in_table, "by_table", (json_int_t) class->served, "left",
                                (json_int_t) class->left, "in_groups", (json_int_t) class->grouped,
                                "executed", executed_json(class)));
        }
    }
    return list;
}
