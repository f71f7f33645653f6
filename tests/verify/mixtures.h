/* Proof 3 for mixtures of experts, generated: models like mixtral, qwen3_moe and deepseek_v2 on layouts of worlds of 2
 * to 8 ranks and of 16, over all axes and every pipeline schedule, with accumulation 1 and 3. Choices are those of one
 * rank; what a layout would choose otherwise is counted (verify/flips.c). */
#ifndef TESTS_VERIFY_MIXTURES_H
#define TESTS_VERIFY_MIXTURES_H

#include "verify/pipelines.h"

enum { MIXTURE_LENGTH = 23, MOST_MIXTURE_LAYOUTS = 2048 };

typedef struct mixture_model {
    const char *name, *type, *keys;
} mixture_model;

/* Nine layers: two stages on each of four ranks. The others have layers without experts. */
static const mixture_model mixture_models[] = {
    {"tall-mixtral", "mixtral", "\"num_local_experts\": 5, \"num_experts_per_tok\": 2"},
    {"tall-qwen3", "qwen3_moe",
     "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"mlp_only_layers\": [1, 4], "
     "\"norm_topk_prob\": true"},
    {"tall-deepseek", "deepseek_v2",
     "\"n_routed_experts\": 6, \"num_experts_per_tok\": 2, \"n_group\": 3, \"topk_group\": 2, \"q_lora_rank\": 10, "
     "\"topk_method\": \"group_limited_greedy\", \"kv_lora_rank\": 14, \"qk_nope_head_dim\": 4, "
     "\"qk_rope_head_dim\": 2, \"v_head_dim\": 5, \"moe_intermediate_size\": 22, \"first_k_dense_replace\": 1"}};

/* Untied, so that a pipeline moves no sum. In bf16 no rank has a copy of another's kv head: each would round its part
 * of dk and dv, which nothing on one rank does, so the bounds of verify do not have it. The caller frees `path`. */
static inline subject mixture_subject(const corpus *c, const mixture_model *m, const char *precision, char **path) {
    subject s = odd_subject(c, m->name, precision);
    bool latent = strncmp(m->type, "deepseek", 8) == 0; /* keys for each head */
    int kv_heads = latent || strcmp(precision, "bf16") == 0 ? 8 : 4;
    char *text = ndp_format("{\"model_type\": \"%s\", \"vocab_size\": 259, \"hidden_size\": 20, "
                            "\"intermediate_size\": 33, \"num_hidden_layers\": 9, \"num_attention_heads\": 8, "
                            "\"num_key_value_heads\": %d, \"head_dim\": 6, \"max_position_embeddings\": 64, "
                            "\"tie_word_embeddings\": false, \"initializer_range\": 0.1, %s}",
                            m->type, kv_heads, m->keys);
    *path = ndp_format("%s/%s.json", c->folder, m->name);
    CHECK_OK(ndp_file_write_atomic(*path, text, strlen(text)));
    free(text);
    s.path = *path, s.length = MIXTURE_LENGTH, s.window = 0;
    s.moe = "balance=sequence balance_coef=0.3 z_loss=0.02"; /* large, so that a mistake in them tells */
    return s;
}

/* The schedules in turn, of those that have layers for all stages on so many ranks. */
static inline const schedule *schedule_at(int pp, int turn) {
    const schedule *s = &schedules[turn % NDP_COUNT(schedules)];
    return s->chunks * pp <= 9 ? s : &schedules[turn % 3]; /* one stage a rank */
}

/* Layout i: accumulation 1 and 3 in turn, at least 4 samples. */
static inline way mixture_way(const ndp_layout *l, int i, int *turn) {
    way w = way_of(l, i, 0);
    w.accumulation = i % 2 ? 3 : 1;
    int part = data_ranks_of(l) * w.accumulation;
    w.global = (LEAST + part - 1) / part * part;
    if (w.pp > 1)
        put_on(&w, schedule_at(w.pp, (*turn)++));
    return w;
}

/* Tries `count` of the legal layouts of worlds of so many ranks, evenly spread. */
static inline void try_mixtures(family *f, int from, int to, int count) {
    ndp_layout layouts[MOST_MIXTURE_LAYOUTS];
    ndp_layout_facts facts = facts_of(&f->s);
    int n = 0, turn = 0;
    for (int world = from; world <= to; world++) {
        ndp_layout l = NDP_LAYOUT_ONE;
        n = add_layouts(&l, 0, world, world, &facts, layouts, n, MOST_MIXTURE_LAYOUTS);
    }
    assert_true(n >= count);
    for (int i = 0; i < count; i++) {
        way w = mixture_way(&layouts[(int64_t)i * n / count], i, &turn);
        check_way(f, &w);
    }
}

#endif
