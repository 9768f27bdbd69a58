/* The simulated machine: settings, true times, draws. */
#include "probes/model/sim_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/tunables.h"
#include "tuner/base/rng.h"

#define FITTED                                                                                     \
    .way = {[NT_WAY_NVLINK] = {.lat_share = {0.73, 0.68, 1.05},                                    \
                               .channel_gbs = {{5.0, 11.2, 18.0}, {7.5, 16.6, 19.0}},              \
                               .link_share = {1.0, 0.85, 0.86},                                    \
                               .tree_pair = {1.6, 1.3, 1.6}},                                      \
            [NT_WAY_OTHER] = {.lat_share = {1.09, 1.0, 1.24},                                      \
                              .channel_gbs = {{1.24, 4.0, 14.5}, {2.4, 6.0, 14.2}},                \
                              .link_share = {1.0, 0.9, 0.98},                                      \
                              .tree_pair = {1.6, 1.3, 1.25}}},                                     \
    .joint = 5, .channel_us = 0.015, .loop_us = {0.25, 0.6, 1.5}, .fill = 0.12,                    \
    .threads_exponent = 0.5, .cluster = 0.015, .launch_us = {5.5, 9.5, 0.2}, .group_share = 0.8,   \
    .busy = 0.14, .start_ms = 1200, .start_rank_ms = 60, .connect_ms = 60, .overhead_us = 400

const struct nt_sim_params nt_sim_quiet = {FITTED};
const struct nt_sim_params nt_sim_defaults = {FITTED,
                                              .deviation = 0.12,
                                              .channel_deviation = 0.03,
                                              .gang_sd = 0.010,
                                              .interaction_sd = 0.004,
                                              .block_sd = 0.012,
                                              .sample_sd = 0.03,
                                              .launch_sd = 0.08,
                                              .outliers = 0.004,
                                              .outlier_log = 0.7,
                                              .strays = 0.001,
                                              .drift = 0.004};

/* ------------------------------------------------------------------ the machine */

/* What is the same for equal machines: the communicator that NCCL would make. */
static uint64_t machine_key(const struct nt_comm *c)
{
    uint64_t h = nt_mix((uint64_t)c->ranks << 32 | (uint64_t)c->nodes, (uint64_t)c->cc_min);
    for (int k = 0; k < NT_GRAPH_KINDS; k++) {
        const struct nt_graph *g = &c->graph[k];
        h = nt_mix(h, (uint64_t)g->channels << 32 | (uint64_t)(g->bw_intra * 100));
        h = nt_mix(h, (uint64_t)g->type_intra << 32 | (uint64_t)(g->bw_inter * 100));
    }
    return h;
}

int nt_sim_new(const struct nt_topology *t, unsigned ranks, unsigned nodes,
               const struct nt_sim_params *params, uint64_t machine, uint64_t seed,
               struct nt_sim **ret, struct nt_buf *note, struct nt_err *err)
{
    struct nt_sim *s = calloc(1, sizeof(*s));
    int rc = s == NULL ? nt_fail(err, NT_E_NOMEM, 0, "simulated machine") : 0;

    for (unsigned i = 0; rc == 0 && i < SIM_COMMS; i++) {
        struct nt_comm_opts o = {.ranks = ranks,
                                 .nodes = nodes,
                                 .no_p2p = (i & SIM_NO_P2P) != 0,
                                 .no_nvls = (i & SIM_NO_NVLS) != 0};
        rc = nt_comm_init(t, &o, &s->comm[i], i == 0 ? note : NULL, err);
    }
    if (rc != 0) {
        free(s);
        return rc;
    }
    s->p = *params;
    s->machine = nt_mix(machine_key(&s->comm[0]), machine);
    s->seed = nt_mix(s->machine, seed);
    *ret = s;
    return 0;
}

void nt_sim_free(struct nt_sim *s)
{
    free(s);
}

