#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "probes/protocol/protocol.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static char xml[] = "<system version=\"1\">\n</system>", text[] = "channels=4\n";
static char name_a[] = "NCCL_HOSTID", value_a[] = "rank 1", name_b[] = "NCCL_DEBUG", value_b[] = "";
static uint32_t ns[] = {0, 17, UINT32_MAX};

static const struct {
    const char *line;
    struct nt_msg msg;
} rows[] = {
    {"{\"type\":\"hello\",\"v\":1,\"rank\":1,\"world\":2,\"pid\":4021,\"host\":\"a\",\"gpu_uuid\":"
     "\"GPU-1\",\"gpu_pci\":\"0000:01:00.0\",\"gpu_name\":\"NVIDIA Q\",\"gpu_memory_bytes\":"
     "80000000000,\"nccl\":22809,\"cuda\":13000,\"driver\":0,\"nccl_file\":\"/l/libnccl.so.2\","
     "\"rig\":\"nccl\"}",
     {.type = NT_MSG_HELLO,
      .hello = {.v = 1,
                .rank = 1,
                .world = 2,
                .pid = 4021,
                .host = "a",
                .gpu_uuid = "GPU-1",
                .gpu_pci = "0000:01:00.0",
                .gpu_name = "NVIDIA Q",
                .gpu_memory_bytes = 80000000000,
                .nccl = 22809,
                .cuda = 13000,
                .nccl_file = "/l/libnccl.so.2",
                .rig = "nccl"}}},
    {"{\"type\":\"uid\",\"hex\":\"\"}", {.type = NT_MSG_UID}},
    {"{\"type\":\"uid\",\"hex\":\"00ff\"}", {.type = NT_MSG_UID, .uid = "00ff"}},
    {"{\"type\":\"init\",\"uid\":\"00ff\",\"backend\":\"nccl\",\"vars\":{\"NCCL_HOSTID\":\"rank "
     "1\",\"NCCL_DEBUG\":\"\"},\"max_bytes\":1048576,\"gang\":9,\"shm\":\"/g/barrier\",\"device\":"
     "3}",
     {.type = NT_MSG_INIT,
      .init = {.uid = "00ff",
               .backend = "nccl",
               .vars = {{name_a, value_a}, {name_b, value_b}},
               .nvars = 2,
               .max_bytes = 1048576,
               .gang = 9,
               .shm = "/g/barrier",
               .device = 3}}},
    {"{\"type\":\"ready\",\"init_ns\":5,\"memory_bytes\":6,\"topology_xml\":\"<system version="
     "\\\"1\\\">\\n</system>\",\"text\":\"channels=4\\n\"}",
     {.type = NT_MSG_READY,
      .ready = {.init_ns = 5, .memory_bytes = 6, .topology_xml = xml, .text = text}}},
    {"{\"type\":\"ready\",\"init_ns\":5,\"memory_bytes\":6,\"topology_xml\":null,\"text\":null}",
     {.type = NT_MSG_READY, .ready = {.init_ns = 5, .memory_bytes = 6}}},
    {"{\"type\":\"cells\",\"case\":{\"bytes\":1024,\"coll\":\"all_reduce\",\"dtype\":\"bf16\","
     "\"place\":\"in\",\"mode\":\"graph\"},\"cost\":[[1.5,-1.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],"
     "[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,0.0],[0.0,0.0,2.0]],\"asked\":true}",
     {.type = NT_MSG_CELLS,
      .cells = {.cs = {1024, NT_ALL_REDUCE, NT_BF16, NT_IN_PLACE, NT_GRAPH},
                .cost = {[0] = {1.5F, -1, 0}, [NT_PAT] = {0, 0, 2}},
                .asked = true}}},
    {"{\"type\":\"measure\",\"id\":9223372036854775807,\"case\":{\"bytes\":1024,\"coll\":"
     "\"broadcast\",\"dtype\":\"fp8\",\"place\":\"out\",\"mode\":\"eager\"},\"call\":{\"backend\":"
     "\"nccl\",\"algo\":"
     "\"ring\",\"proto\":\"ll\",\"channels\":4,\"chunk_bytes\":4294967295},\"warmup\":2,"
     "\"samples\":4096,\"inner\":0,\"verify\":2,\"flags\":255,\"deadline_ms\":30000}",
     {.type = NT_MSG_MEASURE,
      .measure = {.id = INT64_MAX,
                  .cs = {1024, NT_BROADCAST, NT_FP8, NT_OUT_OF_PLACE, NT_EAGER},
                  .call = {NT_RING, NT_LL, 4, UINT32_MAX, NT_BE_NCCL},
                  .warmup = 2,
                  .samples = 4096,
                  .verify = NT_VERIFY_BOTH,
                  .flags = 255,
                  .deadline_ms = 30000}}},
    {"{\"type\":\"result\",\"id\":7,\"status\":\"ok\",\"ns\":[0,17,4294967295],\"base_ns\":3,"
     "\"executed\":{\"algo\":\"tree\",\"proto\":\"simple\",\"channels\":8,\"warps\":16},\"bits\":"
     "\"unknown\",\"wrong\":"
     "0,\"elapsed_ns\":11,\"connect_ns\":12,\"memory_bytes\":13,\"error\":\"\"}",
     {.type = NT_MSG_RESULT,
      .result = {.id = 7,
                 .ns = ns,
                 .count = 3,
                 .base_ns = 3,
                 .executed = {NT_TREE, NT_SIMPLE, 8, 16},
                 .elapsed_ns = 11,
                 .connect_ns = 12,
                 .memory_bytes = 13}}},
    {"{\"type\":\"result\",\"id\":7,\"status\":\"too_slow\",\"ns\":[],\"base_ns\":0,\"executed\":{"
     "\"algo\":null,\"proto\":null,\"channels\":0,\"warps\":0},\"bits\":\"unknown\",\"wrong\":1,"
     "\"elapsed_ns\":0,"
     "\"connect_ns\":0,\"memory_bytes\":0,\"error\":\"words\"}",
     {.type = NT_MSG_RESULT,
      .result = {.id = 7,
                 .status = NT_ST_TOO_SLOW,
                 .executed = {.algo = -1, .proto = -1},
                 .wrong = 1,
                 .error = "words"}}},
    {"{\"type\":\"abort\"}", {.type = NT_MSG_ABORT}},
    {"{\"type\":\"quit\"}", {.type = NT_MSG_QUIT}},
    {"{\"type\":\"error\",\"text\":\"no GPU\"}", {.type = NT_MSG_ERROR, .error = "no GPU"}},
    {"{\"type\":\"result\",\"id\":7,\"status\":\"ok\",\"ns\":[],\"base_ns\":0,\"executed\":{"
     "\"algo\":"
     "\"ring\",\"proto\":\"simple\",\"channels\":1,\"warps\":2},\"own_chunk_bytes\":2097152,"
     "\"bits\":\"unknown\",\"wrong\":0,\"elapsed_ns\":0,\"connect_ns\":0,\"memory_bytes\":0,"
     "\"error\":\"\"}",
     {.type = NT_MSG_RESULT,
      .result = {.id = 7, .executed = {NT_RING, NT_SIMPLE, 1, 2}, .own_chunk_bytes = 2 << 20}}},
};

