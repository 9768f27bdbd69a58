/* topo: the machine as NCCL sees it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tuner/base/json.h"
#include "tuner/cli/commands.h"
#include "tuner/deliver/machine.h"
#include "tuner/topology/topology.h"

enum { UNASKED_COST = 2000 }; /* subsets looked at without being asked: a millisecond */

struct topo_args {
    bool diff, machine;
    const char *format, *root, *nvml;
    uint32_t ranks;
};

static const char *const formats[] = {"text", "json", NULL};

static const struct nt_opt topo_opts[] = {
    NT_OPT(NT_O_FLAG, topo_args, diff, "diff", 0, NULL,
           "compare two machines; exit code 1 when they are different"),
    NT_OPT(NT_O_FLAG, topo_args, machine, "machine", 0, NULL,
           "as JSON, what a profile is held against: identity, health, driver, kernel, GPUs"),
    {.name = "format",
     .type = NT_O_STR,
     .offset = offsetof(struct topo_args, format),
     .arg = "FORMAT",
     .help = "output, text by default",
     .choices = formats},
    NT_OPT_SOME(NT_O_U32, topo_args, ranks, "ranks", 'n', "COUNT",
                "placement classes of this many GPUs (default: of a few usual counts)"),
    NT_OPT(NT_O_STR, topo_args, root, "root", 0, "DIR",
           "folder that holds the sys and proc of the machine (default: /)"),
    NT_OPT(NT_O_STR, topo_args, nvml, "nvml", 0, "LIBRARY",
           "NVML library (default: libnvidia-ml.so.1)"),
    {0},
};

/* "-" is the standard input, "live" or no name this machine. */
static int read_one(const struct topo_args *a, const char *name, struct nt_topology **ret,
                    struct nt_err *err)
{
    if (name == NULL || strcmp(name, "live") == 0) {
        return nt_topology_read_live(&(struct nt_live_opts){.root = a->root, .nvml = a->nvml}, ret,
                                     err);
    }
    return nt_topology_read_file(name, ret, err);
}

static int columns(void)
{
    struct winsize w;
    const char *env = getenv("COLUMNS");
    int n = env != NULL ? (int)strtol(env, NULL, 10) : 0;

    if (n == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0) {
        n = w.ws_col;
    }
    return n < 80 || n > 100 ? 100 : n;
}

/* ---- placement classes ---- */

/* GPU counts to show: the one asked for; else all up to 4, then powers of two, and all GPUs. */
static bool wanted(const struct topo_args *a, int n, int ngpus)
{
    if (a->ranks > 0) {
        return (uint32_t)n == a->ranks;
    }
    return n > 1 && ngpus <= 16 && (n <= 4 || (n & (n - 1)) == 0 || n == ngpus);
}

static void print_gpus(const struct nt_topology *t, const struct nt_placement *p,
                       struct nt_buf *out)
{
    for (int i = 0; i < p->ngpus && i < 16; i++) {
        char label[16];
        nt_buf_printf(out, "%s%s", i > 0 ? "," : "",
                      nt_gpu_label(t, p->gpus[i], label, sizeof(label)) + strlen("GPU"));
    }
    nt_buf_puts(out, p->ngpus > 16 ? ",…" : "");
}

static void print_class(const struct nt_topology *t, const struct nt_placement *p,
                        struct nt_buf *out)
{
    nt_buf_printf(out, "  %s  %s: GPU ", p->key, p->text);
    print_gpus(t, p, out);
    if (p->subsets == UINT64_MAX) {
        nt_buf_puts(out, " and very many more\n");
    } else if (p->subsets > 1) {
        nt_buf_printf(out, " and %llu more\n", (unsigned long long)p->subsets - 1);
    } else {
        nt_buf_puts(out, "\n");
    }
}

static int print_classes(const struct topo_args *a, const struct nt_topology *t, struct nt_buf *out,
                         struct nt_err *err)
{
    int rc = 0;

    for (int n = 1; n <= t->ngpus && rc == 0; n++) {
        struct nt_placements all = {0};
        if (!wanted(a, n, t->ngpus)) {
            continue;
        }
        if (a->ranks == 0 && nt_placements_cost(t, n) > UNASKED_COST) {
            nt_buf_printf(out, "%d of %d GPUs: many placement classes: --ranks %d\n", n, t->ngpus,
                          n);
            continue;
        }
        rc = nt_placements_find(t, n, &all, err);
        if (rc != 0) {
            return rc;
        }
        nt_buf_printf(out, "%d of %d GPUs: %d placement class%s%s\n", n, t->ngpus, all.n,
                      all.n == 1 ? "" : "es",
                      (t->known >> NT_G_NVLINK & 1) != 0 ? "" : " by PCIe alone");
        for (int i = 0; i < all.n && (a->ranks > 0 || i < 6); i++) {
            print_class(t, &all.v[i], out);
        }
        if (a->ranks == 0 && all.n > 6) {
            nt_buf_printf(out, "  and %d more: --ranks %d\n", all.n - 6, n);
        }
        nt_placements_done(&all);
    }
    return rc;
}

