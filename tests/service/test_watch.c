/* What is made of sights of the machine, and of the profiles made for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tuner/base/rng.h"
#include "tuner/service/watch.h"

static struct nt_identity identity(char digit)
{
    struct nt_identity id = {.known = 1U << NT_G_GPUS | 1U << NT_G_PATHS};
    memset(id.name, digit, 12);
    memset(id.group[NT_G_GPUS], 'a', NT_HEX_LEN);
    memset(id.group[NT_G_PATHS], digit, NT_HEX_LEN);
    return id;
}

static struct nt_sight sight(char digit, const char *nccl, const char *driver)
{
    struct nt_sight s = {.seen = true, .identity = identity(digit)};
    (void)snprintf(s.nccl, sizeof(s.nccl), "%s", nccl);
    (void)snprintf(s.driver, sizeof(s.driver), "%s", driver);
    (void)snprintf(s.cuda, sizeof(s.cuda), "13.0");
    return s;
}

static void find(struct nt_sight *s, const char *name, const char *device)
{
    (void)snprintf(s->finding[s->nfindings].name, sizeof(s->finding[0].name), "%s", name);
    (void)snprintf(s->finding[s->nfindings].device, sizeof(s->finding[0].device), "%s", device);
    s->finding[s->nfindings++].unhealthy = true;
}

/* The kinds of what was told, a letter each: u r d b s f c. */
static const char *kinds(const struct nt_watch *w, char *out)
{
    for (size_t i = 0; i < w->nevents; i++) {
        out[i] = "urdbsfc"[w->events[i].kind];
    }
    out[w->nevents] = '\0';
    return out;
}

static void test_changes(void **state)
{
    /* Time in seconds, machine, NCCL ("": cannot be read), what is told. Settles after 60. */
    static const struct {
        const char *name;
        struct {
            unsigned at;
            char machine;
            const char *nccl, *told;
        } look[8];
    } cases[] = {
        {"a first look settles", {{0, 'a', "2.28.9", "s"}, {60, 'a', "2.28.9", ""}}},
        {"a change that stays",
         {{0, 'a', "2.28.9", "s"},
          {10, 'b', "2.28.9", "d"},
          {69, 'b', "2.28.9", ""},
          {70, 'b', "2.28.9", "s"},
          {80, 'b', "2.28.9", ""}}},
        {"another NCCL",
         {{0, 'a', "2.28.9", "s"}, {10, 'a', "2.30.7", "d"}, {80, 'a', "2.30.7", "s"}}},
        {"it comes and goes",
         {{0, 'a', "2.28.9", "s"},
          {10, 'b', "2.28.9", "d"},
          {20, 'a', "2.28.9", "b"},
          {80, 'a', "2.28.9", ""}}},
        {"a third machine before the second settles",
         {{0, 'a', "2.28.9", "s"},
          {10, 'b', "2.28.9", "d"},
          {60, 'c', "2.28.9", ""},
          {75, 'c', "2.28.9", ""},
          {120, 'c', "2.28.9", "s"}}},
        {"unreadable meanwhile is no change",
         {{0, 'a', "2.28.9", "s"},
          {10, 'a', NULL, "u"},
          {20, 'a', NULL, ""},
          {100, 'a', "2.28.9", "r"},
          {200, 'a', "2.28.9", ""}}},
        {"what was unknown is no change",
         {{0, 'a', "", "s"}, {10, 'a', "2.28.9", ""}, {20, 'a', "2.30.7", "d"}}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nt_watch *w = calloc(1, sizeof(*w));
        assert_non_null(w);
        nt_watch_init(w, 60000);
        for (size_t k = 0; k < 8 && cases[i].look[k].told != NULL; k++) {
            const char *nccl = cases[i].look[k].nccl;
            struct nt_sight s = sight(cases[i].look[k].machine, nccl != NULL ? nccl : "", "580");
            char got[NT_WATCH_EVENTS + 1];
            s.seen = nccl != NULL;
            nt_watch_tell(w, &s, 1000 * (uint64_t)cases[i].look[k].at);
            if (strcmp(kinds(w, got), cases[i].look[k].told) != 0) {
                fail_msg("%s, at %u: '%s', not '%s'", cases[i].name, cases[i].look[k].at, got,
                         cases[i].look[k].told);
            }
        }
        free(w);
    }
}

static void test_findings(void **state)
{
    struct nt_watch *w = calloc(1, sizeof(*w));
    struct nt_sight s = sight('a', "2.28.9", "580"), t = s;
    char got[NT_WATCH_EVENTS + 1];
    (void)state;
    assert_non_null(w);
    nt_watch_init(w, 60000);
    find(&s, "narrow_link", "GPU 3");
    nt_watch_tell(w, &s, 0);
    assert_string_equal(kinds(w, got), "fs");
    nt_watch_tell(w, &s, 1000);
    assert_string_equal(kinds(w, got), "");
    find(&t, "narrow_link", "GPU 4");
    nt_watch_tell(w, &t, 2000);
    assert_string_equal(kinds(w, got), "fc");
    assert_non_null(strstr(w->events[0].text, "GPU 4"));
    free(w);
}

static void test_round_trip(void **state)
{
    struct nt_sight s = sight('a', "2.28.9", "580.65.06"), t;
    struct nt_topology *topology = NULL;
    struct nt_buf why;
    char path[512];
    json_t *o;
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/tests/topology/data/pairs4.xml",
                   getenv("NT_SOURCE_DIR"));
    assert_int_equal(nt_topology_read_file(path, &topology, NULL), 0);
    s.identity = topology->identity; /* its name belongs to its groups */
    nt_topology_free(topology);
    find(&s, "p2p_off", "GPU 0-GPU 1");
    s.busy = 5;
    s.load_known = true;
    o = nt_sight_json(&s);
    assert_int_equal(nt_sight_parse(o, &t, NULL), 0);
    json_decref(o);
    nt_buf_init(&why, 1000);
    assert_true(nt_sight_same(&s, &t, &why));
    assert_int_equal(why.len, 0);
    assert_int_equal(t.nfindings, 1);
    assert_string_equal(t.finding[0].device, "GPU 0-GPU 1");
    assert_true(t.load_known && t.busy == 5);
    t = sight('b', "2.30.7", "590.10");
    assert_false(nt_sight_same(&s, &t, &why));
    assert_non_null(strstr(nt_buf_str(&why), "paths"));
    assert_non_null(strstr(nt_buf_str(&why), "NCCL was 2.28.9, is 2.30.7"));
    assert_non_null(strstr(nt_buf_str(&why), "driver was 580.65.06, is 590.10"));
    nt_buf_done(&why);
}

