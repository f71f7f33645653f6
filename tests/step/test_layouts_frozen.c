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

static void frozen_units(ndp_dtype compute, const ndp_device *device, const bounds *bound) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 1, 2, 1, 1},
                                   {1, 1, 1, 2, 1}, {1, 1, 1, 1, 2}, {1, 2, 2, 1, 2}};
    for (int k = 0; k < 2 * NDP_COUNT(frozen); k++) {
        ndp_facts f = tiny_facts(k % 2);
        f.layers = 4;
        ndp_model_opts mo = tiny_opts(compute, ROWS);
        ndp_model whole, m;
        CHECK_OK(ndp_decoder_build(&f, &mo, &whole));
        mo.frozen = frozen[k / 2], mo.n_frozen = k / 2 ? 2 : 3;
        CHECK_OK(ndp_decoder_build(&f, &mo, &m));
        result all = run(&whole, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
        result one = run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
        check_frozen(&m, &one, &all);
        for (int i = 0; i < NDP_COUNT(sizes); i++) {
            way w = {.reshard = i % 2, .recompute = k % 2, .gathered = i > 2, .parallel = NDP_PARALLEL_INIT};
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
}

static void frozen_on_layouts(void **state) {
    (void)state;
    frozen_units(NDP_F64, &ndp_device_ref, &exact);
    frozen_units(NDP_F32, &ndp_device_cpu, &other_single);
    frozen_units(NDP_BF16, &ndp_device_cpu, &half);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(frozen_on_layouts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
