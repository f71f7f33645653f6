/* What a config.json says of mixtures of experts: how many, which layers have them, and keys of training that would
 * change what a model computes. Source: the configuration_* and modeling_* files of transformers 5.23. */
#include "model/block.h"
#include "model/read.h"
#include "ops/route.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* MOST_COLUMNS: of all experts of a layer. A model's parameters stay below 2^57 (facts.c). */
enum { MOST_EXPERTS = 1 << 16, MOST_FFN = 1 << 22, MOST_COLUMNS = 1 << 23 };

/* Their number has two names, which transformers takes for one: files of qwen3_moe had num_experts, and have
 * num_local_experts since transformers 5. For the same, glm4_moe has n_routed_experts. */
static ndp_status read_size(struct json_object *config, const char *what, const char *key, int64_t *out) {
    const char *const names[] = {key[0] == 'n' && key[1] == '_' ? key : "num_experts", "num_local_experts"};
    struct json_object *first = ndp_config_member(config, names[0]), *second = ndp_config_member(config, names[1]);
    if (first && second && !json_object_equal(first, second))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %.40s, but \"%s\" is %.40s, and both mean the same; leave out one",
                        what, names[0], json_object_to_json_string(first), names[1],
                        json_object_to_json_string(second));
    key = first ? names[0] : second ? names[1] : key;
    NDP_TRY(ndp_config_size(config, what, key, MOST_EXPERTS, out));
    return *out >= 2 ? NDP_OK : NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is 1: a mixture has at least 2 experts", what, key);
}

/* What matters in training only. */
static ndp_status read_training(struct json_object *config, const char *what, ndp_facts *f) {
    struct json_object *jitter = ndp_config_member(config, "router_jitter_noise");
    bool losses = false;
    if (!ndp_config_is_neutral(jitter, 0))
        return ndp_config_refuse(what, "router_jitter_noise", jitter, "");
    if (f->sigmoid || f->kv_rank > 0) /* transformers has no loss of these */
        return NDP_OK;
    f->balance_coef = f->balance_coef > 0 ? f->balance_coef : 0.001;
    NDP_TRY(ndp_config_bool(config, what, "output_router_logits", &losses));
    NDP_TRY(ndp_config_not_null(config, what, "router_aux_loss_coef"));
    NDP_TRY(ndp_json_double(config, what, "router_aux_loss_coef", &f->balance_coef));
    if (!(f->balance_coef >= 0 && f->balance_coef <= DBL_MAX))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"router_aux_loss_coef\" is %g, expected a number from 0 on", what,
                        f->balance_coef);
    f->balanced = losses && f->balance_coef > 0;
    return NDP_OK;
}

/* Marks the layers that `mlp_only_layers` names. */
static ndp_status read_dense_layers(struct json_object *config, const char *what, const ndp_facts *f, bool *dense) {
    struct json_object *list = ndp_config_member(config, "mlp_only_layers");
    size_t n = json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
    if (list && !json_object_is_type(list, json_type_array))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"mlp_only_layers\" is not a list of numbers of layers", what);
    for (size_t i = 0; i < n; i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        int64_t layer = json_object_is_type(item, json_type_int) ? json_object_get_int64(item) : -1;
        if (layer < 0)
            return NDP_FAIL(NDP_EFORMAT, "%s: \"mlp_only_layers\" holds something that is not the number of a layer",
                            what);
        if (layer < f->layers)
            dense[layer] = true;
    }
    return NDP_OK;
}

/* The kind like `kind` with a mixture in place of its MLP. */
static ndp_status mixture_like(const char *what, ndp_facts *f, int kind, int *out) {
    ndp_layer_kind k = f->kinds[kind];
    k.mlp = &ndp_mlp_experts;
    for (*out = 0; *out < f->n_kinds; ++*out) {
        const ndp_layer_kind *have = &f->kinds[*out];
        if (have->mlp == k.mlp && have->mixer == k.mixer && have->window == k.window && have->rope == k.rope)
            return NDP_OK;
    }
    if (f->n_kinds == NDP_LAYER_KINDS)
        return NDP_FAIL(NDP_ENOTSUP, "%s: more than %d kinds of layers are not supported", what, NDP_LAYER_KINDS);
    f->kinds[f->n_kinds++] = k;
    return NDP_OK;
}

