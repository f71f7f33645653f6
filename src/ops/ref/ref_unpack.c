/* unpack. In fp32, as every device: the values are the same bits. */
#include "ops/ref/ref_kernels.h"

#include "tensor/packed.h"

/* What a part has of matrix `e`, as bytes. */
static const void *part_of(const ndp_op_call *c, int part, int64_t e) {
    const ndp_view *v = &c->in[part];
    return (const char *)v->data + (size_t)(e * v->ld) * ndp_dtype_size(v->dtype);
}

/* Of row t, column j of matrix e. */
static float nf4(const ndp_op_call *c, int64_t e, int64_t t, int64_t j) {
    const ndp_op_attr *a = c->attr;
    int64_t element = t * c->out[0].cols + j, block = element / NDP_PACKED_BLOCK;
    int64_t number = NDP_PACKED_NUMBER(a->first, a->row_blocks, a->row_group, c->out[0].cols, t, j);
    const uint8_t *scales = part_of(c, NDP_PACKED_SCALES, e), *codes = part_of(c, NDP_PACKED_CODES, e);
    float absmax;
    ndp_nf4_unpack_scales(scales + block, part_of(c, NDP_PACKED_NESTED, e), number, 1, &absmax);
    return ndp_nf4_values[codes[element / 2] >> (element % 2 ? 0 : 4) & 15] * absmax;
}

static float int8(const ndp_op_call *c, int64_t e, int64_t t, int64_t j) {
    const int8_t *codes = part_of(c, NDP_PACKED_CODES, e);
    const float *absmax = part_of(c, NDP_PACKED_SCALES, e);
    return (float)codes[t * c->out[0].cols + j] * absmax[t] * NDP_INT8_STEP;
}

static double unpack(const ndp_op_call *c, int64_t t, int64_t j) {
    int64_t rows = c->out[0].rows / c->in[NDP_PACKED_CODES].rows;
    return (double)(ndp_present(&c->in[NDP_PACKED_NESTED]) ? nf4 : int8)(c, t / rows, t % rows, j);
}

NDP_REF_EACH(unpack)
