/* Configuration, access, routes, events, headers: what needs no loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tuner/base/json.h"
#include "tuner/service/api.h"
#include "tuner/service/cache.h"
#include "tuner/service/config.h"
#include "tuner/service/events.h"
#include "tuner/service/service_i.h"
#include "tuner/service/service.h"
#include "tuner/service/turns.h"
#include "tuner/service/uevent.h"

static void test_uevents(void **state)
{
#define M(text) text, sizeof(text)
    static const struct {
        const char *message;
        size_t len;
        bool matters;
    } rows[] = {
        {M("add@/devices/pci0000:00/0000:00:06.0\0ACTION=add\0SUBSYSTEM=pci"), true},
        {M("change@/devices/virtual/net/eth0\0ACTION=change\0SUBSYSTEM=net"), true},
        {M("remove@/module/nvidia_uvm\0DEVPATH=/module/nvidia_uvm\0SUBSYSTEM=module"), true},
        {M("add@/module/loop\0DEVPATH=/module/loop\0SUBSYSTEM=module"), false},
        {M("change@/devices/virtual/block/loop0\0SUBSYSTEM=block"), false},
        {M("libudev"), false},
        {"SUBSYSTEM=pci", 13, false}, /* cut off */
        {"", 0, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (nt_uevent_matters(rows[i].message, rows[i].len) != rows[i].matters) {
            fail_msg("%s", rows[i].message);
        }
    }
#undef M
}

