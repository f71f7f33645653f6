#include "base/cpu.h"
#include "check.h"

#include <sched.h>
#include <stdlib.h>

static void cores_follow_the_affinity(void **state) {
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(ndp_cpu_cores(), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(ndp_cpu_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void isa_is_lowered_never_raised(void **state) {
    (void)state;
    unsetenv("NDP_ISA");
    bool avx512 = ndp_cpu_has_avx512(), bf16 = ndp_cpu_has_avx512_bf16();
    assert_true(avx512 || !bf16);
    setenv("NDP_ISA", "avx512_bf16", 1);
    assert_int_equal(ndp_cpu_has_avx512(), avx512);
    assert_int_equal(ndp_cpu_has_avx512_bf16(), bf16);
    setenv("NDP_ISA", "avx512", 1);
    assert_int_equal(ndp_cpu_has_avx512(), avx512);
    assert_false(ndp_cpu_has_avx512_bf16());
    setenv("NDP_ISA", "generic", 1);
    assert_false(ndp_cpu_has_avx512());
    assert_false(ndp_cpu_has_avx512_bf16());
    unsetenv("NDP_ISA");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cores_follow_the_affinity),
                                       cmocka_unit_test(isa_is_lowered_never_raised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
