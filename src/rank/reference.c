/* The reference model of preference data: the log-probability of every document's answer under the weights that a run
 * starts from. Computed once, before the first step, by forward passes over all rows, and kept beside the token cache
 * under a key of contents: the tokens, the rows that are made of them, the weights, and the types that computed it. A
 * resumed run has the initial weights in its engine until it loads its checkpoint, so it finds the file, or makes it
 * again. Called by train/. */
#include "base/log.h"
#include "checkpoint/agree.h"
#include "config/option.h"
#include "data/cache/corpus.h"
#include "job/model_identity.h"
#include "rank/rank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which weights ---- */

/* The engine whose weights are the reference's: those of the training engine, which it reads in place, before the first
 * step. With an adapter these are the base and the adapter as it begins: a new one adds nothing, and one that is
 * continued is the reference of what it becomes, as in TRL. Nothing else in this file depends on which weights these
 * are. */
static ndp_engine *reference_engine(const ndp_rank *r) { return r->score; }

/* Appends what an adapter is: its options, the seed that draws a new one, the contents of the one that is continued. */
static void add_adapter(const ndp_rank *r, ndp_str *key) {
    const ndp_config *c = r->job.config;
    if (c->adapter.type == NDP_ADAPTER_NONE)
        return;
    ndp_str_addf(key, " adapter %lld", (long long)c->train.seed);
    for (int i = 0; i < ndp_option_count; i++)
        if (strcmp(ndp_options[i].section, "adapter") == 0 && strcmp(ndp_options[i].key, "path") != 0) {
            ndp_str_addf(key, " %s=", ndp_options[i].key);
            ndp_option_write(&ndp_options[i], c, key);
        }
    ndp_identity_hash(key, r->began_with);
}

/* Appends what identifies them: the contents of the model's weights, or the seed that draws them; and the adapter. */
static void add_weights(const ndp_rank *r, ndp_str *key) {
    if (r->job.config->model.init == NDP_INIT_RANDOM)
        ndp_str_addf(key, " random %lld", (long long)r->job.config->train.seed);
    ndp_str_add(key, " ");
    ndp_identity_hash(key, r->base);
    add_adapter(r, key);
}

static void add_fact(void *key, const ndp_fact *fact) { ndp_str_addf(key, " %s=%s", fact->key, fact->value); }

/* ---- the file ---- */

enum { VERSION = 2 };
typedef struct reference_header {
    char magic[8];
    uint64_t version;
    ndp_hash128 key, payload;
    int64_t n;
} reference_header;
static const char magic[8] = "NDPREFER";

static ndp_status make_key(const ndp_rank *r, const ndp_token_cache *tokens, ndp_hash128 *out) {
    const ndp_config *c = r->job.config;
    ndp_str key = {0};
    ndp_str_addf(&key, "reference %d ", VERSION);
    ndp_identity_hash(&key, tokens->payload);
    ndp_str_addf(&key, " %d %d %d %d", c->data.sequence_length, (int)c->data.overlong, (int)c->precision.compute,
                 (int)c->train.matmul);
    r->score_model.architecture->list(r->score_model.facts, add_fact, &key);
    add_weights(r, &key);
    ndp_status st = key.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory to name the reference") : NDP_OK;
    if (st == NDP_OK)
        *out = ndp_hash128_of(key.data, key.length);
    ndp_str_release(&key);
    return st;
}

/* True if the file is whole and of that key; `values` are its numbers then. */
static bool read_file(const char *path, ndp_hash128 key, int64_t n, double *values) {
    char *data;
    size_t size;
    reference_header h;
    if (!ndp_path_exists(path) || ndp_file_read_as(NDP_FILE_ANY, path, &data, &size) != NDP_OK)
        return false;
    bool whole = size == sizeof h + (size_t)n * sizeof *values;
    if (whole) {
        memcpy(&h, data, sizeof h);
        whole = memcmp(h.magic, magic, sizeof magic) == 0 && h.version == VERSION && h.n == n &&
                ndp_hash128_equal(h.key, key) &&
                ndp_hash128_equal(h.payload, ndp_hash128_of(data + sizeof h, (size_t)n * sizeof *values));
    }
    if (whole)
        memcpy(values, data + sizeof h, (size_t)n * sizeof *values);
    free(data);
    return whole;
}

