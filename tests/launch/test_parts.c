/* What a launch over several hosts is made of: frames, the greeting, the table of launchers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tuner/launch/door.h"
#include "tuner/launch/remote.h"
#include "tuner/launch/wire.h"

/* ------------------------------------------------------------------ frames */

/* 4 bytes length, kind, 4 bytes number. */
static size_t put_frame(char *out, uint32_t len, uint8_t kind, uint32_t id, const char *data)
{
    for (unsigned i = 0; i < 4; i++) {
        out[i] = (char)(len >> (8 * i));
        out[5 + i] = (char)(id >> (8 * i));
    }
    out[4] = (char)kind;
    memcpy(out + NT_WIRE_HEAD, data, len);
    return NT_WIRE_HEAD + (size_t)len;
}

/* Whole, byte by byte, and in every two pieces: the same frames. */
static void test_frames(void **state)
{
    static const struct {
        enum nt_wire_kind kind;
        uint32_t id;
        const char *data;
    } rows[] = {{NT_WIRE_OPEN, 7, ""},
                {NT_WIRE_DATA, UINT32_MAX, "{\"type\":\"hello\"}\n"},
                {NT_WIRE_END, 0, ""},
                {NT_WIRE_SIGNAL, 9, "x"}};
    enum { N = sizeof(rows) / sizeof(rows[0]) };
    char bytes[256];
    size_t len = 0;
    (void)state;

    for (size_t i = 0; i < N; i++) {
        len += put_frame(bytes + len, (uint32_t)strlen(rows[i].data), (uint8_t)rows[i].kind,
                         rows[i].id, rows[i].data);
    }
    for (size_t piece = 1; piece <= len; piece++) {
        struct nt_wire w;
        struct nt_frame f;
        size_t seen = 0;
        nt_wire_init(&w);
        for (size_t at = 0; at < len; at += piece) {
            int more;
            assert_int_equal(
                nt_wire_feed(&w, bytes + at, piece < len - at ? piece : len - at, NULL), 0);
            while ((more = nt_wire_next(&w, &f, NULL)) == 1) {
                assert_true(seen < N);
                assert_int_equal(f.kind, rows[seen].kind);
                assert_int_equal(f.id, rows[seen].id);
                assert_int_equal(f.len, strlen(rows[seen].data));
                assert_memory_equal(f.data, rows[seen].data, f.len);
                seen++;
            }
            assert_int_equal(more, 0);
        }
        assert_int_equal(seen, N);
        nt_wire_done(&w);
    }
}

static void test_broken_frames(void **state)
{
    static const struct {
        uint32_t len;
        uint8_t kind;
    } rows[] = {{0, NT_WIRE_COUNT}, {0, 255}, {NT_WIRE_MAX + 1, NT_WIRE_DATA}, {UINT32_MAX, 0}};
    char bytes[NT_WIRE_HEAD];
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_wire w;
        struct nt_frame f;
        nt_wire_init(&w);
        (void)put_frame(bytes, 0, rows[i].kind, 1, "");
        for (unsigned k = 0; k < 4; k++) {
            bytes[k] = (char)(rows[i].len >> (8 * k));
        }
        assert_int_equal(nt_wire_feed(&w, bytes, sizeof(bytes), NULL), 0);
        assert_int_equal(nt_wire_next(&w, &f, NULL), -NT_E_PROTO);
        nt_wire_done(&w);
    }
}

static void test_strings(void **state)
{
    const struct nt_frame f = {.data = "a\0\0bc\0rest", .len = 10};
    size_t at = 0;
    (void)state;

    assert_string_equal(nt_wire_string(&f, &at), "a");
    assert_string_equal(nt_wire_string(&f, &at), "");
    assert_string_equal(nt_wire_string(&f, &at), "bc");
    assert_null(nt_wire_string(&f, &at)); /* no end */
    assert_int_equal(at, 6);
}

/* ------------------------------------------------------------------ the secret */

