/* attention, attention_bwd: describes a call (cuda_attention.cuh) and submits its kernels.
 *
 * forward    survey: which positions each tile of queries and of keys spans; then o and lse
 * backward   survey; delta = rows of do . o, and a do that is wide rounded to bf16 where products are of bf16;
 *            then dq, a loop over keys; dk and dv, loops over queries */
#include "ops/cuda/cuda_attention.cuh"
#include "ops/cuda/cuda_columns.cuh"
#include "ops/cuda/cuda_kernels.hpp"

enum { Q, K, V, Q_POS, Q_LOW, K_POS, SINK };
enum { B_DO, B_Q, B_K, B_V, B_O, B_LSE, B_Q_POS, B_Q_LOW, B_K_POS };

/* ---- survey ---- */

/* Tiles of both sides, owned and walked over: four lists, one after the other. A thread makes a tile. */
struct survey_list {
    ndp_att_tile *tiles;
    int n, rows;
    bool queries;
};
struct survey_lists {
    survey_list list[4];
};

static __device__ __forceinline__ ndp_att_tile survey_tile(const ndp_att_call &a, const survey_list &l, int i) {
    ndp_att_tile t = {INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN};
    int64_t per = l.queries ? a.group : 1, first = (int64_t)i * l.rows,
            end = min(first + l.rows, (int64_t)a.n[l.queries]);
    for (int64_t r = first / per; r <= (end - 1) / per; r++) {
        int pos = l.queries ? ndp_int(a.q_pos, r) : ndp_int(a.k_pos, r), low = l.queries ? ndp_att_low(a, r, pos) : pos;
        t.low_min = min(t.low_min, low), t.low_max = max(t.low_max, low);
        t.pos_min = min(t.pos_min, pos), t.pos_max = max(t.pos_max, pos);
    }
    return t;
}

__global__ void ndp_att_survey_kernel(const ndp_att_call a, const survey_lists lists) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    for (int k = 0; k < 4; k++) {
        if (i >= 0 && i < lists.list[k].n)
            lists.list[k].tiles[i] = survey_tile(a, lists.list[k], i);
        i -= lists.list[k].n;
    }
}

/* ---- delta ---- */

/* Lanes that share a row of a head. */
enum { DELTA_LANES = 8, PER_STEP = 64 };

/* rounded: do in bf16, [T,H*D] without padding; NULL: it is used as it is. */
__global__ void ndp_att_delta_kernel(ndp_view d_o, ndp_view o, float *delta, __nv_bfloat16 *rounded, int heads,
                                     int dim) {
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / DELTA_LANES, t = i / heads, h = i % heads;
    float sum = 0.0f;
    for (int c = (int)(threadIdx.x % DELTA_LANES) * (int)NDP_LANES; t < d_o.rows && c < dim; c += PER_STEP) {
        ndp_lanes x = ndp_get8(d_o, t, h * dim + c), y = ndp_get8(o, t, h * dim + c);
        for (int k = 0; k < NDP_LANES && c + k < dim; k++) {
            if (rounded) {
                __nv_bfloat16 r = __float2bfloat16_rn(x.x[k]);
                rounded[t * d_o.cols + h * dim + c + k] = r;
                x.x[k] = __bfloat162float(r);
            }
            sum += x.x[k] * y.x[k];
        }
    }
    for (int with = DELTA_LANES / 2; with > 0; with /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, with);
    if (t < d_o.rows && threadIdx.x % DELTA_LANES == 0)
        delta[i] = sum;
}

/* ---- a call ---- */

/* Tiles are those of a GPU whose blocks can have `shared` bytes of shared memory. */
static ndp_att_call describe(const ndp_op_call *c, const ndp_view *q, const ndp_view *k, bool backward, size_t shared) {
    const ndp_op_attr *attr = c->attr;
    ndp_att_call a = {};
    a.q = *q, a.k = *k;
    a.kv_heads = attr->kv_heads, a.group = attr->heads / attr->kv_heads;
    a.dim = attr->head_dim, a.v_dim = ndp_v_dim(attr);
    a.window = attr->window, a.scale = (float)attr->scale, a.cap = (float)attr->cap;
    a.n[NDP_ATT_KEYS_SIDE] = (int)k->rows, a.n[NDP_ATT_QUERIES_SIDE] = (int)ndp_att_query_rows(c, q);
    a.own_rows = ndp_att_own_rows(c, q, k), a.step_rows = ndp_att_step_rows(c, q, backward, shared);
    a.first = (int)attr->first;
    a.down = ndp_split_place(c->exec) > 0;
    return a;
}

static ndp_status survey(const ndp_op_call *c, ndp_att_call *a, const ndp_att_layout *l) {
    const ndp_att_tile **to[] = {&a->own[0], &a->own[1], &a->step[0], &a->step[1]};
    survey_lists lists;
    int64_t all = 0;
    for (int i = 0; i < 4; i++) {
        ndp_att_tile *tiles = (ndp_att_tile *)((char *)c->scratch + l->tiles[i]);
        lists.list[i] = {tiles, l->n[i], i < 2 ? a->own_rows : a->step_rows, i % 2 == NDP_ATT_QUERIES_SIDE};
        *to[i] = tiles;
        all += l->n[i];
    }
    return ndp_launch(c, ndp_att_survey_kernel, dim3((unsigned)ndp_ceil_div(all, NDP_WARP)), dim3(NDP_WARP), 0, *a,
                      lists);
}

