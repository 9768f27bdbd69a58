/* The section about who moves the bytes. */
#include <math.h>
#include <stdio.h>
#include "tuner/base/text.h"
#include "tuner/report/markup.h"
#include "tuner/report/sections.h"

static void cell(struct nt_buf *out, const char *class, const char *text)
{
    nt_buf_printf(out, "<td class=\"%s\">", class);
    nt_markup_text(out, text != NULL && text[0] != '\0' ? text : "–");
    nt_buf_puts(out, "</td>");
}

static void open_table(struct nt_buf *out, const char *caption, const char *const *heads)
{
    nt_buf_printf(out,
                  "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"%s\">\n<table>"
                  "<caption>%s</caption>\n<thead><tr>",
                  caption, caption);
    for (size_t i = 0; heads[i] != NULL; i++) {
        nt_buf_printf(out, "<th scope=\"col\">%s</th>", heads[i]);
    }
    nt_buf_puts(out, "</tr></thead>\n<tbody>\n");
}

static void close_table(struct nt_buf *out)
{
    nt_buf_puts(out, "</tbody></table></div>\n");
}

static void row(const struct nt_profile_backend *r, struct nt_buf *out)
{
    const struct nt_call call = {.algo = (int8_t)r->algo,
                                 .proto = (int8_t)r->proto,
                                 .channels = (uint16_t)r->blocks,
                                 .backend = (uint8_t)r->backend};
    char text[64];

    nt_buf_puts(out, "<tr>");
    cell(out, "", nt_coll_names[r->coll]);
    cell(out, "", nt_mode_names[r->mode]);
    cell(out, "num", nt_format_bytes(r->min_bytes, text, sizeof(text)));
    cell(out, "num", nt_format_bytes(r->max_bytes, text, sizeof(text)));
    cell(out, "", nt_call_text(&call, text, sizeof(text)));
    cell(out, "", nt_numerics_names[r->numerics]);
    cell(out, "", nt_bits_names[r->bits]);
    nt_buf_puts(out, "<td>");
    for (size_t i = 0; i < r->serves.n; i++) {
        nt_buf_puts(out, i > 0 ? ", " : "");
        nt_markup_text(out, r->serves.v[i]);
    }
    nt_buf_puts(out, "</td></tr>\n");
}

static const char *time_text(double ns, char *text, size_t size)
{
    return isfinite(ns) ? nt_format_ns(ns, text, size) : "";
}

static void class_row(const struct nt_profile_backend_class *c, struct nt_buf *out)
{
    char text[64] = "";

    nt_buf_puts(out, "<tr>");
    cell(out, "", nt_coll_names[c->coll]);
    cell(out, "", nt_mode_names[c->mode]);
    cell(out, "num", nt_format_bytes(c->bytes, text, sizeof(text)));
    cell(out, "", c->setting);
    cell(out, "num", time_text(c->default_ns, text, sizeof(text)));
    cell(out, "num", time_text(c->rival_ns, text, sizeof(text)));
    cell(out, "", c->rival);
    cell(out, "num", time_text(c->ns, text, sizeof(text)));
    text[0] = '\0';
    if (isfinite(c->gain) && isfinite(c->interval[0])) {
        (void)snprintf(text, sizeof(text), "%.1f %% [%.1f, %.1f]", 100 * c->gain,
                       100 * c->interval[0], 100 * c->interval[1]);
    }
    cell(out, "num", text);
    cell(out, "", nt_class_verdict_names[c->verdict]);
    cell(out, "", c->why);
    nt_buf_puts(out, "</tr>\n");
}

static void notes(const struct nt_profile *p, struct nt_buf *out)
{
    if (p->backends.notes.n + p->backends.peers.n == 0) {
        return;
    }
    nt_buf_puts(out, "<ul>\n");
    for (size_t i = 0; i < p->backends.notes.n; i++) {
        nt_buf_puts(out, "<li>");
        nt_markup_text(out, p->backends.notes.v[i].setting);
        nt_buf_puts(out, ": ");
        nt_markup_text(out, p->backends.notes.v[i].why);
        nt_buf_puts(out, "</li>\n");
    }
    for (size_t i = 0; i < p->backends.peers.n; i++) {
        nt_buf_puts(out, "<li>peer access, ");
        nt_markup_text(out, p->backends.peers.v[i]);
        nt_buf_puts(out, "</li>\n");
    }
    nt_buf_puts(out, "</ul>\n");
}

int nt_section_backends(const struct nt_report_in *in, struct nt_buf *out, struct nt_err *err)
{
    static const char *const row_heads[] = {"collective", "mode", "from", "to", "backend",
                                            "adds up as", "bits", "for",  NULL};
    static const char *const class_heads[] = {"collective", "mode",         "bytes", "setting",
                                              "default",    "best of NCCL", "which", "backend",
                                              "gain",       "verdict",      "why",   NULL};
    const struct nt_profile *p = in->profile;
    (void)err;

    if (!p->backends.present) {
        nt_buf_puts(out, "<p>Only NCCL as it is was measured.</p>\n");
        return 0;
    }
    if (p->backends.rows.n == 0) {
        nt_buf_puts(out, "<p>NCCL as it is moves the bytes: nothing else was proved faster.</p>\n");
    } else {
        open_table(out, "Rows by collective, mode and bytes; all else stays NCCL’s", row_heads);
        for (size_t i = 0; i < p->backends.rows.n; i++) {
            row(&p->backends.rows.v[i], out);
        }
        close_table(out);
    }
    if (p->backends.classes.n > 0) {
        open_table(out, "Evidence of backends", class_heads);
        for (size_t i = 0; i < p->backends.classes.n; i++) {
            class_row(&p->backends.classes.v[i], out);
        }
        close_table(out);
    }
    notes(p, out);
    return 0;
}
