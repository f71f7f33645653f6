/* The peak of the processor is measured, and never falls. What it is, a test cannot know; bench_peak shows it. */
#include "base/cpu.h"
#include "check.h"
#include "device/cpu/peak_loops.h"
#include "device/peak.h"

#include <stdlib.h>

static double peak_of(bool bf16, int threads) {
    ndp_peak *p;
    CHECK_OK(ndp_peak_create(bf16, threads, &p));
    double rate = ndp_peak_rate(p);
    assert_true(rate > 1e6 && rate < 1e16);
    for (int i = 0; i < 3; i++) {
        ndp_peak_improve(p);
        assert_true(ndp_peak_rate(p) >= rate);
    }
    ndp_peak_destroy(p);
    return rate;
}

static void every_type_and_any_number_of_threads(void **state) {
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        peak_of(false, threads);
        peak_of(true, threads);
    }
}

/* Also those that this processor would never choose. */
static void every_loop_that_this_processor_has_runs(void **state) {
    (void)state;
    const ndp_peak_loop *const lists[] = {ndp_peak_bf16_loops, ndp_peak_fp32_loops};
    const int n[] = {NDP_PEAK_BF16_LOOPS, NDP_PEAK_FP32_LOOPS};
    assert_true(ndp_peak_fp32_loops[NDP_PEAK_FP32_LOOPS - 1].supported());
    for (int list = 0; list < NDP_COUNT(lists); list++)
        for (int i = 0; i < n[list]; i++)
            if (lists[list][i].supported())
                lists[list][i].run(100);
}

/* The peak is the machine's, not that of the kernels in use. */
static void isa_does_not_lower_it(void **state) {
    (void)state;
    bool had[NDP_PEAK_BF16_LOOPS], wide = ndp_peak_fp32_loops[0].supported();
    for (int i = 0; i < NDP_PEAK_BF16_LOOPS; i++)
        had[i] = ndp_peak_bf16_loops[i].supported();
    setenv("NDP_ISA", "generic", 1);
    assert_false(ndp_cpu_has_avx512());
    assert_int_equal(ndp_peak_fp32_loops[0].supported(), wide);
    for (int i = 0; i < NDP_PEAK_BF16_LOOPS; i++)
        assert_int_equal(ndp_peak_bf16_loops[i].supported(), had[i]);
    unsetenv("NDP_ISA");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type_and_any_number_of_threads),
                                       cmocka_unit_test(every_loop_that_this_processor_has_runs),
                                       cmocka_unit_test(isa_does_not_lower_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
