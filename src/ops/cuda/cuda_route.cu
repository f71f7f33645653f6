/* route, route_dx: a warp for each row. Its lanes share the experts; each of the K choices is one more pass over the
 * row's logits, which stay in the cache. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

#include <math.h>

enum { ROUTE_THREADS = 256 };

/* An expert, or a group, and what it is chosen by; -inf where that is NaN. */
struct candidate {
    double key;
    int expert;
};

static __device__ __forceinline__ bool comes_before(const candidate &a, const candidate &b) {
    return a.key > b.key || (a.key == b.key && a.expert < b.expert);
}

/* All lanes get the first of the warp's candidates. */
static __device__ __forceinline__ candidate warp_first(candidate x) {
    for (int with = NDP_WARP / 2; with > 0; with /= 2) {
        candidate other = {__shfl_xor_sync(0xffffffffu, x.key, with), __shfl_xor_sync(0xffffffffu, x.expert, with)};
        x = comes_before(other, x) ? other : x;
    }
    return x;
}

static __device__ __forceinline__ double score_of(const ndp_view &logits, int64_t t, int e) {
    return 1 / (1 + exp(-(double)ndp_get(logits, t, e)));
}

/* As ops/route.h has them. */
struct route_keys {
    ndp_view logits, bias;
    bool sigmoid;
    int groups, open_groups, group_best;
};

/* What expert e is chosen by, if its group is open. */
static __device__ __forceinline__ double open_key(const route_keys &k, int64_t t, int e) {
    double x = !k.sigmoid    ? (double)ndp_get(k.logits, t, e)
               : k.bias.data ? score_of(k.logits, t, e) + (double)ndp_get(k.bias, 0, e)
                             : score_of(k.logits, t, e);
    return x == x ? x : -INFINITY;
}

/* What group g counts. */
static __device__ double count_of(const route_keys &k, int64_t t, int g) {
    int each = (int)k.logits.cols / k.groups;
    double first = -INFINITY, second = -INFINITY;
    for (int e = g * each; e < (g + 1) * each; e++) {
        double key = open_key(k, t, e);
        second = key > first ? first : key > second ? key : second;
        first = key > first ? key : first;
    }
    return k.group_best == 1 ? first : first + second;
}

/* The open groups of row t. Each lane has two of them. */
static __device__ uint64_t open_groups(const route_keys &k, int64_t t, int lane) {
    uint64_t open = 0;
    double counts[2];
    if (k.groups <= k.open_groups)
        return ~0ull;
    for (int i = 0; i < 2; i++)
        counts[i] = lane + i * NDP_WARP < k.groups ? count_of(k, t, lane + i * NDP_WARP) : -INFINITY;
    for (int n = 0; n < k.open_groups; n++) {
        candidate best = {-INFINITY, INT32_MAX};
        for (int i = 0; i < 2; i++) {
            candidate mine = {counts[i], lane + i * NDP_WARP};
            if (mine.expert < k.groups && !(open >> mine.expert & 1) && comes_before(mine, best))
                best = mine;
        }
        open |= 1ull << warp_first(best).expert;
    }
    return open;
}

static __device__ __forceinline__ double key_of(const route_keys &k, int64_t t, int e, uint64_t open) {
    return open == ~0ull || (open >> (e / ((int)k.logits.cols / k.groups)) & 1) ? open_key(k, t, e) : -INFINITY;
}

/* The first expert of row t that comes after `last`. All lanes get it. */
static __device__ candidate next_of(const route_keys &k, int64_t t, uint64_t open, const candidate &last, int lane) {
    candidate best = {-INFINITY, INT32_MAX};
    for (int e = lane; e < (int)k.logits.cols; e += NDP_WARP) {
        candidate mine = {key_of(k, t, e, open), e};
        if (comes_before(last, mine) && comes_before(mine, best))
            best = mine;
    }
    return warp_first(best);
}

/* The sum of exp(logit - max) over all experts: NaN where a logit is. */
static __device__ float exp_sum(const ndp_view &logits, int64_t t, float max, int lane) {
    float sum = 0;
    for (int e = lane; e < (int)logits.cols; e += NDP_WARP)
        sum += expf(ndp_get(logits, t, e) - max);
    return ndp_warp_sum(sum);
}