static json_t *class_json(const struct nt_topology *t, const struct nt_placement *p)
{
    json_t *gpus = json_array();
    for (int i = 0; i < p->ngpus; i++) {
        char label[16];
        (void)json_array_append_new(gpus,
                                    json_string(nt_gpu_label(t, p->gpus[i], label, sizeof(label))));
    }
    return json_pack(
        "{s:s, s:s, s:o, s:o}", "key", p->key, "text", p->text, "gpus", gpus, "subsets",
        p->subsets >= (uint64_t)INT64_MAX ? json_null() : json_integer((json_int_t)p->subsets));
}

static int classes_json(const struct topo_args *a, const struct nt_topology *t, json_t *root,
                        struct nt_err *err)
{
    json_t *sizes = json_object();
    int rc = 0;

    for (int n = 1; n <= t->ngpus && rc == 0; n++) {
        struct nt_placements all = {0};
        json_t *list;
        char key[16];
        if (!wanted(a, n, t->ngpus) || (a->ranks == 0 && nt_placements_cost(t, n) > UNASKED_COST)) {
            continue;
        }
        rc = nt_placements_find(t, n, &all, err);
        list = json_array();
        for (int i = 0; i < all.n; i++) {
            (void)json_array_append_new(list, class_json(t, &all.v[i]));
        }
        (void)snprintf(key, sizeof(key), "%d", n);
        (void)json_object_set_new(sizes, key, list);
        nt_placements_done(&all);
    }
    (void)json_object_set_new(root, "placements", sizes);
    return rc;
}

/* ---- output ---- */

static void print_summary(const struct nt_topology *t, struct nt_buf *out)
{
    char mask[160];

    nt_buf_printf(out, "identity %s (%s; from %s)\n", t->identity.name,
                  nt_group_mask_text(t->known, mask, sizeof(mask)),
                  nt_topo_source_names[t->source]);
    nt_buf_puts(out, nt_topology_healthy(t) ? "healthy\n" : "unhealthy:\n");
    for (int i = 0; i < t->nfindings; i++) {
        nt_buf_printf(out, "  %s%s\n",
                      t->findings[i].unhealthy ? "" : "note: ", t->findings[i].text);
    }
}

static int write_out(struct nt_buf *out, struct nt_err *err)
{
    if (out->failed) {
        return nt_fail(err, NT_E_NOMEM, 0, "topo");
    }
    if (fwrite(nt_buf_str(out), 1, out->len, stdout) != out->len || fflush(stdout) != 0) {
        return nt_fail(err, NT_E_IO, 0, "cannot write the output");
    }
    return 0;
}

static int show(const struct topo_args *a, const char *name, struct nt_buf *out, struct nt_err *err)
{
    struct nt_topology *t = NULL;
    int rc = read_one(a, name, &t, err);

    if (rc != 0) {
        return rc;
    }
    if (a->ranks > (uint32_t)t->ngpus) {
        rc = nt_fail(err, NT_E_INVAL, 0, "--ranks %u: the machine has %d GPUs", a->ranks, t->ngpus);
    } else if (strcmp(a->format, "json") == 0) {
        json_t *o = nt_topology_json(t);
        rc = o == NULL ? nt_fail(err, NT_E_NOMEM, 0, "topo") : classes_json(a, t, o, err);
        if (rc == 0) {
            nt_json_dump(o, true, out);
            nt_buf_puts(out, "\n");
        }
        json_decref(o);
    } else {
        nt_topology_draw(t, columns(), out);
        nt_buf_puts(out, "\n");
        print_summary(t, out);
        rc = print_classes(a, t, out, err);
    }
    nt_topology_free(t);
    return rc != 0 ? rc : write_out(out, err);
}

/* ---- comparison ---- */

static json_t *names_of(uint32_t mask)
{
    json_t *list = json_array();
    for (int g = 0; g < NT_GROUP_COUNT; g++) {
        if ((mask >> g & 1) != 0) {
            (void)json_array_append_new(list, json_string(nt_group_names[g]));
        }
    }
    return list;
}

static json_t *side_json(const char *name, const struct nt_topology *t)
{
    return json_pack("{s:s, s:o, s:b}", "name", name, "identity", nt_identity_json(&t->identity),
                     "healthy", (int)nt_topology_healthy(t));
}

