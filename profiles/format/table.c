#include "profiles/format/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "profiles/format/table_private.h"

/* Names that reach into other files or decide which process is asked: never from a profile. */
static const char *const forbidden_ends[] = {"_PLUGIN", "_FILE", "_SO_PATH", "HOSTID", "COMM_ID"};
/* What a profile may set at all; the exact list is the tunables' and is held against them before a
 * file is written. */
static const char *const prefixes[] = {"NCCL_",   "TORCH_NCCL_", "TORCH_SYMM_MEM_",
                                       "SGLANG_", "VLLM_",       "NVSHMEM_"};
/* These would mask the rows of a table. */
static const char *const masking[] = {"NCCL_ALGO", "NCCL_PROTO", "NCCL_THREAD_THRESHOLDS"};
/* Never answered, so never accepted: NCCL reads them before anybody can. */
static const char debug_prefix[] = "NCCL_DEBUG";

const uint8_t nt_table_magic[8] = {'N', 'C', 'T', 'A', 'B', 'L', 'E', '\n'};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

int nt_why_fail(struct nt_why *why, const char *fmt, ...)
{
    va_list ap;
    if (why != NULL) {
        va_start(ap, fmt);
        (void)vsnprintf(why->text, sizeof(why->text), fmt, ap);
        va_end(ap);
    }
    return -1;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

int nt_table_check_var(enum nt_table_product product, const char *name, const char *value,
                       struct nt_why *why)
{
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    bool known = false;

    if (n == 0 || name[n] != '\0' || n > NT_TABLE_MAX_NAME) {
        return nt_why_fail(why, "variable '%.80s': not a name", name);
    }
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        known = known || strncmp(name, prefixes[i], strlen(prefixes[i])) == 0;
    }
    if (!known || strncmp(name, debug_prefix, sizeof(debug_prefix) - 1) == 0) {
        return nt_why_fail(why, "variable %s: a profile may not set it", name);
    }
    for (size_t i = 0; i < COUNT(forbidden_ends); i++) {
        if (ends_with(name, forbidden_ends[i])) {
            return nt_why_fail(why, "variable %s: a profile may not set it", name);
        }
    }
    for (size_t i = 0; product == NT_TABLE_TABLE && i < COUNT(masking); i++) {
        if (strcmp(name, masking[i]) == 0) {
            return nt_why_fail(why, "variable %s would mask the table", name);
        }
    }
    n = strlen(value);
    if (n == 0 || n > NT_TABLE_MAX_VALUE) {
        return nt_why_fail(why, "variable %s: value of %zu characters, 1 to %d allowed", name, n,
                           NT_TABLE_MAX_VALUE);
    }
    for (const char *c = value; *c != '\0'; c++) {
        if (*c < ' ' || *c > '~') {
            return nt_why_fail(why, "variable %s: value is not printable text", name);
        }
    }
    return 0;
}

static const char *wrong_tuple(const struct nt_table_row *r)
{
    if ((r->algo < 0) != (r->proto < 0) || r->algo < -1 || r->proto < -1) {
        return "algorithm and protocol go together";
    }
    if (r->algo >= 0 && !nt_kernel_exists(r->coll, r->algo, r->proto)) {
        return "NCCL has no such combination";
    }
    if (r->channels > NT_TABLE_MAX_CHANNELS) {
        return "too many channels";
    }
    if (r->channels > 0 && !nt_channels_safe(r->algo, r->nnodes)) {
        return "NCCL does not check channels here";
    }
    if (r->chunk_bytes > NT_TABLE_MAX_CHUNK ||
        (r->chunk_bytes > 0 && (r->algo < 0 || r->chunk_bytes % nt_proto_grain(r->proto) != 0))) {
        return "chunk is not a multiple of the protocol's grain";
    }
    if (r->algo < 0 && r->channels == 0) {
        return "asks for nothing";
    }
    return NULL;
}

