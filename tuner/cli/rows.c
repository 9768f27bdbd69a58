#include "tuner/cli/rows.h"
#include "tuner/base/buf.h"
#include "tuner/base/text.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_COLUMNS = 200,
    WIDTH_ROWS = 500, /* a table's widths are those of its first rows */
    CELL_MAX = 60,    /* wider cells of a table end in … */
    TEXT_MAX_BYTES = 256 << 20
};

const char *const nt_rows_formats[NT_ROWS_FORMAT_COUNT + 1] = {
    [NT_ROWS_TABLE] = "table", [NT_ROWS_CSV] = "csv", [NT_ROWS_JSON] = "json"};

struct cell {
    size_t at, width; /* in `cells`; width in characters */
    bool number;
};

struct nt_rows {
    enum nt_rows_format format;
    FILE *out;
    unsigned ncols;
    uint64_t rows;
    struct nt_buf names; /* NUL-separated */
    size_t name_at[MAX_COLUMNS];
    /* table: rows kept until the widths are known */
    struct nt_buf cells;
    struct cell *kept;
    size_t nkept, max_kept, width[MAX_COLUMNS];
    bool number[MAX_COLUMNS]; /* all kept cells are numbers: aligned to the right */
    bool streaming;
};

int nt_rows_open(enum nt_rows_format format, FILE *out, struct nt_rows **ret, struct nt_err *err)
{
    struct nt_rows *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return nt_fail(err, NT_E_NOMEM, 0, "rows");
    }
    r->format = format;
    r->out = out;
    nt_buf_init(&r->names, TEXT_MAX_BYTES);
    nt_buf_init(&r->cells, TEXT_MAX_BYTES);
    *ret = r;
    return 0;
}

/* --- text
 * ------------------------------------------------------------------------------------------ */

static void put_hex(struct nt_buf *out, const char *data, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        char two[2] = {digits[(unsigned char)data[i] >> 4], digits[data[i] & 15]};
        nt_buf_add(out, two, 2);
    }
}

/* One line of at most `max` characters; returns how many. */
static size_t put_plain(struct nt_buf *out, const char *text, size_t len, size_t max)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t width = 0;
    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        size_t n = nt_utf8((const char *)p + i, len - i, &code), before = out->len;
        if (width >= max - 1 && i + (n > 0 ? n : 1) < len) {
            nt_buf_puts(out, "…");
            return width + 1;
        }
        if (n == 0) {
            nt_buf_printf(out, "\\x%02x", p[i]);
        } else if (nt_is_control(code)) {
            nt_buf_printf(out, code == '\n' ? "\\n" : code == '\t' ? "\\t" : "\\u%04x", code);
        } else {
            nt_buf_add(out, text + i, n);
        }
        width += n == 0 || nt_is_control(code) ? out->len - before : 1;
        i += n > 0 ? n : 1;
    }
    return width;
}

static void put_csv(struct nt_buf *out, const char *text, size_t len)
{
    bool quote = len == 0;
    for (size_t i = 0; i < len && !quote; i++) {
        quote = strchr(",\"\r\n", text[i]) != NULL; /* NUL too */
    }
    if (!quote && text[0] != ' ' && text[len - 1] != ' ') {
        nt_buf_add(out, text, len);
        return;
    }
    nt_buf_puts(out, "\"");
    for (size_t i = 0; i < len; i++) {
        nt_buf_add(out, text[i] == '"' ? "\"\"" : text + i, text[i] == '"' ? 2 : 1);
    }
    nt_buf_puts(out, "\"");
}

/* Bytes that are no UTF-8 become U+FFFD: the output is JSON whatever the database holds. */
static void put_json(struct nt_buf *out, const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    nt_buf_puts(out, "\"");
    for (size_t i = 0; i < len;) {
        uint32_t code = 0;
        size_t n = nt_utf8((const char *)p + i, len - i, &code);
        if (n == 0) {
            nt_buf_puts(out, "\\ufffd");
        } else if (code == '"' || code == '\\') {
            nt_buf_printf(out, "\\%c", (int)code);
        } else if (code < 0x10000 && nt_is_control(code)) {
            nt_buf_printf(out, "\\u%04x", code);
        } else {
            nt_buf_add(out, text + i, n);
        }
        i += n > 0 ? n : 1;
    }
    nt_buf_puts(out, "\"");
}

