/* The families, by their model_type. Source: the configuration_* and modeling_* files of transformers 5.23 and 5.24. */
#include "model/families.h"

#include "model/block.h"
#include "model/read.h"
#include "model/tables.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

#define BLOCKS_OF_LLAMA                                                                                                \
    .base = "model.", .tokens = "model.embed_tokens", .layers = "model.layers", .final_norm = "model.norm",            \
    .head = "lm_head", .score = "score", .o = "self_attn.o_proj"
#define SEPARATE_QKV .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj"
#define NORMS_BEFORE .input_norm = "input_layernorm", .mlp_norm = "post_attention_layernorm"
#define NORMS_OF_QK .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm"
#define GATED_MLP .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"

static const ndp_names llama_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, NORMS_BEFORE, GATED_MLP};
static const ndp_names qwen3_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, NORMS_BEFORE, GATED_MLP, NORMS_OF_QK};
static const ndp_names phi3_names = {BLOCKS_OF_LLAMA,           NORMS_BEFORE,
                                     .q = "self_attn.qkv_proj", .k = "self_attn.qkv_proj",
                                     .v = "self_attn.qkv_proj", .gate = "mlp.gate_up_proj",
                                     .up = "mlp.gate_up_proj",  .down = "mlp.down_proj"};
static const ndp_names olmo2_names = {BLOCKS_OF_LLAMA,
                                      SEPARATE_QKV,
                                      GATED_MLP,
                                      NORMS_OF_QK,
                                      .attention_norm = "post_attention_layernorm",
                                      .mlp_out_norm = "post_feedforward_layernorm"};
#define FOUR_NORMS                                                                                                     \
    .input_norm = "input_layernorm", .attention_norm = "post_attention_layernorm",                                     \
    .mlp_norm = "pre_feedforward_layernorm", .mlp_out_norm = "post_feedforward_layernorm"
static const ndp_names gemma2_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, GATED_MLP, FOUR_NORMS};
static const ndp_names gemma3_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, GATED_MLP, FOUR_NORMS, NORMS_OF_QK};
static const ndp_names gemma4_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, GATED_MLP,
                                       FOUR_NORMS,      NORMS_OF_QK,  .layer_scalar = "layer_scalar"};
static const ndp_names starcoder2_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, NORMS_BEFORE, .up = "mlp.c_fc",
                                           .down = "mlp.c_proj"};
#define EXPERTS                                                                                                        \
    .router = "mlp.gate", .expert_gate_up = "mlp.experts.%d.{gate_proj,up_proj}",                                      \
    .expert_down = "mlp.experts.%d.down_proj"
#define SHARED_EXPERT                                                                                                  \
    .shared_gate = "mlp.shared_expert.gate_proj", .shared_up = "mlp.shared_expert.up_proj",                            \
    .shared_down = "mlp.shared_expert.down_proj", .shared_pass = "mlp.shared_expert_gate"
static const ndp_names mixtral_names = {BLOCKS_OF_LLAMA,
                                        SEPARATE_QKV,
                                        NORMS_BEFORE,
                                        .router = "block_sparse_moe.gate",
                                        .expert_gate_up = "block_sparse_moe.experts.%d.{w1,w3}",
                                        .expert_down = "block_sparse_moe.experts.%d.w2"};
static const ndp_names qwen3_moe_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, NORMS_BEFORE, GATED_MLP, NORMS_OF_QK, EXPERTS};
static const ndp_names qwen2_moe_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, NORMS_BEFORE,
                                          GATED_MLP,       EXPERTS,      SHARED_EXPERT};
static const ndp_names glm4_moe_names = {BLOCKS_OF_LLAMA,
                                         SEPARATE_QKV,
                                         NORMS_BEFORE,
                                         GATED_MLP,
                                         NORMS_OF_QK,
                                         EXPERTS,
                                         .router_bias = "mlp.gate.e_score_correction_bias",
                                         .shared_gate = "mlp.shared_experts.gate_proj",
                                         .shared_up = "mlp.shared_experts.up_proj",
                                         .shared_down = "mlp.shared_experts.down_proj"};
