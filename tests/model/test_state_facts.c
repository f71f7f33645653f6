/* config.json -> facts, for models with layers of the gated delta rule. */
#include "model/block.h"

#include "check.h"

static ndp_status parse(const char *text, ndp_facts *f) { return ndp_facts_parse_text(text, "config.json", f); }

#define FAMILY(type, keys)                                                                                             \
    "{\"model_type\": \"" type "\", \"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"vocab_size\": 100, "     \
    "\"hidden_size\": 64, \"intermediate_size\": 172, \"num_hidden_layers\": 5, \"max_position_embeddings\": "         \
    "512, " keys "}"
#define STATES(keys) FAMILY("qwen3_5_text", keys)
#define NEXT(more)                                                                                                     \
    FAMILY("qwen3_next", "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 20, "             \
                         "\"shared_expert_intermediate_size\": 36" more)
#define MOE35(more)                                                                                                    \
    FAMILY("qwen3_5_moe_text", "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 20, "       \
                               "\"shared_expert_intermediate_size\": 36" more)

/* Layers of the delta rule do not know positions; a quarter of a head of the others turns. */
static void layers_with_a_state_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(STATES("\"rope_theta\": 1e7"), &f));
    assert_true(f.delta.key_heads == 16 && f.delta.heads == 32 && f.delta.taps == 4);
    assert_true(f.delta.key_dim == 128 && f.delta.value_dim == 128);
    assert_true(f.head_dim == 256 && f.ropes[0].dim == 64 && f.ropes[0].theta == 1e7 && f.qk_norm == NDP_QK_NORM_HEAD);
    assert_true(f.norm.offset && f.norm_eps == 1e-6 && !f.tied && !f.qkv_bias && !f.o_bias && f.experts == 0);
    for (int i = 0; i < f.layers; i++) {
        const ndp_layer_kind *k = &f.kinds[f.kind_of[i]];
        assert_true(k->window == 0 && k->mlp == &ndp_mlp_gated);
        assert_true(i == 3 ? k->rope == 0 && k->mixer == &ndp_mixer_gated
                           : k->rope == NDP_NO_ROPE && k->mixer == &ndp_mixer_delta);
    }
    assert_true(ndp_facts_carries(&f, "mtp.layers.0.self_attn.q_proj.weight") &&
                ndp_facts_ignores(&f, "mtp.fc.weight"));
    assert_false(ndp_facts_ignores(&f, "model.layers.0.linear_attn.A_log"));
    CHECK_OK(parse(STATES("\"full_attention_interval\": 2, \"linear_num_key_heads\": 3, \"linear_num_value_heads\": 6, "
                          "\"linear_key_head_dim\": 5, \"linear_value_head_dim\": 7, \"linear_conv_kernel_dim\": 8, "
                          "\"attention_bias\": true, \"partial_rotary_factor\": 0.5, \"head_dim\": 16, "
                          "\"hidden_act\": \"swish\""),
                   &f));
    assert_true(f.delta.key_heads == 3 && f.delta.heads == 6 && f.delta.taps == 8 && f.qkv_bias && f.o_bias);
    assert_true(f.delta.key_dim == 5 && f.delta.value_dim == 7 && f.ropes[0].dim == 8);
    assert_true(f.kind_of[0] == 0 && f.kind_of[1] == 1 && f.kind_of[4] == 0 && f.kinds[1].mixer == &ndp_mixer_gated);
    CHECK_OK(parse(STATES("\"full_attention_interval\": 2, \"layer_types\": [\"full_attention\", \"full_attention\", "
                          "\"full_attention\", \"full_attention\", \"full_attention\"]"),
                   &f));
    assert_true(f.n_kinds == 1 && f.kinds[0].mixer == &ndp_mixer_gated && ndp_facts_layout(&f).state_heads == 0);
}

/* Heads of layers that no model has limit no layout. */
static void layouts_are_of_the_heads_there_are(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(STATES("\"linear_num_key_heads\": 4"), &f));
    ndp_layout_facts l = ndp_facts_layout(&f);
    assert_true(l.heads == 8 && l.kv_heads == 2 && l.most_kv_heads == 0 && l.state_heads == 4);
    CHECK_OK(parse(STATES("\"linear_num_key_heads\": 4, \"full_attention_interval\": 9"), &f));
    l = ndp_facts_layout(&f);
    assert_true(l.heads == 0 && l.kv_heads == 0 && l.most_kv_heads == 0 && l.state_heads == 4);
}

