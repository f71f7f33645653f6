/* The facts of a decoder as texts, for the identity of a run: all that decide what it computes. */
#include "model/activations.h"
#include "model/block.h"
#include "model/decoder.h"

#include "base/text.h"
#include <stddef.h>
#include <string.h>

typedef enum fact_type {
    FACT_INT,
    FACT_INT64,
    FACT_NUMBER,
    FACT_BOOL,
    FACT_WORD,
    FACT_ACTIVATION,
    FACT_TEXT
} fact_type;

typedef struct fact_row {
    const char *key;
    size_t offset; /* in ndp_facts, or in ndp_rope */
    fact_type type;
    bool shape; /* the shapes of tensors depend on it */
    const char *const *words;
} fact_row;

static const char *const qk_norm_words[] = {
    [NDP_QK_NORM_NONE] = "none", [NDP_QK_NORM_HEAD] = "head", [NDP_QK_NORM_WHOLE] = "whole"};
static const char *const scaling_words[] = {
    [NDP_ROPE_PLAIN] = "default", [NDP_ROPE_LINEAR] = "linear", [NDP_ROPE_LLAMA3] = "llama3",
    [NDP_ROPE_YARN] = "yarn",     [NDP_ROPE_LONG] = "longrope", [NDP_ROPE_PROPORTIONAL] = "proportional"};

#define FACT(member, key, type)                                                                                        \
    { key, offsetof(ndp_facts, member), type, false, NULL }
#define SHAPE(member, key, type)                                                                                       \
    { key, offsetof(ndp_facts, member), type, true, NULL }
#define ROPE(member, key, type)                                                                                        \
    { key, offsetof(ndp_rope, member), type, false, NULL }

/* Not included: how files name and store tensors (names, base, composite, transposed); modules that are not built
 * (further), or are drawn (new_score); packed; dropout, which is never applied; bos and eos, which are a part of
 * data.tokenizer where the data have none; own_head, which `tied` reflects. Layers and RoPE tables have their own lists
 * below. */
static const fact_row facts[] = {
    SHAPE(family, "model_type", FACT_TEXT),
    SHAPE(vocab, "vocab_size", FACT_INT64),
    SHAPE(layers, "num_hidden_layers", FACT_INT),
    SHAPE(hidden, "hidden_size", FACT_INT),
    SHAPE(heads, "num_attention_heads", FACT_INT),
    SHAPE(kv_heads, "num_key_value_heads", FACT_INT),
    SHAPE(head_dim, "head_dim", FACT_INT),
    SHAPE(ffn, "intermediate_size", FACT_INT),
    FACT(max_positions, "max_position_embeddings", FACT_INT64),
    FACT(norm_eps, "norm_eps", FACT_NUMBER),
    FACT(init_std, "initializer_range", FACT_NUMBER),
    FACT(depth_init, "depth_init", FACT_BOOL),
    SHAPE(tied, "tie_word_embeddings", FACT_BOOL),
    SHAPE(qkv_bias, "qkv_bias", FACT_BOOL),
    SHAPE(o_bias, "o_bias", FACT_BOOL),
    SHAPE(mlp_bias, "mlp_bias", FACT_BOOL),
    SHAPE(norm.bias, "layer_norm", FACT_BOOL), /* of the norms there are, LayerNorm alone has biases */
    FACT(norm.offset, "unit_offset_norm", FACT_BOOL),
    SHAPE(parallel, "parallel_residual", FACT_BOOL),
    FACT(activation, "hidden_act", FACT_ACTIVATION),
    {"qk_norm", offsetof(ndp_facts, qk_norm), FACT_WORD, true, qk_norm_words},
    FACT(attention_scale, "attention_scale", FACT_NUMBER),
    FACT(attention_cap, "attn_logit_softcapping", FACT_NUMBER),
    FACT(logit_cap, "final_logit_softcapping", FACT_NUMBER),
    FACT(embedding_scale, "embedding_scale", FACT_NUMBER),
    SHAPE(n_ropes, "rope_tables", FACT_INT),
};
/* Of granite, also where they are 1: a key that one of two runs lacks is not compared. */
static const fact_row scale_facts[] = {
    FACT(residual_scale, "residual_scale", FACT_NUMBER),
    FACT(logit_scale, "logit_scale", FACT_NUMBER),
};
/* Of models with mixture layers; the last one of those with a shared expert. */
static const fact_row mixture_facts[] = {
    SHAPE(experts, "num_experts", FACT_INT),
    FACT(choices, "num_experts_per_tok", FACT_INT),
    SHAPE(expert_ffn, "moe_intermediate_size", FACT_INT),
    FACT(renormalise, "norm_topk_prob", FACT_BOOL),
    FACT(balanced, "output_router_logits", FACT_BOOL),
    FACT(balance_coef, "router_aux_loss_coef", FACT_NUMBER),
    SHAPE(shared_ffn, "shared_expert_intermediate_size", FACT_INT),
};
/* Of those whose routers are of sigmoids, or with latent attention. */
static const fact_row score_facts[] = {
    FACT(sigmoid, "sigmoid_router", FACT_BOOL),
    FACT(groups, "n_group", FACT_INT),
    FACT(open_groups, "topk_group", FACT_INT),
    FACT(routed_scale, "routed_scaling_factor", FACT_NUMBER),
};
/* Of those with latent attention. */
static const fact_row latent_facts[] = {
    SHAPE(q_rank, "q_lora_rank", FACT_INT),         SHAPE(kv_rank, "kv_lora_rank", FACT_INT),
    SHAPE(nope_dim, "qk_nope_head_dim", FACT_INT),  SHAPE(v_dim, "v_head_dim", FACT_INT),
    FACT(neighbours, "rope_interleave", FACT_BOOL),
};
/* Of those with clipped gates. */
static const fact_row clipped_facts[] = {
    FACT(swiglu_alpha, "swiglu_alpha", FACT_NUMBER),
    FACT(swiglu_limit, "swiglu_limit", FACT_NUMBER),
    SHAPE(router_bias, "router_bias", FACT_BOOL),
};
/* Of those whose queries grow. */
static const fact_row growth_fact = {"llama_4_scaling_beta", offsetof(ndp_facts, ropes[1].growth), FACT_NUMBER, false,
                                     NULL};
