/* A matrix in memory. Every tensor that an op sees is one: [T rows, X columns] with a row stride, so that some columns
 * of a fused projection are also a view; vectors have one row or one column. */
#ifndef NDP_TENSOR_VIEW_H
#define NDP_TENSOR_VIEW_H

#include "tensor/dtype.h"

typedef struct ndp_view {
    void *data; /* NULL for an absent optional operand */
    ndp_dtype dtype;
    int64_t rows, cols, ld; /* element (r, c) is data[r * ld + c] */
} ndp_view;

/* One element as fp64, for any storage type; for `ref` kernels and tests. */
static inline double ndp_view_get(const ndp_view *v, int64_t r, int64_t c) {
    int64_t i = r * v->ld + c;
    switch (v->dtype) {
    case NDP_F32:
        return (double)((const float *)v->data)[i];
    case NDP_F64:
        return ((const double *)v->data)[i];
    case NDP_BF16:
        return (double)ndp_bf16_to_f32(((const uint16_t *)v->data)[i]);
    case NDP_I32:
        return (double)((const int32_t *)v->data)[i];
    case NDP_I64:
        return (double)((const int64_t *)v->data)[i];
    case NDP_U8:
        return (double)((const uint8_t *)v->data)[i];
    default:
        return 0.0;
    }
}

static inline void ndp_view_set(const ndp_view *v, int64_t r, int64_t c, double x) {
    int64_t i = r * v->ld + c;
    switch (v->dtype) {
    case NDP_F32:
        ((float *)v->data)[i] = (float)x;
        break;
    case NDP_F64:
        ((double *)v->data)[i] = x;
        break;
    case NDP_BF16:
        ((uint16_t *)v->data)[i] = ndp_f32_to_bf16((float)x);
        break;
    case NDP_I32:
        ((int32_t *)v->data)[i] = (int32_t)x;
        break;
    case NDP_I64:
        ((int64_t *)v->data)[i] = (int64_t)x;
        break;
    case NDP_U8:
        ((uint8_t *)v->data)[i] = (uint8_t)x;
        break;
    default:
        break;
    }
}

/* Zeros, of any storage type; nothing if the view is absent. */
static inline void ndp_view_clear(const ndp_view *v) {
    size_t size = ndp_dtype_size(v->dtype);
    for (int64_t r = 0; v->data && r < v->rows; r++)
        memset((char *)v->data + (size_t)(r * v->ld) * size, 0, (size_t)v->cols * size);
}

#endif
