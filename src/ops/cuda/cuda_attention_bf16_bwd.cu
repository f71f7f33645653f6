/* Attention in bf16, backward. One kernel makes dq, a loop over keys, or dk and dv, a loop over queries: with x, y the
 * operands q, do of one side and k, v of the other, s = x x', dp = y y' and the gradients are sums of ds x' and p y'.
 */
#include "ops/cuda/cuda_attention_bf16.cuh"

/* Rows of a tile whose scores are in registers. */
enum { PART = 32 };
static __host__ __device__ constexpr int backward_step(int d) { return NDP_ATT_BACKWARD_STEP(d); }

static constexpr size_t backward_bytes(int d, int step) { return NDP_ATT_BACKWARD_BYTES(d, step); }
static_assert(backward_bytes(256, NDP_ATT_SHORT_STEP) <= NDP_ATT_LEAST_SHARED &&
                  backward_bytes(NDP_ATT_LONG, backward_step(NDP_ATT_LONG)) <= NDP_ATT_LEAST_SHARED,
              "on every GPU one of the steps fits");

static __host__ __device__ constexpr ndp_att_side backward_own(ndp_att_result what) {
    return what == NDP_ATT_DQ ? NDP_ATT_QUERIES_SIDE : NDP_ATT_KEYS_SIDE;
}
static __host__ __device__ constexpr bool backward_makes_x(ndp_att_result what) { return what != NDP_ATT_DV; }
static __host__ __device__ constexpr bool backward_makes_y(ndp_att_result what) {
    return what == NDP_ATT_DV || what == NDP_ATT_DK_DV;
}

/* Scores x and dp [16 x 8N] become p and ds. rows: the lane's two of the block's tile; the other ones are `first`.. of
 * the other tile. */
template <ndp_att_side OWN, int N, int D, int STEP>
static __device__ __forceinline__ void backward_weights(float (&x)[N][4], float (&dp)[N][4], const ndp_att_call &a,
                                                        const ndp_att_row (&rows)[2],
                                                        const ndp_att_room<D, STEP> *others, int first, bool whole) {
    NDP_UNROLL
    for (int j = 0; j < N; j++)
        NDP_UNROLL
    for (int i = 0; i < 4; i++) {
        ndp_att_row own = rows[i / 2], other = *others->row(first + 8 * j + (int)(threadIdx.x % 4) * 2 + i % 2);
        const ndp_att_row &query = OWN == NDP_ATT_QUERIES_SIDE ? own : other;
        float slope, score = ndp_att_capped(x[j][i] * a.scale, a.cap, &slope) * NDP_ATT_LOG2E;
        bool seen = whole || ndp_att_see<OWN>(own, other);
        x[j][i] = seen ? ndp_exp2(score - query.lse) : 0.0f;
        dp[j][i] = seen ? x[j][i] * (dp[j][i] - query.delta) * slope : 0.0f;
    }
}

/* What a warp sums: 16 rows. */
template <int D, ndp_att_result WHAT> struct backward_state {
    float dx[backward_makes_x(WHAT) ? D / 8 : 1][4], dy[backward_makes_y(WHAT) ? D / 8 : 1][4];
    ndp_att_row rows[2];
};

/* One tile of the other side. x, y: the warp's 16 rows. */
template <int D, ndp_att_result WHAT, int STEP>
static __device__ __forceinline__ void backward_tile(backward_state<D, WHAT> *s, const ndp_att_call &a,
                                                     const __nv_bfloat16 *x, const __nv_bfloat16 *y,
                                                     const ndp_att_room<D, STEP> *other, bool whole) {
    constexpr int ROWS = STEP < PART ? STEP : (int)PART, N = ROWS / 8, LD = D + NDP_ATT_PAD;
    auto x_at = [&](int k, unsigned *to) { ndp_fragment_a(to, x + k * 16, LD); };
    auto y_at = [&](int k, unsigned *to) { ndp_fragment_a(to, y + k * 16, LD); };
    for (int j = 0; j < STEP; j += ROWS) {
        float p[N][4] = {}, ds[N][4] = {};
        ndp_products<N, D>(p, x_at, other->x + j * LD, LD);
        if (backward_makes_x(WHAT))
            ndp_products<N, D>(ds, y_at, other->y + j * LD, LD);
        backward_weights<backward_own(WHAT)>(p, ds, a, s->rows, other, j, whole);
        if constexpr (backward_makes_y(WHAT))
            ndp_products_across(s->dy, p, other->y + j * LD, LD);
        if constexpr (backward_makes_x(WHAT))
            ndp_products_across(s->dx, ds, other->x + j * LD, LD);
    }
}

