/* Pieces of rows (ops/row_pieces.h): maps of the delta rule and the rows before a piece make of the pieces what all
 * rows make at once, on `cpu`, or NDP_TEST_DEVICE, and on ref; and kernels of the ops against ref. */
#include "kernel_case.h"
#include "ops/row_pieces.h"

typedef struct cut {
    int ranks, parts, taps, heads, kv_heads, d, e;
    int64_t piece;
} cut;

/* Rows of all ranks; of one. */
static int64_t rows_of_all(const cut *c) { return c->ranks * c->parts * c->piece; }
static int64_t rows_here(const cut *c) { return c->parts * c->piece; }

static ndp_op_attr attr_of(const cut *c, int rank) {
    return (ndp_op_attr){.heads = c->heads,
                         .kv_heads = c->kv_heads,
                         .head_dim = c->d,
                         .v_dim = c->e,
                         .ranks = c->ranks,
                         .parts = c->parts,
                         .place = rank,
                         .ends = c->taps - 1 < c->piece ? c->taps - 1 : (int)c->piece};
}
static ndp_op_attr attr_of_all(const cut *c) {
    return (ndp_op_attr){.heads = c->heads, .kv_heads = c->kv_heads, .head_dim = c->d, .v_dim = c->e};
}

/* The row of all that row t of a rank is. */
static int64_t row_of(const cut *c, int rank, int64_t t) {
    ndp_op_attr a = attr_of(c, rank);
    return ndp_row_piece_number(&a, t / c->piece) * c->piece + t % c->piece;
}

/* A rank's rows of a matrix; starts are counted from its own rows. */
static ndp_view here(const cut *c, int rank, const ndp_view *all) {
    ndp_view v = matrix(all->dtype, rows_here(c), all->cols);
    for (int64_t t = 0; t < v.rows; t++)
        for (int64_t j = 0; j < v.cols; j++) {
            int64_t row = row_of(c, rank, t);
            ndp_view_set(&v, t, j, ndp_view_get(all, row, j) + (double)(v.dtype == NDP_I32 ? t - row : 0));
        }
    return v;
}

/* A part of what all ranks hand in, rank by rank. */
static void gather(const ndp_view *part, int rank, ndp_view *all) {
    for (int64_t r = 0; r < part->rows; r++)
        for (int64_t j = 0; j < part->cols; j++)
            ndp_view_set(all, rank * part->rows + r, j, ndp_view_get(part, r, j));
}

static void check_rows_of(const cut *c, int rank, const ndp_view *is, const ndp_view *must, const ndp_op *op, int o) {
    double worst = 0, most = 1e-30, allowed = is->dtype == NDP_F64 ? 1e-11 : 2e-5;
    for (int64_t t = 0; t < is->rows; t++)
        for (int64_t j = 0; j < is->cols; j++) {
            double want = ndp_view_get(must, row_of(c, rank, t), j);
            worst = fmax(worst, fabs(ndp_view_get(is, t, j) - want)), most = fmax(most, fabs(want));
        }
    if (!(worst <= allowed * most))
        fail_msg("%s, output %d, rank %d of %d, %d pieces of %lld rows: off by %g of %g", op->name, o, rank, c->ranks,
                 c->parts, (long long)c->piece, worst, most);
}

static void run(const ndp_op *op, const ndp_op_attr *a, const ndp_view *in, ndp_view *out, int device) {
    make_outputs(op, a, in, out, ~0u);
    run_op(op, a, in, out, device_at(device), 2);
}

static ndp_dtype type_at(int device) { return device == 0 ? NDP_F32 : NDP_F64; }