/* The shortest form that reads back as the same number. */
static void put_real(struct nt_buf *out, double x)
{
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, x);
        if (strtod(text, NULL) == x) {
            break;
        }
    }
    nt_buf_puts(out, text);
}

/* Text of one value in a format; returns its width in characters (used by the table). */
static size_t put_value(struct nt_buf *out, enum nt_rows_format format, const struct nt_value *v)
{
    size_t before = out->len;
    bool finite = v->type != NT_VALUE_REAL || (v->r - v->r == 0);
    switch (v->type) {
    case NT_VALUE_NULL:
        nt_buf_puts(out, format == NT_ROWS_TABLE ? "-" : format == NT_ROWS_JSON ? "null" : "");
        break;
    case NT_VALUE_INT:
        nt_buf_printf(out, "%lld", (long long)v->i);
        break;
    case NT_VALUE_REAL:
        if (finite || format != NT_ROWS_JSON) {
            put_real(out, v->r);
        } else {
            nt_buf_puts(out, "null"); /* infinity, which JSON has not */
        }
        break;
    case NT_VALUE_BLOB:
        if (format == NT_ROWS_TABLE) {
            nt_buf_printf(out, "(%zu bytes)", v->len);
        } else {
            nt_buf_puts(out, format == NT_ROWS_JSON ? "\"" : "");
            put_hex(out, v->text, v->len);
            nt_buf_puts(out, format == NT_ROWS_JSON ? "\"" : "");
        }
        break;
    case NT_VALUE_TEXT:
        if (format == NT_ROWS_TABLE) {
            return put_plain(out, v->text, v->len, CELL_MAX);
        }
        (format == NT_ROWS_CSV ? put_csv : put_json)(out, v->text, v->len);
        break;
    }
    return out->len - before;
}

/* --- table
 * ------------------------------------------------------------------------------------------ */

static void print_cell(struct nt_rows *r, unsigned column, const struct cell *c)
{
    size_t pad = c->width < r->width[column] ? r->width[column] - c->width : 0;
    bool last = column + 1 == r->ncols, right = r->number[column];
    (void)fprintf(r->out, "%*s%s%*s%s", right ? (int)pad : 0, "", nt_buf_str(&r->cells) + c->at,
                  right || last ? 0 : (int)pad, "", last ? "\n" : "  ");
}

/* Prints what is kept; from then on rows go out as they come. */
static void flush_table(struct nt_rows *r)
{
    for (size_t i = 0; i < r->nkept; i++) {
        print_cell(r, (unsigned)(i % r->ncols), &r->kept[i]);
    }
    r->nkept = 0;
    nt_buf_clear(&r->cells);
    r->streaming = true;
}

static int keep_cell(struct nt_rows *r, unsigned column, const struct nt_value *v,
                     struct nt_err *err)
{
    struct cell c = {.at = r->cells.len,
                     .number = v->type == NT_VALUE_INT || v->type == NT_VALUE_REAL};
    if (r->nkept == r->max_kept) {
        size_t more = r->max_kept > 0 ? 2 * r->max_kept : 256;
        struct cell *bigger = realloc(r->kept, more * sizeof(*bigger));
        if (bigger == NULL) {
            return nt_fail(err, NT_E_NOMEM, 0, "rows");
        }
        r->kept = bigger;
        r->max_kept = more;
    }
    c.width = put_value(&r->cells, NT_ROWS_TABLE, v);
    nt_buf_add(&r->cells, "", 1);
    if (!r->streaming) {
        r->width[column] = c.width > r->width[column] ? c.width : r->width[column];
        if (r->rows > 0) { /* row 0 is the header */
            r->number[column] = r->number[column] && (c.number || v->type == NT_VALUE_NULL);
        }
    }
    r->kept[r->nkept++] = c;
    return 0;
}

static int table_row(struct nt_rows *r, const struct nt_value *values, struct nt_err *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < r->ncols; i++) {
        rc = keep_cell(r, i, &values[i], err);
    }
    r->rows++;
    if (rc == 0 && (r->streaming || r->rows > WIDTH_ROWS)) {
        flush_table(r);
    }
    return rc;
}

/* --- rows
 * ------------------------------------------------------------------------------------------- */

