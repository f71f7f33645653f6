/* config.json -> facts, for models of several parts: which keys are those of the text, what its class has where they
 * are missing, and the names of its tensors. Expected numbers are those of transformers 5.24. */
#include "model/architecture.h"
#include "model/facts.h"

#include "base/json.h"
#include "check.h"

static ndp_status parse(const char *text, ndp_facts *f) { return ndp_facts_parse_text(text, "config.json", f); }

#define SIZES                                                                                                          \
    "\"vocab_size\": 96, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": 128"
#define WHOLE(type, text, more)                                                                                        \
    "{\"model_type\": \"" type "\", \"text_config\": {" text "}, \"vision_config\": {\"hidden_size\": 16}" more "}"
#define LLAVA(text, more) WHOLE("llava", "\"model_type\": \"llama\", " text, more)

/* As published, but for keys that change nothing: what a file leaves out is its class's. */
static void sizes_of_published_models(void **state) {
    static const struct {
        const char *config, *text, *base;
        int64_t parameters, positions;
        double theta, eps;
    } models[] = {
        {WHOLE("gemma3",
               "\"hidden_size\": 2560, \"intermediate_size\": 10240, \"num_hidden_layers\": 34, \"model_type\": "
               "\"gemma3_text\", \"sliding_window\": 1024, \"rope_scaling\": {\"factor\": 8.0, \"rope_type\": "
               "\"linear\"}",
               ", \"eos_token_id\": [1, 106]"),
         "gemma3_text", "model.language_model.", 3880263168, 131072, 1e6, 1e-6},
        {WHOLE("gemma4_unified", "\"attention_k_eq_v\": true, \"num_global_key_value_heads\": 1", ""),
         "gemma4_unified_text", "model.language_model.", 2969470750, 262144, 1e6, 1e-6},
        {LLAVA("\"architectures\": [\"LlamaForCausalLM\"], \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, "
               "\"vocab_size\": 32064",
               ", \"architectures\": [\"LlavaForConditionalGeneration\"]"),
         "llama", "model.language_model.", 6738939904, 4096, 1e4, 1e-5},
        {"{\"model_type\": \"qwen2_vl\", \"hidden_size\": 1536, \"intermediate_size\": 8960, \"num_hidden_layers\": "
         "28, "
         "\"num_attention_heads\": 12, \"num_key_value_heads\": 2, \"vocab_size\": 151936, \"tie_word_embeddings\": "
         "true, \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [16, 24, 24]}, \"vision_config\": {}}",
         "qwen2_vl_text", "model.language_model.", 1543714304, 32768, 1e6, 1e-5},
        {"{\"model_type\": \"qwen2_5_vl\"}", "qwen2_5_vl_text", "model.language_model.", 72706203648, 32768, 1e6, 1e-5},
        {WHOLE("qwen3_vl", "\"rope_parameters\": {\"rope_type\": \"default\", \"mrope_interleaved\": true}", ""),
         "qwen3_vl_text", "model.language_model.", 12049461248, 128000, 5e5, 1e-6},
        {WHOLE("qwen3_5", "\"rope_parameters\": {\"mrope_section\": [11, 11, 10], \"rope_theta\": 10000000}", ""),
         "qwen3_5_text", "model.language_model.", 8953803264, 32768, 1e7, 1e-6},
        {WHOLE("qwen3_5_moe", "\"full_attention_interval\": 4", ""), "qwen3_5_moe_text", "model.language_model.",
         34660610688, 32768, 1e4, 1e-6},
        {WHOLE("mistral3", "", ", \"tie_word_embeddings\": true"), "mistral", "model.language_model.", 7110660096,
         131072, 1e4, 1e-6},
        {WHOLE("internvl", "\"model_type\": \"qwen3\"", ""), "qwen3", "model.language_model.", 11427131392, 32768, 1e4,
         1e-6},
        {WHOLE("smolvlm", "\"model_type\": \"llama\"", ""), "llama", "model.text_model.", 6738415616, 2048, 1e4, 1e-6},
    };
    (void)state;
    for (int i = 0; i < NDP_COUNT(models); i++) {
        ndp_facts f;
        CHECK_OK(parse(models[i].config, &f));
        assert_string_equal(f.family, models[i].text);
        assert_string_equal(f.base, models[i].base);
        assert_int_equal(ndp_facts_parameters(&f), models[i].parameters);
        assert_int_equal(f.max_positions, models[i].positions);
        assert_true(f.ropes[0].theta == models[i].theta && f.norm_eps == models[i].eps);
    }
}

