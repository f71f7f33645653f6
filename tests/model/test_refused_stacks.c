/* What stacks of matrices, and routers, are refused for, by name: some adapters. */
#include "check.h"
#include "model/adapter_names.h"
#include "model/decoder.h"

/* A decoder whose projections up are stacks of four. */
static void build(ndp_facts *f, ndp_model *m) {
    const ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    CHECK_OK(ndp_facts_parse_text("{\"model_type\": \"llama\", \"vocab_size\": 100, \"hidden_size\": 64, "
                                  "\"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                                  "\"num_key_value_heads\": 4, \"max_position_embeddings\": 64}",
                                  "config.json", f));
    CHECK_OK(ndp_decoder_build(f, &o, m));
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++)
            if (ndp_ends_with(m->buffers[b].segments.items[i].name, "up_proj.weight"))
                ndp_segment_pile(&m->buffers[b].segments.items[i], 4, 1);
}

/* All projections together are those that are no stacks. */
static void no_adapter_changes_a_stack(void **state) {
    static const struct {
        const char *target, *save, *words; /* NULL: allowed */
    } of[] = {{"linear", NULL, NULL},
              {"q_proj", NULL, NULL},
              {"*_proj", NULL, NULL},
              {"up_proj", NULL,
               "adapter.targets: up_proj names some experts, or one of their gate and up "
               "(model.layers.1.mlp.up_proj.weight, ...), of which all have "
               "factors or none; use adapter.targets: [q_proj, k_proj, v_proj, o_proj, gate_proj, "},
              {"model.layers.0.mlp.up*", NULL,
               "model.layers.0.mlp.up* names some experts, or one of their gate and up "
               "(model.layers.0.mlp.up_proj.weight, ...)"},
              {"q_proj", "up_proj", "adapter.modules_to_save: up_proj names some experts, or one of"}};
    static ndp_facts f;
    ndp_model m;
    (void)state;
    build(&f, &m);
    for (int i = 0; i < NDP_COUNT(of); i++) {
        m.opts.adapter = (ndp_adapter){
            .r = 4, .targets = &of[i].target, .n_targets = 1, .save = &of[i].save, .n_save = of[i].save != NULL};
        if (of[i].words)
            CHECK_FAILS(ndp_adapter_check(&m, &f), NDP_ENOTSUP, of[i].words);
        else
            CHECK_OK(ndp_adapter_check(&m, &f));
    }
    m.opts.adapter = (ndp_adapter){0};
    ndp_model_release(&m);
}

typedef struct naming {
    const char *target, *save, *words; /* NULL: allowed */
} naming;