/* Whatever differs, the proof does; one was made by other means. */
static void test_proofs(void **state)
{
    char secret[NT_SECRET_LEN + 1], other[NT_SECRET_LEN + 1], a[NT_PROOF_LEN + 1],
        b[NT_PROOF_LEN + 1];
    (void)state;

    assert_int_equal(nt_secret_make(secret, NULL), 0);
    assert_int_equal(nt_secret_make(other, NULL), 0);
    assert_int_equal(strlen(secret), NT_SECRET_LEN);
    assert_string_not_equal(secret, other);
    nt_secret_proof(secret, "agent", "n", "1", "2", a);
    nt_secret_proof(secret, "agent", "n", "1", "2", b);
    assert_true(nt_secret_same(a, b));
    nt_secret_proof(secret, "driver", "n", "1", "2", b);
    assert_false(nt_secret_same(a, b));
    nt_secret_proof(other, "agent", "n", "1", "2", b);
    assert_false(nt_secret_same(a, b));
    nt_secret_proof(secret, "agent", "n", "2", "1", b);
    assert_false(nt_secret_same(a, b));
    assert_false(nt_secret_same("", a));
    /* printf 'agent n 1 2' | openssl dgst -sha256 -hmac 0123…: the key is those 64 characters */
    nt_secret_proof("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "agent",
                    "n", "1", "2", a);
    assert_string_equal(a, "d79699fa88c5c1968fd3d2233aaafc22a287fd33da52a9b57247d722364f6561");
}

static void test_contacts(void **state)
{
    static const char secret[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    static const struct {
        const char *text;
        bool good;
    } rows[] = {{"10.0.0.1/4711/@", true},
                {"10.0.0.1,fe80::1,host.name/1/@", true},
                {"10.0.0.1/4711", false},
                {"10.0.0.1/4711/", false},
                {"/4711/@", false},
                {"10.0.0.1//@", false},
                {"10.0.0.1/4711/@0", false},
                {"10.0.0.1/123456789/@", false},
                {"10.0.0.1/4711/@ more", false},
                {"", false},
                {"10.0.0.1/4711/zz", false}};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_contact c;
        char text[300] = "";
        const char *at = strchr(rows[i].text, '@');
        (void)snprintf(text, sizeof(text), "%.*s%s%s",
                       (int)(at != NULL ? at - rows[i].text : (long)strlen(rows[i].text)),
                       rows[i].text, at != NULL ? secret : "", at != NULL ? at + 1 : "");
        assert_int_equal(nt_contact_read(text, &c, NULL), rows[i].good ? 0 : -NT_E_INVAL);
    }
}

/* ------------------------------------------------------------------ the door */

struct visit {
    struct nt_contact contact;
    const char *version;
    int rc, fd;
    struct nt_err err;
};

static void *visit(void *arg)
{
    struct visit *v = arg;
    v->fd = -1;
    v->rc = nt_greet_connect(&v->contact, "node-x", v->version, &v->fd, &v->err);
    return NULL;
}

struct host {
    struct nt_door *door;
    unsigned in, refused;
    bool closed;
    char node[NT_NODE_LEN];
};

static void on_in(void *data, int fd, const char *node, const char *rest, size_t len)
{
    struct host *h = data;
    h->in++;
    (void)snprintf(h->node, sizeof(h->node), "%s", node);
    (void)rest;
    (void)len;
    (void)close(fd);
    nt_door_close(h->door);
}

static void on_refused(void *data, const char *words)
{
    struct host *h = data;
    h->refused++;
    assert_non_null(strstr(words, "install one everywhere"));
    nt_door_close(h->door);
}

static void on_closed(void *data)
{
    ((struct host *)data)->closed = true;
}

/* Who knows the secret comes in; another version does not, which the driver tells; a wrong secret
 * is noticed by the agent itself, before it has proved anything. */
