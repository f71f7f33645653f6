/* Attention in bf16, forward: scores of a tile of keys at a time, a softmax whose maximum and sum are corrected as
 * tiles come (Dao, FlashAttention-2, 2023). */
#include "ops/cuda/cuda_attention_bf16.cuh"

/* Keys of a tile, and whether q stays in registers. */
static __host__ __device__ constexpr int forward_keys(int d) { return d <= 128 ? 64 : 32; }
static __host__ __device__ constexpr bool forward_q_stays(int d) { return d <= 128; }

/* A warp's 16 rows of o; this lane's rows are g and g + 8. Scores are powers of 2. */
template <int D> struct forward_state {
    float o[D / 8][4], max[2], sum[2];
    ndp_att_row rows[2];
};

/* Scores [16 x 8N] scaled, capped and masked. */
template <int N, int D>
static __device__ __forceinline__ void forward_scores(float (&x)[N][4], const ndp_att_call &a,
                                                      const forward_state<D> &s, const ndp_att_room<D, 8 * N> *keys,
                                                      bool whole) {
    float by = a.cap > 0.0f ? a.scale : a.scale * NDP_ATT_LOG2E, slope;
    NDP_UNROLL
    for (int j = 0; j < N; j++)
        NDP_UNROLL
    for (int i = 0; i < 4; i++) {
        x[j][i] *= by;
        if (a.cap > 0.0f)
            x[j][i] = ndp_att_capped(x[j][i], a.cap, &slope) * NDP_ATT_LOG2E;
    }
    if (whole)
        return;
    NDP_UNROLL
    for (int j = 0; j < N; j++)
        NDP_UNROLL
    for (int i = 0; i < 4; i++)
        if (!ndp_att_sees(s.rows[i / 2], *keys->row(8 * j + (int)(threadIdx.x % 4) * 2 + i % 2)))
            x[j][i] = -INFINITY;
}