const struct nt_comm *nt_sim_comm(const struct nt_sim *s)
{
    return &s->comm[0];
}

/* ------------------------------------------------------------------ process settings */

struct settings {
    int64_t min_channels, max_channels, p2p_disable, nvls_enable, pat_enable, threads;
    int64_t buffer[NT_PROTO_COUNT];
    struct nt_taken algo, proto;
    bool algos, protos;
};

static int64_t *number_of(struct settings *s, const char *name)
{
    const struct {
        const char *name;
        int64_t *to;
    } rows[] = {
        {"NCCL_MIN_NCHANNELS", &s->min_channels},     {"NCCL_MIN_CTAS", &s->min_channels},
        {"NCCL_MAX_NCHANNELS", &s->max_channels},     {"NCCL_MAX_CTAS", &s->max_channels},
        {"NCCL_P2P_DISABLE", &s->p2p_disable},        {"NCCL_NVLS_ENABLE", &s->nvls_enable},
        {"NCCL_PAT_ENABLE", &s->pat_enable},          {"NCCL_NTHREADS", &s->threads},
        {"NCCL_LL_BUFFSIZE", &s->buffer[NT_LL]},      {"NCCL_BUFFSIZE", &s->buffer[NT_SIMPLE]},
        {"NCCL_LL128_BUFFSIZE", &s->buffer[NT_LL128]}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return rows[i].to;
        }
    }
    return NULL;
}

static int take_vars(struct settings *s, const struct nt_var *vars, size_t nvars,
                     struct nt_err *err)
{
    enum { VERSION = NT_V(2, 30, 7) };

    for (size_t i = 0; i < nvars; i++) {
        const struct nt_tunable *t = nt_tunable_find(vars[i].name, VERSION);
        int64_t *number = number_of(s, vars[i].name);
        struct nt_taken taken;
        if (t == NULL) {
            continue;
        }
        nt_tunable_take(t, vars[i].value, VERSION, &taken);
        if (taken.how == NT_TAKE_FAILS) {
            return nt_fail(err, NT_E_INVAL, 0, "%s=%s: %s", vars[i].name, vars[i].value, taken.why);
        }
        if (taken.how == NT_TAKE_UNSET || taken.how == NT_TAKE_DEFAULT) {
            continue;
        }
        if (number != NULL) {
            *number = taken.number;
        } else if (strcmp(vars[i].name, "NCCL_ALGO") == 0) {
            s->algo = taken;
            s->algos = true;
        } else if (strcmp(vars[i].name, "NCCL_PROTO") == 0) {
            s->proto = taken;
            s->protos = true;
        }
    }
    return 0;
}

static void mask(struct nt_sim_gang *g, const struct settings *s)
{
    for (int c = 0; c < NT_TUNER_COLLS; c++) {
        for (int a = 0; a < NT_ALGO_COUNT; a++) {
            for (int p = 0; p < NT_PROTO_COUNT; p++) {
                if ((s->algos && (s->algo.mask[c] >> a & 1) == 0) ||
                    (s->protos && (s->proto.mask[c] >> p & 1) == 0)) {
                    g->cost.bw[c][a][p] = 0;
                }
            }
        }
    }
}

static int clamp(int64_t n, int64_t lo, int64_t hi)
{
    n = hi > 0 && n > hi ? hi : n;
    n = n < lo ? lo : n;
    return (int)(n > 64 ? 64 : n);
}

