/* unpack. In fp32, as every device: the values are the same bits. */
#include "ops/ref/ref_kernels.h"

#include "tensor/packed.h"

static const uint8_t *codes_of(const ndp_op_call *c) { return c->in[NDP_PACKED_CODES].data; }

static float nf4(const ndp_op_call *c, int64_t t, int64_t j) {
    const ndp_op_attr *a = c->attr;
    int64_t element = t * c->out[0].cols + j, block = element / NDP_PACKED_BLOCK;
    int64_t number = NDP_PACKED_NUMBER(a->first, a->row_blocks, a->row_group, c->out[0].cols, t, j);
    const uint8_t *scales = c->in[NDP_PACKED_SCALES].data;
    float absmax;
    ndp_nf4_unpack_scales(scales + block, c->in[NDP_PACKED_NESTED].data, number, 1, &absmax);
    return ndp_nf4_values[codes_of(c)[element / 2] >> (element % 2 ? 0 : 4) & 15] * absmax;
}

static float int8(const ndp_op_call *c, int64_t t, int64_t j) {
    const ndp_view *absmax = &c->in[NDP_PACKED_SCALES];
    float code = (float)(int8_t)codes_of(c)[t * c->out[0].cols + j];
    return code * ((const float *)absmax->data)[t * absmax->ld] * NDP_INT8_STEP;
}

static double unpack(const ndp_op_call *c, int64_t t, int64_t j) {
    return (double)(ndp_present(&c->in[NDP_PACKED_NESTED]) ? nf4 : int8)(c, t, j);
}

NDP_REF_EACH(unpack)
