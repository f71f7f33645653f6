/* config.json -> facts, for mixtures of experts: what is read, what transformers ignores, and what is refused. */
#include "model/block.h"

#include "base/json.h"
#include "check.h"

static ndp_status parse(const char *text, ndp_facts *f) { return ndp_facts_parse_text(text, "config.json", f); }

#define SHAPE                                                                                                          \
    "\"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 172, \"num_hidden_layers\": 4, "                 \
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"max_position_embeddings\": 512"
#define FAMILY(type, keys) "{\"model_type\": \"" type "\", " SHAPE ", " keys "}"
#define MIXTRAL(more) FAMILY("mixtral", "\"num_local_experts\": 8, \"num_experts_per_tok\": 2" more)
#define QWEN(more)                                                                                                     \
    FAMILY("qwen3_moe", "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 20" more)
#define QWEN2(more)                                                                                                    \
    FAMILY("qwen2_moe", "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 20, "              \
                        "\"shared_expert_intermediate_size\": 36" more)
#define OLMOE(more) FAMILY("olmoe", "\"num_experts\": 9, \"num_experts_per_tok\": 3" more)

#define GLM(more)                                                                                                      \
    FAMILY("glm4_moe", "\"n_routed_experts\": 6, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 20" more)

#define OSS(more)                                                                                                      \
    FAMILY("gpt_oss",                                                                                                  \
           "\"num_local_experts\": 6, \"num_experts_per_tok\": 2, \"rope_scaling\": {\"rope_type\": "                  \
           "\"yarn\", \"factor\": 32.0, \"original_max_position_embeddings\": 4096, \"truncate\": false}" more)

/* Latent attention: keys for each head. */
#define LATENT(type, more)                                                                                             \
    "{\"model_type\": \"" type "\", \"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 172, "            \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 8, \"max_position_embeddings\": 512, "                         \
    "\"n_routed_experts\": 16, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 20" more "}"

/* The layers with a mixture, a bit each. */
static unsigned mixtures_of(const ndp_facts *f) {
    unsigned bits = 0;
    for (int i = 0; i < f->layers; i++)
        bits |= (unsigned)(f->kinds[f->kind_of[i]].mlp == &ndp_mlp_experts) << i;
    return bits;
}

static void defaults_are_transformers(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(MIXTRAL(""), &f));
    assert_true(f.experts == 8 && f.choices == 2 && f.expert_ffn == 172 && f.renormalise);
    assert_true(f.norm_eps == 1e-5 && f.ropes[0].theta == 1e6 && f.qk_norm == NDP_QK_NORM_NONE && f.head_dim == 8);
    assert_true(f.n_kinds == 1 && f.kinds[0].window == 0 && mixtures_of(&f) == 15);
    CHECK_OK(parse(QWEN(""), &f));
    assert_true(f.experts == 6 && f.choices == 3 && f.expert_ffn == 20 && f.ffn == 172 && !f.renormalise);
    assert_true(f.norm_eps == 1e-6 && f.ropes[0].theta == 1e4 && f.qk_norm == NDP_QK_NORM_HEAD && f.head_dim == 8);
    assert_true(f.n_kinds == 1 && f.kinds[0].window == 0 && mixtures_of(&f) == 15);
    CHECK_OK(parse(OLMOE(""), &f));
    assert_true(f.experts == 9 && f.choices == 3 && f.expert_ffn == 172 && !f.renormalise);
    assert_true(f.norm_eps == 1e-5 && f.ropes[0].theta == 1e4 && f.qk_norm == NDP_QK_NORM_WHOLE && f.head_dim == 8);
    assert_true(f.n_kinds == 1 && f.kinds[0].window == 0 && mixtures_of(&f) == 15 && f.shared_ffn == 0);
    CHECK_OK(parse(QWEN2(""), &f));
    assert_true(f.experts == 6 && f.choices == 3 && f.expert_ffn == 20 && f.shared_ffn == 36 && !f.renormalise);
    assert_true(f.norm_eps == 1e-6 && f.ropes[0].theta == 1e4 && f.qk_norm == NDP_QK_NORM_NONE && f.qkv_bias);
    assert_true(f.n_kinds == 1 && f.kinds[0].window == 0 && mixtures_of(&f) == 15 && !f.o_bias && !f.mlp_bias);
    CHECK_OK(parse(GLM(""), &f));
    assert_true(f.experts == 6 && f.choices == 2 && f.expert_ffn == 20 && f.shared_ffn == 20 && f.renormalise);
    assert_true(f.sigmoid && f.groups == 0 && f.routed_scale == 1 && mixtures_of(&f) == 14 && f.ropes[0].dim == 4);
    assert_true(f.norm_eps == 1e-5 && f.qk_norm == NDP_QK_NORM_NONE && !f.qkv_bias && !f.o_bias && !f.balanced);
}

