/* Dumps of small models of all families, what may be wrong with them, and what is said about them. */
#ifndef TESTS_VERIFY_DUMPS_H
#define TESTS_VERIFY_DUMPS_H

#include "verify/dump.h"
#include "verify/families.h"
#include "verify/verify.h"

#include <fcntl.h>

enum { DUMP_ROWS = 8, DUMP_LENGTH = 32 };

/* A family's job, for rows that 8 ranks of the sequence can cut, most with several documents and some with padding. The
 * caller destroys it. */
static inline ndp_config *dump_job(const family_model *m, const way *w) {
    char *path, *text = write_corpus(the_corpus->folder, "short.jsonl", 200, 25, 0);
    subject s = family_subject(the_corpus, m, "fp32", &path);
    s.length = DUMP_LENGTH, s.data = text;
    ndp_config *c = configure(&s, w);
    set(c, "train.transport=auto");
    free(path);
    free(text);
    return c;
}

/* FOLDER/NAME, freed by the caller; what was there is gone. */
static inline char *dump_folder(const char *name) {
    char *folder = ndp_format("%s/%s", the_corpus->folder, name);
    CHECK_OK(ndp_folder_remove(folder));
    return folder;
}

static inline void make_dump(const ndp_config *c, const char *folder, ndp_verify_hook *hook, void *user) {
    CHECK_OK(ndp_verify_dump_altered(c, &(ndp_dump_opts){.folder = folder}, hook, user));
}

static inline void copy_dump(const char *from, const char *to) {
    static const char *const files[] = {"batch", "gradients", "weights"};
    CHECK_OK(ndp_folder_create(to));
    for (int i = 0; i < NDP_COUNT(files); i++) {
        char *source = ndp_format("%s/%s.safetensors", from, files[i]);
        char *target = ndp_format("%s/%s.safetensors", to, files[i]);
        char *data;
        size_t size;
        CHECK_OK(ndp_file_read(source, &data, &size));
        CHECK_OK(ndp_file_write_atomic(target, data, size));
        free(data), free(source), free(target);
    }
}

/* Writes elements [first, first + n) of a tensor in place, from doubles or, for integers, int64_t. */
static inline void patch(const char *folder, const char *file, const char *tensor, int64_t first, int64_t n,
                         const void *values) {
    char *path = ndp_format("%s/%s.safetensors", folder, file);
    ndp_safetensors *f;
    CHECK_OK(ndp_safetensors_open(path, &f));
    const ndp_tensor_entry *t = ndp_safetensors_find(f, tensor);
    assert_non_null(t);
    assert_true(first + n <= t->elements);
    size_t size = ndp_dtype_size(t->spec.dtype), at = t->offset + (size_t)first * size;
    void *stored = malloc((size_t)n * size);
    if (t->spec.dtype == NDP_I64)
        memcpy(stored, values, (size_t)n * size);
    else
        ndp_convert(values, NDP_F64, stored, t->spec.dtype, n);
    ndp_safetensors_close(f);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, stored, (size_t)n * size, (off_t)at) == (ssize_t)((size_t)n * size));
    close(fd);
    free(stored);
    free(path);
}

static inline ndp_against judge_dump(const ndp_config *c, const char *folder) {
    ndp_against a;
    CHECK_OK(ndp_verify_against(c, &(ndp_against_opts){.folder = folder}, &a));
    return a;
}

/* All lines about causes; freed by the caller. */
static inline char *causes_of(const ndp_against *a) {
    ndp_str s = {0};
    ndp_str_add(&s, "");
    for (int i = 0; i < a->n_causes; i++)
        ndp_str_addf(&s, "%s\n", a->causes[i]);
    return ndp_str_detach(&s);
}

#endif
