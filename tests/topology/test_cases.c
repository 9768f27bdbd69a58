/* Real files beside the checkout, where there are any: all are read, equal to themselves in any
 * order and numbering, and different from each other. How fast is told by scripts/bench/topo. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/changes.h"
#include "tests/topology/support.h"

enum { MAX_FILES = 256 };

static struct {
    char *path;
    struct nt_topology *t;
} files[MAX_FILES];
static int nfiles;

static int by_suffix(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 &&
           (strcmp(e->d_name + n - 4, ".xml") == 0 || strcmp(e->d_name + n - 4, ".txt") == 0);
}

static void collect(const char *folder)
{
    char path[4096];
    struct dirent **list = NULL;
    int n;

    (void)snprintf(path, sizeof(path), "%s/../shared/%s", getenv("NT_SOURCE_DIR"), folder);
    n = scandir(path, &list, by_suffix, alphasort);
    for (int i = 0; i < n; i++) {
        if (nfiles < MAX_FILES &&
            asprintf(&files[nfiles].path, "%s/%s", path, list[i]->d_name) > 0) {
            nfiles++;
        }
        free(list[i]);
    }
    if (n >= 0) {
        free(list);
    }
}

static int read_all(void **state)
{
    (void)state;
    for (int i = 0; i < nfiles; i++) {
        struct nt_err e = {0};
        if (nt_topology_read_file(files[i].path, &files[i].t, &e) != 0) {
            print_error("%s\n", e.msg);
            return -1;
        }
    }
    return 0;
}

static void test_equal_to_itself(void **state)
{
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 17);
    for (int i = 0; i < nfiles; i++) {
        for (size_t c = 0; c < nsame_changes; c++) {
            struct element *e = tree_load(files[i].path);
            struct nt_topology *t;
            struct nt_buf words;
            if (e == NULL) {
                break; /* a matrix, or XML for NCCL's parser only */
            }
            same_changes[c].change(e, &rng);
            t = read_tree(e);
            nt_buf_init(&words, 1 << 20);
            if (strcmp(t->identity.name, files[i].t->identity.name) != 0) {
                (void)nt_topology_diff(files[i].t, "before", t, "after", &words);
                fail_msg("%s, %s:\n%s", files[i].path, same_changes[c].name, nt_buf_str(&words));
            }
            nt_buf_done(&words);
            nt_topology_free(t);
            tree_free(e);
        }
    }
}

/* Files that tell the same facts name machines that are all different. */
static void test_different_from_others(void **state)
{
    (void)state;
    for (int i = 0; i < nfiles; i++) {
        for (int j = 0; j < i; j++) {
            if (files[i].t->known == files[j].t->known &&
                nt_identity_match(&files[i].t->identity, &files[j].t->identity)) {
                fail_msg("%s is %s", files[i].path, files[j].path);
            }
        }
    }
}

static void test_placements_and_drawing(void **state)
{
    (void)state;
    for (int i = 0; i < nfiles; i++) {
        const struct nt_topology *t = files[i].t;
        struct nt_buf b;
        json_t *o = nt_topology_json(t);
        assert_non_null(o);
        json_decref(o);
        nt_buf_init(&b, 1 << 20);
        nt_topology_draw(t, 100, &b);
        assert_true(!b.failed && b.len > 0);
        nt_buf_done(&b);
        for (int n = 1; n <= t->ngpus; n++) {
            struct nt_placements p = {0};
            assert_int_equal(nt_placements_find(t, n, &p, NULL), 0);
            assert_true(p.n > 0);
            nt_placements_done(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_to_itself),
        cmocka_unit_test(test_different_from_others),
        cmocka_unit_test(test_placements_and_drawing),
    };
    int rc;

    if (getenv("NT_SOURCE_DIR") != NULL) {
        collect("cases/topologies");
        collect("cases/smi");
    }
    if (nfiles == 0) {
        (void)printf("no ../shared/cases beside the checkout\n");
        return 77;
    }
    (void)printf("%d files\n", nfiles);
    rc = cmocka_run_group_tests(tests, read_all, NULL);
    for (int i = 0; i < nfiles; i++) {
        nt_topology_free(files[i].t);
        free(files[i].path);
    }
    return rc;
}
