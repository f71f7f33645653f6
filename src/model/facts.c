#include "model/facts.h"

#include "base/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Far above any model that exists, and low enough that no product of them overflows: parameters stay below 2^57. */
enum { MAX_LAYERS = 1 << 12, MAX_WIDTH = 1 << 20, MAX_FFN = 1 << 22 };

/* Keys that change what a model computes in ways that are not built. Each is harmless when it is missing, null, false,
 * empty or equal to `neutral`. */
static const struct {
    const char *key;
    double neutral;
} unsupported[] = {
    {"attention_dropout", 0},
    {"pretraining_tp", 1},
    {"quantization_config", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"partial_rotary_factor", 1},
    {"rope_interleaved", 0},
    {"use_sliding_window", 0},
    {"attention_chunk_size", 0},
    {"no_rope_layers", 0},
    {"qk_norm", 0},
    {"use_qk_norm", 0},
    {"clip_qkv", 0},
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"n_routed_experts", 0},
    {"q_lora_rank", 0},
    {"kv_lora_rank", 0},
    {"attention_multiplier", 0},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"logits_scaling", 1},
};

/* NULL when the member is missing or null. */
static struct json_object *member(struct json_object *o, const char *key) {
    struct json_object *value = NULL;
    return json_object_object_get_ex(o, key, &value) ? value : NULL;
}

static bool is_neutral(struct json_object *value, double neutral) {
    switch (json_object_get_type(value)) {
    case json_type_null:
        return true;
    case json_type_boolean:
        return !json_object_get_boolean(value);
    case json_type_int:
    case json_type_double:
        return json_object_get_double(value) == neutral;
    case json_type_array:
        return json_object_array_length(value) == 0;
    case json_type_object:
        return json_object_object_length(value) == 0;
    default:
        return false;
    }
}

static ndp_status refuse(const char *what, const char *key, struct json_object *value, const char *way_out) {
    const char *text = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
    return NDP_FAIL(NDP_ENOTSUP, "%s: \"%s\": %.80s is not built yet%s", what, key, text ? text : "?", way_out);
}

static ndp_status check_features(struct json_object *config, const char *what) {
    for (int i = 0; i < NDP_COUNT(unsupported); i++) {
        struct json_object *value = member(config, unsupported[i].key);
        if (!is_neutral(value, unsupported[i].neutral))
            return refuse(what, unsupported[i].key, value, "");
    }
    const char *act = "silu";
    NDP_TRY(ndp_json_string(config, what, "hidden_act", &act));
    if (strcmp(act, "silu") != 0)
        return refuse(what, "hidden_act", member(config, "hidden_act"), "; built: silu");
    struct json_object *layers = member(config, "layer_types");
    if (layers && !json_object_is_type(layers, json_type_array))
        return refuse(what, "layer_types", layers, "");
    for (size_t i = 0; layers && i < json_object_array_length(layers); i++) {
        const char *kind = json_object_get_string(json_object_array_get_idx(layers, i));
        if (!kind || strcmp(kind, "full_attention") != 0)
            return refuse(what, "layer_types", layers, "; built: full_attention");
    }
    return NDP_OK;
}

/* model_type names the family; `architectures`, when there, must hold a causal language model. */
static ndp_status read_family(struct json_object *config, const char *what, ndp_facts *f) {
    const char *family = NULL;
    NDP_TRY(ndp_json_string(config, what, "model_type", &family));
    if (!family)
        return NDP_FAIL(NDP_EFORMAT, "%s: no \"model_type\": not the config.json of a Hugging Face model", what);
    if (strcmp(family, "llama") != 0)
        return NDP_FAIL(NDP_ENOTSUP, "%s: model_type '%.64s' is not built yet; built: llama", what, family);
    snprintf(f->family, sizeof f->family, "%s", family);

    struct json_object *list = member(config, "architectures");
    if (!list)
        return NDP_OK;
    static const char suffix[] = "ForCausalLM";
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(list, i));
        size_t length = name ? strlen(name) : 0;
        if (length >= sizeof suffix - 1 && strcmp(name + length - (sizeof suffix - 1), suffix) == 0)
            return NDP_OK;
    }
    return refuse(what, "architectures", list, "; built: LlamaForCausalLM");
}

/* A whole number in [1, high] that has no default. */
static ndp_status read_size(struct json_object *config, const char *what, const char *key, int64_t high, int64_t *out) {
    if (!member(config, key))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is missing", what, key);
    return ndp_json_int(config, what, key, 1, high, out);
}