static const char *name_of(const struct nt_rows *r, unsigned column)
{
    return nt_buf_str(&r->names) + r->name_at[column];
}

/* Two columns of one name get a number, since an object has each name once. */
static void keep_names(struct nt_rows *r, const char *const *names)
{
    for (unsigned i = 0; i < r->ncols; i++) {
        unsigned same = 1;
        for (unsigned k = 0; k < i; k++) {
            same += strcmp(names[k], names[i]) == 0;
        }
        r->name_at[i] = r->names.len;
        nt_buf_puts(&r->names, names[i]);
        if (same > 1) {
            nt_buf_printf(&r->names, ":%u", same);
        }
        nt_buf_add(&r->names, "", 1);
        r->number[i] = true;
    }
}

static int header(struct nt_rows *r, struct nt_err *err)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < r->ncols; i++) {
        const char *name = name_of(r, i);
        struct nt_value v = {.type = NT_VALUE_TEXT, .text = name, .len = strlen(name)};
        if (r->format == NT_ROWS_TABLE) {
            rc = keep_cell(r, i, &v, err);
        } else if (r->format == NT_ROWS_CSV) {
            nt_buf_puts(&r->cells, i > 0 ? "," : "");
            (void)put_value(&r->cells, NT_ROWS_CSV, &v);
        }
    }
    if (r->format == NT_ROWS_TABLE) {
        r->rows = 1;
    } else {
        (void)fprintf(r->out, "%s%s", nt_buf_str(&r->cells),
                      r->format == NT_ROWS_CSV ? "\r\n" : "[");
        nt_buf_clear(&r->cells);
    }
    return rc;
}

static void text_row(struct nt_rows *r, const struct nt_value *values)
{
    bool json = r->format == NT_ROWS_JSON;
    nt_buf_puts(&r->cells, !json ? "" : r->rows > 0 ? ",\n {" : "\n {");
    for (unsigned i = 0; i < r->ncols; i++) {
        nt_buf_puts(&r->cells, i == 0 ? "" : json ? ", " : ",");
        if (json) {
            put_json(&r->cells, name_of(r, i), strlen(name_of(r, i)));
            nt_buf_puts(&r->cells, ": ");
        }
        (void)put_value(&r->cells, r->format, &values[i]);
    }
    nt_buf_puts(&r->cells, json ? "}" : "\r\n");
    (void)fwrite(nt_buf_str(&r->cells), 1, r->cells.len, r->out);
    r->rows++;
}

int nt_rows_add(void *rows, unsigned ncols, const char *const *names, const struct nt_value *values,
                struct nt_err *err)
{
    struct nt_rows *r = rows;
    int rc = 0;
    if (values == NULL) {
        if (ncols > MAX_COLUMNS) {
            return nt_fail(err, NT_E_INVAL, 0, "more than %d columns", MAX_COLUMNS);
        }
        r->ncols = ncols;
        keep_names(r, names);
        rc = header(r, err);
    } else if (r->format == NT_ROWS_TABLE) {
        rc = table_row(r, values, err);
    } else {
        text_row(r, values);
    }
    if (rc == 0 && (r->cells.failed || r->names.failed)) {
        rc = nt_fail(err, NT_E_NOMEM, 0, "a row larger than %d MiB", TEXT_MAX_BYTES >> 20);
    }
    if (rc == 0 && ferror(r->out)) {
        rc = nt_fail(err, NT_E_IO, 0, "standard output could not be written");
    }
    if (r->format != NT_ROWS_TABLE) {
        nt_buf_clear(&r->cells);
    }
    return rc;
}

int nt_rows_close(struct nt_rows *r, int rc, struct nt_err *err)
{
    if (r == NULL) {
        return rc;
    }
    if (rc == 0 && r->format == NT_ROWS_TABLE) {
        flush_table(r);
    } else if (rc == 0 && r->format == NT_ROWS_JSON) {
        (void)fprintf(r->out, "%s]\n", r->rows > 0 ? "\n" : "");
    }
    if (rc == 0 && (fflush(r->out) != 0 || ferror(r->out))) {
        rc = nt_fail(err, NT_E_IO, 0, "standard output could not be written");
    }
    nt_buf_done(&r->names);
    nt_buf_done(&r->cells);
    free(r->kept);
    free(r);
    return rc;
}
