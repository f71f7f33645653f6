/* The data of a run: the tokenizer, what is trained on, what is held out. */
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>

static const char *tokenizer_of(const ndp_config *c) {
    return c->data.tokenizer ? c->data.tokenizer : c->model.path ? c->model.path : "bytes";
}

/* ---- token caches ---- */

typedef struct watch {
    const ndp_trainer *t;
    double begin, last;
} watch;

/* Now and then, once it takes longer; where nobody draws it, a line every few seconds. */
static void say_tokenizing(void *user, uint64_t done, uint64_t total) {
    watch *w = user;
    const ndp_train_opts *o = w->t->opts;
    bool drawn = o && o->working;
    double now = ndp_now();
    char line[160];
    if (!ndp_is_first(w->t->world) || now - w->begin < 1 || now - w->last < (drawn ? 0.1 : 5))
        return;
    w->last = now;
    double rate = (double)done / (now - w->begin);
    snprintf(line, sizeof line, "tokenizing: %.1f of %.1f MB, %.1f MB/s, %.0f s left", (double)done * 1e-6,
             (double)total * 1e-6, rate * 1e-6, (double)(total - done) / rate);
    if (drawn)
        o->working(o->user, line);
    else
        ndp_info(&w->t->log, "%s", line);
}

static ndp_record_format format_of(const ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    static const ndp_record_kind kinds[] = {[NDP_FORMAT_AUTO] = NDP_RECORD_AUTO,
                                            [NDP_FORMAT_TEXT] = NDP_RECORD_TEXT,
                                            [NDP_FORMAT_MESSAGES] = NDP_RECORD_MESSAGES,
                                            [NDP_FORMAT_INSTRUCTION] = NDP_RECORD_INSTRUCTION};
    return (ndp_record_format){.kind = kinds[c->data.format],
                               .text = c->data.text_field,
                               .messages = c->data.messages_field,
                               .prompt = c->data.prompt_field,
                               .input = c->data.input_field,
                               .response = c->data.response_field,
                               .chat = &t->chat,
                               .learn_all = c->data.train_on == NDP_TRAIN_ON_ALL};
}

static ndp_status agree(void *world, ndp_status mine) { return ndp_agree(world, mine); }

static ndp_status gather(void *world, const void *mine, void *all, int64_t bytes) {
    ndp_work work;
    NDP_TRY(ndp_all_gather_begin(world, mine, all, bytes / 4, NDP_I32, &work));
    return ndp_wait(&work);
}

/* All ranks tokenize, or find the cache. */
static ndp_status prepare(ndp_trainer *t, const ndp_strings *files, char **path) {
    const ndp_config *c = t->job.config;
    watch w = {t, ndp_now(), ndp_now()};
    int64_t left_out = 0;
    const ndp_team team = {ndp_comm_rank(t->world), ndp_comm_size(t->world), agree, gather, t->world};
    const ndp_dataset_options o = {.files = (const char *const *)files->items,
                                   .n_files = files->n,
                                   .format = format_of(t),
                                   .bin_id_bytes = c->data.bin_type == NDP_BIN_UINT32 ? 4 : 2,
                                   .vocab = t->job.facts.vocab,
                                   .cache_dir = c->data.cache_dir,
                                   .tokenizer = t->tokenizer,
                                   .threads = t->threads,
                                   .team = team.size > 1 ? &team : NULL,
                                   .progress = say_tokenizing,
                                   .progress_user = &w,
                                   .left_out = &left_out};
    NDP_TRY(ndp_dataset_prepare(&o, path));
    if (left_out > 0)
        ndp_info(&t->log, "%lld file%s in the folders of the data %s no text, records or ids by %s name and left out",
                 (long long)left_out, left_out == 1 ? "" : "s", left_out == 1 ? "is" : "are",
                 left_out == 1 ? "its" : "their");
    return NDP_OK;
}

/* ---- data sets ---- */

static ndp_row_opts row_opts(const ndp_config *c, const ndp_strings *files) {
    return (ndp_row_opts){.length = c->data.sequence_length,
                          .document_mask = c->data.document_mask,
                          .single = !c->data.packing,
                          .refuse_overlong = c->data.overlong == NDP_OVERLONG_ERROR,
                          .names = (const char *const *)files->items};
}

static ndp_status open_trained(ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    char *path = NULL;
    ndp_row_opts o = row_opts(c, &c->data.files);
    o.held_out = c->data.validation_fraction;
    o.by_source = c->data.mix.n > 0;
    ndp_status st = prepare(t, &c->data.files, &path);
    if (st == NDP_OK)
        st = ndp_dataset_open(path, &o, &t->dataset);
    o.validation = true;
    o.by_source = false;
    if (st == NDP_OK && o.held_out > 0)
        st = ndp_dataset_open(path, &o, &t->held);
    free(path);
    return st;
}

