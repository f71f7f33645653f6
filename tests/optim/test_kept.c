/* Weights in two parts, and numbers that are rounded at random (ops/rounding.h): the functions, and all updates on the
 * device of NDP_TEST_DEVICE, on every way to cut a tensor. What an update keeps is what it makes of the same numbers in
 * fp32, split or rounded by the place in the whole tensor, so no layout changes it. */
#include "optim/groups.h"

#include "base/rng.h"
#include "check.h"
#include "ops/op_test.h"
#include <math.h>
#include <stdlib.h>

static uint32_t word(int64_t i, int k) {
    uint32_t w[4];
    ndp_rng_words(17, 3, (uint64_t)i, w);
    return w[k];
}

/* ---- the functions ---- */

static void no_bit_is_lost(void **state) {
    (void)state;
    static const uint32_t special[] = {0,          0x80000000, 0x3f800000, 0x3f808000, 0x3f818000,
                                       0x3f807fff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                                       0x00008000, 0x00000001, 0x80008000};
    for (int64_t i = 0; i < 3000000; i++) {
        uint32_t bits = i < NDP_COUNT(special) ? special[i] : word(i, 0);
        float x = ndp_bits_float(bits);
        uint16_t high = ndp_split_high(x);
        float joined = ndp_split_join(high, ndp_split_rest(x, high)), near = ndp_bf16_to_f32(high);
        if (isnan(x)) {
            assert_true(isnan(near) && isnan(joined));
            continue;
        }
        assert_int_equal(ndp_float_bits(joined), bits);
        float other = ndp_bf16_to_f32(ndp_f32_to_bf16(x)); /* as near, at least */
        if (isfinite(near) && isfinite(other))
            assert_true(fabs((double)x - (double)near) == fabs((double)x - (double)other));
    }
}

static void rounding_is_fair(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    static const float at[] = {1.0009765625f, -3.001953125f, 1e-20f, 0.1f, 1.99999f};
    for (int k = 0; k < NDP_COUNT(at); k++) {
        double sum = 0, low = (double)ndp_bits_float(ndp_float_bits(at[k]) & 0xffff0000u);
        double high = (double)ndp_bits_float((ndp_float_bits(at[k]) & 0xffff0000u) + 0x10000u);
        const ndp_rounding r = {5, 9, 77, 1 << 10, 1 << 10, 1 << 10, 0, 0, 0};
        for (int64_t i = 0; i < N; i++) {
            double x = (double)ndp_bf16_to_f32(ndp_round_random(at[k], ndp_rounding_words(&r, i).v[k % 4]));
            assert_true(x == low || x == high);
            sum += x;
        }
        double share = ((double)at[k] - low) / (high - low), sigma = sqrt(share * (1 - share) / N) * fabs(high - low);
        if (fabs(sum / N - (double)at[k]) > 3 * sigma)
            fail_msg("%g is rounded to %.9g in the mean, %.2f sigma away", (double)at[k], sum / N,
                     fabs(sum / N - (double)at[k]) / sigma);
    }
    for (uint32_t i = 0; i < 65536; i++) { /* what is bf16 stays, NaN and infinity too */
        float x = ndp_bf16_to_f32((uint16_t)i);
        uint16_t out = ndp_round_random(x, word(i, 1));
        assert_true(isnan(x) ? isnan(ndp_bf16_to_f32(out)) : out == i);
    }
    assert_true(isinf(ndp_bf16_to_f32(ndp_round_random(INFINITY, 0xffff))));
}

/* ---- a tensor on a layout ---- */

enum { MOST = 9000, MOST_SEGMENTS = 3 };

/* How the tensors are cut: an axis (0 rows, 1 columns, 2 members of a stack) by `ranks`, and slices by `shards`. */
typedef struct cut {
    int axis, ranks, shards;
} cut;

typedef struct kept_way {
    ndp_dtype weights, states;
} kept_way;

