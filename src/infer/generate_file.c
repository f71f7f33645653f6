/* Continues the prompts of a file, several at a time: each step computes the next token of every slot. A slot whose
 * text has ended takes the next prompt. A text's tokens depend neither on its slot nor on the texts in the others. */
#include "infer/generator.h"
#include "infer/prompts.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/json_write.h"
#include "base/memory_limit.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_BY_DEFAULT = 16 };

typedef struct slot {
    int64_t prompt; /* -1: none */
    ndp_answer answer;
    ndp_str text;
} slot;

typedef struct batch {
    ndp_generator generator;
    ndp_prompts prompts;
    ndp_cached model;
    slot *slots;
    int32_t *ids; /* [slots] the latest tokens */
    float *logits;
    char **lines; /* [prompts] of those that ended, until they are emitted */
    int64_t n, next, emitted, longest, tokens;
    bool (*emit)(void *user, const char *line, size_t length);
    void *user;
    bool stopped; /* by emit */
} batch;

/* ---- size ---- */

static void find_longest(batch *b) {
    int64_t most = b->generator.infer.facts->max_positions, longest = 0;
    for (int64_t i = 0; i < b->prompts.n; i++)
        longest = b->prompts.items[i].ids.n > longest ? b->prompts.items[i].ids.n : longest;
    int64_t wanted = longest + b->generator.opts->max_tokens;
    b->longest = wanted < most ? wanted : most;
}

/* By default the caches take at most a quarter of the memory that is available. */
static int64_t default_batch(const batch *b) {
    const ndp_facts *f = b->generator.infer.facts;
    int64_t each =
        ndp_cached_bytes(&b->generator.infer, b->longest, NDP_CHUNK_ROWS) + f->vocab * (int64_t)sizeof(float);
    int64_t n = ndp_memory_available() / 4 / each;
    return n < 1 ? 1 : n > MOST_BY_DEFAULT ? MOST_BY_DEFAULT : n;
}

static ndp_status prepare_batch(batch *b, int wanted) {
    find_longest(b);
    b->n = wanted ? wanted : default_batch(b);
    b->n = b->n < b->prompts.n ? b->n : b->prompts.n;
    NDP_CHECK(b->n <= INT32_MAX / (b->longest + 2 * NDP_CHUNK_ROWS),
              "a batch of %lld texts of %lld tokens is more than 2^31 rows; lower --batch", (long long)b->n,
              (long long)b->longest);
    NDP_TRY(ndp_cached_init(&b->model, &b->generator.infer, b->n, b->longest, NDP_CHUNK_ROWS,
                            "Use a smaller model, or lower --batch or --max-tokens"));
    b->slots = calloc((size_t)b->n, sizeof *b->slots);
    b->ids = calloc((size_t)b->n, sizeof *b->ids);
    b->lines = calloc((size_t)b->prompts.n, sizeof *b->lines);
    b->logits = malloc((size_t)b->generator.infer.facts->vocab * sizeof *b->logits);
    for (int64_t i = 0; b->slots && i < b->n; i++)
        b->slots[i].prompt = -1;
    return b->slots && b->ids && b->lines && b->logits
               ? NDP_OK
               : NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld texts", (long long)b->prompts.n);
}

/* ---- results ---- */

static ndp_status make_line(batch *b, const slot *s) {
    ndp_str line = {0};
    const char *id = b->prompts.items[s->prompt].id;
    ndp_str_addf(&line, "{\"index\": %lld, ", (long long)s->prompt);
    if (id)
        ndp_str_addf(&line, "\"id\": %s, ", id);
    ndp_str_add(&line, "\"text\": ");
    ndp_json_quote(&line, s->text.data ? s->text.data : "");
    ndp_str_addf(&line, ", \"tokens\": %lld, \"finish\": \"%s\"}", (long long)s->answer.tokens,
                 s->answer.finish == NDP_FINISH_STOP ? "stop" : "length");
    b->lines[s->prompt] = ndp_str_detach(&line);
    return b->lines[s->prompt] ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a result");
}

