#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tuner/topology/topology.h"

static void test_driver_version(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:23:30 UTC 2025\n"
         "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
         "580.65.06"},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
         "580.159.04"},
        {"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86  Release\n", "570.86"},
        {"", "13.0"},
        {"no number", "13.0"},
        {"for x86_64 only 64 bits", "13.0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char out[24] = "13.0";
        nt_driver_version(rows[i].text, out, sizeof(out));
        assert_string_equal(out, rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_driver_version)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
