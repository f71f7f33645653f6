/* Muon's three ops against its formulas in fp64 (tests/golden/make_muon.py), and the kernels of `cpu` against `ref`. */
#include "optim/groups.h"

#include "base/cpu.h"
#include "base/json.h"
#include "base/rng.h"
#include "check.h"
#include "ops/pieces.h"
#include <math.h>
#include <stdlib.h>

enum { MOST = 4096 };

static ndp_view row(void *data, ndp_dtype type, int64_t n) { return (ndp_view){data, type, 1, n, n}; }

static void run(const ndp_exec *exec, ndp_op_call *c) {
    const ndp_kernel *kernel = exec->device->kernels[c->op->id];
    const ndp_op_attr none = {0};
    c->exec = exec, c->attr = c->attr ? c->attr : &none;
    CHECK_OK(c->op->shape(c));
    c->scratch = NULL;
    if (kernel->prepare)
        CHECK_OK(kernel->prepare(c));
    size_t bytes = kernel->scratch ? (kernel->scratch(c) + 63) / 64 * 64 : 0;
    c->scratch = bytes ? aligned_alloc(64, bytes) : NULL;
    if (bytes)
        memset(c->scratch, 0xff, bytes); /* NaN: nothing in it is read before it is written */
    CHECK_OK(kernel->run(c));
    free(c->scratch);
}

/* ---- a step of a whole matrix ---- */

typedef struct matrix {
    int64_t rows, cols;
    ndp_dtype type;
    void *w, *g, *m, *u;
} matrix;

static void step(const matrix *x, const ndp_exec *exec, const ndp_optimizer_opts *o, double lr, double clip) {
    const ndp_optimizer *muon = ndp_optimizers[o->name];
    const ndp_op_attr attr = {.spectral = muon->whole.spectral};
    int64_t n = x->rows * x->cols, piece[NDP_PIECE_COLUMNS] = {0, n, ndp_piece_facts(1, 0)};
    double constants[NDP_OPTIMIZER_CONSTANTS] = {0};
    muon->constants(o, lr, 0, constants);
    ndp_op_call direct = {.op = muon->whole.direction,
                          .in = {row(x->u, x->type, n),
                                 row(x->g, x->type, n),
                                 {piece, NDP_I64, 1, NDP_PIECE_COLUMNS, NDP_PIECE_COLUMNS},
                                 row(constants, NDP_F64, NDP_OPTIMIZER_CONSTANTS),
                                 row(&clip, NDP_F64, 1),
                                 row(x->m, x->type, n)},
                          .out = {row(x->u, x->type, n)}};
    run(exec, &direct);
    ndp_view whole = {x->u, x->type, x->rows, x->cols, x->cols};
    run(exec, &(ndp_op_call){.op = muon->whole.transform, .attr = &attr, .in = {whole}, .out = {whole}});
    ndp_op_call apply = direct;
    apply.op = muon->op;
    apply.in[NDP_UPDATE_WEIGHT] = apply.out[0] = row(x->w, x->type, n);
    apply.in[NDP_UPDATE_GRAD] = row(x->u, x->type, n);
    apply.in[NDP_UPDATE_CLIP] = apply.in[NDP_UPDATE_STATE] = (ndp_view){0};
    run(exec, &apply);
}

static matrix make(int64_t rows, int64_t cols, ndp_dtype type) {
    size_t bytes = (size_t)(rows * cols) * sizeof(double);
    return (matrix){rows, cols, type, calloc(1, bytes), calloc(1, bytes), calloc(1, bytes), calloc(1, bytes)};
}

static void drop(matrix *x) {
    free(x->w);
    free(x->g);
    free(x->m);
    free(x->u);
}

/* ---- golden values ---- */

static struct json_object *member(struct json_object *o, const char *key) {
    struct json_object *value;
    assert_true(json_object_object_get_ex(o, key, &value));
    return value;
}

