#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/support.h"

char *data_path(const char *name, char *out, size_t size)
{
    const char *root = getenv("NT_SOURCE_DIR");
    (void)snprintf(out, size, "%s/tests/topology/data/%s", root != NULL ? root : ".", name);
    return out;
}

struct nt_topology *read_data(const char *name)
{
    char path[4096];
    struct nt_topology *t = NULL;
    struct nt_err e = {0};

    if (nt_topology_read_file(data_path(name, path, sizeof(path)), &t, &e) != 0) {
        fail_msg("%s: %s", name, e.msg);
    }
    return t;
}

struct nt_topology *read_or_fail(const char *what, const char *text, size_t len)
{
    struct nt_topology *t = NULL;
    struct nt_err e = {0};

    if (nt_topology_read_text(text, len, &t, &e) != 0) {
        fail_msg("%s: %s", what, e.msg);
    }
    return t;
}

struct nt_topology *read_tree(const struct element *e)
{
    struct nt_buf b;
    struct nt_topology *t;

    nt_buf_init(&b, 1 << 20);
    tree_write(e, &b);
    t = read_or_fail("changed file", nt_buf_str(&b), b.len);
    nt_buf_done(&b);
    return t;
}

int count_findings(const struct nt_topology *t, enum nt_finding_kind kind, bool unhealthy_only)
{
    int n = 0;
    for (int i = 0; i < t->nfindings; i++) {
        n += t->findings[i].kind == kind && (!unhealthy_only || t->findings[i].unhealthy);
    }
    return n;
}