static void check_names(const char *config, const naming *of, int n) {
    static ndp_facts f;
    ndp_model m;
    const ndp_model_opts o = {
        .mode = NDP_MODEL_TRAIN, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    CHECK_OK(ndp_facts_parse_text(config, "config.json", &f));
    CHECK_OK(ndp_decoder_build(&f, &o, &m));
    for (int i = 0; i < n; i++) {
        m.opts.adapter = (ndp_adapter){
            .r = 4, .targets = &of[i].target, .n_targets = 1, .save = &of[i].save, .n_save = of[i].save != NULL};
        if (of[i].words)
            CHECK_FAILS(ndp_adapter_check(&m, &f), strstr(of[i].words, "there is no") ? NDP_EINVAL : NDP_ENOTSUP,
                        of[i].words);
        else
            CHECK_OK(ndp_adapter_check(&m, &f));
    }
    m.opts.adapter = (ndp_adapter){0};
    ndp_model_release(&m);
}

#define MIXTURE(type, more)                                                                                            \
    "{\"model_type\": \"" type "\", \"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 96, "             \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "                               \
    "\"max_position_embeddings\": 64, \"num_experts\": 4, \"num_experts_per_tok\": 2, "                                \
    "\"moe_intermediate_size\": 8" more "}"

/* The experts and the router of a mixture, by the names in files. */
static void no_adapter_changes_a_mixture(void **state) {
    static const naming of[] = {
        {"linear", NULL, NULL},
        {"*_proj", NULL, NULL},
        {"*mlp*", NULL, NULL}, /* of the layer with an MLP */
        {"gate", NULL, "adapter.targets: gate is a router, model.layers.1.mlp.gate.weight, which no adapter"},
        {"w1", NULL, "there is no projection 'w1' in a qwen3_moe; there are q_proj, k_proj, v_proj, o_proj, gate_"},
        {"mlp.experts.3.up_proj", NULL,
         "adapter.targets: mlp.experts.3.up_proj names some experts, or one of their gate and up "
         "(model.layers.1.mlp.experts.0.gate_proj.weight, ...)"},
        {"*.experts.*.up_proj", NULL, "*.experts.*.up_proj names some experts, or one of"},
        {"experts.up_proj", NULL, "there is no projection 'experts.up_proj' in a qwen3_moe; there are q_proj, k_proj"},
        {"*experts*", NULL, NULL},
        {"*.experts.*.*", NULL, NULL},
        {"*.experts.*.down_proj", NULL, NULL},
        {"experts.gate_up_proj", NULL, NULL},
        {"model.layers.1.mlp.experts.down_proj", NULL, NULL},
        /* regular expressions are of modules, which experts are not */
        {"regex:model\\.layers\\.[01]\\.(self_attn|mlp)\\.(q|up)_proj", NULL, NULL},
        {"regex:.*_proj", NULL, NULL},
        {"regex:q_proj", NULL, "adapter.targets: there is no projection 'regex:q_proj' in a qwen3_moe"},
        {"regex:.*experts.*", NULL, "there is no projection 'regex:.*experts.*' in a qwen3_moe"},
        {"regex:.*", NULL, "the regular expression '.*' also names model.embed_tokens, which is no projection and has"},
        {"regex:.*(q_proj|lm_head)", NULL, "the regular expression '.*(q_proj|lm_head)' also names lm_head, which"},
        {"q_proj", "gate", "adapter.modules_to_save: gate is a router, model.layers.1.mlp.gate.weight"},
        {"q_proj", "experts.0.down_proj",
         "adapter.modules_to_save: experts.0.down_proj names some experts, or one of their gate and up "
         "(model.layers.1.mlp.experts.0.down_proj.weight, ...), of which all have factors or none; use "
         "adapter.modules_to_save: ["}};
    (void)state;
    check_names(MIXTURE("qwen3_moe", ", \"mlp_only_layers\": [0]"), of, NDP_COUNT(of));
}

/* Adapters change a shared expert's projections, as an MLP's, but not its gate. */
static void adapters_change_a_shared_expert(void **state) {
    static const naming of[] = {
        {"linear", NULL, NULL},
        {"gate_proj", NULL, NULL},
        {"regex:.*(q|k|v)_proj", NULL, NULL}, /* which have biases */
        {"shared_expert.down_proj", NULL, NULL},
        {"*shared_expert*", NULL, NULL},
        {"shared_expert_gate", NULL,
         "shared_expert_gate is the gate of a shared expert, model.layers.1.mlp.shared_expert_gate.weight, which no"},
        {"q_proj", "shared_expert_gate", "adapter.modules_to_save: shared_expert_gate is the gate of a shared expert"},
        {"q_proj", "shared_expert.up_proj", "shared_expert.up_proj is a projection, which is trained by factors only"}};
    (void)state;
    check_names(MIXTURE("qwen2_moe", ", \"shared_expert_intermediate_size\": 12"), of, NDP_COUNT(of));
}

static void no_adapter_changes_a_bias_of_a_router(void **state) {
    static const naming of[] = {
        {"linear", NULL, NULL},
        {"shared_experts.up_proj", NULL, NULL},
        {"q_proj", "mlp.gate", "adapter.modules_to_save: mlp.gate is a router, model.layers.1.mlp.gate."}};
    (void)state;
    check_names("{\"model_type\": \"glm4_moe\", \"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 96, "
                "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                "\"max_position_embeddings\": 64, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
                "\"moe_intermediate_size\": 8}",
                of, NDP_COUNT(of));
}

/* Files and PEFT do not call it the same. */
static void no_adapter_saves_a_head_of_two_names(void **state) {
    static const naming of[] = {{"linear", "final_layer_norm", NULL},
                                {"query_key_value", "embed_in", NULL},
                                {"dense", "embed_out",
                                 "adapter.modules_to_save: embed_out is the head of a gpt_neox, which is embed_out in "
                                 "files and lm_head in PEFT"}};
    static const naming tied[] = {{"linear", "input_layernorm", NULL},
                                  {"linear", "embed_in", "adapter.modules_to_save: embed_in is the head of a gpt_neox"},
                                  {"linear", "embed_out", "embed_out is the head of a gpt_neox"}};
    (void)state;
#define NEOX(more)                                                                                                     \
    "{\"model_type\": \"gpt_neox\", \"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 96, "             \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 64" more "}"
    check_names(NEOX(""), of, NDP_COUNT(of));
    check_names(NEOX(", \"tie_word_embeddings\": true"), tied, NDP_COUNT(tied));
}

