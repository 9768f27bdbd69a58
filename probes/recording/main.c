/*
 * nccltune-probe-recording - a rank that answers from a recording. All ranks of a gang give the
 * same answers, which are already those of the slowest rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "probes/protocol/stream.h"
#include "probes/recording/recording.h"
#include "tuner/base/cli.h"
#include "tuner/base/text.h"

struct args {
    uint64_t seed;
    bool null;
    const char *pace, *half;
};

struct rank {
    const struct args *args;
    unsigned rank, world;
    struct nt_stream stream;
    struct nt_recording *rec;
    struct nt_replay replay;
    bool ready;
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

static void take(const struct rank *r, uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    if (strcmp(r->args->pace, "real") == 0) {
        (void)nanosleep(&t, NULL); /* a signal ends the process anyway */
    }
}

static int fact_number(const struct rank *r, enum nt_fact f)
{
    uint64_t v = 0;
    return nt_parse_u64(nt_recording_fact(r->rec, f), &v, NULL) == 0 && v <= INT32_MAX ? (int)v : 0;
}

static int say_hello(struct rank *r, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_HELLO};
    struct nt_hello *h = &m.hello;
    const struct {
        enum nt_fact fact;
        char *to;
        size_t size;
    } texts[] = {{NT_FACT_HOST, h->host, sizeof(h->host)},
                 {NT_FACT_GPU, h->gpu_name, sizeof(h->gpu_name)},
                 {NT_FACT_NCCL_FILE, h->nccl_file, sizeof(h->nccl_file)},
                 {NT_FACT_RIG, h->rig, sizeof(h->rig)}};

    h->v = NT_PROTOCOL_VERSION;
    h->rank = r->rank;
    h->world = r->world;
    h->pid = getpid();
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
    return nt_stream_send(&r->stream, &m, err);
}

static int on_init(struct rank *r, const struct nt_init *init, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_READY};
    const struct nt_recorded_gang *start;
    int half = nt_vocab_find(halves, "half", r->args->half, err);
    int rc = half < 0
                 ? half
                 : nt_replay_init(&r->replay, r->rec, r->args->seed, r->args->null,
                                  (enum nt_half)half, init->gang, init->vars, init->nvars, err);

    if (rc != 0) {
        return rc;
    }
    r->ready = true;
    start = nt_replay_start(&r->replay);
    if (start != NULL) {
        m.ready.init_ns = start->init_ns;
        m.ready.memory_bytes = start->memory_bytes;
        take(r, start->start_ns);
    }
    if (r->rank == 0) {
        m.ready.topology_xml = (char *)nt_recording_fact(r->rec, NT_FACT_TOPOLOGY);
        m.ready.text = (char *)nt_recording_fact(r->rec, NT_FACT_TEXT);
        m.ready.topology_xml = *m.ready.topology_xml != '\0' ? m.ready.topology_xml : NULL;
        m.ready.text = *m.ready.text != '\0' ? m.ready.text : NULL;
    }
    return nt_stream_send(&r->stream, &m, err);
}

static int on_measure(struct rank *r, const struct nt_measure *q, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_RESULT};
    int rc;

    nt_replay_measure(&r->replay, q, &m.result);
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
        nt_replay_cells(&r->replay, &q->cells.cs, &m.cells);
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

static int check_ranks(const struct rank *r, struct nt_err *err)
{
    int ranks = fact_number(r, NT_FACT_RANKS);
    return ranks == 0 || (unsigned)ranks == r->world
               ? 0
               : nt_fail(err, NT_E_INVAL, 0, "the recording has %d ranks, this gang %u", ranks,
                         r->world);
}

/* Why this rank ends, for a driver that may be gone itself. */
static void tell(struct rank *r, const struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_ERROR};
    struct nt_err ignored;

    (void)snprintf(m.error, sizeof(m.error), "%s", err->msg);
    if (nt_stream_send(&r->stream, &m, &ignored) != 0) {
        (void)fprintf(stderr, "nccltune-probe-recording: %s\n", ignored.msg);
    }
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
    rc = nt_recording_load(file, &r.rec, err);
    rc = rc != 0 ? rc : check_ranks(&r, err);
    rc = rc != 0 ? rc : serve(&r, err);
    if (rc != 0) {
        tell(&r, err);
    }
    nt_stream_close(&r.stream);
    nt_recording_free(r.rec);
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
        nt_cli_help("nccltune-probe-recording", &command, stdout);
        return 0;
    }
    if (rc == 0) {
        rc = run(&args, argv[1], &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "nccltune-probe-recording: %s\n", err.msg);
    }
    return nt_exit_code(rc);
}