static void test_config(void **state)
{
    static const struct {
        const char *text, *says; /* "": taken */
    } cases[] = {
        {"", ""},
        {"[queue]\nwindow = 22:00-06:00\n# a comment\n\n[rig a]\nrig = nccl\ngpus = 0,1\n", ""},
        {"[rig a]\n[watch]\nrig = a\n", ""},
        {"[server]\nlisten unix\n", "c:2: neither [section] nor name = value"},
        {"listen = x\n", "before the first [section]"},
        {"[servers]\n", "did you mean 'server'"},
        {"[server]\nlisten2 = x\n", "did you mean 'listen'"},
        {"[server]\nmax_connections = many\n", "c:2: max_connections: "},
        {"[server]\nmax_connections = 2\n", "at least 8"},
        {"[server]\nsocket_mode = 0999\n", "no mode"},
        {"[watch]\non_change = maybe\n", "on_change"},
        {"[watch]\ninterval = soon\n", "interval"},
        {"[watch]\nrig = b\n", "c:2: [watch]: rig = b: there is no [rig b]"},
        {"[watch]\nrig = bok\n[rig box]\n", "c:2: [watch]: unknown rig 'bok'; did you mean 'box'"},
        {"[rig a]\nrig = mps-sokets\n", "c:2: rig: unknown rig 'mps-sokets'; did you mean"},
        {"[rig a]\n\nrig = model:/none.xml\n", "c:3: rig: model:/none.xml: No such file"},
        {"[rig a]\nrig = recording:\n", "unknown rig"},
        {"[rig a]\nsizes = 4Q\n", "c:2: sizes: "},
        {"[rig a]\nmodes = eager,grap\n", "c:2: modes: unknown mode 'grap'; did you mean 'graph'"},
        {"[rig a]\ncollectives = all_reduce\nmodes = graph\nsizes = 1K:4K,3M\n", ""},
        {"[rig a]\nfix = NCCL_ALGOO=ring\n", "did you mean NCCL_ALGO?"},
        {"[rig a]\nfix = NCCL_ALGO\n", "no NAME=VALUE"},
        {"[rig a]\nfix = NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1\nenv = A=b\n", ""},
        {"[rig a]\nenv = NCCL_ALGO=ring\n", "use fix"},
        {"[queue]\nwindow = 22:00-06:00,25:00-1:00\n", "c:2: window: '25:00-1:00' is no time"},
        {"[rig a]\n[rig a]\n", "named twice"},
        {"[rig ../a]\n", "letters, digits"},
        {"[rig a]\ngpus = 64\n", "gpus"},
        {"[queue]\nwindow = always\n", "no time window"},
        {"[queue]\nwindow = 00:00-00:00\n",
         "c:2: window: '00:00-00:00' holds no minute; for always"},
        {"[watch]\non_change = queue\n", "c:2: [watch]: on_change = queue: on which rig?"},
        {"[watch]\nrig = a\non_change = queue\n[rig a]\n", ""},
        {"[watch]\non_change = propose\n", ""},
        {"[server]\nlisten = unix:/a\n[queue]\n[server]\nlisten = unix:/b\n",
         "c:5: listen is set in line 2 already"},
        {"[rig a]\nranks = 2\nranks = 4\n", "c:3: ranks is set in line 2 already"},
        {"[rig a]\nranks = 2\n[rig b]\nranks = 4\n", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static struct nt_config c;
        struct nt_err e = {0};
        int rc;
        nt_config_init(&c);
        rc = nt_config_parse(&c, cases[i].text, "c", &e);
        rc = rc == 0 ? nt_config_finish(&c, &e) : rc;
        if ((rc == 0) != (cases[i].says[0] == '\0') || strstr(e.msg, cases[i].says) == NULL) {
            fail_msg("'%s': %d '%s'", cases[i].text, rc, e.msg);
        }
    }
}

/* The printed file is the defaults. */
static void test_config_print(void **state)
{
    static struct nt_config a, b;
    struct nt_err e = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    (void)state;
    nt_config_print(f);
    (void)fclose(f);
    nt_config_init(&a);
    nt_config_init(&b);
    assert_int_equal(nt_config_parse(&b, text, "printed", &e), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    free(text);
}

/* A configured budget becomes whole seconds, and never none. */
static void test_budget(void **state)
{
    static const struct {
        const char *text, *ask, *word; /* NULL: no option */
    } rows[] = {{"500ms", "{}", "1s"},
                {"1500ms", "{}", "2s"},
                {"5m", "{}", "300s"},
                {"0", "{}", NULL},
                {"500ms", "{\"budget_s\": 90}", "90s"}};
    static const struct nt_service_options options = {.program = "/x/nccltune"};
    static struct nt_service s = {.o = &options, .database = "/x/a.db"};
    static struct nt_config c;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct nt_store_entry e = {.id = 1, .kind = NT_QUEUE_TUNE, .ask = rows[i].ask};
        struct nt_command_words words;
        struct nt_err err = {0};
        char text[64];
        size_t at = 0;
        (void)snprintf(text, sizeof(text), "[rig a]\nbudget = %s\n", rows[i].text);
        nt_config_init(&c);
        assert_int_equal(nt_config_parse(&c, text, "c", &err), 0);
        assert_int_equal(nt_command_make(&words, &s, &c.rigs[0], &e, 0, &err), 0);
        while (at < words.n && strcmp(words.v[at], "--budget") != 0) {
            at++;
        }
        assert_int_equal(at < words.n, rows[i].word != NULL);
        if (rows[i].word != NULL) {
            assert_string_equal(words.v[at + 1], rows[i].word);
        }
        nt_command_done(&words);
    }
}

/* What no program of a rig does is not checked by its jobs. */
static void test_unchecked(void **state)
{
    static const struct nt_store_entry e = {.id = 1, .kind = NT_QUEUE_TUNE, .ask = "{}"};
    static const struct nt_service_options options = {.program = "/x/nccltune"};
    static struct nt_service s = {.o = &options, .database = "/x/a.db"};
    static struct nt_config c;
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct nt_command_words words;
        struct nt_err err = {0};
        char text[64];
        int has = 0;
        (void)snprintf(text, sizeof(text), "[rig a]\nno_groups = %s\nno_overlap = %s\n",
                       i % 2 != 0 ? "yes" : "no", i / 2 != 0 ? "yes" : "no");
        nt_config_init(&c);
        assert_int_equal(nt_config_parse(&c, text, "c", &err), 0);
        assert_int_equal(nt_command_make(&words, &s, &c.rigs[0], &e, 0, &err), 0);
        for (size_t k = 0; k < words.n; k++) {
            has |= strcmp(words.v[k], "--no-groups") == 0    ? 1
                   : strcmp(words.v[k], "--no-overlap") == 0 ? 2
                                                             : 0;
        }
        assert_int_equal(has, i);
        nt_command_done(&words);
    }
}

