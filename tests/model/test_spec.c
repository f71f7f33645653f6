/* What other rooms know of a model before it is built: ndp_model_spec, from config.json of decoders. */
#include "base/text.h"
#include "check.h"
#include "model/decoder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char llama[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 50, \"num_hidden_layers\": 3, \"hidden_size\": 12, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 6, "
    "\"intermediate_size\": 17, \"max_position_embeddings\": 64, \"bos_token_id\": 7, "
    "\"eos_token_id\": [9, 8], \"tie_word_embeddings\": true}";
static const char gpt2[] =
    "{\"model_type\": \"gpt2\", \"vocab_size\": 50, \"n_layer\": 2, \"n_embd\": 12, \"n_head\": 4, "
    "\"n_positions\": 20, \"resid_pdrop\": 0.25}";

static ndp_status read_text(const char *text, ndp_model_spec *out) {
    char path[] = "/tmp/ndp-spec-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && close(fd) == 0);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    ndp_status st = ndp_model_spec_read(path, NULL, out);
    unlink(path);
    return st;
}

static void describes_decoders(void **state) {
    ndp_model_spec s;
    (void)state;
    CHECK_OK(read_text(llama, &s));
    assert_true(s.architecture == &ndp_decoder && strcmp(s.type, "llama") == 0 && strcmp(s.prefix, "model.") == 0);
    assert_true(s.vocab == 50 && s.hidden == 12 && s.positions == 64 && !s.learned_positions && s.dropout == 0);
    assert_true(s.layout.heads == 4 && s.layout.kv_heads == 2 && s.layout.layers == 3 && s.bos == 7 && s.eos == 9);
    assert_int_equal(s.largest, 50 * 12);
    int64_t block = 2 * 24 * 12 + 2 * 12 * 12 + 3 * 17 * 12 + 2 * 12;
    assert_int_equal(s.parameters, 50 * 12 + 3 * block + 12);
    ndp_model_spec_release(&s);
    CHECK_OK(read_text(gpt2, &s));
    assert_true(s.learned_positions && s.positions == 20 && s.dropout == 0.25 && s.bos == -1 && s.eos == -1);
    assert_int_equal(s.largest, 2 * 48 * 12);
    ndp_model_spec_release(&s);
}

/* The weights may hold a head of their own, and those of a checkpoint may not. */
static void a_tie_is_undone_and_done_again(void **state) {
    ndp_model_spec s;
    (void)state;
    CHECK_OK(read_text(llama, &s));
    const ndp_facts *f = s.facts;
    int64_t tied = s.parameters;
    for (int i = 0; i < 4; i++) {
        bool own = i % 2 == 0;
        ndp_model_spec_set_own_head(&s, own);
        assert_true(s.own_head == own && f->tied == !own);
        assert_int_equal(s.parameters, own ? tied + 50 * 12 : tied);
        assert_string_equal(s.tie[0], "model.embed_tokens.weight");
        assert_string_equal(s.tie[1], "lm_head.weight");
    }
    ndp_model_spec_release(&s);
    char *untied = ndp_format("%.*s false}", (int)(strstr(llama, "true}") - llama), llama);
    CHECK_OK(read_text(untied, &s));
    ndp_model_spec_set_own_head(&s, true);
    assert_true(!s.own_head && !s.tie[0][0]); /* there was nothing to undo */
    ndp_model_spec_release(&s);
    free(untied);
}

/* Embeddings, of tokens and positions, and tensors of fewer than 4,096 elements as files have them are not coded. */
static void large_tensors_are_coded(void **state) {
    (void)state;
    static const char wide[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 150, \"n_layer\": 1, \"n_embd\": 48, "
                               "\"n_head\": 4, \"n_positions\": 100, \"n_inner\": 86, \"tie_word_embeddings\": false}",
                      norms[] = "{\"model_type\": \"llama\", \"vocab_size\": 150, \"num_hidden_layers\": 1, "
                                "\"hidden_size\": 4096, \"num_attention_heads\": 4, \"intermediate_size\": 1, "
                                "\"max_position_embeddings\": 64}";
    static const struct {
        const char *model, *tensor;
        bool coded;
    } cases[] = {{wide, "transformer.wte.weight", false},
                 {wide, "transformer.wpe.weight", false},
                 {wide, "lm_head.weight", true},
                 {wide, "transformer.h.0.attn.c_attn.weight", true}, /* each part has 2,304 */
                 {wide, "transformer.h.0.attn.c_proj.weight", false},
                 {wide, "transformer.h.0.mlp.c_fc.weight", true}, /* 4,128 */
                 {wide, "transformer.h.0.ln_1.weight", false},
                 {norms, "model.layers.0.input_layernorm.weight", true},
                 {norms, "model.layers.0.mlp.up_proj.weight", true}}; /* 4,096 */
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        const ndp_model_opts o = {.rows = 8, .keys = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
        ndp_facts f;
        ndp_model m;
        int found = 0;
        CHECK_OK(ndp_facts_parse_text(cases[i].model, "wide", &f));
        CHECK_OK(ndp_decoder_build(&f, &o, &m));
        for (int b = 0; b < m.n_buffers; b++)
            for (int k = 0; k < m.buffers[b].segments.n; k++) {
                const ndp_segment *s = &m.buffers[b].segments.items[k];
                if (strcmp(s->name, cases[i].tensor) != 0)
                    continue;
                found++;
                if (s->coded != cases[i].coded)
                    fail_msg("%s is %scoded", s->name, s->coded ? "" : "not ");
            }
        if (found == 0)
            fail_msg("there is no %s", cases[i].tensor);
        ndp_model_release(&m);
    }
}

static void keep_positions(void *user, const ndp_fact *fact) {
    if (strcmp(fact->key, "max_position_embeddings") == 0)
        *(bool *)user = fact->shape;
}

/* Learned positions are a table: another number of them is another shape. */
static void positions_may_be_a_shape(void **state) {
    ndp_model_spec s;
    bool shape[2] = {true, false};
    (void)state;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(read_text(i ? gpt2 : llama, &s));
        s.architecture->list(s.facts, keep_positions, &shape[i]);
        ndp_model_spec_release(&s);
    }
    assert_true(!shape[0] && shape[1]);
}