static void sinks_and_clipped_gates_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(OSS(""), &f));
    assert_true(f.experts == 6 && f.choices == 2 && f.expert_ffn == 172 && f.renormalise && f.router_bias);
    assert_true(f.norm_eps == 1e-5 && f.ropes[0].theta == 150000 && f.ropes[0].scaling == NDP_ROPE_YARN);
    assert_true(!f.ropes[0].truncate && f.head_dim == 64 && f.qkv_bias && f.o_bias && !f.mlp_bias);
    assert_true(f.activation == NDP_SILU_CLIPPED && f.swiglu_alpha == 1.702 && f.swiglu_limit == 7);
    assert_true(f.n_kinds == 2 && f.kinds[0].window == 128 && f.kinds[1].window == 0 && mixtures_of(&f) == 15);
    assert_true(f.kind_of[0] == 0 && f.kind_of[1] == 1 && f.kind_of[2] == 0 && f.kind_of[3] == 1);
    CHECK_OK(parse(OSS(", \"swiglu_alpha\": 2.0, \"swiglu_limit\": 5, \"hidden_act\": \"silu\", \"sliding_window\": 9, "
                       "\"attention_bias\": false, \"layer_types\": [\"full_attention\", \"full_attention\", "
                       "\"sliding_attention\", \"full_attention\"]"),
                   &f));
    assert_true(f.swiglu_alpha == 2 && f.swiglu_limit == 5 && !f.qkv_bias && !f.o_bias && f.kind_of[2] == 1);
    assert_true(f.kinds[1].window == 9 && f.kinds[0].window == 0);
    /* Of a layer: two norms, four projections and biases, sinks; a router and its bias; two stacks and biases. */
    CHECK_OK(parse(OSS(""), &f));
    assert_true(ndp_facts_parameters(&f) == 2 * 100 * 64 + 64 +
                                                4 * (2 * 64 + 2 * (512 * 64) + 512 + 64 + 2 * (128 * 64 + 128) + 8 +
                                                     6 * 64 + 6 + 6 * (344 * 64 + 344 + 64 * 172 + 64)));
}

static void routers_of_sigmoids_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(
        parse(GLM(", \"n_group\": 3, \"topk_group\": 2, \"routed_scaling_factor\": 2.5, \"norm_topk_prob\": false, "
                  "\"n_shared_experts\": 2, \"first_k_dense_replace\": 3, \"use_qk_norm\": true, "
                  "\"attention_bias\": true, \"partial_rotary_factor\": 0.75, \"output_router_logits\": true"),
              &f));
    assert_true(f.groups == 3 && f.open_groups == 2 && f.routed_scale == 2.5 && !f.renormalise && !f.balanced);
    assert_true(f.shared_ffn == 40 && mixtures_of(&f) == 8 && f.qk_norm == NDP_QK_NORM_HEAD && f.ropes[0].dim == 6);
    assert_true(f.qkv_bias && !f.o_bias);
    CHECK_OK(parse(GLM(", \"n_group\": 3, \"topk_group\": 3, \"first_k_dense_replace\": 0"), &f));
    assert_true(f.groups == 0 && mixtures_of(&f) == 15); /* no group is left out */
    CHECK_OK(parse(GLM(", \"num_local_experts\": 6"), &f));
    /* modules behind the last of 4 layers, which are not built: one, unless the key says how many */
    assert_true(f.further == 1 && ndp_facts_carries(&f, "model.layers.4.enorm.weight"));
    assert_true(ndp_facts_ignores(&f, "mtp.norm.weight") && !ndp_facts_carries(&f, "model.layers.3.mlp.gate.weight"));
    assert_false(ndp_facts_carries(&f, "model.layers.5.enorm.weight") || ndp_facts_ignores(&f, "model.layers.40.a"));
    CHECK_OK(parse(GLM(", \"num_nextn_predict_layers\": 0"), &f));
    assert_false(ndp_facts_ignores(&f, "model.layers.4.enorm.weight") || ndp_facts_ignores(&f, "mtp.norm.weight"));
}

