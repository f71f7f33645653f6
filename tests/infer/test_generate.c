/* ndp_generate: the cache against recomputing everything, choosing, text as it comes, how a text ends; and against
 * llama2.c on trained models. */
#include "guarded.h"
#include "train/tiny_model.h"

#include "base/json.h"
#include "infer/cached.h"
#include "infer/choose.h"
#include "infer/text_stream.h"
#include <math.h>

/* What ndp_generate emitted. */
typedef struct heard {
    ndp_ids ids;
    ndp_str text;
    int64_t most; /* refuses after so many; 0: none */
} heard;

static bool hear(void *user, int32_t id, const char *text) {
    heard *h = user;
    assert_int_equal(ndp_utf8_valid_prefix(text, strlen(text)), strlen(text));
    CHECK_OK(ndp_ids_add(&h->ids, id));
    ndp_str_add(&h->text, text);
    return h->ids.n != h->most;
}

static void forget(heard *h) {
    ndp_ids_release(&h->ids);
    ndp_str_release(&h->text);
}

static ndp_generate_opts options(const char *folder, const char *prompt, int max_tokens) {
    ndp_generate_opts o = NDP_GENERATE_OPTS_INIT;
    o.model = folder, o.prompt = prompt, o.max_tokens = max_tokens, o.threads = 2;
    return o;
}

static heard generate(ndp_generate_opts o) {
    heard h = {0};
    CHECK_OK(ndp_generate(&o, hear, &h));
    return h;
}

/* ---- the cache ---- */

/* A folder whose engines are on a guard. */
static void open_guarded(ndp_infer *f, const char *folder, const char *device, int threads) {
    CHECK_OK(ndp_infer_init(f, folder, device, threads));
    f->exec.device = guarded(f->exec.device);
}

static void close_guarded(ndp_infer *f) {
    unguard(f->exec.device);
    ndp_infer_release(f);
}

typedef struct rows {
    float *logits; /* [n,V] */
} rows;

static void keep_row(void *user, int64_t position, const float *logits) {
    memcpy(((rows *)user)->logits + position * TINY_VOCAB, logits, TINY_VOCAB * sizeof *logits);
}

/* Logits of all positions, the text fed in `parts` (0 at the end): single tokens as the next ones, others through
 * chunks of `chunk`. */
static void feed_parts(const ndp_infer *f, const int32_t *ids, const int64_t *parts, int64_t longest, int64_t chunk,
                       rows *out) {
    ndp_cached c;
    CHECK_OK(ndp_cached_init(&c, f, 1, longest, chunk, ""));
    for (; *parts; ids += *parts++)
        if (*parts == 1) {
            CHECK_OK(ndp_cached_next(&c, ids));
            CHECK_OK(ndp_cached_logits(&c, 0, c.logits));
            keep_row(out, c.used[0] - 1, c.logits);
        } else {
            CHECK_OK(ndp_cached_feed(&c, 0, ids, *parts, keep_row, out));
        }
    ndp_cached_release(&c);
}

static double nll_of(const float *logits, int32_t label) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < TINY_VOCAB; i++)
        sum += exp(logits[i] - max);
    return log(sum) + max - logits[label];
}

/* The training engine's loss of token `t` alone. */
static double train_nll(ndp_engine *e, const int32_t *ids, int64_t n, int64_t t) {
    int32_t labels[256];
    assert_in_range(n, 1, NDP_COUNT(labels));
    ndp_step_result r;
    for (int64_t i = 0; i < n; i++)
        labels[i] = i == t ? ids[i + 1] : -1;
    CHECK_OK(ndp_engine_load(e, 0, &(ndp_micro_batch){.tokens = ids, .labels = labels}));
    CHECK_OK(ndp_engine_step(e, 0, 0, false, &r));
    return r.loss;
}

