/* The data of a job: how ranks make its token caches, and how rows become batches. */
#include "base/log.h"
#include "base/rng.h"
#include "checkpoint/agree.h"
#include "rank/working.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- token caches ---- */

static void say_tokenizing(void *user, uint64_t done, uint64_t total) {
    double seconds;
    char line[160];
    if (!ndp_working_due(user, &seconds))
        return;
    ndp_job_data_progress(done, total, seconds, line);
    ndp_working_say(user, line);
}

static ndp_status agree_on_status(void *world, ndp_status mine) { return ndp_agree(world, mine); }

static ndp_status gather_bytes(void *world, const void *mine, void *all, int64_t bytes) {
    ndp_work work;
    NDP_TRY(ndp_all_gather_begin(world, mine, all, bytes / 4, NDP_I32, &work));
    return ndp_wait(&work);
}

/* Collective: tokenizes the files, or finds their cache, and opens it. */
static ndp_status prepare_tokens(void *user, const ndp_strings *files, ndp_token_cache *out) {
    ndp_rank *r = user;
    ndp_working w = ndp_working_begin(r);
    int64_t left_out = 0;
    bool of_job = files == &r->job.config->data.files;
    char *path;
    const ndp_team team = {ndp_comm_rank(r->world), ndp_comm_size(r->world), agree_on_status, gather_bytes, r->world};
    ndp_dataset_options o = ndp_job_data_options(&r->data, files);
    o.threads = r->exec.threads;
    o.team = team.size > 1 ? &team : NULL;
    o.progress = say_tokenizing;
    o.progress_user = &w;
    o.left_out = &left_out;
    o.id_files = of_job ? &r->data.id_files : &r->data.held_id_files;
    o.content = of_job ? &r->data.content : &r->data.held_content;
    NDP_TRY(ndp_dataset_prepare(&o, &path));
    if (left_out > 0)
        ndp_info(&r->log, "ignored %lld file%s in the data folders, not named as text, records or ids",
                 (long long)left_out, left_out == 1 ? "" : "s");
    ndp_status st = ndp_token_cache_open(path, out);
    free(path);
    return st;
}

ndp_status ndp_rank_open_data(ndp_rank *r) {
    r->shape = (ndp_batch_shape){r->job.batch.global_batch, r->job.batch.micro_batch, r->job.batch.data_ranks};
    if (r->no_data) {
        r->data.steps = r->job.config->train.steps;
        return NDP_OK;
    }
    NDP_TRY(ndp_agree(r->world, ndp_job_data_open(&r->job, &r->data)));
    NDP_TRY(ndp_rank_check_memory(r)); /* before tokenizing, which may take long */
    return ndp_job_data_rows(&r->data, r->forward_only, prepare_tokens, r);
}

/* ---- batches ---- */

/* The reference of a document of a data set; 0: the loss has none, or it is being computed. */
static double reference_of(const ndp_rank *r, const ndp_dataset *d, int64_t document) {
    bool apart = d == r->data.held && r->data.held_tokens.n_documents > 0;
    const double *all = r->references[apart];
    return all ? all[document] : 0;
}

/* Marks the rows of tokens of document j of a micro-batch, whose answer has labels. Where the loss has the nll of whole
 * chosen documents, those of their prompts get labels too. */
static void mark_document(const ndp_rank *r, const ndp_dataset *d, int64_t j, int64_t row, const int32_t *tokens,
                          int32_t *labels, int32_t *documents) {
    const ndp_preference *p = &r->job.model.preference;
    int64_t n, document = ndp_dataset_document(d, row, &n);
    bool nll = j % 2 == 0 && p->sft_weight > 0, counted = j % 2 != 0;
    r->reference[j] = reference_of(r, d, document);
    for (int64_t t = 0; t < n; t++) {
        bool answer = labels[t] >= 0, prompt = nll && !answer && t + 1 < n && ndp_preference_table[p->kind].whole;
        int marks = answer ? NDP_DOCUMENT_ANSWER : 0;
        if (prompt)
            labels[t] = tokens[t + 1];
        if (nll && labels[t] >= 0)
            marks |= NDP_DOCUMENT_NLL;
        if (answer && !counted)
            marks |= NDP_DOCUMENT_PAIR;
        counted |= answer;
        documents[t] = marks ? (int32_t)(j << NDP_DOCUMENT_MARKS | marks) : -1;
    }
}

/* Writes sample j of a micro-batch: elements j S .. (j + 1) S of its arrays. Document starts count from the beginning
 * of the micro-batch, so the samples of a micro-batch are separated like documents. row < 0: nothing to predict. */
static ndp_status load_row(const ndp_rank *r, const ndp_dataset *d, int64_t j, int64_t row) {
    int64_t length = r->job.config->data.sequence_length, at = j * length;
    int64_t rows = r->job.model.rows;
    int32_t *tokens = r->arrays + at, *labels = tokens + rows, *positions = labels + rows, *starts = positions + rows;
    int32_t *samples = starts + rows, *documents = r->whole.documents ? samples + rows : NULL;
    int64_t tokens_of = row >= 0 ? ndp_dataset_row_tokens(d, row) : 0;
    for (int64_t s = 0; s < length; s++)
        samples[s] = s < tokens_of ? (int32_t)j : -1;
    if (row >= 0)
        NDP_TRY(ndp_dataset_row(d, row, tokens, labels, positions, starts));
    for (int64_t s = 0; documents && s < length; s++)
        documents[s] = -1;
    if (documents && row >= 0)
        mark_document(r, d, j, row, tokens, labels, documents);
    for (int64_t s = 0; s < length; s++) {
        if (row < 0) {
            tokens[s] = positions[s] = 0;
            labels[s] = -1;
            starts[s] = (int32_t)s;
        }
        starts[s] += (int32_t)at;
    }
    return NDP_OK;
}

void ndp_rank_draw_keys(const ndp_rank *r, int64_t j, int64_t sample) {
    int64_t length = r->job.config->data.sequence_length;
    uint64_t seed = (uint64_t)r->job.config->train.seed, stream = ndp_rng_stream("adapter dropout");
    for (int64_t s = 0; r->keys && s < length; s++) {
        uint32_t words[4];
        ndp_rng_words(seed, stream, (uint64_t)(sample * length + s), words);
        memcpy(&r->keys[j * length + s], words, sizeof *r->keys);
    }
}

ndp_status ndp_rank_load_rows(const ndp_rank *r, const ndp_dataset *d, const int64_t *rows) {
    for (int64_t j = 0; j < r->shape.micro; j++)
        NDP_TRY(load_row(r, d, j, rows[j]));
    return ndp_dataset_check(d);
}
