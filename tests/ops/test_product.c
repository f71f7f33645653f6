/* The products of the device under test, through the ops that are made of them: each way of storing the operands, odd
 * sizes, rows and columns of larger matrices, earlier values added or not, against sums in fp64. */
#include "op_test.h"
#include "ops/newton_schulz.h"

/* A matrix of random numbers as stored: padded rows (0), rows without padding (1), columns 1.. of a larger matrix (2),
 * or rows that begin at multiples of 64 bytes (3). Its memory begins at *base. */
enum { LAYOUTS = 4 };
static ndp_view stored(ndp_dtype t, int64_t rows, int64_t cols, int layout, uint64_t seed, void **base) {
    int64_t pad[LAYOUTS] = {PAD, 0, 5, (32 - cols % 32) % 32};
    ndp_view v = {.dtype = t, .rows = rows, .cols = cols, .ld = cols + pad[layout]};
    size_t bytes = ((size_t)(rows * v.ld + 1) * ndp_dtype_size(t) + 63) / 64 * 64;
    uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
    *base = v.data = aligned_alloc(64, bytes);
    memset(v.data, 0, bytes);
    v.data = (char *)v.data + (layout == 2 ? ndp_dtype_size(t) : 0);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            ndp_view_set(&v, r, c, 1.5 * uniform(&state));
    return v;
}

static void fill(const ndp_view *v, double x) {
    for (int64_t r = 0; r < v->rows; r++)
        for (int64_t c = 0; c < v->cols; c++)
            ndp_view_set(v, r, c, x);
}

/* sum over k of a and b, which are stored as [m,k] and [k,n] or transposed. */
static ndp_view plain_product(const ndp_view *a, bool trans_a, const ndp_view *b, bool trans_b) {
    int64_t m = trans_a ? a->cols : a->rows, n = trans_b ? b->rows : b->cols, k = trans_a ? a->rows : a->cols;
    ndp_view out = matrix(NDP_F64, m, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (trans_a ? ndp_view_get(a, l, i) : ndp_view_get(a, i, l)) *
                       (trans_b ? ndp_view_get(b, j, l) : ndp_view_get(b, l, j));
            ndp_view_set(&out, i, j, sum);
        }
    return out;
}

/* The op that multiplies operands stored so, with k in the place that it has there. */
typedef struct way {
    const ndp_op *op;
    bool trans_a, trans_b;
} way;
static const way ways[] = {
    {&ndp_op_linear, false, true}, {&ndp_op_linear_dx, false, false}, {&ndp_op_linear_dw, true, false}};

/* What is added: nothing, a bias, an earlier gradient apart or in place, or what dw has. */
enum { NOTHING, ADDED, IN_PLACE };

static void check_product(const way *w, int64_t m, int64_t n, int64_t k, ndp_dtype type, ndp_dtype to, int added,
                          int layout, int split) {
    void *base[4] = {0};
    bool dw = w->op == &ndp_op_linear_dw, bias = w->op == &ndp_op_linear;
    ndp_view a = stored(type, w->trans_a ? k : m, w->trans_a ? m : k, layout, 1, &base[0]);
    ndp_view b = stored(type, w->trans_b ? n : k, w->trans_b ? k : n, (layout + 1) % LAYOUTS, 2, &base[1]);
    ndp_view out = stored(to, m, n, (layout + 2) % LAYOUTS, 3, &base[2]), more = {0};
    ndp_view expected = plain_product(&a, w->trans_a, &b, w->trans_b);
    if (!dw && added == ADDED)
        more = stored(bias ? type : to, bias ? 1 : m, n, layout, 4, &base[3]);
    else if (added != NOTHING)
        more = out;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; more.data && j < n; j++)
            ndp_view_set(&expected, i, j,
                         ndp_view_get(&expected, i, j) + ndp_view_get(&more, more.rows == 1 ? 0 : i, j));
    if (more.data != out.data)
        fill(&out, NAN);
    ndp_op_attr attr = {.accumulate = dw && added != NOTHING, .wide_grad = to != type};
    ndp_view in[3] = {a, b, dw ? (ndp_view){0} : more};
    run_op_split(w->op, &attr, in, &out, tested(), 1, split);
    double far = distance(&out, &expected), allowed = to == NDP_BF16 ? 4e-3 : 1e-6;
    if (!(far <= allowed))
        fail_msg("%s, m %lld n %lld k %lld, %s to %s, added %d, layout %d, split %d: off by %g", w->op->name,
                 (long long)m, (long long)n, (long long)k, ndp_dtype_name(type), ndp_dtype_name(to), added, layout,
                 split, far);
    free_matrices(&expected, 1);
    for (int i = 0; i < 4; i++)
        free(base[i]);
}

/* dy in fp32 of operands in bf16, as of a router's logits: each element is off by less than 2^-19 of the sum of |a b|,
 * and by half a unit where it is bf16. */
