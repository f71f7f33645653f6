/* unpack. The values of codes are looked up a byte at a time, then multiplied and rounded a block at a time. */
#include "ops/cpu/rows/range_kernel.h"

#include "tensor/packed.h"

enum { SCALES = 64 /* that are unpacked at a time */ };

/* What the two codes of each byte stand for. */
typedef struct byte_values {
    float of[256][2];
} byte_values;

static void fill(byte_values *v) {
    for (int byte = 0; byte < 256; byte++)
        v->of[byte][0] = ndp_nf4_values[byte >> 4], v->of[byte][1] = ndp_nf4_values[byte & 15];
}

NDP_INLINE void scale_values(ndp_dtype type, int n, const float *values, float absmax, void *to) {
    SIMD for (int i = 0; i < n; i++) ndp_st(to, type, i, values[i] * absmax);
}

/* Elements first .. end - 1, of one block. */
static void nf4_block(const byte_values *v, const uint8_t *codes, int64_t first, int64_t end, float absmax, void *to,
                      ndp_dtype type) {
    float values[NDP_PACKED_BLOCK + 2];
    int odd = (int)(first % 2), n = (int)(end - first);
    for (int i = 0; i < odd + n; i += 2)
        memcpy(values + i, v->of[codes[first / 2 + i / 2]], sizeof v->of[0]);
    NDP_BY_TYPE(type, scale_values, n, values + odd, absmax, to);
}

static const void *bytes_at(const ndp_view *v, int64_t e, int64_t at) {
    return (const uint8_t *)v->data + e * v->ld + at;
}

/* Row t of matrix e. */
static void nf4_row(const byte_values *v, const ndp_op_call *c, int64_t e, int64_t t, void *to) {
    const ndp_view *w = &c->out[0];
    const uint8_t *codes = bytes_at(&c->in[NDP_PACKED_CODES], e, 0),
                  *scales = bytes_at(&c->in[NDP_PACKED_SCALES], e, 0);
    const float *nested = ndp_at(&c->in[NDP_PACKED_NESTED], e, 0);
    int64_t first = t * w->cols, end = first + w->cols, block = first / NDP_PACKED_BLOCK;
    int64_t number = NDP_PACKED_NUMBER(c->attr->first, c->attr->row_blocks, c->attr->row_group, w->cols, t, 0);
    for (int64_t done = block, last = ndp_packed_blocks(end); done < last; done += SCALES) {
        float absmax[SCALES];
        int64_t n = last - done < SCALES ? last - done : SCALES;
        ndp_nf4_unpack_scales(scales + done, nested, number + done - block, n, absmax);
        for (int64_t b = done; b < done + n; b++) {
            int64_t low = b * NDP_PACKED_BLOCK, high = low + NDP_PACKED_BLOCK;
            low = low > first ? low : first, high = high < end ? high : end;
            nf4_block(v, codes, low, high, absmax[b - done],
                      (char *)to + (size_t)(low - first) * ndp_dtype_size(w->dtype), w->dtype);
        }
    }
}

NDP_INLINE void int8_row(ndp_dtype type, int64_t n, const int8_t *codes, float absmax, void *to) {
    SIMD for (int64_t j = 0; j < n; j++) ndp_st(to, type, j, (float)codes[j] * absmax * NDP_INT8_STEP);
}

void NDP_RANGE_KERNEL(unpack)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *w = &c->out[0], *absmax = &c->in[NDP_PACKED_SCALES], *codes = &c->in[NDP_PACKED_CODES];
    int64_t rows = w->rows / codes->rows;
    byte_values v;
    if (c->in[NDP_PACKED_NESTED].data)
        fill(&v);
    for (int64_t t = first; t < last; t++)
        if (c->in[NDP_PACKED_NESTED].data)
            nf4_row(&v, c, t / rows, t % rows, ndp_at(w, t, 0));
        else
            NDP_BY_TYPE(w->dtype, int8_row, w->cols, bytes_at(codes, t / rows, t % rows * w->cols),
                        *(const float *)ndp_at(absmax, t / rows, t % rows), ndp_at(w, t, 0));
}
