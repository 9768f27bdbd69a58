/*
 * One rank of a job in C for scripts/bench/paths: what paths_worker.py does, for a program that no
 * Python loader reaches. With a number as its argument it starts that many of itself.
 *
 * libnccl and libcudart are opened when it runs (NCCLTUNE_NCCL_LIB, PATHS_CUDART or the usual
 * names), so it is built where neither is. Its variables are those of paths_worker.py.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SIZES = 16, MAX_CALLS = 256, GRAPH_CALLS = 20, MAX_RANKS = 64 };
enum { INT32 = 2, FLOAT32 = 7, SUM = 0 };              /* NCCL's numbers */
enum { TO_HOST = 2, TO_DEVICE = 1, NON_BLOCKING = 1 }; /* CUDA's */
struct id {
    char bytes[128];
};
typedef struct stream *stream_t;

/* One row a function: kind of library, result, name, arguments. */
#define FUNCTIONS(X)                                                                               \
    X(cuda, int, cudaSetDevice, (int))                                                             \
    X(cuda, int, cudaMalloc, (void **, size_t))                                                    \
    X(cuda, int, cudaMemcpy, (void *, const void *, size_t, int))                                  \
    X(cuda, int, cudaStreamCreateWithFlags, (stream_t *, unsigned))                                \
    X(cuda, int, cudaStreamSynchronize, (stream_t))                                                \
    X(cuda, int, cudaStreamBeginCapture, (stream_t, int))                                          \
    X(cuda, int, cudaStreamEndCapture, (stream_t, void **))                                        \
    X(cuda, int, cudaGraphInstantiateWithFlags, (void **, void *, unsigned long long))             \
    X(cuda, int, cudaGraphLaunch, (void *, stream_t))                                              \
    X(cuda, const char *, cudaGetErrorString, (int))                                               \
    X(nccl, int, ncclGetUniqueId, (struct id *))                                                   \
    X(nccl, int, ncclCommInitRank, (void **, int, struct id, int))                                 \
    X(nccl, int, ncclAllReduce, (const void *, void *, size_t, int, int, void *, stream_t))        \
    X(nccl, const char *, ncclGetErrorString, (int))
/* NOLINTBEGIN(bugprone-macro-parentheses): types and parameter lists */
#define X(kind, result, name, args) static result(*name) args;
FUNCTIONS(X)
#undef X
/* NOLINTEND(bugprone-macro-parentheses) */

static struct {
    int rank, world, link;
    void *comm;
    stream_t stream;
    size_t sizes[MAX_SIZES], nsizes;
    float *buffer[MAX_SIZES], *ones;
    void *graph[MAX_SIZES];
    int32_t *barrier;
} me = {.link = -1};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vdprintf(me.link, fmt, ap);
    va_end(ap);
}

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "rank %d: %s: %s\n", me.rank, what, why);
    if (me.link >= 0) {
        say("error %s: %s\n", what, why);
    }
    _exit(1);
}

static void cuda(int rc, const char *what)
{
    if (rc != 0) {
        die(what, cudaGetErrorString(rc));
    }
}

static void nccl(int rc, const char *what)
{
    if (rc != 0) {
        die(what, ncclGetErrorString(rc));
    }
}

static void *open_first(const char *variable, const char *const *names)
{
    const char *told = getenv(variable);
    void *lib = told != NULL ? dlopen(told, RTLD_NOW | RTLD_GLOBAL) : NULL;
    for (; told == NULL && lib == NULL && *names != NULL; names++) {
        lib = dlopen(*names, RTLD_NOW | RTLD_GLOBAL);
    }
    if (lib == NULL) {
        die(variable, dlerror());
    }
    return lib;
}