static void test_access(void **state)
{
    static const char tokens[] = "# who\nread 0123456789abcdef grafana\nadmin fedcba9876543210 me\n"
                                 "submit shared-token-for-ci\n";
    static const struct {
        const char *header, *name;
        enum nt_role role;
    } cases[] = {{"Bearer 0123456789abcdef", "grafana", NT_ROLE_READ},
                 {"bearer fedcba9876543210", "me", NT_ROLE_ADMIN},
                 {"Bearer shared-token-for-ci", "submit", NT_ROLE_SUBMIT},
                 {"Bearer 0123456789abcde", "", NT_ROLE_NONE},
                 {"Bearer 0123456789abcdef ", "", NT_ROLE_NONE},
                 {"Bearer ", "", NT_ROLE_NONE},
                 {"Basic 0123456789abcdef", "", NT_ROLE_NONE},
                 {"0123456789abcdef", "", NT_ROLE_NONE},
                 {NULL, "", NT_ROLE_NONE}};
    static const char *const bad[] = {"read short\n",
                                      "root 0123456789abcdef\n",
                                      "read\n",
                                      "none 0123456789abcdef\n",
                                      "read 0123456789abcdef a\nadmin 0123456789abcdef a\n",
                                      "read 0123456789abcdef a\nread 0123456789abcdef a\n"};
    struct nt_access a = {.others = NT_ROLE_READ};
    char path[] = "/tmp/nt-tokens-XXXXXX";
    struct nt_err e = {0};
    int fd;
    (void)state;
    assert_int_equal(nt_access_parse(&a, tokens, &e), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *name;
        if (nt_access_token(&a, cases[i].header, &name) != cases[i].role ||
            strcmp(name, cases[i].name) != 0) {
            fail_msg("'%s'", cases[i].header);
        }
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *name;
        assert_int_equal(nt_access_parse(&a, bad[i], &e), -NT_E_INVAL);
        assert_int_equal(nt_access_token(&a, cases[0].header, &name), cases[0].role); /* stays */
    }
    assert_int_equal(nt_access_peer(&a, 0, 1000), NT_ROLE_ADMIN);
    assert_int_equal(nt_access_peer(&a, 1000, 1000), NT_ROLE_ADMIN);
    assert_int_equal(nt_access_peer(&a, 1001, 1000), NT_ROLE_READ);
    fd = mkstemp(path);
    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(nt_access_read(&a, path, &e), -NT_E_INVAL);
    assert_non_null(strstr(e.msg, "others can read it"));
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(nt_access_read(&a, path, &e), 0);
    (void)close(fd);
    (void)unlink(path);
}

