/* unpack. Products and sums are rounded one by one, as on the host. */
#include "ops/cuda/cuda_kernel.cuh"
#include "ops/cuda/cuda_kernels.hpp"

extern "C" {
#include "tensor/packed.h"
#include "tensor/packed_codes.h"
}

/* In memory that is cached: neighbouring threads look up different values. */
static __device__ const float ndp_nf4_table[16] = {NDP_NF4_CODES};
static __device__ const float ndp_dynamic_table[256] = {NDP_DYNAMIC_CODES};

struct nf4_each {
    ndp_view codes_view, scales_view, nested_view;
    int64_t first, row_blocks, row_group, rows; /* of a matrix */
    ndp_view w;
    /* Of row r of matrix e. */
    __device__ float absmax(int64_t e, int64_t r, int64_t c, int64_t block) const {
        const uint8_t *scales = (const uint8_t *)scales_view.data + e * scales_view.ld;
        const float *nested = (const float *)nested_view.data + e * nested_view.ld;
        int64_t number = NDP_PACKED_NUMBER(first, row_blocks, row_group, w.cols, r, c);
        float scale = nested[1 + number / NDP_PACKED_NEST];
        return __fadd_rn(__fmul_rn(ndp_dynamic_table[scales[block]], scale), nested[0]);
    }
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes out = {};
        int64_t e = r / rows, row = r - e * rows, at = row * w.cols + c, block = -1;
        const uint8_t *codes = (const uint8_t *)codes_view.data + e * codes_view.ld;
        float scale = 0;
        for (int k = 0; k < NDP_LANES && c + k < w.cols; k++) {
            int64_t i = at + k;
            if (i / NDP_PACKED_BLOCK != block) {
                block = i / NDP_PACKED_BLOCK;
                scale = absmax(e, row, c + k, block);
            }
            out.x[k] = __fmul_rn(ndp_nf4_table[codes[i / 2] >> (i % 2 ? 0 : 4) & 15], scale);
        }
        ndp_set8(w, r, c, out);
    }
};

struct int8_each {
    ndp_view codes_view, absmax, w;
    int64_t rows; /* of a matrix */
    __device__ void operator()(int64_t r, int64_t c) const {
        ndp_lanes out = {};
        int64_t e = r / rows, row = r - e * rows;
        const int8_t *codes = (const int8_t *)codes_view.data + e * codes_view.ld + row * w.cols;
        float scale = ndp_get(absmax, e, row);
        for (int k = 0; k < NDP_LANES && c + k < w.cols; k++)
            out.x[k] = __fmul_rn(__fmul_rn((float)codes[c + k], scale), NDP_INT8_STEP);
        ndp_set8(w, r, c, out);
    }
};

static ndp_status run_unpack(const ndp_op_call *c) {
    const ndp_view *codes = &c->in[NDP_PACKED_CODES], *scales = &c->in[NDP_PACKED_SCALES],
                   *nested = &c->in[NDP_PACKED_NESTED], *w = &c->out[0];
    int64_t rows = w->rows / codes->rows;
    if (!nested->data)
        return ndp_each8(c, w, int8_each{*codes, *scales, *w, rows});
    return ndp_each8(
        c, w, nf4_each{*codes, *scales, *nested, c->attr->first, c->attr->row_blocks, c->attr->row_group, rows, *w});
}
NDP_CUDA_KERNEL(unpack)