/* The largest logit that is a number: of the row's choices alone, or of all. All lanes get it. */
static __device__ float maximum(const ndp_view &logits, int64_t t, const int *choices, int k, bool chosen, int lane) {
    float max = -INFINITY;
    for (int j = lane, n = chosen ? k : (int)logits.cols; j < n; j += NDP_WARP)
        max = fmaxf(max, ndp_get(logits, t, chosen ? choices[j] : j));
    return ndp_warp_max(max);
}

struct routed {
    ndp_view logits, samples, given, choices, weights;
    bool renormalise;
    float scale;
    route_keys keys;
};

/* Of the chosen experts, which are written. */
static __device__ void weigh_scores(const routed &r, int64_t t, const int *choices, int lane) {
    double sum = 1e-20;
    for (int j = 0; j < (int)r.choices.cols; j++)
        sum += score_of(r.logits, t, choices[j]);
    for (int j = lane; j < (int)r.choices.cols; j += NDP_WARP)
        ndp_set(r.weights, t, j,
                (float)((double)r.scale * score_of(r.logits, t, choices[j]) / (r.renormalise ? sum : 1)));
}

static __global__ void __launch_bounds__(ROUTE_THREADS) ndp_route_kernel(routed r) {
    int64_t t = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP, k = (int)r.choices.cols;
    if (t >= r.logits.rows)
        return;
    int *choices = (int *)r.choices.data + t * r.choices.ld;
    const int *given = r.given.data ? (const int *)r.given.data + t * r.given.ld : NULL;
    bool padding = (r.samples.data && ndp_int(r.samples, t) < 0) || (given && given[0] < 0);
    for (int j = lane; padding && j < k; j += NDP_WARP) {
        choices[j] = -1;
        ndp_set(r.weights, t, j, 0);
    }
    if (padding)
        return;
    candidate last = {INFINITY, -1};
    uint64_t open = given ? 0 : open_groups(r.keys, t, lane);
    float max = given && !r.keys.sigmoid ? maximum(r.logits, t, given, k, r.renormalise, lane) : 0, chosen = 0;
    for (int j = lane; given && j < k; j += NDP_WARP) {
        float x = expf(ndp_get(r.logits, t, given[j]) - max);
        choices[j] = given[j];
        chosen += x;
        ndp_set(r.weights, t, j, x);
    }
    chosen = ndp_warp_sum(chosen);
    for (int j = 0; !given && j < k; j++) {
        last = next_of(r.keys, t, open, last, lane);
        float x = ndp_get(r.logits, t, last.expert);
        max = j == 0 ? x : max;
        chosen += expf(x - max);
        if (lane == 0) {
            choices[j] = last.expert;
            ndp_set(r.weights, t, j, expf(x - max));
        }
    }
    __syncwarp();
    if (r.keys.sigmoid) {
        weigh_scores(r, t, choices, lane);
        return;
    }
    float all = exp_sum(r.logits, t, max, lane), sum = r.renormalise && all == all ? chosen : all;
    for (int j = 0; lane == 0 && j < k; j++)
        ndp_set(r.weights, t, j, r.scale * ndp_get(r.weights, t, j) / sum);
}

/* The logits again, or the keys; a warp for each row. */
static __global__ void __launch_bounds__(ROUTE_THREADS) ndp_route_seen_kernel(route_keys k, ndp_view seen) {
    int64_t t = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP;
    if (t >= k.logits.rows)
        return;
    for (int e = lane; e < (int)k.logits.cols; e += NDP_WARP)
        ndp_set(seen, t, e, k.sigmoid ? (float)open_key(k, t, e) : ndp_get(k.logits, t, e));
}

static dim3 route_grid(int64_t rows, unsigned threads) {
    return dim3((unsigned)ndp_ceil_div(rows * NDP_WARP, threads));
}

static float scale_of(const ndp_op_attr *a) { return a->scale > 0 ? (float)a->scale : 1; }

