/* What tells the layers of a model apart, and the keys of single families. */
#include "model/block.h"
#include "model/read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Layer number `layer` sees `window` keys and has table `rope`. */
static ndp_status set_kind(ndp_facts *f, const char *what, int layer, int window, int rope) {
    if (window == NDP_SEES_NOTHING)
        return NDP_FAIL(
            NDP_EFORMAT,
            "%s: \"sliding_window\" is 0: layer %d would see no key, not even its own; use null for no window", what,
            layer);
    if (layer == 0)
        f->n_kinds = 0; /* kinds[0] held the values that all layers share */
    ndp_layer_kind kind = f->kinds[0];
    kind.window = window, kind.rope = rope;
    int k = 0;
    while (k < f->n_kinds && (f->kinds[k].window != window || f->kinds[k].rope != rope))
        k++;
    if (k == NDP_LAYER_KINDS)
        return NDP_FAIL(NDP_ENOTSUP, "%s: more than %d kinds of layers are not supported", what, NDP_LAYER_KINDS);
    if (k == f->n_kinds)
        f->kinds[f->n_kinds++] = kind;
    f->kind_of[layer] = (uint8_t)k;
    return NDP_OK;
}

/* What layer_types says of a layer: full_attention or `other`; *is_other is the family's rule where it says nothing. */
static ndp_status layer_type(struct json_object *types, const char *what, const ndp_facts *f, int layer,
                             const char *other, bool *is_other) {
    char way_out[80];
    if (!types)
        return NDP_OK;
    if (!json_object_is_type(types, json_type_array) || json_object_array_length(types) != (size_t)f->layers)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"layer_types\" is not a list of %d names, one a layer", what, f->layers);
    const char *type = ndp_json_text(json_object_array_get_idx(types, (size_t)layer));
    *is_other = type && strcmp(type, other) == 0;
    snprintf(way_out, sizeof way_out, "; supported: full_attention, %s", other);
    return *is_other || (type && strcmp(type, "full_attention") == 0)
               ? NDP_OK
               : ndp_config_refuse(what, "layer_types", types, way_out);
}

static const char with_window[] = "sliding_attention";

/* A layer that has to have a window has one. transformers fails without, or lets only some kernels apply it. */
static ndp_status need_window(const char *what, int layer, int window) {
    return window ? NDP_OK
                  : NDP_FAIL(NDP_EFORMAT,
                             "%s: layer %d has sliding_attention, but \"sliding_window\" is null or "
                             "\"use_sliding_window\" is not true",
                             what, layer);
}

ndp_status ndp_layers_by_windows(struct json_object *config, const char *what, const ndp_window_rule *rule,
                                 ndp_facts *f) {
    int64_t from = rule->from, end = rule->end_key ? rule->end : f->layers, every = rule->every;
    struct json_object *types = rule->listed ? ndp_config_member(config, "layer_types") : NULL;
    const char *const keys[] = {rule->from_key, rule->end_key, rule->every_key};
    int64_t *const to[] = {&from, &end, &every};
    bool use = !rule->asked;
    if (rule->asked)
        NDP_TRY(ndp_config_bool(config, what, "use_sliding_window", &use));
    for (int k = 0; k < NDP_COUNT(keys); k++)
        if (keys[k])
            NDP_TRY(ndp_config_count(config, what, keys[k], to[k] == &every, INT32_MAX, to[k]));
    int window = use ? f->kinds[0].window : 0;
    for (int i = 0; i < f->layers; i++) {
        bool windowed = i >= from && i < end && (every == 0 || (use && (i + 1) % every != 0));
        NDP_TRY(layer_type(types, what, f, i, with_window, &windowed));
        windowed &= !(rule->last_full && i == f->layers - 1);
        if (windowed && (types || every))
            NDP_TRY(need_window(what, i, window));
        NDP_TRY(set_kind(f, what, i, windowed ? window : 0, f->n_ropes == 0 ? NDP_NO_ROPE : windowed ? rule->rope : 0));
    }
    return NDP_OK;
}

/* no_rope_layers: 1 where a layer has RoPE, as its transformers class reads it; layers without it may have the window.
 */
ndp_status ndp_layers_smollm3(struct json_object *config, const char *what, ndp_facts *f) {
    bool use = false;
    int64_t interval = 4;
    struct json_object *turned = ndp_config_member(config, "no_rope_layers"),
                       *types = ndp_config_member(config, "layer_types");
    NDP_TRY(ndp_config_bool(config, what, "use_sliding_window", &use));
    NDP_TRY(ndp_config_count(config, what, "no_rope_layer_interval", 1, INT32_MAX, &interval));
    bool is_list = json_object_is_type(turned, json_type_array);
    if (turned && (!is_list || json_object_array_length(turned) < (size_t)f->layers))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"no_rope_layers\" is not a list of %d numbers, one a layer", what,
                        f->layers);
    int window = use ? f->kinds[0].window : 0;
    for (int i = 0; i < f->layers; i++) {
        bool rope = (i + 1) % interval != 0;
        if (turned) {
            struct json_object *value = json_object_array_get_idx(turned, (size_t)i);
            if (!json_object_is_type(value, json_type_int))
                return NDP_FAIL(NDP_EFORMAT, "%s: \"no_rope_layers\" holds something that is not 0 or 1", what);
            rope = json_object_get_int(value) != 0;
        }
        bool windowed = !rope;
        NDP_TRY(layer_type(types, what, f, i, with_window, &windowed));
        if (windowed && types)
            NDP_TRY(need_window(what, i, window));
        NDP_TRY(set_kind(f, what, i, windowed ? window : 0, rope ? 0 : NDP_NO_ROPE));
    }
    return NDP_OK;
}