/* Numbers into an array of `type`, times `factor`. */
static int64_t numbers(struct json_object *list, double factor, ndp_dtype type, void *out) {
    double values[MOST];
    int64_t n = (int64_t)json_object_array_length(list);
    for (int64_t i = 0; i < n; i++)
        values[i] = factor * json_object_get_double(json_object_array_get_idx(list, (size_t)i));
    ndp_convert(values, NDP_F64, out, type, n);
    return n;
}

static void near(struct json_object *list, const void *have, ndp_dtype type, double bound, const char *of) {
    double want[MOST], got[MOST], apart = 0, norm = 0;
    int64_t n = numbers(list, 1, NDP_F64, want);
    ndp_convert(have, type, got, NDP_F64, n);
    for (int64_t i = 0; i < n; i++)
        apart += pow(got[i] - want[i], 2), norm += want[i] * want[i];
    if (!(sqrt(apart / norm) <= bound))
        fail_msg("%s %lld elements: off by %.3g of their norm, bound %.3g", of, (long long)n, sqrt(apart / norm),
                 bound);
}

static void check_case(struct json_object *all, struct json_object *c, ndp_optimizer_name name,
                       const ndp_device *device, ndp_dtype type) {
    const ndp_exec exec = {.device = device, .threads = 2};
    ndp_optimizer_opts o = {.name = name,
                            .betas = {0.9, 0.95},
                            .eps = 1e-8,
                            .weight_decay = json_object_get_double(member(all, "weight_decay")),
                            .momentum = json_object_get_double(member(all, "momentum"))};
    double lr = json_object_get_double(member(all, "lr")), bound = type == NDP_F64 ? 1e-13 : 2e-6, clip = 0.25;
    matrix x = make(json_object_get_int(member(c, "rows")), json_object_get_int(member(c, "columns")), type);
    numbers(member(c, "weights"), 1, type, x.w);
    for (int s = 0; s < 3; s++) { /* gradients are clipped to what the reference has */
        numbers(json_object_array_get_idx(member(c, "gradients"), (size_t)s), 1 / clip, type, x.g);
        step(&x, &exec, &o, lr, clip);
        near(json_object_array_get_idx(member(c, "after"), (size_t)s), x.w, type, bound, "weights");
    }
    near(member(c, "momentum"), x.m, type, bound, "momentum");
    drop(&x);
}

static void matrices_are_the_references(void **state) {
    (void)state;
    char *path = ndp_format("%s/tests/golden/muon.json", getenv("NDP_SOURCE_DIR"));
    struct json_object *all;
    CHECK_OK(ndp_json_read(path, &all));
    for (int way = 0; way < 2; way++) {
        struct json_object *cases = member(all, way ? "spectral" : "matrices");
        ndp_optimizer_name name = way ? NDP_MUON_SPECTRAL : NDP_MUON;
        assert_true(json_object_array_length(cases) >= 4); /* tall, wide, square, one row */
        for (size_t i = 0; i < json_object_array_length(cases); i++) {
            check_case(all, json_object_array_get_idx(cases, i), name, &ndp_device_ref, NDP_F64);
            check_case(all, json_object_array_get_idx(cases, i), name, &ndp_device_cpu, NDP_F32);
        }
    }
    json_object_put(all);
    free(path);
}

/* ---- newton_schulz ---- */

static void draw(float *x, int64_t n) { ndp_rng_normal(3, 1, 0, n, 0.02, x); }

static void make_orthogonal(const ndp_exec *exec, bool spectral, void *x, ndp_dtype type, int64_t rows, int64_t cols) {
    ndp_view v = {x, type, rows, cols, cols};
    run(exec, &(ndp_op_call){
                  .op = &ndp_op_newton_schulz, .attr = &(ndp_op_attr){.spectral = spectral}, .in = {v}, .out = {v}});
}

