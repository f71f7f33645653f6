/* One small random model of each family, with what is particular to it in use: windows shorter than the rows and kinds
 * of layers that differ in them, mixtures of experts, caps, norms over all heads, parts of heads that turn, layers
 * without RoPE, fused and transposed tensors, tied and untied heads. Vocabulary 263 and ffn 50 are cut unevenly by
 * every axis; kv heads are fewer than the most tensor ranks. */
#ifndef TESTS_VERIFY_FAMILIES_H
#define TESTS_VERIFY_FAMILIES_H

#include "verify/runs.h"

typedef struct family_model {
    const char *name, *json;
} family_model;

#define HEADS(heads, kv_heads) "\"num_attention_heads\": " heads ", \"num_key_value_heads\": " kv_heads
#define MODEL(type, heads, kv_heads, keys)                                                                             \
    "{\"model_type\": \"" type "\", \"vocab_size\": 263, \"hidden_size\": 24, \"intermediate_size\": 50, "             \
    "\"num_hidden_layers\": 3, \"max_position_embeddings\": 64, \"initializer_range\": 0.1, " HEADS(                   \
        heads, kv_heads) ", " keys "}"

#define STATES                                                                                                         \
    "\"head_dim\": 6, \"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"], "             \
    "\"linear_num_key_heads\": 4, \"linear_num_value_heads\": 8, \"linear_key_head_dim\": 5, "                         \
    "\"linear_value_head_dim\": 3, \"linear_conv_kernel_dim\": 4, \"rms_norm_eps\": 0.001, "                           \
    "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 100.0, \"partial_rotary_factor\": 0.7}"

