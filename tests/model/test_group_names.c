/* Which tensors the params of optimizer.groups name, and what is refused, with the tensor. */
#include "check.h"
#include "model/decoder.h"
#include "model/tensors.h"

#define LLAMA(keys)                                                                                                    \
    ("{\"model_type\": \"llama\", \"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 96, "               \
     "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "                              \
     "\"max_position_embeddings\": 64, " keys "}")

static ndp_status build(const char *config, ndp_model_opts o, ndp_model *m) {
    ndp_facts f;
    o.mode = NDP_MODEL_TRAIN, o.rows = o.positions = 8, o.compute = o.master = NDP_F32;
    CHECK_OK(ndp_facts_parse_text(config, "config.json", &f));
    return ndp_decoder_build(&f, &o, m);
}

/* How many tensors each name alone names. */
static void names_are_ends_or_patterns(void **state) {
    (void)state;
    static const struct {
        const char *config, *name;
        int tensors;
    } of[] = {{LLAMA("\"attention_bias\": true"), "q_proj", 6}, /* with their biases */
              {LLAMA("\"attention_bias\": true"), "q_proj.weight", 3},
              {LLAMA("\"attention_bias\": true"), "*.bias", 12},
              {LLAMA("\"attention_bias\": true"), "self_attn.q_proj.bias", 3},
              {LLAMA("\"attention_bias\": true"), "vectors", 12 + 7},
              {LLAMA("\"attention_bias\": false"), "model.layers.[01].*", 18},
              {LLAMA("\"attention_bias\": false"), "*", 30},
              {LLAMA("\"attention_bias\": false"), "norm", 1},
              {LLAMA("\"attention_bias\": false"), "*norm", 7},
              {LLAMA("\"attention_bias\": false"), "model.norm.weight", 1},
              {LLAMA("\"attention_bias\": false"), "lm_head", 1},
              {LLAMA("\"tie_word_embeddings\": true"), "lm_head", 1}, /* the embedding */
              {LLAMA("\"tie_word_embeddings\": true"), "embed_tokens", 1}};
    for (int i = 0; i < NDP_COUNT(of); i++) {
        ndp_group_names g = {.what = "entry 1", .names = &of[i].name, .n = 1};
        ndp_model m;
        int n = 0;
        CHECK_OK(build(of[i].config, (ndp_model_opts){.groups = &g, .n_groups = 1}, &m));
        for (ndp_tensor_walk w = {.segments.model = &m}; ndp_tensor_next(&w);)
            n += w.tensor.segment->named_by == 1;
        if (n != of[i].tensors)
            fail_msg("%s names %d tensors, expected %d", of[i].name, n, of[i].tensors);
        ndp_model_release(&m);
    }
}

/* As PEFT's create_loraplus_optimizer has it: the second factor, and all that is a vector. */
static void the_rate_of_b(void **state) {
    (void)state;
    static const char *const names[] = {"lora_B", "vectors"}, *const targets[] = {"q_proj", "down_proj"},
                             *const save[] = {"norm", "lm_head"};
    ndp_group_names g = {.what = "adapter.lr_ratio_b", .names = names, .n = 2, .any = true};
    for (int dora = 0; dora < 2; dora++) {
        ndp_model m;
        int named = 0;
        CHECK_OK(build(LLAMA("\"attention_bias\": false"),
                       (ndp_model_opts){.groups = &g,
                                        .n_groups = 1,
                                        .adapter = {.r = 4,
                                                    .form = dora ? NDP_DORA : NDP_LORA,
                                                    .scale = 1,
                                                    .targets = targets,
                                                    .n_targets = 2,
                                                    .save = save,
                                                    .n_save = dora ? 2 : 0}},
                       &m));
        for (ndp_tensor_walk w = {.segments.model = &m}; ndp_tensor_next(&w);) {
            bool b = strstr(w.tensor.name, "lora_B") || strstr(w.tensor.name, "lora_magnitude_vector") ||
                     (dora && strcmp(w.tensor.name, "model.norm.weight") == 0);
            assert_int_equal(w.tensor.segment->named_by, b);
            named += b;
        }
        assert_int_equal(named, dora ? 13 : 6);
        ndp_model_release(&m);
    }
}