static ndp_status end_text(batch *b, slot *s) {
    NDP_TRY(make_line(b, s));
    b->tokens += s->answer.tokens;
    ndp_answer_release(&s->answer);
    s->text.length = 0;
    s->prompt = -1;
    for (; !b->stopped && b->emitted < b->prompts.n && b->lines[b->emitted]; b->emitted++) {
        b->stopped = !b->emit(b->user, b->lines[b->emitted], strlen(b->lines[b->emitted]));
        free(b->lines[b->emitted]);
        b->lines[b->emitted] = NULL;
    }
    return NDP_OK;
}

/* ---- texts ---- */

static ndp_status take_token(batch *b, int64_t i, const float *logits) {
    slot *s = &b->slots[i];
    NDP_TRY(ndp_answer_next(&s->answer, &b->generator, logits, b->model.used[i], &b->ids[i]));
    ndp_str_add(&s->text, s->answer.text.data);
    NDP_TRY(s->text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for a text") : NDP_OK);
    return s->answer.ended ? end_text(b, s) : NDP_OK;
}

/* Gives a free slot the next prompts, until one's answer has more than one token. */
static ndp_status fill_slot(batch *b, int64_t i) {
    while (b->slots[i].prompt < 0 && b->next < b->prompts.n && !b->stopped) {
        int64_t k = b->next++, room = b->longest - b->prompts.items[k].ids.n;
        const ndp_ids *ids = &b->prompts.items[k].ids;
        int64_t most = b->generator.opts->max_tokens < room ? b->generator.opts->max_tokens : room;
        NDP_TRY(ndp_answer_init(&b->slots[i].answer, &b->generator, ids, (uint64_t)k, most));
        b->slots[i].prompt = k;
        b->model.used[i] = 0;
        NDP_TRY(ndp_cached_feed(&b->model, i, ids->items, ids->n, NULL, NULL));
        NDP_TRY(take_token(b, i, b->model.logits));
    }
    return NDP_OK;
}

static ndp_status generate_texts(batch *b) {
    while (b->emitted < b->prompts.n && !b->stopped) {
        for (int64_t i = 0; i < b->n; i++)
            NDP_TRY(fill_slot(b, i));
        if (b->emitted == b->prompts.n || b->stopped)
            break;
        for (int64_t i = 0; i < b->n; i++) /* a free slot computes a row that nothing reads */
            b->model.used[i] = b->slots[i].prompt < 0 ? 0 : b->model.used[i];
        NDP_TRY(ndp_cached_next(&b->model, b->ids));
        for (int64_t i = 0; i < b->n; i++)
            if (b->slots[i].prompt >= 0) {
                NDP_TRY(ndp_cached_logits(&b->model, i, b->logits));
                NDP_TRY(take_token(b, i, b->logits));
            }
    }
    return NDP_OK;
}

static void release_batch(batch *b) {
    for (int64_t i = 0; b->slots && i < b->n; i++) {
        ndp_answer_release(&b->slots[i].answer);
        ndp_str_release(&b->slots[i].text);
    }
    for (int64_t i = 0; b->lines && i < b->prompts.n; i++)
        free(b->lines[i]);
    free(b->lines);
    free(b->slots);
    free(b->ids);
    free(b->logits);
    ndp_cached_release(&b->model);
    ndp_prompts_release(&b->prompts);
    ndp_generator_release(&b->generator);
}

ndp_status ndp_generate_file(const ndp_generate_opts *o, const char *file, int size,
                             bool (*emit)(void *user, const char *line, size_t length), void *user,
                             ndp_generated *out) {
    NDP_NOT_NULL(o, file, emit, out);
    batch b = {.emit = emit, .user = user};
    NDP_CHECK(size >= 0, "a batch of %d; give 1 or more, or 0 to choose by memory", size);
    NDP_TRY(ndp_generator_init(&b.generator, o));
    ndp_status st = ndp_prompts_read(&b.prompts, &b.generator.infer, o->chat_template, file);
    if (st == NDP_OK)
        st = prepare_batch(&b, size);
    double began = ndp_now();
    if (st == NDP_OK)
        st = generate_texts(&b);
    if (st == NDP_OK)
        *out = (ndp_generated){b.prompts.n, b.tokens, (int)b.n, ndp_now() - began};
    release_batch(&b);
    return st;
}
