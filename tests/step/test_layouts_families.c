/* Layout invariance (test_layouts.c) of other families than Llama. */
#include "step/models.h"

/* On the layouts from number `first` on (5: those that are more than data parallel; 12: products of two axes). */
static void check_families(ndp_dtype compute, const ndp_device *device, const bounds *bound, int first) {
    static ndp_facts f;
    for (int i = 0; i < NDP_COUNT(tiny_families); i++) {
        CHECK_OK(ndp_facts_parse_text(tiny_families[i], "tiny", &f));
        check_model(&f, compute, device, bound, first, 8);
    }
}

static void families_fp64(void **state) {
    (void)state, check_families(NDP_F64, &ndp_device_ref, &exact, short_or_all(8, 5));
}
static void families_fp32(void **state) {
    (void)state, check_families(NDP_F32, &ndp_device_cpu, &other_single, short_or_all(8, 5));
}
static void families_bf16(void **state) { (void)state, check_families(NDP_BF16, &ndp_device_cpu, &half, 12); }

/* One layout of each, the last, on threads also where other tests let ranks take turns. */
static void families_on_threads(void **state) {
    (void)state;
    static ndp_facts f;
    const char *set = getenv("NDP_LOCAL_ORDER");
    char *order = set ? strdup(set) : NULL;
    setenv("NDP_LOCAL_ORDER", "", 1);
    for (int i = 0; i < NDP_COUNT(tiny_families); i++) {
        ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
        ndp_model m;
        way w = {.parallel = NDP_PARALLEL_INIT};
        CHECK_OK(ndp_facts_parse_text(tiny_families[i], "tiny", &f));
        CHECK_OK(ndp_decoder_build(&f, &mo, &m));
        result one = run(&m, &ndp_device_cpu, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
        memcpy(w.size, layout_sizes[NDP_COUNT(layout_sizes) - 1], sizeof w.size);
        result r = run(&m, &ndp_device_cpu, &w);
        compare(&m, &r, &one, &w, &other_single);
        release(&r);
        release(&one);
        ndp_model_release(&m);
    }
    if (order)
        setenv("NDP_LOCAL_ORDER", order, 1);
    else
        unsetenv("NDP_LOCAL_ORDER");
    free(order);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(families_fp64), cmocka_unit_test(families_fp32),
                                       cmocka_unit_test(families_bf16), cmocka_unit_test(families_on_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
