/* Output: lines that fit, and JSON that says the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/support.h"

static int width(const char *line, size_t n)
{
    int w = 0;
    for (size_t i = 0; i < n; i++) {
        w += ((unsigned char)line[i] & 0xc0) != 0x80;
    }
    return w;
}

static void check_fits(const char *name, const struct nt_topology *t, int columns)
{
    struct nt_buf b;
    nt_buf_init(&b, 1 << 20);
    nt_topology_draw(t, columns, &b);
    assert_false(b.failed);
    for (const char *p = nt_buf_str(&b); *p != '\0';) {
        size_t n = strcspn(p, "\n");
        if (width(p, n) > (columns < 80 ? 80 : columns) || (n > 0 && p[n - 1] == ' ')) {
            fail_msg("%s, %d columns: '%.*s'", name, columns, (int)n, p);
        }
        p += n + (p[n] != '\0');
    }
    for (int i = 0; i < t->ngpus && t->ngpus <= 16; i++) {
        char label[16];
        assert_non_null(strstr(nt_buf_str(&b), nt_gpu_label(t, i, label, sizeof(label))));
    }
    nt_buf_done(&b);
}

static struct nt_topology *wide(int gpus, const char *cell)
{
    struct nt_buf b;
    struct nt_topology *t;
    nt_buf_init(&b, 1 << 20);
    for (int i = 0; i < gpus; i++) {
        nt_buf_printf(&b, " GPU%d", i);
    }
    nt_buf_puts(&b, " mlx5_0 a_very_long_interface_name_that_goes_on_and_on");
    for (int i = 0; i < gpus; i++) {
        nt_buf_printf(&b, "\nGPU%d", i);
        for (int j = 0; j < gpus + 2; j++) {
            nt_buf_printf(&b, " %s", i == j ? "X" : j < gpus ? cell : "SYS");
        }
    }
    t = read_or_fail("wide", nt_buf_str(&b), b.len);
    nt_buf_done(&b);
    return t;
}

static void test_fits(void **state)
{
    static const char *const names[] = {"nvswitch8.xml", "pcie4.xml", "mesh8.xml",    "pairs4.xml",
                                        "tray2.xml",     "amd4.xml",  "template4.xml"};
    static const int columns[] = {20, 80, 93, 100, 200};
    struct nt_topology *w16 = wide(16, "PHB"), *w40 = wide(40, "NV12");
    (void)state;
    for (size_t c = 0; c < sizeof(columns) / sizeof(columns[0]); c++) {
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            struct nt_topology *t = read_data(names[i]);
            check_fits(names[i], t, columns[c]);
            nt_topology_free(t);
        }
        check_fits("16 GPUs", w16, columns[c]);
        check_fits("40 GPUs", w40, columns[c]);
    }
    nt_topology_free(w16);
    nt_topology_free(w40);
}

/* Deep nesting is cut to the line, not written past it. */
static void test_deep(void **state)
{
    struct nt_buf b;
    struct nt_topology *t;
    (void)state;
    nt_buf_init(&b, 1 << 20);
    nt_buf_puts(&b, "<system version=\"1\"><cpu numaid=\"0\">");
    for (int i = 0; i < 50; i++) {
        nt_buf_printf(&b, "<pci busid=\"%02x:00.0\" class=\"0x060400\">", i);
    }
    nt_buf_puts(&b, "<pci busid=\"ff:00.0\" class=\"0x030200\"><gpu dev=\"0\" sm=\"80\"/></pci>");
    for (int i = 0; i < 50; i++) {
        nt_buf_puts(&b, "</pci>");
    }
    nt_buf_puts(&b, "</cpu></system>");
    t = read_or_fail("deep", nt_buf_str(&b), b.len);
    check_fits("deep", t, 80);
    nt_topology_free(t);
    nt_buf_done(&b);
}

static void test_json(void **state)
{
    struct nt_topology *t = read_data("mesh8.xml");
    json_t *o = nt_topology_json(t), *row;
    (void)state;
    assert_non_null(o);
    assert_int_equal(json_array_size(json_object_get(o, "gpus")), 8);
    assert_int_equal(json_array_size(json_object_get(o, "nics")), 4);
    row = json_array_get(json_object_get(o, "paths"), 0);
    assert_int_equal(json_array_size(row), 12);
    assert_string_equal(json_string_value(json_array_get(row, 5)), "NVB");
    row = json_array_get(json_object_get(o, "nvlinks"), 0);
    assert_int_equal(json_integer_value(json_array_get(row, 1)), 2);
    assert_true(json_is_true(json_object_get(o, "healthy")));
    assert_string_equal(json_string_value(json_object_get(json_object_get(o, "identity"), "name")),
                        t->identity.name);
    row = json_object_get(json_object_get(o, "facts"), "numa");
    assert_int_equal(json_integer_value(json_object_get(row, "NUMA node with 4 GPUs")), 2);
    json_decref(o);
    nt_topology_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