static void open_libraries(void)
{
    static const char *const runtimes[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so",
                                           "/usr/local/cuda/lib64/libcudart.so", NULL};
    static const char *const nccls[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2", NULL};
    void *lib_cuda = open_first("PATHS_CUDART", runtimes);
    void *lib_nccl = open_first("NCCLTUNE_NCCL_LIB", nccls);
#define X(kind, result, name, args)                                                                \
    *(void **)&(name) = dlsym(lib_##kind, #name);                                                  \
    if ((name) == NULL) {                                                                          \
        die(#name, "not found");                                                                   \
    }
    FUNCTIONS(X)
#undef X
}

/* NAME=VALUE lines into the environment. */
static void assign(const char *lines)
{
    char *copy = strdup(lines), *save = NULL;
    for (char *l = strtok_r(copy, "\n", &save); l != NULL; l = strtok_r(NULL, "\n", &save)) {
        char *equals = strchr(l, '=');
        if (equals != NULL) {
            *equals = '\0';
            (void)setenv(l, equals + 1, 1);
        }
    }
    free(copy);
}

static void set_variables(void)
{
    const char *told = getenv("PATHS_RANK_SET");
    char id[32];
    if (told != NULL && strtol(told, NULL, 10) == me.rank) {
        assign(told);
    }
    if (getenv("PATHS_SHARED") != NULL) {
        (void)snprintf(id, sizeof(id), "rank-%d", me.rank);
        (void)setenv("NCCL_HOSTID", id, 1);
    }
}

static void connect_to(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    me.link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(me.link, (struct sockaddr *)&to, sizeof(to)) != 0) {
        die(path, strerror(errno));
    }
}

/* Rank 0 puts the id of each communicator into a file beside the socket. */
static struct id share_id(const char *socket_path)
{
    static unsigned number;
    char path[128], made[136];
    struct id id;
    FILE *f;

    (void)snprintf(path, sizeof(path), "%s.%u.id", socket_path, ++number);
    (void)snprintf(made, sizeof(made), "%s.new", path);
    if (me.rank == 0) {
        nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        f = fopen(made, "we");
        if (f == NULL || fwrite(&id, sizeof(id), 1, f) != 1 || fclose(f) != 0 ||
            rename(made, path) != 0) {
            die(path, strerror(errno));
        }
        return id;
    }
    while ((f = fopen(path, "re")) == NULL) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (fread(&id, sizeof(id), 1, f) != 1) {
        die(path, "too short");
    }
    (void)fclose(f);
    return id;
}

static void all_reduce(void *buffer, size_t count, int type)
{
    nccl(ncclAllReduce(buffer, buffer, count, type, SUM, me.comm, me.stream), "ncclAllReduce");
}

/* The copy goes by the default stream, which the calls' stream does not wait for. */
static void fill(size_t i)
{
    cuda(cudaMemcpy(me.buffer[i], me.ones, me.sizes[i], TO_DEVICE), "cudaMemcpy");
    cuda(cudaStreamSynchronize(NULL), "cudaMemcpy");
}

static void prepare(const char *sizes)
{
    char *copy = strdup(sizes), *save = NULL;
    size_t largest = 0;

    for (char *t = strtok_r(copy, ",", &save); t != NULL && me.nsizes < MAX_SIZES;
         t = strtok_r(NULL, ",", &save)) {
        size_t bytes = strtoull(t, NULL, 10) / sizeof(float) * sizeof(float);
        largest = bytes > largest ? bytes : largest;
        cuda(cudaMalloc((void **)&me.buffer[me.nsizes], bytes), "cudaMalloc");
        me.sizes[me.nsizes++] = bytes;
    }
    free(copy);
    cuda(cudaMalloc((void **)&me.barrier, sizeof(int32_t)), "cudaMalloc");
    me.ones = malloc(largest + sizeof(float));
    for (size_t i = 0; me.ones != NULL && i < largest / sizeof(float); i++) {
        me.ones[i] = 1;
    }
}

static void warm(void)
{
    for (size_t i = 0; i < me.nsizes; i++) {
        fill(i);
        for (int k = 0; k < 3; k++) {
            all_reduce(me.buffer[i], me.sizes[i] / sizeof(float), FLOAT32);
        }
    }
    cuda(cudaStreamSynchronize(me.stream), "warm-up");
}

static void *graph_of(size_t i)
{
    void *graph = NULL;
    if (me.graph[i] == NULL) {
        cuda(cudaStreamBeginCapture(me.stream, 1), "cudaStreamBeginCapture");
        for (int k = 0; k < GRAPH_CALLS; k++) {
            all_reduce(me.buffer[i], me.sizes[i] / sizeof(float), FLOAT32);
        }
        cuda(cudaStreamEndCapture(me.stream, &graph), "cudaStreamEndCapture");
        cuda(cudaGraphInstantiateWithFlags(&me.graph[i], graph, 0), "cudaGraphInstantiate");
    }
    return me.graph[i];
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void check(size_t i)
{
    size_t ends[] = {0, me.sizes[i] / sizeof(float) - 1};
    for (int k = 0; k < 2; k++) {
        float value = 0;
        cuda(cudaMemcpy(&value, me.buffer[i] + ends[k], sizeof(value), TO_HOST), "cudaMemcpy");
        if (value != (float)me.world) {
            die("all_reduce", "wrong sum");
        }
    }
}

static void block(size_t i, unsigned calls, bool graph)
{
    uint64_t times[MAX_CALLS];
    void *g = graph ? graph_of(i) : NULL;

    for (unsigned k = 0; k < calls; k++) {
        fill(i);
        all_reduce(me.barrier, 1, INT32);
        cuda(cudaStreamSynchronize(me.stream), "barrier");
        times[k] = now_ns();
        if (graph) {
            cuda(cudaGraphLaunch(g, me.stream), "cudaGraphLaunch");
        } else {
            all_reduce(me.buffer[i], me.sizes[i] / sizeof(float), FLOAT32);
        }
        cuda(cudaStreamSynchronize(me.stream), "all_reduce");
        times[k] = (now_ns() - times[k]) / (graph ? GRAPH_CALLS : 1);
    }
    if (!graph) {
        check(i);
    }
    say("times");
    for (unsigned k = 0; k < calls; k++) {
        say(" %llu", (unsigned long long)times[k]);
    }
    say("\n");
}

static void obey(void)
{
    FILE *in = fdopen(me.link, "r");
    char line[128];
    unsigned long long bytes;
    unsigned calls;
    bool graph;

    while (in != NULL && fgets(line, sizeof(line), in) != NULL && strncmp(line, "quit", 4) != 0) {
        char *rest = line + strcspn(line, " ");
        size_t i = 0;
        bytes = strtoull(rest, &rest, 10);
        calls = (unsigned)strtoul(rest, &rest, 10);
        graph = strncmp(rest, " graph", 6) == 0;
        if (strncmp(line, "block ", 6) != 0 || calls == 0 || calls > MAX_CALLS) {
            die("asked", line);
        }
        while (i < me.nsizes && me.sizes[i] != bytes) {
            i++;
        }
        if (i == me.nsizes) {
            die("no buffer for", line);
        }
        block(i, calls, graph);
    }
}

static const char *first_of(const char *const *names)
{
    const char *v = NULL;
    for (; v == NULL && *names != NULL; names++) {
        v = getenv(*names);
    }
    return v;
}

/* As launchers do: the first rank that fails ends the others. */
static int start_ranks(char **argv, int world)
{
    pid_t pid[MAX_RANKS] = {0};
    int status = 0, left, failed = 0;
    char text[16];

    (void)snprintf(text, sizeof(text), "%d", world);
    (void)setenv("WORLD_SIZE", text, 1);
    for (int r = 0; r < world; r++) {
        (void)snprintf(text, sizeof(text), "%d", r);
        (void)setenv("RANK", text, 1);
        (void)setenv("LOCAL_RANK", text, 1);
        pid[r] = fork();
        if (pid[r] == 0) {
            (void)execv("/proc/self/exe", (char *[]){argv[0], NULL});
            _exit(127);
        }
    }
    for (left = world; left > 0; left--) {
        pid_t gone = wait(&status);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            failed = 1;
        }
        for (int r = 0; r < world; r++) {
            if (pid[r] == gone) {
                pid[r] = 0;
            } else if (failed && pid[r] > 0) {
                (void)kill(pid[r], SIGTERM);
            }
        }
    }
    return failed;
}

int main(int argc, char **argv)
{
    static const char *const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL};
    static const char *const worlds[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    const char *rank = first_of(ranks), *world = first_of(worlds);
    const char *path = getenv("PATHS_SOCKET"), *sizes = getenv("PATHS_SIZES");
    const char *late = getenv("PATHS_LATE"), *parent = getenv("PATHS_PARENT");
    int asked = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;

    if (asked > 0 && asked <= MAX_RANKS) {
        assign(parent != NULL ? parent : "");
        return start_ranks(argv, asked);
    }
    if (rank == NULL || world == NULL || path == NULL || sizes == NULL) {
        (void)fprintf(stderr, "usage: paths-program RANKS, by scripts/bench/paths\n");
        return 2;
    }
    me.rank = (int)strtol(rank, NULL, 10);
    me.world = (int)strtol(world, NULL, 10);
    connect_to(path);
    set_variables();
    say("hello %d %ld\n", me.rank, (long)getpid());
    open_libraries();
    cuda(cudaSetDevice(getenv("PATHS_SHARED") != NULL ? 0 : me.rank), "cudaSetDevice");
    cuda(cudaStreamCreateWithFlags(&me.stream, NON_BLOCKING), "cudaStreamCreate");
    nccl(ncclCommInitRank(&me.comm, me.world, share_id(path), me.rank), "ncclCommInitRank");
    prepare(sizes);
    warm();
    if (late != NULL) {
        assign(late);
        nccl(ncclCommInitRank(&me.comm, me.world, share_id(path), me.rank), "ncclCommInitRank");
        warm();
    }
    say("ready\n");
    obey();
    _exit(0); /* graphs are alive: a communicator does not go before them */
}