/* The key of the whole counts; where it is false, in some models the text's, and nowhere else. */
static void which_key_ties(void **state) {
    static const struct {
        const char *type;
        bool missing, text, text_and_false; /* tied where no key is, the text's alone, and the whole says false */
    } rules[] = {
        {"llava", false, true, true},        {"gemma3", true, true, false},          {"mistral3", true, true, false},
        {"internvl", true, true, false},     {"qwen3_vl", false, false, false},      {"qwen2_vl", false, true, true},
        {"smolvlm", false, false, false},    {"idefics3", false, false, false},      {"qwen2_5_vl", false, true, true},
        {"llava_next", false, false, false}, {"llava_onevision", false, true, true}, {"qwen3_5", false, false, false}};
    static const char *const texts[] = {"", ", \"tie_word_embeddings\": true", ", \"tie_word_embeddings\": true"};
    static const char *const wholes[] = {"", "", ", \"tie_word_embeddings\": false"};
    (void)state;
    for (int i = 0; i < NDP_COUNT(rules); i++) {
        const bool expected[] = {rules[i].missing, rules[i].text, rules[i].text_and_false};
        for (int k = 0; k < NDP_COUNT(texts); k++) {
            char config[600];
            ndp_facts f;
            const char *rope =
                strstr(rules[i].type, "qwen2") ? ", \"rope_scaling\": {\"mrope_section\": [2, 1, 1]}" : "";
            snprintf(config, sizeof config,
                     "{\"model_type\": \"%s\", \"text_config\": {" SIZES ", \"head_dim\": 8%s%s}%s}", rules[i].type,
                     texts[k], rope, wholes[k]);
            CHECK_OK(parse(config, &f));
            assert_int_equal(f.tied, expected[k]);
        }
    }
}

static void tensors_have_the_names_of_the_whole(void **state) {
    char tokens[NDP_TENSOR_NAME], head[NDP_TENSOR_NAME];
    ndp_facts f;
    (void)state;
    CHECK_OK(parse(LLAVA(SIZES, ", \"bos_token_id\": 5"), &f));
    ndp_facts_tied_names(&f, tokens, head);
    assert_string_equal(tokens, "model.language_model.embed_tokens.weight");
    assert_string_equal(head, "lm_head.weight");
    assert_string_equal(f.composite, "llava");
    assert_int_equal(f.bos, 5);
    static const struct {
        const char *name;
        bool carried;
    } names[] = {{"model.vision_tower.encoder.layers.0.mlp.fc1.weight", true},
                 {"vision_tower.encoder.layers.0.mlp.fc1.weight", true},
                 {"multi_modal_projector.linear_1.bias", true},
                 {"mtp.layers.0.norm.weight", true},
                 {"model.language_model.layers.0.mlp.up_proj.weight", false},
                 {"model.language_model.unknown", false},
                 {"lm_head.weight", false},
                 {"lm_head.bias", false}};
    for (int i = 0; i < NDP_COUNT(names); i++) {
        assert_int_equal(ndp_facts_carries(&f, names[i].name), names[i].carried);
        assert_int_equal(ndp_facts_ignores(&f, names[i].name), names[i].carried);
    }
    CHECK_OK(parse("{\"model_type\": \"llama\", " SIZES "}", &f));
    assert_false(ndp_facts_carries(&f, "model.vision_tower.x") || f.composite);
}

