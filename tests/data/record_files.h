/* Files of records, and what a token cache holds of them, for tests. */
#ifndef NDP_TESTS_DATA_RECORD_FILES_H
#define NDP_TESTS_DATA_RECORD_FILES_H

#include "data/cache/cache.h"

#include "data/cache_words.h"
#include "data/fixture.h"

/* The cache of this path in words. The caller frees. */
static inline char *words_of(const char *path) {
    ndp_token_cache c;
    CHECK_OK(ndp_token_cache_open(path, &c));
    char *words = cache_words(&c);
    ndp_token_cache_close(&c);
    return words;
}

static inline void check_cache(const fixture *f, ndp_dataset_options o, const char *want) {
    char *path, *words;
    o.cache_dir = f->folder;
    o.tokenizer = f->t;
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    words = words_of(path);
    assert_string_equal(words, want);
    free(words);
    free(path);
}

/* The cache of a JSONL file with these contents, in words. The caller frees. */
static inline char *words_of_file(const fixture *f, const char *contents, size_t n, ndp_record_format format) {
    char *file = write_file(f->folder, "a.jsonl", contents, n), *path, *words;
    ndp_dataset_options o = {.files = (const char *const[]){file},
                             .n_files = 1,
                             .format = format,
                             .cache_dir = f->folder,
                             .tokenizer = f->t};
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    words = words_of(path);
    free(path);
    free(file);
    return words;
}

/* One file with these contents gives this cache. */
static inline void check_file(const fixture *f, const char *name, const char *contents, size_t n,
                              ndp_record_format format, const char *want) {
    char *file = write_file(f->folder, name, contents, n);
    check_cache(f, (ndp_dataset_options){.files = (const char *const[]){file}, .n_files = 1, .format = format}, want);
    free(file);
}
#define CHECK_FILE(f, name, text, format, want) check_file(f, name, text, strlen(text), format, want)

static inline void check_refused(const fixture *f, const char *name, const char *contents, size_t n,
                                 ndp_record_format format, ndp_status status, const char *says) {
    char *file = write_file(f->folder, name, contents, n), *path = NULL;
    ndp_dataset_options o = {.files = (const char *const[]){file},
                             .n_files = 1,
                             .format = format,
                             .cache_dir = f->folder,
                             .tokenizer = f->t};
    CHECK_FAILS(ndp_dataset_prepare(&o, &path), status, says);
    assert_null(path);
    free(file);
}

#endif