static ndp_status write_file(const char *path, ndp_hash128 key, int64_t n, const double *values) {
    size_t bytes = (size_t)n * sizeof *values;
    reference_header h = {.version = VERSION, .key = key, .payload = ndp_hash128_of(values, bytes), .n = n};
    char *data = malloc(sizeof h + bytes);
    if (!data)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld numbers", (long long)n);
    memcpy(h.magic, magic, sizeof magic);
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, values, bytes);
    ndp_status st = ndp_file_write_atomic(path, data, sizeof h + bytes);
    free(data);
    return st;
}

/* ---- scoring ---- */

/* The documents of one token cache, and the rows that have them. */
typedef struct referred {
    const ndp_token_cache *tokens;
    const ndp_dataset *rows[2]; /* for training, held out; NULL: none */
    double *values;             /* by document; NaN: it is in no row */
} referred;

/* This rank hands in what one rank of each micro-batch has: that with the head, and the first of those that share it.
 */
static bool hands_in(const ndp_engine *e) {
    const ndp_model *m = ndp_engine_model(e), *whole = ndp_engine_whole(e);
    const int *at = ndp_engine_program(e)->opts.step.mesh.coord;
    bool head = m->n_units > 0 && m->units[m->n_units - 1].number == whole->n_units - 1;
    return head && at[NDP_CP] == 0 && at[NDP_SP] == 0 && at[NDP_TP] == 0;
}

static ndp_status take_scores(ndp_rank *r, ndp_engine *e, const ndp_dataset *d, int64_t at, int64_t end,
                              double *values) {
    int64_t micro = r->shape.micro, unused;
    double *scores = r->scores;
    at += ndp_mesh_group(&ndp_engine_program(e)->opts.step.mesh, NDP_GROUP_DATA).rank * micro;
    for (int m = 0; m < ndp_engine_program(e)->opts.step.accumulation && hands_in(e); m++) {
        NDP_TRY(ndp_engine_input(e, m, "scores", scores));
        for (int64_t j = 0; j < micro && at + j < end; j++)
            values[ndp_dataset_document(d, at + j, &unused)] = scores[2 * j];
        at += micro * r->shape.data_ranks;
    }
    return NDP_OK;
}

static ndp_status score_rows(ndp_rank *r, const ndp_dataset *d, double *values) {
    ndp_engine *e = reference_engine(r);
    int64_t end = ndp_dataset_rows(d), each = (int64_t)r->shape.micro * r->shape.data_ranks;
    each *= ndp_engine_program(e)->opts.step.accumulation;
    for (int64_t at = 0; at < end; at += each) {
        ndp_step_result unused;
        NDP_TRY(ndp_rank_score_pass(r, e, d, at, end, &unused));
        NDP_TRY(ndp_agree(r->world, take_scores(r, e, d, at, end, values)));
    }
    return NDP_OK;
}

static void clear(const referred *of, bool first) {
    int64_t unused;
    for (int64_t i = 0; i < of->tokens->n_documents; i++)
        of->values[i] = first ? NAN : 0;
    for (int k = 0; k < 2; k++)
        for (int64_t row = 0; of->rows[k] && row < ndp_dataset_rows(of->rows[k]); row++)
            of->values[ndp_dataset_document(of->rows[k], row, &unused)] = 0;
}

static bool has_all(const referred *of) {
    int64_t unused;
    for (int k = 0; k < 2; k++)
        for (int64_t row = 0; of->rows[k] && row < ndp_dataset_rows(of->rows[k]); row++)
            if (!isfinite(of->values[ndp_dataset_document(of->rows[k], row, &unused)]))
                return false;
    return true;
}

