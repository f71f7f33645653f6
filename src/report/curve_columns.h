/* A curve of any number of points as at most NDP_COLUMNS columns, made in one pass: when a point lies beyond the last
 * column, columns become twice as wide and neighbours one. So a curve of any length has between a half and all of them,
 * or a column a point. */
#ifndef NDP_REPORT_CURVE_COLUMNS_H
#define NDP_REPORT_CURVE_COLUMNS_H

#include "base/status.h"

enum { NDP_COLUMNS = 600 };

/* The points of a column: means of both coordinates, the least and the greatest y. */
typedef struct ndp_curve_column {
    double x, mean, least, greatest;
    int64_t n; /* 0: the rest is not set */
} ndp_curve_column;

/* `{0}` has no points. */
typedef struct ndp_curve_columns {
    ndp_curve_column *at;
    int n;             /* the last of them has a point */
    double start, end; /* x of the first and of the newest point */
    double width;      /* 0: all points so far have one x */
} ndp_curve_columns;

/* Adds a point whose x is not below that of the one before; one with a NaN, infinity or a number beyond 1e300 is left
 * out. NDP_ENOMEM. */
NDP_API ndp_status ndp_columns_add(ndp_curve_columns *c, double x, double y);
/* Makes columns wider until there are at most `most` > 0. */
void ndp_columns_limit(ndp_curve_columns *c, int most);
void ndp_columns_release(ndp_curve_columns *c);

#endif
