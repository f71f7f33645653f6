/* adamw, sgd, lion, muon, muon_momentum: one launch over the table of pieces, one pass over memory. An element's update
 * is that of rows/cpu_update.c: the constants are rounded to fp32, and moments too small to matter become 0. A kernel
 * for each way to keep numbers: all fp32 (PLAIN), or others (cuda_kept.cuh). */
#include "ops/cuda/cuda_kept.cuh"
#include "ops/cuda/cuda_kernels.hpp"
extern "C" {
#include "ops/update.h"
}

enum { UPDATE_THREADS = 256 };
static constexpr int UPDATE_ROUNDS = 4; /* a thread updates 8 elements a round */

/* ---- one element ---- */

/* Each optimizer: its constants in fp32, and `operator()`, which returns the new weight. g is the gradient, clipped if
 * CLIPS; m and v are the states, in and out. STATES: how many it may have; WEIGHTS: it reads the old ones. */
struct adamw_element : ndp_adamw_constants {
    enum { STATES = 2, WEIGHTS = true, CLIPS = true };
    using ndp_adamw_constants::ndp_adamw_constants;
    __device__ float operator()(float g, float w, float &m, float &v) const {
        m = ndp_flush_moment(m + new1 * (g - m));
        v = ndp_flush_moment(old2 * v + new2 * (g * g));
        return w * keep - rate * (m / (sqrtf(v) * unbias + eps));
    }
};

/* The momentum buffer starts as zeros, which makes the first step m = g. */
struct sgd_element {
    enum { STATES = 1, WEIGHTS = true, CLIPS = true };
    float lr, decay, momentum;
    __device__ sgd_element(const double *k) {
        lr = (float)k[NDP_SGD_LR];
        decay = (float)k[NDP_SGD_DECAY];
        momentum = (float)k[NDP_SGD_MOMENTUM];
    }
    __device__ float operator()(float g, float w, float &m, float &) const {
        float d = g + decay * w;
        if (momentum != 0)
            m = d = ndp_flush_moment(momentum * m + d);
        return w - lr * d;
    }
};

/* The sign of a broken gradient is NaN, not 0. */
struct lion_element {
    enum { STATES = 1, WEIGHTS = true, CLIPS = true };
    float keep, lr, old1, new1, old2, new2;
    __device__ lion_element(const double *k) {
        keep = (float)k[NDP_LION_KEEP];
        lr = (float)k[NDP_LION_LR];
        old1 = (float)k[NDP_LION_OLD1];
        new1 = (float)k[NDP_LION_NEW1];
        old2 = (float)k[NDP_LION_OLD2];
        new2 = (float)k[NDP_LION_NEW2];
    }
    __device__ float operator()(float g, float w, float &m, float &) const {
        float c = old1 * m + new1 * g;
        float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c;
        m = ndp_flush_moment(old2 * m + new2 * g);
        return w * keep - lr * sign;
    }
};

/* Nesterov's momentum. The direction is written where other updates have weights. */
struct muon_momentum_element {
    enum { STATES = 1, WEIGHTS = false, CLIPS = true };
    float ahead, fresh;
    __device__ muon_momentum_element(const double *k) {
        ahead = (float)k[NDP_MUON_AHEAD];
        fresh = (float)(1 - k[NDP_MUON_MOMENTUM]);
    }
    __device__ float operator()(float g, float, float &m, float &) const {
        m = ndp_flush_moment(m + fresh * (g - m));
        return g + ahead * (m - g);
    }
};

/* Its gradient is a direction, which is clipped already. */
struct muon_element {
    enum { STATES = 0, WEIGHTS = true, CLIPS = false };
    float keep, lr;
    __device__ muon_element(const double *k) {
        keep = (float)k[NDP_MUON_KEEP];
        lr = (float)k[NDP_MUON_LR];
    }
    __device__ float operator()(float g, float w, float &, float &) const { return w * keep - lr * g; }
};

/* ---- all of them ---- */

struct update_views {
    ndp_view w, g, pieces, copy, state[NDP_OPTIMIZER_STATES];
    const double *constants, *clip; /* clip: NULL: 1 */
    ndp_kept kept;
};

struct parts_of_update {
    int64_t length;
    __device__ int64_t operator()(int64_t count) const { return (count + length - 1) / length; }
};

/* The elements of a piece as a row of their own. */
static __device__ __forceinline__ ndp_view piece_of(ndp_view v, int64_t first, int64_t count) {
    if (v.data)
        v.data = (char *)v.data + first * (v.dtype == NDP_BF16 || v.dtype == NDP_SPLIT_REST ? 2 : 4);
    v.cols = count;
    return v;
}

static __device__ __forceinline__ ndp_lanes weights8(const update_views &u, int64_t i) {
    if (u.kept.weights != NDP_SPLIT_REST)
        return ndp_get8(u.w, 0, i);
    return ndp_join8(ndp_load8(u.copy, 0, i), ndp_load8(u.w, 0, i));
}

static __device__ __forceinline__ void keep8(const ndp_view &v, int64_t i, const ndp_lanes &x, const ndp_raw &words) {
    ndp_store8(v, 0, i, v.dtype == NDP_BF16 ? ndp_round8(x, words) : ndp_narrow(v.dtype, x));
}

