/* Plots and bars (plot.h). Curves stand in an <svg> of their own, whose units are a fifth of the plot's: whole numbers
 * are exact enough, and what lies outside is cut off. */
#include "report/plot.h"

#include "base/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 440, HEIGHT = 220, LEFT = 68, RIGHT = 20, TOP = 26, BOTTOM = 30, FINE = 5, FEW = 60, MOST_TICKS = 12 };
enum { WIDE = WIDTH - LEFT - RIGHT, HIGH = HEIGHT - TOP - BOTTOM };

/* ---- numbers ---- */

typedef struct unit {
    double from, size; /* used from this number on */
    const char *name;
} unit;

/* The unit for numbers up to `most`. */
static const unit *unit_for(ndp_quantity q, double most) {
    static const unit plain[] = {{0, 1, ""}, {0, 0, NULL}};
    static const unit counts[] = {{0, 1, ""},       {1e4, 1e3, " k"},   {1e6, 1e6, " M"},
                                  {1e9, 1e9, " G"}, {1e12, 1e12, " T"}, {0, 0, NULL}};
    static const unit bytes[] = {{0, 1, " B"},
                                 {1024, 1024, " KiB"},
                                 {0x1p20, 0x1p20, " MiB"},
                                 {0x1p30, 0x1p30, " GiB"},
                                 {0x1p40, 0x1p40, " TiB"},
                                 {0, 0, NULL}};
    static const unit shares[] = {{0, 0.01, "%"}, {0, 0, NULL}};
    static const unit seconds[] = {
        {0, 1, " s"}, {180, 60, " min"}, {7200, 3600, " h"}, {172800, 86400, " d"}, {0, 0, NULL}};
    static const unit *const units[] = {plain, counts, bytes, shares, seconds};
    const unit *u = units[q];
    while (u[1].name && most >= u[1].from)
        u++;
    return u;
}

void ndp_quantity_add(ndp_str *out, ndp_quantity q, double x) {
    const unit *u = unit_for(q, fabs(x));
    bool whole = (q == NDP_QUANTITY_COUNT || q == NDP_QUANTITY_BYTES) && u->size == 1;
    if (isnan(x))
        ndp_str_add(out, "-");
    else if (q == NDP_QUANTITY_NUMBER && fabs(x) < 1e4)
        ndp_str_addf(out, "%.4f", x);
    else
        ndp_str_addf(out, "%.*g%s", whole ? 6 : 3, x / u->size, u->name);
}

/* ---- scales ---- */

typedef struct scale {
    double low, high, tick; /* tick: from one to the next */
    const unit *unit;
} scale;

/* 1, 2 or 5 times a power of ten, in the scale's unit, such that there are about `n`. */
static scale scale_of(double low, double high, ndp_quantity q, int n) {
    scale s = {.low = low, .high = high, .unit = unit_for(q, fmax(fabs(low), fabs(high)))};
    double rough = (high - low) / s.unit->size / n, power = pow(10, floor(log10(rough)));
    double factor = rough / power;
    s.tick = (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10) * power * s.unit->size;
    return s;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Widens low .. high to all means of a curve, and to its bands but for the 10% of them that reach farthest: rare spikes
 * would make all else flat. */
static void add_range(const ndp_curve_columns *c, double *low, double *high) {
    double least[NDP_COLUMNS], greatest[NDP_COLUMNS];
    int n = 0;
    for (int i = 0; i < c->n; i++)
        if (c->at[i].n) {
            *low = fmin(*low, c->at[i].mean);
            *high = fmax(*high, c->at[i].mean);
            least[n] = c->at[i].least;
            greatest[n++] = c->at[i].greatest;
        }
    if (n == 0)
        return;
    qsort(least, (size_t)n, sizeof *least, ascending);
    qsort(greatest, (size_t)n, sizeof *greatest, ascending);
    *low = fmin(*low, least[n / 10]);
    *high = fmax(*high, greatest[n - 1 - n / 10]);
}

/* y: that of all curves, with some room. False: they have no points. */
static bool ranges(const ndp_plot *p, scale *x, scale *y) {
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < p->n; i++)
        if (p->curves[i])
            add_range(p->curves[i], &low, &high);
    if (low > high)
        return false;
    double room = low == 0 && high == 0 ? 1 : fmax((high - low) * 0.05, fabs(high) * 1e-3);
    if (low >= 0 && low < (high - low) / 4) /* 0 is near */
        low = 0;
    else
        low -= room;
    *x = scale_of(p->left, fmax(p->right, p->left + fmax(fabs(p->left) * 1e-6, 1e-3)), p->x, 4);
    *y = scale_of(low, high + room, p->y, 4);
    return true;
}