/* However a text is cut, its logits are those of one run over it, and those of the training engine. */
static void every_cut_has_the_same_logits(void **state) {
    enum { N = 150 };
    static const int64_t cuts[][8] = {{N},          {1, 149}, {64, 64, 22},  {65, 63, 1, 1, 20},
                                      {20, 1, 129}, {149, 1}, {3, 70, 70, 7}};
    ndp_infer f;
    int32_t ids[N + 1];
    for (int i = 0; i <= N; i++)
        ids[i] = (i * 37 + i * i % 11) % TINY_VOCAB;
    rows want = {malloc(N * TINY_VOCAB * sizeof(float))}, got = {malloc(N * TINY_VOCAB * sizeof(float))};
    open_guarded(&f, *state, "cpu", 2);
    feed_parts(&f, ids, cuts[0], N, N, &want);
    for (int k = 0; k < NDP_COUNT(cuts); k++) {
        feed_parts(&f, ids, cuts[k], N, 64, &got);
        for (int i = 0; i < N * TINY_VOCAB; i++)
            if (!(fabsf(got.logits[i] - want.logits[i]) <= 2e-5f))
                fail_msg("cut %d: logit %d of position %d is %g, not %g", k, i % TINY_VOCAB, i / TINY_VOCAB,
                         (double)got.logits[i], (double)want.logits[i]);
    }
    ndp_model m;
    ndp_engine *e = tiny_engine(&f, NDP_MODEL_TRAIN, N, &m);
    CHECK_OK(ndp_weights_load(e, *state));
    for (int t = 0; t < N; t += 7)
        assert_true(fabs(train_nll(e, ids, N, t) - nll_of(want.logits + t * TINY_VOCAB, ids[t + 1])) < 2e-5);
    ndp_engine_destroy(e);
    ndp_model_release(&m);
    close_guarded(&f);
    free(want.logits);
    free(got.logits);
}

/* The second engine's weights are those of the first, not a copy. */
static void weights_are_held_once(void **state) {
    ndp_infer f;
    ndp_cached c;
    open_guarded(&f, *state, "cpu", 1);
    CHECK_OK(ndp_cached_init(&c, &f, 1, 10, 8, ""));
    for (int b = 0; b < c.next_model.n_buffers; b++) {
        float written = 1.25f + (float)b, seen = 0;
        CHECK_OK(ndp_engine_write(c.chunk, NDP_OWNED_MASTER, b, 3, 1, 1, &written));
        CHECK_OK(ndp_engine_read(c.next, NDP_OWNED_MASTER, b, 3, 1, 1, &seen));
        assert_true(seen == written);
    }
    ndp_model m;
    ndp_engine *none = NULL;
    ndp_model_opts opts = {.mode = NDP_MODEL_TRAIN, .rows = 4, .positions = 4, .compute = NDP_F32, .master = NDP_F32};
    CHECK_OK(ndp_decoder_build(f.facts, &opts, &m));
    CHECK_FAILS(ndp_infer_engine(&f, &m, c.chunk, &none), NDP_EBUG, "cannot read those"); /* training changes weights */
    assert_null(none);
    ndp_model_release(&m);
    ndp_cached_release(&c);
    close_guarded(&f);
}

/* Greedy tokens, with everything computed anew for every token. */
static void greedy_anew(const char *folder, const char *prompt, const char *device, int64_t n, ndp_ids *ids) {
    ndp_infer f;
    rows all = {malloc((TINY_LONGEST + 1) * TINY_VOCAB * sizeof(float))};
    open_guarded(&f, folder, device, 1);
    CHECK_OK(ndp_infer_encode(&f, prompt, strlen(prompt), true, ids));
    for (int64_t k = 0; k < n; k++) {
        int32_t id;
        feed_parts(&f, ids->items, (int64_t[]){ids->n, 0}, ids->n, ids->n, &all);
        CHECK_OK(ndp_choose(&(ndp_choice){0}, all.logits + (ids->n - 1) * TINY_VOCAB, TINY_VOCAB, 0, NULL, &id));
        CHECK_OK(ndp_ids_add(ids, id));
    }
    free(all.logits);
    close_guarded(&f);
}