#define LATENT_NAMES                                                                                                   \
    BLOCKS_OF_LLAMA, NORMS_BEFORE, GATED_MLP, EXPERTS,                                                                 \
        .q = "self_attn.q_proj", .q_a = "self_attn.q_a_proj", .q_a_norm = "self_attn.q_a_layernorm",                   \
        .q_b = "self_attn.q_b_proj", .kv_a = "self_attn.kv_a_proj_with_mqa", .kv_a_norm = "self_attn.kv_a_layernorm",  \
        .kv_b = "self_attn.kv_b_proj", .shared_gate = "mlp.shared_experts.gate_proj",                                  \
        .shared_up = "mlp.shared_experts.up_proj", .shared_down = "mlp.shared_experts.down_proj"
static const ndp_names deepseek_v2_names = {LATENT_NAMES};
static const ndp_names deepseek_names = {LATENT_NAMES, .router_bias = "mlp.gate.e_score_correction_bias"};
static const ndp_names gpt_oss_names = {BLOCKS_OF_LLAMA,
                                        SEPARATE_QKV,
                                        NORMS_BEFORE,
                                        .sinks = "self_attn.sinks",
                                        .router = "mlp.router",
                                        .expert_pairs = "mlp.experts.gate_up_proj",
                                        .expert_pairs_bias = "mlp.experts.gate_up_proj_bias",
                                        .expert_down = "mlp.experts.down_proj",
                                        .expert_down_bias = "mlp.experts.down_proj_bias"};
#define STATE_NAMES                                                                                                    \
    BLOCKS_OF_LLAMA, SEPARATE_QKV, NORMS_BEFORE, NORMS_OF_QK,                                                          \
        .taps = "linear_attn.conv1d", .decay = "linear_attn.A_log", .decay_step = "linear_attn.dt_bias",               \
        .delta_norm = "linear_attn.norm", .delta_o = "linear_attn.out_proj"
#define STATE_PRODUCTS                                                                                                 \
    .delta_qkv = "linear_attn.in_proj_qkv", .delta_z = "linear_attn.in_proj_z", .delta_b = "linear_attn.in_proj_b",    \
    .delta_a = "linear_attn.in_proj_a", .in_turn = NDP_PART_GATED, .alias = "model.language_model."
static const ndp_names qwen3_5_names = {STATE_NAMES, STATE_PRODUCTS, GATED_MLP};
static const ndp_names qwen3_5_moe_names = {STATE_NAMES, STATE_PRODUCTS, EXPERTS, SHARED_EXPERT};
static const ndp_names qwen3_next_names = {STATE_NAMES,
                                           GATED_MLP,
                                           EXPERTS,
                                           SHARED_EXPERT,
                                           .delta_qkv = "linear_attn.in_proj_qkvz",
                                           .delta_z = "linear_attn.in_proj_qkvz",
                                           .delta_b = "linear_attn.in_proj_ba",
                                           .delta_a = "linear_attn.in_proj_ba",
                                           .in_turn = (unsigned)NDP_PART_GATED | NDP_PART_DELTA};
static const ndp_names olmoe_names = {BLOCKS_OF_LLAMA, SEPARATE_QKV, NORMS_BEFORE, NORMS_OF_QK, EXPERTS};
static const ndp_names gpt2_names = {.base = "transformer.",
                                     .tokens = "transformer.wte",
                                     .positions = "transformer.wpe",
                                     .layers = "transformer.h",
                                     .final_norm = "transformer.ln_f",
                                     .head = "lm_head",
                                     .score = "score",
                                     .input_norm = "ln_1",
                                     .q = "attn.c_attn",
                                     .k = "attn.c_attn",
                                     .v = "attn.c_attn",
                                     .o = "attn.c_proj",
                                     .mlp_norm = "ln_2",
                                     .up = "mlp.c_fc",
                                     .down = "mlp.c_proj",
                                     .unread = {"attn.bias", "attn.masked_bias"}}; /* the mask, in older files */

static const ndp_names gpt_neox_names = {
    .base = "gpt_neox.",
    .tokens = "gpt_neox.embed_in",
    .layers = "gpt_neox.layers",
    .final_norm = "gpt_neox.final_layer_norm",
    .head = "embed_out",
    .score = "score",
    .other_head = true,
    NORMS_BEFORE,
    .q = "attention.query_key_value",
    .k = "attention.query_key_value",
    .v = "attention.query_key_value",
    .in_turn = NDP_PART_ATTENTION,
    .o = "attention.dense",
    .up = "mlp.dense_h_to_4h",
    .down = "mlp.dense_4h_to_h",
    .unread = {"attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq"}}; /* in older files */

/* ---- keys ---- */