static void keep_window(void *user, const ndp_fact *fact) {
    if (strcmp(fact->key, "sliding_window") == 0)
        strcpy(user, fact->value);
}

/* An option of the model changes what it computes, and so what identifies it; the spec stays as it was. */
static void a_built_model_lists_its_own_window(void **state) {
    char window[16];
    ndp_model_spec s, again;
    ndp_model m;
    (void)state;
    CHECK_OK(read_text(llama, &s));
    for (int w = 0; w < 12; w += 5) {
        ndp_model_opts o = {
            .mode = NDP_MODEL_TRAIN, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32, .window = w};
        CHECK_OK(ndp_model_build(&s, &o, &m));
        m.architecture->list(m.facts, keep_window, window);
        assert_int_equal(atoi(window), w);
        assert_int_equal(ndp_model_kv_heads(&m), 2);
        ndp_model_describe(&m, &again);
        assert_string_equal(again.prefix, "model.");
        ndp_model_release(&m);
    }
    s.architecture->list(s.facts, keep_window, window);
    assert_string_equal(window, "0");
    ndp_model_spec_release(&s);
}

static void keep_activation(void *user, const ndp_fact *fact) {
    if (strcmp(fact->key, "hidden_act") == 0)
        strcpy(user, fact->value);
}

static void the_activation_is_a_word(void **state) {
    static const char *const texts[] = {llama, gpt2}, *const words[] = {"silu", "gelu_tanh"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char activation[32] = "";
        ndp_model_spec s;
        CHECK_OK(read_text(texts[i], &s));
        s.architecture->list(s.facts, keep_activation, activation);
        assert_string_equal(activation, words[i]);
        ndp_model_spec_release(&s);
    }
}

static void count_scales(void *user, const ndp_fact *fact) {
    *(int *)user += strcmp(fact->key, "residual_scale") == 0 || strcmp(fact->key, "logit_scale") == 0;
}

/* Also where they are 1, so that a run that is resumed with others is refused. */
static void factors_identify_their_family(void **state) {
    static const char granite[] =
        "{\"model_type\": \"granite\", \"vocab_size\": 90, \"hidden_size\": 24, \"intermediate_size\": 50, "
        "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"max_position_embeddings\": 77}";
    static const char *const texts[] = {llama, granite};
    (void)state;
    for (int i = 0; i < 2; i++) {
        int scales = 0;
        ndp_model_spec s;
        CHECK_OK(read_text(texts[i], &s));
        s.architecture->list(s.facts, count_scales, &scales);
        assert_int_equal(scales, 2 * i);
        ndp_model_spec_release(&s);
    }
}

static void what_is_refused(void **state) {
    ndp_model_spec s;
    const ndp_facts *f;
    ndp_architecture_table other = ndp_decoder;
    (void)state;
    CHECK_FAILS(ndp_model_spec_read("/no/such/config.json", NULL, &s), NDP_EINVAL, "/no/such/config.json");
    CHECK_FAILS(read_text("{\"model_type\": \"mamba\"}", &s), NDP_ENOTSUP, "model_type 'mamba' is not supported");
    CHECK_FAILS(read_text("[1]", &s), NDP_EFORMAT, "not a JSON object");
    CHECK_FAILS(read_text("{\"model_type\": 5}", &s), NDP_EFORMAT, "model_type");
    CHECK_OK(read_text(llama, &s));
    CHECK_OK(ndp_spec_decoder(&s, "a test", &f));
    assert_true(f == s.facts);
    other.name = "other";
    s.architecture = &other;
    CHECK_FAILS(ndp_spec_decoder(&s, "a test", &f), NDP_ENOTSUP,
                "a test supports decoders only; model_type 'llama' is of architecture other");
    ndp_model_spec_release(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(describes_decoders),
                                       cmocka_unit_test(large_tensors_are_coded),
                                       cmocka_unit_test(a_tie_is_undone_and_done_again),
                                       cmocka_unit_test(positions_may_be_a_shape),
                                       cmocka_unit_test(a_built_model_lists_its_own_window),
                                       cmocka_unit_test(the_activation_is_a_word),
                                       cmocka_unit_test(factors_identify_their_family),
                                       cmocka_unit_test(what_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
