/* Packed matrices against what bitsandbytes makes (tests/golden/packed.safetensors): the same bits. */
#include "check.h"
#include "checkpoint/safetensors.h"
#include "tensor/packed.h"

#include <math.h>
#include <stdlib.h>

static const char *const names[] = {"blocks", "odd", "nested", "zeros", "outliers"};
enum { NAMES = sizeof names / sizeof *names };

static int open_file(void **state) {
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/golden/packed.safetensors", getenv("NDP_SOURCE_DIR"));
    CHECK_OK(ndp_safetensors_open(path, (ndp_safetensors **)state));
    return 0;
}

static int close_file(void **state) {
    ndp_safetensors_close(*state);
    return 0;
}

/* A tensor NAME.WHAT, the caller's to free. */
static void *take(void **state, const char *name, const char *what, ndp_dtype type, int64_t *rows, int64_t *n) {
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, what);
    const ndp_tensor_entry *t = ndp_safetensors_find(*state, full);
    assert_non_null(t);
    void *out = malloc((size_t)t->elements * ndp_dtype_size(type));
    assert_non_null(out);
    CHECK_OK(ndp_safetensors_read(*state, t, 0, t->elements, out, type, false));
    if (rows)
        *rows = t->spec.shape[0];
    if (n)
        *n = t->elements;
    return out;
}

/* Compares bits with those of NAME.WHAT. */
static void expect(void **state, const char *name, const char *what, ndp_dtype type, const void *made, int64_t n) {
    int64_t count;
    char *theirs = take(state, name, what, type, NULL, &count);
    assert_int_equal(count, n);
    size_t size = ndp_dtype_size(type);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(theirs + (size_t)i * size, (const char *)made + (size_t)i * size, size) != 0)
            fail_msg("%s.%s: element %lld of %lld differs", name, what, (long long)i, (long long)n);
    free(theirs);
}

static void nf4_has_the_bits_of_bitsandbytes(void **state) {
    for (int k = 0; k < NAMES; k++) {
        int64_t n;
        float *x = take(state, names[k], "x", NDP_F32, NULL, &n);
        ndp_packed p = ndp_packed_of(NDP_PACKING_NF4, 1, 1, n, n);
        int64_t blocks = p.part[NDP_PACKED_SCALES].cols, nested = p.part[NDP_PACKED_NESTED].cols;
        float *absmax = calloc((size_t)blocks, sizeof *absmax), *nest = calloc((size_t)nested, sizeof *nest);
        uint8_t *codes = calloc((size_t)n, 1), *scales = calloc((size_t)blocks, 1);
        assert_true(absmax && nest && codes && scales);
        ndp_nf4_absmax(x, n, absmax);
        expect(state, names[k], "absmax", NDP_F32, absmax, blocks);
        ndp_nf4_nest(absmax, blocks, scales, nest);
        expect(state, names[k], "offset", NDP_F32, nest, 1);
        expect(state, names[k], "nested", NDP_F32, nest + 1, nested - 1);
        expect(state, names[k], "scales", NDP_U8, scales, blocks);
        ndp_nf4_pack(x, n, absmax, codes);
        expect(state, names[k], "nf4", NDP_U8, codes, p.part[NDP_PACKED_CODES].cols);
        ndp_nf4_unpack_scales(scales, nest, 0, blocks, absmax);
        for (int64_t i = 0; i < n; i++)
            x[i] = ndp_nf4_values[codes[i / 2] >> (i % 2 ? 0 : 4) & 15] * absmax[i / NDP_PACKED_BLOCK];
        expect(state, names[k], "nf4_values", NDP_F32, x, n);
        free(x), free(absmax), free(nest), free(codes), free(scales);
    }
}

/* Blocks of a tensor are packed alike, whichever of them are given at a time. */
static void nf4_may_be_packed_in_parts(void **state) {
    int64_t n, part = 7 * NDP_PACKED_BLOCK;
    float *x = take(state, "odd", "x", NDP_F32, NULL, &n), absmax[64];
    uint8_t *codes = calloc((size_t)n, 1);
    assert_non_null(codes);
    for (int64_t first = 0; first < n; first += part) {
        int64_t count = n - first < part ? n - first : part;
        ndp_nf4_absmax(x + first, count, absmax + first / NDP_PACKED_BLOCK);
        ndp_nf4_pack(x + first, count, absmax + first / NDP_PACKED_BLOCK, codes + first / 2);
    }
    expect(state, "odd", "absmax", NDP_F32, absmax, ndp_packed_blocks(n));
    expect(state, "odd", "nf4", NDP_U8, codes, (n + 1) / 2);
    free(x), free(codes);
}

static void int8_has_the_bits_of_bitsandbytes(void **state) {
    for (int k = 0; k < NAMES; k++) {
        int64_t rows, n;
        float *x = take(state, names[k], "x", NDP_F32, &rows, &n), absmax[256];
        int8_t *codes = calloc((size_t)n, 1);
        int64_t cols = n / rows;
        assert_true(codes && rows <= 256);
        for (int64_t r = 0; r < rows; r++) {
            absmax[r] = ndp_int8_absmax(x + r * cols, cols);
            ndp_int8_pack(x + r * cols, cols, absmax[r], codes + r * cols);
        }
        expect(state, names[k], "rows", NDP_F32, absmax, rows);
        expect(state, names[k], "int8", NDP_U8, codes, n);
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)codes[i] * absmax[i / cols] * NDP_INT8_STEP;
        expect(state, names[k], "int8_values", NDP_F32, x, n);
        free(x), free(codes);
    }
}

static void dynamic_values_are_those_of_bitsandbytes(void **state) {
    const ndp_tensor_entry *t = ndp_safetensors_find(*state, "dynamic");
    float theirs[256];
    assert_non_null(t);
    assert_int_equal(t->elements, 256);
    CHECK_OK(ndp_safetensors_read(*state, t, 0, 256, theirs, NDP_F32, false));
    assert_memory_equal(theirs, ndp_dynamic_values, sizeof theirs);
}

/* Each element becomes the nearest value, which is off by half the widest gap between values at most. */
static void packed_values_are_near(void **state) {
    int64_t n;
    float *x = take(state, "outliers", "x", NDP_F32, NULL, &n), absmax[64];
    uint8_t *codes = calloc((size_t)n, 1);
    ndp_nf4_absmax(x, n, absmax);
    ndp_nf4_pack(x, n, absmax, codes);
    for (int64_t i = 0; i < n; i++) {
        float most = absmax[i / NDP_PACKED_BLOCK], value = ndp_nf4_values[codes[i / 2] >> (i % 2 ? 0 : 4) & 15];
        for (int other = 0; other < 16; other++)
            assert_true(fabsf(x[i] - value * most) <= fabsf(x[i] - ndp_nf4_values[other] * most) + 1e-6f * most);
    }
    free(x), free(codes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nf4_has_the_bits_of_bitsandbytes),
        cmocka_unit_test(nf4_may_be_packed_in_parts),
        cmocka_unit_test(int8_has_the_bits_of_bitsandbytes),
        cmocka_unit_test(dynamic_values_are_those_of_bitsandbytes),
        cmocka_unit_test(packed_values_are_near),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