int nt_sim_gang_init(struct nt_sim_gang *g, const struct nt_sim *s, uint64_t number,
                     const struct nt_var *vars, size_t nvars, struct nt_err *err)
{
    struct settings x = {
        .nvls_enable = 2,
        .pat_enable = 2,
        .buffer = {[NT_LL] = 512 << 10, [NT_LL128] = 4915200, [NT_SIMPLE] = 4 << 20}};
    int rc = take_vars(&x, vars, nvars, err);

    if (rc != 0) {
        return rc;
    }
    *g = (struct nt_sim_gang){.sim = s, .number = number, .threads = (int)x.threads};
    g->comm =
        s->comm[(x.p2p_disable != 0 ? SIM_NO_P2P : 0) | (x.nvls_enable == 0 ? SIM_NO_NVLS : 0)];
    g->comm.channels = clamp(g->comm.channels, x.min_channels, x.max_channels);
    g->comm.nvls_channels = clamp(g->comm.nvls_channels, x.min_channels, x.max_channels);
    g->comm.ll128_forced = x.protos && x.proto.forces_ll128;
    g->comm.pat_forced = x.pat_enable == 1;
    for (int p = 0; p < NT_PROTO_COUNT; p++) {
        g->buffer[p] = x.buffer[p] < 4096 ? 4096 : (uint64_t)x.buffer[p];
    }
    nt_cost_init(&g->comm, &g->cost);
    mask(g, &x);
    return 0;
}

uint64_t nt_sim_start_ns(const struct nt_sim_gang *g)
{
    const struct nt_sim_params *p = &g->sim->p;
    struct nt_rng r;

    nt_rng_seed(&r, nt_mix(nt_mix(g->sim->seed, g->number), 3));
    return (uint64_t)((p->start_ms + p->start_rank_ms * g->comm.ranks) * 1e6 *
                      exp(3 * p->gang_sd * nt_rng_normal(&r)));
}

/* ------------------------------------------------------------------ true time */

static double normal_at(uint64_t key)
{
    struct nt_rng r;
    nt_rng_seed(&r, key);
    return nt_rng_normal(&r);
}

/* Smooth over x with about unit variance: knots at whole numbers. */
static double wave(uint64_t key, double x)
{
    double i = floor(x), f = x - i, a = cos(f * 1.5707963267948966),
           b = sin(f * 1.5707963267948966);
    return a * normal_at(nt_mix(key, (uint64_t)i)) + b * normal_at(nt_mix(key, (uint64_t)i + 1));
}

/* By how much this machine is slower than NCCL's model has it; the same for all seeds. */
static double deviation(const struct nt_sim *s, enum nt_coll coll, uint64_t bytes, uint32_t mode,
                        const struct nt_executed *x)
{
    uint64_t key =
        nt_mix(s->machine, (uint64_t)coll << 16 | (uint64_t)x->algo << 8 | (uint64_t)x->proto);
    double size = log2((double)bytes + 1) / 4; /* a knot every four octaves */
    double d = s->p.deviation * (0.7 * normal_at(key) + 0.7 * wave(nt_mix(key, 1), size));

    d += s->p.channel_deviation *
         wave(nt_mix(key, 2 + (uint64_t)(size / 2)), log2(x->channels) * 0.7);
    return d + 0.1 * s->p.deviation * wave(nt_mix(key, 64 + mode), size);
}

static const struct nt_sim_way *way_of(const struct nt_sim_gang *g, const struct nt_executed *x)
{
    const struct nt_graph *graph = &g->comm.graph[nt_algo_graph((enum nt_algo)x->algo)];
    return &g->sim->p.way[graph->type_intra <= NT_PATH_NVB ? NT_WAY_NVLINK : NT_WAY_OTHER];
}

/* What the link lets through. bw: NCCL's figure for these bytes. */
static double link_gbs(const struct nt_sim_gang *g, enum nt_coll coll, double bw,
                       const struct nt_executed *x)
{
    const struct nt_sim_way *w = way_of(g, x);
    double pair = 2.0 / g->comm.ranks, flat = (double)g->cost.bw[coll][x->algo][x->proto];

    if (x->algo == NT_TREE) {
        bw = flat * pow(bw / flat, 1 - pair) * (1 + (w->tree_pair[x->proto] - 1) * pair);
    }
    return bw * w->link_share[x->proto];
}