template <int D, ndp_att_result WHAT, int STEP>
__global__ __launch_bounds__(NDP_ATT_THREADS) void ndp_att_backward_kernel(const ndp_att_call a) {
    constexpr int LD = D + NDP_ATT_PAD;
    constexpr ndp_att_side OWN = backward_own(WHAT);
    ndp_att_room<D, STEP> *rooms = (ndp_att_room<D, STEP> *)ndp_shared_bytes;
    __nv_bfloat16 *x = (__nv_bfloat16 *)(rooms + 2), *y = x + NDP_ATT_OWN * LD;
    int kv = (int)blockIdx.y, tile = (int)(OWN == NDP_ATT_QUERIES_SIDE ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    int first = tile * NDP_ATT_OWN, warp = (int)threadIdx.x / NDP_WARP,
        r = first + warp * 16 + (int)(threadIdx.x % 32) / 4;
    bool busy = first + warp * 16 < a.n[OWN];
    ndp_att_walk<OWN> walk(a, tile);
    ndp_att_filter all = {a.k_pos, walk.own, false};
    ndp_att_load<D, NDP_ATT_OWN, OWN>(x, a, OWN == NDP_ATT_QUERIES_SIDE ? a.q : a.k, a.dim, all, kv, first, a.n[OWN]);
    ndp_att_load<D, NDP_ATT_OWN, OWN>(y, a, OWN == NDP_ATT_QUERIES_SIDE ? a.d_o : a.v, a.v_dim, all, kv, first,
                                      a.n[OWN]);
    backward_state<D, WHAT> s = {};
    NDP_UNROLL
    for (int h = 0; h < 2; h++) {
        s.rows[h] = ndp_att_row_at<OWN>(a, kv, r + 8 * h);
        s.rows[h].lse *= NDP_ATT_LOG2E;
    }
    int at = walk.next(), next;
    if (at >= 0)
        ndp_att_fetch(&rooms[0], a, walk, kv, at);
    for (int i = 0; at >= 0; i ^= 1, at = next) {
        ndp_copies_wait<0>();
        __syncthreads(); /* this tile is there, and no thread reads the other buffer */
        next = walk.next();
        if (next >= 0)
            ndp_att_fetch(&rooms[i ^ 1], a, walk, kv, next);
        if (busy)
            backward_tile(&s, a, x + warp * 16 * LD, y + warp * 16 * LD, &rooms[i], ndp_att_whole<STEP>(a, walk, at));
    }
    float by_x[2] = {a.scale, a.scale}, by_y[2] = {1.0f, 1.0f};
    if constexpr (backward_makes_x(WHAT))
        if (busy && (WHAT == NDP_ATT_DQ || a.dk.data))
            ndp_att_store<D / 8, OWN>(a, WHAT == NDP_ATT_DQ ? a.dq : a.dk, a.dim, kv, r, s.dx, by_x);
    if constexpr (backward_makes_y(WHAT))
        if (busy && a.dv.data)
            ndp_att_store<D / 8, OWN>(a, a.dv, a.v_dim, kv, r, s.dy, by_y);
}

template <int D, ndp_att_result WHAT, int STEP>
static ndp_status backward_launch_step(const ndp_op_call *c, const ndp_att_call &a) {
    static_assert(2 * sizeof(ndp_att_room<D, STEP>) + 2 * NDP_ATT_OWN * (D + NDP_ATT_PAD) * sizeof(__nv_bfloat16) ==
                  backward_bytes(D, STEP));
    dim3 grid((unsigned)ndp_ceil_div(a.n[backward_own(WHAT)], NDP_ATT_OWN), (unsigned)a.kv_heads);
    return ndp_launch(c, ndp_att_backward_kernel<D, WHAT, STEP>, grid, dim3(NDP_ATT_THREADS), backward_bytes(D, STEP),
                      a);
}

template <int D, ndp_att_result WHAT> static ndp_status backward_launch(const ndp_op_call *c, const ndp_att_call &a) {
    if constexpr (D > NDP_ATT_LONG)
        if (ndp_att_bf16_step(ndp_att_dim(c), true, c->queue->context->shared) == NDP_ATT_SHORT_STEP)
            return backward_launch_step<D, WHAT, NDP_ATT_SHORT_STEP>(c, a);
    return backward_launch_step<D, WHAT, backward_step(D)>(c, a);
}

template <int D> static ndp_status backward_dim(const ndp_op_call *c, const ndp_att_call &a, ndp_att_result what) {
    if (what == NDP_ATT_DQ)
        return backward_launch<D, NDP_ATT_DQ>(c, a);
    if constexpr (D <= NDP_ATT_BOTH)
        return backward_launch<D, NDP_ATT_DK_DV>(c, a);
    else
        return what == NDP_ATT_DK ? backward_launch<D, NDP_ATT_DK>(c, a) : backward_launch<D, NDP_ATT_DV>(c, a);
}

ndp_status ndp_att_run_bf16_backward(const ndp_op_call *c, const ndp_att_call &a, ndp_att_result what) {
    switch (ndp_att_padded(ndp_att_dim(c))) {
    case 32:
        return backward_dim<32>(c, a, what);
    case 64:
        return backward_dim<64>(c, a, what);
    case 96:
        return backward_dim<96>(c, a, what);
    case 128:
        return backward_dim<128>(c, a, what);
    case 192:
        return backward_dim<192>(c, a, what);
    default:
        return backward_dim<256>(c, a, what);
    }
}