/* The layers with a mixture, a bit each. */
static unsigned mixtures_of(const ndp_facts *f) {
    unsigned bits = 0;
    for (int i = 0; i < f->layers; i++)
        bits |= (unsigned)(f->kinds[f->kind_of[i]].mlp == &ndp_mlp_experts) << i;
    return bits;
}

/* qwen3_next may have an MLP in single layers; qwen3_5_moe divides weights by their sum, whatever its keys say. */
static void mixtures_beside_states_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(NEXT(""), &f));
    assert_true(f.experts == 6 && f.choices == 3 && f.expert_ffn == 20 && f.shared_ffn == 36 && f.renormalise);
    assert_true(f.n_kinds == 2 && mixtures_of(&f) == 31 && f.head_dim == 256 && f.ropes[0].dim == 64);
    assert_true(ndp_facts_carries(&f, "mtp.layers.0.mlp.gate.weight") && f.balance_coef == 0.001);
    CHECK_OK(parse(NEXT(", \"mlp_only_layers\": [0], \"norm_topk_prob\": false, \"full_attention_interval\": 2"), &f));
    assert_true(f.n_kinds == 3 && mixtures_of(&f) == 30 && !f.renormalise);
    CHECK_OK(parse(NEXT(", \"decoder_sparse_step\": 2, \"layer_types\": [\"linear_attention\", \"linear_attention\", "
                        "\"full_attention\", \"full_attention\", \"full_attention\"]"),
                   &f));
    assert_true(f.n_kinds == 4 && mixtures_of(&f) == 10);
    CHECK_OK(parse(MOE35(", \"mlp_only_layers\": [0], \"norm_topk_prob\": false, \"decoder_sparse_step\": 2"), &f));
    assert_true(f.n_kinds == 2 && mixtures_of(&f) == 31 && f.renormalise && f.ffn == 20 && f.shared_ffn == 36);
}

static const struct {
    const char *text, *words;
} bad[] = {
    {STATES("\"hidden_act\": \"gelu_pytorch_tanh\""),
     "\"hidden_act\": \"gelu_pytorch_tanh\" is not supported; supported for this family: silu"},
    {STATES("\"layer_types\": [\"linear_attention\"]"), "\"layer_types\" is not a list of 5 names"},
    {STATES("\"layer_types\": [\"linear_attention\", \"linear_attention\", \"linear_attention\", "
            "\"linear_attention\", \"sliding_attention\"]"),
     "supported: full_attention, linear_attention"},
    {STATES("\"full_attention_interval\": 0"), "\"full_attention_interval\" is 0"},
    {STATES("\"full_attention_interval\": null"), "\"full_attention_interval\" is null"},
    {STATES("\"linear_conv_kernel_dim\": 0"), "\"linear_conv_kernel_dim\" is 0, expected a whole number from 1 to 8"},
    {STATES("\"linear_conv_kernel_dim\": 9"), "\"linear_conv_kernel_dim\" is 9, expected a whole number from 1 to 8"},
    {STATES("\"linear_num_key_heads\": 0"), "\"linear_num_key_heads\" is 0"},
    {STATES("\"linear_num_value_heads\": 0"), "\"linear_num_value_heads\" is 0"},
    {STATES("\"linear_num_value_heads\": 8192"), "\"linear_num_value_heads\" is 8192, expected"},
    {STATES("\"linear_num_value_heads\": 24"),
     "\"linear_num_value_heads\" 24 is not a multiple of \"linear_num_key_heads\" 16"},
    {STATES("\"linear_key_head_dim\": 0"), "\"linear_key_head_dim\" is 0"},
    {STATES("\"linear_value_head_dim\": null"), "\"linear_value_head_dim\" is null"},
    {STATES("\"head_dim\": null"), "\"head_dim\" is null"},
    {STATES("\"partial_rotary_factor\": 1.5"), "\"partial_rotary_factor\" is 1.5, expected at most 1"},
    {STATES("\"num_experts\": 4"), "\"num_experts\": 4 is not supported"},
    {FAMILY("qwen3_next", "\"num_experts_per_tok\": 2"), "\"num_experts\" is missing"},
};

static void bad_values_are_refused(void **state) {
    (void)state;
    static ndp_facts f;
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        ndp_status st = parse(bad[i].text, &f);
        if (st != NDP_EFORMAT && st != NDP_ENOTSUP)
            fail_msg("accepted: %s", bad[i].text);
        CHECK_FAILS(st, st, bad[i].words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_with_a_state_are_read), cmocka_unit_test(layouts_are_of_the_heads_there_are),
        cmocka_unit_test(mixtures_beside_states_are_read), cmocka_unit_test(bad_values_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
