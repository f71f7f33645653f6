/* What tells the layers of a model apart, and the keys of single families. */
#include "model/read.h"

#include <math.h>
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

/* What layer_types says of a layer; *windowed is the family's rule where it says nothing. */
static ndp_status layer_type(struct json_object *types, const char *what, const ndp_facts *f, int layer,
                             bool *windowed) {
    if (!types)
        return NDP_OK;
    if (!json_object_is_type(types, json_type_array) || json_object_array_length(types) != (size_t)f->layers)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"layer_types\" is not a list of %d names, one a layer", what, f->layers);
    const char *type = ndp_json_text(json_object_array_get_idx(types, (size_t)layer));
    *windowed = type && strcmp(type, "sliding_attention") == 0;
    if (!*windowed && !(type && strcmp(type, "full_attention") == 0))
        return ndp_config_refuse(what, "layer_types", types, "; supported: full_attention, sliding_attention");
    return NDP_OK;
}

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
        NDP_TRY(layer_type(types, what, f, i, &windowed));
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
        NDP_TRY(layer_type(types, what, f, i, &windowed));
        if (windowed && types)
            NDP_TRY(need_window(what, i, window));
        NDP_TRY(set_kind(f, what, i, windowed ? window : 0, rope ? 0 : NDP_NO_ROPE));
    }
    return NDP_OK;
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