static const family_model family_models[] = {
    {"llama", MODEL("llama", "8", "1",
                    "\"head_dim\": 6, \"attention_bias\": true, \"mlp_bias\": true, \"rope_parameters\": "
                    "{\"rope_type\": \"yarn\", \"rope_theta\": 100.0, \"factor\": 4.0, "
                    "\"original_max_position_embeddings\": 16}")},
    {"mistral", MODEL("mistral", "8", "4", "\"head_dim\": 6, \"rope_theta\": 100.0, \"sliding_window\": 11")},
    {"ministral", MODEL("ministral", "8", "2",
                        "\"head_dim\": 6, \"rope_theta\": 100.0, \"sliding_window\": 9, "
                        "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\"]")},
    {"qwen2", MODEL("qwen2", "6", "2",
                    "\"rope_theta\": 100.0, \"use_sliding_window\": true, \"max_window_layers\": 1, "
                    "\"sliding_window\": 9, \"tie_word_embeddings\": true")},
    {"qwen3", MODEL("qwen3", "8", "4",
                    "\"head_dim\": 6, \"rope_theta\": 100.0, \"attention_bias\": true, \"use_sliding_window\": true, "
                    "\"sliding_window\": 7, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
                    "\"sliding_attention\"]")},
    {"seed_oss", MODEL("seed_oss", "8", "2",
                       "\"head_dim\": 6, \"rope_theta\": 100.0, \"attention_out_bias\": true, "
                       "\"mlp_bias\": true")},
    {"phi3", MODEL("phi3", "6", "2",
                   "\"partial_rotary_factor\": 0.5, \"rope_theta\": 100.0, \"original_max_position_embeddings\": 16, "
                   "\"sliding_window\": 13, \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1.25], "
                   "\"long_factor\": [2.5]}")},
    {"olmo2", MODEL("olmo2", "8", "4", "\"head_dim\": 6, \"rope_theta\": 100.0")},
    {"olmo3",
     MODEL("olmo3", "8", "4",
           "\"head_dim\": 6, \"sliding_window\": 9, \"layer_types\": [\"sliding_attention\", "
           "\"full_attention\", \"sliding_attention\"], \"rope_parameters\": {\"full_attention\": {\"rope_type\": "
           "\"yarn\", "
           "\"rope_theta\": 100.0, \"factor\": 4.0, \"original_max_position_embeddings\": 16}, \"sliding_attention\": "
           "{\"rope_type\": \"default\", \"rope_theta\": 50.0}}")},
    {"smollm3",
     MODEL("smollm3", "8", "4",
           "\"head_dim\": 6, \"rope_theta\": 100.0, \"attention_bias\": true, \"no_rope_layers\": [1, 0, 1], "
           "\"use_sliding_window\": true, \"sliding_window\": 10")},
    {"granite", MODEL("granite", "8", "4",
                      "\"head_dim\": 6, \"rope_theta\": 100.0, \"embedding_multiplier\": 3.0, "
                      "\"residual_multiplier\": 0.6, \"attention_multiplier\": 0.5, \"logits_scaling\": 0.4, "
                      "\"tie_word_embeddings\": true")},
    {"gemma", MODEL("gemma", "8", "1", "\"head_dim\": 6, \"rope_theta\": 100.0, \"attention_bias\": true")},
    {"gemma2", MODEL("gemma2", "8", "4",
                     "\"head_dim\": 6, \"rope_theta\": 100.0, \"query_pre_attn_scalar\": 12, \"sliding_window\": 9, "
                     "\"attn_logit_softcapping\": 0.5, \"final_logit_softcapping\": 1.5")},
    {"gemma3", MODEL("gemma3_text", "8", "2",
                     "\"head_dim\": 6, \"rope_theta\": 1000.0, \"rope_local_base_freq\": 100.0, "
                     "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}, \"sliding_window\": 9, "
                     "\"sliding_window_pattern\": 2")},
    {"gemma4",
     MODEL("gemma4_text", "8", "4",
           "\"head_dim\": 6, \"global_head_dim\": 10, \"num_global_key_value_heads\": 2, \"attention_k_eq_v\": true, "
           "\"hidden_size_per_layer_input\": 0, \"final_logit_softcapping\": 1.5, \"attention_bias\": true, "
           "\"sliding_window\": 9, \"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"]")},
    {"stablelm",
     MODEL("stablelm", "6", "6", "\"rope_theta\": 100.0, \"partial_rotary_factor\": 0.5, \"use_qkv_bias\": true")},
    {"stablelm-parallel", MODEL("stablelm", "6", "2",
                                "\"rope_theta\": 100.0, \"partial_rotary_factor\": 0.5, "
                                "\"use_parallel_residual\": true, \"tie_word_embeddings\": true")},
    {"gpt_neox", MODEL("gpt_neox", "6", "6", "\"rotary_emb_base\": 100, \"rotary_pct\": 0.5")},
    {"gpt_neox-serial", MODEL("gpt_neox", "6", "6",
                              "\"rotary_emb_base\": 100, \"rotary_pct\": 1.0, \"use_parallel_residual\": false, "
                              "\"tie_word_embeddings\": true")},
    {"starcoder2", MODEL("starcoder2", "8", "2", "\"head_dim\": 6, \"rope_theta\": 100.0, \"sliding_window\": 8")},
    {"mixtral", MODEL("mixtral", "8", "2",
                      "\"head_dim\": 6, \"rope_theta\": 100.0, \"num_local_experts\": 5, \"num_experts_per_tok\": 2, "
                      "\"sliding_window\": 9, \"output_router_logits\": true, \"router_aux_loss_coef\": 0.5")},
    {"qwen3_moe", MODEL("qwen3_moe", "8", "4",
                        "\"head_dim\": 6, \"rope_theta\": 100.0, \"num_experts\": 6, \"num_experts_per_tok\": 3, "
                        "\"moe_intermediate_size\": 22, \"mlp_only_layers\": [1], \"norm_topk_prob\": true")},
    {"qwen2_moe", MODEL("qwen2_moe", "6", "2",
                        "\"rope_theta\": 100.0, \"num_experts\": 5, \"num_experts_per_tok\": 2, "
                        "\"moe_intermediate_size\": 14, \"shared_expert_intermediate_size\": 26, "
                        "\"mlp_only_layers\": [1], \"use_sliding_window\": true, \"max_window_layers\": 2, "
                        "\"sliding_window\": 9")},
    {"olmoe", MODEL("olmoe", "8", "8",
                    "\"head_dim\": 6, \"rope_theta\": 100.0, \"num_experts\": 7, \"num_experts_per_tok\": 2")},
    {"glm4_moe",
     MODEL("glm4_moe", "8", "4",
           "\"head_dim\": 6, \"partial_rotary_factor\": 0.7, \"rope_theta\": 100.0, \"n_routed_experts\": 6, "
           "\"num_experts_per_tok\": 2, \"n_group\": 3, \"topk_group\": 2, \"moe_intermediate_size\": 14, "
           "\"n_shared_experts\": 2, \"routed_scaling_factor\": 1.5, \"use_qk_norm\": true, "
           "\"attention_bias\": true")},
    {"gpt_oss", MODEL("gpt_oss", "8", "4",
                      "\"head_dim\": 6, \"num_local_experts\": 6, \"num_experts_per_tok\": 2, \"sliding_window\": 9, "
                      "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 100.0, "
                      "\"factor\": 4.0, "
                      "\"beta_fast\": 4.0, \"truncate\": false, \"original_max_position_embeddings\": 16}")},
    {"deepseek_v2", MODEL("deepseek_v2", "8", "8",
                          "\"q_lora_rank\": null, \"kv_lora_rank\": 14, \"qk_nope_head_dim\": 4, "
                          "\"qk_rope_head_dim\": 2, \"v_head_dim\": 7, \"rope_theta\": 100.0, "
                          "\"n_routed_experts\": 6, \"num_experts_per_tok\": 2, \"n_group\": 3, \"topk_group\": 2, "
                          "\"topk_method\": \"group_limited_greedy\", \"moe_intermediate_size\": 14, "
                          "\"n_shared_experts\": 2, \"routed_scaling_factor\": 1.5")},
    {"deepseek_v3",
     MODEL("deepseek_v3", "8", "8",
           "\"q_lora_rank\": 10, \"kv_lora_rank\": 14, \"qk_nope_head_dim\": 5, \"qk_rope_head_dim\": 4, "
           "\"v_head_dim\": 6, \"attention_bias\": true, \"n_routed_experts\": 6, \"num_experts_per_tok\": 2, "
           "\"n_group\": 3, \"topk_group\": 2, \"moe_intermediate_size\": 14, \"first_k_dense_replace\": 1, "
           "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 100.0, \"factor\": 4.0, \"mscale\": 1.0, "
           "\"mscale_all_dim\": 0.8, \"original_max_position_embeddings\": 16}")},
    {"qwen3_5", MODEL("qwen3_5_text", "8", "4", STATES ", \"attention_bias\": true, \"tie_word_embeddings\": true")},
    {"qwen3_next", MODEL("qwen3_next", "8", "4",
                         STATES ", \"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 14, "
                                "\"shared_expert_intermediate_size\": 26, \"mlp_only_layers\": [0]")},
    {"gpt2", "{\"model_type\": \"gpt2\", \"vocab_size\": 263, \"n_layer\": 3, \"n_embd\": 24, \"n_head\": 6, "
             "\"n_inner\": 50, \"n_positions\": 50, \"initializer_range\": 0.2}"}};

enum { FAMILIES = NDP_COUNT(family_models) };

static inline const family_model *family_called(const char *name) {
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(family_models[i].name, name) == 0)
            return &family_models[i];
    fail_msg("no family is called %s", name);
    return NULL;
}

/* Rows of 37: no layout of the sequence or the tensor axis divides them. On the device NDP_TEST_DEVICE, if that is set.
 * The caller frees `path`. */
static inline subject family_subject(const corpus *c, const family_model *m, const char *precision, char **path) {
    subject s = odd_subject(c, m->name, precision);
    *path = ndp_format("%s/%s.json", c->folder, m->name);
    assert_non_null(*path);
    CHECK_OK(ndp_file_write_atomic(*path, m->json, strlen(m->json)));
    s.device = getenv("NDP_TEST_DEVICE") ? getenv("NDP_TEST_DEVICE") : s.device;
    s.path = *path, s.length = 37, s.window = 0;
    return s;
}

/* Group fixture of test programs whose tests have a family_model as *state. */
static corpus *the_corpus;

static inline int make_the_corpus(void **state) {
    void *made = NULL;
    int rc = make_corpus(&made);
    *state = NULL; /* else it would go before each test's own */
    the_corpus = made;
    return rc;
}

static inline int drop_the_corpus(void **state) {
    (void)state;
    void *made = the_corpus;
    return drop_corpus(&made);
}

#endif
