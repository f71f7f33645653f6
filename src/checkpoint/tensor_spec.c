/* Shapes of tensors in files. */
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <string.h>

int64_t ndp_tensor_elements(const ndp_tensor_spec *spec) {
    int64_t n = 1;
    bool empty = false;
    for (int d = 0; d < spec->ndim; d++) {
        if (spec->shape[d] < 0)
            return -1;
        empty |= spec->shape[d] == 0;
    }
    for (int d = 0; d < spec->ndim && !empty; d++)
        if (__builtin_mul_overflow(n, spec->shape[d], &n))
            return -1;
    return empty ? 0 : n;
}

bool ndp_tensor_same_shape(const ndp_tensor_spec *a, const ndp_tensor_spec *b) {
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

char *ndp_shape_text(const ndp_tensor_spec *spec, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "[");
    for (int d = 0; d < spec->ndim && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", d ? ", " : "", (long long)spec->shape[d]);
    if (used < size)
        snprintf(out + used, size - used, "]");
    return out;
}
