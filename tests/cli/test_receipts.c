#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/format/receipt.h"
#include "tuner/cli/receipts_workload.h"

static void test_workload(void **state)
{
    char folder[] = "/tmp/nt-receipts-XXXXXX", path[300] = "";
    char hash[65];
    char *paths[] = {path};
    struct nt_why why = {0};
    struct nt_workload w;
    struct nt_buf notes;
    struct nt_err e = {0};
    uint8_t *base;
    DIR *dir;
    const struct dirent *entry;
    (void)state;
    memset(hash, 'a', 64);
    hash[64] = '\0';
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("NCCLTUNE_RECEIPTS", folder, 1), 0);
    base = nt_receipt_attach(&(struct nt_receipt_start){.hash = hash, .job = "", .nrows = 0}, &why);
    assert_non_null(base);
    dir = opendir(folder);
    if (dir == NULL) {
        fail_msg("%s", folder);
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof(path), "%s/%.200s", folder, entry->d_name);
        }
    }
    (void)closedir(dir);
    nt_buf_init(&notes, 4096);
    assert_int_equal(nt_workload_from_receipts(paths, 1, "r", &w, &notes, &e),
                     -NT_E_NO); /* no calls yet */
    (void)nt_receipt_add_comm(base, &(struct nt_receipt_comm){.nranks = 8, .nnodes = 1});
    for (int i = 0; i < 5; i++) {
        nt_receipt_add_executed(base, NT_ALL_REDUCE, 14336, 0, 2, false);
        nt_receipt_add_executed(base, NT_ALL_REDUCE, 43008, 0, 2, true);
    }
    nt_receipt_count(base, nt_receipt_at_class(NT_ALL_GATHER, nt_size_class(1000), NT_FATE_LEFT));
    assert_int_equal(nt_workload_from_receipts(paths, 1, "r", &w, &notes, &e), 0);
    assert_int_equal(w.ranks, 8);
    assert_int_equal(w.nphases, 2);
    assert_int_equal(w.phases[0].mode, NT_EAGER);
    assert_int_equal(w.phases[0].calls[0].bytes, 16384); /* the class of 14336 */
    assert_int_equal(w.phases[0].calls[0].count, 5);
    assert_int_equal(w.phases[0].calls[1].coll, NT_ALL_GATHER); /* only the tuner saw it */
    assert_int_equal(w.phases[1].calls[0].bytes, 65536);
    nt_buf_done(&notes);
    (void)unlink(path);
    (void)rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_workload)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
