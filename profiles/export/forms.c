/* Forms that are more than one line a variable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "profiles/export/plan.h"
#include "tuner/base/json.h"

static json_t *vars_json(const struct nt_plan *plan)
{
    json_t *o = json_object();
    for (size_t i = 0; i < plan->n; i++) {
        json_object_set_new(o, plan->vars[i].name, json_string(plan->vars[i].value));
    }
    return o;
}

static int dump(json_t *o, struct nt_buf *out, struct nt_err *err)
{
    if (o == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "export");
    }
    nt_json_dump(o, true, out);
    nt_buf_puts(out, "\n");
    json_decref(o);
    return 0;
}

int nt_form_json(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err)
{
    const struct nt_profile *p = plan->p;
    char text[24];
    json_t *o = json_pack(
        "{s:s, s:i, s:s, s:s, s:b, s:s, s:I, s:I, s:s, s:s, s:o}", "format", "nccltune-export",
        "version", 1, "product", nt_product_names[plan->product], "rig", nt_rig_names[p->rig],
        "functional", p->rig != NT_RIG_NCCL, "identity",
        p->identity.id != NULL ? p->identity.id : "", "ranks", (json_int_t)p->ranks, "nodes",
        (json_int_t)p->nodes, "measured_with_nccl", p->stack.nccl, "written_for_nccl",
        nt_nccl_version_text(plan->version, text, sizeof(text)), "env", vars_json(plan));
    if (o != NULL && plan->table) {
        json_object_set_new(o, "delivery",
                            json_pack("{s:s, s:s}", "hash", plan->hash, "path", plan->path));
    }
    return dump(o, out, err);
}

/* Every value is a string: Ray refuses numbers. JSON has no comments, so the provenance is the hash
 * in NCCLTUNE_PROFILE. */
int nt_form_ray(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err)
{
    if (plan->table) {
        nt_buf_puts(plan->notes,
                    "ray: JSON has no comments: profile, machine and stack are not in the form\n");
    }
    return dump(json_pack("{s:o}", "env_vars", vars_json(plan)), out, err);
}

/* ---- Kubernetes ---- */

static void base64(const void *data, size_t len, struct nt_buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *d = data;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        unsigned v = (unsigned)d[i] << 16 | (n > 1 ? (unsigned)d[i + 1] << 8 : 0) |
                     (n > 2 ? (unsigned)d[i + 2] : 0);
        char text[4] = {digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
                        n > 2 ? digits[v & 63] : '='};
        nt_buf_add(out, text, 4);
    }
}

/* The plugin refuses a symbolic link, and a ConfigMap's files are links unless subPath mounts them
 * one by one. */
static void pod_snippet(const struct nt_plan *plan, const char *name, struct nt_buf *out)
{
    nt_buf_puts(out, "# What the pod needs; the image holds the plugin.\n"
                     "# spec:\n"
                     "#   containers:\n"
                     "#   - name: worker\n"
                     "#     envFrom:\n"
                     "#     - configMapRef:\n");
    nt_buf_printf(out, "#         name: %s\n", name);
    if (plan->table) {
        nt_buf_printf(out,
                      "#     volumeMounts:\n"
                      "#     - name: nccltune\n"
                      "#       mountPath: %s\n"
                      "#       subPath: %s.nctable\n"
                      "#       readOnly: true\n"
                      "#   volumes:\n"
                      "#   - name: nccltune\n"
                      "#     configMap:\n"
                      "#       name: %s\n"
                      "#       defaultMode: 0444\n",
                      plan->path, plan->hash, name);
    }
}