const char *nt_table_wrong_row(const struct nt_table_row *r)
{
    if (r->coll >= NT_TABLE_COLLS) {
        return "unknown collective";
    }
    if (r->nranks < 2 || r->nranks > NT_TABLE_MAX_RANKS || r->nnodes < 1 || r->nnodes > r->nranks) {
        return "impossible numbers of ranks and nodes";
    }
    if (r->min_bytes > r->max_bytes) {
        return "empty byte range";
    }
    if (r->reg_buff > NT_TABLE_REG_YES) {
        return "unknown registration";
    }
    if (r->flags != 0) {
        return "unknown flags";
    }
    return wrong_tuple(r);
}

static int by_number(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* Communicator and collective that a row is for. */
static int by_key(const struct nt_table_row *a, const struct nt_table_row *b)
{
    int d = by_number(a->coll, b->coll);
    d = d != 0 ? d : by_number(a->nranks, b->nranks);
    return d != 0 ? d : by_number(a->nnodes, b->nnodes);
}

int nt_table_order(const struct nt_table_row *a, const struct nt_table_row *b)
{
    int d = by_key(a, b);
    d = d != 0 ? d : by_number(a->min_bytes, b->min_bytes);
    return d != 0 ? d : by_number(a->reg_buff, b->reg_buff);
}

/* One pass: what is still served at the row's first byte, for calls without and with registered
 * buffers. */
static int check_rows(const struct nt_table *t, struct nt_why *why)
{
    struct nt_table_row prev = {0};
    struct {
        bool any;
        uint32_t row;
        uint64_t end;
    } served[2] = {0};

    for (uint32_t i = 0; i < t->nrows; i++) {
        struct nt_table_row row = nt_table_row(t, i);
        const char *wrong = nt_table_wrong_row(&row);
        if (wrong != NULL) {
            return nt_why_fail(why, "row %u: %s", i, wrong);
        }
        if (nt_le32(t->rows + (size_t)i * NT_ROW_BYTES + 36) != 0 ||
            nt_le64(t->rows + (size_t)i * NT_ROW_BYTES + 40) != 0) {
            return nt_why_fail(why, "row %u: spare bytes are not zero", i);
        }
        if (i > 0 && nt_table_order(&prev, &row) > 0) {
            return nt_why_fail(why, "row %u: not in order", i);
        }
        if (i > 0 && by_key(&prev, &row) != 0) {
            served[0].any = served[1].any = false;
        }
        for (unsigned reg = 0; reg < 2; reg++) {
            if (row.reg_buff != NT_TABLE_REG_ANY && row.reg_buff != NT_TABLE_REG_NO + reg) {
                continue;
            }
            if (served[reg].any && served[reg].end >= row.min_bytes) {
                return nt_why_fail(why, "rows %u and %u serve the same calls", served[reg].row, i);
            }
            served[reg].any = true;
            served[reg].row = i;
            served[reg].end = row.max_bytes;
        }
        prev = row;
    }
    return 0;
}

struct nt_table_row nt_table_row(const struct nt_table *t, uint32_t i)
{
    const uint8_t *p = t->rows + (size_t)i * NT_ROW_BYTES;
    return (struct nt_table_row){.min_bytes = nt_le64(p),
                                 .max_bytes = nt_le64(p + 8),
                                 .nranks = nt_le32(p + 16),
                                 .nnodes = nt_le32(p + 20),
                                 .chunk_bytes = nt_le32(p + 24),
                                 .channels = nt_le16(p + 28),
                                 .coll = p[30],
                                 .reg_buff = p[31],
                                 .algo = (int8_t)p[32],
                                 .proto = (int8_t)p[33],
                                 .flags = nt_le16(p + 34)};
}

bool nt_table_next_var(const struct nt_table *t, size_t *at, struct nt_table_var_text *ret)
{
    const char *s = t->vars + *at, *eq;
    size_t n;

    if ((const uint8_t *)s >= t->rows || *s == '\0') {
        return false;
    }
    eq = strchr(s, '=');
    n = (size_t)(eq - (s + 1));
    memcpy(ret->name, s + 1, n);
    ret->name[n] = '\0';
    ret->value = eq + 1;
    ret->override = *s == NT_POLICY_OVERRIDE;
    *at += strlen(s) + 1;
    return true;
}

/* Variables lie between the header and the rows; only after this may nt_table_next_var() trust
 * them. */
static int check_vars(const struct nt_table *t, struct nt_why *why)
{
    const char *p = t->vars, *end = (const char *)t->rows;
    char prev[NT_TABLE_MAX_NAME + 1] = "";

    for (uint32_t i = 0; i < t->nvars; i++) {
        const char *nul = memchr(p, '\0', (size_t)(end - p)), *eq;
        char name[NT_TABLE_MAX_NAME + 1];
        if (nul == NULL || nul == p || (*p != NT_POLICY_UNSET && *p != NT_POLICY_OVERRIDE)) {
            return nt_why_fail(why, "variable %u: damaged", i);
        }
        eq = strchr(p, '=');
        if (eq == NULL || eq - (p + 1) > NT_TABLE_MAX_NAME) {
            return nt_why_fail(why, "variable %u: no NAME=VALUE", i);
        }
        memcpy(name, p + 1, (size_t)(eq - (p + 1)));
        name[eq - (p + 1)] = '\0';
        if (nt_table_check_var(t->product, name, eq + 1, why) != 0) {
            return -1;
        }
        if (strcmp(prev, name) >= 0) {
            return nt_why_fail(why, "variable %s: not in order, or twice", name);
        }
        memcpy(prev, name, sizeof(prev));
        p = nul + 1;
    }
    if (end - p >= 8) {
        return nt_why_fail(why, "spare bytes after the variables");
    }
    for (; p < end; p++) {
        if (*p != '\0') {
            return nt_why_fail(why, "padding is not zero");
        }
    }
    return 0;
}

int nt_table_read(const void *data, size_t size, struct nt_table *ret, struct nt_why *why)
{
    static const uint8_t zeros[24];
    const uint8_t *d = data;
    struct nt_table t = {.data = d, .size = size};
    uint64_t rows_at;

    if (size < NT_HEADER_BYTES || memcmp(d, nt_table_magic, sizeof(nt_table_magic)) != 0) {
        return nt_why_fail(why, "not a delivery file");
    }
    if (nt_le32(d + 8) != NT_TABLE_VERSION) {
        return nt_why_fail(why, "delivery file of version %u; this program reads version %d",
                           nt_le32(d + 8), NT_TABLE_VERSION);
    }
    if (nt_le32(d + 12) > NT_TABLE_TABLE || nt_le32(d + 16) > NT_TABLE_MAX_VARS ||
        nt_le32(d + 20) > NT_TABLE_MAX_ROWS) {
        return nt_why_fail(why, "header out of range");
    }
    t.product = (enum nt_table_product)nt_le32(d + 12);
    t.nvars = nt_le32(d + 16);
    t.nrows = nt_le32(d + 20);
    rows_at = nt_le64(d + 24);
    if (nt_le64(d + 32) != size || rows_at < NT_HEADER_BYTES || rows_at > size ||
        rows_at % 8 != 0 || size - rows_at != (uint64_t)t.nrows * NT_ROW_BYTES) {
        return nt_why_fail(why, "length of %zu bytes does not fit the header", size);
    }
    if (memcmp(d + 40, zeros, sizeof(zeros)) != 0) {
        return nt_why_fail(why, "spare bytes of the header are not zero");
    }
    if (t.product == NT_TABLE_STATIC && t.nrows > 0) {
        return nt_why_fail(why, "a static product with rows");
    }
    t.vars = (const char *)d + NT_HEADER_BYTES;
    t.rows = d + rows_at;
    if (check_vars(&t, why) != 0 || check_rows(&t, why) != 0) {
        return -1;
    }
    *ret = t;
    return 0;
}