static void test_door(void **state)
{
    static const struct {
        const char *version;
        bool wrong_secret;
        int rc;
        unsigned in, refused;
    } rows[] = {{"1.2", false, 0, 1, 0}, {"1.3", false, 0, 0, 1}, {"1.2", true, -NT_E_PROTO, 0, 0}};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct host h = {.in = 0};
        const struct nt_door_events events = {on_in, on_refused, on_closed, &h};
        struct visit v = {.version = rows[i].version};
        pthread_t thread;
        uv_loop_t loop;

        assert_int_equal(uv_loop_init(&loop), 0);
        assert_int_equal(nt_door_open(&loop, "127.0.0.1", "1.2", &events, &h.door, NULL), 0);
        assert_int_equal(nt_contact_read(nt_door_contact(h.door), &v.contact, NULL), 0);
        assert_null(strstr(nt_door_address(h.door), v.contact.secret));
        v.contact.secret[0] =
            rows[i].wrong_secret ? (v.contact.secret[0] == 'a' ? 'b' : 'a') : v.contact.secret[0];
        assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
        if (rows[i].wrong_secret) {
            struct timespec t = {.tv_nsec = 1000000};
            for (int n = 0; n < 300; n++) {
                (void)uv_run(&loop, UV_RUN_NOWAIT);
                (void)nanosleep(&t, NULL);
            }
            nt_door_close(h.door);
        }
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(h.closed);
        assert_int_equal(v.rc, rows[i].rc);
        assert_int_equal(h.in, rows[i].in);
        assert_int_equal(h.refused, rows[i].refused);
        if (v.rc == 0) {
            assert_string_equal(h.node, rows[i].in > 0 ? "node-x" : "");
            (void)close(v.fd);
        }
        assert_int_equal(uv_loop_close(&loop), 0);
    }
}

static void on_refused_never(void *data, const char *words)
{
    (void)data;
    print_error("a stranger was believed: %s\n", words);
    assert_true(false);
}

/* Ones without the secret hold nobody up: many that are silent, one that names another version. */
static void test_strangers(void **state)
{
    enum { MANY = NT_DOOR_GREETING + 60 };
    static const char other[] =
        NT_GREET_WORD " 9.9 node-y "
                      "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
    struct host h = {.in = 0};
    const struct nt_door_events events = {on_in, on_refused_never, on_closed, &h};
    struct visit v = {.version = "1.2"};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd[MANY];
    pthread_t thread;
    uv_loop_t loop;
    (void)state;

    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(nt_door_open(&loop, "127.0.0.1", "1.2", &events, &h.door, NULL), 0);
    assert_int_equal(nt_contact_read(nt_door_contact(h.door), &v.contact, NULL), 0);
    to.sin_port = htons((uint16_t)strtoul(v.contact.port, NULL, 10));
    for (size_t i = 0; i < MANY; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd[i], (const struct sockaddr *)&to, sizeof(to)), 0);
        if (i == 0) {
            assert_int_equal(send(fd[i], other, strlen(other), MSG_NOSIGNAL), strlen(other));
        }
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(v.rc, 0);
    assert_int_equal(h.in, 1);
    (void)close(v.fd);
    for (size_t i = 0; i < MANY; i++) {
        (void)close(fd[i]);
    }
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* Does this host know the name, and can it listen there? Not every one has IPv6, or /etc/hosts. */
static bool has(const char *name)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    bool good = getaddrinfo(name, "0", &hints, &found) == 0;
    int fd = good ? socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;

    good = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (found != NULL) {
        freeaddrinfo(found);
    }
    return good;
}

static void test_places(void **state)
{
    static const struct {
        const char *listen;
        int rc;
        const char *needs; /* NULL: every host has it */
    } rows[] = {{"127.0.0.1", 0, NULL},
                {"127.0.0.1:20000-39999", 0, NULL},
                {"[::1]:20000-39999", 0, "::1"},
                {"localhost", 0, "localhost"},
                {"127.0.0.1:0", -NT_E_INVAL, NULL},
                {"127.0.0.1:70000", -NT_E_INVAL, NULL},
                {"127.0.0.1:9-8", -NT_E_INVAL, NULL},
                {"127.0.0.1:x", -NT_E_INVAL, NULL},
                {":4711", -NT_E_INVAL, NULL},
                {"", -NT_E_INVAL, NULL},
                {"no.such.host.invalid", -NT_E_INVAL, NULL},
                {"192.0.2.77", -NT_E_MISSING, NULL}};
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct host h = {.in = 0};
        const struct nt_door_events events = {on_in, on_refused, on_closed, &h};
        uv_loop_t loop;
        int rc;

        if (rows[i].needs != NULL && !has(rows[i].needs)) {
            continue;
        }
        assert_int_equal(uv_loop_init(&loop), 0);
        rc = nt_door_open(&loop, rows[i].listen, "1", &events, &h.door, NULL);
        if (rc != rows[i].rc) {
            fail_msg("%s: %d", rows[i].listen, rc);
        }
        if (rc == 0) {
            nt_door_close(h.door);
        }
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&loop), 0);
        assert_true(rc != 0 || h.closed);
    }
}

