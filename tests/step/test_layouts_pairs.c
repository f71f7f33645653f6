/* Layout invariance (test_layouts.c) of the losses of preference data: pairs of documents whose rows several ranks
 * share, on every axis and their products. */
#include "step/models.h"

enum { DOCUMENTS = 4 };

/* The layouts from number `first` on, every `step`th way of each, for all losses or (kinds > 1) every kinds'th. */
static void check_losses(ndp_dtype compute, const ndp_device *device, const bounds *most, int first, int step,
                         int kinds) {
    for (int kind = 1; kind < NDP_PREFERENCE_KINDS; kind += kinds) {
        if (left_out())
            continue;
        ndp_facts f = tiny_facts(kind % 2);
        ndp_model_opts mo = tiny_opts(compute, ROWS);
        mo.preference = tiny_preference(kind), mo.documents = DOCUMENTS;
        check_model_of(&f, &mo, device, most, first, step);
    }
}

static void losses_fp64(void **state) { (void)state, check_losses(NDP_F64, &ndp_device_ref, &exact, 0, 8, 1); }
static void losses_fp32(void **state) { (void)state, check_losses(NDP_F32, &ndp_device_cpu, &other_single, 5, 8, 1); }
static void losses_bf16(void **state) { (void)state, check_losses(NDP_BF16, &ndp_device_cpu, &half, 12, 8, 2); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_fp64), cmocka_unit_test(losses_fp32),
                                       cmocka_unit_test(losses_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
