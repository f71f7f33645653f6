/* Texts that a run generates while it trains (train.sample_every): each of train.sample_prompts is continued by the
 * most likely tokens under the weights as they are, on the layout of the run. samples.jsonl has a line for each. */
#include "base/json_write.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "train/loop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- prompts ---- */

/* A prompt is a question where the job's records are rendered by a chat template, else the beginning of a text. */
static ndp_status encode(const ndp_trainer *t, const char *text, ndp_ids *out) {
    const ndp_job_data *d = &t->rank.data;
    ndp_rendering r = {0};
    ndp_message question = {.role = NDP_ROLE_USER, .content = {text, strlen(text)}};
    if (!ndp_job_data_has_conversations(d)) {
        NDP_TRY(ndp_tokenizer_encode(d->tokenizer, text, strlen(text), true, out));
        out->n -= ndp_tokenizer_suffix(d->tokenizer) < out->n ? ndp_tokenizer_suffix(d->tokenizer) : out->n;
        return out->n || ndp_tokenizer_bos(d->tokenizer) < 0 ? NDP_OK
                                                             : ndp_ids_add(out, ndp_tokenizer_bos(d->tokenizer));
    }
    ndp_status st = ndp_chat_render(&d->chat, &(ndp_conversation){.messages = &question, .n = 1}, true, &r);
    if (st == NDP_OK)
        st = ndp_tokenizer_encode_rendered(d->tokenizer, r.text.data, r.text.length, out);
    ndp_rendering_release(&r);
    return st;
}

static ndp_status check_prompt(const ndp_trainer *t, int i, const ndp_ids *ids) {
    int length = t->rank.job.config->data.sequence_length;
    NDP_CHECK(ids->n > 0, "train.sample_prompts: prompt %d has no token, and the tokenizer has none to begin with",
              i + 1);
    NDP_CHECK(ids->n < length,
              "train.sample_prompts: prompt %d has %lld tokens, and data.sequence_length is %d: shorten it", i + 1,
              (long long)ids->n, length);
    for (int64_t k = 0; k < ids->n; k++)
        NDP_CHECK(ids->items[k] < t->rank.job.spec.vocab,
                  "train.sample_prompts: the tokenizer gives token %d, but the model's vocabulary ends at %lld",
                  ids->items[k], (long long)t->rank.job.spec.vocab - 1);
    return NDP_OK;
}

ndp_status ndp_loop_encode_prompts(ndp_training_loop *l) {
    const ndp_strings *prompts = &l->config->train.sample_prompts;
    if (l->config->train.sample_every == 0)
        return NDP_OK;
    l->samples.prompts = calloc((size_t)prompts->n, sizeof *l->samples.prompts);
    NDP_CHECK_MEMORY(l->samples.prompts, "for %d prompts", prompts->n);
    for (int i = 0; i < prompts->n; i++) {
        NDP_TRY(encode(l->trainer, prompts->items[i], &l->samples.prompts[i]));
        NDP_TRY(check_prompt(l->trainer, i, &l->samples.prompts[i]));
    }
    return NDP_OK;
}

/* ---- the file ---- */

static bool is_before(void *first, const char *line, size_t n) {
    bool unused;
    double loss;
    int64_t at = ndp_line_step(line, n, &unused, &loss);
    return at >= 0 && at < *(const int64_t *)first;
}

ndp_status ndp_loop_open_samples(ndp_training_loop *l, int64_t first) {
    char path[NDP_PATH];
    int64_t end;
    if (l->config->train.sample_every == 0)
        return NDP_OK;
    NDP_TRY(ndp_path_join(path, l->config->train.output_dir, "samples.jsonl"));
    NDP_TRY(ndp_appended_cut(path, is_before, &first, &end));
    return ndp_appended_open(&l->samples.file, ndp_format("%s", path), "line", end);
}

void ndp_loop_close_samples(ndp_training_loop *l) {
    for (int i = 0; l->samples.prompts && i < l->config->train.sample_prompts.n; i++)
        ndp_ids_release(&l->samples.prompts[i]);
    free(l->samples.prompts);
    ndp_appended_close(&l->samples.file);
}

/* ---- a text ---- */

typedef struct sample {
    int64_t step, tokens;
    const char *prompt;
    ndp_str text;
    bool ended;
} sample;