/* A router of E rows and E experts of three matrices, beside attention and norms; or an MLP of three matrices. */
static void parameters_are_counted(void **state) {
    (void)state;
    static ndp_facts f;
    int64_t attention = 2 * 64 * 64 + 2 * 16 * 64, mixture = 8 * 64 + 8 * 3 * 64 * 172, ends = 2 * 100 * 64 + 64;
    CHECK_OK(parse(MIXTRAL(""), &f));
    assert_int_equal(ndp_facts_parameters(&f), ends + 4 * (attention + mixture + 2 * 64));
    mixture = 6 * 64 + 6 * 3 * 64 * 20;
    CHECK_OK(parse(QWEN(", \"mlp_only_layers\": [2]"), &f));
    assert_int_equal(ndp_facts_parameters(&f),
                     ends + 4 * (attention + 2 * 64 + 2 * 8) + 3 * mixture + (int64_t)3 * 64 * 172);
    mixture += 3 * 64 * 36 + 64; /* the shared expert and its gate */
    CHECK_OK(parse(QWEN2(", \"mlp_only_layers\": [2]"), &f));
    assert_int_equal(ndp_facts_parameters(&f),
                     ends + 4 * (attention + 64 + 2 * 16 + 2 * 64) + 3 * mixture + (int64_t)3 * 64 * 172);
    mixture = 6 * 64 + 6 + 6 * 3 * 64 * 20 + 2 * 3 * 64 * 20; /* with a bias of the router and two shared experts */
    CHECK_OK(parse(GLM(", \"n_shared_experts\": 2, \"use_qk_norm\": true"), &f));
    assert_int_equal(ndp_facts_parameters(&f),
                     ends + 4 * (attention + 2 * 8 + 2 * 64) + 3 * mixture + (int64_t)3 * 64 * 172);
}

/* The largest of all sizes. */
static void no_number_overflows(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse("{\"model_type\": \"qwen3_moe\", \"vocab_size\": 16777216, \"hidden_size\": 1048576, "
                   "\"intermediate_size\": 4194304, \"num_hidden_layers\": 4096, \"num_attention_heads\": 1024, "
                   "\"num_key_value_heads\": 1024, \"max_position_embeddings\": 512, \"num_experts\": 4096, "
                   "\"num_experts_per_tok\": 4096, \"moe_intermediate_size\": 2048}",
                   &f));
    assert_true(ndp_facts_parameters(&f) > (int64_t)1 << 56 && ndp_facts_parameters(&f) < (int64_t)1 << 57);
}

static void keys_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(QWEN(", \"norm_topk_prob\": true, \"head_dim\": 6, \"attention_bias\": true"), &f));
    assert_true(f.renormalise && f.head_dim == 6 && f.qkv_bias && f.o_bias);
    CHECK_OK(parse(QWEN2(", \"norm_topk_prob\": true, \"qkv_bias\": false, \"attention_bias\": false"), &f));
    assert_true(f.renormalise && !f.qkv_bias);
    CHECK_OK(parse(OLMOE(", \"norm_topk_prob\": true, \"head_dim\": null"), &f));
    assert_true(f.renormalise && f.head_dim == 8);
    CHECK_OK(parse(MIXTRAL(", \"norm_topk_prob\": false, \"head_dim\": 6"), &f)); /* a key that it does not have */
    assert_true(f.renormalise && f.head_dim == 6);
    CHECK_OK(parse(FAMILY("olmoe", "\"num_experts\": 4, \"num_experts_per_tok\": 4"), &f)); /* all of them */
    assert_true(f.experts == 4 && f.choices == 4);
}

/* transformers 5 writes num_local_experts for qwen3_moe, and takes either name everywhere. */
static void both_names_of_the_number_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    static const char *const types[] = {"mixtral", "qwen3_moe", "qwen2_moe", "olmoe"},
                             *const numbers[] = {"\"num_experts\": 5", "\"num_local_experts\": 5",
                                                 "\"num_experts\": 5, \"num_local_experts\": 5",
                                                 "\"num_experts\": null, \"num_local_experts\": 5"};
    static const char form[] =
        "{\"model_type\": \"%s\", " SHAPE ", \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 20, "
        "\"shared_expert_intermediate_size\": 20, %s}";
    char text[512];
    for (int i = 0; i < NDP_COUNT(types) * NDP_COUNT(numbers); i++) {
        snprintf(text, sizeof text, form, types[i % NDP_COUNT(types)], numbers[i / NDP_COUNT(types)]);
        CHECK_OK(parse(text, &f));
        assert_int_equal(f.experts, 5);
    }
    CHECK_FAILS(parse(QWEN(", \"num_local_experts\": 8"), &f), NDP_EFORMAT,
                "\"num_experts\" is 6, but \"num_local_experts\" is 8, and both mean the same; leave out one");
}

