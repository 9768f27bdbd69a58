#include "probes/protocol/rank.h"
#include "probes/protocol/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct loop {
    const struct nt_rank_ops *ops;
    void *self;
    unsigned rank, world;
    bool real_pace, ready;
    struct nt_stream stream;
};

static void take(const struct loop *l, uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    if (l->real_pace) {
        (void)nanosleep(&t, NULL); /* a signal ends the process anyway */
    }
}

static int say_hello(struct loop *l, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_HELLO};

    m.hello.v = NT_PROTOCOL_VERSION;
    m.hello.rank = l->rank;
    m.hello.world = l->world;
    m.hello.pid = getpid();
    l->ops->hello(l->self, &m.hello);
    return nt_stream_send(&l->stream, &m, err);
}

static int on_init(struct loop *l, const struct nt_init *init, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_READY};
    uint64_t took_ns = 0;
    int rc = l->ops->init(l->self, init, &m.ready, &took_ns, err);

    if (rc != 0) {
        return rc;
    }
    l->ready = true;
    take(l, took_ns);
    if (l->rank != 0) {
        m.ready.topology_xml = m.ready.text = NULL;
    }
    return nt_stream_send(&l->stream, &m, err);
}

static int on_measure(struct loop *l, const struct nt_measure *q, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_RESULT};
    int rc;

    if (q->call.backend != NT_BE_NCCL) {
        m.result = (struct nt_result){
            .id = q->id, .status = NT_ST_UNAVAILABLE, .executed = NT_EXECUTED_NONE};
        (void)snprintf(m.result.error, sizeof(m.result.error),
                       "%s: only NCCL was recorded, or is modelled",
                       nt_backend_names[q->call.backend]);
    } else {
        l->ops->measure(l->self, q, &m.result);
    }
    take(l, m.result.elapsed_ns);
    rc = nt_stream_send(&l->stream, &m, err);
    nt_msg_done(&m);
    return rc;
}

/* 1: told to end. */
static int answer(struct loop *l, const struct nt_msg *q, struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_CELLS};

    if ((q->type == NT_MSG_CELLS || q->type == NT_MSG_MEASURE) && !l->ready) {
        return nt_fail(err, NT_E_PROTO, 0, "asked before init");
    }
    switch (q->type) {
    case NT_MSG_UID:
        return nt_stream_send(&l->stream, &(struct nt_msg){.type = NT_MSG_UID, .uid = "00"}, err);
    case NT_MSG_INIT:
        return on_init(l, &q->init, err);
    case NT_MSG_CELLS:
        l->ops->cells(l->self, &q->cells.cs, &m.cells);
        return nt_stream_send(&l->stream, &m, err);
    case NT_MSG_MEASURE:
        return on_measure(l, &q->measure, err);
    case NT_MSG_QUIT:
    case NT_MSG_ABORT:
        return 1;
    default:
        return nt_fail(err, NT_E_PROTO, 0, "the driver said what only a rank may say");
    }
}

static int serve(struct loop *l, struct nt_err *err)
{
    int rc = say_hello(l, err);

    while (rc == 0) {
        struct nt_msg q;
        rc = nt_stream_next(&l->stream, &q, err);
        if (rc == 0) {
            rc = answer(l, &q, err);
            nt_msg_done(&q);
        }
    }
    return rc == 1 ? 0 : rc;
}

/* Why this rank ends, for a driver that may be gone itself. */
static void tell(struct loop *l, const char *program, const struct nt_err *err)
{
    struct nt_msg m = {.type = NT_MSG_ERROR};
    struct nt_err ignored;

    (void)snprintf(m.error, sizeof(m.error), "%s", err->msg);
    if (nt_stream_send(&l->stream, &m, &ignored) != 0) {
        (void)fprintf(stderr, "%s: %s\n", program, ignored.msg);
    }
}

static int run(struct loop *l, const struct nt_command *command, const char *arg,
               struct nt_err *err)
{
    int rc = nt_stream_env(NT_ENV_RANK, &l->rank, err);

    rc = rc != 0 ? rc : nt_stream_env(NT_ENV_WORLD, &l->world, err);
    rc = rc != 0 ? rc : nt_stream_open(getenv(NT_ENV_DRIVER), &l->stream, err);
    if (rc != 0) {
        return rc;
    }
    rc = l->ops->open(l->self, l->rank, l->world, arg, err);
    rc = rc != 0 ? rc : serve(l, err);
    if (rc != 0) {
        tell(l, command->name, err);
    }
    nt_stream_close(&l->stream);
    l->ops->close(l->self);
    return rc;
}

int nt_rank_main(const struct nt_command *command, int argc, char **argv, void *args,
                 const char *const *pace, const struct nt_rank_ops *ops, void *self)
{
    struct loop l = {.ops = ops, .self = self};
    unsigned nargs = 0;
    bool help = false;
    struct nt_err err = {0};
    int rc = nt_cli_parse(command, argc - 1, argv + 1, args, &nargs, &help, &err);

    if (rc == 0 && help) {
        nt_cli_help(command->name, command, stdout);
        return 0;
    }
    if (rc == 0) {
        l.real_pace = strcmp(*pace, "real") == 0;
        rc = run(&l, command, argv[1], &err);
    }
    if (rc != 0) {
        (void)fprintf(stderr, "%s: %s\n", command->name, err.msg);
    }
    return nt_exit_code(rc);
}
