/* What the attention kernels share. The formulas are in ops/attention.c.
 *
 * The rows of a kv head are the query rows of all heads that share it: row r is token r / group, head kv group + r %
 * group. So keys and values serve the whole group at once, a single token (decoding) still fills a tile, and the sums
 * of dk and dv over the heads of a group are sums over rows.
 *
 * A block owns a tile of rows of one side (queries or keys) and walks over the tiles of the other side in a fixed
 * order; each result is summed by one thread or one warp, so there are no atomics. Tiles in which no query sees a key
 * are skipped. With split sums the tiles have fewer rows and are walked from the last to the first, so the sums are
 * others.
 */
#ifndef NDP_OPS_CUDA_CUDA_ATTENTION_CUH
#define NDP_OPS_CUDA_CUDA_ATTENTION_CUH

#include "ops/cuda/cuda_kernel.cuh"

/* One row. Keys have neither lse nor delta. */
struct ndp_att_row {
    int low, pos;
    float lse, delta;
};

struct ndp_att_call {
    ndp_view q, k, v, q_pos, q_low, k_pos, sink, o, lse, d_o, dq, dk, dv;
    const float *delta; /* [T,H]: rows of do . o; NULL: forward */
    /* Of keys and of queries: tiles that a block owns, and tiles that it walks over. */
    const ndp_att_tile *own[2], *step[2];
    int kv_heads, group, window;
    int dim, v_dim; /* of a head of q, k; of v, o */
    int n[2];       /* keys, rows of a kv head */
    int own_rows;   /* of a tile that a block owns */
    int step_rows;  /* of one that it walks over; at most as many as the kernel has room for */
    int first;      /* the sink of head 0 */
    bool down;      /* from the last tile to the first */
    float scale, cap;
};

/* Which side a kernel's template means; the index of ndp_att_call's arrays. */
enum ndp_att_side { NDP_ATT_KEYS_SIDE, NDP_ATT_QUERIES_SIDE };

/* What the kernels make. */
enum ndp_att_result { NDP_ATT_O, NDP_ATT_DQ, NDP_ATT_DK, NDP_ATT_DV, NDP_ATT_DK_DV };

/* The largest head dimension at which bf16 makes dk and dv together: NDP_ATT_DK_DV, of which one may be absent. */
enum { NDP_ATT_BOTH = 128 };

/* Submitted to the call's queue. NDP_EIO: the launch was refused. */
ndp_status ndp_att_run_f32(const ndp_op_call *c, const ndp_att_call &a, ndp_att_result what);
ndp_status ndp_att_run_bf16_forward(const ndp_op_call *c, const ndp_att_call &a);
ndp_status ndp_att_run_bf16_backward(const ndp_op_call *c, const ndp_att_call &a, ndp_att_result what);
/* ---- rows ---- */

/* Where row r of a side begins in an operand of it, heads of `dim` columns: an element's number. */
template <ndp_att_side SIDE>
static __device__ __forceinline__ int64_t ndp_att_at(const ndp_att_call &a, const ndp_view &v, int dim, int kv, int r) {
    if (SIDE == NDP_ATT_KEYS_SIDE || a.group == 1)
        return r * v.ld + (int64_t)kv * dim;
    unsigned token = (unsigned)r / (unsigned)a.group, head = (unsigned)r % (unsigned)a.group;
    return token * v.ld + ((int64_t)kv * a.group + head) * dim;
}

static __device__ __forceinline__ int ndp_att_low(const ndp_att_call &a, int64_t token, int pos) {
    int low = ndp_int(a.q_low, token);
    return a.window > 0 && pos - a.window + 1 > low ? pos - a.window + 1 : low;
}

/* Row r of a side; rows past the end see nothing and are not seen. */
template <ndp_att_side SIDE>
static __device__ __forceinline__ ndp_att_row ndp_att_row_at(const ndp_att_call &a, int kv, int r) {
    if (SIDE == NDP_ATT_KEYS_SIDE) {
        if (r >= a.n[SIDE])
            return {INT32_MIN, INT32_MAX, 0.0f, 0.0f};
        int pos = ndp_int(a.k_pos, r);
        return {pos, pos, 0.0f, 0.0f};
    }
    if (r >= a.n[SIDE])
        return {INT32_MAX, INT32_MIN, 0.0f, 0.0f};
    int64_t token = (unsigned)r / (unsigned)a.group, head = (int64_t)kv * a.group + (unsigned)r % (unsigned)a.group;
    int pos = ndp_int(a.q_pos, token);
    ndp_att_row row = {ndp_att_low(a, token, pos), pos, 0.0f, 0.0f};
    if (a.delta)
        row.lse = ((const float *)a.lse.data)[token * a.lse.ld + head],
        row.delta = a.delta[token * a.kv_heads * a.group + head];
    return row;
}

