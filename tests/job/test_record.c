/* The landscape of the made-up machine: what is recorded, how often, and when it ends. */
#include "tests/job/play.h"
#include "tuner/base/rng.h"
#include "tuner/job/record.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Blocks of one tuple in one case and setting. */
struct count {
    struct nt_case cs;
    char vars[64];
    struct nt_executed x;
    unsigned blocks;
    uint64_t gangs[32];
    unsigned ngangs;
};

struct landscape {
    struct count *at;
    size_t n, cap;
    uint64_t held_ns, steps_hash, lost;
    size_t side_by_side; /* gangs of one start */
    uint8_t status;      /* of the last start */
    struct nt_err err;
    int rc;
};

static struct count *count_of(struct landscape *l, const struct nt_case *cs, const char *vars,
                              const struct nt_executed *x)
{
    for (size_t i = 0; i < l->n; i++) {
        if (nt_case_equal(&l->at[i].cs, cs) && strcmp(l->at[i].vars, vars) == 0 &&
            nt_executed_equal(&l->at[i].x, x)) {
            return &l->at[i];
        }
    }
    return NULL;
}

static void note(struct landscape *l, const struct nt_plan_step *s, const struct nt_executed *x)
{
    struct count *c = count_of(l, &s->m.cs, s->vars, x);

    if (c == NULL) {
        if (l->n == l->cap) {
            l->cap = l->cap == 0 ? 512 : l->cap * 2;
            l->at = realloc(l->at, l->cap * sizeof(l->at[0]));
            assert_non_null(l->at);
        }
        c = &l->at[l->n++];
        *c = (struct count){.cs = s->m.cs, .x = *x};
        (void)snprintf(c->vars, sizeof(c->vars), "%s", s->vars);
    }
    c->blocks++;
    if (c->ngangs == 0 || c->gangs[c->ngangs - 1] != s->gang) {
        assert_true(c->ngangs < 32);
        c->gangs[c->ngangs++] = s->gang;
    }
}

static uint64_t hash_step(uint64_t h, const struct nt_plan_step *s)
{
    h = nt_mix(h, (uint64_t)s->kind << 32 | s->seq);
    h = nt_mix(h, s->m.cs.bytes ^ (uint64_t)s->m.cs.mode << 56 ^ (uint64_t)s->m.cs.place << 48);
    return nt_mix(h, (uint64_t)(uint8_t)s->m.call.algo << 16 | (uint64_t)s->m.call.channels << 24 |
                         (uint8_t)s->m.call.proto);
}

static struct landscape explore(const struct nt_spec *spec, struct world *w, unsigned gangs)
{
    struct landscape l = {0};
    struct nt_record *r = NULL;

    l.rc = nt_record_new(spec, gangs, 1, &r, &l.err);
    while (l.rc == 0) {
        struct nt_plan_step s;
        struct nt_plan_outcome o;
        l.rc = nt_record_next(r, &s, &l.err);
        if (l.rc != 0 || s.kind == NT_DO_FINISHED) {
            break;
        }
        l.steps_hash = hash_step(l.steps_hash, &s);
        world_do(w, &s, &o);
        if (s.kind == NT_DO_START) {
            l.side_by_side = s.ngangs;
        } else if (s.kind == NT_DO_MEASURE && o.result->status == NT_ST_OK) {
            note(&l, &s, &o.result->executed);
        }
        l.lost += o.lost;
        l.held_ns += o.elapsed_ns;
        l.rc = nt_record_tell(r, &o, &l.err);
    }
    nt_record_free(r);
    return l;
}

static struct nt_spec record_spec(const char *sizes)
{
    struct nt_spec s = play_spec(sizes, 1);
    s.dtypes[NT_FP32] = false;
    (void)snprintf(s.settings[1], NT_SETTING_LEN, "NCCL_MIN_NCHANNELS=16");
    s.nsettings = 2;
    return s;
}

