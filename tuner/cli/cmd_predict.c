/* predict: what NCCL's model says of a topology, and where its choice is predicted to be wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probes/model/sim.h"
#include "tuner/base/json.h"
#include "tuner/base/text.h"
#include "tuner/cli/commands.h"
#include "tuner/job/spec.h"

enum { MAX_NODES = 65536 };

struct predict_args {
    const char *collectives, *sizes, *mode, *format;
    uint32_t ranks, nodes;
    bool cells;
};

static const char *const formats[] = {"text", "json", NULL};
static const struct predict_args defaults = {
    .collectives = "all_reduce", .sizes = "1K:256M", .mode = "graph", .format = "text"};

#define A predict_args
static const struct nt_opt opts[] = {
    NT_OPT_SOME(NT_O_U32, A, ranks, "ranks", 'n', "COUNT", "ranks (default: one a GPU)"),
    NT_OPT_SOME(NT_O_U32, A, nodes, "nodes", 0, "COUNT",
                "so many copies of the machine (default 1)"),
    NT_OPT(NT_O_STR, A, collectives, "collectives", 'c', "LIST",
           "collectives to predict (default all_reduce)"),
    NT_OPT(NT_O_STR, A, sizes, "sizes", 's', "SIZES", "as of tune (default 1K:256M)"),
    {.name = "mode",
     .letter = 'm',
     .type = NT_O_STR,
     .offset = offsetof(struct A, mode),
     .arg = "MODE",
     .help = "of the times with what NCCL's model leaves out (default graph)",
     .choices = nt_mode_names},
    NT_OPT(NT_O_FLAG, A, cells, "cells", 0, NULL,
           "NCCL's estimate of every algorithm and protocol too"),
    {.name = "format",
     .type = NT_O_STR,
     .offset = offsetof(struct A, format),
     .arg = "FORMAT",
     .help = "output, text by default",
     .choices = formats},
    {0}};
#undef A

static const uint16_t bounds[] = {0, 1, 2, 4, 8, 16, 24, 32, 48, 64};

/* One line of the table. */
struct forecast {
    struct nt_case cs;
    struct nt_executed own, best;
    double estimate_us; /* NCCL's own, of its choice */
    double own_us, best_us;
};

/* The fastest tuple by the full model, fewest channels among equals. */
static void look(const struct nt_sim_gang *g, struct forecast *f)
{
    struct nt_call none = NT_CALL_DEFAULT;

    if (!nt_sim_executed(g, &f->cs, &none, &f->own)) {
        f->own_us = f->best_us = f->estimate_us = NAN;
        return;
    }
    f->best = f->own;
    f->own_us = f->best_us = nt_sim_true_ns(g, &f->cs, 0, &f->own) / 1000;
    f->estimate_us = nt_cost_us(&g->cost, (enum nt_coll)f->cs.coll, (enum nt_algo)f->own.algo,
                                (enum nt_proto)f->own.proto, f->cs.bytes, 1);
    for (int k = 0; k < NT_ALGO_COUNT * NT_PROTO_COUNT; k++) {
        for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
            struct nt_call call = {.algo = (int8_t)(k / NT_PROTO_COUNT),
                                   .proto = (int8_t)(k % NT_PROTO_COUNT),
                                   .channels = bounds[i]};
            struct nt_executed x;
            double us;
            if (!nt_sim_executed(g, &f->cs, &call, &x)) {
                continue;
            }
            us = nt_sim_true_ns(g, &f->cs, 0, &x) / 1000;
            if (us < f->best_us * 0.999) {
                f->best = x;
                f->best_us = us;
            }
        }
    }
}

static double gain(const struct forecast *f)
{
    return 1 - f->best_us / f->own_us;
}

/* ------------------------------------------------------------------ text */

static void print_machine(const struct nt_comm *c, const char *note)
{
    static const struct {
        enum nt_graph_kind kind;
        const char *name;
    } rows[] = {{NT_GRAPH_RING, "rings"}, {NT_GRAPH_TREE, "trees"}, {NT_GRAPH_NVLS, "NVLS"}};

    (void)printf("simulated  NCCL %d.%d.%d's cost model; nothing here was measured\n",
                 NT_SIM_NCCL / 10000, NT_SIM_NCCL / 100 % 100, NT_SIM_NCCL % 100);
    (void)printf("machine    %d ranks on %d node%s, capability %d.%d, %d channels\n", c->ranks,
                 c->nodes, c->nodes > 1 ? "s" : "", c->cc_min / 10, c->cc_min % 10, c->channels);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct nt_graph *g = &c->graph[rows[i].kind];
        if (g->channels > 0) {
            (void)printf("%-10s %d x %.1f GB/s, %s", rows[i].name, g->channels, (double)g->bw_intra,
                         nt_path_names[g->type_intra]);
            (void)printf(c->nodes > 1 ? ", between nodes %.1f GB/s, %s\n" : "\n",
                         (double)g->bw_inter, nt_path_names[g->type_inter]);
        }
    }
    if (note[0] != '\0') {
        (void)printf("assumed    %.*s\n", (int)strlen(note) - 2, note);
    }
}

