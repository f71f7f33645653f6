/* Sums over rows: gradients of parameters. The rows are cut into parts, so many that they fill a GPU; their sizes alone
 * say where. One launch sums the rows of each part, a second one the parts.
 *
 * What is summed is a struct with operands as members and
 *   ndp_lanes operator()(int64_t t, int64_t j, int64_t c) const
 * what row t adds to the elements (j, c .. c + 7) of the sum: 0 beyond the last column. */
#ifndef NDP_OPS_CUDA_CUDA_COLUMNS_CUH
#define NDP_OPS_CUDA_CUDA_COLUMNS_CUH

#include "ops/cuda/cuda_kernel.cuh"

/* Rows before `at` are cut into `first` parts, the others into the rest. */
struct ndp_row_parts {
    int64_t rows, at;
    int first, parts;
};

static __host__ __device__ inline int64_t ndp_part_begin(const ndp_row_parts &p, int i) {
    return i < p.first    ? p.at * i / p.first
           : i == p.first ? p.at
                          : p.at + (p.rows - p.at) * (i - p.first) / (p.parts - p.first);
}

/* out[part * taps + j] (+)= the sum of a part. A block is (groups of columns) x (rows at once). */
template <typename F>
__global__ void __launch_bounds__(256) ndp_columns_kernel(F f, ndp_row_parts p, ndp_view out, int taps, bool add) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, group = ndp_div(i, taps), j = i - group * taps;
    int64_t c = group * NDP_LANES, end = c < out.cols ? ndp_part_begin(p, blockIdx.y + 1) : 0;
    ndp_lanes sum = {}, *room = (ndp_lanes *)ndp_shared_bytes;
    for (int64_t t = ndp_part_begin(p, blockIdx.y) + threadIdx.y; t < end; t += blockDim.y) {
        ndp_lanes more = f(t, j, c);
        for (int k = 0; k < NDP_LANES; k++)
            sum.x[k] += more.x[k];
    }
    room[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= out.cols)
        return;
    int64_t row = (int64_t)blockIdx.y * taps + j;
    if (add)
        sum = ndp_get8(out, row, c);
    for (unsigned y = 0; y < blockDim.y; y++)
        for (int k = 0; (add || y > 0) && k < NDP_LANES; k++)
            sum.x[k] += room[y * blockDim.x + threadIdx.x].x[k];
    ndp_set8(out, row, c, sum);
}

template <typename F>
static inline ndp_status ndp_columns_launch(const ndp_op_call *c, const F &f, ndp_row_parts p, const ndp_view &out,
                                            int taps, unsigned most_groups, bool add) {
    enum { ROWS_OF_THREAD = 4 };
    int64_t groups = ndp_ceil_div(out.cols, NDP_LANES) * taps, rows = ndp_ceil_div(p.rows, p.parts);
    unsigned x = groups < most_groups ? (unsigned)groups : most_groups, y = 256 / x;
    int64_t most = ndp_ceil_div(rows, ROWS_OF_THREAD);
    y = most < y ? (unsigned)(most > 0 ? most : 1) : y;
    return ndp_launch(c, ndp_columns_kernel<F>, dim3((unsigned)ndp_ceil_div(groups, x), (unsigned)p.parts), dim3(x, y),
                      x * y * sizeof(ndp_lanes), f, p, out, taps, add);
}

/* The sums of parts, [parts * taps, columns] in fp32. */
struct ndp_parts_sum {
    ndp_view parts;
    int taps;
    __device__ ndp_lanes operator()(int64_t t, int64_t j, int64_t c) const { return ndp_get8(parts, t * taps + j, c); }
};

/* Output 0 of the call (+)= the sum over `rows` rows; the call's scratch memory is that of ndp_columns_scratch. */
template <typename F> static inline ndp_status ndp_columns(const ndp_op_call *c, int64_t rows, const F &f) {
    const ndp_view *out = &c->out[0];
    ndp_view parts = ndp_columns_parts(rows, out);
    int taps = (int)out->rows, n = (int)(parts.rows / taps), place = ndp_split_place(c->exec);
    int first = (int)ndp_split_at(n, place);
    parts.data = c->scratch;
    NDP_TRY(ndp_columns_launch(c, f, ndp_row_parts{rows, ndp_split_at(rows, place), first, n}, parts, taps, 32, false));
    return ndp_columns_launch(c, ndp_parts_sum{parts, taps}, ndp_row_parts{n, n, 1, 1}, *out, taps, 4,
                              c->attr->accumulate);
}

#endif
