/* A curve of dots (text_curve.h): each two neighbouring points are joined by a straight line, which is drawn column of
 * dots by column of dots, so that it has no gaps where it is steep. */
#include "report/text_curve.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LABEL = 8, LEAST_COLUMNS = LABEL + 12 };
enum { LINE, SOFT, PLAIN };

typedef struct dot_grid {
    int across, down;     /* dots of a character */
    int wide, high;       /* characters */
    unsigned char *cells; /* [high][wide], a bit for each dot: bit (column x down + row) */
} dot_grid;

static void set_dot(dot_grid *g, int x, int y) {
    if (x >= 0 && x < g->wide * g->across && y >= 0 && y < g->high * g->down)
        g->cells[y / g->down * g->wide + x / g->across] |=
            (unsigned char)(1u << (x % g->across * g->down + y % g->down));
}

/* The dots of column x that the line from (x0, y0) to (x1, y1) passes: half a column to either side. */
static void draw_column(dot_grid *g, int x, double x0, double y0, double x1, double y1) {
    double from = fmax(x - 0.5, x0), to = fmin(x + 0.5, x1), slope = x1 > x0 ? (y1 - y0) / (x1 - x0) : 0;
    double a = y0 + (from - x0) * slope, b = x1 > x0 ? y0 + (to - x0) * slope : y1;
    int low = (int)lround(fmin(a, b)), high = (int)lround(fmax(a, b));
    for (int y = low; y <= high; y++)
        set_dot(g, x, y);
}

typedef struct text_range {
    double left, right, least, greatest;
} text_range;

static bool range_of(const ndp_curve_columns *c, text_range *out) {
    text_range r = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int i = 0; i < c->n; i++)
        if (c->at[i].n) {
            r.left = fmin(r.left, c->at[i].x);
            r.right = fmax(r.right, c->at[i].x);
            r.least = fmin(r.least, c->at[i].mean);
            r.greatest = fmax(r.greatest, c->at[i].mean);
        }
    *out = r;
    return r.left <= r.right;
}

static void draw_curve(dot_grid *g, const ndp_curve_columns *c, const text_range *r) {
    double wide = r->right > r->left ? r->right - r->left : 1, high = r->greatest - r->least;
    double last_x = NAN, last_y = NAN;
    for (int i = 0; i < c->n; i++) {
        if (c->at[i].n == 0)
            continue;
        double x = (c->at[i].x - r->left) / wide * (g->wide * g->across - 1);
        double y = high > 0 ? (r->greatest - c->at[i].mean) / high * (g->high * g->down - 1) : g->high * g->down / 2;
        if (isnan(last_x))
            last_x = x, last_y = y;
        for (int k = (int)lround(last_x); k <= (int)lround(x); k++)
            draw_column(g, k, last_x, last_y, x, y);
        last_x = x, last_y = y;
    }
}

static void add_cell(ndp_str *out, const dot_grid *g, int row, int column) {
    /* Braille's bits go down the first column's first three dots, then the second's, then both fourth ones. */
    static const unsigned char bits[] = {0x01, 0x02, 0x04, 0x40, 0x08, 0x10, 0x20, 0x80};
    unsigned char cell = g->cells[row * g->wide + column];
    uint32_t braille = 0x2800;
    char text[4];
    if (cell == 0 || g->across == 1) {
        ndp_str_add(out, cell ? "*" : " ");
        return;
    }
    for (int i = 0; i < 8; i++)
        braille |= cell >> i & 1 ? bits[i] : 0;
    ndp_str_add_bytes(out, text, ndp_utf8_encode(braille, text));
}

static void add_grid(ndp_str *out, const dot_grid *g, const ndp_curve_columns *c, const text_range *r,
                     const char *const styles[3]) {
    bool ascii = g->across == 1;
    for (int row = 0; row < g->high; row++) {
        bool top = row == 0, bottom = row == g->high - 1;
        char label[32] = "";
        if (top || bottom)
            snprintf(label, sizeof label, "%.4g", top ? r->greatest : r->least);
        ndp_str_addf(out, "%s%*.*s%s%s%s", styles[SOFT], LABEL, LABEL, label, ascii ? "|" : "│", styles[PLAIN],
                     styles[LINE]);
        int last = g->wide;
        while (last > 0 && g->cells[row * g->wide + last - 1] == 0)
            last--;
        for (int column = 0; column < last; column++)
            add_cell(out, g, row, column);
        ndp_str_addf(out, "%s\n", styles[PLAIN]);
    }
    char from[32], to[32];
    int n = snprintf(from, sizeof from, "%.0f", c->start), m = snprintf(to, sizeof to, "%.0f", c->end);
    bool both = c->end > c->start && n + m + 2 <= g->wide;
    ndp_str_addf(out, "%s%*s%s%s%*s%s\n", styles[SOFT], LABEL, "", ascii ? "+" : "└", from, both ? g->wide - n : 0,
                 both ? to : "", styles[PLAIN]);
}

int ndp_text_curve_add(ndp_str *out, const ndp_curve_columns *c, int columns, int rows, bool ascii,
                       const char *const styles[3]) {
    text_range r;
    if (columns < LEAST_COLUMNS || rows < 3 || !range_of(c, &r))
        return 0;
    dot_grid g = {.across = ascii ? 1 : 2, .down = ascii ? 1 : 4, .wide = columns - LABEL - 1, .high = rows - 1};
    g.cells = calloc((size_t)g.wide * (size_t)g.high, 1);
    out->failed |= !g.cells;
    if (!g.cells)
        return 0;
    draw_curve(&g, c, &r);
    add_grid(out, &g, c, &r, styles);
    free(g.cells);
    return rows;
}