static void diff_json(const char *name_a, const struct nt_topology *a, const char *name_b,
                      const struct nt_topology *b, const char *words, struct nt_buf *out)
{
    uint32_t compared, differ = nt_identity_compare(&a->identity, &b->identity, &compared);
    json_t *o =
        json_pack("{s:b, s:o, s:o, s:o, s:o, s:s}", "match", (int)(differ == 0 && compared != 0),
                  "compared", names_of(compared), "differ", names_of(differ), "a",
                  side_json(name_a, a), "b", side_json(name_b, b), "text", words);

    nt_json_dump(o, true, out);
    nt_buf_puts(out, "\n");
    json_decref(o);
}

static int compare(const struct topo_args *a, char **names, struct nt_buf *out, struct nt_err *err)
{
    struct nt_topology *x = NULL, *y = NULL;
    struct nt_buf words;
    bool match = false;
    int rc = read_one(a, names[0], &x, err);

    nt_buf_init(&words, 16U << 20);
    if (rc == 0) {
        rc = read_one(a, names[1], &y, err);
    }
    if (rc == 0) {
        match = nt_topology_diff(x, names[0], y, names[1], &words);
        if (strcmp(a->format, "json") == 0) {
            diff_json(names[0], x, names[1], y, nt_buf_str(&words), out);
        } else {
            nt_buf_puts(out, nt_buf_str(&words));
        }
        rc = write_out(out, err);
    }
    nt_buf_done(&words);
    nt_topology_free(x);
    nt_topology_free(y);
    return rc != 0 ? rc : match ? 0 : -NT_E_NO;
}

/* The class of any `ranks` of its GPUs, where they are all alike. */
static const char *class_of_any(const struct nt_topology *t, uint32_t ranks, char *out, size_t size)
{
    struct nt_placements all = {0};

    out[0] = '\0';
    if (ranks > 0 && ranks < (uint32_t)t->ngpus &&
        nt_placements_cost(t, (int)ranks) <= UNASKED_COST &&
        nt_placements_find(t, (int)ranks, &all, NULL) == 0 && all.n == 1) {
        (void)snprintf(out, size, "%s", all.v[0].key);
    }
    nt_placements_done(&all);
    return out;
}

/* A machine without GPUs has a kernel and a name all the same. */
static int machine(const struct topo_args *a, struct nt_buf *out, struct nt_err *err)
{
    struct nt_machine m;
    char class[32];
    json_t *o;

    nt_machine_read(&(struct nt_machine_opts){.root = a->root, .nvml = a->nvml}, NULL, &m);
    o = nt_machine_json(&m);
    if (o != NULL && m.topology != NULL) {
        (void)json_object_set_new(o, "gpus", json_integer(m.topology->ngpus));
        (void)json_object_set_new(
            o, "placement", json_string(class_of_any(m.topology, a->ranks, class, sizeof(class))));
    }
    nt_json_dump(o, false, out);
    nt_buf_puts(out, "\n");
    json_decref(o);
    nt_machine_done(&m);
    return write_out(out, err);
}

static int run_topo(const void *opts, unsigned nargs, char **args, struct nt_err *err)
{
    const struct topo_args *a = opts;
    struct nt_buf out;
    int rc;

    if (a->machine && (nargs > 0 || a->diff)) {
        return nt_fail(err, NT_E_INVAL, 0, "topo --machine is about this one, and takes no file");
    }
    if (a->diff ? nargs != 2 : nargs > 1) {
        return nt_fail(err, NT_E_INVAL, 0,
                       a->diff ? "topo --diff takes two files (or live)"
                               : "topo takes one file; two with --diff");
    }
    nt_buf_init(&out, 64U << 20);
    rc = a->diff      ? compare(a, args, &out, err)
         : a->machine ? machine(a, &out, err)
                      : show(a, nargs > 0 ? args[0] : NULL, &out, err);
    nt_buf_done(&out);
    return rc;
}

const struct nt_command nt_cmd_topo = {
    .name = "topo",
    .summary = "the machine as NCCL sees it: drawing, identity, health, placement classes",
    .args = "[FILE] | --diff FILE FILE",
    .min_args = 0,
    .max_args = 2,
    .opts = topo_opts,
    .defaults = &(const struct topo_args){.format = "text"},
    .size = sizeof(struct topo_args),
    .run = run_topo,
    .details = "FILE is an NCCL topology XML (NCCL_TOPO_DUMP_FILE, NCCL_TOPO_FILE) or the text of "
               "`nvidia-smi topo -m`; '-' reads the standard input, 'live' is this machine.\n\n"
               "The identity is equal for equal machines whatever their bus numbers and names; "
               "health names what makes an equal machine slower or unsafe. Sources know different "
               "facts: two identities are compared over what both know.",
};
