#include "tests/job/world.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    struct nt_spec s; struct nt_err err = {0}; struct nt_plan *p = NULL; struct world w;
    uint64_t seed = argc > 1 ? (uint64_t)atoi(argv[1]) : 1;
    nt_spec_init(&s); s.ranks = 4; s.rig = NT_RIG_MPS_SOCKETS; s.seed = seed;
    s.colls[NT_ALL_REDUCE] = s.modes[NT_EAGER] = s.modes[NT_GRAPH] = s.dtypes[NT_BF16] = s.dtypes[NT_FP32] = s.places[0] = s.places[1] = true;
    if (nt_spec_add_sizes(&s, "256:64M", &err) || 0) return 1;
    if (argc > 2) { snprintf(s.settings[1], 64, "NCCL_MIN_NCHANNELS=16"); s.nsettings = 2; }
    if (nt_spec_finish(&s, &err)) { puts(err.msg); return 1; }
    if (nt_plan_new(&s, &p, &err)) return 1;
    world_init(&w, seed); w.null = argc > 3;
    if (world_run(&w, p, &err)) { printf("failed %s\n", err.msg); return 1; }
    const struct nt_plan_result *r = nt_plan_result(p);
    printf("steps %llu clock %.1f s grid %.1f s\n", (unsigned long long)w.steps, (double)w.clock_ns / 1e9, (double)r->grid_ns / 1e9);
    for (int i = 0; i < NT_STAGE_COUNT; i++) printf(" %s %.1f", nt_stage_names[i], (double)r->stage_ns[i] / 1e9);
    printf("\nrows %zu vars '%s' static %d '%s'\n", r->nrows, r->table_vars, r->static_present, r->static_vars);
    for (size_t i = 0; i < r->nrows; i++) { char t[64]; printf("  %llu-%llu %s\n", (unsigned long long)r->rows[i].min_bytes, (unsigned long long)r->rows[i].max_bytes, nt_call_text(&r->rows[i].call, t, 64)); }
    for (size_t i = 0; i < r->nclasses; i++) { char t[64], u[64]; const struct nt_class_result *c = &r->classes[i];
      printf("  %-36s %-8s %-14s %8.1f -> %8.1f us gain %5.1f%% [%5.1f,%5.1f] p %.4f guard %.3f p95 %.2f %s %s\n", nt_case_text(&c->cs, t, 64), nt_arm_names[c->product], nt_call_text(&c->call, u, 64), c->default_ns/1e3, c->tuned_ns/1e3, 100*(exp(c->gain)-1), 100*(exp(c->lo)-1), 100*(exp(c->hi)-1), c->p, c->guard_upper, c->p95_ratio, c->published ? "yes" : "no", c->why); }
    for (size_t i = 0; i < r->nnot_checked; i++) printf(" not checked %s\n", r->not_checked[i].text);
    nt_plan_free(p); return 0;
}
