/* unpack: rectangles of packed matrices have the bits of the whole, on every device, in every storage type, with any
 * number of threads. */
#include "op_test.h"
#include "tensor/packed.h"

enum { THREADS = 3 };

/* A whole tensor, packed, and its values, unpacked by the formulas of tensor/packed.h. */
typedef struct whole {
    int64_t rows, cols;
    float *x, *values;
    uint8_t *codes, *scales; /* nf4 */
    float *nested;
    int8_t *bytes; /* int8 */
    float *absmax; /* of blocks, of rows */
} whole;

static whole make_whole(ndp_packing packing, int64_t rows, int64_t cols) {
    int64_t n = rows * cols, blocks = ndp_packed_blocks(n);
    whole w = {rows,
               cols,
               malloc((size_t)n * 4),
               malloc((size_t)n * 4),
               calloc((size_t)n + 1, 1),
               calloc((size_t)blocks, 1),
               calloc((size_t)ndp_packed_nested(n), 4),
               calloc((size_t)n, 1),
               calloc((size_t)(blocks + rows), 4)};
    uint64_t state = (uint64_t)n;
    for (int64_t i = 0; i < n; i++)
        w.x[i] = (float)(uniform(&state) * (1 + (double)(i / NDP_PACKED_BLOCK % 5)));
    if (packing == NDP_PACKING_NF4) {
        ndp_nf4_absmax(w.x, n, w.absmax);
        ndp_nf4_nest(w.absmax, blocks, w.scales, w.nested);
        ndp_nf4_pack(w.x, n, w.absmax, w.codes);
        ndp_nf4_unpack_scales(w.scales, w.nested, 0, blocks, w.absmax);
    }
    for (int64_t r = 0; packing == NDP_PACKING_INT8 && r < rows; r++) {
        w.absmax[r] = ndp_int8_absmax(w.x + r * cols, cols);
        ndp_int8_pack(w.x + r * cols, cols, w.absmax[r], w.bytes + r * cols);
    }
    for (int64_t i = 0; i < n; i++)
        w.values[i] = packing == NDP_PACKING_NF4
                          ? ndp_nf4_values[w.codes[i / 2] >> (i % 2 ? 0 : 4) & 15] * w.absmax[i / NDP_PACKED_BLOCK]
                          : (float)w.bytes[i] * w.absmax[i / cols] * NDP_INT8_STEP;
    return w;
}

static void free_whole(whole *w) {
    void *all[] = {w->x, w->values, w->codes, w->scales, w->nested, w->bytes, w->absmax};
    for (int i = 0; i < NDP_COUNT(all); i++)
        free(all[i]);
}

/* Rows [row, row + rows) and columns [col, col + cols) of a tensor. */
typedef struct rectangle {
    int64_t row, rows, col, cols;
} rectangle;

static ndp_view part_of(const ndp_packed *p, int part) {
    ndp_view v = p->part[part];
    v.data = v.rows ? calloc((size_t)(v.rows * v.cols) * ndp_dtype_size(v.dtype) + 1, 1) : NULL;
    return v;
}

/* Copies what a rank has of the codes and scales; blocks are whole. */
static void cut(ndp_packing packing, const whole *w, const rectangle *q, ndp_view in[3], ndp_op_attr *attr) {
    ndp_packed p = ndp_packed_of(packing, 1, q->rows, q->cols, w->rows * w->cols);
    bool nf4 = packing == NDP_PACKING_NF4;
    for (int i = 0; i < 3; i++)
        in[i] = part_of(&p, i);
    for (int64_t r = 0; r < q->rows; r++) {
        int64_t from = (q->row + r) * w->cols + q->col, to = r * q->cols;
        for (int64_t c = 0; c < q->cols; c++) {
            uint8_t *at = (uint8_t *)in[0].data + (nf4 ? (to + c) / 2 : to + c);
            int64_t i = from + c;
            if (!nf4)
                *at = (uint8_t)w->bytes[i];
            else
                *at |= (uint8_t)((w->codes[i / 2] >> (i % 2 ? 0 : 4) & 15) << ((to + c) % 2 ? 0 : 4));
            if (nf4)
                ((uint8_t *)in[1].data)[(to + c) / NDP_PACKED_BLOCK] = w->scales[i / NDP_PACKED_BLOCK];
        }
        if (!nf4)
            ((float *)in[1].data)[r] = w->absmax[q->row + r];
    }
    if (nf4)
        memcpy(in[2].data, w->nested, (size_t)in[2].cols * 4);
    bool whole_rows = q->cols == w->cols;
    *attr = (ndp_op_attr){.first = (q->row * w->cols + q->col) / NDP_PACKED_BLOCK,
                          .row_blocks = nf4 && !whole_rows ? w->cols / NDP_PACKED_BLOCK : 0};
}