/* What channels carry and what the link lets through. */
static double rate_gbs(const struct nt_sim_gang *g, enum nt_coll coll, double bw,
                       const struct nt_executed *x)
{
    const struct nt_sim_params *p = &g->sim->p;
    int n = g->comm.ranks, automatic = 512, threads = sim_max_threads(g, x->algo, x->proto);
    int steps = coll == NT_ALL_REDUCE                       ? 2 * (n - 1)
                : coll == NT_BROADCAST || coll == NT_REDUCE ? n
                                                            : n - 1;
    double link = link_gbs(g, coll, bw, x);
    double each = way_of(g, x)->channel_gbs[x->algo == NT_TREE ? 0 : 1][x->proto];

    if (x->algo != NT_TREE) { /* figures are for two ranks: as many bytes as the buffer has */
        each *= (double)n / steps;
    }
    if (g->threads > 0 && threads < automatic) {
        each *= pow((double)threads / automatic, p->threads_exponent);
    }
    each *= x->channels;
    return link * each / pow(pow(link, p->joint) + pow(each, p->joint), 1 / p->joint);
}

static double chunks_us(const struct nt_sim_gang *g, const struct nt_case *c,
                        const struct nt_executed *x, double rate)
{
    const struct nt_sim_params *p = &g->sim->p;
    double bytes = (double)c->bytes, chunk = sim_chunk_bytes(g, c, x);
    double lap = chunk * x->channels * (x->algo == NT_RING ? g->comm.ranks : 1);
    double loops = bytes / lap, us = loops > 1 ? (loops - 1) * p->loop_us[x->proto] : 0;

    if (x->algo == NT_TREE || x->algo == NT_NVLS_TREE) {
        double depth = x->algo == NT_TREE ? g->comm.local_ranks - 1 : 0;
        depth += floor(log2(g->comm.nodes));
        us += p->fill * sqrt(depth) * fmin(chunk * x->channels, bytes) / (1000 * rate);
    }
    return us;
}

static double launched(const struct nt_sim_params *p, uint32_t mode, double us)
{
    return mode == NT_STREAM ? fmax(us, p->launch_us[mode]) : us + p->launch_us[mode];
}

double nt_sim_true_ns(const struct nt_sim_gang *g, const struct nt_case *c, uint32_t flags,
                      const struct nt_executed *x)
{
    const struct nt_sim *s = g->sim;
    const struct nt_sim_params *p = &s->p;
    enum nt_coll coll = sim_modelled((enum nt_coll)c->coll);
    float lat, bw;
    double us, rate, factor;

    if (!nt_cost_parts(&g->cost, coll, (enum nt_algo)x->algo, (enum nt_proto)x->proto, c->bytes,
                       &lat, &bw)) {
        return NAN;
    }
    rate = rate_gbs(g, coll, (double)bw, x);
    us = (double)lat * (g->comm.nodes == 1 ? way_of(g, x)->lat_share[x->proto] : 1) +
         (double)c->bytes / (1000 * rate);
    us += (x->channels - 1) * p->channel_us + chunks_us(g, c, x, rate);
    factor = deviation(s, (enum nt_coll)c->coll, c->bytes, c->mode, x);
    factor += g->comm.cc_min >= 90 && x->channels % 4 != 0 ? p->cluster : 0;
    factor += (flags & NT_M_BUSY) != 0 ? p->busy : 0;
    us *= exp(factor);
    us = launched(p, c->mode, us);
    return 1000 * us * ((flags & NT_M_GROUP8) != 0 ? 8 * p->group_share : 1);
}

