/* Weights and states of an update as fp32, eight neighbours a thread, however they are kept (ops/update.h). */
#ifndef NDP_OPS_CUDA_CUDA_KEPT_CUH
#define NDP_OPS_CUDA_CUDA_KEPT_CUH

#include "ops/cuda/cuda_pieces.cuh"

/* How an update keeps its numbers; the same for all threads. */
struct ndp_kept {
    ndp_dtype weights;
    bool rounds; /* what is bf16 is rounded at random */
};

static inline ndp_kept ndp_kept_of(const ndp_op_call *c) {
    return {c->in[NDP_UPDATE_WEIGHT].dtype, c->in[NDP_UPDATE_PIECES].cols == NDP_PIECE_COLUMNS_ROUNDED};
}

/* Half k of eight packed ones. */
static __device__ __forceinline__ uint16_t ndp_half_of(const ndp_raw &x, int k) {
    return (uint16_t)(x.w[k / 2] >> k % 2 * 16);
}

static __device__ __forceinline__ ndp_lanes ndp_join8(const ndp_raw &high, const ndp_raw &rest) {
    ndp_lanes out;
    for (int k = 0; k < NDP_LANES; k++)
        out.x[k] = ndp_split_join(ndp_half_of(high, k), ndp_half_of(rest, k));
    return out;
}

static __device__ __forceinline__ void ndp_split8(const ndp_lanes &in, ndp_raw *high, ndp_raw *rest) {
    *high = {}, *rest = {};
    for (int k = 0; k < NDP_LANES; k++) {
        uint16_t h = ndp_split_high(in.x[k]);
        high->w[k / 2] |= (unsigned)h << k % 2 * 16;
        rest->w[k / 2] |= (unsigned)ndp_split_rest(in.x[k], h) << k % 2 * 16;
    }
}

/* The words of elements i .. i + 7 of a piece, those of each kind packed as the numbers are. */
struct ndp_words8 {
    ndp_raw of[3]; /* of the states, of the weight */
};

static __device__ __forceinline__ ndp_words8 ndp_draw8(const ndp_rounding &r, int64_t i) {
    ndp_words8 out = {};
    for (int k = 0; k < NDP_LANES; k++) {
        philox4x32_ctr_t w = ndp_rounding_words(&r, i + k);
        for (int s = 0; s < 3; s++)
            out.of[s].w[k / 2] |= (w.v[s] & 0xffffu) << k % 2 * 16;
    }
    return out;
}

static __device__ __forceinline__ ndp_raw ndp_round8(const ndp_lanes &in, const ndp_raw &words) {
    ndp_raw out = {};
    for (int k = 0; k < NDP_LANES; k++)
        out.w[k / 2] |= (unsigned)ndp_round_random(in.x[k], ndp_half_of(words, k)) << k % 2 * 16;
    return out;
}

#endif
