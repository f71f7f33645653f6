/* Layers of one model that have different parameters: each kind has a table of its own, and the model computes the same
 * on every axis. */
#include "model/block.h"
#include "step/layouts.h"

enum { LAYERS = 4 };

/* Layers 1 and 2 have a plain MLP. */
static ndp_facts two_kinds(void) {
    ndp_facts f;
    CHECK_OK(ndp_facts_parse_text("{\"model_type\": \"gemma2\", \"vocab_size\": 37, \"num_hidden_layers\": 4, "
                                  "\"hidden_size\": 12, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                                  "\"intermediate_size\": 17, \"max_position_embeddings\": 64, \"head_dim\": 6, "
                                  "\"sliding_window\": 4, \"rope_theta\": 100.0, \"layer_types\": "
                                  "[\"full_attention\", \"sliding_attention\", \"sliding_attention\", "
                                  "\"full_attention\"]}",
                                  "tiny", &f));
    assert_true(f.n_kinds == 2 && f.kind_of[1] == 1 && f.kind_of[2] == 1);
    f.kinds[1].mlp = &ndp_mlp_plain;
    return f;
}

static const ndp_segment *find(const ndp_segments *s, const char *ending) {
    for (int i = 0; i < s->n; i++)
        if (ndp_ends_with(s->items[i].name, ending))
            return &s->items[i];
    return NULL;
}

static void each_kind_has_its_own_table(void **state) {
    (void)state;
    ndp_facts f = two_kinds();
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    int64_t elements = 0;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    assert_int_equal(m.n_buffers, LAYERS + 2);
    for (int i = 0; i < m.n_buffers; i++)
        for (int k = 0; k < m.buffers[i].segments.n; k++)
            elements += m.buffers[i].segments.items[k].rows * m.buffers[i].segments.items[k].cols;
    assert_int_equal(elements, ndp_facts_parameters(&f));
    for (int i = 0; i < LAYERS; i++) {
        const ndp_segments *s = &m.buffers[i + 1].segments;
        bool plain = i == 1 || i == 2;
        assert_true(!find(s, "mlp.gate_proj.weight") == plain && find(s, "mlp.up_proj.weight")->glued == !plain);
        assert_int_equal(s->elements, m.buffers[plain ? 2 : 1].segments.elements);
        assert_int_equal(m.units[i + 1].graph, m.units[plain ? 2 : 1].graph);
    }
    assert_true(m.n_graphs == 4 && m.buffers[2].segments.elements < m.buffers[1].segments.elements);
    ndp_model_release(&m);
}

static void on_layouts(ndp_dtype compute, const ndp_device *device, ndp_optimizer_name optimizer, const bounds *bound) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 3, 1, 1, 1}, {1, 1, 2, 1, 1},
                                   {1, 1, 1, 2, 1}, {1, 1, 1, 1, 2}, {1, 2, 1, 1, 2}};
    ndp_facts f = two_kinds();
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    result one =
        run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT, .optimizer = optimizer});
    for (int i = 0; i < NDP_COUNT(sizes); i++) {
        way w = {.reshard = i % 2,
                 .recompute = i % 3,
                 .gathered = i > 2,
                 .parallel = NDP_PARALLEL_INIT,
                 .optimizer = optimizer};
        memcpy(w.size, sizes[i], sizeof w.size);
        check_against(&m, device, &w, &one, bound);
    }
    release(&one);
    ndp_model_release(&m);
}

static void every_layout_is_one_rank(void **state) {
    (void)state;
    on_layouts(NDP_F64, &ndp_device_ref, NDP_ADAMW, &exact);
    on_layouts(NDP_F32, &ndp_device_cpu, NDP_SGD, &other_single); /* Adam enlarges gradients that are next to nothing */
}

/* An activation that one kind of MLP lacks is refused, not replaced by another. */
static void a_missing_activation_is_refused(void **state) {
    (void)state;
    ndp_facts f = two_kinds();
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    f.activation = NDP_SILU;
    CHECK_FAILS(ndp_decoder_build(&f, &mo, &m), NDP_ENOTSUP,
                "activation silu is not supported in a plain MLP; supported: gelu_pytorch_tanh");
    f.kinds[1].mlp = &ndp_mlp_gated;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    ndp_model_release(&m);
}

/* What the identity of a run says of them. */
static void keep_plain(void *user, const ndp_fact *fact) {
    if (strcmp(fact->key, "plain_mlp") == 0)
        snprintf(user, 64, "%s%s", fact->value, fact->shape ? "!" : "");
}

static void the_identity_lists_them(void **state) {
    (void)state;
    char text[64] = "";
    ndp_facts f = two_kinds();
    ndp_decoder_list(&f, keep_plain, text);
    assert_string_equal(text, "false true true false!");
    f.kinds[1].mlp = &ndp_mlp_gated;
    ndp_decoder_list(&f, keep_plain, text);
    assert_string_equal(text, "false!");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_has_its_own_table), cmocka_unit_test(every_layout_is_one_rank),
        cmocka_unit_test(a_missing_activation_is_refused), cmocka_unit_test(the_identity_lists_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