#define KEYS_OF_LLAMA_BUT_FFN                                                                                          \
    .vocab = "vocab_size", .layers = "num_hidden_layers", .hidden = "hidden_size", .heads = "num_attention_heads",     \
    .kv_heads = "num_key_value_heads", .positions = "max_position_embeddings"
#define KEYS_OF_LLAMA KEYS_OF_LLAMA_BUT_FFN, .ffn = "intermediate_size"
#define RMS_KEYS KEYS_OF_LLAMA, .head_dim = "head_dim", .norm_eps = "rms_norm_eps"

static const ndp_keys llama_keys = {RMS_KEYS, .activation = "hidden_act", .qkv_bias = "attention_bias",
                                    .o_bias = "attention_bias", .mlp_bias = "mlp_bias"};
static const ndp_keys olmo2_keys = {RMS_KEYS, .activation = "hidden_act", .qkv_bias = "attention_bias",
                                    .o_bias = "attention_bias"};
static const ndp_keys seed_oss_keys = {RMS_KEYS, .activation = "hidden_act", .qkv_bias = "attention_bias",
                                       .o_bias = "attention_out_bias", .mlp_bias = "mlp_bias"};
static const ndp_keys windowed_keys = {RMS_KEYS, .activation = "hidden_act", .window = "sliding_window"};
static const ndp_keys qwen2_vl_keys = {KEYS_OF_LLAMA, .norm_eps = "rms_norm_eps", .activation = "hidden_act",
                                       .window = "sliding_window"};
static const ndp_keys qwen3_vl_keys = {RMS_KEYS, .activation = "hidden_act", .qkv_bias = "attention_bias",
                                       .o_bias = "attention_bias"};
static const ndp_keys qwen3_keys = {RMS_KEYS, .activation = "hidden_act", .window = "sliding_window",
                                    .qkv_bias = "attention_bias", .o_bias = "attention_bias"};
static const ndp_keys mixtral_keys = {RMS_KEYS, .activation = "hidden_act", .window = "sliding_window",
                                      .experts = "num_local_experts"};
static const ndp_keys qwen3_moe_keys = {RMS_KEYS,
                                        .activation = "hidden_act",
                                        .window = "sliding_window",
                                        .qkv_bias = "attention_bias",
                                        .o_bias = "attention_bias",
                                        .experts = "num_experts",
                                        .expert_ffn = "moe_intermediate_size"};
static const ndp_keys qwen2_moe_keys = {RMS_KEYS,
                                        .activation = "hidden_act",
                                        .window = "sliding_window",
                                        .qkv_bias = "qkv_bias",
                                        .experts = "num_experts",
                                        .expert_ffn = "moe_intermediate_size",
                                        .shared_ffn = "shared_expert_intermediate_size"};
static const ndp_keys qwen3_5_moe_keys = {
    KEYS_OF_LLAMA_BUT_FFN,      .ffn = "moe_intermediate_size", .head_dim = "head_dim",
    .norm_eps = "rms_norm_eps", .activation = "hidden_act",     .qkv_bias = "attention_bias",
    .o_bias = "attention_bias", .experts = "num_experts",       .shared_ffn = "shared_expert_intermediate_size"};
static const ndp_keys qwen3_next_keys = {RMS_KEYS,
                                         .activation = "hidden_act",
                                         .qkv_bias = "attention_bias",
                                         .o_bias = "attention_bias",
                                         .experts = "num_experts",
                                         .expert_ffn = "moe_intermediate_size",
                                         .shared_ffn = "shared_expert_intermediate_size"};
static const ndp_keys glm4_moe_keys = {RMS_KEYS,
                                       .activation = "hidden_act",
                                       .qkv_bias = "attention_bias",
                                       .experts = "n_routed_experts",
                                       .expert_ffn = "moe_intermediate_size",
                                       .shared_experts = "n_shared_experts",
                                       .dense_layers = "first_k_dense_replace"};
#define DEEPSEEK_KEYS                                                                                                  \
    KEYS_OF_LLAMA, .norm_eps = "rms_norm_eps", .activation = "hidden_act", .qkv_bias = "attention_bias",               \
                   .o_bias = "attention_bias", .experts = "n_routed_experts", .expert_ffn = "moe_intermediate_size",   \
                   .shared_experts = "n_shared_experts", .dense_layers = "first_k_dense_replace"