void nt_sim_cells(const struct nt_sim_gang *g, const struct nt_case *c, struct nt_cells *ret)
{
    *ret = (struct nt_cells){.cs = *c, .asked = c->coll <= NT_ALL_REDUCE};
    for (int a = 0; a < NT_ALGO_COUNT; a++) {
        for (int p = 0; p < NT_PROTO_COUNT; p++) {
            struct nt_call call = {.algo = (int8_t)a, .proto = (int8_t)p};
            struct nt_executed x;
            ret->cost[a][p] = ret->asked && nt_sim_executed(g, c, &call, &x)
                                  ? nt_cost_us(&g->cost, (enum nt_coll)c->coll, (enum nt_algo)a,
                                               (enum nt_proto)p, c->bytes, 1)
                                  : -1;
        }
    }
}

/* ------------------------------------------------------------------ draws */

static uint64_t tuple_key(const struct nt_executed *x)
{
    return (uint64_t)x->algo << 24 | (uint64_t)x->proto << 16 | x->channels;
}

static uint64_t case_key(const struct nt_case *c)
{
    return nt_mix(c->bytes, (uint64_t)c->coll << 8 | c->mode);
}

/* Tuples that hang or corrupt, the same in every gang; never what NCCL would run itself. */
static bool is_broken(const struct nt_sim_gang *g, const struct nt_case *c, int how,
                      const struct nt_executed *x)
{
    struct nt_call none = NT_CALL_DEFAULT;
    struct nt_executed own;
    struct nt_rng r;

    nt_rng_seed(&r, nt_mix(nt_mix(g->sim->machine, 1000 + (uint64_t)how),
                           nt_mix(tuple_key(x), (uint64_t)log2((double)c->bytes + 1) / 4)));
    return nt_rng_unit(&r) < g->sim->p.broken[how] && nt_sim_executed(g, c, &none, &own) &&
           !nt_executed_equal(&own, x);
}

static void draw(const struct nt_sim_gang *g, const struct nt_measure *m,
                 const struct nt_executed *x, double ns, struct nt_result *ret)
{
    const struct nt_sim_params *p = &g->sim->p;
    uint64_t gang = nt_mix(g->sim->seed, g->number), cs = case_key(&m->cs);
    struct nt_rng r;

    nt_rng_seed(&r, nt_mix(nt_mix(gang, m->id), nt_mix(cs, tuple_key(x))));
    ns *= exp(p->gang_sd * (0.7 * normal_at(gang) + 0.7 * normal_at(nt_mix(gang, cs))) +
              p->interaction_sd * normal_at(nt_mix(nt_mix(gang, cs), tuple_key(x))) +
              p->block_sd * nt_rng_normal(&r) + p->drift * sin((double)m->id / 700));
    if (m->cs.mode == NT_EAGER) {
        ns += 1000 * p->launch_us[NT_EAGER] *
              expm1(p->launch_sd * (normal_at(nt_mix(gang, 8)) + 0.5 * nt_rng_normal(&r)));
    }
    ns *= nt_rng_unit(&r) < p->strays ? 3 : 1;
    for (unsigned i = 0; i < m->samples; i++) {
        double y = ns * exp(p->sample_sd * nt_rng_normal(&r));
        if (nt_rng_unit(&r) < p->outliers) {
            y *= exp(-p->outlier_log * log(1 - nt_rng_unit(&r)));
        }
        if (y > UINT32_MAX) {
            ret->status = NT_ST_TOO_SLOW;
            y = UINT32_MAX;
        }
        ret->ns[i] = (uint32_t)y;
    }
    ret->count = m->samples;
}

static uint64_t total_ns(const struct nt_sim_gang *g, const struct nt_measure *m, double each)
{
    double calls = (double)m->warmup + m->samples;
    double checks = m->verify == NT_VERIFY_BOTH ? 2 : m->verify == NT_VERIFY_BEFORE ? 1 : 0;

    checks *= 1.5; /* a call and a pass over the buffer */
    checks += (m->flags & NT_M_READBACK) != 0 ? 1 : 0;
    return (uint64_t)(each * (calls * (m->inner > 0 ? m->inner : 1) + checks) +
                      1000 * g->sim->p.overhead_us);
}

