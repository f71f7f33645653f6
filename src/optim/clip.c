#include "optim/kernels.h"

#include "tensor/segments.h"

/* bf16 is widened a block at a time: one sum serves all types. */
static double squares_bf16(const uint16_t *x, int64_t first, int64_t end) {
    enum { BLOCK = 1024 };
    const ndp_optim_kernels *k = ndp_optim_kernels_for(NDP_F32);
    float wide[BLOCK];
    double sum = 0;
    for (int64_t i = first; i < end; i += BLOCK) {
        int64_t n = end - i < BLOCK ? end - i : BLOCK;
        ndp_convert(x + i, NDP_BF16, wide, NDP_F32, n);
        sum += k->squares(wide, 0, n);
    }
    return sum;
}

static double squares(const void *x, ndp_dtype type, int64_t first, int64_t end) {
    return type == NDP_BF16 ? squares_bf16(x, first, end) : ndp_optim_kernels_for(type)->squares(x, first, end);
}

/* A fixed number of parts, added in their order: threads only choose who computes which part. */
static void sum_parts(const void *x, ndp_dtype type, int64_t n, int64_t length, int first, int last, double *part) {
    for (int i = first; i < last; i++)
        part[i] = squares(x, type, i * length, (i + 1) * length < n ? (i + 1) * length : n);
}

double ndp_sum_squares(const void *x, ndp_dtype type, int64_t n, int threads) {
    enum { PARTS = 256 };
    double part[PARTS], sum = 0;
    if (n <= 0)
        return 0;
    int64_t blocks = (n + NDP_SEGMENT_ALIGN - 1) / NDP_SEGMENT_ALIGN;
    int64_t length = (blocks + PARTS - 1) / PARTS * NDP_SEGMENT_ALIGN;
    int parts = (int)((n + length - 1) / length);
    int team = ndp_optim_threads(n, threads);
    if (team == 1) /* not a team of one: OpenMP makes a new team whenever the size changes */
        sum_parts(x, type, n, length, 0, parts, part);
    else
#pragma omp parallel for schedule(static) num_threads(team)
        for (int i = 0; i < parts; i++)
            sum_parts(x, type, n, length, i, i + 1, part);
    for (int i = 0; i < parts; i++)
        sum += part[i];
    return sum;
}

double ndp_clip_factor(double norm, double max_norm) {
    if (max_norm == 0 || norm == 0)
        return 1;
    double factor = max_norm / norm;
    return factor > 1 ? 1 : factor; /* NaN stays NaN: a broken gradient must not pass for a small one */
}
