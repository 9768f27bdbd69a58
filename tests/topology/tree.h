/* tree - XML as elements that a test can change and write out again. Limits are the tests' own. */
#pragma once
#include <stddef.h>
#include "tuner/base/buf.h"

struct element {
    char name[16];
    struct {
        char name[24], value[128];
    } attr[16];
    int nattrs;
    struct element *kids[64];
    int nkids;
};

struct element *tree_parse(const char *text, size_t len); /* NULL when it is none */
struct element *tree_load(const char *path);
void tree_free(struct element *e);
void tree_write(const struct element *e, struct nt_buf *out);
char *tree_attr(struct element *e,
                const char *name); /* to be changed in place; NULL when not there */
void tree_set(struct element *e, const char *name, const char *value);
void tree_drop_attr(struct element *e, const char *name);
/* The nth element of that name in document order, NULL when there are fewer. */
struct element *tree_find(struct element *e, const char *name, int nth);
/* Takes kid k out and frees it. */
void tree_drop_kid(struct element *e, int k);
void tree_each(struct element *e, void (*visit)(struct element *, void *), void *arg);