static bool ends(const ndp_job_data *d, int32_t id) {
    bool special = ndp_job_data_has_conversations(d) && ndp_tokenizer_is_special(d->tokenizer, id);
    return special || id == d->end_token || id == ndp_tokenizer_eos(d->tokenizer);
}

/* The text of ids, without those that the tokenizer does not have: a model may have more, and chooses one at first. */
static ndp_status decode(const ndp_tokenizer *t, int32_t *ids, int64_t n, ndp_str *out) {
    ndp_str alone = {0};
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        if (ndp_tokenizer_decode(t, &ids[i], 1, true, &alone) == NDP_OK)
            ids[kept++] = ids[i];
    }
    ndp_str_release(&alone);
    return ndp_tokenizer_decode(t, ids, kept, true, out);
}

/* Continues the prompt in `ids`, which has room. */
static ndp_status generate(ndp_training_loop *l, const ndp_ids *prompt, int32_t *ids, sample *out) {
    ndp_trainer *t = l->trainer;
    const ndp_job_data *d = &t->rank.data;
    int64_t n = prompt->n, most = l->config->data.sequence_length;
    memcpy(ids, prompt->items, (size_t)n * sizeof *ids);
    while (n < most && n - prompt->n < l->config->train.sample_tokens && !out->ended) {
        NDP_TRY(ndp_score_next_token(&t->score, ids, n, &ids[n]));
        out->ended = ends(d, ids[n]);
        n += !out->ended;
    }
    out->tokens = n - prompt->n;
    return decode(d->tokenizer, ids + prompt->n, out->tokens, &out->text);
}

static void add_sample(ndp_str *out, const void *record) {
    const sample *s = record;
    ndp_str_addf(out, "{\"step\": %lld, \"prompt\": ", (long long)s->step);
    ndp_json_quote(out, s->prompt);
    ndp_str_add(out, ", \"text\": ");
    ndp_json_quote_bytes(out, s->text.data ? s->text.data : "", s->text.length);
    ndp_str_addf(out, ", \"tokens\": %lld, \"finish\": \"%s\"}\n", (long long)s->tokens, s->ended ? "stop" : "length");
}

/* The beginning, on one line. */
static void say_sample(const ndp_training_loop *l, const sample *s) {
    enum { SHOWN = 160 };
    char shown[SHOWN + 1];
    size_t n = ndp_utf8_valid_prefix(s->text.data ? s->text.data : "", s->text.length < SHOWN ? s->text.length : SHOWN);
    memcpy(shown, s->text.data ? s->text.data : "", n);
    for (size_t i = 0; i < n; i++)
        shown[i] = (unsigned char)shown[i] < ' ' ? ' ' : shown[i];
    shown[n] = '\0';
    ndp_say(l->say, l->opts->user, "sample: %s -> %s%s", s->prompt, shown, n < s->text.length ? "..." : "");
}

static ndp_status write_sample(ndp_training_loop *l, const sample *s) {
    NDP_TRY(ndp_lock_check(l->lock));
    say_sample(l, s);
    if (ndp_appended_add(&l->samples.file, add_sample, s) != NDP_OK)
        ndp_warn(&l->trainer->rank.log, "%s. The run goes on, and keeps its samples until they can be written",
                 ndp_error_message());
    return NDP_OK;
}

bool ndp_loop_samples(const ndp_training_loop *l, int64_t step) {
    int every = l->config->train.sample_every;
    return every > 0 && (step % every == 0 || step == l->trainer->rank.data.steps);
}

ndp_status ndp_loop_sample(ndp_training_loop *l, int64_t step) {
    const ndp_strings *prompts = &l->config->train.sample_prompts;
    int32_t *ids = malloc((size_t)l->config->data.sequence_length * sizeof *ids);
    ndp_status st =
        ndp_agree(l->trainer->rank.world, ids ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a text"));
    for (int i = 0; i < prompts->n && st == NDP_OK; i++) {
        sample s = {.step = step, .prompt = prompts->items[i]};
        st = generate(l, &l->samples.prompts[i], ids, &s);
        if (st == NDP_OK && l->first)
            st = write_sample(l, &s);
        ndp_str_release(&s.text);
    }
    free(ids);
    return l->trainer->rank.apart ? st : ndp_agree(l->trainer->rank.world, st);
}