static void layers_with_an_mlp_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    static const struct {
        const char *text;
        unsigned mixtures;
        int kinds;
    } cases[] = {
        {QWEN(", \"mlp_only_layers\": []"), 15, 1},
        {QWEN(", \"mlp_only_layers\": null"), 15, 1},
        {QWEN(", \"mlp_only_layers\": [1]"), 13, 2},
        {QWEN(", \"mlp_only_layers\": [0, 0, 3]"), 6, 2},
        {QWEN(", \"mlp_only_layers\": [4, 100]"), 15, 1}, /* there are none of these numbers */
        {QWEN(", \"decoder_sparse_step\": 1"), 15, 1},
        {QWEN(", \"decoder_sparse_step\": 2"), 10, 2}, /* layers 1 and 3 */
        {QWEN(", \"decoder_sparse_step\": 3"), 4, 2},
        {QWEN(", \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]"), 2, 2},
        {QWEN2(", \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]"), 2, 2},
        /* families without layers of another kind do not have the keys */
        {MIXTRAL(", \"decoder_sparse_step\": 2, \"mlp_only_layers\": [0]"), 15, 1},
        {OLMOE(", \"decoder_sparse_step\": 9, \"mlp_only_layers\": \"all\""), 15, 1},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        CHECK_OK(parse(cases[i].text, &f));
        assert_int_equal(mixtures_of(&f), cases[i].mixtures);
        assert_int_equal(f.n_kinds, cases[i].kinds);
    }
}

static void windows_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    static const struct {
        const char *text;
        int window;
    } cases[] = {
        {MIXTRAL(", \"sliding_window\": null"), 0},
        {MIXTRAL(", \"sliding_window\": 9"), 9},
        {QWEN(", \"sliding_window\": 9"), 0},
        {QWEN(", \"sliding_window\": 0"), 0}, /* which no layer has */
        {QWEN(", \"sliding_window\": 9, \"use_sliding_window\": false"), 0},
        {QWEN(", \"sliding_window\": 9, \"use_sliding_window\": true, \"max_window_layers\": 2"), 9},
        {QWEN(", \"sliding_window\": null, \"use_sliding_window\": true"), 0},
        {QWEN(", \"use_sliding_window\": true"), 4096},
        {OLMOE(", \"sliding_window\": 9"), 0}, /* a key that it does not have */
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        CHECK_OK(parse(cases[i].text, &f));
        for (int k = 0; k < f.layers; k++)
            assert_int_equal(f.kinds[f.kind_of[k]].window, cases[i].window);
    }
    CHECK_OK(parse(QWEN(", \"sliding_window\": 9, \"use_sliding_window\": true, \"mlp_only_layers\": [2]"), &f));
    assert_true(f.n_kinds == 2 && f.kinds[0].window == 9 && f.kinds[1].window == 9 && mixtures_of(&f) == 11);
    CHECK_FAILS(parse(MIXTRAL(", \"sliding_window\": 0"), &f), NDP_EFORMAT, "layer 0 would see no key");
}

/* Every second layer before max_window_layers, which is 28 where it is missing. */
static void windows_of_some_layers_are_read(void **state) {
    (void)state;
    static ndp_facts f;
#define WINDOW ", \"use_sliding_window\": true, \"sliding_window\": 9"
#define TYPES(second) ", \"layer_types\": [" FULL ", \"" second "_attention\", " FULL ", " FULL "]"
#define FULL "\"full_attention\""
    static const struct {
        const char *text;
        unsigned windows; /* a bit for each layer */
        int kinds;
    } cases[] = {
        {QWEN2(""), 0, 1},
        {QWEN2(", \"sliding_window\": 9, \"max_window_layers\": 4"), 0, 1},
        {QWEN2(", \"sliding_window\": 0, \"use_sliding_window\": false"), 0, 1}, /* as transformers writes it */
        {QWEN2(WINDOW), 5, 2},
        {QWEN2(WINDOW ", \"max_window_layers\": 2"), 1, 2},
        {QWEN2(WINDOW ", \"max_window_layers\": 0"), 0, 1},
        {QWEN2(WINDOW ", \"max_window_layers\": 3, \"mlp_only_layers\": [0, 1]"), 5, 4},
        {QWEN2(WINDOW TYPES("sliding")), 2, 2},
        {QWEN2(TYPES("full")), 0, 1},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        unsigned windows = 0;
        CHECK_OK(parse(cases[i].text, &f));
        for (int k = 0; k < f.layers; k++)
            windows |= (unsigned)(f.kinds[f.kind_of[k]].window == 9) << k;
        assert_int_equal(windows, cases[i].windows);
        assert_int_equal(f.n_kinds, cases[i].kinds);
    }
    CHECK_FAILS(parse(QWEN2(TYPES("sliding") ", \"sliding_window\": 9"), &f), NDP_EFORMAT,
                "layer 1 has sliding_attention, but \"sliding_window\" is null or \"use_sliding_window\" is not true");
    CHECK_FAILS(parse(QWEN2(", \"use_sliding_window\": true, \"sliding_window\": null"), &f), NDP_EFORMAT,
                "layer 0 has sliding_attention, but");
    CHECK_FAILS(parse(QWEN2(", \"use_sliding_window\": true, \"sliding_window\": 0"), &f), NDP_EFORMAT,
                "layer 0 would see no key");
}

