/* The verdict on peer access: asked of a real probe on fake devices, and of programs that
 * misbehave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tuner/job/peers.h"

static json_t *ask_probe(const char *const *env)
{
    const char *build = getenv("NT_BUILD_DIR");
    char program[512];
    json_t *doc = NULL;
    (void)snprintf(program, sizeof(program), "%s/tests/probe/nccltune-probe-fake",
                   build != NULL ? build : "build/release");
    nt_peers_ask(program, env, NT_PEERS_MS, &doc);
    return doc;
}

static void has(const json_t *list, size_t at, const char *words)
{
    const char *text = json_string_value(json_array_get(list, at));
    if (text == NULL || strstr(text, words) == NULL) {
        fail_msg("'%s' is not in '%s'", words, text != NULL ? text : "");
    }
}

static void test_all_is_well(void **state)
{
    const char *const env[] = {"FAKE_DEV_COUNT=2", "NCCL_NVLS_ENABLE=0", NULL};
    json_t *doc = ask_probe(env), *words = nt_peers_words(doc), *broken = nt_peers_broken(doc);
    (void)state;
    assert_non_null(doc);
    assert_int_equal(json_array_size(words), 3);
    has(words, 0, "0 to 1: access, copy ok, write ok, read ok, ");
    has(words, 1, "1 to 0: access, ");
    has(words, 2, "multicast: not asked: NCCL_NVLS_ENABLE=0");
    assert_int_equal(json_array_size(broken), 0);
    json_decref(words);
    json_decref(broken);
    json_decref(doc);
}

/* The driver says that there is access, and other data arrives. */
static void test_broken_copies_are_named(void **state)
{
    const char *const env[] = {"FAKE_DEV_COUNT=2", "FAKE_DEV_BAD_COPY=1", NULL};
    json_t *doc = ask_probe(env), *broken = nt_peers_broken(doc);
    (void)state;
    assert_int_equal(json_array_size(broken), 2);
    has(broken, 0, "0 to 1: access, copy other data arrives, write ok");
    json_decref(broken);
    json_decref(doc);
}

static void test_no_access_is_not_broken(void **state)
{
    const char *const env[] = {"FAKE_DEV_COUNT=2", "FAKE_DEV_NO_PEER=1", NULL};
    json_t *doc = ask_probe(env), *words = nt_peers_words(doc), *broken = nt_peers_broken(doc);
    (void)state;
    has(words, 0, "0 to 1: no access, copy ok");
    assert_int_equal(json_array_size(broken), 0);
    json_decref(words);
    json_decref(broken);
    json_decref(doc);
}

/* Nothing, garbage, an exit code, a program that is not there, one that never ends: no verdict. */
static void test_no_verdict(void **state)
{
    static const char *const scripts[] = {"exit 0", "echo '{'", "echo '{}'; exit 3",
                                          "echo '{}'; sleep 60 & sleep 60"};
    static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    char path[] = "/tmp/nt-peers-XXXXXX";
    int fd = mkstemp(path);
    json_t *doc = NULL;
    (void)state;
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        FILE *f = fopen(path, "we");
        assert_non_null(f);
        (void)fprintf(f, "#!/bin/sh\n%s\n", scripts[i]);
        (void)fclose(f);
        assert_int_equal(chmod(path, 0700), 0);
        nt_peers_ask(path, env, 300, &doc);
        if (doc != NULL) {
            fail_msg("'%s' gave a verdict", scripts[i]);
        }
    }
    (void)unlink(path);
    nt_peers_ask(path, env, 300, &doc);
    assert_null(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_well),
        cmocka_unit_test(test_broken_copies_are_named),
        cmocka_unit_test(test_no_access_is_not_broken),
        cmocka_unit_test(test_no_verdict),
    };
    return cmocka_run_group_tests_name("job_peers", tests, NULL, NULL);
}
