/* The stacks of experts in a set of weights: a tensor of files that holds the members of a stack becomes one for each,
 * and two of MXFP4, or of fp8, become the one that they hold, which folder.c reads. Called by what loads a model
 * (weights/). */
#include "checkpoint/packed_forms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Member `i` of a stack as an entry of its own. */
static ndp_status take_member(ndp_weights *w, const ndp_named_tensor *stack, const ndp_segment *members, int64_t i,
                              ndp_named_tensor *out) {
    char room[NDP_SEGMENT_NAME];
    ndp_tensor_entry *one = ndp_arena_alloc(&w->arena, sizeof *one);
    const char *name = ndp_arena_strdup(&w->arena, ndp_segment_tensor_name(members, i, room));
    NDP_CHECK_MEMORY(one && name, "for the names of %lld tensors", (long long)members->stack);
    *one = *stack->entry;
    one->elements /= members->stack, one->bytes /= (size_t)members->stack;
    one->offset += (size_t)i * one->bytes;
    one->spec.name = name, one->spec.ndim = 2;
    one->spec.shape[0] = members->whole[0], one->spec.shape[1] = members->whole[1];
    *out = (ndp_named_tensor){one, stack->file, NULL};
    return NDP_OK;
}

ndp_status ndp_weights_unstack(ndp_weights *w, const char *tensor, const ndp_segment *members) {
    const ndp_named_tensor *found = ndp_weights_named(w, tensor);
    const int64_t *shape = found ? found->entry->spec.shape : NULL, n = members->stack;
    if (!found || found->entry->spec.ndim != 3 || shape[0] <= 0 || n % shape[0] != 0 ||
        shape[1] != n / shape[0] * members->whole[0] || shape[2] != members->whole[1])
        return NDP_OK;
    int64_t at = found - w->tensors;
    const ndp_named_tensor stack = *found;
    NDP_TRY(ndp_array_reserve(&w->tensors, &w->capacity, w->n + n - 1, sizeof *w->tensors));
    for (int64_t i = 0; i < n; i++)
        NDP_TRY(take_member(w, &stack, members, i, i == 0 ? &w->tensors[at] : &w->tensors[w->n + i - 1]));
    w->n += n - 1;
    return ndp_weights_sort(w);
}

/* Two tensors of bytes that are the numbers and scales of a stack of that shape, transposed. */
static bool are_mxfp4(const ndp_named_tensor *blocks, const ndp_named_tensor *scales, const int64_t shape[3]) {
    const ndp_tensor_spec *b = &blocks->entry->spec, *s = &scales->entry->spec;
    const int64_t in = shape[1] / NDP_MXFP4_BLOCK;
    return b->dtype == NDP_U8 && s->dtype == NDP_U8 && b->ndim == 4 && s->ndim == 3 &&
           shape[1] % NDP_MXFP4_BLOCK == 0 && b->shape[0] == shape[0] && b->shape[1] == shape[2] && b->shape[2] == in &&
           b->shape[3] == NDP_MXFP4_BLOCK / 2 && s->shape[0] == shape[0] && s->shape[1] == shape[2] &&
           s->shape[2] == in;
}

static void read_mxfp4(const ndp_dequantised *d, int64_t first, int64_t n, float *out) {
    const ndp_mxfp4 m = {d->data[0], d->data[1], d->rows, d->cols};
    ndp_mxfp4_read(&m, first, n, out);
}

/* The tensor `name` made of those. */
static ndp_status make_dequantised(ndp_weights *w, const char *name, const int64_t shape[3],
                                   const ndp_named_tensor *blocks, const ndp_named_tensor *scales,
                                   ndp_named_tensor *out) {
    ndp_tensor_entry *one = ndp_arena_alloc(&w->arena, sizeof *one);
    ndp_dequantised *packed = ndp_arena_alloc(&w->arena, sizeof *packed);
    const char *copy = ndp_arena_strdup(&w->arena, name);
    NDP_CHECK_MEMORY(one && packed && copy, "for the names of %lld tensors", (long long)w->n);
    *packed = (ndp_dequantised){"MXFP4", copy, NDP_BF16, read_mxfp4, shape[1], shape[2], .block = NDP_MXFP4_BLOCK};
    ndp_packed_add(packed, blocks);
    ndp_packed_add(packed, scales);
    *one = *blocks->entry;
    one->spec = (ndp_tensor_spec){.name = copy, .dtype = NDP_BF16, .ndim = 3, .shape = {shape[0], shape[1], shape[2]}};
    one->type_name = "MXFP4", one->elements = shape[0] * shape[1] * shape[2];
    *out = (ndp_named_tensor){one, blocks->file, packed};
    return NDP_OK;
}

ndp_status ndp_weights_dequantise(ndp_weights *w, const char *tensor, const int64_t shape[3]) {
    const char *names[] = {ndp_arena_format(&w->arena, "%s_blocks", tensor),
                           ndp_arena_format(&w->arena, "%s_scales", tensor)};
    NDP_CHECK_MEMORY(names[0] && names[1], "for the names of %lld tensors", (long long)w->n);
    const ndp_named_tensor *blocks = ndp_weights_named(w, names[0]), *scales = ndp_weights_named(w, names[1]);
    if (ndp_weights_named(w, tensor) || !blocks || !scales || !are_mxfp4(blocks, scales, shape))
        return NDP_OK;
    ndp_named_tensor made;
    int64_t at = blocks - w->tensors, gone = scales - w->tensors;
    NDP_TRY(make_dequantised(w, tensor, shape, blocks, scales, &made));
    w->tensors[at] = made;
    w->tensors[gone] = w->tensors[--w->n];
    return ndp_weights_sort(w);
}

