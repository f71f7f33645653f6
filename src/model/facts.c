/* config.json -> facts. */
#include "model/facts.h"

#include "base/text.h"
#include "model/activations.h"
#include "model/block.h"
#include "model/composites.h"
#include "model/read.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Low enough that no product of them overflows: parameters stay below 2^57. */
enum { MAX_WIDTH = 1 << 20, MAX_FFN = 1 << 22 };

/* Keys that change what a model computes in ways that are not built, or not for all families (ndp_family.reads). Each
 * is harmless when it is missing, null, false, empty or equal to `neutral` (NAN: no number is). */
static const struct {
    const char *key;
    double neutral;
} unsupported[] = {
    {"pretraining_tp", 1},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"partial_rotary_factor", 1},
    {"rope_interleaved", 0},
    {"use_sliding_window", 0},
    {"use_bidirectional_attention", 0},
    {"attention_chunk_size", 0},
    {"no_rope_layers", 0},
    {"qk_norm", 0},
    {"use_qk_norm", 0},
    {"qk_layernorm", 0},
    {"use_parallel_residual", 0},
    {"clip_qkv", NAN}, /* 0 makes all queries, keys and values 0 */
    {"num_experts", 0},
    {"num_local_experts", 0},
    {"n_routed_experts", 0},
    {"q_lora_rank", 0},
    {"kv_lora_rank", 0},
    {"attention_multiplier", 0},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"logits_scaling", 1},
    {"scale_attn_weights", 1},
    {"scale_attn_by_inverse_layer_idx", 0},
    {"reorder_and_upcast_attn", 0},
    {"add_cross_attention", 0},
    {"per_layer_config", 0},
    {"text_config", 0},
    {"decoder", 0},
    {"generator", 0},
};

static ndp_status check_features(struct json_object *config, const char *what, const ndp_family *family) {
    for (int i = 0; i < NDP_COUNT(unsupported); i++) {
        struct json_object *value = ndp_config_member(config, unsupported[i].key);
        if (!ndp_config_is_neutral(value, unsupported[i].neutral) && !ndp_family_reads(family, unsupported[i].key))
            return ndp_config_refuse(what, unsupported[i].key, value, "");
    }
    bool causal = true; /* transformers takes null, 0 and all that is empty for false */
    NDP_TRY(ndp_config_bool(config, what, "is_causal", &causal));
    if (!causal)
        return ndp_config_refuse(what, "is_causal", ndp_config_member(config, "is_causal"), "");
    struct json_object *layers = ndp_config_member(config, "layer_types");
    if (!layers || ndp_family_reads(family, "layer_types"))
        return NDP_OK;
    if (!json_object_is_type(layers, json_type_array))
        return ndp_config_refuse(what, "layer_types", layers, "");
    for (size_t i = 0; i < json_object_array_length(layers); i++) {
        const char *kind = ndp_json_text(json_object_array_get_idx(layers, i));
        if (!kind || strcmp(kind, "full_attention") != 0)
            return ndp_config_refuse(what, "layer_types", layers, "; supported for this family: full_attention");
    }
    return NDP_OK;
}

/* An activation may be built for one form of MLP and not for the other. */
static ndp_status read_activation(struct json_object *config, const char *what, const ndp_family *family,
                                  ndp_facts *f) {
    const char *word = NULL, *key = family->keys->activation;
    char list[200], way_out[220];
    bool gated = f->kinds[0].mlp->gated;
    if (!key)
        return NDP_OK;
    NDP_TRY(ndp_config_not_null(config, what, key));
    NDP_TRY(ndp_json_string(config, what, key, &word));
    if (word && family->tanh_gelu && strcmp(word, "gelu") == 0)
        word = "gelu_pytorch_tanh";
    if (!word || ndp_activation_find(word, gated, &f->activation))
        return NDP_OK;
    snprintf(way_out, sizeof way_out, "; supported: %s", ndp_activation_list(gated, list, sizeof list));
    return ndp_config_refuse(what, key, ndp_config_member(config, key), way_out);
}

static const char mixture[] = "a mixture of experts";

/* What makes a model something else than a dense causal language model, by a key that says so. */
static const struct {
    const char *key, *is;
} kinds[] = {
    {"num_experts", mixture},
    {"num_local_experts", mixture},
    {"n_routed_experts", mixture},
    {"moe_num_experts", mixture},
    {"is_encoder_decoder", "an encoder and a decoder"},
    {"text_config", "a model of several parts, of which text is one"},
    {"vision_config", "a model of several parts, some for more than text"},
    {"audio_config", "a model of several parts, some for more than text"},
    {"auto_map", "code from the Hub"},
};

