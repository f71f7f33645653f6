/* The median: what one measurement far from the others does not move. */
#include "measure/median.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ndp_median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n ? (values[(n - 1) / 2] + values[n / 2]) / 2 : 0;
}
