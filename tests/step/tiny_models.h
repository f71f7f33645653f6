/* Tiny models and layouts for tests that go over all of them. */
#ifndef TESTS_STEP_TINY_MODELS_H
#define TESTS_STEP_TINY_MODELS_H

#include "step/tiny.h"

/* dp_replicate, dp_shard, cp, sp, tp: each axis alone, then products. */
static const int layout_sizes[][5] = {
    {1, 2, 1, 1, 1}, {2, 1, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 3, 1, 1, 1}, {3, 2, 1, 1, 1}, {1, 1, 1, 1, 2},
    {1, 1, 1, 1, 4}, {1, 1, 1, 2, 1}, {1, 1, 1, 4, 1}, {1, 1, 2, 1, 1}, {1, 1, 3, 1, 1}, {1, 1, 4, 1, 1},
    {1, 1, 1, 2, 2}, {1, 1, 2, 1, 2}, {1, 1, 2, 2, 1}, {2, 1, 1, 1, 2}, {1, 2, 1, 1, 2}, {1, 2, 2, 1, 1},
    {1, 1, 2, 2, 2}, {2, 1, 3, 1, 1}, {1, 3, 1, 1, 4}, {2, 2, 2, 1, 2}};

/* Other families, by config.json: windows, norms of heads and of all heads, fused and transposed tensors, LayerNorm,
 * learned positions, caps, layers without RoPE, mixtures of experts in some layers. */
static const char *const tiny_families[] = {
    TINY("qwen3", "\"head_dim\": 6, \"sliding_window\": 4, \"use_sliding_window\": true, \"max_window_layers\": 1"),
    TINY("olmo2", "\"head_dim\": 6, \"attention_bias\": true"),
    TINY("phi3", "\"head_dim\": 6, \"partial_rotary_factor\": 0.7, \"sliding_window\": 5"),
    TINY("granite", "\"head_dim\": 6, \"embedding_multiplier\": 3.0, \"residual_multiplier\": 0.6, "
                    "\"attention_multiplier\": 0.5, \"logits_scaling\": 0.4"),
    TINY("gemma2", "\"head_dim\": 6, \"sliding_window\": 4, \"attn_logit_softcapping\": 0.5, "
                   "\"final_logit_softcapping\": 2.0"),
    TINY("gemma3_text", "\"head_dim\": 6, \"sliding_window\": 4, \"sliding_window_pattern\": 2"),
    "{\"model_type\": \"gemma4_text\", \"vocab_size\": 37, \"num_hidden_layers\": 2, \"hidden_size\": 12, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_size\": 17, \"head_dim\": 6, "
    "\"max_position_embeddings\": 64, \"global_head_dim\": 10, \"num_global_key_value_heads\": 2, "
    "\"attention_k_eq_v\": true, \"hidden_size_per_layer_input\": 0, \"sliding_window\": 4, "
    "\"layer_types\": [\"sliding_attention\", \"full_attention\"]}",
    TINY("smollm3", "\"head_dim\": 6, \"no_rope_layers\": [1, 0]"),
    TINY("stablelm", "\"partial_rotary_factor\": 0.7, \"use_qkv_bias\": true, \"use_parallel_residual\": true"),
    TINY("gpt_neox", "\"rotary_pct\": 0.7"),
    TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
                    "\"output_router_logits\": true, \"router_aux_loss_coef\": 0.5"),
    TINY("qwen3_moe", "\"head_dim\": 6, \"num_experts\": 6, \"num_experts_per_tok\": 3, "
                      "\"moe_intermediate_size\": 7, \"mlp_only_layers\": [0], \"norm_topk_prob\": true"),
    TINY("qwen2_moe", "\"head_dim\": 6, \"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 7, "
                      "\"shared_expert_intermediate_size\": 11, \"mlp_only_layers\": [0]"),
    TINY("glm4_moe",
         "\"head_dim\": 6, \"partial_rotary_factor\": 0.7, \"n_routed_experts\": 6, \"n_group\": 3, "
         "\"topk_group\": 2, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 7, \"attention_bias\": true"),
    TINY_OF("deepseek_v3", "4",
            "\"q_lora_rank\": 7, \"kv_lora_rank\": 9, \"qk_nope_head_dim\": 3, \"qk_rope_head_dim\": 2, "
            "\"v_head_dim\": 4, \"attention_bias\": true, \"n_routed_experts\": 6, \"n_group\": 3, \"topk_group\": 2, "
            "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 7, \"first_k_dense_replace\": 1"),
    TINY("gpt_oss", "\"head_dim\": 6, \"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"sliding_window\": 3, "
                    "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 100.0}"),
    TINY("qwen3_5_text", "\"head_dim\": 6, \"layer_types\": [\"linear_attention\", \"full_attention\"], "
                         "\"linear_num_key_heads\": 4, \"linear_num_value_heads\": 8, \"linear_key_head_dim\": 3, "
                         "\"linear_value_head_dim\": 5, \"linear_conv_kernel_dim\": 3, \"partial_rotary_factor\": 0.7, "
                         "\"rms_norm_eps\": 0.01"),
    TINY_GPT2};

#endif
