/* Storage types: sizes, names, and conversion, by way of a block of fp32 on the stack where the types differ. Kernels
 * of `cpu`, checkpoints, the loading of weights and verify call it. */
#include "tensor/dtype.h"

static const struct {
    const char *name;
    size_t size;
} types[NDP_DTYPES] = {
    [NDP_F32] = {"fp32", 4},  [NDP_BF16] = {"bf16", 2},  [NDP_F16] = {"fp16", 2}, [NDP_F64] = {"fp64", 8},
    [NDP_I32] = {"int32", 4}, [NDP_U16] = {"uint16", 2}, [NDP_U8] = {"uint8", 1}, [NDP_I64] = {"int64", 8},
};

size_t ndp_dtype_size(ndp_dtype t) { return types[t].size; }
const char *ndp_dtype_name(ndp_dtype t) { return types[t].name; }

static inline float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t to_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

/* Branch-free, so that loops over these are vectorized on any instruction set. */
static inline float half_to_f32(uint16_t h) {
    uint32_t magnitude = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    float f = from_bits(magnitude << 13) * 0x1p112f;           /* changes the exponent's bias from 15 to 127; exact */
    uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0; /* infinity and NaN keep the highest exponent */
    return from_bits(to_bits(f) | special | sign);
}

/* Round to nearest even. */
static inline uint16_t f32_to_half(float f) {
    uint32_t bits = to_bits(f) & 0x7fffffffu, sign = (to_bits(f) >> 16) & 0x8000u;
    uint32_t normal = (bits - (112u << 23) + 0xfffu + ((bits >> 13) & 1u)) >> 13;
    /* Below 2^-14, halves are multiples of 2^-24, the spacing of floats near 0.5: adding 0.5 rounds to them. */
    uint32_t tiny = to_bits(from_bits(bits) + 0.5f) - to_bits(0.5f);
    uint32_t h = bits < (113u << 23) ? tiny : normal;
    h = bits >= 0x477ff000u ? 0x7c00u : h; /* 65520 and above */
    h = bits > 0x7f800000u ? 0x7e00u : h;
    return (uint16_t)(h | sign);
}

enum { BLOCK = 512 }; /* elements on the stack between two types */

static void load(const void *from, ndp_dtype type, int64_t first, int n, float *restrict out) {
    switch (type) {
    case NDP_F32:
        memcpy(out, (const float *)from + first, (size_t)n * 4);
        break;
    case NDP_BF16:
        for (int i = 0; i < n; i++)
            out[i] = ndp_bf16_to_f32(((const uint16_t *)from)[first + i]);
        break;
    case NDP_F16:
        for (int i = 0; i < n; i++)
            out[i] = half_to_f32(((const uint16_t *)from)[first + i]);
        break;
    case NDP_F64:
        for (int i = 0; i < n; i++)
            out[i] = (float)((const double *)from)[first + i];
        break;
    default:
        break;
    }
}

static void store(void *to, ndp_dtype type, int64_t first, int n, const float *restrict x) {
    switch (type) {
    case NDP_F32:
        memcpy((float *)to + first, x, (size_t)n * 4);
        break;
    case NDP_BF16:
        for (int i = 0; i < n; i++)
            ((uint16_t *)to)[first + i] = ndp_f32_to_bf16(x[i]);
        break;
    case NDP_F16:
        for (int i = 0; i < n; i++)
            ((uint16_t *)to)[first + i] = f32_to_half(x[i]);
        break;
    case NDP_F64:
        for (int i = 0; i < n; i++)
            ((double *)to)[first + i] = x[i];
        break;
    default:
        break;
    }
}

void ndp_convert(const void *from, ndp_dtype from_type, void *to, ndp_dtype to_type, int64_t n) {
    if (from_type == to_type) {
        if (from != to)
            memcpy(to, from, (size_t)n * ndp_dtype_size(to_type));
        return;
    }
    float block[BLOCK];
    for (int64_t first = 0; first < n; first += BLOCK) {
        int count = n - first < BLOCK ? (int)(n - first) : BLOCK;
        load(from, from_type, first, count, block);
        store(to, to_type, first, count, block);
    }
}

void ndp_convert_apart(const void *from, ndp_dtype from_type, int64_t from_stride, void *to, ndp_dtype to_type,
                       int64_t to_stride, int64_t n) {
    size_t from_step = ndp_dtype_size(from_type) * (size_t)from_stride;
    size_t to_step = ndp_dtype_size(to_type) * (size_t)to_stride;
    if (from_stride == 1 && to_stride == 1)
        ndp_convert(from, from_type, to, to_type, n);
    else
        for (int64_t i = 0; i < n; i++)
            ndp_convert((const char *)from + (size_t)i * from_step, from_type, (char *)to + (size_t)i * to_step,
                        to_type, 1);
}