static void generate_equals_computing_anew(void **state) {
    static const char *const prompts[] = {
        "", "a", "A prompt of more than sixty-four tokens, which takes two chunks of the graph."};
    for (int i = 0; i < NDP_COUNT(prompts); i++)
        for (int ref = 0; ref < 2; ref++) {
            ndp_generate_opts o = options(*state, prompts[i], 40);
            o.device = ref ? "ref" : "cpu";
            heard h = generate(o);
            ndp_ids want = {0};
            greedy_anew(*state, prompts[i], o.device, h.ids.n, &want);
            assert_true(h.ids.n == 40 || h.ids.items[h.ids.n - 1] == TINY_BOS);
            assert_int_equal(want.n, h.ids.n + 1 + (int64_t)strlen(prompts[i])); /* BOS, prompt, what was generated */
            assert_memory_equal(want.items + want.n - h.ids.n, h.ids.items, (size_t)h.ids.n * sizeof(int32_t));
            ndp_ids_release(&want);
            forget(&h);
        }
}

/* ---- how a text ends ---- */

static bool ends_with(const heard *h, int32_t a, int32_t b) {
    int32_t last = h->ids.items[h->ids.n - 1];
    return last == a || last == b;
}

static void ends(void **state) {
    heard h = generate(options(*state, "abc", 12));
    assert_int_equal(h.ids.n, 12);
    int32_t fifth = h.ids.items[4];
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(h.ids.items[i], fifth); /* or the next ones test less */
    forget(&h);

    ndp_generate_opts o = options(*state, "abc", 12);
    h = (heard){.most = 3};
    CHECK_OK(ndp_generate(&o, hear, &h));
    assert_int_equal(h.ids.n, 3);
    forget(&h);

    char eos[64];
    snprintf(eos, sizeof eos, "[%d, %d]", (fifth + 1) % 256, fifth); /* any of a list */
    tiny_write_config(*state, eos);
    heard stopped = generate(options(*state, "abc", 12));
    assert_true(stopped.ids.n <= 5 && ends_with(&stopped, fifth, (fifth + 1) % 256));
    forget(&stopped);

    tiny_write_config(*state, "null");
    snprintf(eos, sizeof eos, "{\"eos_token_id\": %d}", fifth);
    tiny_write(*state, "generation_config.json", eos);
    h = generate(options(*state, "abc", 12));
    assert_int_equal(h.ids.n, 5);
    assert_int_equal(h.ids.items[4], fifth);
    forget(&h);
    tiny_write(*state, "generation_config.json", "{\"eos_token_id\": \"x\"}");
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EFORMAT, "generation_config.json: \"eos_token_id\"");
}

static void ends_at_the_longest_position(void **state) {
    char prompt[TINY_LONGEST + 1];
    memset(prompt, 'p', sizeof prompt);
    prompt[TINY_LONGEST - 5] = '\0'; /* with BOS there is room for 4 */
    heard h = generate(options(*state, prompt, 100));
    assert_int_equal(h.ids.n, 4);
    forget(&h);
    prompt[TINY_LONGEST - 5] = 'p', prompt[TINY_LONGEST - 1] = '\0';
    ndp_generate_opts o = options(*state, prompt, 1);
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL,
                "200 tokens, the model's longest text max_position_embeddings 200");
}

static void bad_input(void **state) {
    ndp_generate_opts good = options(*state, "a", 1), o;
    heard h = {0};
    o = good, o.model = NULL;
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "no model");
    o = good, o.model = "/nowhere/at/all";
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "/nowhere/at/all is not a folder");
    o = good, o.max_tokens = 0;
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "max_tokens is 0");
    o = good, o.temperature = -1;
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "temperature is -1");
    o = good, o.temperature = NAN;
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "temperature is nan");
    o = good, o.top_p = 0;
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "top_p is 0");
    o = good, o.top_p = 1.5;
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "top_p is 1.5");
    o = good, o.prompt = "\xff";
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "UTF-8");
    tiny_write_tokenizer(*state, false);
    o = good, o.prompt = "";
    CHECK_FAILS(ndp_generate(&o, hear, &h), NDP_EINVAL, "the prompt is empty");
    assert_int_equal(h.ids.n, 0);
}

