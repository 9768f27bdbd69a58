#include "tuner/cli/receipts_workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/format/receipt.h"

enum { COUNT_MAX = 1000000 };

struct counts {
    uint64_t calls[2][NT_TUNER_COLLS][NT_CLASS_COUNT]; /* eager, captured */
    uint32_t ranks;
};

static void most(uint64_t *sum, uint64_t v)
{
    *sum = v > *sum ? v : *sum;
}

static void count(const void *data, struct counts *c)
{
    struct nt_receipt_comm comm;
    for (uint32_t i = 0; i < NT_RECEIPT_COMMS; i++) {
        if (nt_receipt_comm(data, i, &comm) && comm.nranks > c->ranks) {
            c->ranks = comm.nranks;
        }
    }
    for (unsigned coll = 0; coll < NT_TUNER_COLLS; coll++) {
        for (unsigned class = 0; class < NT_CLASS_COUNT; class ++) {
            struct nt_receipt_class asked = nt_receipt_class(data, coll, class);
            uint64_t eager = 0, captured = 0;
            for (unsigned cell = 0; cell < NT_RECEIPT_CELLS; cell++) {
                struct nt_receipt_executed x = nt_receipt_executed(data, coll, class, cell);
                eager += x.eager;
                captured += x.captured;
            }
            if (eager + captured == 0) { /* no profiler plugin: what the tuner was asked */
                eager = asked.served + asked.left + asked.grouped;
            }
            most(&c->calls[0][coll][class], eager);
            most(&c->calls[1][coll][class], captured);
        }
    }
}

static int more_calls(const void *a, const void *b)
{
    const struct nt_wl_call *x = a, *y = b;
    return x->count > y->count ? -1 : x->count < y->count;
}

/* Counts of a whole run are scaled so that the commonest fits. */
static void add_phase(struct nt_workload *w, const char *name, enum nt_mode mode,
                      uint64_t (*calls)[NT_CLASS_COUNT])
{
    struct nt_wl_call all[NT_TUNER_COLLS * NT_CLASS_COUNT];
    struct nt_wl_phase *p = &w->phases[w->nphases];
    uint64_t largest = 0, unit;
    size_t n = 0;
    for (unsigned i = 0; i < NT_TUNER_COLLS * NT_CLASS_COUNT; i++) {
        most(&largest, calls[i / NT_CLASS_COUNT][i % NT_CLASS_COUNT]);
    }
    unit = largest / COUNT_MAX + 1;
    for (unsigned i = 0; i < NT_TUNER_COLLS * NT_CLASS_COUNT; i++) {
        uint64_t v = calls[i / NT_CLASS_COUNT][i % NT_CLASS_COUNT] / unit;
        if (v > 0) {
            all[n] = (struct nt_wl_call){.coll = (uint8_t)(i / NT_CLASS_COUNT),
                                         .dtype = NT_BF16,
                                         .bytes = UINT64_C(1) << (i % NT_CLASS_COUNT),
                                         .count = (uint32_t)v};
            (void)snprintf(all[n++].what, sizeof(all[0].what), "calls up to this size");
        }
    }
    if (n == 0) {
        return;
    }
    qsort(all, n, sizeof(all[0]), more_calls);
    *p = (struct nt_wl_phase){.mode = (uint8_t)mode, .steps = 1};
    (void)snprintf(p->name, sizeof(p->name), "%s", name);
    p->ncalls = n < NT_WL_CALLS ? n : NT_WL_CALLS;
    memcpy(p->calls, all, p->ncalls * sizeof(all[0]));
    w->nphases++;
}

int nt_workload_from_receipts(char *const *paths, unsigned n, const char *name,
                              struct nt_workload *ret, struct nt_buf *notes, struct nt_err *err)
{
    struct counts *c = calloc(1, sizeof(*c));
    struct nt_workload w = {0};
    int rc = 0;
    if (c == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "receipts");
    }
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        struct nt_receipt_head head;
        struct nt_why why = {0};
        struct nt_buf file;
        nt_buf_init(&file, (size_t)2 * NT_RECEIPT_BYTES);
        rc = nt_buf_read_file(&file, paths[i], err);
        if (rc == 0 && nt_receipt_read(file.data, file.len, &head, &why) != 0) {
            rc = nt_fail(err, NT_E_INVAL, 0, "%s: %s", paths[i], why.text);
        }
        if (rc == 0) {
            count(file.data, c);
        }
        nt_buf_done(&file);
    }
    if (rc != 0) {
        free(c);
        return rc;
    }
    (void)snprintf(w.name, sizeof(w.name), "%.*s", (int)sizeof(w.name) - 1, name);
    w.ranks = c->ranks;
    add_phase(&w, "eager", NT_EAGER, c->calls[0]);
    add_phase(&w, "graph", NT_GRAPH, c->calls[1]);
    free(c);
    if (w.nphases == 0 || w.ranks < 2) {
        return nt_fail(err, NT_E_NO, 0, "the receipts count no collective of two ranks or more");
    }
    nt_buf_puts(
        notes,
        "counts are of a whole run, not of a step; a size stands for its class (up to it); graphs "
        "are counted when captured, not when replayed; the element type is taken as bf16\n");
    *ret = w;
    return 0;
}
