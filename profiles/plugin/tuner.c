/*
 * The tuner plugin: answers NCCL's question for a call from the delivery file's rows.
 *
 * What NCCL asks for is only ever lowered from a cost that NCCL offered: a cell below zero (not
 * "equal to -1": one-byte types scale it) is a kernel that may not exist. A call that no row serves
 * is untouched. After init there is no allocation, no lock and no system call.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiles/plugin/changes.h"
#include "profiles/plugin/csv.h"
#include "profiles/plugin/lookup.h"
#include "profiles/plugin/meet.h"
#include "profiles/plugin/process.h"

enum { MEET_MS = 10000, CACHE_LINE = 64 };

/* What NCCL was last answered for a collective, for its later question about the chunk, which
 * carries other bytes than the call. */
struct last {
    const struct nt_rule *rule; /* NULL: the call was left alone */
    bool open;                  /* no chunk was asked since: further answers belong to one group */
    bool mixed;                 /* the group's calls are served differently */
};

/* One communicator. NCCL never calls it from two threads at once. */
struct comm {
    uint8_t *receipt;
    struct nt_lookup *lookup;
    struct last last[NT_TABLE_COLLS];
    int slot;    /* of the receipt */
    bool chunks; /* NCCL will ask for the chunk (ABI v6) */
    uint32_t nranks, nnodes;
    const struct nt_csv_row *csv; /* NULL unless rows come from a CSV file */
    size_t ncsv;
};

/* The cost table and what else NCCL passes with the question. */
struct question {
    float *cost;
    int nalgo, nproto, pipe_ops;
    enum nt_reg reg;
    int *channels;
};

/* ---- CSV: rows of the process ---- */

static struct {
    pthread_once_t once;
    struct nt_csv_row *rows;
    size_t n;
    struct nt_why why;
    bool told, broken;
} csv = {.once = PTHREAD_ONCE_INIT};

static void csv_read(void)
{
    const char *on = getenv("NCCLTUNE_CSV"), *path = getenv("NCCL_TUNER_CONFIG_FILE");

    csv.told = on != NULL && strcmp(on, "1") == 0;
    if (!csv.told) {
        return;
    }
    if (path == NULL || path[0] == '\0') {
        csv.broken = true;
        (void)snprintf(csv.why.text, sizeof(csv.why.text),
                       "NCCLTUNE_CSV=1 without NCCL_TUNER_CONFIG_FILE");
        return;
    }
    csv.broken = nt_csv_load(path, &csv.rows, &csv.n, &csv.why) != 0;
}

static int csv_say(nt_logger log)
{
    char text[512];

    if (csv.broken) {
        nt_say_error(log, "CSV file cannot be honoured: %s", csv.why.text);
        return NT_NCCL_INVALID_USAGE;
    }
    for (size_t i = 0; i < csv.n; i++) {
        nt_csv_describe(csv.rows, i, text, sizeof(text));
        nt_say_info(log, "nccltune: %s", text);
    }
    return NT_NCCL_SUCCESS;
}

/* ---- a communicator's life ---- */

static int meet(const struct nt_process *p, nt_logger log, size_t nranks, size_t nnodes)
{
    struct nt_why why = {""};
    const char *host_id = getenv("NCCL_HOSTID");
    bool met = false, host_told = host_id != NULL && host_id[0] != '\0';
    struct nt_meeting m = {.job = p->job,
                           .hash = p->hash,
                           .local_ranks = p->local_ranks,
                           .timeout_ms = MEET_MS,
                           /* others need not have all ranks of this host in them */
                           .everyone = nt_meet_everyone(nranks, nnodes, p->local_ranks, host_told)};

    if (p->job[0] == '\0' || p->local_ranks == 0) {
        return NT_NCCL_SUCCESS;
    }
    if (nt_meet(&m, &met, &why) != 0) {
        nt_say_error(log, "profile %s, job %.64s: %s", p->hash, p->job, why.text);
        return NT_NCCL_INVALID_USAGE;
    }
    if (!met) {
        nt_say_info(log, "nccltune: no folder to meet in, local ranks are not compared");
    }
    return NT_NCCL_SUCCESS;
}