/* Decays near 1, so that a state outlives a piece. */
static void fill(const cut *c, ndp_dtype type, bool whole, ndp_view *in) {
    int64_t t = rows_of_all(c);
    const ndp_view operands[] = {
        random_matrix(type, t, c->kv_heads * c->d, 1), random_matrix(type, t, c->kv_heads * c->d, 2),
        random_matrix(type, t, c->heads * c->e, 3),    random_matrix(type, t, c->heads, 4),
        random_matrix(type, t, c->heads, 5),           whole ? matrix(NDP_I32, t, 1) : some_starts(t),
        random_matrix(type, t, c->heads * c->e, 6)};
    memcpy(in, operands, sizeof operands);
    for (int64_t r = 0; r < t; r++)
        for (int64_t j = 0; j < c->heads; j++)
            ndp_view_set(&in[3], r, j, -0.02 * fabs(ndp_view_get(&in[3], r, j)));
}

enum { Q, K, V, G, B, START, D_O, OPERANDS };

static ndp_view handed(const cut *c, ndp_dtype type, int64_t cols) {
    return matrix(type, (int64_t)c->ranks * c->parts * c->heads * c->d, cols);
}

/* What each rank does, first for all of them what they hand to each other. */
static void check_rule(const cut *c, int device, bool whole) {
    ndp_dtype type = type_at(device);
    ndp_view all[OPERANDS], maps = handed(c, type, c->e + c->d), backs = handed(c, type, c->e);
    ndp_view o[NDP_OP_MAX_OUT] = {{0}}, gradients[NDP_OP_MAX_OUT] = {{0}};
    ndp_op_attr whole_attr = attr_of_all(c);
    fill(c, type, whole, all);
    run(&ndp_op_delta_rule, &whole_attr, (ndp_view[NDP_OP_MAX_IN]){all[Q], all[K], all[V], all[G], all[B], all[START]},
        o, device);
    run(&ndp_op_delta_rule_bwd, &whole_attr,
        (ndp_view[NDP_OP_MAX_IN]){all[D_O], all[Q], all[K], all[V], all[G], all[B], all[START]}, gradients, device);
    for (int rank = 0; rank < c->ranks; rank++) {
        ndp_op_attr a = attr_of(c, rank);
        ndp_view x[OPERANDS], map[NDP_OP_MAX_OUT] = {{0}}, back[NDP_OP_MAX_OUT] = {{0}};
        for (int i = 0; i < OPERANDS; i++)
            x[i] = here(c, rank, &all[i]);
        run(&ndp_op_delta_map, &a, (ndp_view[NDP_OP_MAX_IN]){x[K], x[V], x[G], x[B], x[START]}, map, device);
        run(&ndp_op_delta_map_back, &a, (ndp_view[NDP_OP_MAX_IN]){x[D_O], x[Q], x[K], x[G], x[B], x[START]}, back,
            device);
        gather(&map[0], rank, &maps);
        gather(&back[0], rank, &backs);
        free_matrices(x, OPERANDS);
        free_matrices(map, 1);
        free_matrices(back, 1);
    }
    for (int rank = 0; rank < c->ranks; rank++) {
        ndp_op_attr a = attr_of(c, rank);
        ndp_view x[OPERANDS], before[NDP_OP_MAX_OUT] = {{0}}, after[NDP_OP_MAX_OUT] = {{0}};
        ndp_view y[NDP_OP_MAX_OUT] = {{0}}, dx[NDP_OP_MAX_OUT] = {{0}};
        for (int i = 0; i < OPERANDS; i++)
            x[i] = here(c, rank, &all[i]);
        run(&ndp_op_delta_states, &a, (ndp_view[NDP_OP_MAX_IN]){maps}, before, device);
        run(&ndp_op_delta_states, &a, (ndp_view[NDP_OP_MAX_IN]){maps, backs}, after, device);
        run(&ndp_op_delta_rule, &a, (ndp_view[NDP_OP_MAX_IN]){x[Q], x[K], x[V], x[G], x[B], x[START], before[0]}, y,
            device);
        run(&ndp_op_delta_rule_bwd, &a,
            (ndp_view[NDP_OP_MAX_IN]){x[D_O], x[Q], x[K], x[V], x[G], x[B], x[START], before[0], after[0]}, dx, device);
        check_rows_of(c, rank, &y[0], &o[0], &ndp_op_delta_rule, 0);
        for (int i = 0; i < 5; i++)
            check_rows_of(c, rank, &dx[i], &gradients[i], &ndp_op_delta_rule_bwd, i);
        free_matrices(x, OPERANDS);
        free_matrices(before, 1);
        free_matrices(after, 1);
        free_matrices(y, 1);
        free_matrices(dx, 5);
    }
    free_matrices(all, OPERANDS);
    free_matrices(&maps, 1);
    free_matrices(&backs, 1);
    free_matrices(o, 1);
    free_matrices(gradients, 5);
}