static const ndp_keys deepseek_keys = {DEEPSEEK_KEYS};
static const ndp_keys glm4_moe_lite_keys = {DEEPSEEK_KEYS, .layer_mlps = "mlp_layer_types"};
static const ndp_keys gpt_oss_keys = {RMS_KEYS, .window = "sliding_window", .qkv_bias = "attention_bias",
                                      .o_bias = "attention_bias", .experts = "num_local_experts"};
static const ndp_keys olmoe_keys = {RMS_KEYS, .activation = "hidden_act", .qkv_bias = "attention_bias",
                                    .o_bias = "attention_bias", .experts = "num_experts"};
static const ndp_keys smollm3_keys = {RMS_KEYS,
                                      .activation = "hidden_act",
                                      .window = "sliding_window",
                                      .qkv_bias = "attention_bias",
                                      .o_bias = "attention_bias",
                                      .mlp_bias = "mlp_bias"};
static const ndp_keys gemma2_keys = {RMS_KEYS, .activation = "hidden_activation", .window = "sliding_window",
                                     .qkv_bias = "attention_bias", .o_bias = "attention_bias"};
static const ndp_keys stablelm_keys = {KEYS_OF_LLAMA, .norm_eps = "layer_norm_eps", .activation = "hidden_act",
                                       .qkv_bias = "use_qkv_bias"};
static const ndp_keys starcoder2_keys = {KEYS_OF_LLAMA,
                                         .head_dim = "head_dim",
                                         .norm_eps = "norm_epsilon",
                                         .activation = "hidden_act",
                                         .window = "sliding_window",
                                         .qkv_bias = "use_bias",
                                         .o_bias = "use_bias",
                                         .mlp_bias = "use_bias"};
static const ndp_keys gpt_neox_keys = {.vocab = "vocab_size",
                                       .layers = "num_hidden_layers",
                                       .hidden = "hidden_size",
                                       .heads = "num_attention_heads",
                                       .ffn = "intermediate_size",
                                       .positions = "max_position_embeddings",
                                       .norm_eps = "layer_norm_eps",
                                       .activation = "hidden_act",
                                       .qkv_bias = "attention_bias",
                                       .o_bias = "attention_bias",
                                       .theta = "rotary_emb_base",
                                       .rotary = "rotary_pct"};
static const ndp_keys gpt2_keys = {.vocab = "vocab_size",
                                   .layers = "n_layer",
                                   .hidden = "n_embd",
                                   .heads = "n_head",
                                   .ffn = "n_inner",
                                   .positions = "n_positions",
                                   .norm_eps = "layer_norm_epsilon",
                                   .activation = "activation_function"};

/* ---- what configurations leave out ---- */

static void qwen2_init(ndp_facts *f) { f->qkv_bias = true; }

static void ministral3_init(ndp_facts *f) { f->head_dim = 128; }

static void qwen2_vl_init(ndp_facts *f) {
    qwen2_init(f);
    f->ropes[0].theta = 1e6;
}

static void qwen3_init(ndp_facts *f) { f->head_dim = 128; }

static void seed_oss_init(ndp_facts *f) {
    f->qkv_bias = true;
    f->head_dim = 128;
    f->dropout = 0.1;
}

static void qwen3_vl_init(ndp_facts *f) {
    qwen3_init(f);
    f->ropes[0].theta = 5e5;
}

static void olmoe_init(ndp_facts *f) { f->balance_coef = 0.01; }

static void olmo3_init(ndp_facts *f) {
    f->n_ropes = 2;
    f->ropes[0].theta = f->ropes[1].theta = 5e5;
}

static void smollm3_init(ndp_facts *f) {
    f->tied = true;
    f->ropes[0].theta = 2e6;
}

static void gemma_init(ndp_facts *f) {
    f->tied = true;
    f->activation = NDP_GELU_TANH;
    f->head_dim = 256;
}

static void gemma2_init(ndp_facts *f) {
    gemma_init(f);
    f->attention_cap = 50, f->logit_cap = 30;
}

static void gemma3_init(ndp_facts *f) {
    gemma_init(f);
    f->n_ropes = 2;
    f->ropes[0].theta = 1e6, f->ropes[1].theta = 1e4;
}

static void gemma4_init(ndp_facts *f) {
    gemma3_init(f);
    f->v_norm = true;
}

static void mixtral_init(ndp_facts *f) {
    f->ropes[0].theta = 1e6;
    f->renormalise = true;
}

static void glm4_moe_init(ndp_facts *f) {
    f->sigmoid = f->renormalise = true;
    f->dense_layers = 1;
}