int nt_form_k8s(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err)
{
    const struct nt_profile *p = plan->p;
    char name[32], hash[65];
    struct nt_buf bytes;
    int rc = 0;

    (void)snprintf(name, sizeof(name), "nccltune-%.12s", plan->hash);
    nt_plan_header(plan, "# ", out);
    nt_buf_printf(out,
                  "apiVersion: v1\n"
                  "kind: ConfigMap\n"
                  "metadata:\n"
                  "  name: %s\n"
                  "  labels:\n"
                  "    app.kubernetes.io/managed-by: nccltune\n"
                  "    nccltune/rig: \"%s\"\n"
                  "    nccltune/identity: \"%s\"\n"
                  "    nccltune/nccl: \"%s\"\n"
                  "immutable: true\n",
                  name, nt_rig_names[p->rig], p->identity.id != NULL ? p->identity.id : "",
                  p->stack.nccl);
    nt_buf_puts(out, plan->n > 0 ? "data:\n" : "data: {}\n");
    for (size_t i = 0; i < plan->n; i++) { /* quoted: "0" and "on" stay texts */
        nt_plan_reason(plan, plan->vars[i].name, "  # ", out);
        nt_buf_printf(out, "  %s: \"%s\"\n", plan->vars[i].name, plan->vars[i].value);
    }
    if (plan->table) {
        nt_buf_init(&bytes, NT_PROFILE_MAX_BYTES);
        rc = nt_profile_delivery(p, plan->product, &bytes, hash, err);
        nt_buf_printf(out, "binaryData:\n  %s.nctable: \"", plan->hash);
        base64(bytes.data, bytes.len, out);
        nt_buf_puts(out, "\"\n");
        nt_buf_done(&bytes);
    }
    pod_snippet(plan, name, out);
    return rc;
}

/* ---- NVIDIA's example tuner ---- */

int nt_form_csv(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err)
{
    /* The plugin's own spellings; anything else it takes silently for all_reduce, ring, simple. */
    static const char *const colls[NT_TUNER_COLLS] = {"broadcast", "reduce", "allgather",
                                                      "reducescatter", "allreduce"};
    const struct nt_profile_rows *rows = &plan->p->product[NT_TABLE].rows;
    bool one_channel = false;
    (void)err;

    nt_plan_header(plan, "# ", out);
    nt_plan_needs(plan, "# ", out);
    nt_buf_puts(out, "# collective,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks,"
                     "numPipeOps,regBuff\n");
    for (size_t i = 0; i < rows->n; i++) {
        const struct nt_profile_row *r = &rows->v[i];
        unsigned channels;
        if (r->algo < 0) {
            nt_buf_printf(plan->notes,
                          "row %zu: asks for channels only, which this form cannot "
                          "say; left out\n",
                          i);
            continue;
        }
        if (r->chunk_bytes > 0) { /* without it, it is a setting that nobody has measured */
            nt_buf_printf(plan->notes,
                          "row %zu: asks for a chunk size, for which this form has no column; "
                          "left out\n",
                          i);
            continue;
        }
        /* -1 would mean one channel there: what was seen executed says the same as no limit */
        channels = r->channels > 0 ? r->channels : r->executed_channels;
        one_channel = one_channel || channels == 0;
        nt_buf_printf(out, "%s,%llu,%llu,%s,%s,%d,%u,%u,1,%d\n", colls[r->coll],
                      (unsigned long long)r->min_bytes, (unsigned long long)r->max_bytes,
                      nt_algo_names[r->algo], nt_proto_names[r->proto],
                      channels > 0 ? (int)channels : -1, plan->p->nodes, plan->p->ranks,
                      r->reg_buff);
    }
    nt_buf_puts(plan->notes,
                "tuner-csv: NVIDIA's example plugin runs calls that match no row on one channel, "
                "and checks no hash across ranks; the table (env, nccl-conf, k8s) does neither\n");
    if (one_channel) {
        nt_buf_puts(plan->notes, "tuner-csv: rows that leave the channels to NCCL (-1) run on one "
                                 "channel in that plugin\n");
    }
    if (plan->version < NT_V(2, 27, 5)) {
        nt_buf_puts(plan->notes, "tuner-csv: the example plugin reads CSV from NCCL 2.27.5 on\n");
    }
    return 0;
}
