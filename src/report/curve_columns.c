/* Columns of a curve (curve_columns.h). */
#include "report/curve_columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Points start apart by this many columns: later ones may be nearer to each other than the first two. */
enum { APART = 64 };

static void join(ndp_curve_column *c, const ndp_curve_column *more) {
    if (c->n == 0) {
        *c = *more;
        return;
    }
    if (more->n == 0)
        return;
    double share = (double)more->n / (double)(c->n + more->n);
    c->least = fmin(c->least, more->least);
    c->greatest = fmax(c->greatest, more->greatest);
    c->mean = fmin(fmax(c->mean + (more->mean - c->mean) * share, c->least), c->greatest); /* rounding stays inside */
    c->x += (more->x - c->x) * share;
    c->n += more->n;
}

static void halve(ndp_curve_columns *c) {
    for (int i = 0; i < c->n; i++) {
        ndp_curve_column moved = c->at[i];
        c->at[i].n = 0;
        join(&c->at[i / 2], &moved);
    }
    c->n = (c->n + 1) / 2;
    c->width *= 2;
}

ndp_status ndp_columns_add(ndp_curve_columns *c, double x, double y) {
    if (!(fabs(x) < 1e300) || !(fabs(y) < 1e300))
        return NDP_OK;
    if (!c->at) {
        *c = (ndp_curve_columns){.at = calloc(NDP_COLUMNS, sizeof *c->at), .start = x};
        NDP_CHECK_MEMORY(c->at, "for a curve");
    }
    c->end = x;
    if (c->width == 0 && x > c->start)
        c->width = fmax((x - c->start) / APART, 1e-9);
    while (c->width > 0 && (x - c->start) / c->width >= NDP_COLUMNS)
        halve(c);
    int i = c->width > 0 && x > c->start ? (int)((x - c->start) / c->width) : 0;
    c->n = i >= c->n ? i + 1 : c->n;
    join(&c->at[i], &(ndp_curve_column){.x = x, .mean = y, .least = y, .greatest = y, .n = 1});
    return NDP_OK;
}

void ndp_columns_limit(ndp_curve_columns *c, int most) {
    while (c->n > most)
        halve(c);
}

void ndp_columns_release(ndp_curve_columns *c) {
    free(c->at);
    memset(c, 0, sizeof *c);
}
