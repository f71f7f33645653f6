/* From data files to rows: which options a data set is tokenized with, training and held-out rows, and the lines that
 * describe them. */
#include "job/job_data.h"

#include "data/sample.h"
#include "text/chat/chat_notes.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ndp_status open_all(ndp_job_data *d) {
    const ndp_config *c = d->job->config;
    NDP_TRY(ndp_job_tokenizer_open(d));
    NDP_TRY(ndp_chat_init(&d->chat, d->tokenizer, d->tokenizer_source, c->data.chat_template, c->data.template_date));
    return ndp_job_choose_end_token(d);
}

ndp_status ndp_job_data_open(const ndp_job *j, ndp_job_data *out) {
    ndp_job_data d = {.job = j};
    ndp_status st = open_all(&d);
    if (st != NDP_OK) {
        ndp_job_data_close(&d);
        return st;
    }
    *out = d;
    st = ndp_job_entries_open(out);
    if (st != NDP_OK)
        ndp_job_data_close(out);
    return st;
}

void ndp_job_data_close(ndp_job_data *d) {
    ndp_dataset_close(d->dataset);
    ndp_dataset_close(d->held);
    ndp_token_cache_close(&d->tokens);
    ndp_token_cache_close(&d->held_tokens);
    ndp_job_entries_close(&d->entries);
    ndp_job_entries_close(&d->held_entries);
    ndp_chat_release(&d->chat);
    ndp_tokenizer_destroy(d->tokenizer);
    free(d->tokenizer_source);
    free(d->sources);
    *d = (ndp_job_data){0};
}

/* ---- tokens ---- */

ndp_dataset_options ndp_job_data_options(const ndp_job_data *d, const ndp_strings *files) {
    const ndp_config *c = d->job->config;
    const ndp_job_entries *e = files == &c->data.files ? &d->entries : &d->held_entries;
    return (ndp_dataset_options){.files = (const char *const *)files->items,
                                 .n_files = files->n,
                                 .format = ndp_job_format(d, c),
                                 .formats = e->formats,
                                 .splits = (const char *const *)e->splits,
                                 .bin_id_bytes = c->data.bin_type,
                                 .vocab = d->job->spec.vocab,
                                 .cache_dir = c->data.cache_dir,
                                 .tokenizer = d->tokenizer,
                                 .end_token = d->end_token >= 0 ? &d->end_token : NULL,
                                 .pair_length =
                                     c->data.overlong == NDP_OVERLONG_TRUNCATE ? c->data.sequence_length : 0};
}

/* ---- rows ---- */

static ndp_row_opts row_opts(const ndp_config *c, const ndp_strings *files) {
    return (ndp_row_opts){.length = c->data.sequence_length,
                          .document_mask = c->data.document_mask,
                          .single = !c->data.packing,
                          .pairs = c->data.format == NDP_RECORD_PREFERENCE,
                          .apart = ndp_preference_table[ndp_config_preference(c).kind].single,
                          .overlong = c->data.overlong,
                          .least_tokens = c->data.min_tokens,
                          .unique = c->data.unique,
                          .names = (const char *const *)files->items};
}

/* The rows of data.files: those for training, and those that data.validation_fraction holds out. */
static ndp_status split_rows(ndp_job_data *d, bool held_only) {
    const ndp_config *c = d->job->config;
    ndp_row_opts o = row_opts(c, &c->data.files);
    o.held_out = c->data.validation_fraction;
    o.by_source = c->data.mix.n > 0;
    o.most_documents = c->data.max_documents;
    if (!held_only)
        NDP_TRY(ndp_dataset_create(&d->tokens, &o, &d->dataset));
    o.validation = true;
    o.by_source = false;
    return o.held_out > 0 ? ndp_dataset_create(&d->tokens, &o, &d->held) : NDP_OK;
}

static ndp_status held_rows(ndp_job_data *d) {
    const ndp_config *c = d->job->config;
    ndp_row_opts o = row_opts(c, &c->data.validation_files);
    o.by_source = c->data.validation_files.n > 1; /* evaluate reports each */
    return ndp_dataset_create(&d->held_tokens, &o, &d->held);
}

