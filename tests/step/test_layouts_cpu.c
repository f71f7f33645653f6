/* Layout invariance (test_layouts.c) of the kernels of `cpu`, in fp32 and bf16. */
#include "step/models.h"

static void cpu_fp32(void **state) { (void)state, check_layouts(true, NDP_F32, &ndp_device_cpu, &single); }
static void cpu_fp32_biases(void **state) { (void)state, check_layouts(false, NDP_F32, &ndp_device_cpu, &single); }
static void cpu_bf16(void **state) { (void)state, check_layouts(true, NDP_BF16, &ndp_device_cpu, &half); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cpu_fp32), cmocka_unit_test(cpu_fp32_biases),
                                       cmocka_unit_test(cpu_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