/* What mixtures of families that are not built have besides experts, by model_type. Source: the modeling_* files of
 * transformers 5.23. */
static const struct {
    const char *type, *with;
} others[] = {
    {"deepseek_v32", "attention to keys that an index chooses"},
    {"dbrx", "one matrix for all experts of a layer"},
    {"dots1", "a sigmoid router over groups of experts"},
    {"ernie4_5_moe", "a router that adds a bias to its scores"},
    {"exaone_moe", "a sigmoid router over groups of experts"},
    {"granitemoe", "one tensor for all experts of a layer and scaled residuals"},
    {"jamba", "Mamba layers"},
    {"lfm2_moe", "layers of short convolutions and a sigmoid router"},
    {"llama4_text", "a sigmoid router and attention in chunks"},
    {"minimax", "layers of lightning attention"},
    {"minimax_m2", "a sigmoid router that adds a bias to its scores"},
    {"nemotron_h", "Mamba layers and a sigmoid router over groups of experts"},
    {"phimoe", "a router of SparseMixer"},
};

static const char *what_else(const char *type) {
    for (int i = 0; i < NDP_COUNT(others); i++)
        if (strcmp(others[i].type, type) == 0)
            return others[i].with;
    return "a router or layers of its own";
}

/* Why a model_type is not among the supported ones. */
static ndp_status refuse_family(struct json_object *config, const char *what, const char *type) {
    char list[600], wholes[200], why[300] = "not supported";
    const char *own = ". An architecture that a program has added (ndp_config_add_architecture) is known to that "
                      "program alone";
    for (int i = 0; i < NDP_COUNT(kinds); i++) {
        struct json_object *value = ndp_config_member(config, kinds[i].key);
        if (ndp_config_is_neutral(value, 0))
            continue;
        if (json_object_is_type(value, json_type_object) && ndp_config_member(value, "model_type"))
            value = ndp_config_member(value, "model_type");
        const char *text = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
        bool mixes = kinds[i].is == mixture;
        snprintf(why, sizeof why, "%s (\"%s\": %.60s%s)%s%s%s", kinds[i].is, kinds[i].key, text,
                 strlen(text) > 60 ? "..." : "", mixes ? " with " : "", mixes ? what_else(type) : "",
                 mixes ? ": that is not supported" : ", which is not supported");
        own = "";
        break;
    }
    return NDP_FAIL(NDP_ENOTSUP, "%s: model_type '%.64s' is %s; supported: %s; the text of %s%s", what, type, why,
                    ndp_family_list(list, sizeof list), ndp_composite_list(wholes, sizeof wholes), own);
}

/* How many labels the head of a classifier has, as transformers counts them: two where nothing says it. */
static ndp_status check_labels(struct json_object *config, const char *what) {
    struct json_object *names = ndp_config_member(config, "id2label");
    int64_t labels = json_object_is_type(names, json_type_object) ? json_object_object_length(names) : 2;
    NDP_TRY(ndp_json_int(config, what, "num_labels", 0, INT32_MAX, &labels));
    return labels == 1 ? NDP_OK
                       : NDP_FAIL(NDP_ENOTSUP,
                                  "%s: the model classifies texts by %lld labels (num_labels, id2label); with one it "
                                  "would be a reward model, which is supported",
                                  what, (long long)labels);
}

/* `architectures`, when there, must hold the class, that of reward models (NULL: none), or a causal language model:
 * early files spell it otherwise, LLaMAForCausalLM. */
static ndp_status check_class(struct json_object *config, const char *what, const char *class, const char *scores,
                              bool *score) {
    struct json_object *list = ndp_config_member(config, "architectures");
    char way_out[160];
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    for (size_t i = 0; i < n; i++) {
        const char *name = ndp_json_text(json_object_array_get_idx(list, i));
        if (name && (strcmp(name, class) == 0 || ndp_ends_with(name, "ForCausalLM")))
            return NDP_OK;
        if (name && scores && strcmp(name, scores) == 0) {
            *score = true;
            return check_labels(config, what);
        }
    }
    snprintf(way_out, sizeof way_out, "; supported: %s%s%s", class, scores ? ", " : "", scores ? scores : "");
    return list ? ndp_config_refuse(what, "architectures", list, way_out) : NDP_OK;
}

