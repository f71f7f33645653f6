/* The files of a data set, as stored on disk. */
#ifndef NDP_DATA_CACHE_CORPUS_H
#define NDP_DATA_CACHE_CORPUS_H

#include "data/cache/dataset_options.h"
#include "data/corpus/files.h"

/* The part of a file that a slice takes: of its records, and of its bytes behind a byte order mark if it is neither
 * compressed nor a list. */
typedef struct ndp_file_window {
    int64_t first, end; /* records [first, end) */
    uint64_t begin, stop;
} ndp_file_window;

/* Source i is files [source_ends[i - 1], source_ends[i]). */
typedef struct ndp_corpus {
    ndp_file_list files;
    ndp_mapped *mapped; /* [files.paths.n] */
    int64_t *source_ends;
    ndp_slice *slices;        /* [n_sources] */
    ndp_file_window *windows; /* [files.paths.n]; NULL: all files are read whole (windows.h) */
    int n_sources;
    int64_t id_files; /* files of ids among them */
    uint64_t bytes;
    uint64_t stamp; /* hash of the files' sizes and modification times when opened */
} ndp_corpus;

/* Lists and maps the files, and sets o->left_out and o->id_files. NDP_EINVAL names a file with texts if o->tokenizer
 * has none. */
ndp_status ndp_corpus_open(const ndp_dataset_options *o, ndp_corpus *out);
void ndp_corpus_close(ndp_corpus *c);
/* Hashes what the ids depend on, and nothing else (not the files' locations). Reads all files. `content` covers only
 * the files: their bytes, kinds and order, without tokenizer and format. */
ndp_status ndp_corpus_key(const ndp_corpus *c, const ndp_dataset_options *o, ndp_hash128 *key, ndp_hash128 *content);
/* The error NDP_EINVAL: no file contains a document, or all records were skipped. */
ndp_status ndp_corpus_fail_empty(const ndp_corpus *c, const ndp_tally *tally);
/* To be called after reading files [first, end), with the status `st` of that: returns NDP_EIO if one of them lost
 * bytes meanwhile (it names the file), otherwise `st`. */
ndp_status ndp_corpus_check_read(const ndp_corpus *c, int64_t first, int64_t end, ndp_status st);
/* NDP_EFORMAT if a file has changed since it was opened. */
ndp_status ndp_corpus_check_unchanged(const ndp_corpus *c);

/* A hash of the hashes of blocks, computed by several threads. */
ndp_status ndp_hash_blocks(const void *data, size_t size, int threads, ndp_hash128 *out);

#endif
