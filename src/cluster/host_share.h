/* What products and attention of a shape reach on processors, of the rate that large ones reach: the fit of
 * measurements and the prices of calls have one rule. The constants are of this project's kernels, by the least times
 * of 150 shapes on a Xeon with AVX-512 (2026-11-29); products in caches lose what their operands take to be packed,
 * attention the start of each query and of each head. */
#ifndef NDP_CLUSTER_HOST_SHARE_H
#define NDP_CLUSTER_HOST_SHARE_H

/* Of [m,k] x [k,n]: the half where one of the three is 20. */
static inline double ndp_host_product_share(double m, double n, double k) {
    return 1 / (1 + 20 * (1 / m + 1 / n + 1 / k));
}

/* `seen`: keys that a query sees on average; d: columns of a head. */
static inline double ndp_host_attention_share(double seen, double d) { return seen / (seen + 70) * d / (d + 9); }

#endif