/* ---- choosing ---- */

static void greedy_takes_the_lowest_of_equals(void **state) {
    (void)state;
    const float logits[] = {1, 3, 2, 3, 3}, nans[] = {NAN, 1}, infinite[] = {0, INFINITY};
    int32_t id;
    CHECK_OK(ndp_choose(&(ndp_choice){0}, logits, 5, 0, NULL, &id));
    assert_int_equal(id, 1);
    CHECK_FAILS(ndp_choose(&(ndp_choice){0}, nans, 2, 7, NULL, &id), NDP_EINVAL, "position 7 are not finite");
    CHECK_FAILS(ndp_choose(&(ndp_choice){0}, infinite, 2, 7, NULL, &id), NDP_EINVAL, "not finite");
}

enum { DRAWS = 40000, KINDS = 5 };

/* How often each of five tokens is drawn over many positions, against its probability. */
static void check_shares(ndp_choice c, const float *logits, const double *want) {
    ndp_candidate room[KINDS];
    int count[KINDS] = {0};
    for (int p = 0; p < DRAWS; p++) {
        int32_t id, again;
        CHECK_OK(ndp_choose(&c, logits, KINDS, p, room, &id));
        CHECK_OK(ndp_choose(&c, logits, KINDS, p, room, &again));
        assert_int_equal(id, again);
        count[id]++;
    }
    for (int i = 0; i < KINDS; i++) {
        double sigma = sqrt(want[i] * (1 - want[i]) / DRAWS);
        if (!(fabs((double)count[i] / DRAWS - want[i]) <= 5 * sigma))
            fail_msg("token %d is drawn %d times of %d, its probability is %g", i, count[i], DRAWS, want[i]);
    }
}

static void draws_have_their_probabilities(void **state) {
    (void)state;
    const double p[KINDS] = {0.1, 0.4, 0.2, 0.05, 0.25};
    float logits[KINDS];
    for (int i = 0; i < KINDS; i++)
        logits[i] = (float)(3 + log(p[i]));
    check_shares((ndp_choice){1, 1, 42, 0}, logits, p);
    check_shares((ndp_choice){1, 0.8, 42, 0}, logits, (double[]){0, 0.4 / 0.85, 0.2 / 0.85, 0, 0.25 / 0.85});
    check_shares((ndp_choice){1, 0.3, 42, 0}, logits, (double[]){0, 1, 0, 0, 0});
    double sum = 0, hot[KINDS];
    for (int i = 0; i < KINDS; i++)
        sum += sqrt(p[i]);
    for (int i = 0; i < KINDS; i++)
        hot[i] = sqrt(p[i]) / sum;
    check_shares((ndp_choice){2, 1, 7, 0}, logits, hot);
    check_shares((ndp_choice){1e-9, 1, 7, 0}, logits, (double[]){0, 1, 0, 0, 0});
}

static void the_seed_decides(void **state) {
    ndp_generate_opts o = options(*state, "seed", 30);
    o.temperature = 1;
    heard a = generate(o), b = generate(o);
    o.seed = 43;
    heard c = generate(o);
    assert_int_equal(a.ids.n, b.ids.n);
    assert_memory_equal(a.ids.items, b.ids.items, (size_t)a.ids.n * sizeof(int32_t));
    assert_true(a.ids.n != c.ids.n || memcmp(a.ids.items, c.ids.items, (size_t)a.ids.n * sizeof(int32_t)) != 0);
    forget(&a), forget(&b), forget(&c);
}

/* ---- text as it comes ---- */

/* Streams ids; '|' stands behind the text of each token, '$' before what the end brings. */
static void check_stream(const ndp_tokenizer *t, bool begun, const int32_t *ids, int64_t n, const char *want) {
    ndp_text_stream s;
    ndp_str out = {0};
    CHECK_OK(ndp_text_stream_init(&s, t, begun));
    for (int64_t i = 0; i < n; i++) {
        CHECK_OK(ndp_text_stream_add(&s, ids[i], &out));
        ndp_str_add(&out, "|");
    }
    ndp_str_add(&out, "$");
    CHECK_OK(ndp_text_stream_end(&s, &out));
    assert_string_equal(out.data, want);
    ndp_text_stream_release(&s);
    ndp_str_release(&out);
}

