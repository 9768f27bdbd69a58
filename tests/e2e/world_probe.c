/*
 * world_probe - a rank on the made-up machine of tests/job/world.h: whole jobs with real processes,
 * sockets and delivery files, whose measurements depend on nothing but WORLD_SEED.
 *
 * WORLD_CHUNK  bytes that its NCCL takes for a chunk by itself; unset: one that asks no tuner
 * WORLD_FAULT  KIND[:RANK[:ID]], on that rank (0), in the measure of that id (once in a job):
 *     hang crash garbage twice error   in the middle of a job
 *   and wherever it can happen:
 *     init-hang init-crash init-error exit-hang no-hello
 *     wrong-above     tree/simple gives wrong data above 600 KiB
 *     wrong-in-place  … only in place
 *     wrong-some      … in 3 of 10 looks
 *     ipc-wrong-above ipc-wrong-in-place ipc-wrong-some   the same of backend ipc
 *     ipc-wrong       … always, ten times as fast
 *     ipc-refuses     … declines one_shot/push above 600 KiB
 *     disagree        … and says that it ran one channel more
 *     no-gpu          says at init that it has none
 *     other-nccl, other-driver   says that it has another one
 *     wide-taxes      more channels are good for all_reduce, and those of broadcast and reduce of
 *                     about 512K cost 5 %; hardly any noise
 *     wide-takes      … whatever runs there
 *     wide-falls      more channels are good in the search, where no tree is asked for; as
 * delivered, calls below 200 KB pay for them
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "probes/protocol/stream.h"
#include "profiles/format/table.h"
#include "tests/job/world.h"
#include "tuner/base/rng.h"

static struct nt_stream stream;
static struct world machine;
static struct nt_row_result rows[NT_MAX_ROWS];
static struct nt_plan_step step;
static char vars[NT_SETTING_LEN];
static unsigned rank, world_size;

static char fault[32];
static unsigned fault_rank;
static uint64_t fault_id;

static void take_fault(void)
{
    const char *text = getenv("WORLD_FAULT");
    char copy[64], *rest = copy, *word;

    (void)snprintf(copy, sizeof(copy), "%s", text != NULL ? text : "");
    word = strsep(&rest, ":");
    (void)snprintf(fault, sizeof(fault), "%s", word != NULL ? word : "");
    word = strsep(&rest, ":");
    fault_rank = word != NULL ? (unsigned)strtoul(word, NULL, 10) : 0;
    word = strsep(&rest, ":");
    fault_id = word != NULL ? strtoull(word, NULL, 10) : 0;
}

static bool is(const char *kind)
{
    return rank == fault_rank && strcmp(fault, kind) == 0;
}

static void hang(void)
{
    for (;;) {
        (void)pause();
    }
}

static void die(const char *words)
{
    (void)fprintf(stderr, "world_probe: %s\n", words);
    exit(1);
}

static void say(const struct nt_msg *m)
{
    struct nt_err err;
    if (nt_stream_send(&stream, m, &err) != 0) {
        die(err.msg);
    }
}

/* Tells the driver and ends. */
static void fail(const char *words)
{
    struct nt_msg m = {.type = NT_MSG_ERROR};
    (void)snprintf(m.error, sizeof(m.error), "%s", words);
    say(&m);
    exit(3);
}

static void crash(void)
{
    (void)signal(SIGSEGV, SIG_DFL); /* also below a sanitizer */
    (void)raise(SIGSEGV);
}

/* ------------------------------------------------------------------ faults of one measure */

static void in_the_middle(const struct nt_measure *m)
{
    static const char garbage[] = "{\"type\":\"result\",\"id\":\xff}\n";

    if (m->id != fault_id) {
        return;
    }
    if (is("hang")) {
        hang();
    } else if (is("crash")) {
        crash();
    } else if (is("garbage")) {
        (void)send(stream.fd, garbage, sizeof(garbage) - 1, MSG_NOSIGNAL);
        hang();
    } else if (is("error")) {
        fail("CUDA: an illegal memory access");
    }
}

static bool tree(const struct world_call *c)
{
    return c->x.algo == NT_TREE && c->x.proto == NT_SIMPLE;
}