/* Sets up the sampler and, with data.mix, how many rows of each source an epoch takes. */
static ndp_status open_sampler(ndp_job_data *d) {
    const ndp_config *c = d->job->config;
    const ndp_row_opts o = row_opts(c, &c->data.files);
    int n = ndp_dataset_sources(d->dataset), group = o.pairs && !o.apart ? 2 : 1;
    d->sampler = (ndp_sampler){.rows = ndp_dataset_rows(d->dataset),
                               .seed = (uint64_t)c->train.seed,
                               .shuffle = c->data.shuffle,
                               .group = group};
    if (c->data.mix.n == 0)
        return NDP_OK;
    d->sources = calloc((size_t)n, sizeof *d->sources);
    NDP_CHECK_MEMORY(d->sources, "for a mix of %d sources", n);
    d->sampler.rows = 0;
    for (int i = 0; i < n; i++) {
        ndp_mix_source *p = &d->sources[i];
        ndp_dataset_source(d->dataset, i, &p->first, &p->rows);
        p->taken = group * ndp_mix_taken(p->rows / group, strtod(ndp_config_mix(c, i), NULL));
        d->sampler.rows += p->taken;
    }
    NDP_CHECK(d->sampler.rows > 0 || d->tokens.head,
              "data.mix selects no rows: the files that it selects have nothing to predict");
    d->sampler.sources = d->sources;
    d->sampler.n_sources = n;
    return NDP_OK;
}

/* Derives the number of updates from train.epochs, rounded up: rows of the next epoch fill the last batch. A product
 * such as 0.07 x 100, which is slightly more than 7, takes no extra step. */
static ndp_status count_steps(ndp_job_data *d) {
    enum { MOST = 1 << 30 };
    const ndp_config *c = d->job->config;
    d->steps = c->train.steps;
    if (c->train.epochs == 0)
        return NDP_OK;
    double rows = c->train.epochs * (double)d->sampler.rows;
    double steps = fmax(1, ceil(rows / c->batch.global_batch_size * (1 - 1e-12)));
    NDP_CHECK(steps <= MOST, "train.epochs: %g epochs of %lld rows are %.0f steps; a run has %d at most",
              c->train.epochs, (long long)d->sampler.rows, steps, MOST);
    d->steps = d->tokens.head ? 0 : (int)steps;
    return NDP_OK;
}

ndp_status ndp_job_data_rows(ndp_job_data *d, bool held_only,
                             ndp_status (*tokens_of)(void *user, const ndp_strings *files, ndp_token_cache *out),
                             void *user) {
    const ndp_config *c = d->job->config;
    bool splits = c->data.validation_fraction > 0;
    NDP_CHECK(!held_only || splits || c->data.validation_files.n,
              "there is no held-out data; set data.validation_fraction or data.validation_files");
    if (!held_only || splits) {
        NDP_TRY(tokens_of(user, &c->data.files, &d->tokens));
        NDP_TRY(split_rows(d, held_only));
    }
    if (c->data.validation_files.n) {
        NDP_TRY(tokens_of(user, &c->data.validation_files, &d->held_tokens));
        NDP_TRY(held_rows(d));
    }
    if (held_only)
        return NDP_OK;
    NDP_TRY(open_sampler(d));
    return count_steps(d);
}

/* ---- lines for the user ---- */

void ndp_job_data_progress(uint64_t done, uint64_t total, double seconds, char line[160]) {
    double rate = (double)done / seconds;
    snprintf(line, 160, "tokenizing: %.1f of %.1f MB, %.1f MB/s, %.0f s left", (double)done * 1e-6,
             (double)total * 1e-6, rate * 1e-6, (double)(total - done) / rate);
}

static void describe_losses(const ndp_config *c, ndp_row_losses lost, ndp_str *out) {
    const char *s = lost.overlong == 1 ? "" : "s";
    if (lost.overlong > 0)
        ndp_str_addf(out, "; %lld document%s over %d tokens %s", (long long)lost.overlong, s, c->data.sequence_length,
                     c->data.overlong == NDP_OVERLONG_DROP ? "dropped" : "truncated");
    if (lost.scant > 0)
        ndp_str_addf(out, "; %lld document%s under %lld tokens left out", (long long)lost.scant,
                     lost.scant == 1 ? "" : "s", (long long)c->data.min_tokens);
    if (lost.repeated > 0)
        ndp_str_addf(out, "; %lld %s%s like an earlier one left out", (long long)lost.repeated,
                     c->data.format == NDP_RECORD_PREFERENCE ? "pair" : "document", lost.repeated == 1 ? "" : "s");
    if (lost.unasked > 0)
        ndp_str_addf(out,
                     "; %lld answer%s left out or cut, too long for a row of %d with their question (%lld to predict)",
                     (long long)lost.unasked, lost.unasked == 1 ? "" : "s", c->data.sequence_length,
                     (long long)lost.unasked_labels);
    if (lost.emptied > 0)
        ndp_str_addf(out, ", %lld of them left out since nothing to predict remains", (long long)lost.emptied);
    if (lost.beyond > 0)
        ndp_str_addf(out, "; %lld document%s beyond the first %lld of a source left out", (long long)lost.beyond,
                     lost.beyond == 1 ? "" : "s", (long long)c->data.max_documents);
}