static ndp_status open_validation_files(ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    char *path = NULL;
    ndp_row_opts o = row_opts(c, &c->data.validation_files);
    ndp_status st = prepare(t, &c->data.validation_files, &path);
    if (st == NDP_OK)
        st = ndp_dataset_open(path, &o, &t->held);
    free(path);
    return st;
}

/* The sampler, and with data.mix how many rows an epoch takes of each source. */
static ndp_status open_sampler(ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    int n = ndp_dataset_parts(t->dataset);
    t->shape = (ndp_batch_shape){t->job.batch.global_batch, t->job.batch.micro_batch, t->job.batch.data_ranks};
    t->sampler = (ndp_sampler){
        .rows = ndp_dataset_rows(t->dataset), .seed = (uint64_t)c->train.seed, .shuffle = c->data.shuffle};
    if (c->data.mix.n == 0)
        return NDP_OK;
    t->parts = calloc((size_t)n, sizeof *t->parts);
    if (!t->parts)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a mix of %d sources", n);
    t->sampler.rows = 0;
    for (int i = 0; i < n; i++) {
        ndp_mix_part *p = &t->parts[i];
        ndp_dataset_part(t->dataset, i, &p->first, &p->rows);
        p->taken = ndp_mix_taken(p->rows, strtod(c->data.mix.items[i], NULL));
        t->sampler.rows += p->taken;
    }
    NDP_CHECK(t->sampler.rows > 0, "data.mix takes no row: the files that it takes have nothing to predict");
    t->sampler.parts = t->parts;
    t->sampler.n_parts = n;
    return NDP_OK;
}

static ndp_status open_tokenizer(ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    t->tokenizer_source = ndp_format("%s", tokenizer_of(c));
    if (!t->tokenizer_source)
        return NDP_FAIL(NDP_ENOMEM, "no memory for a path");
    NDP_TRY(ndp_tokenizer_create(t->tokenizer_source, &t->tokenizer));
    return ndp_chat_init(&t->chat, t->tokenizer, t->tokenizer_source, c->data.chat_template);
}

ndp_status ndp_trainer_open_data(ndp_trainer *t) {
    const ndp_config *c = t->job.config;
    NDP_TRY(ndp_agree(t->world, open_tokenizer(t)));
    NDP_TRY(open_trained(t));
    if (c->data.validation_files.n)
        NDP_TRY(open_validation_files(t));
    return open_sampler(t);
}

void ndp_trainer_close_data(ndp_trainer *t) {
    ndp_dataset_close(t->dataset);
    ndp_dataset_close(t->held);
    ndp_chat_release(&t->chat);
    ndp_tokenizer_destroy(t->tokenizer);
    free(t->tokenizer_source);
    free(t->parts);
}

void ndp_trainer_describe_data(const ndp_trainer *t, ndp_str *out) {
    const ndp_dataset *sets[] = {t->dataset, t->held};
    for (int i = 0; i < 2; i++)
        if (sets[i])
            ndp_str_addf(out, "%s: %lld documents, %lld tokens, %lld to predict, %lld rows%s, %.1f%% full\n",
                         i ? "held out" : "data", (long long)ndp_dataset_documents(sets[i]),
                         (long long)ndp_dataset_tokens(sets[i]), (long long)ndp_dataset_labels(sets[i]),
                         (long long)ndp_dataset_rows(sets[i]), i ? "" : " an epoch", 100 * ndp_dataset_fill(sets[i]));
    for (int i = 0; i < t->sampler.n_parts; i++)
        ndp_str_addf(out, "mix: %s, %lld of %lld rows an epoch, %.1f%% of all\n", t->job.config->data.files.items[i],
                     (long long)t->parts[i].taken, (long long)t->parts[i].rows,
                     100.0 * (double)t->parts[i].taken / (double)t->sampler.rows);
}

/* ---- batches ---- */

/* Sample j of a micro-batch: S rows of its arrays from j S on. Positions are rows of the whole micro-batch, so the
 * samples of a micro-batch are documents like any others. */
static ndp_status load_row(const ndp_trainer *t, const ndp_dataset *d, int64_t j, int64_t row) {
    int64_t length = t->job.config->data.sequence_length, at = j * length;
    ndp_micro_batch b = t->whole;
    if (row >= 0)
        NDP_TRY(ndp_dataset_row(d, row, b.tokens + at, b.labels + at, b.rope_pos + at, b.q_low + at));
    for (int64_t s = 0; s < length; s++) {
        if (row < 0) {
            b.tokens[at + s] = b.rope_pos[at + s] = 0;
            b.labels[at + s] = -1;
            b.q_low[at + s] = (int32_t)s;
        }
        b.q_low[at + s] += (int32_t)at;
    }
    return NDP_OK;
}

ndp_status ndp_trainer_load_rows(const ndp_trainer *t, const ndp_dataset *d, const int64_t *rows) {
    for (int64_t j = 0; j < t->shape.micro; j++)
        NDP_TRY(load_row(t, d, j, rows[j]));
    return NDP_OK;
}
