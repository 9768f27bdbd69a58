#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/deliver/make.h"

static void test_stat(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        uint32_t ppid;
        uint64_t start;
        const char *name;
    } rows[] = {
        {"40 (worker) S 30 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 987 1 2\n", true, 30, 987, "worker"},
        {"40 (a) b (c) S 30 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 987 1\n", true, 30, 987, "a) b (c"},
        {"40 (x\x1b[31m) S 30 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 987 1\n", true, 30, 987,
         "x?[31m"},
        {"40 (worker) S 30 1 1", false, 0, 0, NULL},
        {"40 worker S 30", false, 0, 0, NULL},
        {"", false, 0, 0, NULL},
        {")(", false, 0, 0, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_proc p = {.pid = 40};
        assert_int_equal(nt_proc_take_stat(&p, rows[i].text), rows[i].ok);
        if (rows[i].ok) {
            assert_int_equal(p.ppid, rows[i].ppid);
            assert_int_equal(p.start_ticks, rows[i].start);
            assert_string_equal(p.name, rows[i].name);
        }
    }
}

static void test_status(void **state)
{
    struct nt_proc p = {.pid = 4021};
    (void)state;
    nt_proc_take_status(&p, "Name:\tx\nUid:\t1000\t1001\t1000\t1000\nNSpid:\t4021\t17\t3\nX:\t1\n");
    assert_int_equal(p.uid, 1001);
    assert_int_equal(p.inner_pid, 3);
    nt_proc_take_status(&p, "Name:\tx\n");
    assert_int_equal(p.inner_pid, 4021);
    nt_proc_take_status(&p, "\nNSpid:\tx\n");
    assert_int_equal(p.inner_pid, 4021);
}

static void test_maps(void **state)
{
    struct nt_proc p = make_proc(40, "x", NULL, NULL,
                                 "7f0-7f1 r--p 00000000 08:01 10 /a dir/libnccl.so.2.28.9\n"
                                 "7f0-7f1 r-xp 00001000 08:01 10 /a dir/libnccl.so.2.28.9\n"
                                 "7f0-7f1 r-xp 00001000 08:02 10 /b/libnccl.so.2 (deleted)\n"
                                 "7f0-7f1 r-xp 00001000 08:02 11 /b/libnccl-net.so\n"
                                 "7f0-7f1 rw-s 00001000 00:06 11 /dev/nvidia-uvm\n"
                                 "7f0-7f1 r-xp 00001000 08:02 12 /c/libnccl-profiler-nccltune.so\n"
                                 "7f0-7f1 rw-p 00000000 00:00 0 \n"
                                 "7f0-7f1 rw-p 00000000 00:00 0 [heap]\n"
                                 "garbage\n\n"
                                 "7f0-7f1 r-xp 0 08:02 13 /d/libnccl-tuner.so");
    (void)state;
    assert_int_equal(p.nnccl, 2);
    assert_string_equal(p.nccl[0].path, "/a dir/libnccl.so.2.28.9");
    assert_string_equal(p.nccl[1].path, "/b/libnccl.so.2 (deleted)");
    assert_true(p.gpu);
    assert_string_equal(p.plugin[NT_RECEIPT_PROFILER], "/c/libnccl-profiler-nccltune.so");
    assert_string_equal(p.plugin[NT_RECEIPT_TUNER], "");
    assert_string_equal(p.foreign_tuner, "/d/libnccl-tuner.so");
    nt_proc_done(&p);
}

static void test_python_flags(void **state)
{
    static const struct {
        const char *words;
        char flag;
        bool on, python;
    } rows[] = {
        {"/usr/bin/python3|-S|x.py", 'S', true, true},
        {"python3.11|-IBS|-c|pass", 'S', true, true},
        {"python3|-I|x.py", 'S', false, true},
        {"python3|x.py|-S", 'S', false, true},
        {"python3|-m|S", 'S', false, true},
        {"python3|-mS|-S", 'S', false, true},
        {"python3|-W|S|-E|x", 'E', true, true},
        {"python3|-WE|-S", 'E', false, true},
        {"python3|-c|pass|-S", 'S', false, true},
        {"python3|--check-hash-based-pycs|-S", 'S', true, true},
        {"python3", 'S', false, true},
        {"/opt/server|-S", 'S', true, false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_proc p = make_proc(1, "main", "", rows[i].words, NULL);
        if (nt_proc_python_flag(&p, rows[i].flag) != rows[i].on ||
            nt_proc_is_python(&p) != rows[i].python) {
            fail_msg("%s", rows[i].words);
        }
        nt_proc_done(&p);
    }
}

static void test_environment(void **state)
{
    struct nt_proc p = make_proc(1, "x", "A=1|NCCL_X=|NCCL_X_Y=3|=|B", "x", NULL);
    (void)state;
    assert_string_equal(nt_proc_env(&p, "A"), "1");
    assert_string_equal(nt_proc_env(&p, "NCCL_X"), "");
    assert_string_equal(nt_proc_env(&p, "NCCL_X_Y"), "3");
    assert_null(nt_proc_env(&p, "B"));
    assert_null(nt_proc_env(&p, "C"));
    nt_proc_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat),        cmocka_unit_test(test_status),
        cmocka_unit_test(test_maps),        cmocka_unit_test(test_python_flags),
        cmocka_unit_test(test_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