/* model_type names the family. */
static ndp_status read_family(struct json_object *config, const char *what, const ndp_family **out, ndp_facts *f) {
    const char *type = NULL;
    char scores[NDP_TENSOR_NAME];
    NDP_TRY(ndp_json_string(config, what, "model_type", &type));
    if (!type)
        return NDP_FAIL(NDP_EFORMAT, "%s: no \"model_type\": not the config.json of a Hugging Face model", what);
    const ndp_family *family = ndp_family_find(type);
    if (!family)
        return refuse_family(config, what, type);
    snprintf(f->family, sizeof f->family, "%s", type);
    f->names = family->names;
    *out = family;
    bool has = ndp_family_score_class(family, scores);
    return check_class(config, what, family->architecture, has ? scores : NULL, &f->score);
}

/* Kv heads: as many as the heads where the key is null, and in most families where it is missing. */
static ndp_status read_kv_heads(struct json_object *config, const char *what, const ndp_family *family, int64_t heads,
                                int64_t *out) {
    const char *key = family->keys->kv_heads;
    *out = heads;
    if (!key)
        return NDP_OK;
    if (family->kv_heads_needed && !json_object_object_get_ex(config, key, NULL))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is missing", what, key);
    NDP_TRY(ndp_json_int(config, what, key, 1, heads, out));
    return heads % *out == 0 ? NDP_OK
                             : NDP_FAIL(NDP_EFORMAT, "%s: %s %lld is not a multiple of %s %lld", what,
                                        family->keys->heads, (long long)heads, key, (long long)*out);
}

static ndp_status read_head_dim(struct json_object *config, const char *what, const ndp_keys *k, ndp_facts *f) {
    int64_t head_dim = f->head_dim;
    if (k->head_dim && head_dim) /* null is not the default of a family that has one, in transformers */
        NDP_TRY(ndp_config_not_null(config, what, k->head_dim));
    if (k->head_dim)
        NDP_TRY(ndp_json_int(config, what, k->head_dim, 1, MAX_WIDTH, &head_dim));
    if (!head_dim && f->hidden % f->heads != 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: %s %d is not a multiple of %s %d, and there is no head_dim", what, k->hidden,
                        f->hidden, k->heads, f->heads);
    head_dim = head_dim ? head_dim : f->hidden / f->heads;
    if (f->heads * head_dim > MAX_WIDTH)
        return NDP_FAIL(NDP_EFORMAT, "%s: %d heads of head_dim %lld are wider than %d", what, f->heads,
                        (long long)head_dim, MAX_WIDTH);
    f->head_dim = (int)head_dim;
    return NDP_OK;
}

/* Every family knows the sizes by these names too. Where its own differ, transformers lets these win. */
static ndp_status check_aliases(struct json_object *config, const char *what, const ndp_keys *k) {
    const char *const own[] = {k->hidden, k->layers, k->heads, k->positions};
    static const char *const aliases[] = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                          "max_position_embeddings"};
    for (int i = 0; i < NDP_COUNT(own); i++) {
        struct json_object *alias = NULL;
        if (json_object_object_get_ex(config, aliases[i], &alias) &&
            !json_object_equal(alias, ndp_config_member(config, own[i])))
            return NDP_FAIL(NDP_EFORMAT,
                            "%s: \"%s\" is %.40s, but \"%s\" is %.40s, and both mean the same; leave out one", what,
                            aliases[i], json_object_to_json_string(alias), own[i],
                            json_object_to_json_string(ndp_config_member(config, own[i])));
    }
    return NDP_OK;
}

static ndp_status read_shape(struct json_object *config, const char *what, const ndp_family *family, ndp_facts *f) {
    const ndp_keys *k = family->keys;
    int64_t layers, hidden, heads, ffn, kv_heads;
    NDP_TRY(ndp_config_size(config, what, k->vocab, NDP_MAX_VOCAB, &f->vocab));
    NDP_TRY(ndp_config_size(config, what, k->layers, NDP_MAX_LAYERS, &layers));
    NDP_TRY(ndp_config_size(config, what, k->hidden, MAX_WIDTH, &hidden));
    NDP_TRY(ndp_config_size(config, what, k->heads, MAX_WIDTH, &heads));
    ffn = 4 * hidden;
    if (!f->names->positions || ndp_config_member(config, k->ffn)) /* GPT-2 may leave it out */
        NDP_TRY(ndp_config_size(config, what, k->ffn, MAX_FFN, &ffn));
    NDP_TRY(ndp_config_size(config, what, k->positions, INT32_MAX, &f->max_positions));
    NDP_TRY(check_aliases(config, what, k));
    NDP_TRY(read_kv_heads(config, what, family, heads, &kv_heads));
    f->layers = (int)layers;
    f->hidden = (int)hidden;
    f->heads = (int)heads;
    f->kv_heads = (int)kv_heads;
    f->ffn = (int)ffn;
    return family->shape ? family->shape(config, what, f) : read_head_dim(config, what, k, f);
}

