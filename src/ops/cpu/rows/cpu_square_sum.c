/* square_parts: how square_sum adds up one piece (cpu_pieces.c). */
#include "ops/cpu/rows/range_kernel.h"
#include "ops/pieces.h"

/* Fixed lanes, not a reduction clause: the order must not be the compiler's choice. The square of a float is exact in
 * fp64, so that fused and separate multiply-adds agree. */
static double squares(const float *x, int64_t n) {
    double lane[NDP_SQUARE_LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + NDP_SQUARE_LANES <= n; i += NDP_SQUARE_LANES) {
        SIMD for (int j = 0; j < NDP_SQUARE_LANES; j++) lane[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (int j = 0; i < n; i++, j++)
        lane[j] += (double)x[i] * (double)x[i];
    for (int j = 0; j < NDP_SQUARE_LANES; j++)
        sum += lane[j];
    return sum;
}

/* bf16 is widened a block at a time: one sum serves both types. */
static double squares_bf16(const uint16_t *x, int64_t n) {
    enum { BLOCK = 1024 };
    float wide[BLOCK];
    double sum = 0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t some = n - at < BLOCK ? n - at : BLOCK;
        SIMD for (int64_t i = 0; i < some; i++) wide[i] = ndp_bf16_to_f32(x[at + i]);
        sum += squares(wide, some);
    }
    return sum;
}

void NDP_RANGE_KERNEL(square_parts)(const ndp_op_call *c, int64_t first, int64_t last) {
    const int64_t *piece = ndp_piece_at(&c->in[1], 0);
    int64_t n = piece[NDP_PIECE_COUNT], length = ndp_square_part(n);
    double *part = c->out[0].data;
    for (int64_t p = first; p < last; p++) {
        int64_t at = p * length, some = n - at < length ? n - at : length;
        const void *x = ndp_at(&c->in[0], 0, piece[NDP_PIECE_FIRST] + at);
        part[p] = c->in[0].dtype == NDP_BF16 ? squares_bf16(x, some) : squares(x, some);
    }
}