static void print_cells(const struct nt_sim_gang *g, const struct nt_case *cs)
{
    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int p = 0; p < NT_PROTO_COUNT; p++) {
            float us = nt_cost_us(&g->cost, (enum nt_coll)cs->coll, (enum nt_algo)a,
                                  (enum nt_proto)p, cs->bytes, 1);
            if (us >= 0) {
                (void)printf("  %38s/%-8s %9.2f µs\n", nt_algo_names[a], nt_proto_names[p],
                             (double)us);
            }
        }
    }
}

static void print_row(const struct forecast *f)
{
    char bytes[24], own[48], best[48], t[3][24];

    (void)nt_format_bytes(f->cs.bytes, bytes, sizeof(bytes));
    (void)nt_executed_text(&f->own, own, sizeof(own));
    (void)nt_executed_text(&f->best, best, sizeof(best));
    (void)printf("  %-14s %7s  %-20s %9s %9s", nt_coll_names[f->cs.coll], bytes, own,
                 nt_format_ns(1000 * f->estimate_us, t[0], sizeof(t[0])),
                 nt_format_ns(1000 * f->own_us, t[1], sizeof(t[1])));
    if (gain(f) > 0.02) {
        (void)printf("  %-20s %9s  -%.0f %%\n", best,
                     nt_format_ns(1000 * f->best_us, t[2], sizeof(t[2])), 100 * gain(f));
    } else {
        (void)printf("  as chosen\n");
    }
}

static int print_text(const struct nt_sim_gang *g, const char *note, const struct forecast *f,
                      size_t n, bool cells)
{
    size_t wrong = 0;

    print_machine(&g->comm, note);
    (void)printf("\n  %-14s %7s  %-20s %9s %9s  %-20s\n", "collective", "bytes", "NCCL's choice",
                 "NCCL says", "with all", "predicted better");
    for (size_t i = 0; i < n; i++) {
        print_row(&f[i]);
        wrong += gain(&f[i]) > 0.02;
        if (cells) {
            print_cells(g, &f[i].cs);
        }
    }
    (void)printf("\nNCCL's choice is predicted to be wrong in %zu of %zu cases. That is where a "
                 "search looks first, no verdict: `nccltune tune` measures.\n",
                 wrong, n);
    return 0;
}

/* ------------------------------------------------------------------ JSON */

static json_t *tuple_json(const struct nt_executed *x, double us)
{
    char text[48];
    return json_pack("{s:s, s:i, s:f}", "tuple", nt_executed_text(x, text, sizeof(text)),
                     "channels", (int)x->channels, "us", us);
}

static json_t *row_json(const struct nt_sim_gang *g, const struct forecast *f)
{
    json_t *cells = json_object();

    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int p = 0; p < NT_PROTO_COUNT; p++) {
            float us = nt_cost_us(&g->cost, (enum nt_coll)f->cs.coll, (enum nt_algo)a,
                                  (enum nt_proto)p, f->cs.bytes, 1);
            char name[32];
            (void)snprintf(name, sizeof(name), "%s/%s", nt_algo_names[a], nt_proto_names[p]);
            if (us >= 0) {
                (void)json_object_set_new(cells, name, json_real((double)us));
            }
        }
    }
    return json_pack("{s:s, s:I, s:s, s:f, s:o, s:o, s:o}", "collective", nt_coll_names[f->cs.coll],
                     "bytes", (json_int_t)f->cs.bytes, "mode", nt_mode_names[f->cs.mode], "nccl_us",
                     f->estimate_us, "choice", tuple_json(&f->own, f->own_us), "best",
                     tuple_json(&f->best, f->best_us), "nccl_cells_us", cells);
}

