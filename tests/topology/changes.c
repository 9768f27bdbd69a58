#include "tests/topology/changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void renumber_visit(struct element *e, void *arg)
{
    char *bus = tree_attr(e, strcmp(e->name, "pci") == 0 ? "busid" : "target");
    unsigned d, b, s, f;
    (void)arg;
    if (bus != NULL && strncmp(bus, "fff", 3) != 0 &&
        sscanf(bus, "%x:%x:%x.%x", &d, &b, &s, &f) == 4) {
        (void)snprintf(bus, 24, "%04x:%02x:%02x.%x", d, b ^ 0x81U, s ^ 3U, f);
    }
}

static void renumber(struct element *e, struct nt_rng *rng)
{
    (void)rng;
    tree_each(e, renumber_visit, NULL);
}

static void shuffle_visit(struct element *e, void *arg)
{
    for (int i = e->nkids - 1; i > 0; i--) {
        int j = (int)nt_rng_below(arg, (uint64_t)i + 1);
        struct element *x = e->kids[i];
        e->kids[i] = e->kids[j];
        e->kids[j] = x;
    }
    for (int i = e->nattrs - 1; i > 0; i--) {
        int j = (int)nt_rng_below(arg, (uint64_t)i + 1);
        __typeof__(e->attr[0]) x = e->attr[i];
        e->attr[i] = e->attr[j];
        e->attr[j] = x;
    }
}

static void reorder(struct element *e, struct nt_rng *rng)
{
    tree_each(e, shuffle_visit, rng);
}

static void devices_visit(struct element *e, void *arg)
{
    char text[32];
    if (strcmp(e->name, "gpu") == 0 || strcmp(e->name, "net") == 0) {
        (void)snprintf(text, sizeof(text), "%d", (int)nt_rng_below(arg, 100000));
        tree_set(e, "dev", text);
        tree_set(e, "rank", text);
    }
    if (strcmp(e->name, "net") == 0) {
        (void)snprintf(text, sizeof(text), "roce%d", (int)nt_rng_below(arg, 1000));
        tree_set(e, "name", text);
        tree_set(e, "guid", "0xfeedfacecafebeef");
        tree_set(e, "port", "7");
        tree_set(e, "latency", "1.5");
    }
}

static void rename_devices(struct element *e, struct nt_rng *rng)
{
    tree_each(e, devices_visit, rng);
}

static void idle_visit(struct element *e, void *arg)
{
    (void)arg;
    if (strcmp(e->name, "pci") == 0) {
        tree_set(e, "link_speed", "2.5 GT/s PCIe");
    }
}

static void idle_links(struct element *e, struct nt_rng *rng)
{
    (void)rng;
    tree_each(e, idle_visit, NULL);
}

static void affinity_visit(struct element *e, void *arg)
{
    (void)arg;
    if (strcmp(e->name, "cpu") == 0) {
        tree_set(e, "affinity", "00000000,FFFFFFFF,00000000");
        if (tree_attr(e, "numaid") != NULL) { /* NUMA nodes counted from the other end */
            char text[24];
            (void)snprintf(text, sizeof(text), "%ld", 7 - strtol(tree_attr(e, "numaid"), NULL, 10));
            tree_set(e, "numaid", text);
        }
        if (tree_attr(e, "host_hash") != NULL) {
            char text[32];
            (void)snprintf(text, sizeof(text), "0x77%.16s", tree_attr(e, "host_hash") + 2);
            tree_set(e, "host_hash", text);
        }
    }
}

static void affinity(struct element *e, struct nt_rng *rng)
{
    (void)rng;
    tree_each(e, affinity_visit, NULL);
}

static void case_visit(struct element *e, void *arg)
{
    (void)arg;
    for (int i = 0; i < e->nattrs; i++) {
        if (strcmp(e->attr[i].name, "busid") == 0 || strcmp(e->attr[i].name, "target") == 0) {
            for (char *p = e->attr[i].value; *p != '\0'; p++) {
                *p = *p >= 'a' && *p <= 'f' ? (char)(*p - 32) : *p;
            }
        }
    }
}

static void capitals(struct element *e, struct nt_rng *rng)
{
    (void)rng;
    tree_each(e, case_visit, NULL);
}

/* A switch with nothing behind it. */
static void empty_switch(struct element *e, struct nt_rng *rng)
{
    static const char text[] = "<pci busid=\"0000:fe:00.0\" class=\"0x060400\" vendor=\"0x1000\" "
                               "device=\"0xc010\" link_width=\"8\"/>";
    struct element *cpu = tree_find(e, "cpu", 0);
    (void)rng;
    cpu->kids[cpu->nkids++] = tree_parse(text, strlen(text));
}

const struct change same_changes[] = {
    {"renumbered", renumber},       {"reordered", reorder}, {"renamed", rename_devices},
    {"idle links", idle_links},     {"affinity", affinity}, {"capitals", capitals},
    {"empty switch", empty_switch},
};
const size_t nsame_changes = sizeof(same_changes) / sizeof(same_changes[0]);