/* "</s> (2)", or the id alone if no text of it is known; nothing for -1. */
static void add_token(const ndp_job_data *d, int32_t id, ndp_str *out) {
    ndp_span text = ndp_job_data_token_text(d, id);
    if (text.n)
        ndp_str_addf(out, "%.*s (%d)", (int)text.n, text.data, id);
    else if (id >= 0)
        ndp_str_addf(out, "id %d", id);
}

/* How .bin files are read (data/corpus/bin.h). */
static void describe_ids(const ndp_job_data *d, ndp_str *out) {
    const ndp_dataset_options o = ndp_job_data_options(d, &d->job->config->data.files);
    const ndp_bin_rule r = ndp_dataset_bin_rule(&o);
    if (ndp_job_data_ids_only(d))
        ndp_str_add(out, "; .bin: ids without a tokenizer, ");
    else
        ndp_str_addf(out, "; .bin: ids of %s, ", d->tokenizer_source);
    if (r.bos < 0 && r.eos < 0) {
        ndp_str_add(out, "each file one document");
        return;
    }
    ndp_str_add(out, r.bos < 0 ? "documents end with " : "documents begin ");
    if (r.bos >= 0 && r.bos != r.eos) {
        ndp_str_add(out, "with ");
        add_token(d, r.bos, out);
    }
    if (r.bos >= 0 && r.eos >= 0)
        ndp_str_add(out, r.bos != r.eos ? " or end with " : "or end with ");
    add_token(d, r.eos, out);
}

static void describe_rows(const ndp_job_data *d, const ndp_dataset *set, const char *name, const char *each,
                          int64_t id_files, ndp_str *out) {
    int64_t documents = ndp_dataset_documents(set), n = ndp_dataset_rows(set);
    ndp_str_addf(out, "%s: %lld document%s, %lld tokens, %lld to predict, %lld row%s%s, %.1f%% full", name,
                 (long long)documents, documents == 1 ? "" : "s", (long long)ndp_dataset_tokens(set),
                 (long long)ndp_dataset_labels(set), (long long)n, n == 1 ? "" : "s", each,
                 100 * ndp_dataset_fill(set));
    if (ndp_dataset_has_texts(set)) {
        ndp_str_add(out, d->end_token >= 0 ? "; texts end with " : "; texts have no end token");
        add_token(d, d->end_token, out);
    }
    if (id_files > 0)
        describe_ids(d, out);
    describe_losses(d->job->config, ndp_dataset_losses(set), out);
    ndp_str_add(out, "\n");
}

/* One document of millions of tokens is rarely meant. */
static void note_ids(const ndp_job_data *d, ndp_str *out) {
    bool divided = ndp_tokenizer_bos(d->tokenizer) >= 0 || ndp_tokenizer_eos(d->tokenizer) >= 0;
    if (ndp_job_data_ids_only(d) && !divided && strcmp(d->job->config->data.end_token, "auto") == 0)
        ndp_str_addf(out,
                     "note: %s names neither bos_token_id nor eos_token_id, so every .bin file is one document; "
                     "data.end_token: ID sets the token that separates documents (50256 for GPT-2)\n",
                     d->job->facts_path);
}

/* Most models should be trained to end a text, and a tokenizer without a token for that is easily overlooked. */
static void note_end_token(const ndp_job_data *d, ndp_str *out) {
    static const char common[] = "<|endoftext|>";
    bool texts = (d->dataset && ndp_dataset_has_texts(d->dataset)) || (d->held && ndp_dataset_has_texts(d->held));
    if (!texts || d->end_token >= 0 || strcmp(d->job->config->data.end_token, "auto") != 0)
        return;
    ndp_str_addf(
        out, "note: the tokenizer %s does not name an end token, so none is added to texts; data.end_token sets one",
        d->tokenizer_source);
    if (ndp_tokenizer_id(d->tokenizer, common) >= 0)
        ndp_str_addf(out, ", such as its %s", common);
    ndp_str_add(out, "\n");
}

