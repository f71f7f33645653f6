/* adamw8bit: a warp for each block of codes, eight neighbouring elements a lane. The update of an element is that of
 * cuda_update.cu; the scale of a block is a maximum over its warp. Tables of the map are in shared memory. */
#include "ops/cuda/cuda_kept.cuh"
#include "ops/cuda/cuda_kernels.hpp"
extern "C" {
#include "ops/update.h"
}

static constexpr int CODED_WARPS = 8, CODED_THREADS = CODED_WARPS * NDP_WARP, CODED_STATES = NDP_OPTIMIZER_STATES;
static_assert(NDP_CODE_BLOCK == NDP_WARP * NDP_LANES, "a warp has a block");

struct coded_views {
    ndp_view pieces;
    void *w;
    float *scales[NDP_OPTIMIZER_STATES];
    const float *g;
    uint16_t *copy; /* bf16; NULL: none is written */
    uint8_t *codes[NDP_OPTIMIZER_STATES];
    const double *constants, *clip; /* clip: NULL: 1 */
    float margin;                   /* ndp_code_margin */
    ndp_kept kept;
};

/* ---- eight elements of a slice, of which those from `first` to `end` - 1 belong to the piece ---- */

struct coded_lane {
    int64_t at, first, end;
    bool whole; /* all eight */
    __device__ bool has(int k) const { return at + k >= first && at + k < end; }
};

/* Elements that are not the piece's are 0. */
static __device__ __forceinline__ ndp_lanes lane_get(const coded_lane &l, const float *p) {
    ndp_lanes out = {};
    if (l.whole && ndp_aligned16(p + l.at)) {
        float4 a = ((const float4 *)(p + l.at))[0], b = ((const float4 *)(p + l.at))[1];
        return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    }
    for (int k = 0; k < NDP_LANES; k++)
        if (l.has(k))
            out.x[k] = p[l.at + k];
    return out;
}

static __device__ __forceinline__ void lane_set(const coded_lane &l, float *p, const ndp_lanes &x) {
    if (l.whole && ndp_aligned16(p + l.at)) {
        ((float4 *)(p + l.at))[0] = make_float4(x.x[0], x.x[1], x.x[2], x.x[3]);
        ((float4 *)(p + l.at))[1] = make_float4(x.x[4], x.x[5], x.x[6], x.x[7]);
        return;
    }
    for (int k = 0; k < NDP_LANES; k++)
        if (l.has(k))
            p[l.at + k] = x.x[k];
}

/* The same of numbers of 16 bits. */
static __device__ __forceinline__ ndp_raw lane_load(const coded_lane &l, const uint16_t *p) {
    ndp_view row = {(void *)(p + l.at), NDP_BF16, 1, NDP_LANES, NDP_LANES};
    ndp_raw out = {};
    if (l.whole)
        return ndp_load8(row, 0, 0);
    for (int k = 0; k < NDP_LANES; k++)
        if (l.has(k))
            out.w[k / 2] |= (unsigned)p[l.at + k] << k % 2 * 16;
    return out;
}

static __device__ __forceinline__ void lane_store(const coded_lane &l, uint16_t *p, const ndp_raw &x) {
    ndp_view row = {p + l.at, NDP_BF16, 1, NDP_LANES, NDP_LANES};
    if (l.whole)
        ndp_store8(row, 0, 0, x);
    for (int k = 0; k < NDP_LANES && !l.whole; k++)
        if (l.has(k))
            p[l.at + k] = ndp_half_of(x, k);
}

/* ---- weights, however they are kept ---- */

static __device__ __forceinline__ ndp_lanes lane_weights(const coded_lane &l, const coded_views &u) {
    if (u.kept.weights == NDP_F32)
        return lane_get(l, (const float *)u.w);
    ndp_raw own = lane_load(l, (const uint16_t *)u.w);
    return u.kept.weights == NDP_BF16 ? ndp_widen(NDP_BF16, own) : ndp_join8(lane_load(l, u.copy), own);
}

/* r: of the piece. */
static __device__ __forceinline__ void lane_keep(const coded_lane &l, const coded_views &u, const ndp_rounding &r,
                                                 const ndp_lanes &w) {
    ndp_raw high, rest;
    if (u.kept.weights == NDP_F32) {
        lane_set(l, (float *)u.w, w);
        if (u.copy)
            lane_store(l, u.copy, ndp_narrow(NDP_BF16, w));
    } else if (u.kept.weights == NDP_BF16) {
        lane_store(l, (uint16_t *)u.w, ndp_round8(w, ndp_draw8(r, l.at - l.first).of[NDP_ROUNDING_WEIGHT]));
    } else {
        ndp_split8(w, &high, &rest);
        lane_store(l, u.copy, high);
        lane_store(l, (uint16_t *)u.w, rest);
    }
}

static __device__ __forceinline__ ndp_lanes decode(const coded_lane &l, const uint8_t *codes, const float *values,
                                                   float scale) {
    ndp_lanes out = {};
    for (int k = 0; k < NDP_LANES; k++)
        if (l.has(k))
            out.x[k] = values[codes[l.at + k]] * scale;
    return out;
}

/* All lanes of the warp. Returns the scale. */
static __device__ __forceinline__ float encode(const coded_lane &l, bool is_signed, const ndp_lanes &x,
                                               const float *last, float margin, uint8_t *codes) {
    float most = 0;
    for (int k = 0; k < NDP_LANES; k++)
        most = l.has(k) ? fmaxf(most, fabsf(x.x[k])) : most;
    float scale = ndp_warp_max(most) * margin, by = scale > 0 ? scale : 1.0f;
    for (int k = 0; k < NDP_LANES; k++)
        if (l.has(k))
            codes[l.at + k] = (uint8_t)ndp_dynamic_nearest(is_signed, last, x.x[k] / by);
    return scale;
}