/* Rows of a kv head and keys are counted by int, heads by a grid's second dimension. */
static ndp_status check_sizes(const ndp_op_call *c, const ndp_view *q, const ndp_view *k) {
    int64_t most = INT32_MAX / 2, rows = q->rows * (c->attr->heads / c->attr->kv_heads);
    if (rows > most || k->rows > most || c->attr->kv_heads > 65535)
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s on %s: %lld rows and %lld keys for each of %d kv heads; most are %lld and 65535",
                        c->op->name, c->exec->device->name, (long long)rows, (long long)k->rows, c->attr->kv_heads,
                        (long long)most);
    if (q->dtype == NDP_BF16 && !ndp_att_padded(ndp_att_dim(c)))
        return NDP_FAIL(NDP_ENOTSUP, "%s on %s: head_dim %d in bf16; it can be 256 at most, or compute in fp32",
                        c->op->name, c->exec->device->name, ndp_att_dim(c));
    return NDP_OK;
}

static ndp_status run_attention(const ndp_op_call *c) {
    NDP_TRY(check_sizes(c, &c->in[Q], &c->in[K]));
    ndp_att_call a = describe(c, &c->in[Q], &c->in[K], false, c->queue->context->shared);
    ndp_att_layout l = ndp_att_lay_out(c, &c->in[Q], &c->in[K], nullptr, c->queue->context->shared);
    a.v = c->in[V], a.q_pos = c->in[Q_POS], a.q_low = c->in[Q_LOW], a.k_pos = c->in[K_POS];
    a.sink = c->in[SINK], a.o = c->out[0], a.lse = c->out[1];
    NDP_TRY(survey(c, &a, &l));
    return a.q.dtype == NDP_F32 ? ndp_att_run_f32(c, a, NDP_ATT_O) : ndp_att_run_bf16_forward(c, a);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(attention)

/* Sets a->delta, and a->d_o where it is rounded. */
static ndp_status run_delta(const ndp_op_call *c, ndp_att_call *a, const ndp_att_layout *l) {
    const ndp_view *d_o = &c->in[B_DO];
    float *delta = (float *)((char *)c->scratch + l->delta);
    __nv_bfloat16 *rounded = nullptr;
    a->delta = delta, a->d_o = *d_o;
    if (ndp_att_rounds(&a->q, d_o)) {
        rounded = (__nv_bfloat16 *)((char *)c->scratch + l->d_o);
        a->d_o = {rounded, NDP_BF16, d_o->rows, d_o->cols, d_o->cols};
    }
    int64_t threads = d_o->rows * c->attr->heads * DELTA_LANES;
    unsigned block = ndp_block_of(threads, 256);
    return ndp_launch(c, ndp_att_delta_kernel, dim3((unsigned)ndp_ceil_div(threads, block)), dim3(block), 0, *d_o,
                      c->in[B_O], delta, rounded, c->attr->heads, a->v_dim);
}

static ndp_status run_gradient(const ndp_op_call *c, const ndp_att_call &a, ndp_att_result what) {
    return a.q.dtype == NDP_F32 ? ndp_att_run_f32(c, a, what) : ndp_att_run_bf16_backward(c, a, what);
}

/* One kernel makes both where it has registers for them. */
static ndp_status run_dk_dv(const ndp_op_call *c, const ndp_att_call &a) {
    bool dk = ndp_present(&a.dk), dv = ndp_present(&a.dv);
    if (a.q.dtype == NDP_BF16 && ndp_att_dim(c) <= NDP_ATT_BOTH)
        return dk || dv ? run_gradient(c, a, NDP_ATT_DK_DV) : NDP_OK;
    if (dk)
        NDP_TRY(run_gradient(c, a, NDP_ATT_DK));
    return dv ? run_gradient(c, a, NDP_ATT_DV) : NDP_OK;
}

static ndp_status run_attention_bwd(const ndp_op_call *c) {
    NDP_TRY(check_sizes(c, &c->in[B_Q], &c->in[B_K]));
    ndp_att_call a = describe(c, &c->in[B_Q], &c->in[B_K], true, c->queue->context->shared);
    ndp_att_layout l = ndp_att_lay_out(c, &c->in[B_Q], &c->in[B_K], &c->in[B_DO], c->queue->context->shared);
    a.v = c->in[B_V], a.q_pos = c->in[B_Q_POS], a.q_low = c->in[B_Q_LOW], a.k_pos = c->in[B_K_POS];
    a.lse = c->in[B_LSE], a.dq = c->out[0], a.dk = c->out[1], a.dv = c->out[2];
    NDP_TRY(survey(c, &a, &l));
    NDP_TRY(run_delta(c, &a, &l));
    if (ndp_present(&a.dq))
        NDP_TRY(run_gradient(c, a, NDP_ATT_DQ));
    return run_dk_dv(c, a);
}
NDP_CUDA_KERNEL_WITH_SCRATCH(attention_bwd)

/* ---- attention_dsink ---- */

/* Of the sinks of eight heads, what row t adds. */
struct dsink_of {
    ndp_view d_o, o, lse, sink;
    int first, heads, dim;
    __device__ ndp_lanes operator()(int64_t t, int64_t, int64_t c) const {
        ndp_lanes sum = {};
        for (int k = 0; k < NDP_LANES; k++) {
            int h = (int)c + k - first;
            if (h < 0 || h >= heads)
                continue;
            float delta = 0;
            for (int d = 0; d < dim; d++)
                delta += ndp_get(d_o, t, h * dim + d) * ndp_get(o, t, h * dim + d);
            sum.x[k] = -expf(ndp_get(sink, 0, c + k) - ndp_get(lse, t, h)) * delta;
        }
        return sum;
    }
};
static ndp_status run_attention_dsink(const ndp_op_call *c) {
    return ndp_columns(
        c, c->in[0].rows,
        dsink_of{c->in[0], c->in[1], c->in[2], c->in[3], (int)c->attr->first, c->attr->heads, ndp_v_dim(c->attr)});
}
NDP_CUDA_KERNEL_WITH_SCRATCH(attention_dsink)