static void test_everything_is_there(void **state)
{
    static const uint16_t channels[2][5] = {{1, 2}, {1, 2, 4, 8, 16}};
    struct nt_spec spec = record_spec("64K,512K,1M");
    struct world w;
    struct landscape l;
    (void)state;

    world_init(&w, 1);
    l = explore(&spec, &w, 12);
    assert_int_equal(l.rc, 0);
    assert_int_equal(l.side_by_side, 2); /* both settings take turns */
    for (size_t i = 0; i < spec.nsizes; i++) {
        for (int k = 0; k < 4 * 2 * 5; k++) {
            unsigned setting = (unsigned)k / 20;
            struct nt_executed x = {.algo = (int8_t)(k / 5 % 2),
                                    .proto = k / 10 % 2 == 0 ? NT_LL : NT_SIMPLE,
                                    .channels = channels[setting][k % 5],
                                    .warps = 16};
            for (int m = 0; m < NT_MODE_COUNT; m++) {
                struct nt_case cs = {
                    .coll = NT_ALL_REDUCE, .bytes = spec.sizes[i], .mode = (uint8_t)m};
                const struct count *c = count_of(&l, &cs, spec.settings[setting], &x);
                if (x.channels > 0 && spec.modes[m] && (c == NULL || c->ngangs < 4)) {
                    char text[48];
                    fail_msg("%llu %s '%s' %s: in %u gangs", (unsigned long long)cs.bytes,
                             nt_mode_names[m], spec.settings[setting],
                             nt_executed_text(&x, text, sizeof(text)), c == NULL ? 0 : c->ngangs);
                }
            }
        }
    }
    free(l.at);
}

/* The best tuple and the default: in all gangs; in some, in the other placement and at the edge of
 * their row. */
static void test_leaders_more_often(void **state)
{
    struct nt_spec spec = record_spec("64K,512K,1M");
    const struct nt_executed best = {
        .algo = NT_TREE, .proto = NT_SIMPLE, .channels = 2, .warps = 16};
    struct nt_case cs = {.coll = NT_ALL_REDUCE, .bytes = 512 << 10};
    const struct count *c;
    struct nt_executed def;
    struct world w;
    struct landscape l;
    unsigned edges = 0;
    (void)state;

    world_init(&w, 1);
    l = explore(&spec, &w, 12);
    c = count_of(&l, &cs, "", &best);
    assert_true(c != NULL && c->ngangs == 12);
    world_executed(&cs, &NT_CALL_DEFAULT, "", &def);
    c = count_of(&l, &cs, "", &def);
    assert_true(c != NULL && c->ngangs == 12);
    cs.place = NT_IN_PLACE;
    c = count_of(&l, &cs, "", &best);
    assert_true(c != NULL && c->ngangs >= 3);
    for (size_t i = 0; i < l.n; i++) {
        const struct nt_case *k = &l.at[i].cs;
        edges += k->bytes > (512 << 10) && k->bytes < (1 << 20) && k->bytes % 16 == 0;
    }
    assert_true(edges >= 2);
    free(l.at);
}

static void test_repeats(void **state)
{
    struct nt_spec spec = record_spec("64K,1M");
    struct landscape a, b;
    struct world w;
    (void)state;

    world_init(&w, 1);
    a = explore(&spec, &w, 6);
    world_init(&w, 1);
    b = explore(&spec, &w, 6);
    assert_true(a.rc == 0 && a.steps_hash == b.steps_hash && a.held_ns == b.held_ns);
    free(a.at);
    free(b.at);
}

static struct landscape within(struct nt_spec *spec, uint64_t budget_ns)
{
    struct world w;

    world_init(&w, 1);
    spec->budget_ns = budget_ns;
    return explore(spec, &w, 16);
}

/* Tuples of a collective in at least so many gangs at one size. */
static unsigned recorded(const struct landscape *l, enum nt_coll coll, uint64_t bytes,
                         unsigned gangs)
{
    unsigned n = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct nt_case *cs = &l->at[i].cs;
        n += cs->coll == coll && cs->bytes == bytes && cs->place == NT_OUT_OF_PLACE &&
             l->at[i].ngangs >= gangs;
    }
    return n;
}