static int print_json(const struct nt_sim_gang *g, const char *note, const struct forecast *f,
                      size_t n, struct nt_err *err)
{
    json_t *rows = json_array(), *o;
    struct nt_buf b;
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(rows, row_json(g, &f[i]));
    }
    o = json_pack("{s:b, s:i, s:i, s:i, s:s, s:o}", "simulated", 1, "ranks", g->comm.ranks, "nodes",
                  g->comm.nodes, "channels", g->comm.channels, "assumed", note, "rows", rows);
    nt_buf_init(&b, 64U << 20);
    if (o != NULL) {
        nt_json_dump(o, true, &b);
    }
    if (o == NULL || b.failed) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "predictions");
    } else {
        (void)printf("%s\n", nt_buf_str(&b));
    }
    nt_buf_done(&b);
    json_decref(o);
    return rc;
}

/* ------------------------------------------------------------------ the command */

static int forecast_all(const struct nt_sim_gang *g, const struct nt_spec *s, enum nt_mode mode,
                        const char *note, const struct predict_args *a, struct nt_err *err)
{
    static struct forecast f[NT_TUNER_COLLS * NT_MAX_SIZES];
    size_t n = 0;

    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        for (size_t i = 0; s->colls[c] && i < s->nsizes; i++) {
            f[n].cs =
                (struct nt_case){.coll = (uint8_t)c, .bytes = s->sizes[i], .mode = (uint8_t)mode};
            look(g, &f[n++]);
        }
    }
    if (n == 0) {
        return nt_fail(err, NT_E_INVAL, 0,
                       "NCCL models broadcast, reduce, all_gather, reduce_scatter and all_reduce");
    }
    return strcmp(a->format, "json") == 0 ? print_json(g, note, f, n, err)
                                          : print_text(g, note, f, n, a->cells);
}

static int run_predict(const void *opts_, unsigned nargs, char **args, struct nt_err *err)
{
    const struct predict_args *a = opts_;
    struct nt_topology *t = NULL;
    struct nt_sim *sim = NULL;
    struct nt_sim_gang g;
    struct nt_spec *s = calloc(1, sizeof(*s));
    struct nt_buf note;
    int mode = nt_vocab_find(nt_mode_names, "mode", a->mode, err);
    int rc = s == NULL  ? nt_fail(err, NT_E_NOMEM, 0, "predict")
             : mode < 0 ? mode
                        : nt_wrap(err,
                                  nt_spec_set(a->collectives, nt_coll_names, "collective", s->colls,
                                              NT_COLL_COUNT, err),
                                  "--collectives");

    nt_buf_init(&note, 4096);
    rc = rc == 0 ? nt_spec_add_sizes(s, a->sizes, err) : rc;
    if (rc == 0 && (a->nodes > MAX_NODES || a->ranks > MAX_NODES * 64)) {
        rc = nt_fail(err, NT_E_INVAL, 0, "--nodes and --ranks: at most %d and %d", MAX_NODES,
                     MAX_NODES * 64);
    }
    if (rc == 0) {
        rc = nargs == 0 || strcmp(args[0], "live") == 0
                 ? nt_topology_read_live(&(struct nt_live_opts){0}, &t, err)
                 : nt_topology_read_file(args[0], &t, err);
    }
    rc = rc == 0 ? nt_sim_new(t, a->ranks, a->nodes, &nt_sim_quiet, 0, 0, &sim, &note, err) : rc;
    rc = rc == 0 ? nt_sim_gang_init(&g, sim, 1, NULL, 0, err) : rc;
    if (rc == 0) {
        rc = forecast_all(&g, s, (enum nt_mode)mode, nt_buf_str(&note), a, err);
    }
    nt_sim_free(sim);
    nt_topology_free(t);
    nt_buf_done(&note);
    free(s);
    return rc;
}

const struct nt_command nt_cmd_predict = {
    .name = "predict",
    .summary = "what NCCL's model says of a topology, and where its choice may be wrong",
    .args = "[TOPO.xml]",
    .max_args = 1,
    .opts = opts,
    .defaults = &defaults,
    .size = sizeof(struct predict_args),
    .run = run_predict,
    .details = "Reads NCCL's topology XML (or this machine), finds the rings and trees that NCCL "
               "would, and prints for each size what NCCL would choose, the time it expects, and "
               "the time with what its model leaves out: channels really used, chunks, launches. "
               "Where another tuple is predicted to be faster, that stands beside it.\n\n"
               "Simulated, all of it: nothing is measured, and nothing of it gets into a profile.",
};