/* Sums over ranks of what they make. */
static void add(const ndp_view *part, ndp_view *sum) {
    for (int64_t r = 0; r < sum->rows; r++)
        for (int64_t j = 0; j < sum->cols; j++)
            ndp_view_set(sum, r, j, ndp_view_get(sum, r, j) + ndp_view_get(part, r, j));
}

static void check_conv(const cut *c, int device, bool whole) {
    enum { COLUMNS = 5 };
    ndp_dtype type = type_at(device);
    int64_t t = rows_of_all(c);
    ndp_op_attr none = {0}, a = attr_of(c, 0);
    ndp_view all[] = {random_matrix(type, t, COLUMNS, 1), random_matrix(type, COLUMNS, c->taps, 2),
                      whole ? matrix(NDP_I32, t, 1) : some_starts(t), random_matrix(type, t, COLUMNS, 3)};
    ndp_view y[NDP_OP_MAX_OUT] = {{0}}, dx[NDP_OP_MAX_OUT] = {{0}}, dw[NDP_OP_MAX_OUT] = {{0}};
    int64_t ends = (int64_t)c->ranks * c->parts * a.ends;
    ndp_view handed_in = matrix(type, ends, COLUMNS), summed = matrix(type, ends, COLUMNS);
    ndp_view dw_sum = matrix(type, COLUMNS, c->taps);
    run(&ndp_op_conv_silu, &none, (ndp_view[NDP_OP_MAX_IN]){all[0], all[1], all[2]}, y, device);
    run(&ndp_op_conv_silu_dx, &none, (ndp_view[NDP_OP_MAX_IN]){all[3], all[0], all[1], all[2]}, dx, device);
    run(&ndp_op_conv_silu_dw, &none, (ndp_view[NDP_OP_MAX_IN]){all[3], all[0], all[1], all[2]}, dw, device);
    for (int rank = 0; rank < c->ranks; rank++) {
        ndp_view x[NDP_OP_MAX_IN] = {here(c, rank, &all[0])}, out[NDP_OP_MAX_OUT] = {{0}};
        a = attr_of(c, rank);
        run(&ndp_op_piece_ends, &a, x, out, device);
        gather(&out[0], rank, &handed_in);
        free_matrices(x, 1);
        free_matrices(out, 1);
    }
    for (int pass = 0; pass < 2; pass++) /* gradients of ends are summed before they are read */
        for (int rank = 0; rank < c->ranks; rank++) {
            ndp_view x = here(c, rank, &all[0]), start = here(c, rank, &all[2]), dy = here(c, rank, &all[3]);
            ndp_view made[NDP_OP_MAX_OUT] = {{0}}, more[NDP_OP_MAX_OUT] = {{0}}, part[NDP_OP_MAX_OUT] = {{0}};
            a = attr_of(c, rank);
            ndp_view in[NDP_OP_MAX_IN] = {dy, x, all[1], start, handed_in};
            run(pass ? &ndp_op_conv_silu_dx : &ndp_op_conv_silu_dends, &a,
                pass ? (ndp_view[NDP_OP_MAX_IN]){dy, x, all[1], start, {0}, handed_in} : in, made, device);
            if (pass == 0) {
                add(&made[0], &summed);
                run(&ndp_op_conv_silu, &a, (ndp_view[NDP_OP_MAX_IN]){x, all[1], start, handed_in}, more, device);
                check_rows_of(c, rank, &more[0], &y[0], &ndp_op_conv_silu, 0);
                run(&ndp_op_conv_silu_dw, &a, in, part, device);
                add(&part[0], &dw_sum);
            } else {
                ndp_view own = matrix(type, (int64_t)c->parts * a.ends, COLUMNS);
                for (int64_t r = 0; r < own.rows; r++)
                    for (int64_t j = 0; j < COLUMNS; j++)
                        ndp_view_set(&own, r, j, ndp_view_get(&summed, rank * own.rows + r, j));
                run(&ndp_op_piece_ends_dx, &a, (ndp_view[NDP_OP_MAX_IN]){own, x, made[0]}, more, device);
                check_rows_of(c, rank, &more[0], &dx[0], &ndp_op_conv_silu_dx, 0);
                free_matrices(&own, 1);
            }
            free_matrices(&x, 1);
            free_matrices(&start, 1);
            free_matrices(&dy, 1);
            free_matrices(made, 1);
            free_matrices(more, 1);
            free_matrices(part, 1);
        }
    assert_true(distance(&dw_sum, &dw[0]) < (type == NDP_F64 ? 1e-12 : 1e-5));
    free_matrices(all, 4);
    free_matrices(y, 1);
    free_matrices(dx, 1);
    free_matrices(dw, 1);
    free_matrices(&handed_in, 1);
    free_matrices(&summed, 1);
    free_matrices(&dw_sum, 1);
}