static struct comm *comm_new(void)
{
    void *mem = NULL;
    size_t size = (sizeof(struct comm) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    if (posix_memalign(&mem, CACHE_LINE, size) != 0) { /* communicators share no cache line */
        return NULL;
    }
    memset(mem, 0, size);
    return mem;
}

static void comm_free(struct comm *c)
{
    if (c != NULL) {
        nt_lookup_free(c->lookup);
        free(c);
    }
}

static int out_of_memory(nt_logger log)
{
    nt_say_error(log, "out of memory");
    return NT_NCCL_SYSTEM_ERROR;
}

static int init_csv(void **context, size_t nranks, size_t nnodes, nt_logger log)
{
    struct comm *c;
    int rc;

    (void)pthread_once(&csv.once, csv_read);
    rc = csv.told ? csv_say(log) : NT_NCCL_SUCCESS;
    if (rc != NT_NCCL_SUCCESS || !csv.told) {
        return rc;
    }
    c = comm_new();
    if (c == NULL) {
        return out_of_memory(log);
    }
    c->nranks = (uint32_t)nranks;
    c->nnodes = (uint32_t)nnodes;
    c->csv = csv.rows;
    c->ncsv = csv.n;
    c->slot = -1;
    *context = c;
    return NT_NCCL_SUCCESS;
}

/* Rows that this NCCL does not serve as they were confirmed. */
static void say_chunks(const struct nt_table *t, const struct comm *c, unsigned abi, nt_logger log)
{
    uint32_t n = 0;

    for (uint32_t i = 0; !c->chunks && i < t->nrows; i++) {
        struct nt_table_row r = nt_table_row(t, i);
        n += r.nranks == c->nranks && r.nnodes == c->nnodes && r.chunk_bytes > 0;
    }
    if (n > 0) {
        nt_say_info(log,
                    "nccltune: %u rows ask for a chunk size, about which NCCL asks from tuner ABI "
                    "v6 on, not v%u: their calls are left alone",
                    n, abi);
    }
}

static int init(void **context, unsigned abi, uint64_t id, size_t nranks, size_t nnodes,
                nt_logger log)
{
    const struct nt_process *p = NULL;
    struct comm *c;
    int rc;

    *context = NULL;
    if (nt_process_disabled()) {
        return NT_NCCL_SUCCESS;
    }
    rc = nt_process_get(NT_RECEIPT_TUNER, log, &p);
    if (rc != NT_NCCL_SUCCESS) {
        return rc;
    }
    if (p->told == NT_TOLD_NOTHING) {
        return init_csv(context, nranks, nnodes, log);
    }
    rc = meet(p, log, nranks, nnodes);
    if (rc != NT_NCCL_SUCCESS) {
        return rc;
    }
    c = comm_new();
    if (c != NULL) {
        c->lookup = nt_lookup_new(&p->table, (uint32_t)nranks, (uint32_t)nnodes);
    }
    if (c == NULL || c->lookup == NULL) {
        comm_free(c);
        return out_of_memory(log);
    }
    c->nranks = (uint32_t)nranks;
    c->nnodes = (uint32_t)nnodes;
    c->chunks = abi >= 6;
    c->receipt = p->receipt;
    nt_changes_note(p);
    c->slot = nt_receipt_add_comm(p->receipt, &(struct nt_receipt_comm){.nranks = c->nranks,
                                                                        .nnodes = c->nnodes,
                                                                        .abi = abi,
                                                                        .rows = c->lookup->rows,
                                                                        .id = id});
    nt_say_info(log, "nccltune: profile %s: %u of %u rows serve %u ranks on %u nodes", p->hash,
                c->lookup->rows, p->table.nrows, c->nranks, c->nnodes);
    say_chunks(&p->table, c, abi, log);
    *context = c;
    return NT_NCCL_SUCCESS;
}

static int destroy(void *context)
{
    struct comm *c = context;
    if (c != NULL && c->receipt != NULL) {
        nt_receipt_end_comm(c->receipt, c->slot);
    }
    comm_free(c);
    return NT_NCCL_SUCCESS;
}

/* ---- a call ---- */

/* Asks for the combination if NCCL offers it. */
static bool prefer(const struct question *q, int algo, int proto)
{
    float *cell;
    if (algo >= q->nalgo || proto >= q->nproto) {
        return false;
    }
    cell = &q->cost[algo * q->nproto + proto];
    if (!(*cell >= 0)) { /* so written that a NaN is left alone too */
        return false;
    }
    *cell = 0;
    return true;
}

static bool csv_matches(const struct comm *c, const struct nt_csv_row *r, int coll, size_t bytes,
                        const struct question *q)
{
    return r->coll == coll && bytes >= r->min_bytes && bytes <= r->max_bytes &&
           (r->nnodes == NT_CSV_ANY || r->nnodes == c->nnodes) &&
           (r->nranks == NT_CSV_ANY || r->nranks == c->nranks) &&
           (r->pipe_ops == NT_CSV_ANY || r->pipe_ops == q->pipe_ops) &&
           (r->reg_buff == NT_CSV_ANY || r->reg_buff == (int)q->reg) &&
           nt_kernel_exists(coll, r->algo, r->proto);
}

static void csv_answer(const struct comm *c, int coll, size_t bytes, const struct question *q)
{
    for (size_t i = 0; i < c->ncsv; i++) {
        const struct nt_csv_row *r = &c->csv[i];
        if (csv_matches(c, r, coll, bytes, q) && prefer(q, r->algo, r->proto)) {
            if (r->channels > 0 && nt_channels_safe(r->algo, c->nnodes)) {
                *q->channels = r->channels;
            }
            return;
        }
    }
}

/* The row that serves the call, NULL if none. */
static const struct nt_rule *serve(const struct comm *c, unsigned coll, size_t bytes,
                                   const struct question *q)
{
    const struct nt_rule *rule = nt_lookup_find(c->lookup, coll, q->reg, bytes);

    if (rule == NULL) {
        return NULL;
    }
    /* Without its chunk a row is a setting that nobody has measured. */
    if ((rule->chunk_bytes > 0 && !c->chunks) ||
        (rule->algo >= 0 && !prefer(q, rule->algo, rule->proto))) {
        nt_receipt_count(c->receipt, nt_receipt_at_row(rule->row) + 8);
        return NULL;
    }
    if (rule->channels > 0) {
        *q->channels = rule->channels;
    }
    nt_receipt_count(c->receipt, nt_receipt_at_row(rule->row));
    return rule;
}

static int answer(void *context, int coll, size_t bytes, const struct question *q)
{
    struct comm *c = context;
    const struct nt_rule *rule = NULL;
    enum nt_receipt_fate fate = NT_FATE_GROUPED;
    struct last *last;

    if (c == NULL || coll < 0 || coll >= NT_TABLE_COLLS) {
        return NT_NCCL_SUCCESS;
    }
    if (c->lookup == NULL) {
        csv_answer(c, coll, bytes, q);
        return NT_NCCL_SUCCESS;
    }
    if (q->pipe_ops <= 1) { /* no row was confirmed on a larger group */
        rule = serve(c, (unsigned)coll, bytes, q);
        fate = rule != NULL ? NT_FATE_SERVED : NT_FATE_LEFT;
    }
    nt_receipt_count(c->receipt, nt_receipt_at_class((unsigned)coll, nt_size_class(bytes), fate));
    last = &c->last[coll];
    last->mixed = last->open && (last->mixed || last->rule != rule);
    last->rule = rule;
    last->open = true;
    return NT_NCCL_SUCCESS;
}

static int answer_v6(void *context, int coll, size_t bytes, int pipe_ops, float **cost, int nalgo,
                     int nproto, int reg_buff, int *channels)
{
    /* The table is one block of floats; only its type says otherwise. */
    const struct question q = {.cost = (float *)(void *)cost,
                               .nalgo = nalgo,
                               .nproto = nproto,
                               .pipe_ops = pipe_ops,
                               .reg = reg_buff != 0 ? NT_REG_YES : NT_REG_NO,
                               .channels = channels};
    return answer(context, coll, bytes, &q);
}

static int answer_v3(void *context, int coll, size_t bytes, int pipe_ops, float **cost, int nalgo,
                     int nproto, int *channels)
{
    const struct question q = {.cost = (float *)(void *)cost,
                               .nalgo = nalgo,
                               .nproto = nproto,
                               .pipe_ops = pipe_ops,
                               .reg = NT_REG_UNKNOWN,
                               .channels = channels};
    return answer(context, coll, bytes, &q);
}

/* Whether NCCL 2.21, which shows no table, can have the combination. LL128 depends on the paths
 * between GPUs: a profile's row was measured on them, a CSV row was not. */
static bool possible_v2(const struct comm *c, int coll, int algo, int proto, bool collnet,
                        bool nvls)
{
    if (!nt_kernel_exists(coll, algo, proto) || (proto == NT_TABLE_LL128 && c->lookup == NULL)) {
        return false;
    }
    switch (algo) {
    case NT_TABLE_COLLNET_DIRECT:
    case NT_TABLE_COLLNET_CHAIN:
        return collnet && c->nnodes > 1;
    case NT_TABLE_NVLS:
        return nvls && (c->nnodes == 1 || collnet);
    case NT_TABLE_NVLS_TREE:
        return nvls && c->nnodes > 1;
    default:
        return algo <= NT_TABLE_RING;
    }
}

static int answer_v2(void *context, int coll, size_t bytes, int collnet, int nvls, int pipe_ops,
                     int *algo, int *proto, int *channels)
{
    float cost[NT_TABLE_ALGOS][NT_TABLE_PROTOS];
    const struct question q = {.cost = &cost[0][0],
                               .nalgo = NT_TABLE_ALGOS,
                               .nproto = NT_TABLE_PROTOS,
                               .pipe_ops = pipe_ops,
                               .reg = NT_REG_UNKNOWN,
                               .channels = channels};
    int rc;

    if (context == NULL) {
        return NT_NCCL_SUCCESS;
    }
    for (int a = 0; a < NT_TABLE_ALGOS; a++) {
        for (int p = 0; p < NT_TABLE_PROTOS; p++) {
            cost[a][p] = possible_v2(context, coll, a, p, collnet != 0, nvls != 0) ? 1 : -1;
        }
    }
    rc = answer(context, coll, bytes, &q);
    for (int a = 0; a < NT_TABLE_ALGOS; a++) {
        for (int p = 0; p < NT_TABLE_PROTOS; p++) {
            if (cost[a][p] == 0) {
                *algo = a;
                *proto = p;
            }
        }
    }
    return rc;
}

/* NCCL asks for each channel's share, with that share's bytes: the call is the one it asked about
 * last. Calls of one group that are served differently cannot be told apart, so they are left
 * alone. */
static int chunk_v6(void *context, int coll, size_t bytes, int algo, int proto, int channels,
                    size_t *chunk_bytes)
{
    struct comm *c = context;
    struct last *last;

    (void)bytes;
    (void)channels;
    if (c == NULL || c->lookup == NULL || coll < 0 || coll >= NT_TABLE_COLLS) {
        return NT_NCCL_SUCCESS;
    }
    last = &c->last[coll];
    last->open = false;
    if (!last->mixed && last->rule != NULL && last->rule->chunk_bytes >= nt_proto_grain(proto) &&
        last->rule->algo == algo && last->rule->proto == proto) {
        *chunk_bytes = last->rule->chunk_bytes;
    }
    return NT_NCCL_SUCCESS;
}

/* ---- what NCCL finds ---- */

static int init_v5(void **context, uint64_t id, size_t nranks, size_t nnodes, nt_logger log,
                   void *nvl_domain, void *constants)
{
    (void)nvl_domain;
    (void)constants; /* NCCL's model stays NCCL's: calls without a row are decided by it */
    return init(context, 5, id, nranks, nnodes, log);
}

static int init_v6(void **context, uint64_t id, size_t nranks, size_t nnodes, nt_logger log,
                   void *nvl_domain, void *constants)
{
    (void)nvl_domain;
    (void)constants;
    return init(context, 6, id, nranks, nnodes, log);
}

#define INIT_BY_RANKS(abi)                                                                         \
    static int init_v##abi(size_t nranks, size_t nnodes, nt_logger log, void **context)            \
    {                                                                                              \
        return init(context, abi, 0, nranks, nnodes, log);                                         \
    }
INIT_BY_RANKS(2)
INIT_BY_RANKS(3)
INIT_BY_RANKS(4)

static const char plugin_name[] = "nccltune";

NT_EXPORT extern const struct nt_tuner_v2 ncclTunerPlugin_v2;
NT_EXPORT extern const struct nt_tuner_v3 ncclTunerPlugin_v3;
NT_EXPORT extern const struct nt_tuner_v4 ncclTunerPlugin_v4;
NT_EXPORT extern const struct nt_tuner_v5 ncclTunerPlugin_v5;
NT_EXPORT extern const struct nt_tuner_v6 ncclTunerPlugin_v6;

const struct nt_tuner_v2 ncclTunerPlugin_v2 = {plugin_name, init_v2, answer_v2, destroy};
const struct nt_tuner_v3 ncclTunerPlugin_v3 = {plugin_name, init_v3, answer_v3, destroy};
const struct nt_tuner_v4 ncclTunerPlugin_v4 = {plugin_name, init_v4, answer_v6, destroy};
const struct nt_tuner_v5 ncclTunerPlugin_v5 = {plugin_name, init_v5, answer_v6, destroy};
const struct nt_tuner_v6 ncclTunerPlugin_v6 = {plugin_name, init_v6, answer_v6, destroy, chunk_v6};
