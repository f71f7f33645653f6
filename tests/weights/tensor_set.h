/* Tensors of a file in memory, to be changed and written again. */
#ifndef TESTS_WEIGHTS_TENSOR_SET_H
#define TESTS_WEIGHTS_TENSOR_SET_H

#include "check.h"
#include "checkpoint/folder.h"

#include <stdlib.h>

typedef struct set_tensor {
    char name[320];
    ndp_tensor_spec spec; /* its name is set when it is written */
    double *x;
} set_tensor;

typedef struct tensor_set {
    set_tensor items[160];
    int n;
} tensor_set;

static inline set_tensor *set_find(tensor_set *s, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->items[i].name, name) == 0)
            return &s->items[i];
    fail_msg("there is no tensor %s", name);
    return NULL;
}

/* Appends a tensor of zeros. */
static inline set_tensor *set_add(tensor_set *s, const char *name, const ndp_tensor_spec *spec) {
    assert_true(s->n < NDP_COUNT(s->items));
    set_tensor *t = &s->items[s->n++];
    snprintf(t->name, sizeof t->name, "%s", name);
    t->spec = *spec;
    t->x = calloc((size_t)ndp_tensor_elements(spec) + 1, sizeof *t->x);
    assert_non_null(t->x);
    return t;
}

/* Gives a tensor another shape; its elements are 0. */
static inline void set_shape(set_tensor *t, int ndim, int64_t rows, int64_t cols) {
    free(t->x);
    t->spec.ndim = ndim;
    t->spec.shape[0] = rows, t->spec.shape[1] = cols;
    t->x = calloc((size_t)ndp_tensor_elements(&t->spec) + 1, sizeof *t->x);
    assert_non_null(t->x);
}

static inline void set_remove(tensor_set *s, const char *name) {
    set_tensor *t = set_find(s, name);
    free(t->x);
    *t = s->items[--s->n];
}

/* The files STEM of a folder; the caller releases the set. */
static inline tensor_set *set_read(const char *folder, const char *stem) {
    ndp_weights *w;
    tensor_set *s = calloc(1, sizeof *s);
    assert_non_null(s);
    CHECK_OK(ndp_weights_open_stem(folder, stem, &w));
    for (int i = 0; i < ndp_weights_count(w); i++) {
        const ndp_tensor_entry *e = ndp_weights_at(w, i);
        if (e->spec.dtype == NDP_DTYPES)
            continue; /* a mask: no parameter */
        set_tensor *t = set_add(s, e->spec.name, &e->spec);
        CHECK_OK(ndp_weights_read(w, e->spec.name, 0, e->elements, t->x, NDP_F64, true));
    }
    ndp_weights_close(w);
    return s;
}

/* FOLDER/STEM.safetensors, replaced. Integers have any values. */
static inline void set_write(tensor_set *s, const char *folder, const char *stem) {
    ndp_tensor_spec specs[160];
    ndp_safetensors_writer *w;
    char path[1200];
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, stem);
    unlink(path);
    for (int i = 0; i < s->n; i++) {
        specs[i] = s->items[i].spec;
        specs[i].name = s->items[i].name;
    }
    CHECK_OK(ndp_safetensors_create(path, specs, s->n, &w));
    for (int i = 0; i < s->n; i++)
        CHECK_OK(ndp_safetensors_write(w, i, 0, ndp_tensor_elements(&specs[i]), s->items[i].x,
                                       specs[i].dtype == NDP_I32 ? NDP_I32 : NDP_F64));
    ndp_safetensors_writer_destroy(w);
}

/* All tensors are stored as `type` from now on. */
static inline void set_type(tensor_set *s, ndp_dtype type) {
    for (int i = 0; i < s->n; i++)
        s->items[i].spec.dtype = type;
}

static inline void set_release(tensor_set *s) {
    for (int i = 0; i < s->n; i++)
        free(s->items[i].x);
    free(s);
}

#endif