/* Positions of text are one: what mrope does with three does not matter, and other scaling is that of any model. */
static void ropes_of_three_positions(void **state) {
    static const char *const plain[] = {
        "\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [2, 1, 1]}",
        "\"rope_scaling\": {\"type\": \"default\", \"mrope_section\": [2, 1, 1], \"rope_type\": \"default\"}",
        "\"rope_parameters\": {\"rope_type\": \"mrope\", \"rope_theta\": 1000000.0, \"mrope_section\": [2, 1, 1]}"};
    ndp_facts f;
    (void)state;
    for (int i = 0; i < NDP_COUNT(plain); i++) {
        char config[600];
        snprintf(config, sizeof config, WHOLE("qwen2_vl", SIZES ", %s", ""), plain[i]);
        CHECK_OK(parse(config, &f));
        assert_true(f.ropes[0].scaling == NDP_ROPE_PLAIN && f.ropes[0].theta == 1e6);
    }
    CHECK_OK(
        parse(WHOLE("qwen2_5_vl",
                    SIZES ", \"rope_scaling\": {\"type\": \"yarn\", \"mrope_section\": [2, 1, 1], \"factor\": 4.0, "
                          "\"original_max_position_embeddings\": 32}",
                    ""),
              &f));
    assert_true(f.ropes[0].scaling == NDP_ROPE_YARN && f.ropes[0].factor == 4);
}

#define QWEN(text, more) WHOLE("qwen2_5_vl", SIZES ", \"rope_scaling\": {\"mrope_section\": [2, 1, 1]}" text, more)
#define MINISTRAL3(rope) WHOLE("mistral3", "\"model_type\": \"ministral3\", \"rope_parameters\": {" rope "}", "")
static const struct {
    const char *text;
    ndp_status code;
    const char *words;
} bad[] = {
    {"{\"model_type\": \"llava\", \"text_config\": \"llama\"}", NDP_EFORMAT,
     "config.json: \"text_config\" is \"llama\", expected an object"},
    {"{\"model_type\": \"llava\", \"text_config\": null}", NDP_EFORMAT, "a llava without \"text_config\""},
    {"{\"model_type\": \"qwen2_vl\", \"text_config\": [1]}", NDP_EFORMAT, "expected an object"},
    {WHOLE("llava", "\"model_type\": \"opt\"", ""), NDP_ENOTSUP,
     "config.json: text_config: model_type 'opt' is not supported; supported: llama"},
    {WHOLE("llava", "\"model_type\": \"llava\"", ""), NDP_ENOTSUP, "text_config: model_type 'llava' is not supported"},
    {WHOLE("mistral3", "\"model_type\": \"mistral4\"", ""), NDP_ENOTSUP, "model_type 'mistral4'"},
    {MINISTRAL3("\"rope_type\": \"default\", \"llama_4_scaling_beta\": 0.1"), NDP_ENOTSUP,
     "RoPE without yarn is not supported for this family"},
    {WHOLE("mistral3", "\"model_type\": \"ministral3\"", ""), NDP_ENOTSUP, "RoPE without yarn"},
    {MINISTRAL3("\"rope_type\": \"yarn\", \"factor\": 4.0"), NDP_EFORMAT, "without \"llama_4_scaling_beta\""},
    {MINISTRAL3("\"rope_type\": \"yarn\", \"factor\": 4.0, \"llama_4_scaling_beta\": null"), NDP_EFORMAT,
     "without \"llama_4_scaling_beta\""},
    {MINISTRAL3("\"rope_type\": \"yarn\", \"factor\": 4.0, \"llama_4_scaling_beta\": -1.0"), NDP_EFORMAT,
     "\"llama_4_scaling_beta\" is -1, expected 0 to 100"},
    {WHOLE("llava", "\"model_type\": 3", ""), NDP_EFORMAT, "model_type"},
    {WHOLE("llama4", "\"model_type\": \"llama4_text\"", ""), NDP_ENOTSUP,
     "'llama4' is a model of several parts, of which text is one (\"text_config\": \"llama4_text\")"},
    {LLAVA("\"hidden_act\": \"relu\"", ""), NDP_ENOTSUP, "config.json: text_config: \"hidden_act\""},
    {LLAVA("\"hidden_size\": 30, \"num_attention_heads\": 4", ""), NDP_EFORMAT, "text_config: hidden_size 30"},
    {LLAVA(SIZES, ", \"architectures\": [\"LlavaForSequenceClassification\"]"), NDP_ENOTSUP,
     "supported: LlavaForConditionalGeneration"},
    {LLAVA(SIZES, ", \"quantization_config\": {\"quant_method\": \"awq\"}"), NDP_ENOTSUP, "quantization_config"},
    {LLAVA(SIZES, ", \"tie_word_embeddings\": null"), NDP_EFORMAT, "\"tie_word_embeddings\" is null"},
    {LLAVA(SIZES ", \"rope_scaling\": {\"type\": \"mrope\"}", ""), NDP_ENOTSUP, "rope type 'mrope'"},
    {WHOLE("qwen2_vl", SIZES ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [1, 1, 1]}", ""),
     NDP_EFORMAT, "\"mrope_section\", given or by default, has 3 pairs of columns, not 4"},
    {WHOLE("qwen2_vl", SIZES, ""), NDP_EFORMAT, "has 64 pairs of columns, not 4"},
    {WHOLE("qwen3_vl", SIZES ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [2, 1, 1]}", ""),
     NDP_ENOTSUP, "rope type 'mrope'"},
    {WHOLE("qwen3_5", SIZES ", \"layer_types\": [\"linear_attention\"]", ""), NDP_EFORMAT,
     "text_config: \"layer_types\" is not a list of 2 names"},
    {QWEN("", ", \"hidden_size\": 64"), NDP_EFORMAT,
     "config.json: \"hidden_size\" is 64, but 32 in \"text_config\", which transformers reads"},
    {QWEN("", ", \"num_hidden_layers\": 3"), NDP_EFORMAT, "\"num_hidden_layers\" is 3"},
};