/* ---- packed matrices ---- */

/* A tensor of a type that cannot be converted is moved as it is, as one of integers as large. */
static ndp_status as_bits(ndp_weights *w, ndp_named_tensor *t) {
    static const ndp_dtype integers[] = {[1] = NDP_U8, [2] = NDP_U16, [4] = NDP_I32, [8] = NDP_I64};
    ndp_tensor_entry *one = ndp_arena_alloc(&w->arena, sizeof *one);
    NDP_CHECK_MEMORY(one, "for the names of %lld tensors", (long long)w->n);
    *one = *t->entry;
    one->spec.dtype = one->elements ? integers[one->bytes / (size_t)one->elements] : NDP_U8;
    one->spec.as = one->type_name;
    t->entry = one;
    return NDP_OK;
}

/* Takes the tensor of codes as the matrix, and marks what else it is made of. */
static ndp_status take_matrix(ndp_weights *w, const ndp_dequantised *found, ndp_named_tensor *t, bool *gone) {
    ndp_tensor_entry *one = ndp_arena_alloc(&w->arena, sizeof *one);
    ndp_dequantised *packed = ndp_arena_alloc(&w->arena, sizeof *packed);
    NDP_CHECK_MEMORY(one && packed, "for the names of %lld tensors", (long long)w->n);
    for (int i = 1; i < found->n; i++)
        gone[ndp_weights_named(w, found->parts[i].entry->spec.name) - w->tensors] = true;
    for (int i = 0; i < NDP_FORM_UNREAD && found->unread[i]; i++)
        gone[ndp_weights_named(w, found->unread[i]) - w->tensors] = true;
    *packed = *found;
    *one = *t->entry;
    one->spec =
        (ndp_tensor_spec){.name = found->name, .dtype = found->dtype, .ndim = 2, .shape = {found->rows, found->cols}};
    one->type_name = found->form, one->elements = found->rows * found->cols;
    *t = (ndp_named_tensor){one, t->file, packed};
    return NDP_OK;
}

/* What becomes of each tensor: `made`, a copy of the list, whose names are looked up meanwhile; and those that are
 * gone. */
static ndp_status widen(ndp_weights *w, ndp_weights_ignore *stays, void *arg, ndp_named_tensor *made, bool *gone) {
    ndp_dequantised found;
    for (int64_t i = 0; i < w->n; i++) {
        const ndp_tensor_spec *spec = &made[i].entry->spec;
        if (stays(spec->name, arg)) {
            if (spec->dtype == NDP_DTYPES)
                NDP_TRY(as_bits(w, &made[i]));
            continue;
        }
        NDP_TRY(ndp_packed_find(w, &w->tensors[i], &found));
        if (found.form)
            NDP_TRY(take_matrix(w, &found, &made[i], gone));
    }
    return NDP_OK;
}

ndp_status ndp_weights_widen(ndp_weights *w, ndp_weights_ignore *stays, void *arg) {
    bool *gone = calloc((size_t)w->n + 1, sizeof *gone);
    ndp_named_tensor *made = malloc((size_t)(w->n + 1) * sizeof *made);
    ndp_status st = NDP_MEMORY(gone && made, "for %lld tensors", (long long)w->n);
    if (st == NDP_OK) {
        memcpy(made, w->tensors, (size_t)w->n * sizeof *made);
        st = widen(w, stays, arg, made, gone);
    }
    int64_t kept = 0;
    for (int64_t i = 0; st == NDP_OK && i < w->n; i++)
        if (!gone[i])
            w->tensors[kept++] = made[i];
    w->n = st == NDP_OK ? kept : w->n;
    free(gone);
    free(made);
    return st == NDP_OK ? ndp_weights_sort(w) : st;
}

ndp_status ndp_dequantised_read(const ndp_weights *w, const ndp_named_tensor *t, int64_t first, int64_t count,
                                void *dest, ndp_dtype type, bool finite) {
    enum { BLOCK = 4096 };
    float block[BLOCK];
    if (first < 0 || count < 0 || first > t->entry->elements - count)
        return NDP_FAIL(NDP_EBUG, "'%s': tensor %s: elements [%lld, +%lld) requested, it has %lld", w->folder,
                        t->entry->spec.name, (long long)first, (long long)count, (long long)t->entry->elements);
    for (int64_t done = 0, n; done < count; done += n) {
        n = count - done < BLOCK ? count - done : BLOCK;
        t->packed->read(t->packed, first + done, n, block);
        for (int64_t i = 0; finite && i < n; i++)
            if (!isfinite(block[i]))
                return NDP_FAIL(NDP_EFORMAT,
                                "%s: tensor %s has a scale that is no number, at element %lld: the file is "
                                "damaged; copy it again",
                                ndp_safetensors_path(t->packed->parts[1].file), t->packed->parts[1].entry->spec.name,
                                (long long)(first + done + i));
        ndp_convert(block, NDP_F32, (char *)dest + (size_t)done * ndp_dtype_size(type), type, n);
    }
    return NDP_OK;
}
