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

static ndp_status all_alike(const char *what, ndp_facts *f, int window) {
    for (int i = 0; i < f->layers; i++)
        NDP_TRY(set_kind(f, what, i, window, f->n_ropes ? 0 : NDP_NO_ROPE));
    return NDP_OK;
}

ndp_status ndp_layers_alike(struct json_object *config, const char *what, ndp_facts *f) {
    (void)config;
    return all_alike(what, f, 0);
}

ndp_status ndp_layers_windowed(struct json_object *config, const char *what, ndp_facts *f) {
    (void)config;
    return all_alike(what, f, f->kinds[0].window);
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

/* Where layer_types says nothing: layers from..end - 1 have the window, save for every `every`th (0: none is saved). */
typedef struct window_rule {
    int64_t from, end, every;
} window_rule;

/* Window or not, each with its table of angles. */
static ndp_status by_types(struct json_object *config, const char *what, ndp_facts *f, window_rule rule, int window,
                           int window_rope) {
    struct json_object *types = ndp_config_member(config, "layer_types");
    for (int i = 0; i < f->layers; i++) {
        bool windowed = i >= rule.from && i < rule.end && (rule.every == 0 || (i + 1) % rule.every != 0);
        NDP_TRY(layer_type(types, what, f, i, &windowed));
        if (windowed && (types || rule.every))
            NDP_TRY(need_window(what, i, window));
        NDP_TRY(set_kind(f, what, i, windowed ? window : 0, windowed ? window_rope : 0));
    }
    return NDP_OK;
}

ndp_status ndp_layers_qwen(struct json_object *config, const char *what, ndp_facts *f) {
    bool use = false;
    int64_t from = 28;
    NDP_TRY(ndp_config_bool(config, what, "use_sliding_window", &use));
    NDP_TRY(ndp_config_count(config, what, "max_window_layers", 0, INT32_MAX, &from));
    return by_types(config, what, f, (window_rule){from, INT64_MAX, 0}, use ? f->kinds[0].window : 0, 0);
}

/* Every second layer before max_window_layers, from the first one on, has the window. */
ndp_status ndp_layers_qwen2_moe(struct json_object *config, const char *what, ndp_facts *f) {
    bool use = false;
    int64_t end = 28;
    NDP_TRY(ndp_config_bool(config, what, "use_sliding_window", &use));
    NDP_TRY(ndp_config_count(config, what, "max_window_layers", 0, INT32_MAX, &end));
    return by_types(config, what, f, (window_rule){0, use ? end : 0, 2}, use ? f->kinds[0].window : 0, 0);
}

/* The window counts for all layers, where it is used. */
ndp_status ndp_layers_qwen_moe(struct json_object *config, const char *what, ndp_facts *f) {
    bool use = false;
    NDP_TRY(ndp_config_bool(config, what, "use_sliding_window", &use));
    return all_alike(what, f, use ? f->kinds[0].window : 0);
}

ndp_status ndp_layers_mistral(struct json_object *config, const char *what, ndp_facts *f) {
    return by_types(config, what, f, (window_rule){0, INT64_MAX, 0}, f->kinds[0].window, 0);
}

ndp_status ndp_layers_gemma2(struct json_object *config, const char *what, ndp_facts *f) {
    return by_types(config, what, f, (window_rule){0, INT64_MAX, 2}, f->kinds[0].window, 0);
}

ndp_status ndp_layers_gemma3(struct json_object *config, const char *what, ndp_facts *f) {
    int64_t every = 6;
    NDP_TRY(ndp_config_count(config, what, "sliding_window_pattern", 1, INT32_MAX, &every));
    return by_types(config, what, f, (window_rule){0, INT64_MAX, every}, f->kinds[0].window, 1);
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
    double scalar = 256;
    NDP_TRY(ndp_config_positive(config, what, "query_pre_attn_scalar", &scalar));
    f->attention_scale = 1 / sqrt(scalar);
    f->embedding_scale = sqrt(f->hidden);
    if (f->attention_cap > 0)
        NDP_TRY(ndp_config_cap(config, what, "attn_logit_softcapping", &f->attention_cap));
    return ndp_config_cap(config, what, "final_logit_softcapping", &f->logit_cap);
}

ndp_status ndp_more_stablelm(struct json_object *config, const char *what, ndp_facts *f) {
    int64_t head_dim = f->head_dim; /* its attention ignores the key, its angles do not */
    NDP_TRY(ndp_json_int(config, what, "head_dim", head_dim, head_dim, &head_dim));
    return ndp_config_bool(config, what, "use_parallel_residual", &f->parallel);
}
