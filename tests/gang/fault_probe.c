/*
 * fault_probe - a rank that does what its environment says, to test those who must live with it.
 *
 * FAULT       what goes wrong, one of the names below; "" nothing
 * FAULT_RANK  the rank that does it; the others behave
 * FAULT_PRINT prints its environment and variables at init
 * It writes its process id to rank-N.pid in its working folder, and maps a file of its own in
 * /dev/shm as NCCL does.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "probes/protocol/stream.h"

static unsigned rank, world;
static const char *fault = "";
static struct nt_stream stream;

static bool is(const char *name)
{
    return strcmp(fault, name) == 0;
}

static void hang(void)
{
    for (;;) {
        (void)pause();
    }
}

static void die(const struct nt_err *err)
{
    (void)fprintf(stderr, "fault_probe: %s\n", err->msg);
    exit(1);
}

static void say(const struct nt_msg *m)
{
    struct nt_err err;
    if (nt_stream_send(&stream, m, &err) != 0) {
        die(&err);
    }
}

static void say_raw(const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(stream.fd, data, len, MSG_NOSIGNAL);
        if (n <= 0) {
            hang(); /* the driver is to end us */
        }
        data += n;
        len -= (size_t)n;
    }
}

static void say_hello(unsigned as, unsigned of)
{
    struct nt_msg m = {.type = NT_MSG_HELLO,
                       .hello = {.v = NT_PROTOCOL_VERSION, .rank = as, .world = of, .rig = "test"}};
    m.hello.pid = getpid();
    say(&m);
}

/* What goes wrong at one of these places: before hello, at init, at a measure, at quit. */
static void wrong_at(const char *place)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "hang at %s", place);
    if (is(name)) {
        hang();
    }
    (void)snprintf(name, sizeof(name), "exit at %s", place);
    if (is(name)) {
        (void)printf("words of a rank that ends\n");
        exit(3);
    }
    (void)snprintf(name, sizeof(name), "crash at %s", place);
    if (is(name)) {
        (void)signal(SIGSEGV, SIG_DFL); /* also below a sanitizer */
        (void)raise(SIGSEGV);
    }
    (void)snprintf(name, sizeof(name), "deaf at %s", place);
    if (is(name)) {
        (void)signal(SIGTERM, SIG_IGN);
        hang();
    }
    (void)snprintf(name, sizeof(name), "error at %s", place);
    if (is(name)) {
        say(&(struct nt_msg){.type = NT_MSG_ERROR, .error = "no such GPU"});
        exit(3);
    }
}

static void at_hello(void)
{
    wrong_at("hello");
    if (is("silent")) {
        hang();
    } else if (is("other world")) {
        say_hello(rank, world + 1);
    } else if (is("unknown rank")) {
        say_hello(world, world + 1);
    } else if (is("same rank")) {
        say_hello(1 - rank, world);
    } else if (is("other version")) {
        say_raw("{\"type\":\"hello\",\"v\":2}\n", 23);
    } else if (is("no hello")) {
        say(&(struct nt_msg){.type = NT_MSG_READY});
    } else {
        say_hello(rank, world);
    }
    if (is("hello twice")) {
        say_hello(rank, world);
    }
    if (is("ready unasked")) {
        say(&(struct nt_msg){.type = NT_MSG_READY});
    }
    if (is("uid unasked")) {
        say(&(struct nt_msg){.type = NT_MSG_UID, .uid = "00"});
    }
}

static void say_long(void)
{
    size_t len = 2 << 20;
    char *line = malloc(len);
    if (line != NULL) {
        memset(line, 'x', len);
        say_raw(line, len);
        free(line);
    }
}

/* Data that is wrong only sometimes. */
static uint64_t wrong_elements(const struct nt_measure *m)
{
    bool wrong = (is("wrong above 2M") && m->cs.bytes > 2 << 20) ||
                 (is("wrong in place") && m->cs.place == NT_IN_PLACE) ||
                 (is("wrong 3 of 10") && m->id % 10 < 3);
    return wrong ? 5 : 0;
}

