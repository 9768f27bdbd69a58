/* The ways out of a profile that need no export form: the delivery file, and the commands that
 * check a class without this project. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiles/format/table.h"
#include "profiles/json/profile.h"
#include "tuner/base/text.h"

static struct nt_table_row table_row(const struct nt_profile *p, const struct nt_profile_row *r)
{
    const struct nt_call call = nt_profile_row_call(r);
    return (struct nt_table_row){
        .min_bytes = r->min_bytes,
        .max_bytes = r->max_bytes,
        .nranks = p->ranks,
        .nnodes = p->nodes,
        .chunk_bytes = call.chunk_bytes,
        .channels = call.channels,
        .coll = (uint8_t)r->coll,
        .reg_buff = (uint8_t)(r->reg_buff < 0    ? NT_TABLE_REG_ANY
                              : r->reg_buff == 0 ? NT_TABLE_REG_NO
                                                 : NT_TABLE_REG_YES),
        .algo = call.algo,
        .proto = call.proto,
    };
}

int nt_profile_delivery(const struct nt_profile *p, enum nt_product product, struct nt_buf *out,
                        char hash[65], struct nt_err *err)
{
    const struct nt_profile_product *pr = &p->product[product];
    size_t nrows = product == NT_TABLE ? pr->rows.n : 0, size = 0;
    struct nt_table_var *vars = calloc(pr->vars.n + 1, sizeof(*vars));
    struct nt_table_row *rows = calloc(nrows + 1, sizeof(*rows));
    uint8_t *data = NULL;
    struct nt_why why = {""};
    int rc = 0;

    if (vars == NULL || rows == NULL) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "delivery file");
        goto out;
    }
    for (size_t i = 0; i < pr->vars.n; i++) {
        vars[i] = (struct nt_table_var){.name = pr->vars.v[i].name, .value = pr->vars.v[i].value};
    }
    for (size_t i = 0; i < nrows; i++) {
        rows[i] = table_row(p, &pr->rows.v[i]);
    }
    if (nt_table_write(product == NT_TABLE ? NT_TABLE_TABLE : NT_TABLE_STATIC, vars, pr->vars.n,
                       rows, nrows, &data, &size, hash, &why) != 0) {
        rc = nt_fail(err, NT_E_INVAL, 0, "delivery file: %s", why.text);
        goto out;
    }
    nt_buf_add(out, data, size);
    rc = out->failed ? nt_fail(err, NT_E_NOMEM, 0, "delivery file") : 0;
out:
    free(vars);
    free(rows);
    free(data);
    return rc;
}

int nt_profile_write_delivery(const struct nt_profile *p, enum nt_product product, const char *dir,
                              char *path, size_t path_size, struct nt_err *err)
{
    struct nt_buf bytes;
    char hash[65];
    int rc;

    nt_buf_init(&bytes, NT_PROFILE_MAX_BYTES);
    rc = nt_profile_delivery(p, product, &bytes, hash, err);
    if (rc == 0 && (size_t)snprintf(path, path_size, "%s/%s.nctable", dir, hash) >= path_size) {
        rc = nt_fail(err, NT_E_INVAL, 0, "%s: path too long", dir);
    }
    if (rc == 0) { /* the plugin refuses a file that others may write */
        rc = nt_write_file(path, bytes.data, bytes.len, 0644, err);
    }
    nt_buf_done(&bytes);
    return rc;
}

/* ---- reproduce ---- */

/* Names of nccl-tests' programs and types; NULL: it has none. */
static const char *const programs[NT_COLL_COUNT] = {
    [NT_BROADCAST] = "broadcast_perf",   [NT_REDUCE] = "reduce_perf",
    [NT_ALL_GATHER] = "all_gather_perf", [NT_REDUCE_SCATTER] = "reduce_scatter_perf",
    [NT_ALL_REDUCE] = "all_reduce_perf", [NT_ALLTOALL] = "alltoall_perf",
    [NT_SENDRECV] = "sendrecv_perf"};
static const struct {
    const char *ours, *theirs;
} types[] = {{"bf16", "bfloat16"},
             {"fp32", "float"},
             {"fp16", "half"},
             {"int32", "int32"},
             {"fp8", "f8e4m3"}};