static void test_routes(void **state)
{
    static const struct {
        const char *method, *path;
        int64_t id; /* -1: no route; 0: a route without */
        const char *param, *allow;
    } cases[] = {{"GET", "/v1/jobs", 0, "", NULL},
                 {"GET", "/v1/jobs/17", 17, "17", NULL},
                 {"GET", "/v1/jobs/9223372036854775807", INT64_MAX, NULL, NULL},
                 {"GET", "/v1/jobs/9223372036854775808", -1, "", NULL},
                 {"GET", "/v1/jobs/0", -1, "", NULL},
                 {"GET", "/v1/jobs/017", -1, "", NULL},
                 {"GET", "/v1/jobs/-1", -1, "", NULL},
                 {"GET", "/v1/jobs/", -1, "", NULL},
                 {"GET", "/v1/jobs/1/", -1, "", NULL},
                 {"GET", "/v1/jobs/1/cancel", -1, "", "POST"},
                 {"DELETE", "/v1/jobs/1", -1, "", "GET, HEAD, PATCH"},
                 {"GET", "/v1/profiles/match", 0, "", NULL},
                 {"GET", "/v1/profiles/3/export/env", 3, "3", NULL},
                 {"GET", "/v1/views/../jobs", -1, "", NULL},
                 {"GET", "/v1/views/speed%20ups", -1, "", NULL},
                 {"GET", "//v1/jobs", -1, "", NULL},
                 {"GET", "", -1, "", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nt_exchange x = {.id = 0};
        const char *allow = NULL;
        const struct nt_route *r = nt_route_find(cases[i].method, cases[i].path, &x, &allow);
        bool good = (r != NULL) == (cases[i].id >= 0) && (r == NULL || x.id == cases[i].id);
        if (cases[i].allow != NULL) {
            good = good && allow != NULL && strcmp(allow, cases[i].allow) == 0;
        }
        if (!good) {
            fail_msg("%s %s: %s, id %lld, allow %s", cases[i].method, cases[i].path,
                     r != NULL ? r->path : "no route", (long long)x.id, allow);
        }
    }
}

static void test_params(void **state)
{
    static const struct {
        const char *path, *name, *value, *says;
    } cases[] = {{"/v1/jobs", "limit", "10", ""},
                 {"/v1/jobs", "limit", "0", "not between"},
                 {"/v1/jobs", "limit", "1e3", "limit"},
                 {"/v1/jobs", "limit", "", "limit"},
                 {"/v1/jobs", "state", "done", ""},
                 {"/v1/jobs", "state", "over", "unknown value"},
                 {"/v1/jobs", "lim", "1", "did you mean 'limit'"},
                 {"/v1/server", "x", "1", "takes no parameters"},
                 {"/v1/profiles/match", "nccl", "2.28", "identity is missing"},
                 {"/v1/profiles/match", "identity", "\xff", "not UTF-8"}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nt_exchange x = {.id = 0};
        struct nt_http_req r = {.args = {{cases[i].name, cases[i].value}}, .nargs = 1};
        struct nt_err e = {0};
        const char *allow;
        const struct nt_route *route = nt_route_find("GET", cases[i].path, &x, &allow);
        int rc = nt_route_check(route, &r, &e);
        if ((rc == 0) != (cases[i].says[0] == '\0') || strstr(e.msg, cases[i].says) == NULL) {
            fail_msg("%s?%s=%s: %d '%s'", cases[i].path, cases[i].name, cases[i].value, rc, e.msg);
        }
    }
}

/* Each route is in the document, with its parameters, and names schemas that are there. */
static void test_openapi(void **state)
{
    struct nt_buf b;
    json_t *doc = NULL, *paths, *schemas;
    size_t n = 0, listed = 0;
    const char *path;
    json_t *methods;
    (void)state;
    nt_buf_init(&b, 1 << 20);
    nt_service_openapi("0.0.0", &b);
    assert_int_equal(nt_json_parse(nt_buf_str(&b), b.len, "document", &doc, NULL), 0);
    paths = json_object_get(doc, "paths");
    schemas = json_object_get(json_object_get(doc, "components"), "schemas");
    for (const struct nt_route *r = nt_routes; r->path != NULL; r++, n++) {
        assert_non_null(json_object_get(paths, r->path));
        if (r->gives != NULL && json_object_get(schemas, r->gives) == NULL) {
            fail_msg("%s gives %s, which is no schema", r->path, r->gives);
        }
        if (r->body != NULL && json_object_get(schemas, r->body) == NULL) {
            fail_msg("%s takes %s, which is no schema", r->path, r->body);
        }
        assert_true(r->gives != NULL || r->type != NULL);
    }
    json_object_foreach(paths, path, methods)
    {
        listed += json_object_size(methods);
    }
    assert_int_equal(listed, n);
    json_decref(doc);
    nt_buf_done(&b);
}

static void test_events(void **state)
{
    static struct nt_events e;
    char out[128];
    (void)state;
    nt_events_init(&e, 100);
    assert_null(nt_events_after(&e, 0, 0));
    for (int i = 0; i < 2000; i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "{\"i\":%d}", i);
        nt_events_add(&e, "job", 1 + i % 2, text);
    }
    assert_int_equal(nt_events_after(&e, 0, 0)->seq, 100 + 2000 - NT_EVENTS);
    assert_int_equal(nt_events_after(&e, 2000, 0)->seq, 2001);
    assert_int_equal(nt_events_after(&e, 2097, 2)->seq, 2099);
    assert_null(nt_events_after(&e, 2098, 1));
    assert_null(nt_events_after(&e, 2099, 0));
    assert_null(nt_events_after(&e, 1 << 20, 0));
    assert_int_equal(nt_events_from(&e, 2099), 2099);
    assert_int_equal(nt_events_from(&e, 2100), 0); /* of a service whose clock was ahead */
    assert_int_equal(nt_events_from(&e, UINT64_MAX), 0);
    assert_true(nt_event_text(nt_events_after(&e, 2098, 0), out, sizeof(out)) > 0);
    assert_string_equal(out, "id: 2099\nevent: job\ndata: {\"i\":1999}\n\n");
    assert_int_equal(nt_event_text(nt_events_after(&e, 2098, 0), out, 20), 0);
    nt_events_done(&e);
}

