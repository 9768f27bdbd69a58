/* A job is resumed by telling its plan again what the store kept: the same plan, at every step. */
#include "tests/job/play.h"

#include <stdlib.h>
#include <string.h>

/* What the store keeps of a step. */
struct kept {
    char step[160];
    struct nt_plan_outcome o;
    struct nt_result r;
    uint64_t steps, measures, clock_ns; /* of the world, before the step */
};

struct story {
    struct kept *at;
    size_t n, cap;
    struct nt_buf result;
};

static void step_text(const struct nt_plan_step *s, char *out, size_t size)
{
    char cs[64], call[40];
    const struct nt_case *c = s->kind == NT_DO_MEASURE ? &s->m.cs : &s->cs;

    (void)snprintf(out, size, "%d #%llu %zu gang %llu %s %s %s v%d f%x n%u i%u w%u '%s'", s->kind,
                   (unsigned long long)s->seq, s->ngangs, (unsigned long long)s->gang,
                   nt_arm_names[s->arm], nt_case_text(c, cs, sizeof(cs)),
                   nt_call_text(&s->m.call, call, sizeof(call)), s->m.verify, s->m.flags,
                   s->m.samples, s->m.inner, s->m.warmup, s->vars != NULL ? s->vars : "");
}

/* Only the members that the store gives back. */
static void keep(struct story *st, const struct nt_plan_step *s, const struct nt_plan_outcome *o,
                 const struct world *before)
{
    struct kept *k;

    if (st->n == st->cap) {
        st->cap = st->cap == 0 ? 1024 : st->cap * 2;
        st->at = realloc(st->at, st->cap * sizeof(st->at[0]));
        assert_non_null(st->at);
    }
    k = &st->at[st->n++];
    *k = (struct kept){
        .steps = before->steps, .measures = before->measures, .clock_ns = before->clock_ns};
    step_text(s, k->step, sizeof(k->step));
    k->o.elapsed_ns = o->elapsed_ns;
    k->o.lost = o->lost;
    memcpy(k->o.gangs, o->gangs, sizeof(o->gangs));
    k->o.cells = o->cells;
    if (o->result != NULL) {
        k->r = (struct nt_result){.id = o->result->id,
                                  .status = o->result->status,
                                  .count = o->result->status == NT_ST_OK ? o->result->count : 0,
                                  .base_ns = o->result->base_ns,
                                  .executed = o->result->executed,
                                  .wrong = o->result->wrong,
                                  .connect_ns = o->result->connect_ns,
                                  .memory_bytes = o->result->memory_bytes};
        k->r.ns = malloc((k->r.count + 1) * sizeof(uint32_t));
        assert_non_null(k->r.ns);
        memcpy(k->r.ns, o->result->ns, k->r.count * sizeof(uint32_t));
    }
}

/* Tells the first `told` steps from the story, the rest from the world. With tell == NULL the story
 * is written. */
static void run(const struct nt_spec *spec, struct world *w, struct story *st, const size_t *told,
                struct nt_buf *result)
{
    struct nt_plan *p = NULL;
    struct nt_err err = {0};
    int rc = nt_plan_new(spec, &p, &err);
    bool ends = false;

    for (size_t i = 0; rc == 0 && !ends; i++) {
        struct nt_plan_step s;
        struct nt_plan_outcome o;
        char text[160];
        rc = nt_plan_next(p, &s, &err);
        ends = rc != 0 || s.kind == NT_DO_FINISHED;
        if (ends) {
            break;
        }
        step_text(&s, text, sizeof(text));
        if (told != NULL && strcmp(text, st->at[i].step) != 0) {
            fail_msg("told %zu, step %zu: '%s', was '%s'", *told, i, text, st->at[i].step);
        }
        if (told != NULL && i < *told) {
            o = st->at[i].o;
            o.result = s.kind == NT_DO_MEASURE ? &st->at[i].r : NULL;
        } else {
            struct world before = {.steps = w->steps, .measures = w->measures};
            before.clock_ns = w->clock_ns;
            w->rows = nt_plan_rows(p, &w->nrows);
            world_do(w, &s, &o);
            if (told == NULL) {
                keep(st, &s, &o, &before);
            }
        }
        rc = nt_plan_tell(p, &o, &err);
    }
    if (rc != 0) {
        fail_msg("%s", err.msg);
    }
    nt_buf_clear(result);
    play_text(nt_plan_result(p), result);
    nt_plan_free(p);
}

static uint8_t some_hang(const struct world_call *c)
{
    return c->x.algo == NT_RING && c->x.proto == NT_LL && c->step->m.cs.bytes > (512 << 10)
               ? NT_ST_TIMEOUT
               : NT_ST_OK;
}

static const struct sort {
    const char *name;
    size_t stride; /* 1: every step */
    const char *setting;
    uint64_t budget_ns, hang_at;
    uint8_t (*fault)(const struct world_call *c);
} sorts[] = {
    {.name = "plain, every step", .stride = 1},
    {.name = "within a budget", .stride = 7, .budget_ns = 68000000000},
    {.name = "with a process setting", .stride = 11, .setting = "NCCL_MIN_NCHANNELS=16"},
    {.name = "with lost gangs", .stride = 7, .hang_at = 700, .fault = some_hang},
};

static void test_every_step(void **state)
{
    const struct sort *sort = *state;
    struct nt_spec spec = play_spec("64K,1M", 1);
    struct story st = {0};
    struct nt_buf result;
    struct world w;

    spec.pairs = 8;
    spec.budget_ns = sort->budget_ns;
    if (sort->setting != NULL) {
        (void)snprintf(spec.settings[1], NT_SETTING_LEN, "%s", sort->setting);
        spec.nsettings = 2;
    }
    nt_buf_init(&st.result, 1 << 20);
    nt_buf_init(&result, 1 << 20);
    world_init(&w, 1);
    w.hang_at = sort->hang_at;
    w.fault = sort->fault;
    run(&spec, &w, &st, NULL, &st.result);
    assert_true(st.n > 300);
    assert_true(sort->budget_ns == 0 || w.clock_ns <= sort->budget_ns);
    for (size_t k = 0; k <= st.n; k += sort->stride) {
        w.steps = k < st.n ? st.at[k].steps : 0;
        w.measures = k < st.n ? st.at[k].measures : 0;
        w.clock_ns = k < st.n ? st.at[k].clock_ns : 0;
        run(&spec, &w, &st, &k, &result);
        if (strcmp(nt_buf_str(&result), nt_buf_str(&st.result)) != 0) {
            fail_msg("resumed after %zu of %zu steps:\n%s\nuninterrupted:\n%s", k, st.n,
                     nt_buf_str(&result), nt_buf_str(&st.result));
        }
    }
    for (size_t i = 0; i < st.n; i++) {
        free(st.at[i].r.ns);
    }
    free(st.at);
    nt_buf_done(&st.result);
    nt_buf_done(&result);
}

enum { NSORTS = sizeof(sorts) / sizeof(sorts[0]) };

int main(void)
{
    static struct CMUnitTest tests[NSORTS];

    for (size_t i = 0; i < NSORTS; i++) {
        tests[i] = (struct CMUnitTest){.name = sorts[i].name,
                                       .test_func = test_every_step,
                                       .initial_state = (void *)&sorts[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
