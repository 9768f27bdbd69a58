/*
 * nccltune-probe-model - a rank of a machine that exists only as a topology. All ranks of a gang
 * give the same answers, which are already those of the slowest rank.
 */
#include <stdio.h>

#include "probes/model/sim.h"
#include "probes/protocol/rank.h"

struct args {
    uint64_t seed, machine;
    uint32_t ranks, nodes;
    const char *pace;
    double noise, deviation, hangs, wrong, drift;
};

struct rank {
    struct args args;
    unsigned rank, world;
    struct nt_topology *topology;
    struct nt_sim *sim;
    struct nt_sim_gang gang;
    struct nt_buf xml, text;
};

#define A args
static const char *const paces[] = {"none", "real", NULL};
static const struct nt_opt opts[] = {
    NT_OPT(NT_O_U32, A, ranks, "ranks", 'n', "N", "ranks of the gang (as the driver has it)"),
    NT_OPT(NT_O_U32, A, nodes, "nodes", 0, "N", "so many copies of the machine (1)"),
    NT_OPT(NT_O_U64, A, seed, "seed", 's', "N", "which world is drawn (1)"),
    NT_OPT(NT_O_U64, A, machine, "machine", 0, "N",
           "which of the machines that look like this one (1)"),
    NT_OPT(NT_O_DOUBLE, A, noise, "noise", 0, "FACTOR", "all noise times this (1)"),
    NT_OPT(NT_O_DOUBLE, A, deviation, "deviation", 0, "SD",
           "by how much the machine differs from NCCL's model, log units (0.12)"),
    NT_OPT(NT_O_DOUBLE, A, drift, "drift", 0, "LOG", "amplitude of slow changes (0.004)"),
    NT_OPT(NT_O_DOUBLE, A, hangs, "hangs", 0, "SHARE", "of the tuples, those that hang (0)"),
    NT_OPT(NT_O_DOUBLE, A, wrong, "wrong", 0, "SHARE",
           "of the tuples, those that give wrong data (0)"),
    {.name = "pace",
     .type = NT_O_STR,
     .offset = offsetof(struct args, pace),
     .arg = "PACE",
     .help = "take as long as it would (real), or no time (none)",
     .choices = paces},
    {0}};
#undef A
static const struct args defaults = {.seed = 1,
                                     .machine = 1,
                                     .nodes = 1,
                                     .pace = "none",
                                     .noise = 1,
                                     .deviation = 0.12,
                                     .drift = 0.004};
static const struct nt_command command = {
    .name = "nccltune-probe-model",
    .summary = "a rank of a machine that exists only as a topology",
    .args = "TOPO.xml",
    .min_args = 1,
    .max_args = 1,
    .opts = opts,
    .defaults = &defaults,
    .size = sizeof(struct args),
    .details = "Started by nccltune as one rank of a gang; speaks its protocol with the driver "
               "that NCCLTUNE_DRIVER names. Times are NCCL's own predictions with what they leave "
               "out added, and noise: simulated, all of them. TOPO.xml is best an absolute path."};

static void describe(struct rank *r, const char *note)
{
    const struct nt_comm *c = nt_sim_comm(r->sim);

    nt_buf_printf(&r->text, "simulated=NCCL's cost model over a topology\nchannels=%d\n",
                  c->channels);
    nt_buf_printf(&r->text, "ring=%d x %.2f GB/s %s\n", c->graph[NT_GRAPH_RING].channels,
                  (double)c->graph[NT_GRAPH_RING].bw_intra,
                  nt_path_names[c->graph[NT_GRAPH_RING].type_intra]);
    if (note[0] != '\0') {
        nt_buf_printf(&r->text, "assumed=%s\n", note);
    }
}

static int open_model(void *self, unsigned rank, unsigned world, const char *file,
                      struct nt_err *err)
{
    struct rank *r = self;
    const struct args *a = &r->args;
    struct nt_sim_params p = nt_sim_defaults;
    struct nt_buf note;
    int rc;

    r->rank = rank;
    r->world = world;
    nt_buf_init(&r->xml, 4U << 20);
    nt_buf_init(&r->text, 8192);
    rc = nt_buf_read_file(&r->xml, file, err);

    if (a->ranks != 0 && a->ranks != r->world) {
        return nt_fail(err, NT_E_INVAL, 0, "--ranks %u, but this gang has %u", a->ranks, r->world);
    }
    rc = rc == 0 ? nt_topology_read_text(nt_buf_str(&r->xml), r->xml.len, &r->topology, err) : rc;
    if (rc != 0) {
        return rc;
    }
    p.deviation = a->deviation;
    p.drift = a->drift * a->noise;
    p.gang_sd *= a->noise;
    p.interaction_sd *= a->noise;
    p.block_sd *= a->noise;
    p.sample_sd *= a->noise;
    p.launch_sd *= a->noise;
    p.outliers *= a->noise;
    p.strays *= a->noise;
    p.broken[0] = a->hangs;
    p.broken[1] = a->wrong;
    nt_buf_init(&note, 4096);
    rc = nt_sim_new(r->topology, r->world, a->nodes, &p, a->machine, a->seed, &r->sim, &note, err);
    if (rc == 0) {
        describe(r, nt_buf_str(&note));
    }
    nt_buf_done(&note);
    return rc;
}

static void hello(void *self, struct nt_hello *h)
{
    const struct rank *r = self;
    char model[64];
    int gpu = (int)r->rank % r->topology->ngpus;

    h->nccl = NT_SIM_NCCL;
    (void)snprintf(h->host, sizeof(h->host), "simulated-%u",
                   r->rank / (unsigned)nt_sim_comm(r->sim)->local_ranks);
    (void)snprintf(h->gpu_name, sizeof(h->gpu_name), "simulated %.48s",
                   nt_gpu_model(r->topology, gpu, model, sizeof(model)));
    (void)snprintf(h->rig, sizeof(h->rig), "%s", nt_rig_names[NT_RIG_MODEL]);
}

static int init(void *self, const struct nt_init *i, struct nt_ready *ready, uint64_t *ret_took_ns,
                struct nt_err *err)
{
    struct rank *r = self;
    int rc = nt_sim_gang_init(&r->gang, r->sim, i->gang, i->vars, i->nvars, err);

    if (rc == 0) {
        ready->init_ns = nt_sim_start_ns(&r->gang);
        *ret_took_ns = ready->init_ns;
        ready->topology_xml = (char *)nt_buf_str(&r->xml);
        ready->text = (char *)nt_buf_str(&r->text);
    }
    return rc;
}

static void cells(void *self, const struct nt_case *c, struct nt_cells *ret)
{
    nt_sim_cells(&((struct rank *)self)->gang, c, ret);
}

static void measure(void *self, const struct nt_measure *m, struct nt_result *ret)
{
    nt_sim_measure(&((struct rank *)self)->gang, m, ret);
}

static void close_model(void *self)
{
    struct rank *r = self;

    nt_sim_free(r->sim);
    nt_topology_free(r->topology);
    nt_buf_done(&r->xml);
    nt_buf_done(&r->text);
}

int main(int argc, char **argv)
{
    static const struct nt_rank_ops ops = {.open = open_model,
                                           .hello = hello,
                                           .init = init,
                                           .cells = cells,
                                           .measure = measure,
                                           .close = close_model};
    struct rank r = {.sim = NULL};

    return nt_rank_main(&command, argc, argv, &r.args, &r.args.pace, &ops, &r);
}