static void refusals_name_the_tensor(void **state) {
    (void)state;
    static const char *const embed[] = {"embed"}, *const some[] = {"layers.0"};
    static const struct {
        const char *config, *names[2], *frozen, *words;
    } of[] = {{LLAMA("\"attention_bias\": true"),
               {"q_prj"},
               NULL,
               "entry 1: 'q_prj' names no tensor; give the end of the name"},
              {LLAMA("\"attention_bias\": true"), {"proj"}, NULL, "'proj' names no tensor"},
              {LLAMA("\"attention_bias\": true"), {"layers.*"}, NULL, "'layers.*' names no tensor"},
              {LLAMA("\"attention_bias\": true"),
               {"q_proj", "*.bias"},
               NULL,
               "entry 2: '*.bias' names model.layers.0.self_attn.q_proj.bias, which entry 1 names too"},
              {LLAMA("\"attention_bias\": true"),
               {"embed_tokens"},
               "embed",
               "names model.embed_tokens.weight, which is frozen"},
              {LLAMA("\"tie_word_embeddings\": true"),
               {"embed_tokens", "lm_head"},
               NULL,
               "entry 2: 'lm_head' names model.embed_"},
              {LLAMA("\"attention_bias\": true"), {"q_proj"}, "layers.0", NULL}};
    for (int i = 0; i < NDP_COUNT(of); i++) {
        ndp_group_names g[] = {{.what = "entry 1", .names = &of[i].names[0], .n = 1},
                               {.what = "entry 2", .names = &of[i].names[1], .n = 1}};
        ndp_model m;
        ndp_model_opts o = {.groups = g,
                            .n_groups = of[i].names[1] ? 2 : 1,
                            .frozen = of[i].frozen && of[i].frozen[0] == 'e' ? embed : some,
                            .n_frozen = of[i].frozen != NULL};
        if (of[i].words) {
            CHECK_FAILS(build(of[i].config, o, &m), NDP_EINVAL, of[i].words);
            continue;
        }
        CHECK_OK(build(of[i].config, o, &m)); /* of the layers that are trained */
        for (ndp_tensor_walk w = {.segments.model = &m}; ndp_tensor_next(&w);)
            assert_int_equal(w.tensor.segment->named_by,
                             strstr(w.tensor.name, "q_proj") && !strstr(w.tensor.name, "layers.0."));
        ndp_model_release(&m);
    }
}

/* A stack is one tensor for the optimizer. */
static void experts_are_named_together(void **state) {
    (void)state;
    static const char mixture[] =
        "{\"model_type\": \"mixtral\", \"vocab_size\": 100, \"hidden_size\": 64, "
        "\"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 4, \"max_position_embeddings\": 64, \"num_local_experts\": 4, "
        "\"num_experts_per_tok\": 2}";
    const char *const all[] = {"w2"}, *const one[] = {"experts.1.w2"};
    ndp_group_names g = {.what = "entry 1", .names = all, .n = 1};
    ndp_model m;
    CHECK_OK(build(mixture, (ndp_model_opts){.groups = &g, .n_groups = 1}, &m));
    ndp_model_release(&m);
    g.names = one;
    CHECK_FAILS(build(mixture, (ndp_model_opts){.groups = &g, .n_groups = 1}, &m), NDP_ENOTSUP,
                "experts.1.w2.weight and 0 others of 4 experts, which are updated alike; name all");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_ends_or_patterns), cmocka_unit_test(the_rate_of_b),
                                       cmocka_unit_test(refusals_name_the_tensor),
                                       cmocka_unit_test(experts_are_named_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
