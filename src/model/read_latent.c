/* What a config.json says of latent attention (arXiv:2405.04434), and of the mixtures of the families that have it.
 * Source: the configuration_* and modeling_* files of transformers 5.24. */
#include "model/block.h"
#include "model/read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_RANK = 1 << 20, MOST_DIM = 1 << 16, MOST_WIDTH = 1 << 20 };

/* A rank of 0, as null says it: queries are one product. */
static ndp_status read_ranks(struct json_object *config, const char *what, ndp_facts *f) {
    struct json_object *q = NULL;
    int64_t q_rank = f->q_rank, kv_rank = f->kv_rank;
    bool stated = json_object_object_get_ex(config, "q_lora_rank", &q);
    if (stated && q)
        NDP_TRY(ndp_config_size(config, what, "q_lora_rank", MOST_RANK, &q_rank));
    NDP_TRY(ndp_config_count(config, what, "kv_lora_rank", 1, MOST_RANK, &kv_rank));
    f->q_rank = stated && !q ? 0 : (int)q_rank, f->kv_rank = (int)kv_rank;
    return NDP_OK;
}

/* Each head has keys and values of its own, made of what all share. */
ndp_status ndp_shape_latent(struct json_object *config, const char *what, ndp_facts *f) {
    static const char *const keys[] = {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"};
    int64_t dims[] = {f->nope_dim, f->head_dim - f->nope_dim, f->v_dim};
    NDP_TRY(read_ranks(config, what, f));
    for (int i = 0; i < NDP_COUNT(keys); i++)
        NDP_TRY(ndp_config_count(config, what, keys[i], 1, MOST_DIM, &dims[i]));
    if (f->kv_heads != f->heads)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: \"num_key_value_heads\" is %d, and latent attention has keys for each of %d heads", what,
                        f->kv_heads, f->heads);
    if (f->heads * (dims[0] + dims[1] + dims[2]) > MOST_WIDTH)
        return NDP_FAIL(NDP_EFORMAT, "%s: %d heads of %lld + %lld and %lld columns are wider than %d", what, f->heads,
                        (long long)dims[0], (long long)dims[1], (long long)dims[2], MOST_WIDTH);
    f->nope_dim = (int)dims[0], f->head_dim = (int)(dims[0] + dims[1]), f->v_dim = (int)dims[2];
    if (strcmp(f->family, "deepseek_v2") != 0)
        NDP_TRY(ndp_config_bool(config, what, "rope_interleave", &f->neighbours));
    return NDP_OK;
}

/* With scaled RoPE the scores are scaled too, by mscale_all_dim. */
static ndp_status scale_scores(struct json_object *config, const char *what, ndp_facts *f) {
    struct json_object *rope = ndp_config_member(config, "rope_scaling");
    double by = 0;
    rope = rope ? rope : ndp_config_member(config, "rope_parameters");
    NDP_TRY(ndp_json_double(rope, what, "mscale_all_dim", &by));
    if (f->ropes[0].scaling == NDP_ROPE_PLAIN || by == 0 || f->ropes[0].factor <= 1)
        return NDP_OK;
    by = 0.1 * by * log(f->ropes[0].factor) + 1;
    f->attention_scale *= by * by;
    return NDP_OK;
}

/* What its configurations say of the router, and its class of transformers does not read. */
static ndp_status expect_word(struct json_object *config, const char *what, const char *key, const char *word) {
    struct json_object *value = ndp_config_member(config, key);
    char way_out[60];
    snprintf(way_out, sizeof way_out, "; supported for this family: %s", word);
    return !value || (ndp_json_text(value) && strcmp(ndp_json_text(value), word) == 0)
               ? NDP_OK
               : ndp_config_refuse(what, key, value, way_out);
}

static ndp_status expect_neutral(struct json_object *config, const char *what, const char *key, double neutral) {
    struct json_object *value = ndp_config_member(config, key);
    return ndp_config_is_neutral(value, neutral) ? NDP_OK : ndp_config_refuse(what, key, value, "");
}

static ndp_status more(struct json_object *config, const char *what, const char *score, ndp_facts *f) {
    NDP_TRY(scale_scores(config, what, f));
    NDP_TRY(expect_word(config, what, "scoring_func", score));
    NDP_TRY(expect_neutral(config, what, "moe_layer_freq", 1));
    return ndp_more_experts(config, what, f);
}

/* Of deepseek_v3 and glm4_moe_lite. */
ndp_status ndp_more_deepseek_v3(struct json_object *config, const char *what, ndp_facts *f) {
    NDP_TRY(expect_word(config, what, "topk_method", "noaux_tc"));
    NDP_TRY(ndp_config_further(config, what, f));
    return more(config, what, "sigmoid", f);
}

/* Its experts' weights are never divided by their sum. */
ndp_status ndp_more_deepseek_v2(struct json_object *config, const char *what, ndp_facts *f) {
    struct json_object *method = ndp_config_member(config, "topk_method");
    const char *word = ndp_json_text(method);
    bool grouped = word && strcmp(word, "group_limited_greedy") == 0;
    if (method && !grouped && !(word && strcmp(word, "greedy") == 0))
        return ndp_config_refuse(what, "topk_method", method,
                                 "; supported for this family: greedy, group_limited_greedy");
    NDP_TRY(expect_neutral(config, what, "norm_topk_prob", 0));
    NDP_TRY(expect_neutral(config, what, "mlp_bias", 0));
    NDP_TRY(more(config, what, "softmax", f));
    if (!grouped)
        f->groups = f->open_groups = 0;
    return NDP_OK;
}