#define STREAM(t, begun, want, ...)                                                                                    \
    check_stream(t, begun, (const int32_t[]){__VA_ARGS__}, NDP_COUNT(((const int32_t[]){__VA_ARGS__})), want)

static void text_comes_in_whole_characters(void **state) {
    ndp_tokenizer *t;
    CHECK_OK(ndp_tokenizer_create(*state, &t));
    for (int begun = 0; begun < 2; begun++) {
        STREAM(t, begun, "a|b|$", 'a', 'b');
        STREAM(t, begun, "|é|z|$", 0xc3, 0xa9, 'z');
        STREAM(t, begun, "|||😀|$", 0xf0, 0x9f, 0x98, 0x80);
        STREAM(t, begun, "|a|$", TINY_BOS, 'a');                   /* <s> leaves none */
        STREAM(t, begun, "|||�abc|d|$", 0xff, 'a', 'b', 'c', 'd'); /* one bad byte costs no others */
        STREAM(t, begun, "||$��", 0xe2, 0x82);                     /* a character that never became whole */
        STREAM(t, begun, "|||�|�abc|$", 0xe2, 0x82, 'a', 'b', 'c');
    }
    ndp_tokenizer_destroy(t);
}

/* The pieces of a text are the text, for tokenizers that treat its beginning differently. */
static void pieces_make_the_text(void **state) {
    (void)state;
    static const char *const texts[] = {"Once upon a time, there was a girl.", " two  spaces",
                                        "naïve café 😀🎉 日本語\n\tok", "a"};
    char *folder = reference_path("pieces_make_the_text", "models/stories15M");
    if (!folder)
        skip();
    ndp_tokenizer *t;
    CHECK_OK(ndp_tokenizer_create(folder, &t));
    free(folder);
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        ndp_ids ids = {0};
        ndp_str out = {0};
        ndp_text_stream s;
        CHECK_OK(ndp_tokenizer_encode(t, texts[i], strlen(texts[i]), true, &ids));
        CHECK_OK(ndp_text_stream_init(&s, t, false));
        for (int64_t k = 0; k < ids.n; k++)
            CHECK_OK(ndp_text_stream_add(&s, ids.items[k], &out));
        assert_string_equal(out.data, texts[i]);
        ndp_text_stream_release(&s);
        ndp_str_release(&out);
        ndp_ids_release(&ids);
    }
    ndp_tokenizer_destroy(t);
}

/* ---- trained models, against llama2.c ---- */

typedef struct reference {
    const char *name, *folder;
    struct json_object *record, *prompt_ids, *greedy_ids;
    int number;
} reference;

static int32_t at(struct json_object *list, int64_t i) {
    return json_object_get_int(json_object_array_get_idx(list, (size_t)i));
}

typedef struct pair {
    int32_t a, b;
    int64_t position;
    float difference;
} pair;

static void see_pair(void *user, int64_t position, const float *logits) {
    pair *p = user;
    if (position == p->position)
        p->difference = fabsf(logits[p->a] - logits[p->b]);
}

