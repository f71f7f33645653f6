/* A safetensors file with packed matrices (checkpoint/packed_forms.h): what is recognised as one can be read, any part
 * of it, and has the scales that it is packed with. */
#include "checkpoint/packed_forms.h"
#include "tensor/packed.h"

#include <stdlib.h>

enum { MOST = 1 << 16 /* elements that are read of a matrix */ };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool none(const char *name, void *arg) {
    (void)name, (void)arg;
    return false;
}

static void use(const ndp_weights *w, const ndp_tensor_entry *e) {
    int64_t n = e->elements < MOST ? e->elements : MOST, elements = e->elements;
    float *x = malloc((size_t)n * sizeof *x + 1);
    if (x && ndp_weights_read(w, e->spec.name, e->elements - n, n, x, NDP_F32, false) != NDP_OK &&
        e->spec.dtype == NDP_BF16)
        abort();
    free(x);
    uint8_t *codes = malloc((size_t)ndp_packed_blocks(elements) + 1);
    float *nested = malloc((size_t)ndp_packed_nested(elements) * sizeof *nested);
    if (codes && nested && ndp_weights_nf4(w, e->spec.name, elements, codes, nested) && e->spec.ndim != 2)
        abort();
    free(codes);
    free(nested);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_safetensors *f = NULL;
    ndp_weights w = {.folder = "fuzz"};
    if (ndp_safetensors_open_memory(data, size, "fuzz", &f) != NDP_OK)
        return 0;
    w.n = ndp_safetensors_count(f);
    w.tensors = calloc((size_t)w.n + 1, sizeof *w.tensors);
    for (int64_t i = 0; i < w.n; i++)
        w.tensors[i] = (ndp_named_tensor){ndp_safetensors_at(f, (int)i), f, NULL};
    if (ndp_weights_sort(&w) == NDP_OK && ndp_weights_widen(&w, none, NULL) == NDP_OK)
        for (int64_t i = 0; i < w.n; i++)
            use(&w, w.tensors[i].entry);
    free(w.tensors);
    ndp_arena_release(&w.arena);
    ndp_safetensors_close(f);
    return 0;
}