/* -z 1: one call at a time, as eager; -G: one graph of all iterations, launched several times. */
static const char *const mode_flags[NT_MODE_COUNT] = {
    [NT_EAGER] = " -z 1", [NT_STREAM] = "", [NT_GRAPH] = " -G 20"};

static const char *type_of(const struct nt_profile *p)
{
    for (size_t i = 0; p->dtypes.n > 0 && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(p->dtypes.v[0], types[i].ours) == 0) {
            return types[i].theirs;
        }
    }
    return "float";
}

/* mpirun's own -x carries a variable to every rank; a value with other than plain characters is
 * quoted for the shell. */
static void pass(struct nt_buf *out, const char *name, const char *value)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "_./:,^+-";

    nt_buf_printf(out, " -x %s=", name);
    if (value[strspn(value, plain)] == '\0' && value[0] != '\0') {
        nt_buf_puts(out, value);
    } else {
        nt_buf_put_quoted(out, value);
    }
}

static void pass_all(struct nt_buf *out, const struct nt_assigns *list)
{
    for (size_t i = 0; i < list->n; i++) {
        pass(out, list->v[i].name, list->v[i].value);
    }
}

static void launch(const struct nt_profile *p, struct nt_buf *out)
{
    nt_buf_printf(out, "mpirun -np %u", p->ranks);
    if (p->nodes > 1) {
        nt_buf_printf(out, " --map-by ppr:%u:node", p->ranks / p->nodes);
    }
    pass_all(out, &p->site);
}

static void measure(const struct nt_profile *p, const struct nt_profile_class *c,
                    struct nt_buf *out)
{
    nt_buf_printf(out, " %s -b %llu -e %llu -d %s -g 1 -w 20 -n %d -a 3 -c 1%s", programs[c->coll],
                  (unsigned long long)c->bytes, (unsigned long long)c->bytes, type_of(p),
                  c->bytes > (16U << 20) ? 20 : 200, mode_flags[c->mode]);
}

/* What a row asks for, in variables that NCCL itself reads: the per-function form of ALGO and
 * PROTO. One size a command, so that other sizes are not touched. */
static void pass_row(const struct nt_profile *p, const struct nt_profile_row *r, struct nt_buf *out)
{
    char value[64], channels[16];
    unsigned version = 0;
    bool per_function =
        nt_nccl_version_parse(p->stack.nccl, &version, NULL) == 0 && version >= NT_V(2, 24, 3);

    if (r->algo >= 0) {
        const char *function = per_function ? nt_nccl_functions[r->coll] : "";
        const char *colon = per_function ? ":" : "";
        (void)snprintf(value, sizeof(value), "%s%s%s", function, colon, nt_nccl_algos[r->algo]);
        pass(out, "NCCL_ALGO", value);
        (void)snprintf(value, sizeof(value), "%s%s%s", function, colon, nt_nccl_protos[r->proto]);
        pass(out, "NCCL_PROTO", value);
    }
    if (r->channels > 0) {
        (void)snprintf(channels, sizeof(channels), "%u", r->channels);
        pass(out, "NCCL_MAX_NCHANNELS", channels);
    }
}

void nt_profile_reproduce(const struct nt_profile *p, enum nt_product product,
                          const struct nt_profile_class *c, const char *plugin, const char *table,
                          struct nt_buf *without, struct nt_buf *with)
{
    const struct nt_profile_row *r =
        product == NT_TABLE ? nt_profile_decide(p, c->coll, c->bytes) : NULL;
    bool delivered;

    launch(p, without);
    pass(without, "NCCL_TUNER_PLUGIN", "none");
    measure(p, c, without);

    launch(p, with);
    pass_all(with, &p->product[product].vars);
    delivered = product == NT_TABLE && plugin != NULL && table != NULL;
    if (delivered) {
        pass(with, "NCCL_TUNER_PLUGIN", plugin);
        pass(with, "NCCLTUNE_PROFILE", p->delivery.hash != NULL ? p->delivery.hash : "");
        pass(with, "NCCLTUNE_TABLE", table);
    } else {
        pass(with, "NCCL_TUNER_PLUGIN", "none");
        if (r != NULL) {
            pass_row(p, r, with);
        }
    }
    measure(p, c, with);
    if (!delivered && r != NULL && r->chunk_bytes > 0) {
        nt_buf_printf(with, " # without the row's chunk of %llu bytes, which takes the plugin",
                      (unsigned long long)r->chunk_bytes);
    }
}