static ndp_status run_route(const ndp_op_call *c) {
    const ndp_op_attr *a = c->attr;
    route_keys keys = {c->in[0], c->in[3], a->sigmoid, a->groups, a->open_groups, a->group_best};
    routed r = {c->in[0], c->in[1], c->in[2], c->out[0], c->out[1], a->renormalise, scale_of(a), keys};
    unsigned threads = ndp_block_of(r.logits.rows * NDP_WARP, ROUTE_THREADS);
    if (c->out[2].data)
        NDP_TRY(ndp_launch(c, ndp_route_seen_kernel, route_grid(r.logits.rows, threads), dim3(threads), 0, keys,
                           c->out[2]));
    return ndp_launch(c, ndp_route_kernel, route_grid(r.logits.rows, threads), dim3(threads), 0, r);
}
NDP_CUDA_KERNEL(route)

/* ---- the gradient: p[e] (dweights of e - along), p[e] = exp(logit - max) / sum ---- */

struct routed_back {
    ndp_view dw, logits, choices, acc, dx;
    bool renormalise, sigmoid;
    float scale;
};

/* With s the sigmoids: s (1 - s) (dweights - along) / sum, of the chosen experts. */
static __device__ void scores_dx(const routed_back &r, int64_t t, const int *choices, int lane) {
    double sum = 1e-20, along = 0;
    for (int j = 0; j < (int)r.choices.cols; j++) {
        double s = score_of(r.logits, t, choices[j]);
        sum += s, along += s * (double)ndp_get(r.dw, t, j);
    }
    along = r.renormalise ? along / sum : 0, sum = r.renormalise ? sum : 1;
    for (int e = lane; e < (int)r.logits.cols; e += NDP_WARP) {
        double s = score_of(r.logits, t, e), d = 0;
        for (int j = 0; j < (int)r.choices.cols; j++)
            d = choices[j] == e ? (double)r.scale * s * (1 - s) * ((double)ndp_get(r.dw, t, j) - along) / sum : d;
        ndp_set(r.dx, t, e, (r.acc.data ? ndp_get(r.acc, t, e) : 0) + (float)d);
    }
}

static __global__ void __launch_bounds__(ROUTE_THREADS) ndp_route_dx_kernel(routed_back r) {
    int64_t t = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / NDP_WARP;
    int lane = threadIdx.x % NDP_WARP, k = (int)r.choices.cols;
    if (t >= r.logits.rows)
        return;
    const int *choices = (const int *)r.choices.data + t * r.choices.ld;
    bool padding = choices[0] < 0;
    if (!padding && r.sigmoid) {
        scores_dx(r, t, choices, lane);
        return;
    }
    float max = padding ? 0 : maximum(r.logits, t, choices, k, r.renormalise, lane), sum = 0, along = 0;
    for (int j = lane; !padding && j < k; j += NDP_WARP) {
        float x = expf(ndp_get(r.logits, t, choices[j]) - max);
        sum += x, along += x * ndp_get(r.dw, t, j);
    }
    along = ndp_warp_sum(along), sum = ndp_warp_sum(sum);
    if (!padding && !r.renormalise)
        sum = exp_sum(r.logits, t, max, lane);
    along /= sum;
    for (int e = lane; e < (int)r.logits.cols; e += NDP_WARP) {
        float earlier = r.acc.data ? ndp_get(r.acc, t, e) : 0, by = r.renormalise ? 0 : -along;
        for (int j = 0; !padding && j < k; j++)
            by = choices[j] == e ? ndp_get(r.dw, t, j) - along : by;
        float over = ndp_get(r.logits, t, e) - max; /* above 0: of an expert that does not count */
        ndp_set(r.dx, t, e, padding ? earlier : earlier + r.scale * expf(over > 0 ? 0 : over) / sum * by);
    }
}

static ndp_status run_route_dx(const ndp_op_call *c) {
    routed_back r = {c->in[0],         c->in[1],         c->in[2], c->in[3], c->out[0], c->attr->renormalise,
                     c->attr->sigmoid, scale_of(c->attr)};
    unsigned threads = ndp_block_of(r.logits.rows * NDP_WARP, ROUTE_THREADS);
    return ndp_launch(c, ndp_route_dx_kernel, route_grid(r.logits.rows, threads), dim3(threads), 0, r);
}
NDP_CUDA_KERNEL(route_dx)
