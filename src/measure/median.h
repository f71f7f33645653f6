/* The middle of measurements. */
#ifndef NDP_MEASURE_MEDIAN_H
#define NDP_MEASURE_MEDIAN_H

/* The middle value, or the mean of the two in the middle; 0 without any. Sorts the values. */
double ndp_median(double *values, int n);

#endif
