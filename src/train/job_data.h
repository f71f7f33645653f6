/* Inside the train room: the data of a job: its tokenizer, the rows that it trains on, the rows that it holds out. */
#ifndef NDP_TRAIN_JOB_DATA_H
#define NDP_TRAIN_JOB_DATA_H

#include "data/cache/cache.h"
#include "data/corpus/chat.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "train/job.h"

typedef struct ndp_job_data {
    const ndp_job *job; /* borrowed */
    ndp_tokenizer *tokenizer;
    char *tokenizer_source; /* "bytes", a folder or a file */
    ndp_chat chat;
    int32_t end_token;                   /* of texts; -1: none */
    ndp_token_cache tokens, held_tokens; /* of data.files; of data.validation_files */
    ndp_hash128 content, held_content;   /* hashes of these files (cache.h); known on rank 0 */
    ndp_dataset *dataset, *held;         /* NULL: not opened; nothing is held out */
    ndp_sampler sampler;
    ndp_mix_source *sources; /* of the sampler; NULL without data.mix */
} ndp_job_data;

/* Opens the tokenizer, its chat template and the end token of texts (data.end_token). NDP_EINVAL: the token is not in
 * the tokenizer, or beyond the model's vocabulary. */
ndp_status ndp_job_data_open(const ndp_job *j, ndp_job_data *out);
void ndp_job_data_close(ndp_job_data *d);

/* The text of the end token, "<eos>"; empty: there is none. Borrowed from the tokenizer. */
ndp_span ndp_job_data_end_text(const ndp_job_data *d);

/* How the files become tokens: all but the number of threads and the team. Borrows `d` and `files`. */
ndp_dataset_options ndp_job_data_options(const ndp_job_data *d, const ndp_strings *files);

/* Makes the rows: those that are held out, and unless `held_only` those that are trained on. `tokens_of` gives the
 * tokens of files; `d` owns them from then on. NDP_EINVAL: nothing can be predicted, or nothing is held out and that is
 * all that is wanted. Of the head of a data set (cache.h) rows may be missing. */
ndp_status ndp_job_data_rows(ndp_job_data *d, bool held_only,
                             ndp_status (*tokens_of)(void *user, const ndp_strings *files, ndp_token_cache *out),
                             void *user);

/* Appends a line for each set of rows and for each source of a mix, and notes: texts that get no end token, data of
 * which only the head was read. */
void ndp_job_data_describe(const ndp_job_data *d, ndp_str *out);

#endif