static void check_type(const whole *w, const rectangle *q, const ndp_view in[3], ndp_op_attr attr,
                       const ndp_device *device, ndp_dtype type) {
    attr.type = type;
    for (int threads = 1; threads <= (device == &ndp_device_cpu ? THREADS : 1); threads++) {
        ndp_view out[NDP_OP_MAX_OUT] = {matrix(type, q->rows, q->cols)}, shapes[NDP_OP_MAX_OUT] = {out[0]};
        require_ok(apply_shape(&ndp_op_unpack, &attr, in, shapes));
        run_op(&ndp_op_unpack, &attr, in, out, device, threads);
        ndp_view one = matrix(type, 1, 1);
        for (int64_t r = 0; r < q->rows; r++)
            for (int64_t c = 0; c < q->cols; c++) {
                float must = w->values[(q->row + r) * w->cols + q->col + c];
                ndp_view_set(&one, 0, 0, (double)must);
                if (ndp_view_get(&out[0], r, c) != ndp_view_get(&one, 0, 0))
                    fail_msg("%s, %s, %d threads: row %lld, column %lld of [%lld,%lld] is %.9g, must be %.9g",
                             device->name, ndp_dtype_name(type), threads, (long long)r, (long long)c,
                             (long long)q->rows, (long long)q->cols, ndp_view_get(&out[0], r, c),
                             ndp_view_get(&one, 0, 0));
            }
        free_matrices(&one, 1);
        free_matrices(out, 1);
    }
}

static void check_rectangle(ndp_packing packing, const whole *w, rectangle q) {
    ndp_view in[3];
    ndp_op_attr attr;
    cut(packing, w, &q, in, &attr);
    for (int d = 0; d < DEVICES; d++)
        for (int type = 0; type < 2; type++)
            check_type(w, &q, in, attr, device_at(d), type ? NDP_BF16 : NDP_F32);
    check_type(w, &q, in, attr, &ndp_device_ref, NDP_F64);
    for (int i = 0; i < 3; i++)
        free(in[i].data);
}

/* Whole tensors, whose blocks do and do not end with a row, and the last of which may be a part of one. */
static void whole_tensors(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {1, 63}, {3, 64}, {7, 91}, {5, 96}, {130, 130}, {2, 8200}};
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        for (int packing = 1; packing < NDP_PACKINGS; packing++) {
            whole w = make_whole((ndp_packing)packing, sizes[i][0], sizes[i][1]);
            check_rectangle((ndp_packing)packing, &w, (rectangle){0, w.rows, 0, w.cols});
            free_whole(&w);
        }
}

/* Rows that begin with a block, in a tensor of more than one nest; columns of whole blocks. */
static void parts_of_tensors(void **state) {
    (void)state;
    whole odd = make_whole(NDP_PACKING_NF4, 224, 90), even = make_whole(NDP_PACKING_NF4, 96, 320);
    check_rectangle(NDP_PACKING_NF4, &odd, (rectangle){32, 64, 0, 90});
    check_rectangle(NDP_PACKING_NF4, &odd, (rectangle){192, 32, 0, 90});
    check_rectangle(NDP_PACKING_NF4, &even, (rectangle){0, 96, 128, 64});
    check_rectangle(NDP_PACKING_NF4, &even, (rectangle){0, 96, 192, 128});
    check_rectangle(NDP_PACKING_NF4, &even, (rectangle){50, 46, 64, 192});
    free_whole(&odd);
    free_whole(&even);
    whole bytes = make_whole(NDP_PACKING_INT8, 31, 77);
    check_rectangle(NDP_PACKING_INT8, &bytes, (rectangle){5, 17, 0, 77});
    check_rectangle(NDP_PACKING_INT8, &bytes, (rectangle){0, 31, 13, 21});
    free_whole(&bytes);
}

/* Every second grain of 4 rows of a tensor of two nests, of whole blocks, which rows of 48 are not. */
static void parts_in_turn(void **state) {
    enum { GRAIN = 4, TURNS = 60, COLS = 48, BYTES = GRAIN * COLS / 2, BLOCKS = GRAIN * COLS / NDP_PACKED_BLOCK };
    (void)state;
    whole w = make_whole(NDP_PACKING_NF4, 2 * TURNS * GRAIN, COLS);
    ndp_packed p = ndp_packed_of(NDP_PACKING_NF4, 1, TURNS * GRAIN, COLS, w.rows * w.cols);
    ndp_op_attr attr = {.first = BLOCKS, .row_blocks = 2 * BLOCKS, .row_group = GRAIN};
    ndp_view in[3];
    for (int i = 0; i < 3; i++)
        in[i] = part_of(&p, i);
    whole part = w;
    part.values = malloc(sizeof *part.values * TURNS * GRAIN * COLS);
    for (int g = 0; g < TURNS; g++) {
        memcpy((uint8_t *)in[0].data + (size_t)g * BYTES, w.codes + (size_t)(2 * g + 1) * BYTES, BYTES);
        memcpy((uint8_t *)in[1].data + (size_t)g * BLOCKS, w.scales + (size_t)(2 * g + 1) * BLOCKS, BLOCKS);
        memcpy(part.values + (size_t)g * GRAIN * COLS, w.values + (size_t)(2 * g + 1) * GRAIN * COLS,
               sizeof *w.values * GRAIN * COLS);
    }
    memcpy(in[2].data, w.nested, (size_t)in[2].cols * 4);
    for (int d = 0; d < DEVICES; d++)
        check_type(&part, &(rectangle){0, TURNS * GRAIN, 0, COLS}, in, attr, device_at(d), NDP_F32);
    free(part.values);
    for (int i = 0; i < 3; i++)
        free(in[i].data);
    free_whole(&w);
}