/* Keys of training, where they change nothing. */
static void neutral_keys_are_accepted(void **state) {
    (void)state;
    static ndp_facts f;
    static const char *const good[] = {
        MIXTRAL(", \"router_jitter_noise\": 0.0, \"output_router_logits\": false, \"router_aux_loss_coef\": 0.02"),
        MIXTRAL(", \"output_router_logits\": true, \"router_aux_loss_coef\": 0"),
        QWEN(", \"output_router_logits\": true, \"router_aux_loss_coef\": 0.0"),
        OLMOE(", \"clip_qkv\": null, \"router_aux_loss_coef\": 0.01"),
    };
    for (int i = 0; i < NDP_COUNT(good); i++)
        CHECK_OK(parse(good[i], &f));
}

/* The coefficient of a layer, of k choices and L mixtures, is k / L of the configuration's, whose default depends on
 * the family. */
static void balance_losses_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    static const struct {
        const char *text;
        bool balanced;
        double coefficient;
    } cases[] = {{MIXTRAL(""), false, 0.001},
                 {MIXTRAL(", \"output_router_logits\": true"), true, 0.001},
                 {MIXTRAL(", \"output_router_logits\": true, \"router_aux_loss_coef\": 0.02"), true, 0.02},
                 {MIXTRAL(", \"output_router_logits\": true, \"router_aux_loss_coef\": 0"), false, 0},
                 {OLMOE(", \"output_router_logits\": true"), true, 0.01},
                 {QWEN(", \"output_router_logits\": true, \"mlp_only_layers\": [2]"), true, 0.001}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        CHECK_OK(parse(cases[i].text, &f));
        assert_int_equal(f.balanced, cases[i].balanced);
        assert_true(f.balance_coef == cases[i].coefficient);
    }
}