static uint8_t wrong(const struct world_call *c)
{
    const struct nt_case *cs = &c->step->m.cs;
    bool ipc = strncmp(fault, "ipc-", 4) == 0, above = cs->bytes > (600U << 10);
    const char *kind = ipc ? fault + 4 : fault;
    bool now = (strcmp(kind, "wrong-above") == 0 && above) || (ipc && strcmp(kind, "wrong") == 0) ||
               (strcmp(kind, "wrong-in-place") == 0 && cs->place == NT_IN_PLACE) ||
               (strcmp(kind, "wrong-some") == 0 && nt_mix64(c->step->m.id) % 10 < 3);

    if (strcmp(fault, "ipc-refuses") == 0 && above && c->call.backend == NT_BE_IPC &&
        c->call.algo == NT_ONE_SHOT && c->call.proto == NT_PUSH) {
        return NT_ST_UNAVAILABLE;
    }
    if (rank != fault_rank || !now || c->step->m.verify == NT_VERIFY_NO) {
        return NT_ST_OK;
    }
    return (ipc ? c->call.backend == NT_BE_IPC : tree(c)) ? NT_ST_WRONG : NT_ST_OK;
}

static double ipc_is_fast(const struct world_call *c)
{
    return c->call.backend == NT_BE_IPC ? 0.1 : 1;
}

/* ------------------------------------------------------------------ what the driver tells */

static void take_rows(const char *path, const char *hash)
{
    struct nt_table t;
    struct nt_why why;

    if (nt_table_map(path, hash, &t, &why) != 0) {
        die(why.text);
    }
    for (uint32_t i = 0; i < t.nrows && i < NT_MAX_ROWS; i++) {
        struct nt_table_row r = nt_table_row(&t, i);
        rows[i] = (struct nt_row_result){.coll = r.coll,
                                         .min_bytes = r.min_bytes,
                                         .max_bytes = r.max_bytes,
                                         .call = {.algo = r.algo,
                                                  .proto = r.proto,
                                                  .channels = r.channels,
                                                  .chunk_bytes = r.chunk_bytes}};
    }
    machine.rows = rows;
    machine.nrows = t.nrows;
}

static double wide_falls(const struct world_call *c)
{
    bool delivered = c->step->arm != NT_ARM_SEARCH;

    if (c->step->vars[0] == '\0') {
        return 1;
    }
    return delivered && c->step->m.cs.bytes < 200000 ? 1.5 : c->x.algo == NT_TREE ? 1.2 : 0.15;
}

/* More channels pay for all_reduce, and broadcast and reduce of about 512K pay for them: unless
 * they run as few as before, or whatever they run. */
static double wide_taxes(const struct world_call *c)
{
    const struct nt_case *cs = &c->step->m.cs;
    bool taxed = (cs->coll == NT_BROADCAST || cs->coll == NT_REDUCE) && cs->bytes > 260000 &&
                 cs->bytes < 800000;
    double same = c->x.channels == 16 ? (1 + 0.12 / 2 + 0.02) / (1 + 0.12 / 16 + 0.16) : 1;

    if (c->step->vars[0] == '\0') {
        return 1;
    }
    if (taxed && strcmp(fault, "wide-takes") == 0) {
        return 1.05 * world_true_ns(&machine, cs, &NT_CALL_DEFAULT, "") /
               world_true_ns(&machine, cs, &c->call, c->step->vars);
    }
    return c->x.channels != 16         ? same
           : cs->coll == NT_ALL_REDUCE ? 0.9 * same
           : taxed                     ? 1.05 * same
                                       : same;
}

/* As the rank would see it in its environment. */
static const char *variable(const struct nt_init *init, const char *name)
{
    for (size_t i = 0; i < init->nvars; i++) {
        if (strcmp(init->vars[i].name, name) == 0) {
            return init->vars[i].value;
        }
    }
    return getenv(name);
}

static void on_init(const struct nt_init *init)
{
    struct nt_msg m = {.type = NT_MSG_READY};
    const char *table = variable(init, "NCCLTUNE_TABLE"), *channels;
    const char *hash = variable(init, "NCCLTUNE_PROFILE");
    const char *plugin = variable(init, "NCCL_TUNER_PLUGIN");

    if (is("init-hang")) {
        hang();
    } else if (is("init-crash")) {
        crash();
    } else if (is("init-error")) {
        fail("ncclCommInitRank: internal error");
    } else if (is("no-gpu")) {
        fail("no CUDA device: the driver finds none");
    }
    channels = variable(init, "NCCL_MIN_NCHANNELS");
    if (channels != NULL) {
        (void)snprintf(vars, sizeof(vars), "NCCL_MIN_NCHANNELS=%s", channels);
    }
    plugin = plugin != NULL ? plugin : "none";
    step.arm = strcmp(plugin, "STATIC_PLUGIN") == 0 ? NT_ARM_SEARCH
               : plugin[0] == '/'                   ? NT_ARM_TABLE
                                                    : NT_ARM_DEFAULT;
    if (step.arm == NT_ARM_TABLE) {
        if (table == NULL || hash == NULL) {
            die("a table arm without its table");
        }
        take_rows(table, hash);
    }
    step.gang = init->gang;
    step.vars = vars;
    m.ready.init_ns = 1000000;
    m.ready.memory_bytes = UINT64_C(300) << 20;
    say(&m);
}