/* Less time: first the tuples that are far behind get fewer gangs, then there are fewer rounds,
 * then fewer sizes; never other collectives or settings, and never more time than was allowed. */
static void test_budget(void **state)
{
    static const double shares[] = {0.9, 0.6, 0.4, 0.25, 0.1};
    struct nt_spec spec = record_spec("64K,256K,1M,4M");
    struct landscape all;
    unsigned few = UINT_MAX;
    (void)state;

    spec.colls[NT_ALL_GATHER] = spec.colls[NT_REDUCE_SCATTER] = true;
    all = within(&spec, 0);
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        uint64_t budget = (uint64_t)((double)all.held_ns * shares[i]), slack = 0;
        struct landscape l = within(&spec, budget);
        unsigned deep = 0;
        assert_int_equal(l.rc, 0);
        slack = 2 * NT_PLAN_GANGS * UINT64_C(1000000000); /* the step that was under way */
        assert_true(l.held_ns <= budget + slack);
        for (size_t k = 0; k < 3; k++) {
            static const uint8_t colls[] = {NT_ALL_REDUCE, NT_ALL_GATHER, NT_REDUCE_SCATTER};
            unsigned first = recorded(&l, colls[k], 64 << 10, 1);
            if (first != recorded(&all, colls[k], 64 << 10, 1)) {
                fail_msg("%g of the time: %u tuples of %s", shares[i], first,
                         nt_coll_names[colls[k]]);
            }
            deep += recorded(&l, colls[k], 64 << 10, 4);
        }
        assert_true(deep <= few);
        few = deep;
        free(l.at);
    }
    free(all.at);
}

static uint8_t tree_hangs(const struct world_call *c)
{
    return c->x.algo == NT_TREE && c->x.proto == NT_SIMPLE && c->step->m.cs.bytes == 1 << 20
               ? NT_ST_TIMEOUT
               : NT_ST_OK;
}

static uint8_t all_hang(const struct world_call *c)
{
    (void)c;
    return NT_ST_TIMEOUT;
}

static uint8_t wrong_tree(const struct world_call *c)
{
    return c->x.algo == NT_TREE && c->step->m.verify != NT_VERIFY_NO ? NT_ST_WRONG : NT_ST_OK;
}

static void test_faults(void **state)
{
    static const struct {
        const char *name;
        uint8_t (*fault)(const struct world_call *c);
        enum nt_code code; /* NT_OK: it goes on without what fails */
    } rows[] = {{"a tuple that hangs", tree_hangs, NT_OK},
                {"wrong data", wrong_tree, NT_OK},
                {"everything hangs", all_hang, NT_E_MISSING}};
    const struct nt_executed ring = {
        .algo = NT_RING, .proto = NT_SIMPLE, .channels = 2, .warps = 16};
    const struct nt_case cs = {.coll = NT_ALL_REDUCE, .bytes = 1 << 20};
    struct nt_spec spec = record_spec("64K,1M");
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct world w;
        struct landscape l;
        world_init(&w, 1);
        w.fault = rows[i].fault;
        l = explore(&spec, &w, 6);
        if (l.rc != -(int)rows[i].code) {
            fail_msg("%s: %d '%s'", rows[i].name, l.rc, l.rc != 0 ? l.err.msg : "");
        }
        if (l.rc == 0) {
            const struct count *c = count_of(&l, &cs, "", &ring);
            if (c == NULL || c->ngangs < 4 || l.lost > 12) {
                fail_msg("%s: ring in %u gangs, %llu lost", rows[i].name, c == NULL ? 0 : c->ngangs,
                         (unsigned long long)l.lost);
            }
        }
        free(l.at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_there),
        cmocka_unit_test(test_leaders_more_often),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
