/* Keys of Gemma 4: heads whose sizes depend on the kind of layer, and what its smaller models and its mixtures have
 * besides, which is not built. */
#include "model/block.h"
#include "model/read.h"

#include <stdio.h>
#include <string.h>

static const char by_layer[] = "per_layer_config";

enum { MAX_HEAD = 1 << 16 };

/* Sizes of the heads of layers that see all keys. */
static ndp_status set_full(const char *what, int64_t dim, int64_t kv, ndp_facts *f) {
    if (kv < 1 || f->heads % kv != 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: num_attention_heads %d is not a multiple of %lld kv heads of full_attention",
                        what, f->heads, (long long)kv);
    f->full.dim = (int)dim, f->full.kv = (int)kv;
    return NDP_OK;
}

/* per_layer_config, by which transformers 5 writes again what it has read: of all layers with full_attention the same
 * sizes. Which layers these are is not known yet (check_layers). */
static ndp_status read_by_layer(struct json_object *list, const char *what, ndp_facts *f) {
    struct json_object *first = NULL;
    int64_t dim = f->head_dim, kv = f->kv_heads;
    if (!json_object_is_type(list, json_type_object))
        return ndp_config_refuse(what, by_layer, list, "");
    json_object_object_foreach(list, layer, sizes) {
        first = first ? first : sizes;
        if (!json_object_is_type(sizes, json_type_object) || !json_object_equal(first, sizes))
            return ndp_config_refuse(what, layer, sizes, ": all layers with full_attention have the same sizes");
    }
    if (first) {
        json_object_object_foreach(first, key, value) {
            if (strcmp(key, "head_dim") != 0 && strcmp(key, "num_key_value_heads") != 0)
                return ndp_config_refuse(what, key, value, " for single layers");
        }
    }
    NDP_TRY(ndp_config_count(first, what, "head_dim", 1, MAX_HEAD, &dim));
    NDP_TRY(ndp_config_count(first, what, "num_key_value_heads", 1, f->heads, &kv));
    return set_full(what, dim, kv, f);
}

ndp_status ndp_shape_gemma4(struct json_object *config, const char *what, ndp_facts *f) {
    struct json_object *list = NULL;
    int64_t dim = f->head_dim, full = 512, kv = 0;
    NDP_TRY(ndp_config_count(config, what, "head_dim", 1, MAX_HEAD, &dim));
    NDP_TRY(ndp_config_bool(config, what, "attention_k_eq_v", &f->full.v_is_k));
    f->head_dim = (int)dim;
    if (json_object_object_get_ex(config, by_layer, &list))
        return read_by_layer(list, what, f);
    NDP_TRY(ndp_config_count(config, what, "global_head_dim", 1, MAX_HEAD, &full));
    NDP_TRY(ndp_json_int(config, what, "num_global_key_value_heads", 1, f->heads, &kv));
    return set_full(what, full, kv > 0 && f->full.v_is_k ? kv : f->kv_heads, f);
}

/* What E2B, E4B and the mixtures have. */
static ndp_status check_others(struct json_object *config, const char *what, const ndp_facts *f) {
    static const char *const keys[] = {"hidden_size_per_layer_input", "num_kv_shared_layers", "enable_moe_block"};
    static const char attends[] = "use_bidirectional_attention";
    struct json_object *both = ndp_config_member(config, attends);
    const char *text = ndp_json_text(both);
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        struct json_object *value = ndp_config_member(config, keys[i]);
        NDP_TRY(ndp_config_not_null(config, what, keys[i]));
        if (!ndp_config_is_neutral(value, 0))
            return ndp_config_refuse(what, keys[i], value, "");
        if (i == 0 && !value && strcmp(f->family, "gemma4_text") == 0)
            return NDP_FAIL(NDP_ENOTSUP, "%s: \"%s\" is missing, so it is 256, which is not supported; supported: 0",
                            what, keys[i]);
    }
    return !ndp_config_is_neutral(both, 0) && !(text && strcmp(text, "vision") == 0)
               ? ndp_config_refuse(what, attends, both, "; supported: null, vision")
               : NDP_OK;
}

static ndp_status check_layers(struct json_object *config, const char *what, const ndp_facts *f) {
    struct json_object *list = NULL;
    char number[16];
    if (!json_object_object_get_ex(config, by_layer, &list))
        return NDP_OK;
    for (int i = 0, n = 0; i < f->layers; i++) {
        bool full = f->kinds[f->kind_of[i]].mixer->full;
        snprintf(number, sizeof number, "%d", i);
        n += full;
        if (json_object_object_get_ex(list, number, NULL) != full ||
            (i == f->layers - 1 && json_object_object_length(list) != n))
            return ndp_config_refuse(what, by_layer, list, "; supported: sizes of all layers with full_attention");
    }
    return NDP_OK;
}

ndp_status ndp_more_gemma4(struct json_object *config, const char *what, ndp_facts *f) {
    f->attention_scale = 1;
    for (int k = 0; k < f->n_kinds; k++)
        if (f->kinds[k].rope == 0)
            f->kinds[k].mixer = &ndp_mixer_full;
    NDP_TRY(check_others(config, what, f));
    NDP_TRY(check_layers(config, what, f));
    NDP_TRY(ndp_more_gemma(config, what, f));
    return ndp_config_cap(config, what, "final_logit_softcapping", &f->logit_cap);
}