static void check_mixed(const way *w, int64_t m, int64_t n, int64_t k, bool wide, int added, int layout, int split) {
    void *base[4] = {0};
    bool dw = w->op == &ndp_op_linear_dw;
    ndp_dtype to = wide ? NDP_F32 : NDP_BF16;
    ndp_view a = stored(NDP_F32, w->trans_a ? k : m, w->trans_a ? m : k, layout, 1, &base[0]);
    ndp_view b = stored(NDP_BF16, k, n, (layout + 1) % LAYOUTS, 2, &base[1]);
    ndp_view out = stored(to, m, n, (layout + 2) % LAYOUTS, 3, &base[2]), more = {0};
    ndp_view expected = plain_product(&a, w->trans_a, &b, false), bound = matrix(NDP_F64, m, n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += fabs((w->trans_a ? ndp_view_get(&a, l, i) : ndp_view_get(&a, i, l)) * ndp_view_get(&b, l, j));
            ndp_view_set(&bound, i, j, sum);
        }
    if (added == ADDED && !dw)
        more = stored(to, m, n, layout, 4, &base[3]);
    else if (added != NOTHING)
        more = out;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; more.data && j < n; j++)
            ndp_view_set(&expected, i, j, ndp_view_get(&expected, i, j) + ndp_view_get(&more, i, j));
    if (more.data != out.data)
        fill(&out, NAN);
    ndp_op_attr attr = {.accumulate = dw && added != NOTHING, .wide_grad = wide};
    ndp_view in[3] = {a, b, dw ? (ndp_view){0} : more};
    run_op_split(w->op, &attr, in, &out, tested(), 1, split);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double x = ndp_view_get(&expected, i, j), far = fabs(ndp_view_get(&out, i, j) - x);
            double allowed = ndp_view_get(&bound, i, j) * 0x1p-19 + fabs(x) * (wide ? 0x1p-23 : 0x1p-8);
            if (!(far <= allowed))
                fail_msg("%s, m %lld n %lld k %lld, to %s, added %d, layout %d, split %d: [%lld,%lld] off by %g of %g",
                         w->op->name, (long long)m, (long long)n, (long long)k, ndp_dtype_name(to), added, layout,
                         split, (long long)i, (long long)j, far, allowed);
        }
    free_matrices(&expected, 1);
    free_matrices(&bound, 1);
    for (int i = 0; i < 4; i++)
        free(base[i]);
}

static void products_of_two_types(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 7, 5},     {7, 1, 3},   {2, 3, 1},      {5, 9, 17},
                                       {33, 16, 64}, {129, 67, 31}, {65, 97, 8}, {17, 130, 257}, {3, 5, 2999}};
    for (int s = 0; s < NDP_COUNT(sizes); s++)
        for (int dw = 0; dw < 2; dw++)
            for (int added = NOTHING; added <= IN_PLACE; added++)
                for (int layout = 0; layout < LAYOUTS; layout++)
                    for (int wide = dw; wide < 2; wide++)
                        for (int split = 0; split < 2 && !(dw && added == IN_PLACE); split++)
                            check_mixed(&ways[1 + dw], sizes[s][0], sizes[s][1], sizes[s][2], wide, added, layout,
                                        split * (1 + (s + layout) % NDP_SPLITS));
}

static void products_of_all_kinds(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {1, 7, 5},     {7, 1, 3},   {2, 3, 1},      {5, 9, 17},
                                       {33, 16, 64}, {129, 67, 31}, {65, 97, 8}, {17, 130, 257}, {3, 5, 2999}};
    static const ndp_dtype types[][2] = {{NDP_F32, NDP_F32}, {NDP_BF16, NDP_BF16}, {NDP_BF16, NDP_F32}};
    for (int s = 0; s < NDP_COUNT(sizes); s++)
        for (int i = 0; i < NDP_COUNT(ways) * NDP_COUNT(types); i++)
            for (int added = NOTHING; added <= IN_PLACE; added++)
                for (int layout = 0; layout < LAYOUTS; layout++) {
                    const way *w = &ways[i / NDP_COUNT(types)];
                    const ndp_dtype *t = types[i % NDP_COUNT(types)];
                    bool dw = w->op == &ndp_op_linear_dw, in_place = w->op == &ndp_op_linear_dx;
                    if ((dw && t[1] == NDP_BF16) || (added == IN_PLACE && !in_place))
                        continue;
                    for (int split = 0; split < 2; split++)
                        check_product(w, sizes[s][0], sizes[s][1], sizes[s][2], t[0], t[1], added, layout,
                                      split * (1 + (s + layout) % NDP_SPLITS));
                }
}

