/* A safetensors file as bytes: what was accepted must lie within them, and every element of it can be read. */
#include "checkpoint/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const ndp_safetensors *f, size_t size) {
    size_t bytes = 0;
    for (int i = 0; i < ndp_safetensors_count(f); i++) {
        const ndp_tensor_entry *e = ndp_safetensors_at(f, i);
        if (ndp_safetensors_find(f, e->spec.name) != e || e->offset > size || e->bytes > size - e->offset)
            abort();
        bytes += e->bytes;
        float *x = malloc((size_t)e->elements * sizeof *x + 1);
        if (x && ndp_safetensors_read(f, e, 0, e->elements, x, NDP_F32, size % 2) == NDP_OK &&
            e->spec.dtype >= NDP_DTYPES)
            abort();
        free(x);
    }
    if (bytes > size) /* no byte belongs to two tensors */
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_safetensors *f = NULL;
    if (ndp_safetensors_open_memory(data, size, "fuzz", &f) != NDP_OK)
        return 0;
    use(f, size);
    ndp_safetensors_close(f);
    return 0;
}