/* The sink of row r of the queries; -inf: there are none, or no such row. */
static __device__ __forceinline__ float ndp_att_sink(const ndp_att_call &a, int kv, int r) {
    bool there = a.sink.data && r < a.n[NDP_ATT_QUERIES_SIDE];
    return there ? ndp_get(a.sink, 0, a.first + (int64_t)kv * a.group + (unsigned)r % (unsigned)a.group) : -INFINITY;
}

static __device__ __forceinline__ bool ndp_att_sees(const ndp_att_row &query, const ndp_att_row &key) {
    return query.low <= key.low && key.pos <= query.pos;
}
template <ndp_att_side OWN>
static __device__ __forceinline__ bool ndp_att_see(const ndp_att_row &own, const ndp_att_row &other) {
    return OWN == NDP_ATT_QUERIES_SIDE ? ndp_att_sees(own, other) : ndp_att_sees(other, own);
}

/* A scaled score as it goes into the softmax; *slope: what its gradient is multiplied with. */
static __device__ __forceinline__ float ndp_att_capped(float x, float cap, float *slope) {
    *slope = 1.0f;
    if (cap <= 0.0f)
        return x;
    float t = tanhf(x / cap);
    *slope = 1.0f - t * t;
    return cap * t;
}

/* ---- tiles ---- */

static __device__ __forceinline__ bool ndp_att_touches(const ndp_att_tile &queries, const ndp_att_tile &keys) {
    return keys.pos_max >= queries.low_min && keys.low_min <= queries.pos_max;
}
static __device__ __forceinline__ bool ndp_att_sees_all(const ndp_att_tile &queries, const ndp_att_tile &keys) {
    return keys.low_min >= queries.low_max && keys.pos_max <= queries.pos_min;
}

/* The tiles of the other side that touch a block's, one after the other. All warps of a block walk alike. */
template <ndp_att_side OWN> struct ndp_att_walk {
    const ndp_att_tile *tiles;
    ndp_att_tile own;
    int n, from;   /* tiles; the first of the current 32 */
    unsigned left; /* of the current 32 */
    bool down;

    __device__ __forceinline__ ndp_att_walk(const ndp_att_call &a, int tile)
        : tiles(a.step[!OWN]), own(a.own[OWN][tile]), n((a.n[!OWN] + a.step_rows - 1) / a.step_rows), from(-NDP_WARP),
          left(0), down(a.down) {}
    /* Its number; -1: there is no more. */
    __device__ __forceinline__ int next() {
        while (left == 0) {
            from += NDP_WARP;
            if (from >= n)
                return -1;
            int i = from + (int)(threadIdx.x % NDP_WARP);
            left = __ballot_sync(0xffffffffu, i < n && touches(tiles[down ? n - 1 - i : i]));
        }
        int i = from + __ffs((int)left) - 1;
        left &= left - 1;
        return down ? n - 1 - i : i;
    }
    __device__ __forceinline__ bool touches(const ndp_att_tile &t) const {
        return OWN == NDP_ATT_QUERIES_SIDE ? ndp_att_touches(own, t) : ndp_att_touches(t, own);
    }
    __device__ __forceinline__ bool sees_all(int tile) const {
        return OWN == NDP_ATT_QUERIES_SIDE ? ndp_att_sees_all(own, tiles[tile]) : ndp_att_sees_all(tiles[tile], own);
    }
};

/* Keys that no row of a tile of queries can see are taken for zeros: a cache holds anything after the last token, and 0
 * times NaN is NaN. */
struct ndp_att_filter {
    ndp_view k_pos;
    ndp_att_tile queries;
    bool needed;
    __device__ __forceinline__ bool keeps(int r) const {
        if (!needed)
            return true;
        int pos = ndp_int(k_pos, r);
        return queries.low_min <= pos && pos <= queries.pos_max;
    }
};
/* For a tile of the other side. */
template <ndp_att_side OWN>
static __device__ __forceinline__ ndp_att_filter ndp_att_filter_of(const ndp_att_call &a, const ndp_att_walk<OWN> &w,
                                                                   int tile) {
    ndp_att_tile t = w.tiles[tile];
    return {a.k_pos, w.own, OWN == NDP_ATT_QUERIES_SIDE && !(t.low_min >= w.own.low_min && t.pos_max <= w.own.pos_max)};
}

#endif
