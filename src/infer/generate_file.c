/* Continues the prompts of a file, several at a time, and hands out a line for each, in their order. */
#include "infer/prompts.h"
#include "infer/slots.h"

#include "base/clock.h"
#include "base/json_write.h"
#include "base/memory_limit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BY_DEFAULT = 16 };

typedef struct batch {
    ndp_generator generator;
    ndp_prompts prompts;
    ndp_slots slots;
    ndp_str *texts; /* [prompts] as far as they are; once they ended, and until they are emitted, their lines */
    bool *ended;
    int64_t emitted, longest, tokens;
    bool (*emit)(void *user, const char *line, size_t length);
    void *user;
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
        ndp_text_cache_bytes(&(ndp_text_cache){1, b->longest, NDP_CHUNK_ROWS}, f) + f->vocab * (int64_t)sizeof(float);
    int64_t n = ndp_memory_available() / 4 / each;
    return n < 1 ? 1 : n > MOST_BY_DEFAULT ? MOST_BY_DEFAULT : n;
}

static ndp_status prepare_batch(batch *b, int wanted) {
    find_longest(b);
    int64_t n = wanted ? wanted : default_batch(b);
    n = n < b->prompts.n ? n : b->prompts.n;
    NDP_CHECK(n <= INT32_MAX / (b->longest + 2 * NDP_CHUNK_ROWS),
              "a batch of %lld texts of %lld tokens is more than 2^31 rows; lower --batch", (long long)n,
              (long long)b->longest);
    b->slots.texts = b->prompts.n;
    NDP_TRY(ndp_slots_init(&b->slots, n, b->longest, "Use a smaller model, or lower --batch or --max-tokens"));
    b->texts = calloc((size_t)b->prompts.n, sizeof *b->texts);
    b->ended = calloc((size_t)b->prompts.n, sizeof *b->ended);
    return NDP_MEMORY(b->texts && b->ended, "for %lld texts", (long long)b->prompts.n);
}

/* ---- results ---- */

static ndp_status make_line(batch *b, int64_t k, const ndp_answer *a) {
    ndp_str line = {0};
    const char *id = b->prompts.items[k].id;
    ndp_str_addf(&line, "{\"index\": %lld, ", (long long)k);
    if (id)
        ndp_str_addf(&line, "\"id\": %s, ", id);
    ndp_str_add(&line, "\"text\": ");
    ndp_json_quote(&line, b->texts[k].data ? b->texts[k].data : "");
    ndp_str_addf(&line, ", \"tokens\": %lld, \"finish\": \"%s\"}", (long long)a->tokens,
                 a->finish == NDP_FINISH_STOP ? "stop" : "length");
    ndp_str_release(&b->texts[k]);
    b->texts[k] = line;
    b->ended[k] = true;
    return NDP_MEMORY(!line.failed, "for a result");
}

static ndp_text_prompt prompt_of(void *user, int64_t k) {
    const batch *b = user;
    const ndp_ids *ids = &b->prompts.items[k].ids;
    int64_t most = b->generator.opts->max_tokens, room = b->longest - ids->n;
    return (ndp_text_prompt){*ids, (uint64_t)k, most < room ? most : room};
}

static ndp_status take_token(void *user, int64_t k, const ndp_answer *a, int32_t id, bool *stop) {
    batch *b = user;
    (void)id;
    ndp_str_add(&b->texts[k], a->text.data);
    NDP_TRY(b->texts[k].failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory for a text") : NDP_OK);
    if (!a->ended)
        return NDP_OK;
    NDP_TRY(make_line(b, k, a));
    b->tokens += a->tokens;
    for (; !*stop && b->emitted < b->prompts.n && b->ended[b->emitted]; b->emitted++) {
        *stop = !b->emit(b->user, b->texts[b->emitted].data, b->texts[b->emitted].length);
        ndp_str_release(&b->texts[b->emitted]);
    }
    return NDP_OK;
}

static void release_batch(batch *b) {
    for (int64_t i = 0; b->texts && i < b->prompts.n; i++)
        ndp_str_release(&b->texts[i]);
    free(b->texts);
    free(b->ended);
    ndp_slots_release(&b->slots);
    ndp_prompts_release(&b->prompts);
    ndp_generator_release(&b->generator);
}

ndp_status ndp_generate_file(const ndp_generate_opts *o, const char *file, int size,
                             bool (*emit)(void *user, const char *line, size_t length), void *user,
                             ndp_generated *out) {
    NDP_NOT_NULL(o, file, emit, out);
    batch b = {.emit = emit, .user = user};
    b.slots = (ndp_slots){.generator = &b.generator, .prompt = prompt_of, .token = take_token, .user = &b};
    NDP_CHECK(size >= 0, "a batch of %d; give 1 or more, or 0 to choose by memory", size);
    NDP_TRY(ndp_generator_init(&b.generator, o));
    ndp_status st = ndp_prompts_read(&b.prompts, &b.generator.infer, o->chat_template, file);
    if (st == NDP_OK)
        st = prepare_batch(&b, size);
    double began = ndp_now();
    if (st == NDP_OK)
        st = ndp_slots_run(&b.slots, INFINITY);
    if (st == NDP_OK)
        *out = (ndp_generated){b.prompts.n, b.tokens, (int)b.slots.n, ndp_now() - began};
    release_batch(&b);
    return st;
}
