/* Layout invariance (test_layouts.c) of models with frozen units. */
#include "step/layouts.h"

static const char *const frozen[][3] = {{"embed", "layers.0", "layers.1"}, {"embed", "layers.[02]", NULL}};

/* Frozen weights keep their bits and have no gradient; the other gradients are those of the model without frozen units,
 * `all`. */
static void check_frozen(const ndp_model *m, const result *r, const result *all) {
    int64_t at = 0;
    for (int i = 0; i < m->n_buffers; i++)
        for (int64_t end = at + m->buffers[i].segments.elements; at < end; at++) {
            assert_true(m->buffers[i].trainable || (r->weights[at] == r->drawn[at] && r->grads[at] == 0));
            assert_true(!m->buffers[i].trainable || !all || r->grads[at] == all->grads[at]);
        }
}

/* Four layers, with the units of frozen[which] frozen; a switch is on or off. */
static void frozen_units(const ndp_facts *of, int which, bool on, ndp_dtype compute, const ndp_device *device,
                         const bounds *bound) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 1, 2, 1, 1},
                                   {1, 1, 1, 2, 1}, {1, 1, 1, 1, 2}, {1, 2, 2, 1, 2}};
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    ndp_model whole, m;
    CHECK_OK(ndp_decoder_build(of, &mo, &whole));
    mo.frozen = frozen[which], mo.n_frozen = which ? 2 : 3;
    CHECK_OK(ndp_decoder_build(of, &mo, &m));
    result all = run(&whole, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
    result one = run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
    check_frozen(&m, &one, &all);
    for (int i = 0; i < NDP_COUNT(sizes); i++) {
        way w = {.reshard = i % 2, .recompute = on, .gathered = i > 2, .parallel = NDP_PARALLEL_INIT};
        memcpy(w.size, sizes[i], sizeof w.size);
        result r = run(&m, device, &w);
        compare(&m, &r, &one, &w, bound);
        check_frozen(&m, &r, NULL);
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
        for (int k = 0; k < 2 * NDP_COUNT(frozen); k++) {
            ndp_facts f = tiny_facts(k % 2);
            if (left_out())
                continue;
            f.layers = 4;
            frozen_units(&f, k / 2, k % 2, precisions[p].compute, precisions[p].device, precisions[p].bound);
        }
}

/* Layers 0 and 2 are frozen, of which the second is above one that is trained: the gradient goes through its experts.
 * Not in bf16, where what a layout rounds may choose other experts. */
static void frozen_experts(void **state) {
    (void)state;
    ndp_facts f;
    CHECK_OK(ndp_facts_parse_text(
        TINY("mixtral", "\"head_dim\": 6, \"num_local_experts\": 4, \"num_experts_per_tok\": 2"), "tiny", &f));
    f.layers = 4;
    for (int p = 0; precisions[p].compute != NDP_BF16; p++)
        frozen_units(&f, 1, p % 2, precisions[p].compute, precisions[p].device, precisions[p].bound);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(frozen_on_layouts), cmocka_unit_test(frozen_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
