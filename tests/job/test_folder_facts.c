/* ndp_folder_facts: whether a head that the configuration ties is tied, decided as transformers does (folder_facts.h).
 */
#include "base/text.h"
#include "check.h"
#include "checkpoint/folder.h"
#include "job/folder_facts.h"
#include "model/decoder.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { VOCAB = 700, HIDDEN = 8, ELEMENTS = VOCAB * HIDDEN }; /* more than one block of the comparison */

static const char config[] = "{\"model_type\": \"llama\", \"vocab_size\": 700, \"hidden_size\": 8, "
                             "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 8, "
                             "\"max_position_embeddings\": 16, \"tie_word_embeddings\": %s}";
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 700, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2, "
    "\"n_positions\": 16}";

static void put_text(const char *folder, const char *name, const char *text) {
    char *path = ndp_format("%s/%s", folder, name);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(path);
}

static void put_config(const char *folder, const char *tied) {
    char *text = ndp_format(config, tied);
    put_text(folder, "config.json", text);
    free(text);
}

static int make_folder(void **state) {
    char *folder = strdup("/tmp/ndp-facts-XXXXXX");
    *state = folder;
    if (!folder || !mkdtemp(folder))
        return -1;
    put_config(folder, "true");
    return 0;
}

static int drop_folder(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

/* Quarters, which all types hold exactly. */
static double value_at(int64_t i) { return (double)(i % 13 - 6) / 4; }

/* Two tensors; the head has value `other` at `place` (-1: nowhere). NULL: no such tensor. */
typedef struct pair {
    const char *tokens, *head;
    ndp_dtype tokens_type, head_type;
    int64_t head_rows, place;
    double other;
} pair;

static const pair equal = {"model.embed_tokens.weight", "lm_head.weight", NDP_F32, NDP_F32, VOCAB, -1, 0};

static void put_pair(const char *folder, const pair *p, int64_t shard_bytes) {
    ndp_tensor_spec specs[2];
    ndp_file_piece pieces[2];
    int n = 0;
    double values[2][ELEMENTS + HIDDEN];
    for (int64_t i = 0; i < ELEMENTS + HIDDEN; i++)
        values[0][i] = values[1][i] = value_at(i);
    if (p->place >= 0)
        values[1][p->place] = p->other;
    for (int t = 0; t < 2; t++) {
        int64_t rows = t ? p->head_rows : VOCAB;
        if (!(t ? p->head : p->tokens))
            continue;
        specs[n] =
            (ndp_tensor_spec){t ? p->head : p->tokens, t ? p->head_type : p->tokens_type, 2, {rows, HIDDEN}, NULL};
        pieces[n] = (ndp_file_piece){n, 0, rows * HIDDEN, values[t], NDP_F64, 1, NULL, 0};
        n++;
    }
    CHECK_OK(ndp_weights_save(NULL, NULL, folder, specs, n, pieces, n, shard_bytes));
}

static void expect(const char *folder, bool own) {
    ndp_model_spec s;
    const ndp_facts *f;
    CHECK_OK(ndp_folder_facts(folder, NULL, &s));
    CHECK_OK(ndp_spec_decoder(&s, "a test", &f));
    assert_true(f->tied == !own && s.own_head == own);
    assert_true((ndp_head_note(&s) != NULL) == own);
    assert_true(s.architecture->ignores(s.facts, "lm_head.weight") == !own);
    int64_t block = 4 * HIDDEN * HIDDEN + 3 * HIDDEN * 8 + 2 * HIDDEN;
    assert_int_equal(s.parameters, (own ? 2 : 1) * ELEMENTS + block + HIDDEN);
    ndp_model_spec_release(&s);
}

static void check_pair(const char *folder, pair p, bool own) {
    put_pair(folder, &p, NDP_SHARD_BYTES);
    expect(folder, own);
}

/* ---- values ---- */

static void equal_heads_are_tied(void **state) {
    check_pair(*state, equal, false);
    pair p = equal;
    p.head = NULL;
    check_pair(*state, p, false);
}

static void one_value_is_enough(void **state) {
    static const int64_t places[] = {0, 4095, 4096, ELEMENTS - 1};
    for (int i = 0; i < NDP_COUNT(places); i++) {
        pair p = equal;
        p.place = places[i], p.other = value_at(places[i]) + 1.0 / 1024;
        check_pair(*state, p, true);
    }
}

static void types_do_not_matter(void **state) {
    static const ndp_dtype types[] = {NDP_F64, NDP_F32, NDP_BF16, NDP_F16};
    for (int i = 0; i < NDP_COUNT(types); i++)
        for (int k = 0; k < NDP_COUNT(types); k++) {
            pair p = equal;
            p.tokens_type = types[i], p.head_type = types[k];
            check_pair(*state, p, false);
            p.place = 5, p.other = value_at(5) + 1;
            check_pair(*state, p, true);
        }
    pair p = equal; /* what a narrower type would round away is a difference */
    p.tokens_type = NDP_BF16, p.place = 0, p.other = value_at(0) * (1 + 1e-5);
    check_pair(*state, p, true);
    p.tokens_type = p.head_type = NDP_F64, p.other = value_at(0) * (1 + 1e-12);
    check_pair(*state, p, true);
}

/* 0 equals -0, and NaN nothing: value_at(6) is 0. */
static void odd_values(void **state) {
    pair p = equal;
    p.place = 6, p.other = -0.0;
    check_pair(*state, p, false);
    p.other = NAN;
    check_pair(*state, p, true);
}

/* ---- names and files ---- */

static void bare_names(void **state) {
    pair p = equal;
    p.tokens = "embed_tokens.weight";
    check_pair(*state, p, false);
    p.place = 9, p.other = 3;
    check_pair(*state, p, true);
}

static void names_of_gpt2(void **state) {
    static const char *const names[] = {"transformer.wte.weight", "wte.weight"};
    ndp_model_spec s;
    put_text(*state, "config.json", gpt2); /* tied where it does not say */
    for (int i = 0; i < NDP_COUNT(names); i++)
        for (int own = 0; own < 2; own++) {
            pair p = equal;
            p.tokens = names[i], p.place = own ? 9 : -1, p.other = 3;
            put_pair(*state, &p, NDP_SHARD_BYTES);
            CHECK_OK(ndp_folder_facts(*state, NULL, &s));
            assert_true(s.own_head == own && ((const ndp_facts *)s.facts)->tied == !own);
            ndp_model_spec_release(&s);
        }
}

static void shards(void **state) {
    pair p = equal;
    put_pair(*state, &p, 1000);
    expect(*state, false);
    p.place = 9, p.other = 3;
    put_pair(*state, &p, 1000);
    expect(*state, true);
    put_pair(*state, &p, NDP_SHARD_BYTES);
    char *from = ndp_format("%s/model.safetensors", (char *)*state),
         *to = ndp_format("%s/all.safetensors", (char *)*state);
    assert_int_equal(rename(from, to), 0); /* the head is in a shard, but the index does not name it */
    put_text(*state, "model.safetensors.index.json",
             "{\"weight_map\": {\"model.embed_tokens.weight\": \"all.safetensors\"}}");
    expect(*state, true);
    free(from), free(to);
}

/* ---- what decides nothing ---- */

static void without_weights(void **state) { expect(*state, false); }

/* An untied configuration opens no weights, whatever they are. */
static void an_untied_configuration(void **state) {
    ndp_model_spec s;
    put_config(*state, "false");
    put_text(*state, "model.safetensors", "no such file");
    CHECK_OK(ndp_folder_facts(*state, NULL, &s));
    assert_true(!s.tie[0][0] && !s.own_head && !ndp_head_note(&s));
    ndp_model_spec_release(&s);
}

/* A missing embedding is for the loader to say. */
static void without_an_embedding(void **state) {
    pair p = equal;
    p.tokens = "model.norm.weight";
    check_pair(*state, p, false);
}

/* ---- what is refused ---- */

static void bad_folders(void **state) {
    ndp_model_spec f = {.hidden = 77};
    pair p = equal;
    p.head_rows = VOCAB + 1; /* a padded vocabulary */
    put_pair(*state, &p, NDP_SHARD_BYTES);
    CHECK_FAILS(ndp_folder_facts(*state, NULL, &f), NDP_EFORMAT,
                "lm_head.weight is [701, 8] and model.embed_tokens.weight is [700, 8], but config.json ties them");
    int32_t whole[ELEMENTS] = {0};
    ndp_tensor_spec specs[] = {{equal.tokens, NDP_I32, 2, {VOCAB, HIDDEN}, NULL},
                               {equal.head, NDP_I32, 2, {VOCAB, HIDDEN}, NULL}};
    ndp_file_piece pieces[] = {{0, 0, ELEMENTS, whole, NDP_I32, 1, NULL, 0},
                               {1, 0, ELEMENTS, whole, NDP_I32, 1, NULL, 0}};
    CHECK_OK(ndp_weights_save(NULL, NULL, *state, specs, 2, pieces, 2, NDP_SHARD_BYTES));
    CHECK_FAILS(ndp_folder_facts(*state, NULL, &f), NDP_ENOTSUP, "model.embed_tokens.weight is stored as I32");
    put_text(*state, "model.safetensors", "no such file");
    CHECK_FAILS(ndp_folder_facts(*state, NULL, &f), NDP_EFORMAT, "model.safetensors");
    CHECK_FAILS(ndp_folder_facts("/no/such/folder", NULL, &f), NDP_EINVAL, "/no/such/folder/config.json");
    assert_int_equal(f.hidden, 77);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(equal_heads_are_tied),
        TEST(one_value_is_enough),
        TEST(types_do_not_matter),
        TEST(odd_values),
        TEST(bare_names),
        TEST(names_of_gpt2),
        TEST(shards),
        TEST(without_weights),
        TEST(without_an_embedding),
        TEST(bad_folders),
        TEST(an_untied_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