/* Pieces of one row, of fewer than the taps, of chunks and of more; documents that end in a piece, at its border, and
 * that are longer than several. */
static void pieces_are_the_whole(void **state) {
    (void)state;
    static const cut cuts[] = {{2, 2, 4, 2, 1, 4, 3, 1},   {2, 2, 8, 1, 1, 3, 3, 2},  {3, 2, 4, 4, 2, 5, 19, 21},
                               {2, 1, 4, 2, 2, 16, 8, 64}, {4, 2, 3, 2, 1, 8, 8, 43}, {2, 2, 2, 2, 1, 33, 16, 129},
                               {3, 1, 1, 3, 3, 2, 2, 65}};
    int n = small_sizes() ? 3 : NDP_COUNT(cuts);
    for (int i = 0; i < n; i++)
        for (int device = 0; device < DEVICES; device++)
            for (int whole = 0; whole < 2; whole++) {
                check_rule(&cuts[i], device, whole);
                if (cuts[i].taps > 1)
                    check_conv(&cuts[i], device, whole);
            }
}

/* A rank's starts: of documents that begin before its pieces too. */
static ndp_view starts_here(const cut *c, int rank) {
    ndp_view all = some_starts(rows_of_all(c)), v = here(c, rank, &all);
    free_matrices(&all, 1);
    return v;
}

static ndp_view decays(int64_t rows, int64_t heads) {
    ndp_view v = some(rows, heads, 9);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t h = 0; h < heads; h++)
            ndp_view_set(&v, t, h, -0.05 * pow(ndp_view_get(&v, t, h), 2));
    return v;
}