/* Of DeepSeek-V2, whose routers are of a softmax. */
static void deepseek_v2_init(ndp_facts *f) {
    f->kinds[0].mixer = &ndp_mixer_latent;
    f->neighbours = true;
    f->q_rank = 1536, f->kv_rank = 512;
    f->nope_dim = 128, f->head_dim = 128 + 64, f->v_dim = 128;
}

static void deepseek_v3_init(ndp_facts *f) {
    deepseek_v2_init(f);
    f->sigmoid = f->renormalise = true;
    f->groups = 8, f->open_groups = 4, f->routed_scale = 2.5, f->dense_layers = 3;
}

static void glm4_moe_lite_init(ndp_facts *f) {
    deepseek_v3_init(f);
    f->q_rank = 768;
    f->nope_dim = 192, f->head_dim = 192 + 64, f->v_dim = 256;
    f->groups = f->open_groups = 1, f->routed_scale = 1.8, f->dense_layers = 1;
}

static void qwen3_5_init(ndp_facts *f) {
    f->head_dim = 256;
    f->delta = (ndp_delta_sizes){.key_heads = 16, .heads = 32, .key_dim = 128, .value_dim = 128, .taps = 4};
    f->renormalise = true;
}

static void gpt_oss_init(ndp_facts *f) {
    f->qkv_bias = f->o_bias = f->router_bias = f->renormalise = true;
    f->head_dim = 64;
    f->ropes[0].theta = 150000;
    f->activation = NDP_SILU_CLIPPED;
    f->swiglu_alpha = 1.702, f->swiglu_limit = 7;
}

static void starcoder2_init(ndp_facts *f) {
    f->tied = f->qkv_bias = f->o_bias = f->mlp_bias = true;
    f->kinds[0].mlp = &ndp_mlp_plain;
    f->activation = NDP_GELU_TANH;
    f->init_std = 0.018042;
}

static void gpt_neox_init(ndp_facts *f) {
    f->qkv_bias = f->o_bias = f->mlp_bias = f->parallel = f->two_norms = true;
    f->kinds[0].mlp = &ndp_mlp_plain;
    f->activation = NDP_GELU_ERF;
}

static void gpt2_init(ndp_facts *f) {
    starcoder2_init(f);
    f->transposed = f->depth_init = true;
    f->n_ropes = 0;
    f->init_std = 0.02;
    f->dropout = 0.1;
}

/* ---- the families ---- */

#define QWEN_WINDOWS .size = 4096, .asked = true, .listed = true
#define QWEN .windows = {QWEN_WINDOWS, .from_key = "max_window_layers", .from = 28}, .kv_heads_needed = true
/* mrope turns columns by three positions of a patch; those of text are one. */
#define QWEN_VL                                                                                                        \
    .norm_eps = 1e-5, .init = qwen2_vl_init, .kv_heads_needed = true, .mrope = NDP_MROPE_SECTIONS,                     \
    .windows = {QWEN_WINDOWS, .from_key = "max_window_layers", .from = 80}
#define LAYER_NORM .norm = &ndp_norm_layer, .norm_eps = 1e-5
/* The last layer sees all keys, whatever layer_types say. */
#define GEMMA4(window)                                                                                                 \
    .init = gemma4_init, .kv_heads_needed = true, .qk_norm = NDP_QK_NORM_HEAD, .shape = ndp_shape_gemma4,              \
    .windows = {.size = window, .listed = true, .rope = 1, .every = 6, .last_full = true}, .more = ndp_more_gemma4,    \
    .reads = {"final_logit_softcapping", "use_bidirectional_attention", "per_layer_config"}
#define GEMMA .norm = &ndp_norm_rms_offset, .kv_heads_needed = true
#define LATENT                                                                                                         \
    .shape = ndp_shape_latent,                                                                                         \
    .reads = {"n_routed_experts", "num_experts", "num_local_experts", "q_lora_rank", "kv_lora_rank"}
#define STATES(...)                                                                                                    \
    .norm = &ndp_norm_rms_offset, .init = qwen3_5_init, .qk_norm = NDP_QK_NORM_HEAD, .rotary = 0.25, .partial = true,  \
    .kv_heads_needed = true, .windows = {.listed = true}, .layers = ndp_layers_delta, .more = ndp_more_delta,          \
    .reads = {"partial_rotary_factor", __VA_ARGS__}