static ndp_status read_shape(struct json_object *config, const char *what, ndp_facts *f) {
    int64_t layers, hidden, heads, ffn, kv_heads, head_dim = 0;
    NDP_TRY(read_size(config, what, "vocab_size", INT32_MAX, &f->vocab));
    NDP_TRY(read_size(config, what, "num_hidden_layers", MAX_LAYERS, &layers));
    NDP_TRY(read_size(config, what, "hidden_size", MAX_WIDTH, &hidden));
    NDP_TRY(read_size(config, what, "num_attention_heads", MAX_WIDTH, &heads));
    NDP_TRY(read_size(config, what, "intermediate_size", MAX_FFN, &ffn));
    NDP_TRY(read_size(config, what, "max_position_embeddings", INT32_MAX, &f->max_positions));
    kv_heads = heads;
    NDP_TRY(ndp_json_int(config, what, "num_key_value_heads", 1, heads, &kv_heads));
    NDP_TRY(ndp_json_int(config, what, "head_dim", 1, MAX_WIDTH, &head_dim));
    if (heads % kv_heads != 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: num_attention_heads %lld is not a multiple of num_key_value_heads %lld", what,
                        (long long)heads, (long long)kv_heads);
    if (!head_dim && hidden % heads != 0)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: hidden_size %lld is not a multiple of num_attention_heads %lld, and there is "
                        "no head_dim",
                        what, (long long)hidden, (long long)heads);
    head_dim = head_dim ? head_dim : hidden / heads;
    if (head_dim % 2 != 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: a head_dim of %lld is odd; RoPE turns pairs", what, (long long)head_dim);
    if (heads * head_dim > MAX_WIDTH)
        return NDP_FAIL(NDP_EFORMAT, "%s: %lld heads of head_dim %lld are wider than %d", what, (long long)heads,
                        (long long)head_dim, MAX_WIDTH);
    f->layers = (int)layers;
    f->hidden = (int)hidden;
    f->heads = (int)heads;
    f->kv_heads = (int)kv_heads;
    f->head_dim = (int)head_dim;
    f->ffn = (int)ffn;
    return NDP_OK;
}

/* A number strictly between 0 and infinity; *out is the default when the key is missing. */
static ndp_status read_positive(struct json_object *o, const char *what, const char *key, double *out) {
    double v = *out;
    NDP_TRY(ndp_json_double(o, what, key, &v));
    if (!(v > 0) || !isfinite(v))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected a positive number", what, key, v);
    *out = v;
    return NDP_OK;
}

static ndp_status read_llama3(struct json_object *rope, const char *what, ndp_facts *f) {
    static const char *const keys[] = {"factor", "low_freq_factor", "high_freq_factor"};
    for (int i = 0; i < NDP_COUNT(keys); i++)
        if (!member(rope, keys[i]))
            return NDP_FAIL(NDP_EFORMAT, "%s: rope type llama3 without \"%s\"", what, keys[i]);
    NDP_TRY(read_positive(rope, what, "low_freq_factor", &f->rope.low_freq_factor));
    NDP_TRY(read_positive(rope, what, "high_freq_factor", &f->rope.high_freq_factor));
    if (f->rope.high_freq_factor <= f->rope.low_freq_factor)
        return NDP_FAIL(NDP_EFORMAT, "%s: high_freq_factor %g is not above low_freq_factor %g", what,
                        f->rope.high_freq_factor, f->rope.low_freq_factor);
    f->rope.original_positions = f->max_positions;
    return ndp_json_int(rope, what, "original_max_position_embeddings", 1, INT32_MAX, &f->rope.original_positions);
}

