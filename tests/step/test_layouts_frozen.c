/* Layout invariance (test_layouts.c) of models with frozen units, and with some tensors trained. */
#include "model/tensors.h"
#include "step/layouts.h"

/* What model.frozen, or model.trained, says. */
typedef struct choice {
    const char *frozen[3], *trained[3];
    int n_frozen, n_trained;
} choice;

static const choice choices[] = {{.frozen = {"embed", "layers.0", "layers.1"}, .n_frozen = 3},
                                 {.frozen = {"embed", "layers.[02]"}, .n_frozen = 2},
                                 {.trained = {"vectors", "regex:.*layers\\.1\\..*"}, .n_trained = 2},
                                 {.trained = {"embed_tokens", "*.[23].mlp.*", "o_proj"}, .n_trained = 3}};

/* Where a tensor begins in arrays of all elements; of a stack the first. */
static int64_t tensor_at(const ndp_model *m, const char *name) {
    int64_t base = 0;
    for (int b = 0; b < m->n_buffers; base += m->buffers[b++].segments.elements)
        for (int i = 0; i < m->buffers[b].segments.n; i++)
            if (strcmp(m->buffers[b].segments.items[i].name, name) == 0)
                return base + m->buffers[b].segments.items[i].offset;
    fail_msg("there is no %s", name);
    return 0;
}

/* Frozen weights keep their bits and have no gradient; the other gradients are those of the model `whole` in which all
 * is trained, `all`. */
static void check_frozen(const ndp_model *m, const result *r, const ndp_model *whole, const result *all) {
    int moved = 0;
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);) {
        const ndp_segment *s = w.segment;
        int64_t n = ndp_segment_tensor_elements(s) * ndp_segment_tensors(s), at = tensor_at(m, s->name);
        int64_t there = tensor_at(whole, s->name);
        bool trained = m->buffers[w.buffer].trainable;
        for (int64_t i = 0; i < n; i++) {
            assert_true(trained || (r->weights[at + i] == r->drawn[at + i] && r->grads[at + i] == 0));
            assert_true(!trained || !all || r->grads[at + i] == all->grads[there + i]);
            moved += r->weights[at + i] != r->drawn[at + i];
        }
    }
    assert_true(moved > 0);
}

/* Four layers, some of which are frozen, or some of their tensors; a switch is on or off. */
static void frozen_units(const ndp_facts *of, const choice *c, bool on, ndp_dtype compute, const ndp_device *device,
                         const bounds *bound) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 1, 2, 1, 1},
                                   {1, 1, 1, 2, 1}, {1, 1, 1, 1, 2}, {1, 2, 2, 1, 2}};
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    ndp_model whole, m;
    CHECK_OK(ndp_decoder_build(of, &mo, &whole));
    mo.frozen = c->frozen, mo.n_frozen = c->n_frozen, mo.trained = c->trained, mo.n_trained = c->n_trained;
    CHECK_OK(ndp_decoder_build(of, &mo, &m));
    result all = run(&whole, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
    result one = run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
    check_frozen(&m, &one, &whole, &all);
    for (int i = 0; i < NDP_COUNT(sizes); i++) {
        way w = {.reshard = i % 2, .recompute = on, .gathered = i > 2, .parallel = NDP_PARALLEL_INIT};
        memcpy(w.size, sizes[i], sizeof w.size);
        result r = run(&m, device, &w);
        compare(&m, &r, &one, &w, bound);
        check_frozen(&m, &r, &whole, NULL);
        release(&r);
    }
    release(&one);
    release(&all);
    ndp_model_release(&m);
    ndp_model_release(&whole);
}

static const struct {
    ndp_dtype compute;
    const ndp_device *device;
    const bounds *bound;
} precisions[] = {
    {NDP_F64, &ndp_device_ref, &exact}, {NDP_F32, &ndp_device_cpu, &other_single}, {NDP_BF16, &ndp_device_cpu, &half}};

static void frozen_on_layouts(void **state) {
    (void)state;
    for (int p = 0; p < NDP_COUNT(precisions); p++)
        for (int k = 0; k < 2 * NDP_COUNT(choices); k++) {
            ndp_facts f = tiny_facts(k % 2);
            if (left_out())
                continue;
            f.layers = 4;
            frozen_units(&f, &choices[k / 2], k % 2, precisions[p].compute, precisions[p].device, precisions[p].bound);
        }
}

/* Stacks and routers by their names in files: those of some layers, beside what is trained of all; a matrix of each. */
static const choice of_experts[] = {
    {.frozen = {"embed", "layers.[02]"}, .n_frozen = 2},
    {.trained = {"regex:model.layers.[13]+.block_sparse_moe.(gate|experts).*", "lm_head"}, .n_trained = 2},
    {.trained = {"*.w2", "input_layernorm"}, .n_trained = 2}};

/* Layers 0 and 2 are frozen, of which the second is above one that is trained: the gradient goes through its experts.
 * Not in bf16, where what a layout rounds may choose other experts. */
static void frozen_experts(void **state) {
    (void)state;
    ndp_facts f;
    CHECK_OK(ndp_facts_parse_text(
        TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"), "tiny", &f));
    f.layers = 4;
    for (int p = 0; precisions[p].compute != NDP_BF16; p++)
        for (int k = 0; k < NDP_COUNT(of_experts); k++)
            frozen_units(&f, &of_experts[k], (p + k) % 2, precisions[p].compute, precisions[p].device,
                         precisions[p].bound);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(frozen_on_layouts), cmocka_unit_test(frozen_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