/* ---- a block ---- */

/* ndp_dynamic_fill by all threads of the block. */
static __device__ __forceinline__ void fill_maps(ndp_dynamic_map *maps) {
    for (int i = threadIdx.x; i < CODED_STATES * NDP_CODES; i += CODED_THREADS)
        maps[i / NDP_CODES].values[i % NDP_CODES] = ndp_dynamic_value(i < NDP_CODES, i % NDP_CODES);
    __syncthreads();
    for (int i = threadIdx.x; i < CODED_STATES * NDP_CODES; i += CODED_THREADS) {
        ndp_dynamic_map &map = maps[i / NDP_CODES];
        int code = i % NDP_CODES;
        map.last[code] = code < NDP_CODES - 1 ? ndp_dynamic_last(map.values[code], map.values[code + 1]) : INFINITY;
    }
    __syncthreads();
}

static __device__ __forceinline__ void update_lane(const coded_lane &l, const coded_views &u,
                                                   const ndp_adamw_constants &c, const ndp_rounding &r, float clip,
                                                   ndp_lanes &m, ndp_lanes &v) {
    ndp_lanes g = lane_get(l, u.g), w = lane_weights(l, u);
    for (int k = 0; k < NDP_LANES; k++) {
        float gk = g.x[k] * clip;
        m.x[k] = ndp_flush_moment(m.x[k] + c.new1 * (gk - m.x[k]));
        v.x[k] = ndp_flush_moment(c.old2 * v.x[k] + c.new2 * (gk * gk));
        w.x[k] = w.x[k] * c.keep - c.rate * (m.x[k] / (sqrtf(v.x[k]) * c.unbias + c.eps));
    }
    lane_keep(l, u, r, w);
}

/* A piece has at most this many parts: its first block may be short. */
struct parts_of_codes {
    __device__ int64_t operator()(int64_t count) const {
        int64_t blocks = (count + NDP_CODE_BLOCK - 1) / NDP_CODE_BLOCK + 1;
        return count > 0 ? (blocks + CODED_WARPS - 1) / CODED_WARPS : 0;
    }
};

static __global__ void __launch_bounds__(CODED_THREADS) ndp_coded_kernel(coded_views u) {
    __shared__ ndp_dynamic_map maps[CODED_STATES];
    double clip = u.clip ? *u.clip : 1;
    ndp_piece_part p;
    if (clip != clip || !ndp_find_part(u.pieces, blockIdx.x, parts_of_codes{}, &p))
        return;
    fill_maps(maps);
    int64_t first = p.piece[NDP_PIECE_FIRST], count = p.piece[NDP_PIECE_COUNT];
    int64_t block = p.part * CODED_WARPS + threadIdx.x / NDP_WARP;
    int64_t place = p.piece[NDP_PIECE_PLACE] + block;
    if (block >= ndp_code_blocks(first, count))
        return;
    int lane = threadIdx.x % NDP_WARP;
    coded_lane l = {(first / NDP_CODE_BLOCK + block) * NDP_CODE_BLOCK + lane * NDP_LANES, first, first + count, false};
    l.whole = l.has(0) && l.has(NDP_LANES - 1);
    ndp_adamw_constants c(ndp_piece_constants(u.constants, p.piece));
    ndp_lanes m = decode(l, u.codes[0], maps[0].values, u.scales[0][place]);
    ndp_lanes v = decode(l, u.codes[1], maps[1].values, u.scales[1][place]);
    ndp_rounding r = {};
    if (u.kept.rounds)
        r = ndp_piece_rounding(u.constants, p.piece);
    update_lane(l, u, c, r, (float)clip, m, v);
    float first_scale = encode(l, true, m, maps[0].last, u.margin, u.codes[0]),
          second_scale = encode(l, false, v, maps[1].last, u.margin, u.codes[1]);
    if (lane == 0) /* all lanes have read the old ones: encode made them meet */
        u.scales[0][place] = first_scale, u.scales[1][place] = second_scale;
}

static ndp_status run_adamw8bit(const ndp_op_call *c) {
    const ndp_view *w = &c->in[NDP_UPDATE_WEIGHT], *pieces = &c->in[NDP_UPDATE_PIECES];
    coded_views u = {};
    u.pieces = *pieces;
    u.margin = ndp_code_margin(c->exec);
    u.w = w->data;
    u.kept = ndp_kept_of(c);
    u.g = (const float *)c->in[NDP_UPDATE_GRAD].data;
    u.copy = (uint16_t *)c->out[1].data;
    u.constants = (const double *)c->in[NDP_UPDATE_CONSTANTS].data;
    u.clip = (const double *)c->in[NDP_UPDATE_CLIP].data;
    for (int s = 0; s < CODED_STATES; s++) {
        u.codes[s] = (uint8_t *)c->in[NDP_UPDATE_STATE + s].data;
        u.scales[s] = (float *)c->in[NDP_UPDATE_SCALES + s].data;
    }
    int64_t blocks = pieces->rows > 0 ? w->cols / (CODED_WARPS * NDP_CODE_BLOCK) + 2 * pieces->rows : 0;
    return ndp_launch(c, ndp_coded_kernel, dim3((unsigned)blocks), dim3(CODED_THREADS), 0, u);
}

NDP_CUDA_KERNEL(adamw8bit)
