#include "tests/topology/tree.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct builder {
    struct element *stack[80], *root;
    int depth;
    bool failed;
};

static void XMLCALL on_start(void *arg, const char *name, const char **atts)
{
    struct builder *b = arg;
    struct element *e = calloc(1, sizeof(*e));

    if (e == NULL || b->depth >= 79) {
        free(e);
        b->failed = true;
        return;
    }
    (void)snprintf(e->name, sizeof(e->name), "%s", name);
    for (; *atts != NULL && e->nattrs < 16; atts += 2, e->nattrs++) {
        (void)snprintf(e->attr[e->nattrs].name, sizeof(e->attr[0].name), "%s", atts[0]);
        (void)snprintf(e->attr[e->nattrs].value, sizeof(e->attr[0].value), "%s", atts[1]);
    }
    if (b->depth > 0) {
        struct element *up = b->stack[b->depth - 1];
        if (up->nkids < 64) {
            up->kids[up->nkids++] = e;
        } else {
            b->failed = true;
        }
    } else {
        b->root = e;
    }
    b->stack[b->depth++] = e;
}

static void XMLCALL on_end(void *arg, const char *name)
{
    (void)name;
    ((struct builder *)arg)->depth--;
}

struct element *tree_parse(const char *text, size_t len)
{
    struct builder b = {0};
    XML_Parser p = XML_ParserCreate("UTF-8");
    size_t skip = strspn(text, " \t\r\n");

    XML_SetUserData(p, &b);
    XML_SetElementHandler(p, on_start, on_end);
    if (XML_Parse(p, text + skip, (int)(len - skip), 1) == XML_STATUS_ERROR || b.failed) {
        tree_free(b.root);
        b.root = NULL;
    }
    XML_ParserFree(p);
    return b.root;
}

struct element *tree_load(const char *path)
{
    struct nt_buf b;
    struct element *e = NULL;

    nt_buf_init(&b, 1 << 20);
    if (nt_buf_read_file(&b, path, NULL) == 0) {
        e = tree_parse(nt_buf_str(&b), b.len);
    }
    nt_buf_done(&b);
    return e;
}

void tree_free(struct element *e)
{
    for (int i = 0; e != NULL && i < e->nkids; i++) {
        tree_free(e->kids[i]);
    }
    free(e);
}

void tree_write(const struct element *e, struct nt_buf *out)
{
    nt_buf_printf(out, "<%s", e->name);
    for (int i = 0; i < e->nattrs; i++) {
        nt_buf_printf(out, " %s=\"%s\"", e->attr[i].name, e->attr[i].value);
    }
    nt_buf_puts(out, e->nkids > 0 ? ">\n" : "/>\n");
    for (int i = 0; i < e->nkids; i++) {
        tree_write(e->kids[i], out);
    }
    if (e->nkids > 0) {
        nt_buf_printf(out, "</%s>\n", e->name);
    }
}

char *tree_attr(struct element *e, const char *name)
{
    for (int i = 0; e != NULL && i < e->nattrs; i++) {
        if (strcmp(e->attr[i].name, name) == 0) {
            return e->attr[i].value;
        }
    }
    return NULL;
}

void tree_set(struct element *e, const char *name, const char *value)
{
    char *old = tree_attr(e, name);
    if (old == NULL && e->nattrs < 16) {
        (void)snprintf(e->attr[e->nattrs].name, sizeof(e->attr[0].name), "%s", name);
        old = e->attr[e->nattrs++].value;
    }
    (void)snprintf(old, sizeof(e->attr[0].value), "%s", value);
}

void tree_drop_attr(struct element *e, const char *name)
{
    for (int i = 0; i < e->nattrs; i++) {
        if (strcmp(e->attr[i].name, name) == 0) {
            e->attr[i] = e->attr[--e->nattrs];
            return;
        }
    }
}

static struct element *find(struct element *e, const char *name, int *nth)
{
    if (strcmp(e->name, name) == 0 && (*nth)-- == 0) {
        return e;
    }
    for (int i = 0; i < e->nkids; i++) {
        struct element *found = find(e->kids[i], name, nth);
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

struct element *tree_find(struct element *e, const char *name, int nth)
{
    return find(e, name, &nth);
}

void tree_drop_kid(struct element *e, int k)
{
    tree_free(e->kids[k]);
    e->nkids--;
    memmove(&e->kids[k], &e->kids[k + 1], (size_t)(e->nkids - k) * sizeof(struct element *));
}

void tree_each(struct element *e, void (*visit)(struct element *, void *), void *arg)
{
    visit(e, arg);
    for (int i = 0; i < e->nkids; i++) {
        tree_each(e->kids[i], visit, arg);
    }
}