/* Matrices of a stack follow each other, each with parts of its own: all rows, some of them, columns of whole blocks.
 */
static void stacks(void **state) {
    enum { N = 3, ROWS = 96, COLS = 320 };
    static const rectangle parts[] = {{0, ROWS, 0, COLS}, {32, 50, 0, COLS}, {0, ROWS, 128, 64}};
    (void)state;
    for (int k = 0; k < NDP_COUNT(parts) * (NDP_PACKINGS - 1); k++) {
        ndp_packing packing = (ndp_packing)(1 + k % (NDP_PACKINGS - 1));
        rectangle q = parts[k / (NDP_PACKINGS - 1)];
        ndp_packed p = ndp_packed_of(packing, N, q.rows, q.cols, ROWS * COLS);
        whole all = {N * q.rows, q.cols, .values = malloc((size_t)(N * q.rows * q.cols) * 4)};
        uint8_t *bytes = calloc((size_t)(N * p.bytes), 1);
        ndp_op_attr attr = {0};
        for (int e = 0; e < N; e++) {
            ndp_view in[3];
            whole w = make_whole(packing, ROWS, COLS);
            for (int64_t i = 0; i < ROWS * COLS / NDP_PACKED_BLOCK; i++)
                w.scales[i] ^= (uint8_t)e; /* other ones than its neighbours */
            for (int64_t i = 0; i < ROWS; i++)
                w.absmax[i] *= packing == NDP_PACKING_INT8 ? (float)(e + 1) : 1;
            cut(packing, &w, &q, in, &attr);
            for (int i = 0; i < 3; i++)
                if (in[i].data)
                    memcpy(bytes + e * p.bytes + p.at[i], in[i].data, (size_t)in[i].cols * ndp_dtype_size(in[i].dtype));
            ndp_op_call c = {.op = &ndp_op_unpack, .attr = &attr, .in = {in[0], in[1], in[2]}};
            c.out[0] = (ndp_view){all.values + e * q.rows * q.cols, NDP_F32, q.rows, q.cols, q.cols};
            require_ok(ndp_device_ref.kernels[NDP_OP_unpack]->run(&c));
            for (int i = 0; i < 3; i++)
                free(in[i].data);
            free_whole(&w);
        }
        assert_memory_not_equal(all.values, all.values + q.rows * q.cols, (size_t)(q.rows * q.cols) * 4);
        for (int i = 0; i < 3; i++)
            p.part[i].data = p.part[i].rows ? bytes + p.at[i] : NULL;
        for (int d = 0; d < DEVICES; d++)
            check_type(&all, &(rectangle){0, N * q.rows, 0, q.cols}, p.part, attr, device_at(d), NDP_F32);
        free(bytes), free(all.values);
    }
}

/* Blocks beyond the scales, and columns that begin within a block, are refused. */
static void shapes_that_do_not_fit(void **state) {
    (void)state;
    ndp_packed p = ndp_packed_of(NDP_PACKING_NF4, 1, 4, 128, 4 * 128);
    ndp_view out[NDP_OP_MAX_OUT] = {{.rows = 4, .cols = 128}};
    require_ok(apply_shape(&ndp_op_unpack, &(ndp_op_attr){0}, p.part, out));
    assert_int_equal(apply_shape(&ndp_op_unpack, &(ndp_op_attr){.first = 249}, p.part, out), NDP_EBUG);
    assert_int_equal(apply_shape(&ndp_op_unpack, &(ndp_op_attr){.row_blocks = 85}, p.part, out), NDP_EBUG);
    p = ndp_packed_of(NDP_PACKING_NF4, 1, 4, 96, 4 * 128);
    out[0].cols = 96;
    CHECK_FAILS(apply_shape(&ndp_op_unpack, &(ndp_op_attr){.row_blocks = 2}, p.part, out), NDP_EBUG,
                "not whole blocks");
    out[0].cols = 98;
    CHECK_FAILS(apply_shape(&ndp_op_unpack, &(ndp_op_attr){0}, p.part, out), NDP_EBUG, "no nf4 of [4,98]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_tensors), cmocka_unit_test(parts_of_tensors),
                                       cmocka_unit_test(parts_in_turn), cmocka_unit_test(stacks),
                                       cmocka_unit_test(shapes_that_do_not_fit)};
    return end_of_ops(cmocka_run_group_tests(tests, NULL, NULL));
}