static const struct {
    const char *text;
    ndp_status code;
    const char *words;
} bad[] = {
    /* numbers of experts */
    {FAMILY("mixtral", "\"num_experts_per_tok\": 2"), NDP_EFORMAT, "\"num_local_experts\" is missing"},
    {FAMILY("olmoe", "\"num_experts_per_tok\": 2"), NDP_EFORMAT, "\"num_experts\" is missing"},
    {FAMILY("mixtral", "\"num_local_experts\": 0, \"num_experts_per_tok\": 2"), NDP_EFORMAT,
     "\"num_local_experts\" is 0"},
    {FAMILY("mixtral", "\"num_local_experts\": 1, \"num_experts_per_tok\": 1"), NDP_EFORMAT,
     "\"num_local_experts\" is 1: a mixture has at least 2 experts"},
    {FAMILY("olmoe", "\"num_local_experts\": 1, \"num_experts_per_tok\": 1"), NDP_EFORMAT,
     "\"num_local_experts\" is 1: a mixture has at least 2 experts"},
    {FAMILY("olmoe", "\"num_experts\": 100000, \"num_experts_per_tok\": 1"), NDP_EFORMAT,
     "\"num_experts\" is 100000, expected a whole number from 1 to 65536"},
    {FAMILY("olmoe", "\"num_experts\": 50000, \"num_experts_per_tok\": 1"), NDP_EFORMAT,
     "50000 experts of \"intermediate_size\" 172 are more than 8388608 columns"},
    {FAMILY("olmoe", "\"num_experts\": \"9\", \"num_experts_per_tok\": 1"), NDP_EFORMAT, "num_experts"},
    /* choices */
    {FAMILY("mixtral", "\"num_local_experts\": 8"), NDP_EFORMAT, "\"num_experts_per_tok\" is missing"},
    {FAMILY("mixtral", "\"num_local_experts\": 8, \"num_experts_per_tok\": 0"), NDP_EFORMAT,
     "\"num_experts_per_tok\" is 0, expected a whole number from 1 to 8"},
    {FAMILY("mixtral", "\"num_local_experts\": 8, \"num_experts_per_tok\": 9"), NDP_EFORMAT,
     "\"num_experts_per_tok\" is 9, expected a whole number from 1 to 8"},
    {FAMILY("olmoe", "\"num_experts\": 8, \"num_experts_per_tok\": 1.5"), NDP_EFORMAT, "num_experts_per_tok"},
    {OLMOE(", \"norm_topk_prob\": null"), NDP_EFORMAT, "\"norm_topk_prob\" is null"},
    {QWEN(", \"norm_topk_prob\": 1"), NDP_EFORMAT, "norm_topk_prob"},
    /* sizes */
    {FAMILY("qwen3_moe", "\"num_experts\": 6, \"num_experts_per_tok\": 3"), NDP_EFORMAT,
     "\"moe_intermediate_size\" is missing"},
    {FAMILY("qwen3_moe", "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 0"), NDP_EFORMAT,
     "\"moe_intermediate_size\" is 0"},
    {FAMILY("qwen3_moe", "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 4000000"),
     NDP_EFORMAT, "6 experts of \"moe_intermediate_size\" 4000000 are more than 8388608 columns"},
    {FAMILY("qwen2_moe", "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 20"), NDP_EFORMAT,
     "\"shared_expert_intermediate_size\" is missing"},
    {FAMILY("qwen2_moe", "\"num_experts\": 6, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 20, "
                         "\"shared_expert_intermediate_size\": 0"),
     NDP_EFORMAT, "\"shared_expert_intermediate_size\" is 0"},
    {"{\"model_type\": \"mixtral\", \"vocab_size\": 9, \"hidden_size\": 8, \"intermediate_size\": 8, "
     "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"max_position_embeddings\": 8}",
     NDP_EFORMAT, "\"num_key_value_heads\" is missing"},
    /* layers */
    {QWEN(", \"mlp_only_layers\": 1"), NDP_EFORMAT, "\"mlp_only_layers\" is not a list of numbers of layers"},
    {QWEN(", \"mlp_only_layers\": {}"), NDP_EFORMAT, "\"mlp_only_layers\" is not a list"},
    {QWEN(", \"mlp_only_layers\": [-1]"), NDP_EFORMAT, "\"mlp_only_layers\" holds something that is not the number"},
    {QWEN(", \"mlp_only_layers\": [\"1\"]"), NDP_EFORMAT, "\"mlp_only_layers\" holds something that is not"},
    {QWEN(", \"mlp_only_layers\": [1.0]"), NDP_EFORMAT, "\"mlp_only_layers\" holds something that is not"},
    {QWEN(", \"mlp_only_layers\": [null]"), NDP_EFORMAT, "\"mlp_only_layers\" holds something that is not"},
    {QWEN(", \"mlp_only_layers\": [3, 2, 1, 0]"), NDP_EFORMAT, "no layer has experts: \"mlp_only_layers\""},
    {QWEN(", \"decoder_sparse_step\": 5"), NDP_EFORMAT, "no layer has experts: \"mlp_only_layers\" and"},
    {QWEN(", \"decoder_sparse_step\": 2, \"mlp_only_layers\": [1, 3]"), NDP_EFORMAT, "no layer has experts"},
    {QWEN(", \"decoder_sparse_step\": 0"), NDP_EFORMAT, "\"decoder_sparse_step\" is 0"},
    {QWEN(", \"decoder_sparse_step\": null"), NDP_EFORMAT, "\"decoder_sparse_step\" is null"},
    /* routers of sigmoids */
    {GLM(", \"n_group\": 4"), NDP_EFORMAT, "\"n_routed_experts\" 6 are not \"n_group\" 4 equal groups of at least 2"},
    {GLM(", \"n_group\": 6"), NDP_EFORMAT, "are not \"n_group\" 6 equal groups of at least 2"},
    {GLM(", \"n_group\": 0"), NDP_EFORMAT, "\"n_group\" is 0"},
    {GLM(", \"n_group\": 2, \"topk_group\": 3"), NDP_EFORMAT,
     "\"topk_group\" is 3, expected a whole number from 1 to 2"},
    {FAMILY("glm4_moe", "\"n_routed_experts\": 6, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 20, "
                        "\"n_group\": 3, \"topk_group\": 1"),
     NDP_EFORMAT, "\"num_experts_per_tok\" is 4, but \"topk_group\" 1 of 3 groups have 2"},
    {FAMILY("glm4_moe", "\"n_routed_experts\": 130, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 20, "
                        "\"n_group\": 65"),
     NDP_ENOTSUP, "\"n_group\": 65 is not supported; supported: up to 64"},
    {GLM(", \"routed_scaling_factor\": 0"), NDP_EFORMAT, "\"routed_scaling_factor\" is 0, expected a positive number"},
    {GLM(", \"n_shared_experts\": 0"), NDP_EFORMAT, "\"n_shared_experts\" is 0"},
    {GLM(", \"first_k_dense_replace\": 4"), NDP_EFORMAT,
     "no layer has experts: \"first_k_dense_replace\" is 4, and there are 4 layers"},
    {GLM(", \"use_qk_norm\": null"), NDP_EFORMAT, "\"use_qk_norm\" is null"},
    {GLM(", \"num_experts\": 6"), NDP_ENOTSUP, "\"num_experts\": 6 is not supported"},
    {GLM(", \"num_local_experts\": 7"), NDP_EFORMAT,
     "\"n_routed_experts\" is 6, but \"num_local_experts\" is 7, and both mean the same; leave out one"},
    {GLM(", \"q_lora_rank\": 8"), NDP_ENOTSUP, "\"q_lora_rank\": 8 is not supported"},
    /* clipped gates */
    {OSS(", \"hidden_act\": \"gelu\""), NDP_ENOTSUP, "\"hidden_act\": \"gelu\" is not supported; supported for this"},
    {OSS(", \"swiglu_limit\": 0"), NDP_EFORMAT, "\"swiglu_limit\" is 0, expected a positive number"},
    {OSS(", \"swiglu_alpha\": -1"), NDP_EFORMAT, "\"swiglu_alpha\" is -1, expected a positive number"},
    {OSS(", \"quantization_config\": {\"quant_method\": \"fp8\"}"), NDP_ENOTSUP,
     "\"quantization_config\": {\"quant_method\":\"fp8\"} is not supported; supported for this family: mxfp4"},
    {OSS(", \"quantization_config\": 4"), NDP_ENOTSUP, "\"quantization_config\": 4 is not supported"},
    {FAMILY("gpt_oss", "\"num_local_experts\": 6, \"num_experts_per_tok\": 2"), NDP_EFORMAT,
     "neither \"rope_scaling\" nor \"rope_parameters\": transformers would take those of gpt-oss-20b"},
    /* latent attention */
    {LATENT("deepseek_v3", ", \"num_key_value_heads\": 2"), NDP_EFORMAT,
     "\"num_key_value_heads\" is 2, and latent attention has keys for each of 8 heads"},
    {LATENT("deepseek_v3", ", \"kv_lora_rank\": 0"), NDP_EFORMAT, "\"kv_lora_rank\" is 0"},
    {LATENT("deepseek_v3", ", \"v_head_dim\": 70000"), NDP_EFORMAT, "\"v_head_dim\" is 70000"},
    {LATENT("deepseek_v3", ", \"qk_rope_head_dim\": 3"), NDP_EFORMAT, "3 columns of a head_dim of 3 is odd"},
    {LATENT("deepseek_v3", ", \"scoring_func\": \"softmax\""), NDP_ENOTSUP,
     "\"scoring_func\": \"softmax\" is not supported; supported for this family: sigmoid"},
    {LATENT("deepseek_v3", ", \"topk_method\": \"greedy\""), NDP_ENOTSUP, "supported for this family: noaux_tc"},
    {LATENT("deepseek_v3", ", \"moe_layer_freq\": 2"), NDP_ENOTSUP, "\"moe_layer_freq\": 2 is not supported"},
    {LATENT("deepseek_v2", ", \"topk_method\": \"noaux_tc\""), NDP_ENOTSUP, "greedy, group_limited_greedy"},
    {LATENT("deepseek_v2", ", \"norm_topk_prob\": true"), NDP_ENOTSUP, "\"norm_topk_prob\": true is not supported"},
    {LATENT("deepseek_v2", ", \"mlp_bias\": true"), NDP_ENOTSUP, "\"mlp_bias\": true is not supported"},
    {LATENT("glm4_moe_lite", ", \"mlp_layer_types\": [\"sparse\"]"), NDP_EFORMAT, "is not a list of 4 words"},
    {LATENT("glm4_moe_lite", ", \"mlp_layer_types\": [\"dense\", \"dense\", \"dense\", \"dense\"]"), NDP_EFORMAT,
     "no layer has experts: \"mlp_layer_types\" calls all dense"},
    {LATENT("glm4_moe_lite", ", \"mlp_layer_types\": [\"dense\", \"moe\", \"dense\", \"dense\"]"), NDP_ENOTSUP,
     "supported: dense, sparse"},
    {LATENT("deepseek_v3", ", \"quantization_config\": {\"quant_method\": \"mxfp4\"}"), NDP_ENOTSUP,
     "supported: bitsandbytes (nf4, fp4, int8), fp8 in blocks of [128, 128], NVFP4"},
    {LATENT("deepseek_v3", ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [64, 128]}"),
     NDP_ENOTSUP, "fp8 in blocks of [128, 128]"},
    /* what is not built */
    {MIXTRAL(", \"router_jitter_noise\": 0.1"), NDP_ENOTSUP, "\"router_jitter_noise\": 0.1 is not supported"},
    {MIXTRAL(", \"router_aux_loss_coef\": -0.5"), NDP_EFORMAT, "\"router_aux_loss_coef\" is -0.5"},
    {QWEN(", \"output_router_logits\": true, \"router_aux_loss_coef\": null"), NDP_EFORMAT, "router_aux_loss_coef"},
    {QWEN(", \"output_router_logits\": null"), NDP_EFORMAT, "\"output_router_logits\" is null"},
    {OLMOE(", \"clip_qkv\": 8.0"), NDP_ENOTSUP, "\"clip_qkv\": 8.0 is not supported"},
    {OLMOE(", \"clip_qkv\": 0"), NDP_ENOTSUP, "\"clip_qkv\": 0 is not supported"},
    {OLMOE(", \"n_routed_experts\": 9"), NDP_ENOTSUP, "\"n_routed_experts\": 9 is not supported"},
    {MIXTRAL(", \"hidden_act\": \"relu\""), NDP_ENOTSUP, "\"hidden_act\": \"relu\" is not supported"},
    {MIXTRAL(", \"quantization_config\": {\"bits\": 4}"), NDP_ENOTSUP, "quantization_config"},
};

