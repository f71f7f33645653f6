/* Packing of matrices, on the host, as bitsandbytes 0.50 does it on a CPU: the same bits for codes, absmax and scales.
 * Of the 8-bit codes of absmax it takes the nearest, as the portable code of bitsandbytes does (its library for CPUs
 * looks them up in a table of steps, and misses some).
 *
 * Compiled without contraction of products and sums: a scale of nf4 is rounded twice. */
#include "tensor/packed.h"

#include "tensor/packed_codes.h"
#include <math.h>

const float ndp_nf4_values[16] = {NDP_NF4_CODES};
const float ndp_dynamic_values[256] = {NDP_DYNAMIC_CODES};

const char *ndp_packing_name(ndp_packing p) {
    static const char *const names[NDP_PACKINGS] = {"plain", "nf4", "int8"};
    return names[p];
}

/* ---- layout ---- */

ndp_packed ndp_packed_of(ndp_packing p, int64_t n, int64_t rows, int64_t cols, int64_t whole) {
    int64_t elements = rows * cols;
    bool nf4 = p == NDP_PACKING_NF4;
    ndp_packed out = {
        .part = {[NDP_PACKED_CODES] = {NULL, NDP_U8, n, nf4 ? (elements + 1) / 2 : elements, 0},
                 [NDP_PACKED_SCALES] = {NULL, nf4 ? NDP_U8 : NDP_F32, n, nf4 ? ndp_packed_blocks(elements) : rows, 0},
                 [NDP_PACKED_NESTED] = {NULL, NDP_F32, nf4 ? n : 0, nf4 ? ndp_packed_nested(whole) : 0, 0}}};
    for (int i = 0; i < NDP_PACKED_PARTS; i++) {
        int64_t bytes = out.part[i].cols * (int64_t)ndp_dtype_size(out.part[i].dtype);
        out.at[i] = out.bytes;
        out.bytes += (bytes + NDP_PACKED_ALIGN - 1) / NDP_PACKED_ALIGN * NDP_PACKED_ALIGN;
    }
    for (int i = 0; i < NDP_PACKED_PARTS; i++)
        out.part[i].ld = n == 1 ? out.part[i].cols : out.bytes / (int64_t)ndp_dtype_size(out.part[i].dtype);
    return out;
}

/* ---- nf4 ---- */

/* An absmax below is not divided by: fp32 has no reciprocal of it. */
static const float least = 1e-38f;

static float clamped(float x) { return x < -1 ? -1 : x > 1 ? 1 : x; }

/* Element i of a block as a part of its absmax. A block that is not full is divided, others are multiplied. */
static inline float part_of(float x, float absmax, float reciprocal, bool full) {
    return clamped(full ? x * reciprocal : x / absmax);
}

static float reciprocal_of(float absmax) { return 1.0f / (absmax > least ? absmax : least); }

/* In several maxima, which gcc makes a vector of. */
static float largest(const float *x, int64_t n) {
    enum { LANES = 16 };
    float most[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            most[k] = fabsf(x[i + k]) > most[k] ? fabsf(x[i + k]) : most[k];
    for (; i < n; i++)
        most[0] = fabsf(x[i]) > most[0] ? fabsf(x[i]) : most[0];
    for (int k = 1; k < LANES; k++)
        most[0] = most[k] > most[0] ? most[k] : most[0];
    return most[0];
}

/* The absmax of up to `size` elements. */
static float block_absmax(const float *x, int64_t n, int64_t size) {
    float most = largest(x, n);
    return n < size && most < least ? least : most;
}

void ndp_nf4_absmax(const float *x, int64_t n, float *absmax) {
    for (int64_t i = 0; i < n; i += NDP_PACKED_BLOCK)
        absmax[i / NDP_PACKED_BLOCK] =
            block_absmax(x + i, n - i < NDP_PACKED_BLOCK ? n - i : NDP_PACKED_BLOCK, NDP_PACKED_BLOCK);
}

/* The value halfway between two neighbours of a list. */
static inline float halfway(const float *values, int i) { return (values[i] + values[i + 1]) / 2; }

/* Codes of a block: how many of the 15 values halfway are smaller. */
static void nf4_codes(const float *x, int n, float absmax, int codes[NDP_PACKED_BLOCK]) {
    float part[NDP_PACKED_BLOCK] = {0}, reciprocal = reciprocal_of(absmax);
    for (int i = 0; i < n; i++)
        part[i] = part_of(x[i], absmax, reciprocal, n == NDP_PACKED_BLOCK);
    for (int i = 0; i < NDP_PACKED_BLOCK; i++)
        codes[i] = 0;
    for (int k = 0; k < 15; k++) {
        float between = halfway(ndp_nf4_values, k);
        for (int i = 0; i < NDP_PACKED_BLOCK; i++)
            codes[i] += part[i] > between;
    }
}

/* After an odd number of elements there is the code of 0. */
void ndp_nf4_pack(const float *x, int64_t n, const float *absmax, uint8_t *codes) {
    for (int64_t first = 0; first < n; first += NDP_PACKED_BLOCK) {
        int count = n - first < NDP_PACKED_BLOCK ? (int)(n - first) : NDP_PACKED_BLOCK, one[NDP_PACKED_BLOCK];
        nf4_codes(x + first, count, absmax[first / NDP_PACKED_BLOCK], one);
        for (int i = 0; i < count; i += 2)
            codes[(first + i) / 2] = (uint8_t)(one[i] << 4 | one[i + 1]);
    }
}

/* How many of 255 values halfway are smaller. */
static uint8_t dynamic_code(float x) {
    int low = 0, high = 255;
    while (low < high) {
        int middle = (low + high) / 2;
        if (x > halfway(ndp_dynamic_values, middle))
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

void ndp_nf4_nest(const float *absmax, int64_t blocks, uint8_t *codes, float *nested) {
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++)
        sum += (double)absmax[i];
    float offset = (float)(sum / (double)(blocks > 0 ? blocks : 1));
    nested[0] = offset;
    for (int64_t first = 0; first < blocks; first += NDP_PACKED_NEST) {
        float one[NDP_PACKED_NEST];
        int64_t n = blocks - first < NDP_PACKED_NEST ? blocks - first : NDP_PACKED_NEST;
        for (int64_t i = 0; i < n; i++)
            one[i] = absmax[first + i] - offset;
        float most = block_absmax(one, n, NDP_PACKED_NEST), reciprocal = reciprocal_of(most);
        nested[1 + first / NDP_PACKED_NEST] = most;
        for (int64_t i = 0; i < n; i++)
            codes[first + i] = dynamic_code(part_of(one[i], most, reciprocal, n == NDP_PACKED_NEST));
    }
}

void ndp_nf4_unpack_scales(const uint8_t *codes, const float *nested, int64_t first, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = ndp_dynamic_values[codes[i]] * nested[1 + (first + i) / NDP_PACKED_NEST] + nested[0];
}

/* ---- int8 ---- */

float ndp_int8_absmax(const float *x, int64_t n) { return largest(x, n); }

/* A row whose absmax has no reciprocal in fp32 becomes zeros. */
void ndp_int8_pack(const float *x, int64_t n, float absmax, int8_t *codes) {
    float factor = absmax > 0 ? 127.0f / absmax : 0;
    factor = isinf(factor) ? 0 : factor;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (int8_t)rintf(x[i] * factor);
}
