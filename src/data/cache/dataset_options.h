/* What a data set is made from: its files, how to read their records, the tokenizer, and the ranks that prepare it. */
#ifndef NDP_DATA_CACHE_DATASET_OPTIONS_H
#define NDP_DATA_CACHE_DATASET_OPTIONS_H

#include "data/corpus/bin.h"
#include "data/corpus/record.h"

/* Ranks that prepare a data set together. */
typedef struct ndp_team {
    int rank, size;
    /* Collective: NDP_OK if `mine` is NDP_OK on all ranks, otherwise the same failure on all. */
    ndp_status (*agree)(void *user, ndp_status mine);
    /* Collective: all[size x bytes] = every rank's `mine`. `bytes` is a multiple of 4. */
    ndp_status (*gather)(void *user, const void *mine, void *all, int64_t bytes);
    void *user;
} ndp_team;

typedef struct ndp_dataset_options {
    const char *const *files; /* each a file, a folder or a pattern (files.h): a source */
    int n_files;
    ndp_record_format format; /* for JSON records */
    /* Of each source, where it has its own; NULL: `format`, and no splits. A split may be NULL. */
    const ndp_record_format *formats; /* [n_files] */
    const char *const *splits;        /* [n_files] "train[:10%]" (files.h) */
    int bin_id_bytes;                 /* for .bin files without a header: 2 or 4; 0: 2 */
    int64_t vocab;                    /* the model's: ids must be below it; 0: the tokenizer's */
    const char *cache_dir;            /* NULL: $XDG_CACHE_HOME/ndparallel, else ~/.cache/ndparallel */
    const ndp_tokenizer *tokenizer;
    const int32_t *end_token; /* appended to texts (encode.h); NULL: none */
    int64_t pair_length;      /* a document of a pair must have some of its answer in its first tokens; 0: all of it */
    int threads;              /* of this rank; 0: all cores of this process */
    const ndp_team *team;     /* NULL: this rank alone */
    /* Progress of all ranks while tokenizing, called on the first rank of each crew. May be NULL. */
    void (*progress)(void *user, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_user;
    ndp_hash128 *content; /* output on the rank that lists the files: hash of their contents and order; may be NULL */
    int64_t *id_files;    /* output on the rank that lists the files: how many are files of ids; may be NULL */
    int64_t *left_out;    /* output on the rank that lists the files: files in folders that are of no known kind; may be
                           * NULL */
} ndp_dataset_options;

static inline const ndp_record_format *ndp_dataset_format(const ndp_dataset_options *o, int source) {
    return o->formats ? &o->formats[source] : &o->format;
}
/* Threads of this rank. */
int ndp_dataset_threads(const ndp_dataset_options *o);
/* Bytes of an id in the cache: 2 where every id that may occur fits, else 4. */
int ndp_dataset_id_bytes(const ndp_dataset_options *o);
/* How .bin files are cut into documents. If the tokenizer has neither a begin nor an end token, GPT-2's <|endoftext|>
 * separates them. */
ndp_bin_rule ndp_dataset_bin_rule(const ndp_dataset_options *o);

#endif