static void fail(struct nt_result *r, enum nt_status status, const char *why)
{
    free(r->ns);
    r->ns = NULL;
    r->count = 0;
    r->status = (uint8_t)status;
    (void)snprintf(r->error, sizeof(r->error), "simulated: %s", why);
}

static double mean(const uint32_t *ns, size_t n, double otherwise)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += ns[i];
    }
    return n > 0 ? sum / (double)n : otherwise;
}

/* A copy reads and writes; both controls scatter as blocks of one gang do. */
static void control(const struct nt_sim_gang *g, const struct nt_measure *m, struct nt_result *ret)
{
    enum { LAUNCH_NS = 5000, BYTES_PER_NS = 3000 };
    double ns = (m->flags & NT_M_COPY) != 0 ? 2.0 * (double)m->cs.bytes / BYTES_PER_NS : 0;
    struct nt_rng r;

    ret->ns = calloc(m->samples + 1U, sizeof(ret->ns[0]));
    if (ret->ns == NULL) {
        fail(ret, NT_ST_ERROR, "out of memory");
        return;
    }
    nt_rng_seed(&r, nt_mix(nt_mix(g->sim->seed, g->number), nt_mix(m->id, m->flags)));
    for (; ret->count < m->samples; ret->count++) {
        ret->ns[ret->count] =
            (uint32_t)((ns + LAUNCH_NS) * exp(g->sim->p.sample_sd * nt_rng_normal(&r)));
        ret->elapsed_ns += ret->ns[ret->count];
    }
}

void nt_sim_measure(struct nt_sim_gang *g, const struct nt_measure *m, struct nt_result *ret)
{
    struct nt_executed x;
    uint32_t bit;
    double ns;

    *ret = (struct nt_result){.id = m->id, .status = NT_ST_OK, .executed = NT_EXECUTED_NONE};
    ret->elapsed_ns = (uint64_t)(1000 * g->sim->p.overhead_us);
    if ((m->flags & NT_M_CONTROL) != 0) {
        control(g, m, ret);
        return;
    }
    if (!nt_sim_executed(g, &m->cs, &m->call, &x)) {
        fail(ret, NT_ST_UNAVAILABLE, "NCCL has no such cell here");
        return;
    }
    ret->executed = (m->flags & NT_M_READBACK) != 0 ? x : ret->executed;
    if (is_broken(g, &m->cs, SIM_HANGS, &x)) {
        ret->elapsed_ns = (uint64_t)m->deadline_ms * 1000000;
        fail(ret, NT_ST_TIMEOUT, "this tuple hangs");
        return;
    }
    ret->ns = calloc(m->samples > 0 ? m->samples : 1, sizeof(ret->ns[0]));
    if (ret->ns == NULL) {
        fail(ret, NT_ST_ERROR, "out of memory");
        return;
    }
    ns = nt_sim_true_ns(g, &m->cs, m->flags, &x);
    draw(g, m, &x, ns, ret);
    ret->elapsed_ns = total_ns(g, m, mean(ret->ns, ret->count, ns));
    bit = 1U << (x.algo * NT_PROTO_COUNT + x.proto);
    if ((g->connected & bit) == 0) { /* connecting is of the algorithm; protocols share it */
        ret->connect_ns = (g->connected >> (x.algo * NT_PROTO_COUNT) & 7) == 0
                              ? (uint64_t)(1e6 * g->sim->p.connect_ms)
                              : 0;
        ret->elapsed_ns += ret->connect_ns;
        g->connected |= bit;
    }
    if (m->verify != NT_VERIFY_NO && is_broken(g, &m->cs, SIM_WRONG, &x)) {
        ret->wrong = m->cs.bytes / 8 + 1;
        fail(ret, NT_ST_WRONG, "this tuple gives wrong data");
    } else if (ret->status == NT_ST_TOO_SLOW) {
        fail(ret, NT_ST_TOO_SLOW, "a call of more than 4.29 s");
    }
}