static void bad_texts_are_refused(void **state) {
    ndp_facts f;
    (void)state;
    for (int i = 0; i < NDP_COUNT(bad); i++)
        CHECK_FAILS(parse(bad[i].text, &f), bad[i].code, bad[i].words);
    CHECK_OK(parse(QWEN("", ", \"hidden_size\": 32, \"rope_theta\": 5.0"), &f));
    assert_true(f.ropes[0].theta == 1e6);
    CHECK_OK(parse(LLAVA(SIZES, ", \"hidden_size\": 64"), &f)); /* never read there */
}

/* The cap is one of causal language models, which the head of a whole is not. */
static void heads_have_no_cap(void **state) {
    static const char gemma[] = SIZES ", \"head_dim\": 8, \"final_logit_softcapping\": 1.5";
    char config[600];
    ndp_facts f;
    (void)state;
    snprintf(config, sizeof config, "{\"model_type\": \"gemma3_text\", %s}", gemma);
    CHECK_OK(parse(config, &f));
    assert_true(f.logit_cap == 1.5);
    snprintf(config, sizeof config, "{\"model_type\": \"gemma3\", \"text_config\": {%s}}", gemma);
    CHECK_OK(parse(config, &f));
    assert_true(f.logit_cap == 0);
    CHECK_OK(parse(WHOLE("llava", "\"model_type\": \"gemma2\", " SIZES, ""), &f));
    assert_true(f.logit_cap == 0 && f.attention_cap == 50 && f.tied);
}

static void a_spec_says_what_the_text_is_of(void **state) {
    struct json_object *config;
    const char *text = LLAVA(SIZES, "");
    ndp_model_spec s;
    (void)state;
    CHECK_OK(ndp_json_parse(text, strlen(text), "config.json", &config));
    CHECK_OK(ndp_model_spec_parse(config, "config.json", NULL, &s));
    assert_string_equal(s.composite, "llava");
    assert_string_equal(s.type, "llama");
    assert_string_equal(s.text, "model.language_model.");
    assert_string_equal(s.prefix, "model.");
    ndp_model_spec_release(&s);
    json_object_put(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_published_models),
        cmocka_unit_test(which_key_ties),
        cmocka_unit_test(tensors_have_the_names_of_the_whole),
        cmocka_unit_test(ropes_of_three_positions),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(heads_have_no_cap),
        cmocka_unit_test(a_spec_says_what_the_text_is_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