/* A window of the family's key: missing: the default; null: none; 0: NDP_SEES_NOTHING. */
static ndp_status read_window(struct json_object *config, const char *what, const char *key, int *window) {
    struct json_object *value = NULL;
    int64_t n = 0;
    if (!key || !json_object_object_get_ex(config, key, &value))
        return NDP_OK;
    NDP_TRY(ndp_json_int(config, what, key, 0, INT32_MAX, &n));
    *window = value && n == 0 ? NDP_SEES_NOTHING : (int)n;
    return NDP_OK;
}

/* eos_token_id is a number or a list of them. */
static ndp_status read_tokens(struct json_object *config, const char *what, ndp_facts *f) {
    f->bos = f->eos = -1;
    NDP_TRY(ndp_json_int(config, what, "bos_token_id", -1, INT32_MAX, &f->bos));
    struct json_object *eos = ndp_config_member(config, "eos_token_id");
    if (!json_object_is_type(eos, json_type_array))
        return ndp_json_int(config, what, "eos_token_id", -1, INT32_MAX, &f->eos);
    struct json_object *first = json_object_array_get_idx(eos, 0);
    int64_t id = json_object_is_type(first, json_type_int) ? json_object_get_int64(first) : -1;
    if (json_object_array_length(eos) > 0 && (id < 0 || id > INT32_MAX))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"eos_token_id\" is a list that does not begin with a token id", what);
    f->eos = id;
    return NDP_OK;
}

static ndp_status read_biases(struct json_object *config, const char *what, const ndp_keys *k, ndp_facts *f) {
    const char *const keys[] = {k->qkv_bias, k->o_bias, k->mlp_bias};
    bool *const to[] = {&f->qkv_bias, &f->o_bias, &f->mlp_bias};
    for (int i = 0; i < NDP_COUNT(keys); i++)
        if (keys[i])
            NDP_TRY(ndp_config_bool(config, what, keys[i], to[i]));
    return NDP_OK;
}

/* Published models have 1e-12 to 1e-3. Programs differ where fp32 has no such number: below 1e-38 a row of zeros
 * divides by zero, above 1e38 all rows by infinity. Between, above 1, the mean square of a normed row, the norm no
 * longer norms, and far below 1e-12 it adds nothing to a mean square that fp32 can tell from zero. */
static ndp_status read_epsilon(struct json_object *config, const char *what, const char *key, double *out) {
    NDP_TRY(ndp_config_positive(config, what, key, out));
    return *out >= 1e-15 && *out <= 1 ? NDP_OK
                                      : NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected 1e-15 to 1", what, key, *out);
}

static ndp_status read_numbers(struct json_object *config, const char *what, const ndp_family *family, ndp_facts *f) {
    const ndp_keys *k = family->keys;
    NDP_TRY(read_activation(config, what, family, f));
    NDP_TRY(read_window(config, what, k->window, &f->kinds[0].window));
    NDP_TRY(read_epsilon(config, what, k->norm_eps, &f->norm_eps));
    NDP_TRY(ndp_config_not_null(config, what, "initializer_range"));
    NDP_TRY(ndp_json_double(config, what, "initializer_range", &f->init_std));
    if (!(f->init_std >= 0 && f->init_std <= 1)) /* also NaN */
        return NDP_FAIL(NDP_EFORMAT, "%s: \"initializer_range\" is %g, expected 0 to 1", what, f->init_std);
    NDP_TRY(ndp_config_bool(config, what, "tie_word_embeddings", &f->tied));
    f->tied &= !f->score;
    return NDP_OK;
}

static bool is_in(const char *const *list, const char *key) {
    for (; *list; list++)
        if (strcmp(*list, key) == 0)
            return true;
    return false;
}

/* Dropout is never applied; f->dropout becomes the largest probability that any key asks for, so that a run can say so,
 * and whether the number is the family's own, which some of its keys have where they are missing. One rule for all
 * families, with the keys of all of them. */
