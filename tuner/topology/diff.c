/* What differs between two machines, in words. */
#include "tuner/topology/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 21, MAX_PAIRS = 12 };

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* Cuts a text into sorted lines; returns how many. */
static int cut(struct nt_buf *text, const char ***ret)
{
    int n = 0;
    const char **v;
    char *p;

    for (size_t i = 0; i < text->len; i++) {
        n += text->data[i] == '\n';
    }
    v = malloc(((size_t)n + 1) * sizeof(*v));
    if (v == NULL) {
        return -1;
    }
    p = text->data;
    for (int i = 0; i < n; i++) {
        v[i] = p;
        p = strchr(p, '\n');
        *p++ = '\0';
    }
    *ret = v;
    qsort(*ret, (size_t)n, sizeof(**ret), by_text);
    return n;
}

/* Lines that one side has more often: "in A 4 × NIC: PIX to 1 GPU; in B 3 ×". Returns how many. */
static int differing_lines(struct nt_buf *ta, struct nt_buf *tb, struct nt_buf *out)
{
    const char **a = NULL, **b = NULL;
    int na = cut(ta, &a), nb = cut(tb, &b), i = 0, j = 0, found = 0;

    while (na >= 0 && nb >= 0 && (i < na || j < nb)) {
        const char *line = i < na && (j >= nb || strcmp(a[i], b[j]) <= 0) ? a[i] : b[j];
        int ca = 0, cb = 0;
        for (; i < na && strcmp(a[i], line) == 0; i++) {
            ca++;
        }
        for (; j < nb && strcmp(b[j], line) == 0; j++) {
            cb++;
        }
        if (ca != cb) {
            nt_buf_printf(out, "  %s: %d in A, %d in B\n", line, ca, cb);
            found++;
        }
    }
    free(a);
    free(b);
    return found;
}

/* With equal GPU counts, pairs whose links differ, by number. */
static int differing_pairs(const struct nt_topology *a, const struct nt_topology *b,
                           struct nt_buf *out)
{
    int found = 0;

    for (int i = 0; i < a->ngpus; i++) {
        for (int j = i + 1; j < a->ngpus; j++) {
            int la = a->links[i * a->ngpus + j], lb = b->links[i * b->ngpus + j];
            char x[16], y[16];
            if (la == lb || ++found > MAX_PAIRS) {
                continue;
            }
            nt_buf_printf(out, "  %s-%s: %d links in A, %d in B\n",
                          nt_gpu_label(a, i, x, sizeof(x)), nt_gpu_label(a, j, y, sizeof(y)), la,
                          lb);
        }
    }
    if (found > MAX_PAIRS) {
        nt_buf_printf(out, "  and %d more pairs\n", found - MAX_PAIRS);
    }
    return found;
}

static const char *group_words(int g)
{
    static const char *const words[] = {
#define X(id, name, text) text,
        NT_GROUPS(X)
#undef X
    };
    return words[g];
}

static void diff_group(const struct nt_topology *a, const struct nt_topology *b, enum nt_group g,
                       struct nt_buf *out)
{
    struct nt_buf ta, tb;

    nt_buf_init(&ta, TEXT_MAX);
    nt_buf_init(&tb, TEXT_MAX);
    nt_group_describe(a, g, &ta);
    nt_group_describe(b, g, &tb);
    nt_buf_printf(out, "%s differ:\n", group_words((int)g));
    if (differing_lines(&ta, &tb, out) == 0) {
        nt_buf_puts(out, "  the same parts, arranged differently\n");
    }
    if (g == NT_G_NVLINK && a->ngpus == b->ngpus) {
        (void)differing_pairs(a, b, out);
    }
    nt_buf_done(&ta);
    nt_buf_done(&tb);
}

/* Findings of one that the other has not. */
static void diff_health(const struct nt_topology *a, char letter, const struct nt_topology *b,
                        struct nt_buf *out)
{
    for (int i = 0; i < a->nfindings; i++) {
        bool both = false;
        for (int j = 0; j < b->nfindings && !both; j++) {
            both = a->findings[i].kind == b->findings[j].kind &&
                   strcmp(a->findings[i].text, b->findings[j].text) == 0;
        }
        if (!both && a->findings[i].kind != NT_F_NOTE) {
            nt_buf_printf(out, "  only %c: %s\n", letter, a->findings[i].text);
        }
    }
}

bool nt_topology_diff(const struct nt_topology *a, const char *name_a, const struct nt_topology *b,
                      const char *name_b, struct nt_buf *out)
{
    uint32_t compared, differ = nt_identity_compare(&a->identity, &b->identity, &compared);
    uint32_t skipped = (a->known | b->known) & ~compared;
    char mask[160];
    struct nt_buf more;

    nt_buf_printf(out, "A: %s\nB: %s\n", name_a, name_b);
    if (compared == 0) {
        nt_buf_puts(out, "cannot be compared: no group of facts is known to both\n");
    } else {
        nt_buf_printf(out, "%s: ", differ == 0 ? "the same machine" : "different machines");
        nt_buf_printf(out, "compared %s", nt_group_mask_text(compared, mask, sizeof(mask)));
        if (differ != 0) {
            nt_buf_printf(out, "; different in %s", nt_group_mask_text(differ, mask, sizeof(mask)));
        }
        nt_buf_puts(out, "\n");
    }
    for (int g = 0; g < NT_GROUP_COUNT; g++) {
        if ((differ >> g & 1) != 0) {
            diff_group(a, b, (enum nt_group)g, out);
        }
    }
    nt_buf_init(&more, TEXT_MAX);
    if (((compared & ~differ) >> NT_G_NVLINK & 1) != 0 && differing_pairs(a, b, &more) > 0) {
        nt_buf_printf(out, "the GPUs are numbered differently:\n%s", nt_buf_str(&more));
    }
    if (skipped != 0) {
        nt_buf_printf(out, "known to one only, not compared: %s\n",
                      nt_group_mask_text(skipped, mask, sizeof(mask)));
    }
    nt_buf_clear(&more);
    diff_health(a, 'A', b, &more);
    diff_health(b, 'B', a, &more);
    if (more.len > 0) {
        nt_buf_printf(out, "health differs:\n%s", nt_buf_str(&more));
    }
    nt_buf_done(&more);
    return differ == 0 && compared != 0;
}