static void kernels_of_maps(void **state) {
    (void)state;
    static const cut cuts[] = {{2, 2, 4, 2, 1, 4, 3, 3},
                               {2, 1, 4, 1, 1, 5, 5, 64},
                               {3, 2, 4, 4, 2, 5, 19, 65},
                               {2, 2, 4, 3, 3, 33, 8, 30},
                               {2, 2, 4, 4, 1, 40, 64, 129}};
    for (int i = 0; i < (small_sizes() ? 2 : NDP_COUNT(cuts)); i++)
        for (int rank = 0; rank < cuts[i].ranks; rank++) {
            const cut *c = &cuts[i];
            int64_t t = rows_here(c), keys = c->kv_heads * c->d, values = c->heads * c->e, h = c->heads;
            int64_t s = (int64_t)c->parts * h * c->d;
            ndp_op_attr a = attr_of(c, rank);
            kernel_case map = {
                &ndp_op_delta_map, a, .wide = 4,
                .in = {some(t, keys, 2), some(t, values, 3), decays(t, h), some(t, h, 4), starts_here(c, rank)}};
            kernel_case back = {&ndp_op_delta_map_back, a, .wide = 9,
                                .in = {some(t, values, 5), some(t, keys, 1), some(t, keys, 2), decays(t, h),
                                       some(t, h, 4), starts_here(c, rank)}};
            kernel_case forward = {&ndp_op_delta_rule, a, .wide = 8 | 64,
                                   .in = {some(t, keys, 1), some(t, keys, 2), some(t, values, 3), decays(t, h),
                                          some(t, h, 4), starts_here(c, rank), some(s, c->e, 6)}};
            kernel_case backward = {&ndp_op_delta_rule_bwd, a, .wide = 16 | 128 | 256,
                                    .in = {some(t, values, 5), some(t, keys, 1), some(t, keys, 2), some(t, values, 3),
                                           decays(t, h), some(t, h, 4), starts_here(c, rank), some(s, c->e, 6),
                                           some(s, c->e, 7)}};
            kernel_case states = {&ndp_op_delta_states, a, .wide = 3, .in = {some(c->ranks * s, c->e + c->d, 1)}};
            kernel_case gradients = {&ndp_op_delta_states, a, .wide = 3,
                                     .in = {some(c->ranks * s, c->e + c->d, 1), some(c->ranks * s, c->e, 2)}};
            check_kernel(&map);
            check_kernel(&back);
            check_kernel(&forward);
            check_kernel(&backward);
            check_kernel(&states);
            check_kernel(&gradients);
        }
}

static void kernels_of_ends(void **state) {
    (void)state;
    FOR_SIZES(piece, columns) for (int taps = 2; taps <= NDP_MAX_TAPS; taps *= 2) for (int rank = 0; rank < 3; rank++) {
        const cut c = {3, taps == 4 ? 1 : 2, taps, 1, 1, 1, 1, piece};
        int64_t t = rows_here(&c);
        ndp_op_attr a = attr_of(&c, rank);
        int64_t n = (int64_t)c.parts * a.ends, e = 3 * n;
        kernel_case forward = {
            &ndp_op_conv_silu, a,
            .in = {some(t, columns, 1), some(columns, taps, 2), starts_here(&c, rank), some(e, columns, 3)}};
        kernel_case dx = {&ndp_op_conv_silu_dx, a,
                          .in = {some(t, columns, 4), some(t, columns, 1), some(columns, taps, 2),
                                 starts_here(&c, rank), some(t, columns, 5), some(e, columns, 3)}};
        kernel_case dw = {&ndp_op_conv_silu_dw, a,
                          .in = {some(t, columns, 1), some(t, columns, 1), some(columns, taps, 2),
                                 starts_here(&c, rank), some(e, columns, 3)}};
        kernel_case dends = {&ndp_op_conv_silu_dends, a,
                             .in = {some(t, columns, 4), some(t, columns, 1), some(columns, taps, 2),
                                    starts_here(&c, rank), some(e, columns, 3)}};
        kernel_case ends = {&ndp_op_piece_ends, a, .in = {some(t, columns, 1)}};
        kernel_case ends_dx = {&ndp_op_piece_ends_dx, a, .wide = taps == 2 ? 1 : 0,
                               .in = {some(n, columns, 2), some(t, columns, 1)}};
        if (taps < 8)
            ends_dx.in[2] = some(t, columns, 3);
        check_kernel(&forward);
        check_kernel(&dx);
        check_kernel(&dw);
        check_kernel(&dends);
        check_kernel(&ends);
        check_kernel(&ends_dx);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(kernels_of_maps),
        cmocka_unit_test(kernels_of_ends),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
