/* square_sum, clip_factor. */
#include "ops/pieces.h"
#include "ops/ref/ref_kernels.h"

#include <math.h>

/* The order of the additions is that of `cpu` (rows/cpu_square_sum.c), so that fp32 sums are the same on both. */
static double squares(const ndp_view *x, int64_t first, int64_t end) {
    double lane[NDP_SQUARE_LANES] = {0}, sum = 0;
    for (int64_t i = first; i < end; i++) {
        double value = ndp_view_get(x, 0, i);
        lane[(i - first) % NDP_SQUARE_LANES] += value * value;
    }
    for (int j = 0; j < NDP_SQUARE_LANES; j++)
        sum += lane[j];
    return sum;
}

static double piece_squares(const ndp_view *x, int64_t first, int64_t n) {
    double sum = 0;
    int64_t length = ndp_square_part(n);
    for (int64_t at = 0; at < n; at += length)
        sum += squares(x, first + at, first + (at + length < n ? at + length : n));
    return sum;
}

static ndp_status run_square_sum(const ndp_op_call *c) {
    double *sum = c->out[0].data, total = c->attr->accumulate ? *sum : 0;
    for (int64_t i = 0; i < c->in[1].rows; i++) {
        const int64_t *piece = ndp_piece_at(&c->in[1], i);
        total +=
            piece_squares(&c->in[0], piece[NDP_PIECE_FIRST], piece[NDP_PIECE_COUNT]) / (double)ndp_piece_copies(piece);
    }
    *sum = total;
    return NDP_OK;
}

const ndp_kernel ndp_ref_square_sum = {.run = run_square_sum};

ndp_status ndp_ref_run_clip_factor(const ndp_op_call *c) {
    double scale = c->attr->scale, norm = scale * sqrt(*(const double *)c->in[0].data), most = c->attr->max_norm;
    double factor = most == 0 || norm == 0 ? 1 : most / norm;
    double loss = ndp_present(&c->in[1]) ? *(const double *)c->in[1].data : 0;
    *(double *)c->out[0].data = norm;
    *(double *)c->out[1].data = !isfinite(norm) || !isfinite(loss) ? NAN : scale * (factor > 1 ? 1 : factor);
    return NDP_OK;
}

const ndp_kernel ndp_ref_clip_factor = {.run = ndp_ref_run_clip_factor};