static double apart(const float *x, const double *y, int64_t n) {
    double d = 0, norm = 0;
    for (int64_t i = 0; i < n; i++)
        d += pow((double)x[i] - y[i], 2), norm += y[i] * y[i];
    return sqrt(d / norm);
}

static const int64_t shapes[][2] = {{1, 1}, {3, 200}, {200, 3}, {65, 64}, {96, 96}, {70, 257}, {257, 70}};
enum { LARGEST = 257 * 70 };

/* The bits of our own products do not depend on threads, and split sums round otherwise. */
static void kernels_agree(void **state) {
    (void)state;
    static float x[LARGEST], one[LARGEST], other[LARGEST];
    static double exact[LARGEST];
    for (int i = 0; i < 2 * NDP_COUNT(shapes); i++) {
        int64_t rows = shapes[i / 2][0], cols = shapes[i / 2][1], n = rows * cols;
        bool spectral = i % 2;
        draw(x, n);
        ndp_convert(x, NDP_F32, exact, NDP_F64, n);
        make_orthogonal(&(ndp_exec){.device = &ndp_device_ref, .threads = 1}, spectral, exact, NDP_F64, rows, cols);
        memcpy(one, x, sizeof x);
        make_orthogonal(&(ndp_exec){.device = &ndp_device_cpu, .threads = 1}, spectral, one, NDP_F32, rows, cols);
        if (apart(one, exact, n) > 2e-5)
            fail_msg("%lld x %lld: off by %.3g", (long long)rows, (long long)cols, apart(one, exact, n));
        for (int threads = 2; threads < 4 && ndp_cpu_has_avx512(); threads++) {
            memcpy(other, x, sizeof x);
            make_orthogonal(&(ndp_exec){.device = &ndp_device_cpu, .threads = threads}, spectral, other, NDP_F32, rows,
                            cols);
            assert_memory_equal(one, other, (size_t)n * sizeof *one);
        }
        memcpy(other, x, sizeof x);
        make_orthogonal(&(ndp_exec){.device = &ndp_device_cpu, .threads = 1, .sums = NDP_SUMS_SPLIT, .split_place = 3},
                        spectral, other, NDP_F32, rows, cols);
        assert_true(apart(other, exact, n) <= 2e-5);
        assert_true(n < 1000 || memcmp(one, other, (size_t)n * sizeof *one) != 0);
    }
}

static void orthogonalize(const ndp_exec *exec, void *x, ndp_dtype type, int64_t rows, int64_t cols) {
    make_orthogonal(exec, false, x, type, rows, cols);
}

/* Its transpose is that of the transposed matrix; the mean square is near 0.2^2; what is 0 stays 0; a broken matrix
 * stays broken. */
static void newton_schulz_is_what_it_says(void **state) {
    (void)state;
    enum { R = 48, C = 80 };
    static float x[R * C];
    static double a[R * C], t[R * C];
    const ndp_exec exec = {.device = &ndp_device_ref, .threads = 1};
    draw(x, R * C);
    ndp_convert(x, NDP_F32, a, NDP_F64, R * C);
    for (int i = 0; i < R * C; i++)
        t[i % C * R + i / C] = a[i];
    orthogonalize(&exec, a, NDP_F64, R, C);
    orthogonalize(&exec, t, NDP_F64, C, R);
    double squares = 0, off = 0;
    for (int i = 0; i < R * C; i++)
        off = fmax(off, fabs(t[i % C * R + i / C] - a[i])), squares += a[i] * a[i];
    assert_true(off < 1e-14);
    assert_true(fabs(sqrt(squares / (R * C)) / 0.2 - 1) < 0.2);
    for (int d = 0; d < 2; d++) {
        const ndp_exec on = {.device = d ? &ndp_device_cpu : &ndp_device_ref, .threads = 1};
        memset(x, 0, sizeof x);
        orthogonalize(&on, x, NDP_F32, R, C);
        for (int i = 0; i < R * C; i++)
            assert_true(x[i] == 0);
        x[5] = INFINITY;
        orthogonalize(&on, x, NDP_F32, R, C);
        assert_true(isnan(x[5]));
    }
}