static void at_measure(const struct nt_measure *m)
{
    static uint32_t ns[NT_MAX_SAMPLES];
    struct nt_msg a = {.type = NT_MSG_RESULT,
                       .result = {.id = m->id,
                                  .ns = ns,
                                  .count = m->samples,
                                  .executed = {NT_RING, NT_LL, 4, 8},
                                  .wrong = wrong_elements(m),
                                  .elapsed_ns = 1000}};

    wrong_at("measure");
    for (size_t i = 0; i < m->samples; i++) {
        ns[i] = (uint32_t)(1000 + 10 * i + rank);
    }
    if (a.result.wrong > 0) {
        a.result.status = NT_ST_WRONG;
    }
    if (is("other tuple")) {
        a.result.executed.channels = 5;
    } else if (is("other id")) {
        a.result.id++;
    } else if (is("fewer samples")) {
        a.result.count--;
    } else if (is("unavailable")) {
        a.result = (struct nt_result){
            .id = m->id, .status = NT_ST_UNAVAILABLE, .executed = NT_EXECUTED_NONE};
    } else if (is("garbage")) {
        say_raw("NCCL WARN something\n", 20);
        hang();
    } else if (is("long line")) {
        say_long();
    } else if (is("driver's words")) {
        say(&(struct nt_msg){.type = NT_MSG_QUIT});
    } else if (is("closed stream")) {
        (void)close(stream.fd);
        hang();
    } else if (is("cells instead")) {
        say(&(struct nt_msg){.type = NT_MSG_CELLS});
    }
    say(&a);
    if (is("answer twice")) {
        say(&a);
    }
    if (is("answer and exit")) {
        exit(3);
    }
}

static void at_cells(struct nt_msg *m)
{
    wrong_at("cells");
    m->cells.asked = true;
    m->cells.cost[NT_RING][NT_LL] = (float)(2 + rank);
    m->cells.cost[NT_TREE][NT_LL] = is("unavailable cell") ? -1 : 5;
    say(m);
}

/* A child in our group that keeps the stream open. */
static void leave_grandchild(void)
{
    if (fork() == 0) {
        (void)signal(SIGTERM, SIG_IGN);
        hang();
    }
}

static void at_quit(void)
{
    wrong_at("quit");
    exit(0);
}

/* To the log: what came in by the environment and by init. */
static void print_given(const struct nt_init *init)
{
    for (char **e = environ; *e != NULL; e++) {
        (void)printf("env %s\n", *e);
    }
    for (size_t i = 0; i < init->nvars; i++) {
        (void)printf("var %s=%s\n", init->vars[i].name, init->vars[i].value);
    }
    (void)printf("device %u gang %llu\n", init->device, (unsigned long long)init->gang);
    (void)fflush(stdout);
}

static void map_shm(void)
{
    char path[64];
    int fd;
    void *at;

    (void)snprintf(path, sizeof(path), "/dev/shm/nccl-%06ld", (long)getpid());
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0) {
        exit(4);
    }
    at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        exit(4);
    }
    (void)close(fd);
}

static void write_pid(void)
{
    char path[32];
    FILE *out;
    (void)snprintf(path, sizeof(path), "rank-%u.pid", rank);
    out = fopen(path, "w");
    if (out == NULL || fprintf(out, "%ld", (long)getpid()) < 1 || fclose(out) != 0) {
        exit(4);
    }
}

static void answer(struct nt_msg *m)
{
    switch (m->type) {
    case NT_MSG_UID:
        wrong_at("uid");
        say(&(struct nt_msg){.type = NT_MSG_UID, .uid = "00ff"});
        break;
    case NT_MSG_INIT:
        if (getenv("FAULT_PRINT") != NULL) {
            print_given(&m->init);
        }
        wrong_at("init");
        if (strcmp(m->init.uid, "00ff") != 0 || access(m->init.shm, R_OK | W_OK) != 0) {
            exit(4);
        }
        map_shm();
        if (is("grandchild")) {
            leave_grandchild();
        }
        say(&(struct nt_msg){.type = NT_MSG_READY, .ready = {.init_ns = 7 + rank}});
        break;
    case NT_MSG_CELLS:
        at_cells(m);
        break;
    case NT_MSG_MEASURE:
        at_measure(&m->measure);
        break;
    case NT_MSG_QUIT:
        at_quit();
        break;
    default:
        exit(5);
    }
}

int main(void)
{
    struct nt_err err;
    const char *whose = getenv("FAULT_RANK"), *text = getenv("FAULT");

    if (nt_stream_env(NT_ENV_RANK, &rank, &err) != 0 ||
        nt_stream_env(NT_ENV_WORLD, &world, &err) != 0) {
        die(&err);
    }
    if (whose != NULL && text != NULL && (unsigned)strtoul(whose, NULL, 10) == rank) {
        fault = text;
    }
    write_pid();
    wrong_at("start");
    if (nt_stream_open(getenv(NT_ENV_DRIVER), &stream, &err) != 0) {
        die(&err);
    }
    at_hello();
    for (;;) {
        struct nt_msg m;
        if (nt_stream_next(&stream, &m, &err) != 0) {
            die(&err);
        }
        answer(&m);
        nt_msg_done(&m);
    }
}