static void on_cells(const struct nt_case *cs)
{
    struct nt_msg m = {.type = NT_MSG_CELLS};
    struct nt_plan_outcome o;

    step.kind = NT_DO_CELLS;
    step.cs = *cs;
    world_do(&machine, &step, &o);
    m.cells = o.cells;
    say(&m);
}

static void on_measure(const struct nt_measure *q)
{
    struct nt_msg m = {.type = NT_MSG_RESULT};
    struct nt_plan_outcome o;

    in_the_middle(q);
    step.kind = NT_DO_MEASURE;
    step.m = *q;
    step.cs = q->cs;
    world_do(&machine, &step, &o);
    m.result = *o.result;
    m.result.elapsed_ns = o.elapsed_ns;
    if (m.result.status == NT_ST_UNAVAILABLE && strcmp(fault, "ipc-refuses") == 0 &&
        m.result.error[0] == '\0') {
        (void)snprintf(m.result.error, sizeof(m.result.error), "it needs a larger stage");
    }
    if (is("disagree") && m.result.executed.algo == NT_TREE &&
        m.result.executed.proto == NT_SIMPLE) {
        m.result.executed.channels++;
    }
    if ((q->flags & NT_M_READBACK) == 0) {
        m.result.executed = NT_EXECUTED_NONE;
        m.result.own_chunk_bytes = 0;
    }
    say(&m);
    if (is("twice") && q->id == fault_id) {
        say(&m);
    }
}

static void serve(void)
{
    struct nt_err err;
    struct nt_msg q;

    for (;;) {
        if (nt_stream_next(&stream, &q, &err) != 0) {
            die(err.msg);
        }
        switch (q.type) {
        case NT_MSG_UID:
            say(&(struct nt_msg){.type = NT_MSG_UID, .uid = "00"});
            break;
        case NT_MSG_INIT:
            on_init(&q.init);
            break;
        case NT_MSG_CELLS:
            on_cells(&q.cells.cs);
            break;
        case NT_MSG_MEASURE:
            on_measure(&q.measure);
            break;
        default:
            if (is("exit-hang")) {
                (void)signal(SIGTERM, SIG_IGN);
                hang();
            }
            nt_msg_done(&q);
            return;
        }
        nt_msg_done(&q);
    }
}

int main(void)
{
    const char *seed = getenv("WORLD_SEED"), *chunk = getenv("WORLD_CHUNK");
    struct nt_err err;
    struct nt_msg hello = {.type = NT_MSG_HELLO};
    int rc = nt_stream_env(NT_ENV_RANK, &rank, &err);

    rc = rc == 0 ? nt_stream_env(NT_ENV_WORLD, &world_size, &err) : rc;
    rc = rc == 0 ? nt_stream_open(getenv(NT_ENV_DRIVER), &stream, &err) : rc;
    if (rc != 0) {
        die(err.msg);
    }
    take_fault();
    if (is("no-hello")) {
        hang();
    }
    world_init(&machine, seed != NULL ? strtoull(seed, NULL, 10) : 1);
    machine.own_chunk = chunk != NULL ? (uint32_t)strtoul(chunk, NULL, 10) : 0;
    machine.fault = wrong;
    machine.factor = strcmp(fault, "wide-falls") == 0    ? wide_falls /* all ranks */
                     : strncmp(fault, "wide-ta", 7) == 0 ? wide_taxes
                     : strcmp(fault, "ipc-wrong") == 0   ? ipc_is_fast
                                                         : NULL;
    if (machine.factor == wide_taxes) {
        machine.block_sd = machine.gang_sd = 0.003;
        machine.interaction_sd = 0.0005;
    }
    hello.hello = (struct nt_hello){.v = NT_PROTOCOL_VERSION,
                                    .rank = rank,
                                    .world = world_size,
                                    .pid = getpid(),
                                    .gpu_name = "made up",
                                    .nccl = is("other-nccl") ? 23003 : 22809,
                                    .driver = strcmp(fault, "other-driver") != 0 ? 0
                                              : is("other-driver")               ? 12080
                                                                                 : 13000,
                                    .rig = "nccl"};
    (void)snprintf(hello.hello.gpu_uuid, sizeof(hello.hello.gpu_uuid), "GPU-%u", rank);
    say(&hello);
    serve();
    nt_stream_close(&stream);
    return 0;
}
