#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tuner/base/rng.h"
#include "tuner/topology/canon.h"

enum { MAX = 40 };

/* Graphs by their edges of colour 1; the others have colour 0. */
struct shape {
    const char *name;
    int n;
    uint8_t edges[64][2];
};

static const struct shape shapes[] = {
    {"hexagon", 6, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 0}}},
    {"two triangles", 6, {{0, 1}, {1, 2}, {2, 0}, {3, 4}, {4, 5}, {5, 3}}},
    {"prism", 6, {{0, 1}, {1, 2}, {2, 0}, {3, 4}, {4, 5}, {5, 3}, {0, 3}, {1, 4}, {2, 5}}},
    {"complete bipartite",
     6,
     {{0, 3}, {0, 4}, {0, 5}, {1, 3}, {1, 4}, {1, 5}, {2, 3}, {2, 4}, {2, 5}}},
    {"cube",
     8,
     {{0, 1},
      {1, 3},
      {3, 2},
      {2, 0},
      {4, 5},
      {5, 7},
      {7, 6},
      {6, 4},
      {0, 4},
      {1, 5},
      {2, 6},
      {3, 7}}},
    {"moebius ladder",
     8,
     {{0, 1},
      {1, 2},
      {2, 3},
      {3, 4},
      {4, 5},
      {5, 6},
      {6, 7},
      {7, 0},
      {0, 4},
      {1, 5},
      {2, 6},
      {3, 7}}},
    {"path", 6, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}},
    {"star", 6, {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}}},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void fill(const struct shape *s, const uint32_t *order, uint32_t *node, uint32_t *edge)
{
    memset(edge, 0, MAX * MAX * sizeof(*edge));
    memset(node, 0, MAX * sizeof(*node));
    for (int i = 0; i < 64 && (s->edges[i][0] != 0 || s->edges[i][1] != 0); i++) {
        uint32_t a = order[s->edges[i][0]], b = order[s->edges[i][1]];
        edge[a * (uint32_t)s->n + b] = edge[b * (uint32_t)s->n + a] = 1;
    }
}

static void test_equal_up_to_order(void **state)
{
    uint32_t node[MAX], edge[MAX * MAX], order[MAX];
    char first[SHAPES][NT_HEX_LEN + 1], hex[NT_HEX_LEN + 1];
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 3);
    for (int k = 0; k < SHAPES; k++) {
        for (uint32_t i = 0; i < MAX; i++) {
            order[i] = i;
        }
        for (int round = 0; round < 40; round++) {
            fill(&shapes[k], order, node, edge);
            assert_int_equal(nt_canon(shapes[k].n, node, edge, hex, NULL), 0);
            if (round == 0) {
                memcpy(first[k], hex, sizeof(hex));
            } else if (strcmp(first[k], hex) != 0) {
                fail_msg("%s: depends on the order", shapes[k].name);
            }
            nt_rng_shuffle(&rng, order, (size_t)shapes[k].n);
        }
        for (int j = 0; j < k; j++) {
            if (strcmp(first[j], first[k]) == 0) {
                fail_msg("%s and %s are the same", shapes[j].name, shapes[k].name);
            }
        }
    }
}

/* Sixteen nodes, all with six neighbours, any two with two common ones: refinement alone cannot
 * tell these two apart. */
static void fill_regular(bool rook, const uint32_t *order, uint32_t *edge)
{
    for (uint32_t a = 0; a < 16; a++) {
        for (uint32_t b = 0; b < 16; b++) {
            uint32_t dx = (a / 4 - b / 4) & 3, dy = (a - b) & 3;
            bool joined = rook ? (dx == 0) != (dy == 0)
                               : (dx == 0 && (dy & 1) != 0) || (dy == 0 && (dx & 1) != 0) ||
                                     (dx == dy && (dx & 1) != 0);
            edge[order[a] * 16 + order[b]] = a != b && joined;
        }
    }
}