/* rope_scaling {type or rope_type, ...} beside rope_theta, or both in rope_parameters (transformers 5). */
static ndp_status read_rope(struct json_object *config, const char *what, ndp_facts *f) {
    const char *key = member(config, "rope_scaling") ? "rope_scaling" : "rope_parameters";
    struct json_object *rope = member(config, key);
    f->rope.theta = 10000;
    f->rope.factor = 1;
    NDP_TRY(read_positive(config, what, "rope_theta", &f->rope.theta));
    if (!rope)
        return NDP_OK;
    if (!json_object_is_type(rope, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is not an object", what, key);
    json_object_object_foreach(rope, name, value) {
        if (json_object_is_type(value, json_type_object)) /* one for each kind of layer */
            return refuse(what, name, value, "");
    }
    if (!is_neutral(member(rope, "partial_rotary_factor"), 1))
        return refuse(what, "partial_rotary_factor", member(rope, "partial_rotary_factor"), "");
    const char *type = "default";
    NDP_TRY(ndp_json_string(rope, what, "type", &type));
    NDP_TRY(ndp_json_string(rope, what, "rope_type", &type));
    NDP_TRY(read_positive(rope, what, "rope_theta", &f->rope.theta));
    if (strcmp(type, "default") == 0)
        return NDP_OK;
    bool linear = strcmp(type, "linear") == 0;
    if (!linear && strcmp(type, "llama3") != 0)
        return NDP_FAIL(NDP_ENOTSUP, "%s: rope type '%.64s' in \"%s\" is not built yet; built: default, linear, llama3",
                        what, type, key);
    if (!member(rope, "factor"))
        return NDP_FAIL(NDP_EFORMAT, "%s: rope type %s without \"factor\"", what, type);
    NDP_TRY(read_positive(rope, what, "factor", &f->rope.factor));
    f->rope.scaling = linear ? NDP_ROPE_LINEAR : NDP_ROPE_LLAMA3;
    return linear ? NDP_OK : read_llama3(rope, what, f);
}

/* eos_token_id is a number or a list of them. */
static ndp_status read_tokens(struct json_object *config, const char *what, ndp_facts *f) {
    f->bos = f->eos = -1;
    NDP_TRY(ndp_json_int(config, what, "bos_token_id", -1, INT32_MAX, &f->bos));
    struct json_object *eos = member(config, "eos_token_id");
    if (!json_object_is_type(eos, json_type_array))
        return ndp_json_int(config, what, "eos_token_id", -1, INT32_MAX, &f->eos);
    struct json_object *first = json_object_array_get_idx(eos, 0);
    int64_t id = json_object_is_type(first, json_type_int) ? json_object_get_int64(first) : -1;
    if (json_object_array_length(eos) > 0 && (id < 0 || id > INT32_MAX))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"eos_token_id\" is a list that does not begin with a token id", what);
    f->eos = id;
    return NDP_OK;
}

ndp_status ndp_facts_parse(struct json_object *config, const char *what, ndp_facts *out) {
    if (!json_object_is_type(config, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: not a JSON object", what);
    ndp_facts f = {.norm_eps = 1e-6, .init_std = 0.02};
    NDP_TRY(read_family(config, what, &f));
    NDP_TRY(check_features(config, what));
    NDP_TRY(read_shape(config, what, &f));
    NDP_TRY(read_rope(config, what, &f));
    NDP_TRY(read_tokens(config, what, &f));
    NDP_TRY(read_positive(config, what, "rms_norm_eps", &f.norm_eps));
    NDP_TRY(ndp_json_double(config, what, "initializer_range", &f.init_std));
    if (!(f.init_std >= 0 && f.init_std <= 1)) /* also NaN */
        return NDP_FAIL(NDP_EFORMAT, "%s: \"initializer_range\" is %g, expected 0 to 1", what, f.init_std);
    NDP_TRY(ndp_json_bool(config, what, "tie_word_embeddings", &f.tied));
    NDP_TRY(ndp_json_bool(config, what, "attention_bias", &f.attention_bias));
    NDP_TRY(ndp_json_bool(config, what, "mlp_bias", &f.mlp_bias));
    *out = f;
    return NDP_OK;
}

ndp_status ndp_facts_read(const char *path, ndp_facts *out) {
    struct json_object *config;
    NDP_TRY(ndp_json_read(path, &config));
    ndp_status st = ndp_facts_parse(config, path, out);
    json_object_put(config);
    return st;
}

int64_t ndp_facts_parameters(const ndp_facts *f) {
    int64_t hidden = f->hidden, ffn = f->ffn, q = (int64_t)f->heads * f->head_dim;
    int64_t kv = (int64_t)f->kv_heads * f->head_dim;
    int64_t attention = hidden * (q + 2 * kv) + q * hidden;
    int64_t mlp = 3 * hidden * ffn;
    if (f->attention_bias)
        attention += q + 2 * kv + hidden;
    if (f->mlp_bias)
        mlp += 2 * ffn + hidden;
    int64_t block = attention + mlp + 2 * hidden;
    return f->vocab * hidden * (f->tied ? 1 : 2) + f->layers * block + hidden;
}