#define MIXTURE .more = ndp_more_experts, .reads = {"num_experts", "num_local_experts"}

static const ndp_family families[] = {
    {"llama", "LlamaForCausalLM", &llama_names, &llama_keys, .windows = {0}},
    {"mistral", "MistralForCausalLM", &llama_names, &windowed_keys, .windows = {.size = 4096, .listed = true},
     .kv_heads_needed = true},
    {"ministral", "MinistralForCausalLM", &llama_names, &windowed_keys, .windows = {.size = 4096, .listed = true},
     .kv_heads_needed = true},
    {"ministral3", "Ministral3ForCausalLM", &llama_names, &windowed_keys, .norm_eps = 1e-5, .init = ministral3_init,
     .kv_heads_needed = true, .more = ndp_more_ministral3},
    {"qwen2", "Qwen2ForCausalLM", &llama_names, &windowed_keys, .init = qwen2_init, QWEN},
    {"qwen3", "Qwen3ForCausalLM", &qwen3_names, &qwen3_keys, .init = qwen3_init, .qk_norm = NDP_QK_NORM_HEAD, QWEN},
    {"qwen2_vl_text", "Qwen2VLForConditionalGeneration", &llama_names, &qwen2_vl_keys, QWEN_VL},
    {"qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration", &llama_names, &qwen2_vl_keys, QWEN_VL},
    {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", &qwen3_names, &qwen3_vl_keys, .init = qwen3_vl_init,
     .qk_norm = NDP_QK_NORM_HEAD, .kv_heads_needed = true, .mrope = NDP_MROPE_TURNS},
    {"seed_oss", "SeedOssForCausalLM", &llama_names, &seed_oss_keys, .init = seed_oss_init, .kv_heads_needed = true,
     .dropout = {"attention_dropout", "residual_dropout"}},
    {"phi3", "Phi3ForCausalLM", &phi3_names, &windowed_keys, .norm_eps = 1e-5, .partial = true,
     .reads = {"partial_rotary_factor"}},
    {"olmo2", "Olmo2ForCausalLM", &olmo2_names, &olmo2_keys, .norm_eps = 1e-5, .qk_norm = NDP_QK_NORM_WHOLE},
    {"olmo3", "Olmo3ForCausalLM", &olmo2_names, &qwen3_keys, .norm_eps = 1e-5, .init = olmo3_init,
     .qk_norm = NDP_QK_NORM_WHOLE, .windows = {.size = 4096, .listed = true, .rope = 1, .every = 4}},
    {"smollm3", "SmolLM3ForCausalLM", &llama_names, &smollm3_keys, .init = smollm3_init, .kv_heads_needed = true,
     .windows = {.asked = true, .listed = true}, .layers = ndp_layers_smollm3, .reads = {"no_rope_layers"}},
    {"granite", "GraniteForCausalLM", &llama_names, &llama_keys, .more = ndp_more_granite,
     .reads = {"embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"}},
    {"gemma", "GemmaForCausalLM", &llama_names, &olmo2_keys, .init = gemma_init, GEMMA, .tanh_gelu = true,
     .more = ndp_more_gemma},
    {"gemma2", "Gemma2ForCausalLM", &gemma2_names, &gemma2_keys, .init = gemma2_init, GEMMA, .more = ndp_more_gemma2,
     .windows = {.size = 4096, .listed = true, .every = 2},
     .reads = {"attn_logit_softcapping", "final_logit_softcapping"}},
    {"gemma3_text", "Gemma3ForCausalLM", &gemma3_names, &gemma2_keys, .init = gemma3_init, GEMMA,
     .more = ndp_more_gemma2, .qk_norm = NDP_QK_NORM_HEAD,
     .windows = {.size = 4096, .listed = true, .rope = 1, .every_key = "sliding_window_pattern", .every = 6},
     .reads = {"final_logit_softcapping"}},
    {"gemma4_text", "Gemma4ForCausalLM", &gemma4_names, &gemma2_keys, GEMMA4(512)},
    {"gemma4_unified_text", "Gemma4UnifiedForCausalLM", &gemma4_names, &gemma2_keys, GEMMA4(1024)},
    {"stablelm", "StableLmForCausalLM", &llama_names, &stablelm_keys, LAYER_NORM, .rotary = 0.25, .partial = true,
     .kv_heads_needed = true, .more = ndp_more_stablelm, .reads = {"partial_rotary_factor", "use_parallel_residual"}},
    {"gpt_neox", "GPTNeoXForCausalLM", &gpt_neox_names, &gpt_neox_keys, LAYER_NORM, .init = gpt_neox_init,
     .rotary = 0.25, .partial = true, .more = ndp_more_stablelm, .reads = {"use_parallel_residual"}},
    {"starcoder2", "Starcoder2ForCausalLM", &starcoder2_names, &starcoder2_keys, LAYER_NORM, .init = starcoder2_init,
     .kv_heads_needed = true},
    {"mixtral", "MixtralForCausalLM", &mixtral_names, &mixtral_keys, .norm_eps = 1e-5, .init = mixtral_init,
     .kv_heads_needed = true, MIXTURE},
    {"qwen2_moe", "Qwen2MoeForCausalLM", &qwen2_moe_names, &qwen2_moe_keys, .init = qwen2_init, .kv_heads_needed = true,
     .windows = {QWEN_WINDOWS, .end_key = "max_window_layers", .end = 28, .every = 2}, MIXTURE},
    {"qwen3_moe", "Qwen3MoeForCausalLM", &qwen3_moe_names, &qwen3_moe_keys, .qk_norm = NDP_QK_NORM_HEAD,
     .windows = {.size = 4096, .asked = true}, .kv_heads_needed = true, MIXTURE},
    {"olmoe", "OlmoeForCausalLM", &olmoe_names, &olmoe_keys, .norm_eps = 1e-5, .qk_norm = NDP_QK_NORM_WHOLE,
     .init = olmoe_init, MIXTURE},
    {"glm4_moe", "Glm4MoeForCausalLM", &glm4_moe_names, &glm4_moe_keys, .norm_eps = 1e-5, .init = glm4_moe_init,
     .rotary = 0.5, .partial = true, .kv_heads_needed = true, .more = ndp_more_glm4_moe,
     .reads = {"n_routed_experts", "num_local_experts", "use_qk_norm", "partial_rotary_factor"}},
    {"deepseek_v2", "DeepseekV2ForCausalLM", &deepseek_v2_names, &deepseek_keys, .init = deepseek_v2_init, LATENT,
     .more = ndp_more_deepseek_v2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", &deepseek_names, &deepseek_keys, .init = deepseek_v3_init, LATENT,
     .more = ndp_more_deepseek_v3},
    {"kimi_k2", "DeepseekV3ForCausalLM", &deepseek_names, &deepseek_keys, .init = deepseek_v3_init, LATENT,
     .more = ndp_more_deepseek_v3},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", &deepseek_names, &glm4_moe_lite_keys, .norm_eps = 1e-5,
     .init = glm4_moe_lite_init, LATENT, .more = ndp_more_deepseek_v3},
    {"gpt_oss", "GptOssForCausalLM", &gpt_oss_names, &gpt_oss_keys, .norm_eps = 1e-5, .init = gpt_oss_init,
     .kv_heads_needed = true, .windows = {.size = 128, .listed = true, .every = 2}, .more = ndp_more_gpt_oss,
     .reads = {"num_experts", "num_local_experts"}},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", &qwen3_5_names, &qwen3_vl_keys, STATES(NULL), .mrope = NDP_MROPE_TURNS},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", &qwen3_5_moe_names, &qwen3_5_moe_keys,
     STATES("num_experts", "num_local_experts"), .mrope = NDP_MROPE_TURNS},
    {"qwen3_next", "Qwen3NextForCausalLM", &qwen3_next_names, &qwen3_next_keys,
     STATES("num_experts", "num_local_experts")},
    {"gpt2", "GPT2LMHeadModel", &gpt2_names, &gpt2_keys, LAYER_NORM, .init = gpt2_init,
     .dropout = {"attn_pdrop", "resid_pdrop", "embd_pdrop"}},
};