/* ------------------------------------------------------------------ the table */

static void test_commands(void **state)
{
    static const struct {
        const char *launch, *hosts;
        unsigned nodes, i;
        const char *words;
    } rows[] = {
        {"srun -p gpu", NULL, 2, 0,
         "srun --overlap --cpu-bind=none -p gpu --nodes=2 --ntasks=2 --ntasks-per-node=1 "
         "--export=ALL /x y/agent --number-from SLURM_PROCID"},
        {"/opt/bin/mpirun", "a,b,c", 0, 0,
         "/opt/bin/mpirun --bind-to none -np 3 --map-by ppr:1:node -x NCCLTUNE_LAUNCH --host a,b,c "
         "/x y/agent --number-from OMPI_COMM_WORLD_RANK"},
        {"mpiexec", NULL, 4, 0,
         "mpiexec --bind-to none -np 4 --map-by ppr:1:node -x NCCLTUNE_LAUNCH /x y/agent "
         "--number-from OMPI_COMM_WORLD_RANK"},
        {"hydra", "a,b", 2, 0,
         "mpiexec.hydra -n 2 -ppn 1 -genvlist NCCLTUNE_LAUNCH -hosts a,b /x y/agent --number-from "
         "PMI_RANK"},
        {"ssh", "a,b", 0, 1, "ssh -T -o BatchMode=yes b exec '/x y/agent' --stdin --node 1"},
        {"kubernetes --context c", "p-0,p-1", 0, 0,
         "kubectl exec -i --context c p-0 -- /x y/agent --stdin --node 0"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_remote r;
        struct nt_buf text, joined;
        const char *words[64];
        nt_buf_init(&text, 1 << 16);
        nt_buf_init(&joined, 1 << 16);
        assert_int_equal(nt_remote_read(rows[i].launch, rows[i].hosts, rows[i].nodes, &r, NULL), 0);
        r.agent = "/x y/agent";
        assert_int_equal(nt_remote_command(&r, rows[i].i, &text, words, 64, NULL), 0);
        for (size_t k = 0; words[k] != NULL; k++) {
            nt_buf_printf(&joined, "%s%s", k > 0 ? " " : "", words[k]);
        }
        assert_string_equal(nt_buf_str(&joined), rows[i].words);
        nt_buf_done(&text);
        nt_buf_done(&joined);
    }
}

static void test_allocation(void **state)
{
    struct nt_remote r;
    (void)state;

    assert_int_equal(setenv("SLURM_JOB_NUM_NODES", "3", 1), 0);
    assert_int_equal(nt_remote_read("srun", NULL, 0, &r, NULL), 0);
    assert_int_equal(r.nodes, 3);
    assert_int_equal(nt_remote_read("mpirun", NULL, 0, &r, NULL), -NT_E_INVAL);
    assert_int_equal(unsetenv("SLURM_JOB_NUM_NODES"), 0);
    assert_int_equal(nt_remote_read("srun", NULL, 0, &r, NULL), -NT_E_INVAL);
    assert_int_equal(nt_remote_read("srun", NULL, NT_REMOTE_HOSTS + 1, &r, NULL), -NT_E_INVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames),    cmocka_unit_test(test_broken_frames),
        cmocka_unit_test(test_strings),   cmocka_unit_test(test_proofs),
        cmocka_unit_test(test_contacts),  cmocka_unit_test(test_door),
        cmocka_unit_test(test_strangers), cmocka_unit_test(test_places),
        cmocka_unit_test(test_commands),  cmocka_unit_test(test_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