static void test_round_trip(void **state)
{
    unsigned seen = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_msg m;
        struct nt_buf b;
        struct nt_err e = {0};
        size_t len = strlen(rows[i].line);

        nt_buf_init(&b, 4 << 20);
        nt_msg_encode(&rows[i].msg, &b);
        assert_false(b.failed);
        assert_int_equal(b.data[b.len - 1], '\n');
        b.data[b.len - 1] = '\0';
        assert_string_equal(b.data, rows[i].line);
        if (nt_msg_decode(rows[i].line, len, &m, &e) != 0) {
            fail_msg("%s: %s", rows[i].line, e.msg);
        }
        assert_int_equal(m.type, rows[i].msg.type);
        nt_buf_clear(&b);
        nt_msg_encode(&m, &b);
        b.data[b.len - 1] = '\0';
        assert_string_equal(b.data, rows[i].line);
        seen |= 1U << m.type;
        nt_msg_done(&m);
        nt_buf_done(&b);
    }
    assert_int_equal(seen, (1U << NT_MSG_TYPE_COUNT) - 1);
}

/* Each row replaces a piece of a good line. */
static void test_refused(void **state)
{
    static const struct {
        size_t row;
        const char *piece, *by, *says;
    } bad[] = {
        {0, "\"v\":1", "\"v\":2", "version 2, the driver 1"},
        {0, "\"rank\":1", "\"rank\":2", "rank 2 of 2"},
        {0, "\"rank\":1", "\"rank\":-1", "rank: must be a whole number"},
        {0, "\"rank\":1", "\"rank\":4294967296", "rank: too large"},
        {0, "\"rank\":1", "\"rank\":\"1\"", "rank: must be a whole number"},
        {0, "\"nccl\":22809", "\"nccl\":99999999999", "nccl: must be"},
        {0, "\"a\"", "17", "host: must be a string"},
        {0, "\"rig\":\"nccl\"", "\"rig\":\"a name much longer than it may be\"", "rig: must be"},
        {0, "\"rig\":\"nccl\"", "\"rig\":\"nccl\",\"x\":1", "unknown member x"},
        {0, "\"rig\"", "\"rag\"", "rig: missing"},
        {0, "\"hello\"", "\"hallo\"", "did you mean 'hello'"},
        {0, "\"type\":\"hello\",", "", "type: missing"},
        {0, "\"rig\":\"nccl\"", "\"rig\":\"nccl\",\"v\":1", "duplicate"},
        {3, "\"rank 1\"", "1", "vars: each"},
        {3, "NCCL_HOSTID", "A=B", "vars: each"},
        {3, "{\"NCCL_HOSTID\":\"rank 1\",\"NCCL_DEBUG\":\"\"}", "[]", "vars: must be an object"},
        {4, "\"channels=4\\n\"", "4", "text: must be a string or null"},
        {6, "\"all_reduce\"", "\"allreduce\"", "did you mean 'all_reduce'"},
        {6, "[[1.5,-1.0,0.0],", "[", "cost: must have one row"},
        {6, "[1.5,-1.0,0.0]", "[1.5,-1.0]", "cost: must have one column"},
        {6, "1.5", "\"x\"", "cost: must be numbers"},
        {6, "true", "1", "asked: must be true or false"},
        {6, "\"bytes\":1024", "\"bytes\":1024,\"y\":0", "unknown member y"},
        {7, "4096", "4097", "samples: too large"},
        {7, "\"verify\":2", "\"verify\":3", "verify: too large"},
        {7, "\"flags\":255", "\"flags\":256", "flags: too large"},
        {7, "\"channels\":4", "\"channels\":65536", "channels: too large"},
        {7, "\"algo\":\"ring\"", "\"algo\":null", "algo without proto"},
        {7, "\"backend\":\"nccl\"", "\"backend\":\"ipc\"", "one that the backend does not have"},
        {7, "\"backend\":\"nccl\"", "\"backend\":\"icp\"", "did you mean 'ipc'"},
        {7, "\"algo\":\"ring\"", "\"algo\":\"one_shot\"", "one that the backend does not have"},
        {7, "\"eager\"", "\"stream\"", "inner 0"},
        {8, "4294967295", "4294967296", "ns: each"},
        {8, "17", "-17", "ns: each"},
        {8, "17", "1.5", "ns: each"},
        {8, "[0,17,4294967295]", "{}", "ns: must be a list"},
        {8, "\"tree\"", "null", "executed: algo without proto"},
        {8, "\"ok\"", "\"fine\"", "unknown status"},
        {10, "{\"type\":\"abort\"}", "", "not JSON"},
        {10, "{\"type\":\"abort\"}", "[]", "type: missing"},
        {10, "}", "} {}", "not JSON"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        const char *line = rows[bad[i].row].line, *at = strstr(line, bad[i].piece);
        struct nt_msg m = {.type = NT_MSG_QUIT};
        struct nt_buf b;
        struct nt_err e = {0};
        int rc;

        assert_non_null(at);
        nt_buf_init(&b, 65536);
        nt_buf_add(&b, line, (size_t)(at - line));
        nt_buf_puts(&b, bad[i].by);
        nt_buf_puts(&b, at + strlen(bad[i].piece));
        rc = nt_msg_decode(nt_buf_str(&b), b.len, &m, &e);
        if (rc != -NT_E_PROTO || e.code != NT_E_PROTO || strstr(e.msg, bad[i].says) == NULL) {
            fail_msg("%s: rc %d, '%s'", nt_buf_str(&b), rc, e.msg);
        }
        assert_int_equal(m.type, NT_MSG_QUIT); /* untouched */
        nt_buf_done(&b);
    }
}

static void test_limits(void **state)
{
    struct nt_msg m = {.type = NT_MSG_RESULT, .result = {.executed = {-1, -1, 0, 0}}}, back;
    struct nt_buf b;
    char *huge = malloc(NT_LINE_MAX + 2);
    (void)state;
    assert_non_null(huge);
    memset(huge, ' ', NT_LINE_MAX + 1);
    assert_int_equal(nt_msg_decode(huge, NT_LINE_MAX + 1, &back, NULL), -NT_E_PROTO);

    nt_buf_init(&b, 4 << 20);
    m.result.ns = calloc(NT_MAX_SAMPLES + 1, sizeof(uint32_t));
    assert_non_null(m.result.ns);
    m.result.ns[NT_MAX_SAMPLES - 1] = 7;
    m.result.count = NT_MAX_SAMPLES;
    nt_msg_encode(&m, &b);
    assert_false(b.failed);
    assert_int_equal(nt_msg_decode(b.data, b.len - 1, &back, NULL), 0);
    assert_int_equal(back.result.count, NT_MAX_SAMPLES);
    assert_int_equal(back.result.ns[NT_MAX_SAMPLES - 1], 7);
    nt_msg_done(&back);
    m.result.count++; /* one too many */
    nt_buf_clear(&b);
    nt_msg_encode(&m, &b);
    assert_int_equal(nt_msg_decode(b.data, b.len - 1, &back, NULL), -NT_E_PROTO);
    nt_msg_done(&m);

    memset(huge, 'x', NT_LINE_MAX);
    huge[NT_LINE_MAX] = '\0';
    nt_buf_clear(&b);
    nt_msg_encode(&(struct nt_msg){.type = NT_MSG_READY, .ready = {.text = huge}}, &b);
    assert_true(b.failed);
    nt_buf_clear(&b);
    nt_msg_encode(&(struct nt_msg){.type = NT_MSG_RESULT, .result = {.id = UINT64_MAX}}, &b);
    assert_true(b.failed);
    nt_buf_clear(&b);
    nt_msg_encode(
        &(struct nt_msg){.type = NT_MSG_INIT,
                         .init = {.vars = {{name_a, value_a}, {name_a, value_b}}, .nvars = 2}},
        &b);
    assert_true(b.failed);
    nt_buf_done(&b);
    free(huge);
}

static void test_foreign_bytes(void **state)
{
    struct nt_msg m = {.type = NT_MSG_CELLS}, back;
    struct nt_buf b;
    (void)state;
    nt_buf_init(&b, 1 << 20);
    nt_msg_encode(&(struct nt_msg){.type = NT_MSG_ERROR, .error = "caf\xe9 \"x\"\n"}, &b);
    assert_string_equal(nt_buf_str(&b), "{\"type\":\"error\",\"text\":\"caf? \\\"x\\\"\\n\"}\n");
    nt_buf_clear(&b);
    m.cells.cost[1][1] = INFINITY;
    m.cells.cost[1][2] = NAN;
    nt_msg_encode(&m, &b);
    assert_int_equal(nt_msg_decode(b.data, b.len - 1, &back, NULL), 0);
    assert_true(back.cells.cost[1][1] < 0 && back.cells.cost[1][2] < 0);
    nt_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_foreign_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