bool ndp_family_reads(const ndp_family *f, const char *key) {
    for (int i = 0; i < NDP_COUNT(f->reads) && f->reads[i]; i++)
        if (strcmp(f->reads[i], key) == 0)
            return true;
    return strcmp(key, "use_sliding_window") == 0 ? f->windows.asked
                                                  : strcmp(key, "layer_types") == 0 && f->windows.listed;
}

const ndp_family *ndp_family_find(const char *type) {
    for (int i = 0; i < NDP_COUNT(families); i++)
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    return NULL;
}

const char *ndp_family_list(char *out, size_t size) {
    size_t at = 0;
    for (int i = 0; i < NDP_COUNT(families) && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, i ? ", %s" : "%s", families[i].type);
    return out;
}

/* transformers has no class for them. */
static const char *const without_score[] = {
    "granite",         "olmoe",         "glm4_moe",    "glm4_moe_lite",       "kimi_k2",         "qwen2_vl_text",
    "qwen2_5_vl_text", "qwen3_vl_text", "gemma4_text", "gemma4_unified_text", "qwen3_5_moe_text"};

bool ndp_family_score_class(const ndp_family *f, char out[NDP_TENSOR_NAME]) {
    static const char *const endings[] = {"ForCausalLM", "LMHeadModel"};
    size_t n = strlen(f->architecture);
    for (int i = 0; i < NDP_COUNT(without_score); i++)
        if (strcmp(without_score[i], f->type) == 0)
            return false;
    for (int i = 0; i < NDP_COUNT(endings); i++)
        n -= ndp_ends_with(f->architecture, endings[i]) ? strlen(endings[i]) : 0;
    snprintf(out, NDP_TENSOR_NAME, "%.*s%sForSequenceClassification", (int)n, f->architecture,
             ndp_ends_with(f->type, "_text") ? "Text" : "");
    return true;
}