static void test_strongly_regular(void **state)
{
    uint32_t node[16] = {0}, edge[16 * 16], order[16];
    char first[2][NT_HEX_LEN + 1], hex[NT_HEX_LEN + 1];
    struct nt_rng rng;
    (void)state;
    nt_rng_seed(&rng, 5);
    for (int rook = 0; rook < 2; rook++) {
        for (uint32_t i = 0; i < 16; i++) {
            order[i] = i;
        }
        for (int round = 0; round < 5; round++) {
            fill_regular(rook == 1, order, edge);
            assert_int_equal(nt_canon(16, node, edge, hex, NULL), 0);
            if (round > 0) {
                assert_string_equal(hex, first[rook]);
            }
            memcpy(first[rook], hex, sizeof(hex));
            nt_rng_shuffle(&rng, order, 16);
        }
    }
    assert_string_not_equal(first[0], first[1]);
}

/* All colourings of four nodes by three colours: names are equal exactly when some order of one is
 * the other. */
static bool isomorphic(const uint32_t *a, const uint32_t *b)
{
    static const uint8_t p[24][4] = {
        {0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3}, {0, 2, 3, 1}, {0, 3, 1, 2}, {0, 3, 2, 1},
        {1, 0, 2, 3}, {1, 0, 3, 2}, {1, 2, 0, 3}, {1, 2, 3, 0}, {1, 3, 0, 2}, {1, 3, 2, 0},
        {2, 0, 1, 3}, {2, 0, 3, 1}, {2, 1, 0, 3}, {2, 1, 3, 0}, {2, 3, 0, 1}, {2, 3, 1, 0},
        {3, 0, 1, 2}, {3, 0, 2, 1}, {3, 1, 0, 2}, {3, 1, 2, 0}, {3, 2, 0, 1}, {3, 2, 1, 0}};
    for (int k = 0; k < 24; k++) {
        bool equal = true;
        for (int i = 0; i < 4 && equal; i++) {
            for (int j = 0; j < i && equal; j++) {
                equal = a[i * 4 + j] == b[p[k][i] * 4 + p[k][j]];
            }
        }
        if (equal) {
            return true;
        }
    }
    return false;
}

static void test_all_of_four_nodes(void **state)
{
    enum { ALL = 729 }; /* three colours on six edges */
    static uint32_t edges[ALL][16];
    static char names[ALL][NT_HEX_LEN + 1];
    uint32_t node[4] = {0};
    (void)state;
    for (int c = 0; c < ALL; c++) {
        int rest = c;
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < i; j++) {
                edges[c][i * 4 + j] = edges[c][j * 4 + i] = (uint32_t)(rest % 3);
                rest /= 3;
            }
        }
        assert_int_equal(nt_canon(4, node, edges[c], names[c], NULL), 0);
    }
    for (int a = 0; a < ALL; a += 7) {
        for (int b = 0; b < ALL; b++) {
            if ((strcmp(names[a], names[b]) == 0) != isomorphic(edges[a], edges[b])) {
                fail_msg("graphs %d and %d", a, b);
            }
        }
    }
}

static void test_node_colours_count(void **state)
{
    uint32_t one[3] = {1, 1, 2}, two[3] = {1, 2, 2}, three[3] = {2, 1, 1}, edge[9] = {0};
    char a[NT_HEX_LEN + 1], b[NT_HEX_LEN + 1], c[NT_HEX_LEN + 1];
    (void)state;
    assert_int_equal(nt_canon(3, one, edge, a, NULL), 0);
    assert_int_equal(nt_canon(3, two, edge, b, NULL), 0);
    assert_int_equal(nt_canon(3, three, edge, c, NULL), 0);
    assert_string_not_equal(a, b);
    assert_string_equal(a, c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_up_to_order),
        cmocka_unit_test(test_strongly_regular),
        cmocka_unit_test(test_all_of_four_nodes),
        cmocka_unit_test(test_node_colours_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
