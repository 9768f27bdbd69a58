/*
 * nccltune-probe-recording - a rank that answers from a recording. All ranks of a gang give the
 * same answers, which are already those of the slowest rank.
 */
#include <stdio.h>

#include "probes/protocol/rank.h"
#include "probes/recording/recording.h"
#include "tuner/base/text.h"

struct args {
    uint64_t seed;
    bool null;
    const char *pace, *half;
};

struct rank {
    struct args args;
    struct nt_recording *rec;
    struct nt_replay replay;
};

static const char *const paces[] = {"none", "real", NULL};
static const char *const halves[] = {"all", "even", "odd", NULL}; /* in the order of enum nt_half */
static const struct nt_opt opts[] = {
    NT_OPT(NT_O_U64, args, seed, "seed", 's', "N", "which world is drawn (1)"),
    NT_OPT(NT_O_FLAG, args, null, "null", 0, NULL, "every cell draws from the default's samples"),
    {.name = "pace",
     .type = NT_O_STR,
     .offset = offsetof(struct args, pace),
     .arg = "PACE",
     .help = "take as long as it took (real), or no time (none)",
     .choices = paces},
    {.name = "half",
     .type = NT_O_STR,
     .offset = offsetof(struct args, half),
     .arg = "HALF",
     .help = "draw only from every other recorded gang (all)",
     .choices = halves},
    {0}};
static const struct args defaults = {.seed = 1, .pace = "none", .half = "all"};
static const struct nt_command command = {
    .name = "nccltune-probe-recording",
    .summary = "a rank that answers from a recording",
    .args = "FILE",
    .min_args = 1,
    .max_args = 1,
    .opts = opts,
    .defaults = &defaults,
    .size = sizeof(struct args),
    .details =
        "Started by nccltune as one rank of a gang; speaks its protocol with the driver that "
        "NCCLTUNE_DRIVER names. FILE is best an absolute path."};

static int fact_number(const struct rank *r, enum nt_fact f)
{
    uint64_t v = 0;
    return nt_parse_u64(nt_recording_fact(r->rec, f), &v, NULL) == 0 && v <= INT32_MAX ? (int)v : 0;
}

static int open_recording(void *self, unsigned rank, unsigned world, const char *file,
                          struct nt_err *err)
{
    struct rank *r = self;
    int rc = nt_recording_load(file, &r->rec, err),
        ranks = rc == 0 ? fact_number(r, NT_FACT_RANKS) : 0;
    (void)rank;

    if (ranks != 0 && (unsigned)ranks != world) {
        rc = nt_fail(err, NT_E_INVAL, 0, "the recording has %d ranks, this gang %u", ranks, world);
    }
    return rc;
}

static void hello(void *self, struct nt_hello *h)
{
    const struct rank *r = self;
    const struct {
        enum nt_fact fact;
        char *to;
        size_t size;
    } texts[] = {{NT_FACT_HOST, h->host, sizeof(h->host)},
                 {NT_FACT_GPU, h->gpu_name, sizeof(h->gpu_name)},
                 {NT_FACT_NCCL_FILE, h->nccl_file, sizeof(h->nccl_file)},
                 {NT_FACT_RIG, h->rig, sizeof(h->rig)}};

    h->nccl = fact_number(r, NT_FACT_NCCL);
    h->cuda = fact_number(r, NT_FACT_CUDA);
    h->driver = fact_number(r, NT_FACT_DRIVER);
    if (nt_parse_u64(nt_recording_fact(r->rec, NT_FACT_GPU_MEMORY), &h->gpu_memory_bytes, NULL) !=
        0) {
        h->gpu_memory_bytes = 0;
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        (void)snprintf(texts[i].to, texts[i].size, "%s", nt_recording_fact(r->rec, texts[i].fact));
    }
}

/* NULL for a fact that was not recorded. */
static char *fact_or_null(const struct rank *r, enum nt_fact f)
{
    const char *text = nt_recording_fact(r->rec, f);
    return *text != '\0' ? (char *)text : NULL;
}

static int init(void *self, const struct nt_init *i, struct nt_ready *ready, uint64_t *ret_took_ns,
                struct nt_err *err)
{
    struct rank *r = self;
    const struct nt_recorded_gang *start;
    int half = nt_vocab_find(halves, "half", r->args.half, err);
    int rc = half < 0 ? half
                      : nt_replay_init(&r->replay, r->rec, r->args.seed, r->args.null,
                                       (enum nt_half)half, i->gang, i->vars, i->nvars, err);

    if (rc != 0) {
        return rc;
    }
    start = nt_replay_start(&r->replay);
    if (start != NULL) {
        ready->init_ns = start->init_ns;
        ready->memory_bytes = start->memory_bytes;
        *ret_took_ns = start->start_ns;
    }
    ready->topology_xml = fact_or_null(r, NT_FACT_TOPOLOGY);
    ready->text = fact_or_null(r, NT_FACT_TEXT);
    return 0;
}

static void cells(void *self, const struct nt_case *c, struct nt_cells *ret)
{
    (void)nt_replay_cells(&((struct rank *)self)->replay, c, ret);
}

static void measure(void *self, const struct nt_measure *m, struct nt_result *ret)
{
    nt_replay_measure(&((struct rank *)self)->replay, m, ret);
}

static void close_recording(void *self)
{
    nt_recording_free(((struct rank *)self)->rec);
}

int main(int argc, char **argv)
{
    static const struct nt_rank_ops ops = {.open = open_recording,
                                           .hello = hello,
                                           .init = init,
                                           .cells = cells,
                                           .measure = measure,
                                           .close = close_recording};
    struct rank r = {.rec = NULL};

    return nt_rank_main(&command, argc, argv, &r.args, &r.args.pace, &ops, &r);
}