static double at_x(const scale *s, double x) { return (x - s->low) / (s->high - s->low) * WIDE; }
static double at_y(const scale *s, double y) { return (s->high - y) / (s->high - s->low) * HIGH; }

static void add_label(ndp_str *out, const scale *s, double v, double x, double y, const char *attributes) {
    double tick = s->tick / s->unit->size, value = v / s->unit->size;
    int decimals = tick < 1 ? (int)ceil(-log10(tick) - 1e-9) : 0;
    if (fabs(value) < tick / 2) {
        ndp_svg_text(out, x, y, attributes, "0");
    } else if (decimals > 4 || fabs(value) >= 1e7) { /* as many digits as tell it from the next tick */
        int digits = (int)ceil(log10(fabs(value) / tick) - 1e-9) + 1;
        ndp_svg_text(out, x, y, attributes, "%.*g%s", digits < 3 ? 3 : digits, value, s->unit->name);
    } else {
        ndp_svg_text(out, x, y, attributes, "%.*f%s", decimals, value, s->unit->name);
    }
}

static void add_axes(ndp_str *out, const ndp_plot *p, const scale *x, const scale *y) {
    for (double v = ceil(y->low / y->tick) * y->tick, end = v + MOST_TICKS * y->tick; v <= y->high && v < end;
         v += y->tick) {
        double at = TOP + at_y(y, v);
        ndp_str_addf(out, "<path class=\"grid\" d=\"M%d %.1fh%d\"/>", LEFT, at, WIDE);
        add_label(out, y, v, LEFT - 6, at + 4, "class=\"soft\" text-anchor=\"end\"");
    }
    for (double v = ceil(x->low / x->tick) * x->tick, end = v + MOST_TICKS * x->tick; v <= x->high && v < end;
         v += x->tick)
        add_label(out, x, v, LEFT + at_x(x, v), HEIGHT - BOTTOM + 16, "class=\"soft\" text-anchor=\"middle\"");
    ndp_svg_text(out, WIDTH - RIGHT, TOP - 10, "class=\"soft\" text-anchor=\"end\"", "over %s", p->name);
    ndp_svg_text(out, 0, TOP - 10, "class=\"title\"", "%s", p->title);
    ndp_str_addf(out, "<path class=\"axis\" d=\"M%d %dh%d\"/>\n", LEFT, HEIGHT - BOTTOM, WIDE);
}

/* ---- curves ---- */

/* A pen writes a path of whole numbers, each relative to the one before it. */
typedef struct pen {
    ndp_str *out;
    int x, y;
    bool down;
} pen;

/* Places beyond the plot's edges are far enough when they are as far as the plot is high. */
static int fine(double v, int most) { return (int)lround(fmin(fmax(v, -most), 2.0 * most) * FINE); }

static void draw(pen *p, const scale *x, const scale *y, double vx, double vy) {
    int to_x = fine(at_x(x, vx), WIDE), to_y = fine(at_y(y, vy), HIGH);
    if (p->down)
        ndp_str_addf(p->out, "%d%s%d", to_x - p->x, to_y < p->y ? "" : " ", to_y - p->y);
    else
        ndp_str_addf(p->out, "M%d %dl", to_x, to_y);
    if (p->down)
        ndp_str_add(p->out, " ");
    *p = (pen){p->out, to_x, to_y, true};
}

