#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tuner/deliver/active.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define HASH     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEAD     "nccltune-active 1\nboot=b-1\n"
#define TOLD     "NCCLTUNE_PROFILE=" HASH "\nNCCLTUNE_TABLE=/t\n"

static void test_round_trip(void **state)
{
    struct nt_assign vars[] = {{"NCCL_BUFFSIZE", "8388608"},
                               {"NCCL_TUNER_PLUGIN", "/l/libnccl-tuner-nccltune.so"},
                               {"NCCLTUNE_PROFILE", HASH},
                               {"NCCLTUNE_TABLE", "/etc/nccltune/" HASH ".nctable"}};
    struct nt_active a;
    struct nt_buf out;
    (void)state;
    nt_buf_init(&out, NT_ACTIVE_MAX);
    assert_int_equal(nt_active_write(vars, COUNT(vars), "b-1", &out, NULL), 0);
    assert_int_equal(nt_active_parse(nt_buf_str(&out), out.len, &a, NULL), 0);
    assert_string_equal(a.boot, "b-1");
    assert_int_equal(a.n, COUNT(vars));
    for (size_t i = 0; i < COUNT(vars); i++) {
        assert_string_equal(nt_active_get(&a, vars[i].name), vars[i].value);
        assert_false(a.v[i].override);
    }
    assert_null(nt_active_get(&a, "NCCL_ALGO"));
    nt_active_done(&a);
    nt_buf_done(&out);
}

static void test_texts(void **state)
{
    static const struct {
        const char *text;
        bool ok;
    } rows[] = {
        {HEAD TOLD, true},
        {HEAD TOLD "!NCCL_ALGO=Ring\n", true},
        {HEAD TOLD "VLLM_X=a=b\n", true},
        {HEAD TOLD "NCCLTUNE_BACKENDS=" HASH "\nNCCLTUNE_BACKENDS_TABLE=/b\n", true},
        {HEAD TOLD "NCCLTUNE_BACKENDS=" HASH "\n", false}, /* both or neither */
        {HEAD TOLD "NCCLTUNE_BACKENDS_TABLE=/b\n", false},
        {HEAD TOLD "NCCLTUNE_BACKENDS=abc\nNCCLTUNE_BACKENDS_TABLE=/b\n", false},
        {HEAD TOLD "NCCLTUNE_BACKENDS=" HASH "\nNCCLTUNE_BACKENDS_TABLE=b\n", false},
        {HEAD "NCCLTUNE_BACKENDS=" HASH "\nNCCLTUNE_BACKENDS_TABLE=/b\n", false},
        {HEAD TOLD "NCCLTUNE_BACKENDS_TABLES=/b\n", false},
        {HEAD, false},                               /* names no profile */
        {HEAD "NCCLTUNE_PROFILE=" HASH "\n", false}, /* nor a table */
        {HEAD TOLD "NCCL_ALGO=Ring", false},         /* cut off */
        {HEAD TOLD "LD_PRELOAD=/x\n", false},
        {HEAD TOLD "NCCL_NET_PLUGIN=/x\n", false},
        {HEAD TOLD "NCCL_TUNER_PLUGIN=/l/libevil.so\n", false},
        {HEAD TOLD "NCCL_TUNER_PLUGIN=libnccl-tuner-nccltune.so\n", false},
        {HEAD TOLD "NCCL_CONF_FILE=/x\n", false},
        {HEAD TOLD "VLLM_NCCL_SO_PATH=/x\n", false},
        {HEAD TOLD "NCCL_HOSTID=1\n", false},
        {HEAD TOLD "NCCL_COMM_ID=1\n", false},
        {HEAD TOLD "NCCL_ALGO=\n", false},
        {HEAD TOLD "NCCL_ALGO\n", false},
        {HEAD TOLD "\n", false},
        {HEAD TOLD "NCCL_ALGO=R\x1b\n", false},
        {HEAD "NCCLTUNE_PROFILE=abc\nNCCLTUNE_TABLE=/t\n", false},
        {HEAD "NCCLTUNE_PROFILE=" HASH "\nNCCLTUNE_TABLE=t\n", false},
        {"nccltune-active 2\nboot=b-1\n" TOLD, false},
        {"nccltune-active 1\n" TOLD, false},
        {"", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_active a = {.n = 0};
        if ((nt_active_parse(rows[i].text, strlen(rows[i].text), &a, NULL) == 0) != rows[i].ok) {
            fail_msg("row %zu: %s", i, rows[i].text);
        }
        nt_active_done(&a);
    }
}

static void test_writing_refuses(void **state)
{
    static const struct nt_assign bad[] = {{"LD_PRELOAD", "/x"},
                                           {"NCCL_ALGO", "a\nLD_PRELOAD=/x"},
                                           {"NCCL_X\n", "1"},
                                           {"NCCL_ALGO", ""}};
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct nt_assign vars[] = {{"NCCLTUNE_PROFILE", HASH}, {"NCCLTUNE_TABLE", "/t"}, bad[i]};
        struct nt_buf out;
        nt_buf_init(&out, NT_ACTIVE_MAX);
        assert_int_not_equal(nt_active_write(vars, 3, "b", &out, NULL), 0);
        nt_buf_clear(&out);
        assert_int_equal(nt_active_write(vars, 2, "b", &out, NULL), 0);
        nt_buf_clear(&out);
        assert_int_not_equal(nt_active_write(vars, 1, "b", &out, NULL), 0);
        nt_buf_clear(&out);
        assert_int_not_equal(nt_active_write(vars, 2, "", &out, NULL), 0);
        nt_buf_done(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_writing_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