/* Of reward models. */
static const fact_row reward_fact = SHAPE(score, "reward_head", FACT_BOOL);
/* Of those whose heads differ by kind of layer. */
static const fact_row full_facts[] = {
    SHAPE(full.dim, "global_head_dim", FACT_INT),           SHAPE(full.kv, "num_global_key_value_heads", FACT_INT),
    SHAPE(full.v_is_k, "attention_k_eq_v", FACT_BOOL),      FACT(v_norm, "norm_of_values", FACT_BOOL),
    FACT(ropes[0].turning, "rope_turning_pairs", FACT_INT),
};
/* Of those with layers of the gated delta rule: layer_ropes says which these are. */
static const fact_row delta_facts[] = {
    SHAPE(delta.key_heads, "linear_num_key_heads", FACT_INT), SHAPE(delta.heads, "linear_num_value_heads", FACT_INT),
    SHAPE(delta.key_dim, "linear_key_head_dim", FACT_INT),    SHAPE(delta.value_dim, "linear_value_head_dim", FACT_INT),
    SHAPE(delta.taps, "linear_conv_kernel_dim", FACT_INT),
};
static const fact_row rope_facts[] = {
    {"rope_type", offsetof(ndp_rope, scaling), FACT_WORD, false, scaling_words},
    ROPE(dim, "rope_dim", FACT_INT),
    ROPE(theta, "rope_theta", FACT_NUMBER),
    ROPE(factor, "rope_factor", FACT_NUMBER),
    ROPE(amplitude, "rope_attention_factor", FACT_NUMBER),
    ROPE(low_freq_factor, "rope_low_freq_factor", FACT_NUMBER),
    ROPE(high_freq_factor, "rope_high_freq_factor", FACT_NUMBER),
    ROPE(beta_fast, "rope_beta_fast", FACT_NUMBER),
    ROPE(beta_slow, "rope_beta_slow", FACT_NUMBER),
    ROPE(truncate, "rope_truncate", FACT_BOOL),
    ROPE(original_positions, "rope_original_max_position_embeddings", FACT_INT64),
};
_Static_assert(sizeof(ndp_facts) == 8888 && sizeof(ndp_rope) == 2144 && sizeof(ndp_layer_kind) == 24,
               "the facts of a model have changed: if a new one determines the loss curve, it needs a row above");

static void write_fact(const fact_row *f, const void *of, ndp_str *out) {
    const void *at = (const char *)of + f->offset;
    switch (f->type) {
    case FACT_INT:
        ndp_str_addf(out, "%d", *(const int *)at);
        break;
    case FACT_INT64:
        ndp_str_addf(out, "%lld", (long long)*(const int64_t *)at);
        break;
    case FACT_NUMBER:
        ndp_str_add_number(out, *(const double *)at);
        break;
    case FACT_BOOL:
        ndp_str_add(out, *(const bool *)at ? "true" : "false");
        break;
    case FACT_WORD:
        ndp_str_add(out, f->words[*(const int *)at]);
        break;
    case FACT_ACTIVATION:
        ndp_str_add(out, ndp_activations[*(const int *)at].name);
        break;
    case FACT_TEXT:
        ndp_str_add(out, at);
        break;
    }
}

