/* Plots of a report, as SVG whose colours are classes of the page (page_style.c). */
#ifndef NDP_REPORT_PLOT_H
#define NDP_REPORT_PLOT_H

#include "base/text.h"
#include "report/curve_columns.h"

/* What the numbers of an axis are. */
typedef enum ndp_quantity {
    NDP_QUANTITY_NUMBER,
    NDP_QUANTITY_COUNT, /* with k, M, G and T */
    NDP_QUANTITY_BYTES,
    NDP_QUANTITY_SHARE, /* in percent */
    NDP_QUANTITY_SECONDS
} ndp_quantity;

/* Appends a number with its unit, alone: "12.3 k", "1.5 GiB", "2.1 h". NaN: "-". */
void ndp_quantity_add(ndp_str *out, ndp_quantity q, double x);

typedef struct ndp_plot {
    const char *title, *name; /* name: of the x axis, "steps" */
    ndp_quantity x, y;
    double left, right; /* of the x axis, finite */
    const ndp_curve_columns *const
        *curves; /* [n]; NULL, or without points: a run without this curve. Curve i has colour i */
    int n;
} ndp_plot;

enum { NDP_PLOT_COLOURS = 8 }; /* later curves repeat them, dashed */

/* Appends the plot: a line through the means of each curve's columns and a band from least to greatest. */
void ndp_plot_add(ndp_str *out, const ndp_plot *p);

/* Appends a bar of parts whose widths are `values` >= 0, of classes "p0", "p1" and so on. */
void ndp_bar_add(ndp_str *out, const char *title, const double *values, const char *const *names, int n);

#endif