/* Where this program takes another token, it must have been a near-tie; from there on the texts differ. */
static void check_tie(const reference *r, const ndp_ids *got, int64_t k) {
    ndp_infer f;
    ndp_cached c;
    ndp_ids ids = {0};
    pair p = {got->items[k], at(r->greedy_ids, k), (int64_t)json_object_array_length(r->prompt_ids) + k - 1, INFINITY};
    for (int64_t i = 0; i <= p.position; i++) {
        int64_t prompt = (int64_t)json_object_array_length(r->prompt_ids);
        CHECK_OK(ndp_ids_add(&ids, i < prompt ? at(r->prompt_ids, i) : got->items[i - prompt]));
    }
    CHECK_OK(ndp_infer_init(&f, r->folder, "cpu", 2));
    CHECK_OK(ndp_cached_init(&c, &f, 1, ids.n, 64, ""));
    CHECK_OK(ndp_cached_feed(&c, 0, ids.items, ids.n, see_pair, &p));
    if (!(p.difference <= 1e-4f))
        fail_msg("%s prompt %d token %lld: %d, llama2.c says %d, whose logit is %g away", r->name, r->number,
                 (long long)k, p.a, p.b, (double)p.difference);
    print_message("%s prompt %d token %lld: near-tie of %d and %d, %g apart\n", r->name, r->number, (long long)k, p.a,
                  p.b, (double)p.difference);
    ndp_cached_release(&c);
    ndp_infer_release(&f);
    ndp_ids_release(&ids);
}

static void compare_greedy(const reference *r, const char *device) {
    const char *prompt = json_object_get_string(json_object_object_get(r->record, "prompt"));
    int64_t n = (int64_t)json_object_array_length(r->greedy_ids), same = 0;
    ndp_generate_opts o = options(r->folder, prompt, (int)n);
    o.device = device;
    heard h = generate(o);
    while (same < n && same < h.ids.n && h.ids.items[same] == at(r->greedy_ids, same))
        same++;
    if (same < n) {
        assert_true(same < h.ids.n);
        check_tie(r, &h.ids, same);
    } else {
        /* the text behind the prompt; the reference decodes it alone and writes the ending token */
        const char *want = json_object_get_string(json_object_object_get(r->record, "text"));
        const char *got = h.text.data + (h.text.data[0] == ' ' && want[0] != ' ');
        assert_int_equal(h.ids.n, n);
        assert_memory_equal(got, want, strlen(got));
        const char *rest = want + strlen(got);
        assert_true(*rest == '\0' || strcmp(rest, "<s>") == 0);
    }
    print_message("%s prompt %d on %s: %lld of %lld tokens equal\n", r->name, r->number, device, (long long)same,
                  (long long)n);
    forget(&h);
}

/* The first `prompts` of the five. */
static void against_llama2c(const char *name, const char *device, int prompts) {
    char below[64];
    snprintf(below, sizeof below, "models/%s", name);
    char *folder = reference_path(name, below), *text = NULL;
    snprintf(below, sizeof below, "conformance/models/%s.greedy.jsonl", name);
    char *path = reference_path(name, below);
    size_t size;
    bool there = folder && path;
    if (there)
        CHECK_OK(ndp_file_read(path, &text, &size));
    reference r = {.name = name, .folder = folder};
    char *rest = text;
    for (char *line; r.number < prompts && (line = strsep(&rest, "\n")) && *line; r.number++) {
        CHECK_OK(ndp_json_parse(line, strlen(line), path, &r.record));
        r.prompt_ids = json_object_object_get(r.record, "prompt_ids");
        r.greedy_ids = json_object_object_get(r.record, "greedy_ids");
        compare_greedy(&r, device);
        json_object_put(r.record);
    }
    assert_true(!there || r.number == prompts);
    free(text);
    free(folder);
    free(path);
    if (!there)
        skip();
}

static void stories260K(void **state) {
    (void)state;
    against_llama2c("stories260K", "cpu", 5);
    against_llama2c("stories260K", "ref", 2);
}

static void stories15M(void **state) {
    (void)state;
    against_llama2c("stories15M", "cpu", 5);
}

#define TINY(test) cmocka_unit_test_setup_teardown(test, tiny_setup, tiny_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TINY(every_cut_has_the_same_logits),
        TINY(weights_are_held_once),
        TINY(generate_equals_computing_anew),
        TINY(ends),
        TINY(ends_at_the_longest_position),
        TINY(bad_input),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(draws_have_their_probabilities),
        TINY(the_seed_decides),
        TINY(text_comes_in_whole_characters),
        cmocka_unit_test(pieces_make_the_text),
        cmocka_unit_test(stories260K),
        cmocka_unit_test(stories15M),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