/* Scores become weights relative to each row's greatest so far; what was summed is scaled to it. */
template <int N, int D> static __device__ __forceinline__ void forward_softmax(forward_state<D> *s, float (&x)[N][4]) {
    NDP_UNROLL
    for (int h = 0; h < 2; h++) {
        float most = s->max[h];
        NDP_UNROLL
        for (int j = 0; j < N; j++)
            most = fmaxf(most, fmaxf(x[j][2 * h], x[j][2 * h + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        float base = most == -INFINITY ? 0.0f : most, by = ndp_exp2(s->max[h] - base);
        s->max[h] = most, s->sum[h] *= by;
        NDP_UNROLL
        for (int j = 0; j < D / 8; j++)
            s->o[j][2 * h] *= by, s->o[j][2 * h + 1] *= by;
        NDP_UNROLL
        for (int j = 0; j < N; j++) {
            x[j][2 * h] = ndp_exp2(x[j][2 * h] - base), x[j][2 * h + 1] = ndp_exp2(x[j][2 * h + 1] - base);
            s->sum[h] += x[j][2 * h] + x[j][2 * h + 1];
        }
    }
}

/* One tile of keys. q: the warp's 16 rows in shared memory, or their fragments. */
template <int D>
static __device__ __forceinline__ void forward_tile(forward_state<D> *s, const ndp_att_call &a,
                                                    const unsigned (&fragments)[D / 16][4], const __nv_bfloat16 *q,
                                                    const ndp_att_room<D, forward_keys(D)> *keys, bool whole) {
    constexpr int N = forward_keys(D) / 8, LD = D + NDP_ATT_PAD;
    float x[N][4] = {};
    auto q_at = [&](int k, unsigned *to) {
        if constexpr (forward_q_stays(D)) {
            NDP_UNROLL
            for (int i = 0; i < 4; i++)
                to[i] = fragments[k][i];
        } else {
            ndp_fragment_a(to, q + k * 16, LD);
        }
    };
    ndp_products<N, D>(x, q_at, keys->x, LD);
    forward_scores(x, a, *s, keys, whole);
    forward_softmax(s, x);
    ndp_products_across(s->o, x, keys->y, LD);
}

template <int D>
static __device__ __forceinline__ void forward_store(const ndp_att_call &a, forward_state<D> *s, int kv, int r) {
    float by[2];
    NDP_UNROLL
    for (int h = 0; h < 2; h++) {
        float sum = s->sum[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        by[h] = sum == 0.0f ? 0.0f : 1.0f / sum;
        int row = r + 8 * h;
        if (a.lse.data && threadIdx.x % 4 == 0 && row < a.n[NDP_ATT_QUERIES_SIDE]) {
            int64_t token = row / a.group, head = (int64_t)kv * a.group + row % a.group;
            ((float *)a.lse.data)[token * a.lse.ld + head] =
                sum == 0.0f ? -INFINITY : (s->max[h] + log2f(sum)) * 0.6931471805599453f;
        }
    }
    ndp_att_store<D / 8, NDP_ATT_QUERIES_SIDE>(a, a.o, a.v_dim, kv, r, s->o, by);
}

template <int D> __global__ __launch_bounds__(NDP_ATT_THREADS) void ndp_att_forward_kernel(const ndp_att_call a) {
    constexpr int KEYS = forward_keys(D), LD = D + NDP_ATT_PAD;
    constexpr ndp_att_side OWN = NDP_ATT_QUERIES_SIDE;
    ndp_att_room<D, KEYS> *rooms = (ndp_att_room<D, KEYS> *)ndp_shared_bytes;
    /* q that stays in registers passes through the second room, before that is filled */
    __nv_bfloat16 *q = forward_q_stays(D) ? rooms[1].x : (__nv_bfloat16 *)(rooms + 2);
    int kv = (int)blockIdx.y, tile = (int)(gridDim.x - 1 - blockIdx.x); /* the last rows see most: they go first */
    int first = tile * NDP_ATT_OWN, warp = (int)threadIdx.x / NDP_WARP,
        r = first + warp * 16 + (int)(threadIdx.x % 32) / 4;
    bool busy = first + warp * 16 < a.n[OWN];
    ndp_att_walk<OWN> walk(a, tile);
    ndp_att_load<D, NDP_ATT_OWN, OWN>(q, a, a.q, a.dim, {a.k_pos, walk.own, false}, kv, first, a.n[OWN]);
    ndp_copies_commit();
    int at = walk.next(), next;
    if (at >= 0)
        ndp_att_fetch(&rooms[0], a, walk, kv, at);
    ndp_copies_wait<0>();
    __syncthreads();
    forward_state<D> s = {};
    unsigned fragments[D / 16][4] = {};
    if constexpr (forward_q_stays(D))
        if (busy) {
            NDP_UNROLL
            for (int k = 0; k < D / 16; k++)
                ndp_fragment_a(fragments[k], q + warp * 16 * LD + k * 16, LD);
        }
    NDP_UNROLL
    for (int h = 0; h < 2; h++) {
        s.max[h] = ndp_att_sink(a, kv, r + 8 * h) * NDP_ATT_LOG2E, s.rows[h] = ndp_att_row_at<OWN>(a, kv, r + 8 * h);
        s.sum[h] = s.max[h] == -INFINITY || threadIdx.x % 4 != 0 ? 0.0f : 1.0f; /* four lanes have a row */
    }
    for (int i = 0; at >= 0; i ^= 1, at = next) {
        ndp_copies_wait<0>();
        __syncthreads(); /* this tile is there, and no thread reads the other buffer */
        next = walk.next();
        if (next >= 0)
            ndp_att_fetch(&rooms[i ^ 1], a, walk, kv, next);
        if (busy)
            forward_tile(&s, a, fragments, q + warp * 16 * LD, &rooms[i], ndp_att_whole<KEYS>(a, walk, at));
    }
    if (busy)
        forward_store(a, &s, kv, r);
}

template <int D> static ndp_status forward_launch(const ndp_op_call *c, const ndp_att_call &a) {
    size_t q = forward_q_stays(D) ? 0 : NDP_ATT_OWN * (D + NDP_ATT_PAD) * sizeof(__nv_bfloat16);
    dim3 grid((unsigned)ndp_ceil_div(a.n[NDP_ATT_QUERIES_SIDE], NDP_ATT_OWN), (unsigned)a.kv_heads);
    return ndp_launch(c, ndp_att_forward_kernel<D>, grid, dim3(NDP_ATT_THREADS),
                      2 * sizeof(ndp_att_room<D, forward_keys(D)>) + q, a);
}

ndp_status ndp_att_run_bf16_forward(const ndp_op_call *c, const ndp_att_call &a) {
    switch (ndp_att_padded(ndp_att_dim(c))) {
    case 32:
        return forward_launch<32>(c, a);
    case 64:
        return forward_launch<64>(c, a);
    case 96:
        return forward_launch<96>(c, a);
    case 128:
        return forward_launch<128>(c, a);
    case 192:
        return forward_launch<192>(c, a);
    default:
        return forward_launch<256>(c, a);
    }
}
