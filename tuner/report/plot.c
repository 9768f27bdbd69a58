/* One figure as SVG: time over size, both logarithmic, and below it the gain of what was tuned. */
#include "tuner/base/text.h"
#include "tuner/report/markup.h"
#include "tuner/report/report.h"
#include "tuner/report/style.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* User units of the viewBox. */
enum {
    WIDTH = 430,
    LEFT = 58,
    RIGHT = 14,
    TITLE_H = 24,
    LEGEND_ROW_H = 18,
    TIME_H = 240,
    GAIN_H = 92,
    GAP = 26,
    BOTTOM_H = 36,
    NAME_CHARS = 24,
    CHAR_W = 7,
    X_LABELS = 8
};

struct axes {
    double x0, x1; /* log2 of bytes */
    double y0, y1; /* log10 of ns */
    double g0, g1; /* gain */
    double time_top, gain_top, bottom;
    bool gains;
};

static double x_of(const struct axes *a, uint64_t bytes)
{
    double span = a->x1 - a->x0;
    double at = span > 0 ? (log2((double)bytes) - a->x0) / span : 0.5;
    return LEFT + 6 + at * (WIDTH - LEFT - RIGHT - 12);
}

static double clamp(double v, double lo, double hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static double y_of(const struct axes *a, double ns)
{
    double at = ns > 0 ? (log10(ns) - a->y0) / (a->y1 - a->y0) : 0;
    return a->time_top + TIME_H * (1 - clamp(at, 0, 1));
}

static double gain_y_of(const struct axes *a, double gain)
{
    return a->gain_top + GAIN_H * (1 - clamp((gain - a->g0) / (a->g1 - a->g0), 0, 1));
}

/* ------------------------------------------------------------------ ranges */

static void widen(double v, double *lo, double *hi)
{
    if (isfinite(v)) {
        *lo = fmin(*lo, v);
        *hi = fmax(*hi, v);
    }
}

static void find_ranges(const struct nt_figure *f, struct axes *a)
{
    *a = (struct axes){INFINITY, -INFINITY, INFINITY, -INFINITY, -0.02, 0.05, 0, 0, 0, false};
    for (size_t s = 0; s < f->nseries; s++) {
        for (size_t i = 0; i < f->series[s].n; i++) {
            const struct nt_figure_point *p = &f->series[s].v[i];
            widen(log2((double)p->bytes), &a->x0, &a->x1);
            widen(log10(p->ns), &a->y0, &a->y1);
            widen(p->gain, &a->g0, &a->g1);
            widen(p->gain_lo, &a->g0, &a->g1);
            widen(p->gain_hi, &a->g0, &a->g1);
            a->gains = a->gains || isfinite(p->gain);
        }
    }
    a->y0 -= 0.08;
    a->y1 += 0.08;
    a->g0 = fmax(a->g0, -0.5) - 0.02; /* a wild interval is cut off, not the picture */
    a->g1 = fmin(a->g1, 1) + 0.02;
}

/* ------------------------------------------------------------------ axes */

static void add_text(struct nt_buf *out, double x, double y, const char *anchor, const char *text)
{
    nt_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    nt_markup_text(out, text);
    nt_buf_puts(out, "</text>\n");
}

static void add_grid(struct nt_buf *out, const char *class, double x1, double y1, double x2,
                     double y2)
{
    nt_buf_printf(out, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class, x1, y1, x2, y2);
}

static void draw_x(const struct axes *a, struct nt_buf *out)
{
    int lo = (int)ceil(a->x0 - 1e-9), hi = (int)floor(a->x1 + 1e-9), step = 1;
    char label[24];

    while ((hi - lo) / step >= X_LABELS) {
        step++;
    }
    for (int k = lo; k <= hi && k < 63; k += step) {
        double x = x_of(a, UINT64_C(1) << k);
        add_grid(out, "grid", x, a->time_top, x, a->time_top + TIME_H);
        if (a->gains) {
            add_grid(out, "grid", x, a->gain_top, x, a->gain_top + GAIN_H);
        }
        add_text(out, x, a->bottom + 16, "middle",
                 nt_format_bytes(UINT64_C(1) << k, label, sizeof(label)));
    }
    add_text(out, LEFT + (WIDTH - LEFT - RIGHT) / 2.0, a->bottom + 32, "middle", "bytes");
}

static void draw_y(const struct axes *a, struct nt_buf *out)
{
    static const int steps[] = {1, 2, 5};
    size_t use = a->y1 - a->y0 > 3.5 ? 1 : 3; /* decades alone when there are many */
    int step = 1 + (int)((a->y1 - a->y0) / 8);
    char label[24];

    for (int d = (int)floor(a->y0); d <= (int)ceil(a->y1); d += step) {
        for (size_t i = 0; i < use; i++) {
            double ns = steps[i] * pow(10, d), y = y_of(a, ns);
            if (log10(ns) >= a->y0 && log10(ns) <= a->y1) {
                add_grid(out, "grid", LEFT, y, WIDTH - RIGHT, y);
                add_text(out, LEFT - 6, y + 4, "end", nt_format_ns(ns, label, sizeof(label)));
            }
        }
    }
}

static void draw_gain_axis(const struct axes *a, struct nt_buf *out)
{
    static const int steps[] = {2, 5, 10, 20, 25, 50};
    size_t s = 0;
    char label[24];

    while (s + 1 < sizeof(steps) / sizeof(steps[0]) && 100 * (a->g1 - a->g0) / steps[s] > 5) {
        s++;
    }
    for (int k = (int)ceil(100 * a->g0 / steps[s]); k <= (int)floor(100 * a->g1 / steps[s]); k++) {
        double y = gain_y_of(a, k * steps[s] / 100.0);
        add_grid(out, k == 0 ? "zero" : "grid", LEFT, y, WIDTH - RIGHT, y);
        (void)snprintf(label, sizeof(label), "%s%d %%",
                       k > 0   ? "+"
                       : k < 0 ? "−"
                               : "",
                       (k < 0 ? -k : k) * steps[s]);
        add_text(out, LEFT - 6, y + 4, "end", label);
    }
    add_text(out, LEFT, a->gain_top - 7, "start", "less time than the faster baseline");
}

/* ------------------------------------------------------------------ series */

/* Shapes differ too, so that colour is not needed to tell them apart. */
static void add_mark(struct nt_buf *out, size_t style, bool full, double x, double y)
{
    static const char *const shapes[NT_FIGURE_SERIES] = {
        "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
        "m-3 -3h6v6h-6z",
        "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
        "m0 -4l4 7h-8z",
        "m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0z",
        "m-2.3 -2.3h4.6v4.6h-4.6z",
        "m0 3.4l-3.4 -6h6.8z"};

    nt_buf_printf(out, "<path class=\"mark %s\" d=\"M%.1f %.1f%s\">", full ? "full" : "hollow", x,
                  y, shapes[style]);
}

static void add_bar(struct nt_buf *out, double x, double y_lo, double y_hi)
{
    if (isfinite(y_lo) && isfinite(y_hi)) {
        nt_buf_printf(out, "<path class=\"bar\" d=\"M%.1f %.1fV%.1fm-3 0h6M%.1f %.1fh6\"/>\n", x,
                      y_lo, y_hi, x - 3, y_lo);
    }
}

/* A curve is not drawn across a size that it was not measured at. */
static bool neighbours(const struct nt_series *base, uint64_t a, uint64_t b)
{
    for (size_t i = 0; i < base->n; i++) {
        if (base->v[i].bytes > a && base->v[i].bytes < b) {
            return false;
        }
        if (base->v[i].bytes >= b) {
            break;
        }
    }
    return true;
}

static void draw_line(const struct axes *a, const struct nt_series *s, const struct nt_series *base,
                      struct nt_buf *out)
{
    size_t at = 0; /* both ascend */

    nt_buf_puts(out, "<path class=\"line\" d=\"");
    for (size_t i = 0; i < s->n; i++) {
        bool on = false;
        if (i > 0) {
            struct nt_series rest = {.v = base->v + at, .n = base->n - at};
            on = neighbours(&rest, s->v[i - 1].bytes, s->v[i].bytes);
        }
        while (at < base->n && base->v[at].bytes <= s->v[i].bytes) {
            at++;
        }
        nt_buf_printf(out, "%c%.1f %.1f", on ? 'L' : 'M', x_of(a, s->v[i].bytes),
                      y_of(a, s->v[i].ns));
    }
    nt_buf_puts(out, "\"/>\n");
}

/* What a pointing device shows. */
static void add_words(struct nt_buf *out, const struct nt_figure_point *p, bool gain)
{
    char bytes[24], ns[24], lo[24], hi[24];

    nt_buf_puts(out, "<title>");
    nt_markup_cut(out, p->name, 100);
    nt_buf_printf(out, ", %s: ", nt_format_bytes(p->bytes, bytes, sizeof(bytes)));
    if (gain) {
        nt_buf_printf(out, "%+.1f %%", 100 * p->gain);
        if (!isnan(p->gain_lo)) {
            nt_buf_printf(out, " [%.1f, %.1f]", 100 * p->gain_lo, 100 * p->gain_hi);
        }
    } else {
        nt_buf_puts(out, nt_format_ns(p->ns, ns, sizeof(ns)));
        if (!isnan(p->lo_ns)) {
            nt_buf_printf(out, " [%s, %s]", nt_format_ns(p->lo_ns, lo, sizeof(lo)),
                          nt_format_ns(p->hi_ns, hi, sizeof(hi)));
        }
    }
    if (!p->published && (p->kind == NT_SERIES_TABLE || p->kind == NT_SERIES_STATIC)) {
        nt_buf_puts(out, ", measured but not published");
    }
    nt_buf_puts(out, "</title></path>\n");
}

static void draw_series(const struct axes *a, const struct nt_figure *f, size_t at, size_t style,
                        struct nt_buf *out)
{
    const struct nt_series *s = &f->series[at];
    bool runner = s->v[0].kind == NT_SERIES_RUNNER;

    nt_buf_printf(out, "<g class=\"s%zu%s\">\n", style, runner ? " runner" : "");
    draw_line(a, s, &f->series[0], out);
    for (size_t i = 0; i < s->n; i++) {
        const struct nt_figure_point *p = &s->v[i];
        double x = x_of(a, p->bytes);
        add_bar(out, x, isnan(p->lo_ns) ? NAN : y_of(a, p->lo_ns),
                isnan(p->hi_ns) ? NAN : y_of(a, p->hi_ns));
        add_mark(out, style, p->published || p->kind < NT_SERIES_TABLE, x, y_of(a, p->ns));
        add_words(out, p, false);
    }
    for (size_t i = 0; i < s->n; i++) {
        const struct nt_figure_point *p = &s->v[i];
        double x = x_of(a, p->bytes) + (p->kind == NT_SERIES_STATIC ? 5 : 0);
        if (isnan(p->gain)) {
            continue;
        }
        add_bar(out, x, isnan(p->gain_lo) ? NAN : gain_y_of(a, p->gain_lo),
                isnan(p->gain_hi) ? NAN : gain_y_of(a, p->gain_hi));
        add_mark(out, style, p->published, x, gain_y_of(a, p->gain));
        add_words(out, p, true);
    }
    nt_buf_puts(out, "</g>\n");
}

/* Colour and shape of a series: by what it is, runners-up by their order. */
static size_t style_of(const struct nt_figure *f, size_t at)
{
    size_t runners = 0;

    for (size_t i = 0; i < at; i++) {
        runners += f->series[i].v[0].kind == NT_SERIES_RUNNER;
    }
    return (size_t)f->series[at].v[0].kind + runners;
}

/* ------------------------------------------------------------------ legend and whole */

static size_t characters(const char *s)
{
    size_t n = 0;
    for (; *s != '\0'; s++) {
        n += ((unsigned char)*s & 0xc0) != 0x80;
    }
    return n;
}

/* Entries flow from left to right; out NULL: only how high it is. */
static double draw_legend(const struct nt_figure *f, double top, struct nt_buf *out)
{
    double x = LEFT, y = top + 12;

    for (size_t i = 0; i < f->nseries; i++) {
        const char *name = f->series[i].v[0].name;
        size_t n = characters(name), style = style_of(f, i);
        double w = 30 + CHAR_W * (double)(n > NAME_CHARS ? NAME_CHARS + 1 : n);
        if (x > LEFT && x + w > WIDTH - RIGHT) {
            x = LEFT;
            y += LEGEND_ROW_H;
        }
        if (out != NULL) {
            nt_buf_printf(out, "<g class=\"s%zu%s\"><path class=\"line\" d=\"M%.1f %.1fh18\"/>",
                          style, f->series[i].v[0].kind == NT_SERIES_RUNNER ? " runner" : "", x,
                          y - 4);
            add_mark(out, style, f->series[i].v[0].kind != NT_SERIES_RUNNER, x + 9, y - 4);
            nt_buf_printf(out, "</path><text x=\"%.1f\" y=\"%.1f\">", x + 23, y);
            nt_markup_cut(out, name, NAME_CHARS);
            nt_buf_puts(out, "</text></g>\n");
        }
        x += w;
    }
    return y + 10 - top;
}

void nt_figure_svg(const struct nt_figure *f, bool alone, struct nt_buf *out)
{
    struct axes a;
    double top = alone ? TITLE_H : 4;

    find_ranges(f, &a);
    a.time_top = top + draw_legend(f, top, NULL);
    a.gain_top = a.time_top + TIME_H + GAP;
    a.bottom = a.gains ? a.gain_top + GAIN_H : a.time_top + TIME_H;
    nt_buf_printf(out,
                  "<svg class=\"plot\" %sviewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\""
                  "%s, %s: time over size%s\">\n",
                  alone ? "xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" " : "", WIDTH,
                  a.bottom + BOTTOM_H, nt_coll_names[f->coll], nt_mode_names[f->mode],
                  a.gains ? ", and gain" : "");
    if (alone) {
        nt_buf_printf(out,
                      "<style>%s</style>\n<rect class=\"hollow\" width=\"100%%\" height=\"100%%\"/>"
                      "\n<text class=\"title\" x=\"%d\" y=\"17\">%s, %s</text>\n",
                      nt_plot_css, LEFT, nt_coll_names[f->coll], nt_mode_names[f->mode]);
    }
    draw_x(&a, out);
    draw_y(&a, out);
    if (a.gains) {
        draw_gain_axis(&a, out);
    }
    (void)draw_legend(f, top, out);
    for (int runners = 1; runners >= 0; runners--) { /* what matters most lies on top */
        for (size_t i = 0; i < f->nseries; i++) {
            if ((f->series[i].v[0].kind == NT_SERIES_RUNNER) == (runners != 0)) {
                draw_series(&a, f, i, style_of(f, i), out);
            }
        }
    }
    nt_buf_puts(out, "</svg>\n");
}