static ndp_status read_dropout(struct json_object *config, const char *what, const ndp_family *family, ndp_facts *f) {
    static const char *const keys[] = {"attn_pdrop",     "resid_pdrop",      "embd_pdrop",       "attention_dropout",
                                       "hidden_dropout", "residual_dropout", "embedding_dropout"};
    double missing = f->dropout;
    f->dropout = 0;
    for (int i = NDP_COUNT(keys) - 1; i >= 0; i--) {
        bool stated = ndp_config_member(config, keys[i]);
        double p = is_in(family->dropout, keys[i]) ? missing : 0;
        NDP_TRY(ndp_json_double(config, what, keys[i], &p));
        if (!(p >= 0 && p <= 1)) /* also NaN */
            return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected a probability from 0 to 1", what, keys[i], p);
        if (p > f->dropout || (p == f->dropout && stated))
            f->dropout = p, f->dropout_lacks = stated || p == 0 ? NULL : keys[i];
    }
    return NDP_OK;
}

static ndp_status parse(struct json_object *config, const char *what, const ndp_family *family, ndp_facts *f) {
    NDP_TRY(check_features(config, what, family));
    f->norm = family->norm ? *family->norm : ndp_norm_rms;
    f->norm_eps = family->norm_eps > 0 ? family->norm_eps : 1e-6;
    f->qk_norm = family->qk_norm;
    f->kinds[0].window = family->windows.size;
    if (family->init)
        family->init(f);
    NDP_TRY(ndp_config_packing(config, what, family->names->expert_pairs != NULL, f));
    NDP_TRY(read_shape(config, what, family, f));
    f->attention_scale = 1 / sqrt(f->head_dim);
    NDP_TRY(ndp_config_ropes(config, what, family, f));
    NDP_TRY(read_tokens(config, what, f));
    NDP_TRY(read_numbers(config, what, family, f));
    NDP_TRY(read_biases(config, what, family->keys, f));
    NDP_TRY(read_dropout(config, what, family, f));
    NDP_TRY(family->layers ? family->layers(config, what, f)
                           : ndp_layers_by_windows(config, what, &family->windows, f));
    return family->more ? family->more(config, what, f) : NDP_OK;
}

/* The configuration of a decoder, without other parts. */
static ndp_status parse_decoder(struct json_object *config, const char *what, ndp_facts *out) {
    ndp_facts f = {.init_std = 0.02,
                   .embedding_scale = 1,
                   .residual_scale = 1,
                   .logit_scale = 1,
                   .routed_scale = 1,
                   .n_ropes = 1,
                   .ropes[0].theta = 1e4,
                   .kinds[0] = {.mixer = &ndp_mixer_attention, .mlp = &ndp_mlp_gated}};
    const ndp_family *family = NULL;
    NDP_TRY(read_family(config, what, &family, &f));
    NDP_TRY(parse(config, what, family, &f));
    *out = f;
    return NDP_OK;
}

static ndp_status parse_composite(const ndp_composite *c, struct json_object *config, const char *what,
                                  ndp_facts *out) {
    struct json_object *text = NULL;
    bool inside = ndp_config_member(config, "text_config");
    NDP_TRY(check_class(config, what, c->architecture, NULL, NULL));
    NDP_TRY(ndp_composite_text(c, config, what, &text));
    char *where = ndp_format("%s%s", what, inside ? ": text_config" : "");
    ndp_status st = where ? parse_decoder(text, where, out)
                          : NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for the facts of a model", what);
    free(where);
    json_object_put(text);
    if (st != NDP_OK)
        return st;
    out->base = c->base, out->composite = c->type;
    if (!c->caps) /* nothing of causal language models, whose head this is not */
        out->logit_cap = 0, out->logit_scale = 1;
    return NDP_OK;
}

ndp_status ndp_facts_parse(struct json_object *config, const char *what, ndp_facts *out) {
    if (!json_object_is_type(config, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: not a JSON object", what);
    const char *type = ndp_json_text(ndp_config_member(config, "model_type"));
    const ndp_composite *c = type ? ndp_composite_find(type) : NULL;
    return c ? parse_composite(c, config, what, out) : parse_decoder(config, what, out);
}

ndp_status ndp_facts_parse_text(const char *text, const char *what, ndp_facts *out) {
    struct json_object *config;
    NDP_TRY(ndp_json_parse(text, strlen(text), what, &config));
    ndp_status st = ndp_facts_parse(config, what, out);
    json_object_put(config);
    return st;
}

ndp_status ndp_facts_read(const char *path, ndp_facts *out) {
    struct json_object *config;
    NDP_TRY(ndp_json_read(path, &config));
    ndp_status st = ndp_facts_parse(config, path, out);
    json_object_put(config);
    return st;
}