static ndp_status compute(ndp_rank *r, const referred *of) {
    clear(of, ndp_is_first(r->world));
    for (int k = 0; k < 2; k++)
        if (of->rows[k])
            NDP_TRY(score_rows(r, of->rows[k], of->values));
    NDP_TRY(ndp_reduce_now(r->world, of->values, of->tokens->n_documents, NDP_F64, NDP_SUM));
    return has_all(of) ? NDP_OK
                       : NDP_FAIL(NDP_EINVAL,
                                  "the initial model gives an answer no finite log-probability, so there is "
                                  "no reference for %s",
                                  ndp_preference_table[r->job.model.preference.kind].name);
}

/* ---- all ---- */

/* Rank 0: the file's name and key. The caller frees *path. */
static ndp_status name_file(const ndp_rank *r, const referred *of, ndp_hash128 *key, char **path) {
    char *folder;
    NDP_TRY(make_key(r, of->tokens, key));
    NDP_TRY(ndp_cache_folder(r->job.config->data.cache_dir, &folder));
    *path =
        ndp_format("%s/%016llx%016llx.reference", folder, (unsigned long long)key->high, (unsigned long long)key->low);
    free(folder);
    return *path ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory to name the reference");
}

static ndp_status find(ndp_rank *r, const referred *of) {
    ndp_hash128 key = {0, 0};
    char *path = NULL;
    int64_t n = of->tokens->n_documents;
    bool first = ndp_is_first(r->world), found = false;
    NDP_TRY(ndp_agree(r->world, first ? name_file(r, of, &key, &path) : NDP_OK));
    if (first)
        found = read_file(path, key, n, of->values) && has_all(of);
    ndp_status st = ndp_share_now(r->world, &found, sizeof found, 0);
    if (st == NDP_OK && found)
        st = ndp_share_now(r->world, of->values, (size_t)n * sizeof *of->values, 0);
    if (st == NDP_OK && !found) {
        if (first)
            ndp_info(&r->log, "reference: scoring %lld answers with the initial model", (long long)n);
        st = compute(r, of);
        if (st == NDP_OK && first && write_file(path, key, n, of->values) != NDP_OK)
            ndp_warn(&r->log, "%s; the reference is computed again by the next run", ndp_error_message());
    }
    free(path);
    return st;
}

static ndp_status take_memory(ndp_rank *r) {
    const ndp_token_cache *caches[] = {&r->data.tokens, &r->data.held_tokens};
    r->scores = calloc(2 * (size_t)r->shape.micro, sizeof *r->scores);
    bool ok = r->scores != NULL;
    for (int k = 0; k < 2; k++) {
        r->references[k] = calloc((size_t)caches[k]->n_documents + 1, sizeof *r->references[k]);
        ok = ok && r->references[k];
    }
    return ok ? NDP_OK
              : NDP_FAIL(NDP_ENOMEM, "not enough memory for the reference of %lld documents",
                         (long long)(caches[0]->n_documents + caches[1]->n_documents));
}

ndp_status ndp_rank_find_references(ndp_rank *r) {
    const ndp_job_data *d = &r->data;
    bool apart = d->held_tokens.n_documents > 0; /* held-out rows have a cache of their own */
    const referred all[] = {{&d->tokens, {d->dataset, apart ? NULL : d->held}, NULL},
                            {&d->held_tokens, {NULL, apart ? d->held : NULL}, NULL}};
    if (r->no_data || r->scores || !ndp_job_refers(&r->job))
        return NDP_OK;
    NDP_TRY(ndp_agree(r->world, take_memory(r)));
    for (int k = 0; k < 2; k++) {
        referred of = all[k];
        of.values = r->references[k];
        if (of.rows[0] || of.rows[1])
            NDP_TRY(find(r, &of));
    }
    return NDP_OK;
}
