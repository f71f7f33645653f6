/* kv_append. */
#include "ops/ref/ref_kernels.h"

ndp_status ndp_ref_run_kv_append(const ndp_op_call *c) {
    const ndp_view *cache = &c->in[0], *from = &c->in[1];
    size_t size = ndp_dtype_size(from->dtype);
    for (int64_t i = 0; i < from->rows; i++)
        memcpy((char *)cache->data + (size_t)(ndp_int_at(&c->in[2], i) * cache->ld) * size,
               (const char *)from->data + (size_t)(i * from->ld) * size, (size_t)from->cols * size);
    return NDP_OK;
}

const ndp_kernel ndp_ref_kv_append = {.run = ndp_ref_run_kv_append};