/* A context keeps what it knows of a product; operands at other addresses, or of other sizes, are other products. */
static void products_of_one_context(void **state) {
    (void)state;
    enum { M = 6, N = 10, K = 16, ROOM = 1024 };
    const ndp_device *d = tested();
    const ndp_kernel *kernel = d->kernels[ndp_op_linear.id];
    op_place *p = place_of(d);
    ndp_op_call call = {.op = &ndp_op_linear, .attr = &(ndp_op_attr){0}, .queue = p->queue};
    char *data;
    uint64_t seed = 5;
    require_ok(d->memory_map(p->context, 3 * ROOM, NDP_MEMORY_DEVICE, (void **)&data));
    call.exec = &(ndp_exec){.device = d, .threads = 1};
    for (int i = 0; i < 64; i++) {
        ndp_dtype t = i % 2 ? NDP_BF16 : NDP_F32;
        size_t size = ndp_dtype_size(t),
               at[3] = {i / 2 % 4 * size, ROOM + i / 8 % 2 * size, 2 * ROOM + i / 16 % 2 * size};
        int64_t n = N - i / 32;
        ndp_view host[3] = {
            {calloc(M * K, size), t, M, K, K}, {calloc(N * K, size), t, n, K, K}, {calloc(M * N, size), t, M, n, N}};
        for (int64_t k = 0; k < M * K + n * K; k++)
            ndp_view_set(&host[k >= M * K], 0, k >= M * K ? k - M * K : k, uniform(&seed));
        for (int o = 0; o < 3; o++) {
            ndp_view *v = o < 2 ? &call.in[o] : &call.out[0];
            *v = host[o], v->data = data + at[o];
            require_ok(d->copy(call.queue, v->data, 0, host[o].data, 0, extent_of(v), 1));
        }
        size_t bytes = kernel->scratch ? kernel->scratch(&call) : 0;
        require_ok(d->memory_map(p->context, bytes, NDP_MEMORY_DEVICE, &call.scratch));
        if (kernel->prepare)
            require_ok(kernel->prepare(&call));
        require_ok(kernel->run(&call));
        require_ok(d->copy(call.queue, host[2].data, 0, call.out[0].data, 0, extent_of(&host[2]), 1));
        require_ok(d->drain(call.queue));
        ndp_view expected = plain_product(&host[0], false, &host[1], true);
        assert_true(distance(&host[2], &expected) <= (t == NDP_BF16 ? 4e-3 : 1e-6));
        d->memory_unmap(p->context, call.scratch, bytes, NDP_MEMORY_DEVICE);
        free_matrices(&expected, 1);
        for (int o = 0; o < 3; o++)
            free(host[o].data);
    }
    d->memory_unmap(p->context, data, 3 * ROOM, NDP_MEMORY_DEVICE);
}

/* ---- newton_schulz: transposes of one operand, terms added with factors ---- */

static void orthogonalize(const ndp_device *device, ndp_dtype t, double *x, int64_t rows, int64_t cols) {
    ndp_view v = {aligned_alloc(64, (size_t)(rows * cols * 8 + 63) / 64 * 64), t, rows, cols, cols};
    for (int64_t i = 0; i < rows * cols; i++)
        ndp_view_set(&v, 0, i, x[i]);
    run_op(&ndp_op_newton_schulz, &(ndp_op_attr){0}, &v, &v, device, 2);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = ndp_view_get(&v, 0, i);
    free(v.data);
}

static void newton_schulz_of_all_shapes(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {3, 200}, {200, 3}, {65, 64}, {96, 96}, {70, 257}, {257, 70}};
    static const double size[] = {0.02, 1e-24, 1e15};
    enum { LARGEST = 257 * 70 };
    static double x[LARGEST], y[LARGEST];
    for (int i = 0; i < NDP_COUNT(shapes) * NDP_COUNT(size); i++) {
        int64_t rows = shapes[i / NDP_COUNT(size)][0], cols = shapes[i / NDP_COUNT(size)][1];
        uint64_t seed = (uint64_t)i + 1;
        double diff = 0, norm = 0;
        for (int64_t k = 0; k < rows * cols; k++)
            x[k] = y[k] = (float)(size[i % NDP_COUNT(size)] * uniform(&seed));
        orthogonalize(tested(), NDP_F32, x, rows, cols);
        orthogonalize(&ndp_device_ref, NDP_F64, y, rows, cols);
        for (int64_t k = 0; k < rows * cols; k++)
            diff += pow(x[k] - y[k], 2), norm += y[k] * y[k];
        if (!(sqrt(diff / norm) <= 2e-5))
            fail_msg("newton_schulz of %lld x %lld: off by %g", (long long)rows, (long long)cols, sqrt(diff / norm));
    }
}

/* What is 0 stays 0; a matrix with an infinity is not repaired. */
static void newton_schulz_of_edge_cases(void **state) {
    (void)state;
    static double x[48 * 80];
    orthogonalize(tested(), NDP_F32, x, 48, 80);
    for (int i = 0; i < NDP_COUNT(x); i++)
        assert_true(x[i] == 0);
    x[5] = INFINITY;
    orthogonalize(tested(), NDP_F32, x, 48, 80);
    assert_true(isnan(x[5]));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_of_all_kinds), cmocka_unit_test(products_of_two_types),
                                       cmocka_unit_test(products_of_one_context),
                                       cmocka_unit_test(newton_schulz_of_all_shapes),
                                       cmocka_unit_test(newton_schulz_of_edge_cases)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