/* Drops the kinds that no layer has: a graph is written for each. */
static void drop_unused_kinds(ndp_facts *f) {
    int kept = 0;
    for (int k = 0; k < f->n_kinds; k++) {
        bool used = false;
        for (int i = 0; i < f->layers; i++)
            used |= f->kind_of[i] == k;
        for (int i = 0; used && i < f->layers; i++)
            if (f->kind_of[i] == k)
                f->kind_of[i] = (uint8_t)kept;
        if (used)
            f->kinds[kept++] = f->kinds[k];
    }
    f->n_kinds = kept;
}

static ndp_status set_mixtures(const char *what, ndp_facts *f, const bool *dense, int64_t every) {
    for (int i = 0; i < f->layers; i++) {
        int kind = f->kind_of[i];
        if (!dense[i] && (i + 1) % every == 0)
            NDP_TRY(mixture_like(what, f, f->kind_of[i], &kind));
        f->kind_of[i] = (uint8_t)kind;
    }
    drop_unused_kinds(f);
    for (int k = 0; k < f->n_kinds; k++)
        if (f->kinds[k].mlp == &ndp_mlp_experts)
            return NDP_OK;
    return NDP_FAIL(NDP_EFORMAT,
                    "%s: no layer has experts: \"mlp_only_layers\" and \"decoder_sparse_step\" exclude all", what);
}

/* Marks the layers that the list calls dense. */
static ndp_status read_layer_mlps(struct json_object *config, const char *what, const char *key, const ndp_facts *f,
                                  bool *dense) {
    struct json_object *list = ndp_config_member(config, key);
    int sparse = 0;
    if (!json_object_is_type(list, json_type_array) || json_object_array_length(list) != (size_t)f->layers)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is not a list of %d words, one a layer", what, key, f->layers);
    for (int i = 0; i < f->layers; i++) {
        const char *word = ndp_json_text(json_object_array_get_idx(list, (size_t)i));
        dense[i] = word && strcmp(word, "dense") == 0;
        if (!dense[i] && !(word && strcmp(word, "sparse") == 0))
            return ndp_config_refuse(what, key, list, "; supported: dense, sparse");
        sparse += !dense[i];
    }
    return sparse > 0 ? NDP_OK : NDP_FAIL(NDP_EFORMAT, "%s: no layer has experts: \"%s\" calls all dense", what, key);
}

/* Which layers have experts: all, but where a family's layers may have an MLP instead. */
static ndp_status read_layers(struct json_object *config, const char *what, ndp_facts *f) {
    bool dense[NDP_MAX_LAYERS] = {false};
    const ndp_keys *k = ndp_family_find(f->family)->keys;
    const char *first = k->dense_layers;
    int64_t every = 1, n = f->dense_layers;
    if (k->layer_mlps && ndp_config_member(config, k->layer_mlps)) {
        NDP_TRY(read_layer_mlps(config, what, k->layer_mlps, f, dense));
    } else if (first) {
        NDP_TRY(ndp_config_count(config, what, first, 0, NDP_MAX_LAYERS, &n));
        for (int i = 0; i < n && i < f->layers; i++)
            dense[i] = true;
        if (n >= f->layers)
            return NDP_FAIL(NDP_EFORMAT, "%s: no layer has experts: \"%s\" is %lld, and there are %d layers", what,
                            first, (long long)n, f->layers);
    } else if (f->names->up) {
        NDP_TRY(ndp_config_count(config, what, "decoder_sparse_step", 1, NDP_MAX_LAYERS, &every));
        NDP_TRY(read_dense_layers(config, what, f, dense));
    }
    return set_mixtures(what, f, dense, every);
}

/* Groups of experts, and the scale of weights. A group counts as the sum of its two best, or as its best one. Null: one
 * group. */
static ndp_status read_scores(struct json_object *config, const char *what, const char *experts, ndp_facts *f) {
    int64_t groups = f->groups > 0 ? f->groups : 1, open = f->open_groups > 0 ? f->open_groups : 1;
    int least = f->sigmoid ? 2 : 1;
    bool none = f->kv_rank > 0 && !f->sigmoid && !ndp_config_member(config, "n_group");
    if (!none) {
        NDP_TRY(ndp_config_count(config, what, "n_group", 1, f->experts, &groups));
        NDP_TRY(ndp_config_count(config, what, "topk_group", 1, groups, &open));
    }
    NDP_TRY(ndp_config_positive(config, what, "routed_scaling_factor", &f->routed_scale));
    if (f->experts % groups != 0 || f->experts / groups < least)
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" %d are not \"n_group\" %lld equal groups of at least %d", what,
                        experts, f->experts, (long long)groups, least);
    if (f->choices > open * (f->experts / groups))
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: \"num_experts_per_tok\" is %d, but \"topk_group\" %lld of %lld groups have %lld", what,
                        f->choices, (long long)open, (long long)groups, (long long)open * (f->experts / groups));
    if (groups > NDP_MOST_GROUPS)
        return ndp_config_refuse(what, "n_group", ndp_config_member(config, "n_group"), "; supported: up to 64");
    f->groups = groups > open ? (int)groups : 0, f->open_groups = groups > open ? (int)open : 0;
    return NDP_OK;
}