static void test_judge(void **state)
{
    static const struct {
        const char *name;
        char made, was, now; /* was 0: not known */
        const char *nccl, *driver;
        enum nt_holds holds;
        const char *why;
    } cases[] = {
        {"the same", 'a', 'a', 'a', "2.28.9", "13.0", NT_HOLDS, ""},
        {"what is not known", 'a', 0, 'a', "", "", NT_HOLDS, ""},
        {"another NCCL", 'a', 'a', 'a', "2.27.3", "13.0", NT_HOLDS_NOT, "NCCL was 2.27.3"},
        {"another driver", 'a', 'a', 'a', "2.28.9", "570.00", NT_HOLDS_NOT, "driver was 570.00"},
        {"what the driver offers", 'a', 'a', 'a', "2.28.9", "12.8", NT_HOLDS_NOT,
         "driver was 12.8"},
        {"what this machine was", 'a', 'a', 'b', "2.28.9", "13.0", NT_HOLDS_NOT, "machine was"},
        {"another machine of the fleet", 'c', 'a', 'b', "2.28.9", "13.0", NT_HOLDS_OTHER, ""},
        {"nobody knows what it was", 'a', 0, 'b', "2.28.9", "13.0", NT_HOLDS_OTHER, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct nt_made_for made = {.identity = identity(cases[i].made),
                                   .nccl = cases[i].nccl,
                                   .driver = cases[i].driver,
                                   .nccl_sha256 = "",
                                   .here = true};
        struct nt_sight was = sight(cases[i].was, "2.28.9", "580.65"),
                        now = sight(cases[i].now, "2.28.9", "580.65");
        struct nt_buf why;
        enum nt_holds holds;
        nt_buf_init(&why, 1000);
        holds = nt_watch_judge(&made, cases[i].was != 0 ? &was : NULL, &now, &why);
        if (holds != cases[i].holds || strstr(nt_buf_str(&why), cases[i].why) == NULL) {
            fail_msg("%s: %d '%s'", cases[i].name, (int)holds, nt_buf_str(&why));
        }
        nt_buf_done(&why);
    }
}

/* A day of a machine that comes and goes, looked at every minute: what settles had stayed. */
static void test_day_of_flapping(void **state)
{
    struct nt_watch *w = calloc(1, sizeof(*w));
    struct nt_rng rng;
    char is = 'a', settled = 0;
    uint64_t since = 0;
    unsigned settles = 0, told = 0;
    (void)state;
    assert_non_null(w);
    nt_watch_init(w, 300000);
    nt_rng_seed(&rng, 7);
    for (uint64_t now = 0; now < 86400000; now += 60000) {
        struct nt_sight s;
        if (nt_rng_below(&rng, 6) == 0) {
            char next = (char)('a' + nt_rng_below(&rng, 3));
            since = next != is ? now : since;
            is = next;
        }
        s = sight(is, "2.28.9", "580");
        nt_watch_tell(w, &s, now);
        for (size_t i = 0; i < w->nevents; i++) {
            told++;
            if (w->events[i].kind == NT_WATCH_SETTLED) {
                assert_true(settled == 0 || (is != settled && now - since >= 300000));
                settled = is;
                settles++;
            }
        }
        assert_true(now - since < 300000 || settled == is);
    }
    assert_true(settles > 10 && settles < 100 && told < 400);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes), cmocka_unit_test(test_findings),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_judge),
        cmocka_unit_test(test_day_of_flapping)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
