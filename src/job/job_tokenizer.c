/* The tokenizer of a job, and the tokens that end its documents. Files of ids need no tokenizer: without one, the ids
 * are those of the model, and config.json names the tokens that begin and end a document. Called by job_data.c. */
#include "job/job_data.h"

#include "base/hub.h"
#include "base/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- without a tokenizer ---- */

/* A token id of the model's configuration, if the vocabulary has it; of a list the first. */
static int64_t token_of(struct json_object *config, const char *key, int64_t vocab) {
    struct json_object *value = json_object_object_get(config, key);
    if (json_object_is_type(value, json_type_array))
        value = json_object_array_get_idx(value, 0);
    int64_t id = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;
    return id >= 0 && id < vocab ? id : -1;
}

/* What config.json names; what it does not name, the generation_config.json of the model's folder may. */
static ndp_status tokens_of_config(const ndp_job *j, int64_t *bos, int64_t *eos) {
    struct json_object *config;
    char path[NDP_PATH];
    int64_t vocab = j->spec.vocab;
    *bos = j->spec.bos < vocab ? j->spec.bos : -1;
    *eos = j->spec.eos < vocab ? j->spec.eos : -1;
    if (!j->model_folder[0])
        return NDP_OK;
    NDP_TRY(ndp_path_join(path, j->model_folder, "generation_config.json"));
    if ((*bos >= 0 && *eos >= 0) || !ndp_path_exists(path))
        return NDP_OK;
    NDP_TRY(ndp_json_read(path, &config));
    *bos = *bos >= 0 ? *bos : token_of(config, "bos_token_id", vocab);
    *eos = *eos >= 0 ? *eos : token_of(config, "eos_token_id", vocab);
    json_object_put(config);
    return NDP_OK;
}

/* data.end_token without a tokenizer: an id, none or auto. A token that is set may also begin the documents, as in
 * llm.c's files. */
static ndp_status choose_ids(const ndp_job *j, int64_t *bos, int64_t *eos) {
    const char *wanted = j->config->data.end_token;
    char *end;
    if (strcmp(wanted, "auto") == 0)
        return tokens_of_config(j, bos, eos);
    *bos = *eos = -1;
    if (strcmp(wanted, "none") == 0)
        return NDP_OK;
    errno = 0;
    long long id = strtoll(wanted, &end, 10);
    NDP_CHECK(*wanted >= '0' && *wanted <= '9' && !*end && !errno && id < j->spec.vocab,
              "data.end_token: '%s': there is no tokenizer, so give the id of a token, 0 to %lld, auto (those of "
              "config.json) or none; or set data.tokenizer",
              wanted, (long long)j->spec.vocab - 1);
    *bos = *eos = id;
    return NDP_OK;
}

static ndp_status open_ids(ndp_job_data *d, const char *why) {
    int64_t bos, eos;
    NDP_TRY(choose_ids(d->job, &bos, &eos));
    return ndp_tokenizer_of_ids(d->job->spec.vocab, bos, eos, why, &d->tokenizer);
}

/* A model of random weights brings no tokenizer; a vocabulary of the size of `bytes` is taken for that one. */
static ndp_status open_without_model(ndp_job_data *d) {
    ndp_tokenizer *bytes;
    NDP_TRY(ndp_tokenizer_create("bytes", &bytes));
    bool fits = d->job->spec.vocab == ndp_tokenizer_vocab_size(bytes);
    d->tokenizer_source = strdup(fits ? "bytes" : "");
    if (fits)
        d->tokenizer = bytes;
    else
        ndp_tokenizer_destroy(bytes);
    NDP_CHECK_MEMORY(d->tokenizer_source, "for a tokenizer");
    if (fits)
        return NDP_OK;
    char *why = ndp_format("text needs the tokenizer of this vocabulary of %lld tokens; set data.tokenizer to its "
                           "folder, its tokenizer.json, or its name in the Hub cache",
                           (long long)d->job->spec.vocab);
    ndp_status st = why ? open_ids(d, why) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer");
    free(why);
    return st;
}

/* ---- with one ---- */

/* A model folder without a tokenizer is enough for files of ids; for texts, its error is reported. */
static ndp_status open_named(ndp_job_data *d, const char *name) {
    char source[NDP_PATH];
    NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, name, source));
    d->tokenizer_source = strdup(source);
    NDP_CHECK_MEMORY(d->tokenizer_source, "for a tokenizer");
    ndp_status st =
        ndp_hub_explain(NDP_HUB_MODEL, name, source, ndp_tokenizer_create(d->tokenizer_source, &d->tokenizer));
    if (st == NDP_OK || st == NDP_ENOMEM || d->job->config->data.tokenizer || ndp_tokenizer_exists(source))
        return st;
    char *why = ndp_format("%s", ndp_error_message());
    st = why ? open_ids(d, why) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a tokenizer");
    free(why);
    return st;
}

/* ---- the end token ---- */

bool ndp_job_data_ids_only(const ndp_job_data *d) { return ndp_tokenizer_why_no_texts(d->tokenizer) != NULL; }

/* The vocabulary of the `bytes` tokenizer has no texts for its special tokens. */
ndp_span ndp_job_data_token_text(const ndp_job_data *d, int32_t id) {
    if (id < 0 || ndp_job_data_ids_only(d))
        return (ndp_span){"", 0};
    ndp_span text = ndp_tokenizer_token(d->tokenizer, id);
    return text.data ? text : (ndp_span){id == ndp_tokenizer_bos(d->tokenizer) ? "<bos>" : "<eos>", 5};
}

ndp_status ndp_job_choose_end_token(ndp_job_data *d) {
    const char *wanted = d->job->config->data.end_token;
    bool automatic = strcmp(wanted, "auto") == 0 || ndp_job_data_ids_only(d);
    d->end_token = -1;
    if (strcmp(wanted, "none") == 0)
        return NDP_OK;
    d->end_token = automatic ? ndp_tokenizer_eos(d->tokenizer) : ndp_tokenizer_id(d->tokenizer, wanted);
    if (!automatic && d->end_token < 0)
        return NDP_FAIL(NDP_EINVAL,
                        "data.end_token: '%s' is not a token of %s; give the text of one of its tokens, auto or none",
                        wanted, d->tokenizer_source);
    if (d->end_token < d->job->spec.vocab)
        return NDP_OK;
    ndp_span text = ndp_job_data_token_text(d, d->end_token);
    return NDP_FAIL(NDP_EINVAL,
                    "data.end_token: the token '%.*s' of %s has id %d, but the model's vocabulary ends at %lld; set "
                    "data.end_token: none, or another token",
                    (int)text.n, text.data, d->tokenizer_source, d->end_token, (long long)d->job->spec.vocab - 1);
}

ndp_status ndp_job_tokenizer_open(ndp_job_data *d) {
    const ndp_config *c = d->job->config;
    const char *name = c->data.tokenizer ? c->data.tokenizer : c->model.path;
    return name ? open_named(d, name) : open_without_model(d);
}