static bool is_wide(const ndp_curve_columns *c) {
    for (int i = 0; i < c->n; i++)
        if (c->at[i].n && c->at[i].least < c->at[i].greatest)
            return true;
    return false;
}

static void add_band(ndp_str *out, const ndp_curve_columns *c, int colour, const scale *x, const scale *y) {
    pen p = {.out = out};
    ndp_str_addf(out, "<path class=\"band c%d\" d=\"", colour % NDP_PLOT_COLOURS);
    for (int i = 0; i < c->n; i++)
        if (c->at[i].n)
            draw(&p, x, y, c->at[i].x, c->at[i].greatest);
    for (int i = c->n; i-- > 0;)
        if (c->at[i].n)
            draw(&p, x, y, c->at[i].x, c->at[i].least);
    ndp_str_add(out, "z\"/>");
}

static void add_line(ndp_str *out, const ndp_curve_columns *c, int colour, const scale *x, const scale *y) {
    pen p = {.out = out};
    int n = 0;
    ndp_str_addf(out, "<path class=\"line c%d%s\" d=\"", colour % NDP_PLOT_COLOURS,
                 colour < NDP_PLOT_COLOURS ? "" : " dash");
    for (int i = 0; i < c->n; i++)
        if (c->at[i].n) {
            draw(&p, x, y, c->at[i].x, c->at[i].mean);
            n++;
        }
    ndp_str_add(out, "0 0\"/>");
    if (n > FEW)
        return;
    ndp_str_addf(out, "<path class=\"dots c%d\" d=\"", colour % NDP_PLOT_COLOURS);
    for (int i = 0; i < c->n; i++)
        if (c->at[i].n)
            ndp_str_addf(out, "M%d %dh0", fine(at_x(x, c->at[i].x), WIDE), fine(at_y(y, c->at[i].mean), HIGH));
    ndp_str_add(out, "\"/>");
}

void ndp_plot_add(ndp_str *out, const ndp_plot *p) {
    scale x, y;
    if (!ranges(p, &x, &y))
        return;
    char words[128];
    snprintf(words, sizeof words, "%.80s over %.40s", p->title, p->name);
    ndp_svg_begin_part(out, WIDTH, HEIGHT, words);
    add_axes(out, p, &x, &y);
    ndp_str_addf(out, "<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", LEFT, TOP, WIDE,
                 HIGH, WIDE * FINE, HIGH * FINE);
    for (int i = 0; i < p->n; i++)
        if (p->curves[i] && is_wide(p->curves[i]))
            add_band(out, p->curves[i], i, &x, &y);
    for (int i = 0; i < p->n; i++)
        if (p->curves[i] && p->curves[i]->n)
            add_line(out, p->curves[i], i, &x, &y);
    ndp_str_add(out, "</svg>");
    ndp_svg_end(out);
}

/* ---- bars ---- */

void ndp_bar_add(ndp_str *out, const char *title, const double *values, const char *const *names, int n) {
    enum { BAR_WIDTH = 900, BAR_HEIGHT = 22 };
    double sum = 0, x = 0;
    for (int i = 0; i < n; i++)
        sum += values[i];
    if (!(sum > 0))
        return;
    ndp_svg_begin_part(out, BAR_WIDTH, BAR_HEIGHT, title);
    for (int i = 0; i < n; i++) {
        char attributes[24], share[96];
        double width = values[i] / sum * BAR_WIDTH;
        snprintf(attributes, sizeof attributes, "class=\"p%d\"", i);
        snprintf(share, sizeof share, "%.60s: %.1f%%", names[i], 100 * values[i] / sum);
        if (width > 0)
            ndp_svg_box(out, x, 0, width, BAR_HEIGHT, attributes, share);
        x += width;
    }
    ndp_svg_end(out);
}
