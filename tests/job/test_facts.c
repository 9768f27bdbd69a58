/* What is known of a machine after the first gang. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tests/topology/support.h"
#include "tuner/job/facts.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void rank_on(struct nt_hello *h, const struct nt_topology *t, int gpu, const char *host)
{
    *h = (struct nt_hello){.world = 1};
    (void)snprintf(h->host, sizeof(h->host), "%s", host);
    if (gpu >= 0) { /* as CUDA writes it */
        uint64_t b = t->pcis[t->gpus[gpu].pci].bus;
        (void)snprintf(h->gpu_pci, sizeof(h->gpu_pci), "%08X:%02X:%02X.0", (unsigned)(b >> 20),
                       (unsigned)(b >> 12 & 0xff), (unsigned)(b >> 4 & 0xff));
    }
}

/* NCCL's dump shows the GPUs of the communicator only: a profile made on two of eight would be of a
 * machine that nobody has. */
static void test_part_of_a_machine(void **state)
{
    static const struct {
        const char *machine;
        int gpus[8];
        unsigned world;
        const char *second_host;
        bool placed;
    } rows[] = {
        {"nvswitch8.xml", {0, 1}, 2, "a", true},
        {"nvswitch8.xml", {7, 2, 5, 0}, 4, "a", true},
        {"nvswitch8.xml", {0, 1, 2, 3, 4, 5, 6, 7}, 8, "a", false}, /* all of them */
        {"nvswitch8.xml", {3, 3}, 2, "a", false},                   /* several on one */
        {"nvswitch8.xml", {0, -1}, 2, "a", false},                  /* not to be found */
        {"nvswitch8.xml", {0, 1}, 2, "b", false},                   /* of two machines */
        {"pcie4.xml", {1, 2}, 2, "a", true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_topology *t = read_data(rows[i].machine);
        struct nt_facts f = {.known = true, .identity = "of the part", .mask = "gpus"};
        struct nt_hello hello[8];
        struct nt_placement want;
        uint16_t gpus[8];
        struct nt_err err = {0};

        for (unsigned r = 0; r < rows[i].world; r++) {
            rank_on(&hello[r], t, rows[i].gpus[r], r == 1 ? rows[i].second_host : "a");
            gpus[r] = (uint16_t)rows[i].gpus[r];
        }
        f.groups = json_pack("{s:s}", "gpus", "of the part");
        nt_facts_place(&f, t, hello, rows[i].world);
        if (!rows[i].placed) {
            assert_string_equal(f.identity, "of the part");
            assert_string_equal(f.placement, "");
        } else {
            struct nt_facts other = f;
            assert_string_equal(f.identity, t->identity.name);
            assert_string_equal(json_string_value(json_object_get(f.groups, "paths")),
                                t->identity.group[NT_G_PATHS]);
            assert_int_equal(nt_placement_of(t, gpus, (int)rows[i].world, &want, NULL), 0);
            assert_string_equal(f.placement, want.key);
            other.placement[0] ^= 1; /* a job goes on where it began */
            assert_int_equal(nt_facts_same(&f, &f, &err), 0);
            assert_int_equal(nt_facts_same(&f, &other, &err), -NT_E_MISSING);
            assert_non_null(strstr(err.msg, "placement class"));
        }
        nt_facts_done(&f);
        nt_topology_free(t);
    }
}

static void test_placement_is_kept(void **state)
{
    struct nt_facts f = {.known = true, .placement = "0a0b0c0d0e0f"}, back;
    json_t *o = nt_facts_json(&f);
    (void)state;
    assert_int_equal(nt_facts_from_json(o, &back, NULL), 0);
    assert_string_equal(back.placement, f.placement);
    nt_facts_done(&back);
    json_decref(o);
}

/* A backend of one version of an engine is not that of another. */
static void test_framework(void **state)
{
    char many[512], name[301] = "";
    const struct {
        const char *text, *says;
    } rows[] = {
        {"torch=2.8.0+cu129\npython=3.12.3\nengine.sglang=0.5.12\nengine.flashinfer-python=0.6\n"
         "libnccl=/x/libnccl.so.2\n",
         "torch 2.8.0+cu129, sglang 0.5.12, flashinfer-python 0.6"},
        {"engine.vllm=0.11", "vllm 0.11"},
        {"torch=2.8.0", "torch 2.8.0"},
        {"torch=\nengine.=1\ntorchx=1\nengine.vllm\n\n", ""},
        {"NCCL_DEBUG=INFO\nmy.torch=1\n", ""},
        {"", ""},
        {many, "torch 2.8.0"},
    };
    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    (void)snprintf(many, sizeof(many), "torch=2.8.0\nengine.%s=1\n", name);
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct nt_facts f = {0}, other, back;
        struct nt_hello hello[1] = {{.world = 1, .nccl = 22809, .rig = "made-up"}};
        struct nt_ready ready[1] = {{.text = (char *)rows[i].text}};
        struct nt_err err = {0};
        json_t *o;
        assert_int_equal(nt_facts_take(&f, hello, ready, 1, NULL, NULL), 0);
        assert_string_equal(f.framework, rows[i].says);
        o = nt_facts_json(&f);
        assert_int_equal(nt_facts_from_json(o, &back, NULL), 0);
        assert_string_equal(back.framework, f.framework);
        other = f;
        (void)snprintf(other.framework, sizeof(other.framework), "torch 2.9.0");
        assert_int_equal(nt_facts_same(&f, &back, &err), 0);
        assert_int_equal(nt_facts_same(&f, &other, &err),
                         f.framework[0] != '\0' ? -NT_E_MISSING : 0);
        assert_true(f.framework[0] == '\0' || strstr(err.msg, "framework") != NULL);
        json_decref(o);
        nt_facts_done(&back);
        nt_facts_done(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_framework),
        cmocka_unit_test(test_part_of_a_machine),
        cmocka_unit_test(test_placement_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
