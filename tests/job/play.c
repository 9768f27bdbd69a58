#include "tests/job/play.h"

#include <string.h>

struct nt_spec play_spec(const char *sizes, uint64_t seed)
{
    struct nt_spec s;
    struct nt_err err = {0};

    nt_spec_init(&s);
    s.ranks = s.nodes = 4;
    s.rig = s.shown_rig = NT_RIG_MPS_SOCKETS;
    s.seed = seed;
    s.colls[NT_ALL_REDUCE] = s.modes[NT_EAGER] = s.modes[NT_GRAPH] = true;
    s.dtypes[NT_BF16] = s.dtypes[NT_FP32] = true;
    s.places[NT_OUT_OF_PLACE] = s.places[NT_IN_PLACE] = true;
    if (nt_spec_add_sizes(&s, sizes, &err) != 0 || nt_spec_finish(&s, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    return s;
}

void play(struct play *p)
{
    p->err = (struct nt_err){0};
    p->plan = NULL;
    p->r = NULL;
    p->rc = nt_plan_new(&p->spec, &p->plan, &p->err);
    p->rc = p->rc == 0 ? world_run(&p->w, p->plan, &p->err) : p->rc;
    if (p->rc == 0) {
        p->r = nt_plan_result(p->plan);
    }
}

void play_done(struct play *p)
{
    nt_plan_free(p->plan);
    p->plan = NULL;
    p->r = NULL;
}

static void class_text(const struct nt_class_result *c, struct nt_buf *out)
{
    char cs[80], call[48];

    nt_buf_printf(out, "%s %s %s row %d %a %a %a gain %a %a %a p %a guard %a p95 %a %u %d '%s'\n",
                  nt_arm_names[c->product], nt_case_text(&c->cs, cs, sizeof(cs)),
                  nt_call_text(&c->call, call, sizeof(call)), c->in_row, c->default_ns,
                  c->as_found_ns, c->tuned_ns, c->gain, c->lo, c->hi, c->p, c->guard_upper,
                  c->p95_ratio, c->pairs, c->published, c->why);
}

void play_text(const struct nt_plan_result *r, struct nt_buf *out)
{
    char call[48], x[48];

    nt_buf_printf(out, "noisy %d table %d '%s' static %d '%s' pairs %u grid %llu\n", r->too_noisy,
                  r->table_present, r->table_vars, r->static_present, r->static_vars, r->pairs,
                  (unsigned long long)r->grid_ns);
    for (size_t i = 0; i < r->nrows; i++) {
        const struct nt_row_result *w = &r->rows[i];
        nt_buf_printf(out, "row %u %llu-%llu %s %s %u\n", w->coll, (unsigned long long)w->min_bytes,
                      (unsigned long long)w->max_bytes, nt_call_text(&w->call, call, sizeof(call)),
                      nt_executed_text(&w->executed, x, sizeof(x)), w->pairs);
    }
    for (size_t i = 0; i < r->nclasses; i++) {
        class_text(&r->classes[i], out);
    }
    for (size_t i = 0; i < r->nsettings; i++) {
        const struct nt_setting_score *s = &r->settings[i];
        nt_buf_printf(out, "setting '%s' %a %a %a %u\n", s->vars, s->table_gain, s->static_gain,
                      s->se, s->status);
    }
    for (int a = 0; a < NT_ARM_COUNT; a++) {
        nt_buf_printf(out, "%s %llu %llu\n", nt_arm_names[a],
                      (unsigned long long)r->memory_bytes[a],
                      (unsigned long long)r->first_call_ns[a]);
    }
    for (size_t i = 0; i < r->nnot_checked; i++) {
        nt_buf_printf(out, "not checked %s\n", r->not_checked[i].text);
    }
    for (int s = 0; s < NT_STAGE_COUNT; s++) {
        nt_buf_printf(out, "%s %llu\n", nt_stage_names[s], (unsigned long long)r->stage_ns[s]);
    }
}

static double truth(const struct play *p, enum nt_arm arm, const struct nt_case *cs,
                    const struct nt_call *call, const char *vars)
{
    struct nt_plan_step s = {.kind = NT_DO_MEASURE, .arm = arm, .vars = vars, .m.cs = *cs};
    struct world_call c = {.step = &s, .call = *call};

    world_executed(cs, call, vars, &c.x);
    return world_true_ns(&p->w, cs, call, vars) * (p->w.factor != NULL ? p->w.factor(&c) : 1);
}

/* A bound that holds 19 times in 20 lets what is a little beyond it through now and then. */
static const double CHANCE = 0.015;

/* A size is said to be faster where a mode proves it, and else only kept. */
static void claims_are_proved(const struct play *p)
{
    for (size_t i = 0; i < p->r->nclasses; i++) {
        const struct nt_class_result *c = &p->r->classes[i];
        bool proved = false;
        for (size_t k = 0; k < p->r->nclasses; k++) {
            const struct nt_class_result *o = &p->r->classes[k];
            proved = proved || (o->product == c->product && o->cs.coll == c->cs.coll &&
                                o->cs.bytes == c->cs.bytes && o->p <= p->spec.alpha);
        }
        if (c->product == NT_ARM_TABLE && c->published && proved == c->kept) {
            fail_msg("seed %llu: %llu bytes in %s: %s", (unsigned long long)p->spec.seed,
                     (unsigned long long)c->cs.bytes, nt_mode_names[c->cs.mode],
                     proved ? "faster, and said to be kept" : "said to be faster, and not proved");
        }
        assert_true(c->published || !c->kept);
    }
}

void play_never_worse(const struct play *p)
{
    const struct nt_spec *s = &p->spec;

    for (size_t i = 0; i < p->r->nrows; i++) {
        const struct nt_row_result *row = &p->r->rows[i];
        uint64_t grain = UINT64_C(4) * s->ranks;
        uint64_t at[NT_MAX_SIZES + 2] = {(row->min_bytes + grain - 1) / grain * grain,
                                         row->max_bytes / grain * grain};
        size_t n = 2;
        assert_true(row->min_bytes >= s->sizes[0]);
        assert_true(row->max_bytes <= s->sizes[s->nsizes - 1]);
        for (size_t k = 0; k < s->nsizes; k++) {
            if (s->sizes[k] >= row->min_bytes && s->sizes[k] <= row->max_bytes) {
                at[n++] = s->sizes[k];
            }
        }
        assert_true(n > 2); /* a row holds at least one size that was measured */
        for (size_t k = 0; k < n; k++) {
            for (int m = 0; m < NT_MODE_COUNT; m++) {
                struct nt_case cs = {.coll = row->coll, .bytes = at[k], .mode = (uint8_t)m};
                double d = truth(p, NT_ARM_DEFAULT, &cs, &NT_CALL_DEFAULT, "");
                double t = truth(p, NT_ARM_TABLE, &cs, &row->call, p->r->table_vars);
                if (s->modes[m] && t > d * (s->guard + CHANCE)) {
                    fail_msg("seed %llu: row %llu-%llu is %.1f %% slower at %llu in %s",
                             (unsigned long long)s->seed, (unsigned long long)row->min_bytes,
                             (unsigned long long)row->max_bytes, 100 * (t / d - 1),
                             (unsigned long long)at[k], nt_mode_names[m]);
                }
            }
        }
    }
    claims_are_proved(p);
}

const struct nt_class_result *play_published(const struct play *p, uint64_t bytes,
                                             enum nt_mode mode)
{
    for (size_t i = 0; i < p->r->nclasses; i++) {
        const struct nt_class_result *c = &p->r->classes[i];
        if (c->product == NT_ARM_TABLE && c->cs.bytes == bytes && c->cs.mode == mode &&
            c->published && !c->kept) {
            return c;
        }
    }
    return NULL;
}