/* ---- the table ---- */

/* Pieces that AdamW updates come first, and only they have a second state: each piece has one place in both. */
static void tables_put_projections_last(void **state) {
    (void)state;
    ndp_segment items[] = {ndp_segment_whole("norm", 1, 1, 70, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("q", 2, 7, 30, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("bias", 1, 1, 5, NDP_DIM_WHOLE, NDP_DIM_WHOLE),
                           ndp_segment_whole("o", 2, 3, 10, NDP_DIM_WHOLE, NDP_DIM_WHOLE)};
    ndp_segments s = {.items = items, .n = NDP_COUNT(items)};
    items[1].projection = items[3].projection = true;
    ndp_segments_layout(&s);
    int64_t rest = 0;
    ndp_arena arena = {0};
    ndp_update_groups g;
    CHECK_OK(ndp_update_groups_make(&(ndp_optimizer_opts){.name = NDP_MUON}, &arena, &g));
    assert_true(g.n == 3 && g.n_used == 2 && g.used[0] == NDP_ADAMW && g.used[1] == NDP_MUON);
    for (int index = 0; index < 3; index++) {
        int64_t table[4][NDP_PIECE_COLUMNS_PLACED], place = 0;
        ndp_piece_counts n = ndp_pieces_count(&g, &s, 3, index);
        ndp_pieces_fill(&g, &s, 3, index, table[0]);
        for (int64_t i = 0; i < n.all; i++) {
            int64_t at = index * ndp_segments_slice(&s, 3) + table[i][NDP_PIECE_FIRST], k = 3;
            while (items[k].offset > at)
                k--;
            assert_int_equal(items[k].projection, i >= n.all - n.of[1]);
            assert_int_equal(ndp_piece_group(table[i]), ndp_update_group_of(&g, &items[k]));
            assert_int_equal(table[i][NDP_PIECE_PLACE], place);
            for (int64_t e = 0; e < table[i][NDP_PIECE_COUNT]; e++)
                assert_int_equal(ndp_pieces_place(&g, &s, 3, index, table[i][NDP_PIECE_FIRST] + e), place + e);
            place += table[i][NDP_PIECE_COUNT];
        }
        assert_int_equal(place, n.kept[0]);
        rest += n.kept[1];
    }
    assert_int_equal(rest, 75);
    ndp_arena_release(&arena);
}

static void what_is_kept(void **state) {
    (void)state;
    const ndp_segment q = {.ndim = 2, .projection = true}, norm = {.ndim = 1}, table = {.ndim = 2};
    ndp_arena arena = {0};
    ndp_update_groups g;
    CHECK_OK(ndp_update_groups_make(&(ndp_optimizer_opts){.name = NDP_MUON, .weight_decay = 0.1}, &arena, &g));
    const ndp_optimizer_opts *of_q = ndp_update_opts_of(&g, &q), *of_norm = ndp_update_opts_of(&g, &norm),
                             *of_table = ndp_update_opts_of(&g, &table);
    assert_true(of_q->name == NDP_MUON && ndp_optimizer_states(of_q) == 1 && of_q->weight_decay == 0.1);
    assert_true(of_norm->name == NDP_ADAMW && ndp_optimizer_states(of_norm) == 2 && of_norm->weight_decay == 0);
    assert_true(of_table->name == NDP_ADAMW && of_table->weight_decay == 0.1);
    assert_true(!ndp_update_state_is_short(&g, 0) && ndp_update_state_is_short(&g, 1));
    ndp_arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(matrices_are_the_references), cmocka_unit_test(kernels_agree),
                                       cmocka_unit_test(newton_schulz_is_what_it_says),
                                       cmocka_unit_test(tables_put_projections_last), cmocka_unit_test(what_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
