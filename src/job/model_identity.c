/* The identity of a model: its facts and its tokenizer. */
#include "job/model_identity.h"

#include "base/json.h"
#include <string.h>

void ndp_identity_text(struct json_object *o, const char *key, ndp_str *text) {
    json_object_object_add(o, key, text->failed ? NULL : json_object_new_string(text->data ? text->data : ""));
    ndp_str_release(text);
}

void ndp_identity_hash(ndp_str *out, ndp_hash128 h) {
    ndp_str_addf(out, "%016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
}

/* With bos and eos, which may come from a file that the fingerprint does not cover. */
void ndp_identity_tokenizer(const ndp_tokenizer *t, ndp_str *out) {
    ndp_identity_hash(out, ndp_tokenizer_fingerprint(t));
    ndp_str_addf(out, " bos %d eos %d", ndp_tokenizer_bos(t), ndp_tokenizer_eos(t));
}

typedef enum fact_type { FACT_INT, FACT_INT64, FACT_NUMBER, FACT_BOOL, FACT_WORD, FACT_TEXT } fact_type;

typedef struct identity_fact {
    const char *key;
    size_t offset; /* in ndp_facts, or in ndp_rope */
    fact_type type;
    bool shape; /* the shapes of tensors depend on it */
    const char *const *words;
} identity_fact;

static const char *const activation_words[] = {[NDP_SILU] = "silu", [NDP_GELU_TANH] = "gelu_tanh"};
static const char *const qk_norm_words[] = {
    [NDP_QK_NORM_NONE] = "none", [NDP_QK_NORM_HEAD] = "head", [NDP_QK_NORM_WHOLE] = "whole"};
static const char *const scaling_words[] = {[NDP_ROPE_PLAIN] = "default",
                                            [NDP_ROPE_LINEAR] = "linear",
                                            [NDP_ROPE_LLAMA3] = "llama3",
                                            [NDP_ROPE_YARN] = "yarn",
                                            [NDP_ROPE_LONG] = "longrope"};

#define FACT(member, key, type)                                                                                        \
    { "model." key, offsetof(ndp_facts, member), type, false, NULL }
#define SHAPE(member, key, type)                                                                                       \
    { "model." key, offsetof(ndp_facts, member), type, true, NULL }
#define ROPE(member, key, type)                                                                                        \
    { "model." key, offsetof(ndp_rope, member), type, false, NULL }

/* Not included: how files name and store tensors (names, transposed); dropout, which is never applied; bos and eos,
 * which are a part of data.tokenizer where the data have none; own_head, which `tied` reflects. Layers and RoPE tables
 * have their own lists below. */
static const identity_fact facts[] = {
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
    SHAPE(layer_norm, "layer_norm", FACT_BOOL),
    FACT(unit_offset, "unit_offset_norm", FACT_BOOL),
    SHAPE(plain_mlp, "plain_mlp", FACT_BOOL),
    SHAPE(parallel, "parallel_residual", FACT_BOOL),
    {"model.hidden_act", offsetof(ndp_facts, activation), FACT_WORD, false, activation_words},
    {"model.qk_norm", offsetof(ndp_facts, qk_norm), FACT_WORD, true, qk_norm_words},
    FACT(attention_scale, "attention_scale", FACT_NUMBER),
    FACT(attention_cap, "attn_logit_softcapping", FACT_NUMBER),
    FACT(logit_cap, "final_logit_softcapping", FACT_NUMBER),
    FACT(embedding_scale, "embedding_scale", FACT_NUMBER),
    SHAPE(n_ropes, "rope_tables", FACT_INT),
};
static const identity_fact rope_facts[] = {
    {"model.rope_type", offsetof(ndp_rope, scaling), FACT_WORD, false, scaling_words},
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
_Static_assert(sizeof(ndp_facts) == 8568 && sizeof(ndp_rope) == 2128,
               "the facts of a model have changed: if a new one determines the loss curve, it needs a row above");

static void write_fact(const identity_fact *f, const void *of, ndp_str *out) {
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
    case FACT_TEXT:
        ndp_str_add(out, at);
        break;
    }
}

static void add_factors(const ndp_facts *f, struct json_object *o) {
    ndp_str text = {0};
    for (int i = 0; i < f->n_ropes; i++)
        for (int k = 0; f->ropes[i].scaling == NDP_ROPE_LONG && k < f->ropes[i].dim / 2; k++) {
            ndp_str_addf(&text, "%s", text.length ? " " : "");
            ndp_str_add_number(&text, f->ropes[i].short_factor[k]);
            ndp_str_add(&text, "/");
            ndp_str_add_number(&text, f->ropes[i].long_factor[k]);
        }
    ndp_identity_text(o, "model.rope_short_and_long_factors", &text);
}

/* One number if all layers are alike, else one per layer. */
static void add_layers(const ndp_facts *f, const char *key, size_t offset, struct json_object *o) {
    ndp_str text = {0};
    int first = *(const int *)((const char *)&f->kinds[f->kind_of[0]] + offset), others = 0;
    for (int i = 0; i < f->layers; i++)
        others += *(const int *)((const char *)&f->kinds[f->kind_of[i]] + offset) != first;
    for (int i = 0; i < (others ? f->layers : 1); i++)
        ndp_str_addf(&text, "%s%d", i ? " " : "", *(const int *)((const char *)&f->kinds[f->kind_of[i]] + offset));
    ndp_identity_text(o, key, &text);
}

void ndp_identity_facts(const ndp_facts *f, struct json_object *o) {
    for (int i = 0; i < NDP_COUNT(facts); i++) {
        ndp_str text = {0};
        write_fact(&facts[i], f, &text);
        ndp_identity_text(o, facts[i].key, &text);
    }
    for (int i = 0; i < NDP_COUNT(rope_facts); i++) {
        ndp_str text = {0};
        for (int r = 0; r < f->n_ropes; r++) {
            ndp_str_add(&text, r ? " " : "");
            write_fact(&rope_facts[i], &f->ropes[r], &text);
        }
        ndp_identity_text(o, rope_facts[i].key, &text);
    }
    add_factors(f, o);
    add_layers(f, "model.layer_ropes", offsetof(ndp_layer_kind, rope), o);
    add_layers(f, "model.sliding_window", offsetof(ndp_layer_kind, window), o);
}

bool ndp_identity_is_shape(const ndp_facts *f, const char *key) {
    for (int i = 0; i < NDP_COUNT(facts); i++)
        if (strcmp(facts[i].key, key) == 0)
            return facts[i].shape || (facts[i].offset == offsetof(ndp_facts, max_positions) && f->n_ropes == 0);
    return false;
}

struct json_object *ndp_identity_model(const ndp_facts *f, const ndp_tokenizer *t) {
    struct json_object *o = json_object_new_object();
    ndp_str text = {0};
    ndp_identity_facts(f, o);
    ndp_identity_tokenizer(t, &text);
    ndp_identity_text(o, "data.tokenizer", &text);
    return o;
}