/* A slice of a rank, and what it is of. */
typedef struct slice {
    ndp_segment items[MOST_SEGMENTS];
    ndp_segments table;
    int shards, index;
    int64_t n, pieces;
    int64_t rows[2 * MOST_SEGMENTS][NDP_PIECE_COLUMNS_ROUNDED];
    float w[MOST], g[MOST], s[2][MOST], scales[2][MOST / NDP_CODE_BLOCK + 16];
    uint16_t w16[MOST], copy[MOST], s16[2][MOST];
    uint8_t codes[2][MOST];
} slice;

/* A matrix, a stack of matrices and a vector; the first two are cut. */
static void cut_tensors(slice *s, const cut *c, int rank) {
    static const int64_t rows = 12, cols = 40, members = 4;
    s->items[0] = ndp_segment_whole("a.weight", 2, rows, cols, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
    s->items[1] = ndp_segment_whole("b.%d.weight", 2, rows, cols, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
    s->items[2] = ndp_segment_whole("norm.weight", 1, 1, 70, NDP_DIM_WHOLE, NDP_DIM_WHOLE);
    ndp_segment_pile(&s->items[1], members, 1);
    for (int k = 0; k < 2; k++)
        if (c->axis < 2) {
            int64_t all = c->axis ? cols : rows, first = all * rank / c->ranks, end = all * (rank + 1) / c->ranks;
            ndp_segment_cut(&s->items[k], c->axis, first, end - first, (all + c->ranks - 1) / c->ranks);
        }
    if (c->axis == 2)
        ndp_segment_cut_stack(&s->items[1], c->ranks, rank);
    for (int k = 0; k < MOST_SEGMENTS; k++)
        s->items[k].projection = s->items[k].coded = k < 2;
}

/* Element `at` of the slice: its tensor, and its place there. */
typedef struct place {
    int tensor;
    int64_t row, col;
} place;

static place place_of_element(const slice *s, int64_t at) {
    int64_t e = at + s->index * s->n;
    for (int k = 0; k < MOST_SEGMENTS; k++) {
        const ndp_segment *i = &s->items[k];
        int64_t j = e - i->offset;
        if (j >= 0 && j < ndp_segment_elements(i))
            return (place){
                k, (i->stack_first + j / (i->rows * i->cols)) * i->whole[0] + i->first[0] + j / i->cols % i->rows,
                i->first[1] + j % i->cols};
    }
    return (place){-1, 0, 0};
}

static float value_at(const place *p, int what) {
    float x[4];
    ndp_rng_normal(23, (uint64_t)(what * 8 + p->tensor), (uint64_t)(p->row * 1000 + p->col) * 4, 4, 0.1, x);
    return x[0];
}

static bool coded(const ndp_optimizer *o) { return o->scales[0]; }

/* What a rank has before the update, by the places of its elements. States that are bf16 begin as that. */
static void fill(slice *s, const kept_way *way) {
    for (int64_t i = 0; i < s->n; i++) {
        place p = place_of_element(s, i);
        float v = p.tensor < 0 ? 0 : value_at(&p, 3);
        s->w[i] = p.tensor < 0 ? 1 : value_at(&p, 0);
        s->g[i] = p.tensor < 0 ? 1 : value_at(&p, 1);
        s->s[0][i] = p.tensor < 0 ? 1 : value_at(&p, 2);
        s->s[1][i] = s->s[0][i] * s->s[0][i] + v * v;
        for (int k = 0; k < 2; k++) {
            s->s16[k][i] = ndp_f32_to_bf16(s->s[k][i]);
            s->s[k][i] = way->states == NDP_BF16 ? ndp_bf16_to_f32(s->s16[k][i]) : s->s[k][i];
            s->codes[k][i] = (uint8_t)(100 + (word(p.row * 1000 + p.col, k) & 127));
        }
        s->copy[i] = ndp_split_high(s->w[i]);
        s->w16[i] = way->weights == NDP_BF16 ? s->copy[i] : ndp_split_rest(s->w[i], s->copy[i]);
        s->w[i] = way->weights == NDP_BF16 ? ndp_bf16_to_f32(s->w16[i]) : s->w[i];
    }
    for (int64_t b = 0; b < NDP_COUNT(s->scales[0]); b++)
        s->scales[0][b] = 0.05f * (float)(1 + b % 3), s->scales[1][b] = 0.01f * (float)(1 + b % 2);
}

static ndp_view row(const void *data, ndp_dtype type, int64_t n) {
    return data ? (ndp_view){(void *)data, type, 1, n, n} : (ndp_view){0};
}

/* One update of a slice; `way` NULL: all of it in fp32. */
static void run(slice *s, const ndp_device *device, const ndp_update_groups *g, const ndp_op *op, int states,
                const kept_way *way) {
    const ndp_exec exec = {.device = device, .threads = 2};
    double constants[8][NDP_OPTIMIZER_CONSTANTS] = {{0}}, clip = 0.75;
    ndp_dtype w = way ? way->weights : NDP_F32, m = way ? way->states : NDP_F32;
    bool alone = w == NDP_BF16, codes = op->n_in > NDP_UPDATE_OPERANDS;
    ndp_view weights = row(w == NDP_F32 ? (void *)s->w : s->w16, w, s->n);
    ndp_update_constants(g, 3e-3, 6, constants[0]);
    ndp_op_call call = {.op = op,
                        .attr = &(ndp_op_attr){0},
                        .exec = &exec,
                        .in = {weights,
                               row(s->g, NDP_F32, s->n),
                               {s->rows, NDP_I64, s->pieces, NDP_PIECE_COLUMNS_ROUNDED, NDP_PIECE_COLUMNS_ROUNDED},
                               {constants, NDP_F64, g->n, NDP_OPTIMIZER_CONSTANTS, NDP_OPTIMIZER_CONSTANTS},
                               row(&clip, NDP_F64, 1)},
                        .out = {weights, row(w == NDP_SPLIT_REST ? s->copy : NULL, NDP_BF16, s->n)}};
    for (int k = 0; k < states; k++) {
        call.in[NDP_UPDATE_STATE + k] = codes          ? row(s->codes[k], NDP_U8, s->n)
                                        : m == NDP_F32 ? row(s->s[k], NDP_F32, s->n)
                                                       : row(s->s16[k], NDP_BF16, s->n);
        if (codes)
            call.in[NDP_UPDATE_SCALES + k] = row(s->scales[k], NDP_F32, NDP_COUNT(s->scales[k]));
    }
    assert_true(g->n <= 8);
    ndp_op_call shapes = call;
    CHECK_OK(op->shape(&shapes));
    assert_true(shapes.out[0].dtype == w && !(alone && call.out[1].data));
    run_call(&call);
}

static void check_element(const slice *before, const slice *want, const slice *got, int64_t i, const ndp_rounding *r,
                          const kept_way *way, int states) {
    place p = place_of_element(want, i);
    philox4x32_ctr_t words = {{0}};
    if (p.tensor >= 0)
        words = ndp_rounding_at(r->seed, r->update, r->tensor, (uint32_t)p.row, (uint32_t)p.col);
    float w = want->w[i];
    uint16_t rest = before->w16[i];
    if (p.tensor >= 0)
        rest = way->weights == NDP_BF16 ? ndp_round_random(w, words.v[NDP_ROUNDING_WEIGHT])
                                        : ndp_split_rest(w, ndp_split_high(w));
    if (way->weights != NDP_F32 && got->w16[i] != rest)
        fail_msg("weight %lld, row %lld, column %lld of tensor %d: %04x, expected %04x", (long long)i, (long long)p.row,
                 (long long)p.col, p.tensor, got->w16[i], rest);
    if (way->weights == NDP_SPLIT_REST)
        assert_int_equal(got->copy[i], p.tensor < 0 ? before->copy[i] : ndp_split_high(w));
    if (way->weights == NDP_F32)
        assert_true(got->w[i] == w);
    for (int k = 0; k < states && way->states == NDP_BF16; k++)
        assert_int_equal(got->s16[k][i], p.tensor < 0
                                             ? before->s16[k][i]
                                             : ndp_round_random(want->s[k][i], words.v[NDP_ROUNDING_STATE + k]));
}

/* The slice of one rank, all ways to keep its numbers. */
static void try_slice(slice *s, const ndp_device *device, const ndp_update_groups *g, const ndp_op *op, int states) {
    static slice want, got;
    static const ndp_dtype weights[] = {NDP_F32, NDP_BF16, NDP_SPLIT_REST}, types[] = {NDP_F32, NDP_BF16};
    for (int k = 0; k < 6; k++) {
        const kept_way way = {weights[k / 2], types[k % 2]};
        fill(s, &way);
        want = got = *s;
        want.table.items = want.items, got.table.items = got.items;
        run(&want, device, g, op, states, NULL);
        run(&got, device, g, op, states, &way);
        for (int64_t i = 0, p = 0; i < s->n; i++) {
            while (p < s->pieces - 1 && i >= s->rows[p][NDP_PIECE_FIRST] + s->rows[p][NDP_PIECE_COUNT])
                p++;
            ndp_rounding r = {.seed = g->seed, .update = 6, .tensor = (uint32_t)s->rows[p][NDP_PIECE_TENSOR]};
            check_element(s, &want, &got, i, &r, &way, op->n_in > NDP_UPDATE_OPERANDS ? 0 : states);
        }
        if (op->n_in > NDP_UPDATE_OPERANDS)
            assert_memory_equal(want.codes, got.codes, sizeof got.codes);
    }
}

/* Ascending by place in the slice, so that an element's piece is found. */
static int by_first(const void *a, const void *b) { return *(const int64_t *)a < *(const int64_t *)b ? -1 : 1; }

static void try_update(const ndp_device *device, const ndp_optimizer *o, const ndp_op *op, const cut *c) {
    static slice s;
    int states = o->op == op ? (coded(o) ? 2 : o->whole.direction ? 0 : o->state[1] ? 2 : 1) : 1;
    ndp_optimizer_opts opts = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .seed = 99};
    while (ndp_optimizers[opts.name] != o)
        opts.name++;
    opts.momentum = 0.9;
    ndp_arena arena = {0};
    ndp_update_groups g;
    CHECK_OK(ndp_update_groups_make(&opts, &arena, &g));
    g.rounds = true;
    for (int rank = 0; rank < c->ranks; rank++)
        for (int index = 0; index < c->shards; index++) {
            memset(&s, 0, sizeof s);
            cut_tensors(&s, c, rank);
            s.table = (ndp_segments){.items = s.items, .n = MOST_SEGMENTS, .align = ndp_update_align(&opts)};
            ndp_segments_layout(&s.table);
            s.shards = c->shards, s.index = index, s.n = ndp_segments_slice(&s.table, c->shards);
            s.pieces = ndp_pieces_count(&g, &s.table, c->shards, index).all;
            assert_true(s.n <= MOST && s.pieces <= NDP_COUNT(s.rows));
            ndp_pieces_fill(&g, &s.table, c->shards, index, s.rows[0]);
            if (!coded(o))
                qsort(s.rows, (size_t)s.pieces, sizeof s.rows[0], by_first);
            else /* those that it updates are the last ones of the table */
                s.pieces = ndp_pieces_count(&g, &s.table, c->shards, index).of[g.n_used - 1],
                memmove(s.rows, s.rows[ndp_pieces_count(&g, &s.table, c->shards, index).all - s.pieces],
                        sizeof s.rows[0] * (size_t)s.pieces);
            try_slice(&s, device, &g, op, states);
        }
    ndp_arena_release(&arena);
}

static void no_layout_changes_what_is_kept(void **state) {
    (void)state;
    static const cut cuts[] = {{0, 1, 1}, {0, 1, 3}, {0, 5, 1}, {0, 3, 2}, {1, 3, 1}, {1, 7, 2}, {2, 4, 1}, {2, 2, 3}};
    for (int k = 0; k < 2 * NDP_COUNT(cuts); k++)
        for (int name = 0; name < NDP_OPTIMIZER_COUNT; name++) {
            const ndp_optimizer *o = ndp_optimizers[name];
            const ndp_device *device = k % 2 ? &ndp_device_ref : tested();
            try_update(device, o, o->op, &cuts[k / 2]);
            if (o->whole.direction)
                try_update(device, o, o->whole.direction, &cuts[k / 2]);
        }
}

/* 200 updates of weights in two parts are those of fp32, bit for bit. */
static void updates_lose_nothing(void **state) {
    (void)state;
    enum { N = 1000, UPDATES = 200 };
    static float w[N], g[N], s[4][N];
    static uint16_t high[N], rest[N];
    const ndp_exec exec = {.device = tested(), .threads = 1};
    const ndp_optimizer_opts o = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1};
    int64_t piece[NDP_PIECE_COLUMNS] = {0, N, ndp_piece_facts(1, 0)};
    ndp_rng_normal(3, 0, 0, N, 0.02, w);
    for (int i = 0; i < N; i++)
        high[i] = ndp_split_high(w[i]), rest[i] = ndp_split_rest(w[i], high[i]);
    for (int update = 0; update < UPDATES; update++) {
        double constants[NDP_OPTIMIZER_CONSTANTS] = {0}, clip = 1;
        ndp_optimizers[NDP_ADAMW]->constants(&o, 1e-3, update, constants);
        ndp_rng_normal(4, (uint64_t)update, 0, N, 0.01, g);
        for (int two = 0; two < 2; two++) {
            ndp_view weights = two ? row(rest, NDP_SPLIT_REST, N) : row(w, NDP_F32, N);
            ndp_op_call call = {.op = &ndp_op_adamw,
                                .attr = &(ndp_op_attr){0},
                                .exec = &exec,
                                .in = {weights,
                                       row(g, NDP_F32, N),
                                       {piece, NDP_I64, 1, NDP_PIECE_COLUMNS, NDP_PIECE_COLUMNS},
                                       {constants, NDP_F64, 1, NDP_OPTIMIZER_CONSTANTS, NDP_OPTIMIZER_CONSTANTS},
                                       row(&clip, NDP_F64, 1),
                                       row(s[2 * two], NDP_F32, N),
                                       row(s[2 * two + 1], NDP_F32, N)},
                                .out = {weights, row(two ? high : NULL, NDP_BF16, N)}};
            run_call(&call);
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(ndp_float_bits(ndp_split_join(high[i], rest[i])), ndp_float_bits(w[i]));
    }
    assert_memory_equal(s[0], s[2], 2 * sizeof s[0]);
}

/* What has no place in its tensor cannot be rounded. */
static void tables_without_places_are_refused(void **state) {
    (void)state;
    uint16_t x[64] = {0};
    float g[64] = {0};
    double k[NDP_OPTIMIZER_CONSTANTS] = {0};
    int64_t piece[NDP_PIECE_COLUMNS] = {0, 64, ndp_piece_facts(1, 0)};
    ndp_op_call call = {.op = &ndp_op_sgd,
                        .attr = &(ndp_op_attr){0},
                        .in = {row(x, NDP_BF16, 64),
                               row(g, NDP_F32, 64),
                               {piece, NDP_I64, 1, NDP_PIECE_COLUMNS, NDP_PIECE_COLUMNS},
                               {k, NDP_F64, 1, NDP_OPTIMIZER_CONSTANTS, NDP_OPTIMIZER_CONSTANTS}}};
    assert_true(call.op->shape(&call) != NDP_OK);
    assert_non_null(strstr(ndp_error_message(), "does not say where pieces are"));
    ndp_error_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_bit_is_lost), cmocka_unit_test(rounding_is_fair),
                                       cmocka_unit_test(no_layout_changes_what_is_kept),
                                       cmocka_unit_test(updates_lose_nothing),
                                       cmocka_unit_test(tables_without_places_are_refused)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