static void write_factors(const ndp_facts *f, ndp_str *out) {
    for (int i = 0; i < f->n_ropes; i++)
        for (int k = 0; f->ropes[i].scaling == NDP_ROPE_LONG && k < f->ropes[i].dim / 2; k++) {
            ndp_str_add(out, out->length ? " " : "");
            ndp_str_add_number(out, f->ropes[i].short_factor[k]);
            ndp_str_add(out, "/");
            ndp_str_add_number(out, f->ropes[i].long_factor[k]);
        }
}

/* ---- layers ---- */

static void write_rope(const ndp_layer_kind *k, ndp_str *out) { ndp_str_addf(out, "%d", k->rope); }
static void write_window(const ndp_layer_kind *k, ndp_str *out) { ndp_str_addf(out, "%d", k->window); }
static void write_plain(const ndp_layer_kind *k, ndp_str *out) { ndp_str_add(out, k->mlp->gated ? "false" : "true"); }

static void write_mixture(const ndp_layer_kind *k, ndp_str *out) {
    ndp_str_add(out, k->mlp == &ndp_mlp_experts ? "true" : "false");
}

static const struct {
    const char *key;
    bool shape;
    void (*write)(const ndp_layer_kind *k, ndp_str *out);
} layer_facts[] = {{"layer_ropes", false, write_rope},
                   {"sliding_window", false, write_window},
                   {"plain_mlp", true, write_plain},
                   {"mixture", true, write_mixture}}; /* the last: of models with mixture layers */

/* One word if all layers are alike, else one per layer. */
static void write_layers(const ndp_facts *f, void (*write)(const ndp_layer_kind *k, ndp_str *out), ndp_str *out) {
    ndp_str words[NDP_LAYER_KINDS] = {{0}};
    bool alike = true;
    for (int k = 0; k < f->n_kinds; k++) {
        write(&f->kinds[k], &words[k]);
        alike &= !words[k].failed && !words[0].failed && strcmp(words[k].data, words[0].data) == 0;
        out->failed |= words[k].failed;
    }
    for (int i = 0; i < (alike ? 1 : f->layers) && !out->failed; i++)
        ndp_str_addf(out, "%s%s", i ? " " : "", words[f->kind_of[i]].data);
    for (int k = 0; k < f->n_kinds; k++)
        ndp_str_release(&words[k]);
}

/* ---- all of them ---- */

/* Releases the text. */
static void give(const char *key, bool shape, ndp_str *text, ndp_fact_visitor *visit, void *user) {
    const char *value = text->data ? text->data : "";
    visit(user, &(ndp_fact){key, text->failed ? NULL : value, shape});
    ndp_str_release(text);
}

void ndp_decoder_list(const ndp_facts *f, ndp_fact_visitor *visit, void *user) {
    ndp_str text = {0};
    const struct {
        const fact_row *rows;
        int n; /* 0: it has none of these */
    } lists[] = {
        {facts, NDP_COUNT(facts)},
        {scale_facts, strcmp(f->family, "granite") == 0 ? NDP_COUNT(scale_facts) : 0},
        {mixture_facts, f->experts > 0 ? NDP_COUNT(mixture_facts) - (f->shared_ffn == 0) : 0},
        {score_facts, f->sigmoid || f->kv_rank > 0 ? NDP_COUNT(score_facts) : 0},
        {latent_facts, f->kv_rank > 0 ? NDP_COUNT(latent_facts) : 0},
        {clipped_facts, f->activation == NDP_SILU_CLIPPED ? NDP_COUNT(clipped_facts) : 0},
        {full_facts, f->full.dim > 0 ? NDP_COUNT(full_facts) : 0},
        {&growth_fact, f->query_rope ? 1 : 0},
        {&reward_fact, f->score ? 1 : 0},
        {delta_facts, f->delta.heads > 0 ? NDP_COUNT(delta_facts) : 0},
    };
    for (int k = 0; k < NDP_COUNT(lists); k++)
        for (int i = 0; i < lists[k].n; i++) {
            const fact_row *row = &lists[k].rows[i];
            bool positions = row->offset == offsetof(ndp_facts, max_positions) && f->n_ropes == 0;
            write_fact(row, f, &text);
            give(row->key, row->shape || positions, &text, visit, user);
        }
    for (int i = 0; i < NDP_COUNT(rope_facts); i++) {
        for (int r = 0; r < f->n_ropes; r++) {
            ndp_str_add(&text, r ? " " : "");
            write_fact(&rope_facts[i], &f->ropes[r], &text);
        }
        give(rope_facts[i].key, false, &text, visit, user);
    }
    write_factors(f, &text);
    give("rope_short_and_long_factors", false, &text, visit, user);
    for (int i = 0; i < NDP_COUNT(layer_facts) - (f->experts == 0); i++) {
        write_layers(f, layer_facts[i].write, &text);
        give(layer_facts[i].key, layer_facts[i].shape, &text, visit, user);
    }
}
