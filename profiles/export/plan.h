/* What an export says, before it has a form. */
#pragma once
#include "profiles/export/export.h"

enum { NT_PLAN_VARS = 256 + 3 }; /* a delivery file holds 256 */

struct nt_plan {
    const struct nt_profile *p;
    const struct nt_export_options *options;
    enum nt_product product;
    unsigned version; /* release written for */
    struct nt_assign vars[NT_PLAN_VARS];
    size_t n;
    bool table;     /* the table product with rows: plugin, hash and path are in vars */
    char hash[65];  /* of the product's delivery file */
    char path[512]; /* NCCLTUNE_TABLE */
    const char *plugin;
    struct nt_buf *notes;
};

/* `p` was checked when it was read. */
NT_MUST_CHECK int nt_plan_make(struct nt_plan *plan, const struct nt_profile *p,
                               const struct nt_export_format *format,
                               const struct nt_export_options *options, struct nt_buf *notes,
                               struct nt_err *err);

/* Header lines and the reason of a variable, each a line behind `mark`; free of '=' and of
 * backslashes, which some consumers read even in a comment. */
void nt_plan_header(const struct nt_plan *plan, const char *mark, struct nt_buf *out);
void nt_plan_reason(const struct nt_plan *plan, const char *name, const char *mark,
                    struct nt_buf *out);
/* Comment lines: the variables that rows in a form without any need. */
void nt_plan_needs(const struct nt_plan *plan, const char *mark, struct nt_buf *out);

/* Forms that are more than one line a variable. */
int nt_form_json(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err);
int nt_form_ray(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err);
int nt_form_k8s(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err);
int nt_form_sglang(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err);
int nt_form_vllm(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err);
int nt_form_csv(const struct nt_plan *plan, struct nt_buf *out, struct nt_err *err);
