/* Writes a recording of the made-up machine of world.c: what tests replay where no GPU ever was. */
#include "probes/recording/recording.h"
#include "tests/job/world.h"
#include "tuner/job/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int keep(struct nt_recorder *out, const struct nt_plan_step *s,
                const struct nt_plan_outcome *o, struct nt_err *err)
{
    int rc = 0;

    for (size_t i = 0; s->kind == NT_DO_START && i < s->ngangs && rc == 0; i++) {
        rc = nt_recorder_gang(out,
                              &(struct nt_recorded_gang){.gang = s->gangs[i].number,
                                                         .process = s->gangs[i].vars,
                                                         .start_ns = o->elapsed_ns,
                                                         .init_ns = o->elapsed_ns},
                              err);
    }
    if (s->kind == NT_DO_CELLS) {
        rc = nt_recorder_cells(out, s->vars, &o->cells, err);
    } else if (s->kind == NT_DO_MEASURE) {
        const struct nt_result *x = o->result;
        struct nt_block b = {.cs = s->m.cs,
                             .flags = s->m.flags,
                             .process = s->vars,
                             .call = s->m.call,
                             .executed = x->executed,
                             .gang = s->gang,
                             .status = x->status,
                             .verify = s->m.verify,
                             .warmup = s->m.warmup,
                             .inner = s->m.inner,
                             .wrong = x->wrong,
                             .elapsed_ns = o->elapsed_ns,
                             .error = x->error,
                             .ns = x->ns,
                             .count = x->status == NT_ST_OK ? x->count : 0};
        rc = nt_recorder_block(out, &b, err);
    }
    return rc;
}

int main(int argc, char **argv)
{
    const char *facts[NT_FACT_COUNT] = {
        [NT_FACT_RIG] = "mps-sockets", [NT_FACT_RANKS] = "4",    [NT_FACT_GPU] = "made up",
        [NT_FACT_NCCL] = "22809",      [NT_FACT_CUDA] = "13000", [NT_FACT_DRIVER] = "13000",
        [NT_FACT_DATE] = "2026-01-01", [NT_FACT_LEASE] = "a"};
    struct nt_err err = {.code = NT_OK};
    struct nt_recorder *out = NULL;
    struct nt_record *r = NULL;
    struct nt_spec s;
    struct world w;
    int rc;

    if (argc < 3) {
        (void)fprintf(stderr, "usage: %s FILE.csv.gz SEED [SIZES [noise]]\n", argv[0]);
        return 2;
    }
    nt_spec_init(&s);
    s.rig = s.shown_rig = NT_RIG_MPS_SOCKETS;
    s.ranks = 4;
    s.nodes = 4;
    s.seed = strtoull(argv[2], NULL, 10);
    s.colls[NT_ALL_REDUCE] = s.modes[NT_EAGER] = s.modes[NT_GRAPH] = s.dtypes[NT_BF16] = true;
    s.places[NT_OUT_OF_PLACE] = s.places[NT_IN_PLACE] = true;
    (void)snprintf(s.settings[1], NT_SETTING_LEN, "NCCL_MIN_NCHANNELS=16");
    s.nsettings = 2;
    world_init(&w, s.seed);
    if (argc > 4) {
        w.block_sd *= strtod(argv[4], NULL);
        w.gang_sd *= strtod(argv[4], NULL);
    }
    (void)unlink(argv[1]); /* a recorder would go on with an old file */
    rc = nt_spec_add_sizes(&s, argc > 3 ? argv[3] : "256:64M", &err);
    rc = rc == 0 ? nt_spec_finish(&s, &err) : rc;
    rc = rc == 0 ? nt_record_new(&s, 12, 1, &r, &err) : rc;
    rc = rc == 0 ? nt_recorder_open(argv[1], facts, &out, NULL, &err) : rc;
    while (rc == 0) {
        struct nt_plan_step step;
        struct nt_plan_outcome o;
        rc = nt_record_next(r, &step, &err);
        if (rc != 0 || step.kind == NT_DO_FINISHED) {
            break;
        }
        world_do(&w, &step, &o);
        rc = keep(out, &step, &o, &err);
        rc = rc == 0 ? nt_record_tell(r, &o, &err) : rc;
    }
    rc = rc == 0 ? nt_recorder_close(out, &err) : rc;
    if (rc != 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
    }
    nt_record_free(r);
    return rc == 0 ? 0 : 1;
}
