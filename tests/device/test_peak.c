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
    const ndp_peak_loop *const lists[] = {ndp_peak_bf16_loops, ndp_peak_fp32_loops}, *last = NULL;
    for (int list = 0; list < NDP_COUNT(lists); list++)
        for (const ndp_peak_loop *loop = lists[list]; loop->run; last = loop++)
            if (ndp_cpu_supports(loop->needs))
                loop->run(100);
    assert_int_equal(last->needs, NDP_ISA_GENERIC);
}

/* The peak is the machine's, not that of the kernels in use. */
static void isa_does_not_lower_it(void **state) {
    (void)state;
    bool had[NDP_ISA_BFMMLA + 1];
    for (int isa = 0; isa < NDP_COUNT(had); isa++)
        had[isa] = ndp_cpu_supports((ndp_isa)isa);
    setenv("NDP_ISA", "generic", 1);
    assert_false(ndp_cpu_has_avx512());
    for (int isa = 0; isa < NDP_COUNT(had); isa++)
        assert_int_equal(ndp_cpu_supports((ndp_isa)isa), had[isa]);
    unsetenv("NDP_ISA");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_type_and_any_number_of_threads),
                                       cmocka_unit_test(every_loop_that_this_processor_has_runs),
                                       cmocka_unit_test(isa_does_not_lower_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