/* ---- names in files ---- */

const char *ndp_facts_base(const ndp_facts *f, const char **name) {
    size_t n = f->base ? strlen(f->names->base) : 0;
    if (!f->base || strncmp(*name, f->names->base, n) != 0)
        return "";
    *name += n;
    return f->base;
}

void ndp_facts_name(const ndp_facts *f, const char *name, char out[NDP_TENSOR_NAME]) {
    const char *base = ndp_facts_base(f, &name);
    snprintf(out, NDP_TENSOR_NAME, "%s%s", base, name);
}

/* What follows "model.layers." in the name of a block's tensor; NULL: it is not such a name. */
static const char *of_blocks(const ndp_facts *f, const char *tensor) {
    char layers[NDP_TENSOR_NAME];
    ndp_facts_name(f, f->names->layers, layers);
    size_t n = strlen(layers);
    return strncmp(tensor, layers, n) == 0 && tensor[n] == '.' ? tensor + n + 1 : NULL;
}

/* What follows "lm_head." in the name of a head's tensor; NULL: it is another name. */
static const char *of_head(const ndp_facts *f, const char *tensor) {
    size_t n = strlen(f->names->head);
    return strncmp(tensor, f->names->head, n) == 0 && tensor[n] == '.' ? tensor + n + 1 : NULL;
}

bool ndp_facts_carries(const ndp_facts *f, const char *tensor) {
    const char *number = of_blocks(f, tensor);
    char *end = NULL;
    if (f->composite && strncmp(tensor, f->base, strlen(f->base)) != 0 && !of_head(f, tensor))
        return true;
    if (!f->composite && f->names->alias && strncmp(tensor, "model.visual.", 13) == 0)
        return true;
    if (f->further == 0)
        return false;
    if (strncmp(tensor, "mtp.", 4) == 0 || strncmp(tensor, "model.mtp.", 10) == 0)
        return true;
    long layer = number ? strtol(number, &end, 10) : -1;
    return number && *end == '.' && layer >= f->layers && layer < f->layers + f->further;
}

bool ndp_facts_ignores(const ndp_facts *f, const char *tensor) {
    if (ndp_facts_carries(f, tensor))
        return true;
    const char *number = of_blocks(f, tensor), *dot = number ? strchr(number, '.') : NULL;
    for (int i = 0; dot && i < NDP_COUNT(f->names->unread); i++)
        if (f->names->unread[i] && strcmp(dot + 1, f->names->unread[i]) == 0)
            return true;
    const char *head = of_head(f, tensor);
    return head && (f->score || (f->tied && strcmp(head, "weight") == 0));
}

const char *ndp_facts_prefix(const ndp_facts *f) { return f->names->base; }

void ndp_facts_tied_names(const ndp_facts *f, char tokens[NDP_TENSOR_NAME], char head[NDP_TENSOR_NAME]) {
    char words[NDP_TENSOR_NAME];
    ndp_facts_name(f, f->names->tokens, words);
    snprintf(tokens, NDP_TENSOR_NAME, "%.*s.weight", NDP_TENSOR_NAME - 8, words);
    snprintf(head, NDP_TENSOR_NAME, "%s.weight", f->names->head);
}