static __device__ __forceinline__ void keep_weights8(const update_views &u, int64_t i, const ndp_lanes &w,
                                                     const ndp_raw &words) {
    ndp_raw high, rest;
    if (u.kept.weights != NDP_SPLIT_REST) {
        keep8(u.w, i, w, words);
        if (u.copy.data)
            ndp_set8(u.copy, 0, i, w);
        return;
    }
    ndp_split8(w, &high, &rest);
    ndp_store8(u.copy, 0, i, high);
    ndp_store8(u.w, 0, i, rest);
}

/* Elements i .. i + 7 of the views, which are rows of one piece. */
template <typename E, bool PLAIN>
static __device__ __forceinline__ void update8(const update_views &u, const E &element, const ndp_rounding &r,
                                               float clip, int64_t i) {
    ndp_lanes g = ndp_get8(u.g, 0, i), w = {}, m = {}, v = {};
    if (E::WEIGHTS)
        w = PLAIN ? ndp_get8(u.w, 0, i) : weights8(u, i);
    if (E::STATES > 0 && u.state[0].data)
        m = ndp_get8(u.state[0], 0, i);
    if (E::STATES > 1)
        v = ndp_get8(u.state[1], 0, i);
    for (int k = 0; k < NDP_LANES; k++)
        w.x[k] = element(g.x[k] * clip, w.x[k], m.x[k], v.x[k]);
    if (!PLAIN) {
        ndp_words8 words = u.kept.rounds ? ndp_draw8(r, i) : ndp_words8{};
        keep_weights8(u, i, w, words.of[NDP_ROUNDING_WEIGHT]);
        if (E::STATES > 0 && u.state[0].data)
            keep8(u.state[0], i, m, words.of[NDP_ROUNDING_STATE]);
        if (E::STATES > 1)
            keep8(u.state[1], i, v, words.of[NDP_ROUNDING_STATE + 1]);
        return;
    }
    ndp_set8(u.w, 0, i, w);
    if (u.copy.data)
        ndp_set8(u.copy, 0, i, w);
    if (E::STATES > 0 && u.state[0].data)
        ndp_set8(u.state[0], 0, i, m);
    if (E::STATES > 1)
        ndp_set8(u.state[1], 0, i, v);
}

template <typename E, bool PLAIN> __global__ void __launch_bounds__(UPDATE_THREADS) ndp_update_kernel(update_views u) {
    const int64_t step = (int64_t)blockDim.x * NDP_LANES;
    double clip = u.clip ? *u.clip : 1;
    ndp_piece_part p;
    if (clip != clip || !ndp_find_part(u.pieces, blockIdx.x, parts_of_update{step * UPDATE_ROUNDS}, &p))
        return;
    int64_t count = p.piece[NDP_PIECE_COUNT], first = p.piece[NDP_PIECE_FIRST], at = p.part * step * UPDATE_ROUNDS;
    for (int s = 0; s < NDP_OPTIMIZER_STATES; s++)
        u.state[s] = piece_of(u.state[s], ndp_piece_place(&u.pieces, p.piece, &u.state[s], u.w.cols), count);
    u.w = piece_of(u.w, first, count);
    u.g = piece_of(u.g, first, count);
    u.copy = piece_of(u.copy, first, count);
    if (u.kept.weights == NDP_SPLIT_REST)
        u.w.dtype = NDP_BF16; /* as far as loads and stores know */
    ndp_rounding r = {};
    if (!PLAIN && u.kept.rounds)
        r = ndp_piece_rounding(u.constants, p.piece);
    E element(ndp_piece_constants(u.constants, p.piece));
    at += (int64_t)threadIdx.x * NDP_LANES;
    for (int round = 0; round < UPDATE_ROUNDS && at < count; round++, at += step)
        update8<E, PLAIN>(u, element, r, E::CLIPS ? (float)clip : 1.0f, at);
}

template <typename E> static ndp_status run_update(const ndp_op_call *c) {
    const ndp_view *w = &c->in[NDP_UPDATE_WEIGHT], *pieces = &c->in[NDP_UPDATE_PIECES];
    update_views u = {*w,
                      c->in[NDP_UPDATE_GRAD],
                      *pieces,
                      c->out[1],
                      {c->in[NDP_UPDATE_STATE], c->in[NDP_UPDATE_STATE + 1]},
                      (const double *)c->in[NDP_UPDATE_CONSTANTS].data,
                      (const double *)c->in[NDP_UPDATE_CLIP].data,
                      ndp_kept_of(c)};
    unsigned threads = ndp_block_of(w->cols / (NDP_LANES * UPDATE_ROUNDS), UPDATE_THREADS);
    int64_t blocks = ndp_piece_blocks(pieces, w->cols, (int64_t)threads * NDP_LANES * UPDATE_ROUNDS);
    auto kernel = u.kept.weights != NDP_F32 || u.kept.rounds ? ndp_update_kernel<E, false> : ndp_update_kernel<E, true>;
    return ndp_launch(c, kernel, dim3((unsigned)blocks), dim3(threads), 0, u);
}

#define UPDATE(op)                                                                                                     \
    static ndp_status run_##op(const ndp_op_call *c) { return run_update<op##_element>(c); }                           \
    NDP_CUDA_KERNEL(op)

UPDATE(adamw)
UPDATE(sgd)
UPDATE(lion)
UPDATE(muon)
UPDATE(muon_momentum)