/* Defaults are those of transformers' classes; null is no compression of queries; yarn scales the scores too. */
static void latent_attention_is_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(LATENT("deepseek_v3", ""), &f));
    assert_true(f.q_rank == 1536 && f.kv_rank == 512 && f.nope_dim == 128 && f.head_dim == 192 && f.v_dim == 128);
    assert_true(f.sigmoid && f.renormalise && f.groups == 8 && f.open_groups == 4 && f.routed_scale == 2.5);
    assert_true(f.neighbours && f.ropes[0].dim == 64 && f.further == 1 && f.kv_heads == 8);
    assert_int_equal(mixtures_of(&f), 8);
    assert_true(f.attention_scale == 1 / sqrt(192));
    CHECK_OK(parse(LATENT("kimi_k2", ", \"q_lora_rank\": null, \"n_group\": 1, \"topk_group\": 1, \"rope_scaling\": "
                                     "{\"type\": \"yarn\", \"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, "
                                     "\"original_max_position_embeddings\": 4096}, \"rope_interleave\": false, "
                                     "\"num_mtp_layers\": 0"),
                   &f));
    double by = 0.1 * log(40) + 1;
    assert_true(f.q_rank == 0 && f.groups == 0 && !f.neighbours && f.further == 0);
    assert_true(fabs(f.attention_scale * sqrt(192) - by * by) < 1e-12 && f.ropes[0].amplitude == 1);
    CHECK_OK(parse(LATENT("deepseek_v2", ", \"topk_method\": \"group_limited_greedy\", \"n_group\": 4, "
                                         "\"topk_group\": 2, \"routed_scaling_factor\": 16.0"),
                   &f));
    assert_true(!f.sigmoid && !f.renormalise && f.groups == 4 && f.open_groups == 2 && f.routed_scale == 16);
    assert_true(mixtures_of(&f) == 15 && f.balance_coef == 0 && f.neighbours && f.further == 0);
    CHECK_OK(parse(LATENT("deepseek_v2", ", \"n_group\": 4, \"topk_group\": 2"), &f));
    assert_int_equal(f.groups, 0); /* greedy */
    CHECK_OK(parse(LATENT("deepseek_v2", ", \"n_group\": null, \"topk_group\": null"), &f));
    CHECK_OK(parse(LATENT("glm4_moe_lite", ""), &f));
    assert_true(f.q_rank == 768 && f.nope_dim == 192 && f.head_dim == 256 && f.v_dim == 256 && f.groups == 0);
    assert_true(mixtures_of(&f) == 14 && f.norm_eps == 1e-5);
    CHECK_OK(
        parse(LATENT("glm4_moe_lite", ", \"mlp_layer_types\": [\"sparse\", \"dense\", \"dense\", \"sparse\"]"), &f));
    assert_int_equal(mixtures_of(&f), 9);
    CHECK_OK(parse(LATENT("deepseek_v3", ", \"quantization_config\": {\"quant_method\": \"fp8\", "
                                         "\"weight_block_size\": [128, 128]}"),
                   &f));
    assert_non_null(f.packed);
}

static void bad_configs_are_refused(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        static ndp_facts f;
        f.layers = 77;
        ndp_status st = parse(bad[i].text, &f);
        if (st != bad[i].code)
            fail_msg("status %d of %s", st, bad[i].text);
        CHECK_FAILS(st, bad[i].code, bad[i].words);
        assert_int_equal(f.layers, 77);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_are_transformers),
                                       cmocka_unit_test(routers_of_sigmoids_are_read),
                                       cmocka_unit_test(sinks_and_clipped_gates_are_read),
                                       cmocka_unit_test(latent_attention_is_read),
                                       cmocka_unit_test(parameters_are_counted),
                                       cmocka_unit_test(no_number_overflows),
                                       cmocka_unit_test(keys_are_read),
                                       cmocka_unit_test(both_names_of_the_number_are_read),
                                       cmocka_unit_test(layers_with_an_mlp_are_read),
                                       cmocka_unit_test(windows_are_read),
                                       cmocka_unit_test(windows_of_some_layers_are_read),
                                       cmocka_unit_test(neutral_keys_are_accepted),
                                       cmocka_unit_test(balance_losses_are_read),
                                       cmocka_unit_test(bad_configs_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