static void no_adapter_changes_sinks(void **state) {
    static const naming of[] = {
        {"linear", NULL, NULL},
        {"o_proj", NULL, NULL},
        {"experts", NULL, "experts names some experts, or one of their gate and up (model.layers.1.mlp.experts."},
        {"mlp.experts.gate_up_proj", NULL, NULL},
        {"experts.gate_up_proj_bias", NULL,
         "there is no projection 'experts.gate_up_proj_bias' in a gpt_oss; there are"},
        {"q_proj", "mlp.router", "adapter.modules_to_save: mlp.router is a router, model.layers.1.mlp.router.bias"},
        {"q_proj", "self_attn", "self_attn is what attention has sinks in, model.layers.1.self_attn.sinks, which no"}};
    (void)state;
    check_names("{\"model_type\": \"gpt_oss\", \"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 8, "
                "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
                "\"max_position_embeddings\": 64, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
                "\"rope_parameters\": {\"rope_type\": \"default\"}}",
                of, NDP_COUNT(of));
}

/* As PEFT refuses them. */
static void experts_have_neither_dora_nor_dropout(void **state) {
    static const char *const target = "experts.gate_up_proj";
    static ndp_facts f;
    ndp_model_opts o = {.mode = NDP_MODEL_TRAIN, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    ndp_model m;
    (void)state;
    CHECK_OK(ndp_facts_parse_text(MIXTURE("qwen3_moe", ""), "config.json", &f));
    o.adapter = (ndp_adapter){.r = 2, .scale = 1, .targets = &target, .n_targets = 1, .form = NDP_DORA};
    CHECK_FAILS(ndp_decoder_build(&f, &o, &m), NDP_ENOTSUP, "names experts (model.layers.0.mlp.experts.");
    o.adapter.form = NDP_LORA, o.adapter.dropout = 0.1;
    CHECK_FAILS(ndp_decoder_build(&f, &o, &m), NDP_ENOTSUP, "set adapter.dropout: 0, or leave experts out");
    static const char *const mixed[] = {"*.experts.*.down_proj", "experts.gate_up_proj"}, *const half[] = {
                                                                                              "*.experts.*.gate_proj",
                                                                                              "*.experts.*.up_proj"};
    o.adapter.dropout = 0, o.adapter.n_targets = 2, o.adapter.targets = mixed;
    CHECK_FAILS(ndp_decoder_build(&f, &o, &m), NDP_ENOTSUP, "which PEFT does not load: name both (*.experts.*.*)");
    o.adapter.targets = half;
    CHECK_FAILS(ndp_decoder_build(&f, &o, &m), NDP_ENOTSUP, "single experts for one of gate and up, and down");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_adapter_changes_a_stack),
                                       cmocka_unit_test(no_adapter_changes_a_mixture),
                                       cmocka_unit_test(adapters_change_a_shared_expert),
                                       cmocka_unit_test(no_adapter_changes_a_bias_of_a_router),
                                       cmocka_unit_test(no_adapter_changes_sinks),
                                       cmocka_unit_test(no_adapter_saves_a_head_of_two_names),
                                       cmocka_unit_test(experts_have_neither_dora_nor_dropout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
