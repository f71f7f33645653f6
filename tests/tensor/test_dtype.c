#include "tensor/dtype.h"

#include "base/rng.h"
#include "check.h"
#include <math.h>

enum { CODES = 1 << 16 };

static float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* What 16 bits mean, from the definition of a format with `fraction` bits and an exponent bias. */
static double meaning(uint16_t code, int fraction, int bias) {
    int exponents = 1 << (15 - fraction), e = (code & 0x7fff) >> fraction, m = code & ((1 << fraction) - 1);
    double sign = code & 0x8000 ? -1 : 1;
    if (e == exponents - 1)
        return m ? (double)NAN : sign * (double)INFINITY;
    return sign * (e ? ldexp(1 + ldexp(m, -fraction), e - bias) : ldexp(m, 1 - bias - fraction));
}

static const struct {
    ndp_dtype type;
    int fraction, bias;
    uint16_t infinity;
} formats[] = {{NDP_BF16, 7, 127, 0x7f80}, {NDP_F16, 10, 15, 0x7c00}};

static bool same(double a, double b) { return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b)); }

/* All 65536 codes: they mean what the format says, and come back. */
static void every_code_is_read_and_returns(void **state) {
    (void)state;
    static uint16_t codes[CODES], back[CODES];
    static float values[CODES];
    static double wide[CODES];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < CODES; i++)
            codes[i] = (uint16_t)i;
        ndp_convert(codes, formats[k].type, values, NDP_F32, CODES);
        ndp_convert(codes, formats[k].type, wide, NDP_F64, CODES);
        ndp_convert(values, NDP_F32, back, formats[k].type, CODES);
        for (int i = 0; i < CODES; i++) {
            double expected = meaning((uint16_t)i, formats[k].fraction, formats[k].bias);
            if (!same((double)values[i], expected) || !same(wide[i], expected))
                fail_msg("%s 0x%04x reads as %g, expected %g", ndp_dtype_name(formats[k].type), i, (double)values[i],
                         expected);
            if (isnan(expected))
                assert_true(isnan(meaning(back[i], formats[k].fraction, formats[k].bias)));
            else
                assert_int_equal(back[i], i);
        }
    }
}

/* `code` is the nearest to x of all codes of its format, the even one of two. x is not NaN. */
static bool is_nearest(double x, uint16_t code, int k) {
    int fraction = formats[k].fraction, bias = formats[k].bias;
    uint16_t magnitude = code & 0x7fff;
    if (!!signbit(x) != !!(code & 0x8000))
        return false;
    x = fabs(x);
    /* Infinity takes the place of the next number behind the largest. */
    double next_binade = ldexp(1, (1 << (15 - fraction)) - 1 - bias);
    double here = magnitude == formats[k].infinity ? next_binade : meaning(magnitude, fraction, bias);
    if (magnitude > formats[k].infinity)
        return false;
    bool even = (magnitude & 1) == 0;
    if (magnitude > 0) {
        double middle = (meaning((uint16_t)(magnitude - 1), fraction, bias) + here) / 2;
        if (x < middle || (x == middle && !even))
            return false;
    }
    if (magnitude < formats[k].infinity) {
        uint16_t above = (uint16_t)(magnitude + 1);
        double next = above == formats[k].infinity ? next_binade : meaning(above, fraction, bias);
        double middle = (here + next) / 2;
        if (x > middle || (x == middle && !even))
            return false;
    }
    return true;
}

/* Floats of all exponents: random ones, the halves' neighbours and the middles between them. */
static void floats_round_to_nearest_even(void **state) {
    (void)state;
    enum { N = 200000 };
    static float x[N];
    static uint16_t code[N];
    for (int k = 0; k < 2; k++) {
        int drop = 23 - formats[k].fraction;
        for (int i = 0; i < N; i++) {
            uint32_t word[4];
            ndp_rng_words(5, 1, (uint64_t)i, word);
            uint32_t near = (word[0] & ~((1u << drop) - 1)) | (1u << (drop - 1)); /* exactly between two */
            x[i] = from_bits(i % 4 == 0 ? word[0] : near + (uint32_t)(i % 4 - 2));
            if (i % 8 > 4) /* the range of fp16, which is narrow */
                x[i] = (float)copysign(ldexp(1 + fabs((double)(word[1] >> 9)) * 0x1p-23, (int)(word[2] % 44) - 27),
                                       (double)x[i]);
        }
        ndp_convert(x, NDP_F32, code, formats[k].type, N);
        for (int i = 0; i < N; i++) {
            if (isnan(x[i]))
                assert_true(isnan(meaning(code[i], formats[k].fraction, formats[k].bias)));
            else if (!is_nearest((double)x[i], code[i], k))
                fail_msg("%a becomes %s 0x%04x", (double)x[i], ndp_dtype_name(formats[k].type), code[i]);
            if (formats[k].type == NDP_BF16 && !isnan(x[i]))
                assert_int_equal(code[i], ndp_f32_to_bf16(x[i]));
        }
    }
}

/* Every length ends where it should, whatever the pair. */
static void lengths_and_pairs(void **state) {
    (void)state;
    static const ndp_dtype types[] = {NDP_F32, NDP_BF16, NDP_F16, NDP_F64};
    enum { MOST = 1100 };
    static float values[MOST];
    for (int i = 0; i < MOST; i++)
        values[i] = (float)(i % 255 - 127) / 16; /* exact in all four */
    for (int k = 0; k < 16; k++) {
        ndp_dtype a = types[k % 4], b = types[k / 4];
        static const int lengths[] = {0, 1, 7, 511, 512, 513, 1024, 1099};
        for (int l = 0; l < NDP_COUNT(lengths); l++) {
            unsigned char from[MOST * 8], to[MOST * 8], guard = 0x5a;
            float back[MOST];
            size_t end = (size_t)lengths[l] * ndp_dtype_size(b);
            memset(to, guard, sizeof to);
            ndp_convert(values, NDP_F32, from, a, MOST);
            ndp_convert(from, a, to, b, lengths[l]);
            for (size_t i = end; i < sizeof to; i++)
                assert_int_equal(to[i], guard);
            ndp_convert(to, b, back, NDP_F32, lengths[l]);
            assert_memory_equal(back, values, (size_t)lengths[l] * 4);
        }
    }
}

static void names_and_sizes(void **state) {
    (void)state;
    assert_string_equal(ndp_dtype_name(NDP_F32), "fp32");
    assert_string_equal(ndp_dtype_name(NDP_BF16), "bf16");
    assert_string_equal(ndp_dtype_name(NDP_F16), "fp16");
    assert_string_equal(ndp_dtype_name(NDP_F64), "fp64");
    static const size_t sizes[NDP_DTYPES] = {[NDP_F32] = 4, [NDP_BF16] = 2, [NDP_F16] = 2, [NDP_F64] = 8,
                                             [NDP_I32] = 4, [NDP_U16] = 2,  [NDP_U8] = 1,  [NDP_I64] = 8};
    for (int t = 0; t < NDP_DTYPES; t++) {
        assert_int_equal(ndp_dtype_size((ndp_dtype)t), sizes[t]);
        assert_true(strlen(ndp_dtype_name((ndp_dtype)t)) > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_code_is_read_and_returns),
                                       cmocka_unit_test(floats_round_to_nearest_even),
                                       cmocka_unit_test(lengths_and_pairs), cmocka_unit_test(names_and_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
