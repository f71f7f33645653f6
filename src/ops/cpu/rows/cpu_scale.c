/* scale, scale_by, cap. */
#include "ops/cpu/rows/range_kernel.h"

NDP_INLINE void scale_in_place(ndp_dtype type, int64_t n, void *x, float by) {
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(x, type, i, ndp_ld(x, type, i) * by);
}

void NDP_RANGE_KERNEL(scale)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(x->dtype, scale_in_place, x->cols, ndp_at(x, t, 0), (float)c->attr->scale);
}

void NDP_RANGE_KERNEL(scale_by)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(x->dtype, scale_in_place, x->cols, ndp_at(x, t, 0), *(const float *)c->in[1].data);
}

NDP_INLINE void cap_row(ndp_dtype type, int64_t n, void *x, float cap) {
    float by = 1.0f / cap;
    SIMD for (int64_t i = 0; i < n; i++) ndp_st(x, type, i, cap * ndp_vtanhf(ndp_ld(x, type, i) * by));
}

void NDP_RANGE_KERNEL(cap)(const ndp_op_call *c, int64_t first, int64_t last) {
    const ndp_view *x = &c->in[0];
    for (int64_t t = first; t < last; t++)
        NDP_BY_TYPE(x->dtype, cap_row, x->cols, ndp_at(x, t, 0), (float)c->attr->cap);
}