static void test_cache(void **state)
{
    static struct nt_cache c;
    char key[32], *large = calloc(1, 1 << 20);
    (void)state;
    assert_non_null(large);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof(key), "/%d", i);
        assert_non_null(nt_cache_put(&c, key, 1, nt_http_shared_new(200, "t", "e", NULL, "x", 1)));
    }
    assert_non_null(nt_cache_get(&c, "/999", 1));
    assert_non_null(nt_cache_get(&c, "/872", 1));
    assert_null(nt_cache_get(&c, "/871", 1));
    assert_null(nt_cache_get(&c, "/999", 2)); /* of another version: dropped */
    assert_null(nt_cache_get(&c, "/999", 1));
    for (int i = 0; i < 20; i++) {
        (void)snprintf(key, sizeof(key), "/large/%d", i);
        assert_non_null(
            nt_cache_put(&c, key, -1, nt_http_shared_new(200, "t", "e", NULL, large, 1 << 20)));
        assert_true(c.bytes <= NT_CACHE_MAX_BYTES);
    }
    assert_non_null(nt_cache_get(&c, "/large/19", 5));
    assert_null(nt_cache_get(&c, "/large/1", 5));
    nt_cache_done(&c);
    assert_int_equal(c.bytes, 0);
    free(large);
}

static void test_headers(void **state)
{
    static const struct {
        const char *header, *etag;
        bool in;
    } tags[] = {{NULL, "\"a\"", false},
                {"\"a\"", "\"a\"", true},
                {"W/\"a\"", "\"a\"", true},
                {"\"b\", \"a\"", "\"a\"", true},
                {"\"b\" , W/\"a\"", "\"a\"", true},
                {"*", "\"a\"", true},
                {"\"ab\"", "\"a\"", false},
                {"", "\"a\"", false}};
    static const struct {
        const char *text, *addr; /* NULL: refused */
        unsigned port;
        bool loopback;
    } places[] = {{"127.0.0.1:80", "127.0.0.1", 80, true},
                  {"localhost:1", "127.0.0.1", 1, true},
                  {"[::1]:8080", "::1", 8080, true},
                  {"0.0.0.0:80", "0.0.0.0", 80, false},
                  {"10.0.0.1:80", "10.0.0.1", 80, false},
                  {"127.9.9.9:0", "127.9.9.9", 0, true},
                  {"[fe80::1]:80", "fe80::1", 80, false},
                  {"127.0.0.1", NULL, 0, false},
                  {"example.org:80", NULL, 0, false},
                  {"127.0.0.1:99999", NULL, 0, false},
                  {":80", NULL, 0, false},
                  {"", NULL, 0, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        assert_int_equal(nt_http_etag_in(tags[i].header, tags[i].etag), tags[i].in);
    }
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char addr[64];
        unsigned port = 0;
        bool loopback = false;
        int rc = nt_http_parse_address(places[i].text, addr, sizeof(addr), &port, &loopback, NULL);
        if ((rc == 0) != (places[i].addr != NULL) ||
            (rc == 0 && (strcmp(addr, places[i].addr) != 0 || port != places[i].port ||
                         loopback != places[i].loopback))) {
            fail_msg("'%s'", places[i].text);
        }
    }
    assert_true(nt_http_type_is("application/json; charset=utf-8", "application/json"));
    assert_false(nt_http_type_is("application/jsonp", "application/json"));
    assert_false(nt_http_type_is(NULL, "application/json"));
}

/* What a job starts inherits what is set on it: nothing where it measures. */
static void test_turns(void **state)
{
    static const struct {
        enum nt_turns how;
        int policy, nice;
    } rows[] = {{NT_TURNS_LAST, SCHED_BATCH, 10},
                {NT_TURNS_MEASURE, SCHED_OTHER, 0},
                {NT_TURNS_EQUAL, SCHED_OTHER, 0}};
    int base = getpriority(PRIO_PROCESS, 0);
    (void)state;

    nt_turns_short();
    assert_int_equal(sched_getscheduler(0) & SCHED_RESET_ON_FORK, SCHED_RESET_ON_FORK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int nice = base + rows[i].nice;
        pid_t pid = fork();
        if (pid == 0) {
            (void)setsid();
            (void)pause();
            _exit(0);
        }
        assert_true(pid > 0);
        assert_int_equal(sched_getscheduler(pid), SCHED_OTHER); /* short turns are not inherited */
        nt_turns_give_way(pid, rows[i].how);
        assert_int_equal(sched_getscheduler(pid), rows[i].policy);
        assert_int_equal(getpriority(PRIO_PROCESS, (id_t)pid), nice < 19 ? nice : 19);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uevents),      cmocka_unit_test(test_config),
        cmocka_unit_test(test_config_print), cmocka_unit_test(test_access),
        cmocka_unit_test(test_routes),       cmocka_unit_test(test_params),
        cmocka_unit_test(test_openapi),      cmocka_unit_test(test_events),
        cmocka_unit_test(test_cache),        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_turns),        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_unchecked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
