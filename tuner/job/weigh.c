#include "tuner/job/weigh.h"

enum { MAX_CLASSES = NT_WL_PHASES * NT_WL_CALLS };

static int check_ranks(const struct nt_spec *s, const struct nt_workload *w, struct nt_err *err)
{
    return w->ranks == 0 || w->ranks == s->ranks
               ? 0
               : nt_fail(err, NT_E_INVAL, 0, "workload %s is of %u ranks, the job of %u", w->name,
                         w->ranks, s->ranks);
}

/* As nt_spec_finish() wants a size. */
static uint64_t held_by_all(const struct nt_spec *s, uint64_t bytes)
{
    uint64_t least = UINT64_C(4) * s->ranks, whole = (bytes + 3) / 4 * 4;
    return whole < least ? least : whole;
}

void nt_weigh_colls(struct nt_spec *s, const struct nt_workload *w)
{
    for (size_t i = 0; i < w->nphases; i++) {
        for (size_t k = 0; k < w->phases[i].ncalls; k++) {
            s->colls[w->phases[i].calls[k].coll] = true;
        }
    }
}

int nt_weigh_sizes(struct nt_spec *s, const struct nt_workload *w, struct nt_err *err)
{
    struct nt_wl_class c[MAX_CLASSES];
    size_t n = nt_workload_classes(w, c, MAX_CLASSES);
    int rc = check_ranks(s, w, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint64_t bytes = held_by_all(s, c[i].cs.bytes);
        bool known = !s->colls[c[i].cs.coll];
        for (size_t k = 0; k < s->nsizes; k++) {
            known = known || s->sizes[k] == bytes;
        }
        rc = known ? 0 : nt_spec_add_size(s, bytes, err);
    }
    return rc == 0 ? 0 : nt_wrap(err, rc, "workload %s", w->name);
}

/* The ladder size that a call counts for; 0: none is near. */
static uint64_t nearest(const struct nt_spec *s, uint64_t bytes)
{
    uint64_t best = 0;
    double ratio = 2;

    for (size_t i = 0; i < s->nsizes; i++) {
        double a = (double)s->sizes[i], b = (double)(bytes > 0 ? bytes : 1);
        double r = a > b ? a / b : b / a;
        if (r < ratio) {
            ratio = r;
            best = s->sizes[i];
        }
    }
    return best;
}

static struct nt_weight *weight_of(struct nt_spec *s, int coll, uint64_t bytes, int mode)
{
    struct nt_weight *x = s->weights;

    while (x < s->weights + s->nweights &&
           (x->coll != coll || x->mode != mode || x->bytes != bytes)) {
        x++;
    }
    if (x == s->weights + s->nweights) {
        nt_assert(s->nweights < NT_MAX_WEIGHTS);
        *x = (struct nt_weight){.bytes = bytes, .coll = (uint8_t)coll, .mode = (uint8_t)mode};
        s->nweights++;
    }
    return x;
}

int nt_weigh(struct nt_spec *s, const struct nt_workload *w, double *ret_covered,
             struct nt_err *err)
{
    struct nt_wl_class c[MAX_CLASSES];
    size_t n = nt_workload_classes(w, c, MAX_CLASSES);
    double all = 0, covered = 0;
    int rc = check_ranks(s, w, err);

    s->nweights = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct nt_case *cs = &c[i].cs;
        uint64_t bytes = nearest(s, held_by_all(s, cs->bytes));
        all += c[i].calls;
        if (s->colls[cs->coll] && s->modes[cs->mode] && bytes != 0 && c[i].calls > 0) {
            weight_of(s, cs->coll, bytes, cs->mode)->calls += c[i].calls;
            covered += c[i].calls;
        }
    }
    if (rc == 0 && covered <= 0) {
        rc = nt_fail(err, NT_E_INVAL, 0,
                     "workload %s: none of its calls is of the job's collectives, modes and sizes",
                     w->name);
    }
    if (rc == 0) {
        *ret_covered = covered / all;
    }
    return rc;
}

double nt_spec_weight(const struct nt_spec *s, int coll, uint64_t bytes, int mode)
{
    for (size_t i = 0; i < s->nweights; i++) {
        const struct nt_weight *x = &s->weights[i];
        if (x->coll == coll && x->bytes == bytes && x->mode == mode) {
            return x->calls;
        }
    }
    return s->nweights == 0 ? 1 : 0;
}