static void note_head(const ndp_job_data *d, ndp_str *out) {
    if (!d->tokens.head && !d->held_tokens.head)
        return;
    ndp_str_addf(out,
                 "note: only the head of the data was read, %d records or %d MiB of each source; the lines above count "
                 "only that\n",
                 NDP_SAMPLE_RECORDS, NDP_SAMPLE_BYTES >> 20);
    if (d->dataset && ndp_dataset_rows(d->dataset) == 0)
        ndp_str_add(out, "note: these records have no token to predict\n");
}

static void describe_steps(const ndp_job_data *d, ndp_str *out) {
    const ndp_config *c = d->job->config;
    const char *s = c->train.epochs == 1 ? "" : "s";
    if (c->train.epochs > 0 && d->steps > 0)
        ndp_str_addf(out, "steps: %g epoch%s of %lld rows: %d step%s\n", c->train.epochs, s, (long long)d->sampler.rows,
                     d->steps, d->steps == 1 ? "" : "s");
    else if (c->train.epochs > 0)
        ndp_str_addf(out, "steps: not known; a run derives them from %g epoch%s once all data is tokenized\n",
                     c->train.epochs, s);
}

/* A learning rate that never gets where it was set. */
static void note_warmup(const ndp_job_data *d, ndp_str *out) {
    const ndp_config *c = d->job->config;
    if (c->schedule.warmup_ratio > 0 || d->steps < 1 || c->schedule.warmup_steps <= d->steps ||
        !ndp_config_given(c, "schedule", "warmup_steps"))
        return;
    ndp_str_addf(out,
                 "note: schedule.warmup_steps is %d and the run has %d step%s, so lr never reaches optimizer.lr; "
                 "schedule.warmup_ratio: 0.1 is a part of the run\n",
                 c->schedule.warmup_steps, d->steps, d->steps == 1 ? "" : "s");
}

/* A single answer has an empty document beside it. */
static bool has_conversations(const ndp_job_data *d, const ndp_token_cache *c) {
    int64_t empty = ndp_preference_table[d->job->model.preference.kind].single ? c->n_documents / 2 : 0;
    return c->trained && c->n_texts < c->n_documents - empty;
}

bool ndp_job_data_has_conversations(const ndp_job_data *d) {
    bool any = has_conversations(d, &d->tokens) || has_conversations(d, &d->held_tokens);
    return any &&
           d->job->config->data.format != NDP_RECORD_INPUT_OUTPUT; /* has no template, and no end tokens either */
}

static void describe_template(const ndp_job_data *d, ndp_str *out) {
    if (!ndp_job_data_has_conversations(d))
        return;
    ndp_str_add(out, "conversations: ");
    ndp_chat_describe(&d->chat, out);
    ndp_str_add(out, "\n");
    ndp_chat_add_notes(&d->chat, d->tokenizer, d->tokenizer_source, out);
}

void ndp_job_data_describe(const ndp_job_data *d, ndp_str *out) {
    if (d->dataset)
        describe_rows(d, d->dataset, "data", d->tokens.head ? "" : " an epoch", d->id_files, out);
    if (d->held && ndp_dataset_rows(d->held) > 0)
        describe_rows(d, d->held, "held out", "",
                      d->job->config->data.validation_files.n ? d->held_id_files : d->id_files, out);
    for (int i = 0; i < d->sampler.n_sources && d->sampler.rows > 0; i++)
        ndp_str_addf(out, "mix: %s, %lld of %lld rows an epoch, %.1f%% of all\n", d->job->config->data.files.items[i],
                     (long long)d->sources[i].taken, (long long)d->sources[i].rows,
                     100.0 * (double)d->sources[i].taken / (double)d->sampler.rows);
    ndp_job_data_describe_records(&d->tokens, &d->job->config->data.files, out);
    ndp_job_data_describe_records(&d->held_tokens, &d->job->config->data.validation_files, out);
    describe_template(d, out);
    describe_steps(d, out);
    note_warmup(d, out);
    note_end_token(d, out);
    note_ids(d, out);
    note_head(d, out);
}