/* ---- layers with a state ---- */

/* All but every full_attention_interval-th have a state, unless layer_types say. */
ndp_status ndp_layers_delta(struct json_object *config, const char *what, ndp_facts *f) {
    struct json_object *types = ndp_config_member(config, "layer_types");
    int64_t interval = 4;
    NDP_TRY(ndp_config_count(config, what, "full_attention_interval", 1, INT32_MAX, &interval));
    for (int i = 0; i < f->layers; i++) {
        bool state = (i + 1) % interval != 0;
        NDP_TRY(layer_type(types, what, f, i, "linear_attention", &state));
        NDP_TRY(set_kind(f, what, i, 0, state ? NDP_NO_ROPE : 0));
    }
    for (int k = 0; k < f->n_kinds; k++)
        f->kinds[k].mixer = f->kinds[k].rope == NDP_NO_ROPE ? &ndp_mixer_delta : &ndp_mixer_gated;
    return NDP_OK;
}

enum { MOST_HEADS = 1 << 12, MOST_DIM = 1 << 12, MOST_TAPS = 8 };

static ndp_status read_delta(struct json_object *config, const char *what, ndp_delta_sizes *d) {
    static const char *const keys[] = {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                                       "linear_value_head_dim", "linear_conv_kernel_dim"};
    int *const to[] = {&d->key_heads, &d->heads, &d->key_dim, &d->value_dim, &d->taps};
    static const int most[] = {MOST_HEADS, MOST_HEADS, MOST_DIM, MOST_DIM, MOST_TAPS};
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        int64_t n = *to[i];
        NDP_TRY(ndp_config_count(config, what, keys[i], 1, most[i], &n));
        *to[i] = (int)n;
    }
    return d->heads % d->key_heads == 0 ? NDP_OK
                                        : NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" %d is not a multiple of \"%s\" %d", what,
                                                   keys[1], d->heads, keys[0], d->key_heads);
}

/* Its convolutions are followed by the model's activation. */
ndp_status ndp_more_delta(struct json_object *config, const char *what, ndp_facts *f) {
    NDP_TRY(read_delta(config, what, &f->delta));
    if (f->activation != NDP_SILU)
        return ndp_config_refuse(what, "hidden_act", ndp_config_member(config, "hidden_act"),
                                 "; supported for this family: silu");
    f->further = 1; /* mtp.*, whatever the configuration says */
    if (!ndp_family_find(f->family)->keys->experts)
        return NDP_OK;
    if (strcmp(f->family, "qwen3_next") == 0)
        NDP_TRY(ndp_config_bool(config, what, "norm_topk_prob", &f->renormalise));
    return ndp_more_experts(config, what, f);
}

/* ---- keys of single families ---- */

ndp_status ndp_more_gemma(struct json_object *config, const char *what, ndp_facts *f) {
    (void)config, (void)what;
    f->embedding_scale = sqrt(f->hidden);
    return NDP_OK;
}

ndp_status ndp_more_gemma2(struct json_object *config, const char *what, ndp_facts *f) {
    double scalar = 256;
    NDP_TRY(ndp_config_positive(config, what, "query_pre_attn_scalar", &scalar));
    f->attention_scale = 1 / sqrt(scalar);
    NDP_TRY(ndp_more_gemma(config, what, f));
    if (f->attention_cap > 0)
        NDP_TRY(ndp_config_cap(config, what, "attn_logit_softcapping", &f->attention_cap));
    return ndp_config_cap(config, what, "final_logit_softcapping", &f->logit_cap);
}

ndp_status ndp_more_granite(struct json_object *config, const char *what, ndp_facts *f) {
    static const char *const keys[] = {"embedding_multiplier", "residual_multiplier", "attention_multiplier",
                                       "logits_scaling"};
    double divisor = 1, *const to[] = {&f->embedding_scale, &f->residual_scale, &f->attention_scale, &divisor};
    f->attention_scale = 1; /* whatever the head's size */
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        NDP_TRY(ndp_config_positive(config, what, keys[i], to[i]));
        if (!(*to[i] >= 1e-6 && *to[i] <= 1e6))
            return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected 1e-6 to 1e6", what, keys[i], *to[i]);
    }
    f->logit_scale = 1 / divisor;
    return NDP_OK;
}

/* Of gpt_neox too. */
ndp_status ndp_more_stablelm(struct json_object *config, const char *what, ndp_facts *f) {
    int64_t head_dim = f->head_dim; /* its attention ignores the key, its angles do not */
    NDP_TRY(ndp_json_int(config, what, "head_dim", head_dim, head_dim, &head_dim));
    return ndp_config_bool(config, what, "use_parallel_residual", &f->parallel);
}
