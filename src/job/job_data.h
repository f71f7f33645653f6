/* The data of a job: its tokenizer, the rows for training, the held-out rows. */
#ifndef NDP_JOB_JOB_DATA_H
#define NDP_JOB_JOB_DATA_H

#include "data/cache/cache.h"
#include "text/chat/chat.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "job/job.h"

/* How the entries of data.files are read that have options of their own. */
typedef struct ndp_job_entries {
    int n; /* 0: none has */
    ndp_config *configs;
    ndp_record_format *formats;
    char **splits; /* NULL: none */
} ndp_job_entries;

typedef struct ndp_job_data {
    const ndp_job *job; /* borrowed */
    ndp_tokenizer *tokenizer;
    char *tokenizer_source; /* "bytes", a folder or a file; "" for ids alone; owned */
    ndp_chat chat;
    int32_t end_token;                     /* appended to texts, or ends documents of ids; -1: none */
    ndp_job_entries entries, held_entries; /* of data.files; of data.validation_files */
    ndp_token_cache tokens, held_tokens;   /* of data.files; of data.validation_files */
    ndp_hash128 content, held_content;     /* hashes of these files (cache.h); known on rank 0 */
    int64_t id_files, held_id_files;       /* files of ids among them; known on rank 0 */
    ndp_dataset *dataset, *held;           /* training rows, held-out rows; NULL: not opened, or none */
    ndp_sampler sampler;
    ndp_mix_source *sources; /* of the sampler, owned; NULL without data.mix */
    int steps;               /* updates of the run; 0: not known, since only the head of the data was read */
} ndp_job_data;

/* Opens the tokenizer and its chat template, and finds the end token of texts (data.end_token). Without data.tokenizer
 * it is the model folder's. Without that there are only ids: those of `bytes` if the model's vocabulary has its size,
 * else of a vocabulary without texts (ndp_tokenizer_of_ids), whose begin and end tokens are config.json's or
 * data.end_token's. NDP_EINVAL: the tokenizer does not have that token, or its id is beyond the model's vocabulary. */
ndp_status ndp_job_data_open(const ndp_job *j, ndp_job_data *out);
void ndp_job_data_close(ndp_job_data *d);

/* Parts of ndp_job_data_open (job_tokenizer.c), without the cleaning up after a failure: the tokenizer; the end token.
 */
ndp_status ndp_job_tokenizer_open(ndp_job_data *d);
ndp_status ndp_job_choose_end_token(ndp_job_data *d);
/* There is no tokenizer: the data are files of ids. */
bool ndp_job_data_ids_only(const ndp_job_data *d);
/* The text of a token, such as "<eos>"; empty for -1 and without a tokenizer. Borrowed from the tokenizer. */
ndp_span ndp_job_data_token_text(const ndp_job_data *d, int32_t id);

/* Makes d->entries and d->held_entries (job_entries.c). `d` stays where it is. */
ndp_status ndp_job_entries_open(ndp_job_data *d);
void ndp_job_entries_close(ndp_job_entries *e);
/* How records are read with this configuration. */
ndp_record_format ndp_job_format(const ndp_job_data *d, const ndp_config *c);

/* The options for tokenizing the files; the caller sets threads and team. Borrows `d` and `files`. */
ndp_dataset_options ndp_job_data_options(const ndp_job_data *d, const ndp_strings *files);

/* Makes the held-out rows and, unless `held_only`, the training rows. `tokens_of` returns the tokens of files, which
 * `d` then owns. NDP_EINVAL: there is nothing to predict, or with `held_only` nothing is held out. If only the head of
 * the data was read (cache.h), there may be no rows. */
ndp_status ndp_job_data_rows(ndp_job_data *d, bool held_only,
                             ndp_status (*tokens_of)(void *user, const ndp_strings *files, ndp_token_cache *out),
                             void *user);

/* Whether its records, or those that are held out, are rendered by a chat template. */
bool ndp_job_data_has_conversations(const ndp_job_data *d);
/* "tokenizing: 3.0 of 20.0 MB, 1.5 MB/s, 11 s left" after so many seconds. */
void ndp_job_data_progress(uint64_t done, uint64_t total, double seconds, char line[160]);

/* Appends lines about the records of each source of a cache: those that were skipped, with the first of each reason,
 * and known fields that are not read. `names`: of the sources. Part of ndp_job_data_describe. */
void ndp_job_data_describe_records(const ndp_token_cache *c, const ndp_strings *names, ndp_str *out);
/* Appends a line for each set of rows and each source of a mix, and notes if texts get no end token or if only the head
 * of the data was read. */
void ndp_job_data_describe(const ndp_job_data *d, ndp_str *out);

#endif