/* Shared experts are one MLP, as wide as all of them. */
static ndp_status read_shared(struct json_object *config, const char *what, const ndp_keys *k, int64_t ffn,
                              int64_t *out) {
    int64_t n = 1;
    if (k->shared_ffn)
        return ndp_config_size(config, what, k->shared_ffn, MOST_FFN, out);
    if (!k->shared_experts)
        return NDP_OK;
    NDP_TRY(ndp_config_count(config, what, k->shared_experts, 1, MOST_FFN / ffn, &n));
    *out = n * ffn;
    return NDP_OK;
}

ndp_status ndp_config_further(struct json_object *config, const char *what, ndp_facts *f) {
    static const char *const keys[] = {"num_mtp_layers", "num_nextn_predict_layers"}; /* one, under two names */
    int64_t n = 1;
    for (int i = 0; i < NDP_COUNT(keys); i++)
        NDP_TRY(ndp_config_count(config, what, keys[i], 0, NDP_MAX_LAYERS, &n));
    f->further = (int)n;
    return NDP_OK;
}

ndp_status ndp_more_glm4_moe(struct json_object *config, const char *what, ndp_facts *f) {
    bool norms = false;
    NDP_TRY(ndp_config_further(config, what, f));
    NDP_TRY(ndp_config_bool(config, what, "use_qk_norm", &norms));
    f->qk_norm = norms ? NDP_QK_NORM_HEAD : NDP_QK_NORM_NONE;
    return ndp_more_experts(config, what, f);
}

ndp_status ndp_more_experts(struct json_object *config, const char *what, ndp_facts *f) {
    const ndp_keys *k = ndp_family_find(f->family)->keys;
    int64_t experts, choices, ffn = f->ffn, shared = 0;
    NDP_TRY(read_size(config, what, k->experts, &experts));
    NDP_TRY(ndp_config_size(config, what, "num_experts_per_tok", experts, &choices));
    if (k->expert_ffn)
        NDP_TRY(ndp_config_size(config, what, k->expert_ffn, MOST_FFN, &ffn));
    NDP_TRY(read_shared(config, what, k, ffn, &shared));
    if (experts * ffn > MOST_COLUMNS)
        return NDP_FAIL(NDP_EFORMAT, "%s: %lld experts of \"%s\" %lld are more than %d columns", what,
                        (long long)experts, k->expert_ffn ? k->expert_ffn : k->ffn, (long long)ffn, MOST_COLUMNS);
    if (!f->renormalise || f->sigmoid)
        NDP_TRY(ndp_config_bool(config, what, "norm_topk_prob", &f->renormalise));
    NDP_TRY(read_training(config, what, f));
    f->experts = (int)experts, f->choices = (int)choices, f->expert_ffn = (int)ffn;
    f->shared_ffn = (int)shared;
    if (f->sigmoid || f->kv_rank > 0)
        NDP_TRY(read_scores(config, what, k->experts, f));
    return read_layers(config, what, f);
}

/* transformers' class has one gate, whatever hidden_act says, and yarn where no table is given. */
ndp_status ndp_more_gpt_oss(struct json_object *config, const char *what, ndp_facts *f) {
    struct json_object *act = ndp_config_member(config, "hidden_act");
    if (act && !(ndp_json_text(act) && strcmp(ndp_json_text(act), "silu") == 0))
        return ndp_config_refuse(what, "hidden_act", act, "; supported for this family: silu");
    if (!ndp_config_member(config, "rope_scaling") && !ndp_config_member(config, "rope_parameters"))
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: neither \"rope_scaling\" nor \"rope_parameters\": transformers would take those of "
                        "gpt-oss-20b, yarn with factor 32; give one",
                        what);
    NDP_TRY(ndp_config_positive(config, what, "swiglu_alpha", &f->swiglu_alpha));
    NDP_TRY(ndp_config_positive(config, what, "swiglu_limit", &f->swiglu_limit));
    return ndp_more_experts(config, what, f);
}
