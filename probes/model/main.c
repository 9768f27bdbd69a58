/*
 * nccltune-probe-model - a rank of a machine that exists only as a topology. All ranks of a gang
 * give the same answers, which are already those of the slowest rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "probes/model/sim.h"
#include "probes/protocol/stream.h"
#include "tuner/base/cli.h"

struct args {
    uint64_t seed, machine;
    uint32_t ranks, nodes;
    const char *pace;
    double noise, deviation, hangs, wrong, drift;
};

struct rank {
    const struct args *args;
    unsigned rank, world;
    struct nt_stream stream;
    struct nt_topology *topology;
    struct nt_sim *sim;
    struct nt_sim_gang gang;
    struct nt_buf xml, text;
    bool ready;
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

static void take(const struct rank *r, uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    if (strcmp(r->args->pace, "real") == 0) {
        (void)nanosleep(&t, NULL); /* a signal ends the process anyway */
    }
}

static int say_hello(struct rank *r, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_HELLO};
    struct nt_hello *h = &m.hello;
    char model[64];
    int gpu = (int)r->rank % r->topology->ngpus;

    h->v = NT_PROTOCOL_VERSION;
    h->rank = r->rank;
    h->world = r->world;
    h->pid = getpid();
    h->nccl = NT_SIM_NCCL;
    (void)snprintf(h->host, sizeof(h->host), "simulated-%u",
                   r->rank / (unsigned)nt_sim_comm(r->sim)->local_ranks);
    (void)snprintf(h->gpu_name, sizeof(h->gpu_name), "simulated %.48s",
                   nt_gpu_model(r->topology, gpu, model, sizeof(model)));
    (void)snprintf(h->rig, sizeof(h->rig), "%s", nt_rig_names[NT_RIG_MODEL]);
    return nt_stream_send(&r->stream, &m, err);
}

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

static int on_init(struct rank *r, const struct nt_init *init, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_READY};
    int rc = nt_sim_gang_init(&r->gang, r->sim, init->gang, init->vars, init->nvars, err);

    if (rc != 0) {
        return rc;
    }
    r->ready = true;
    m.ready.init_ns = nt_sim_start_ns(&r->gang);
    take(r, m.ready.init_ns);
    if (r->rank == 0) {
        m.ready.topology_xml = (char *)nt_buf_str(&r->xml);
        m.ready.text = (char *)nt_buf_str(&r->text);
    }
    return nt_stream_send(&r->stream, &m, err);
}

static int on_measure(struct rank *r, const struct nt_measure *q, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_RESULT};
    int rc;

    nt_sim_measure(&r->gang, q, &m.result);
    take(r, m.result.elapsed_ns);
    rc = nt_stream_send(&r->stream, &m, err);
    nt_msg_done(&m);
    return rc;
}

/* 1: told to end. */
static int answer(struct rank *r, const struct nt_msg *q, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_CELLS};

    if ((q->type == NT_MSG_CELLS || q->type == NT_MSG_MEASURE) && !r->ready) {
        return nt_fail(err, NT_E_PROTO, 0, "asked before init");
    }
    switch (q->type) {
    case NT_MSG_UID:
        return nt_stream_send(&r->stream, &(struct nt_msg){.type = NT_MSG_UID, .uid = "00"}, err);
    case NT_MSG_INIT:
        return on_init(r, &q->init, err);
    case NT_MSG_CELLS:
        nt_sim_cells(&r->gang, &q->cells.cs, &m.cells);
        return nt_stream_send(&r->stream, &m, err);
    case NT_MSG_MEASURE:
        return on_measure(r, &q->measure, err);
    case NT_MSG_QUIT:
    case NT_MSG_ABORT:
        return 1;
    default:
        return nt_fail(err, NT_E_PROTO, 0, "the driver said what only a rank may say");
    }
}

static int serve(struct rank *r, struct nt_err *err)
{
    int rc = say_hello(r, err);

    while (rc == 0) {
        struct nt_msg q;
        rc = nt_stream_next(&r->stream, &q, err);
        if (rc == 0) {
            rc = answer(r, &q, err);
            nt_msg_done(&q);
        }
    }
    return rc == 1 ? 0 : rc;
}

/* Why this rank ends, for a driver that may be gone itself. */
static void tell(struct rank *r, const struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_ERROR};
    struct nt_err ignored;

    (void)snprintf(m.error, sizeof(m.error), "%s", err->msg);
    if (nt_stream_send(&r->stream, &m, &ignored) != 0) {
        (void)fprintf(stderr, "nccltune-probe-model: %s\n", ignored.msg);
    }
}

static int make_sim(struct rank *r, const char *file, struct nt_err *err)
{
    const struct args *a = r->args;
    struct nt_sim_params p = nt_sim_defaults;
    struct nt_buf note;
    int rc = nt_buf_read_file(&r->xml, file, err);

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

static int run(const struct args *args, const char *file, struct nt_err *err)
{
    struct rank r = {.args = args};
    int rc = nt_stream_env(NT_ENV_RANK, &r.rank, err);

    rc = rc != 0 ? rc : nt_stream_env(NT_ENV_WORLD, &r.world, err);
    rc = rc != 0 ? rc : nt_stream_open(getenv(NT_ENV_DRIVER), &r.stream, err);
    if (rc != 0) {
        return rc;
    }
    nt_buf_init(&r.xml, 4U << 20);
    nt_buf_init(&r.text, 8192);
    rc = make_sim(&r, file, err);
    rc = rc != 0 ? rc : serve(&r, err);
    if (rc != 0) {
        tell(&r, err);
    }
    nt_stream_close(&r.stream);
    nt_sim_free(r.sim);
    nt_topology_free(r.topology);
    nt_buf_done(&r.xml);
    nt_buf_done(&r.text);
    return rc;
}

int main(int argc, char **argv)
{
    struct args args;
    unsigned nargs = 0;
    bool help = false;
    struct nt_err err = {0};
    int rc = nt_cli_parse(&command, argc - 1, argv + 1, &args, &nargs, &help, &err);

    if (rc == 0 && help) {
        nt_cli_help("nccltune-probe-model", &command, stdout);
        return 0;
    }
    if (rc == 0) {
        rc = run(&args, argv[1], &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "nccltune-probe-model: %s\n", err.msg);
    }
    return nt_exit_code(rc);
}
