/* Layout invariance (test_layouts.c) of the losses of preference data, pairs of documents whose rows several ranks
 * share, and of weights of tokens, on every axis and their products. */
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

/* A weight that is made of logits of all ranks of tp. */
static void weights_of_tokens(void **state) {
    (void)state;
    static const ndp_dtype types[] = {NDP_F64, NDP_F32, NDP_BF16};
    static const bounds *const most[] = {&exact, &other_single, &half};
    for (int i = 0; i < 6; i++) {
        ndp_facts f = tiny_facts(i % 2);
        ndp_model_opts mo = tiny_opts(types[i / 2], ROWS);
        mo.token_weight =
            (ndp_token_weighting){i % 2 ? NDP_TOKEN_WEIGHT_PROBABILITY : NDP_TOKEN_WEIGHT_ENTROPY, 7, 0.8, 2};
        if (!left_out())
            check_model_of(&f, &mo, i / 2 ? &ndp_device_cpu : &ndp_device_ref, most[i / 2], i, 6);
    }
}

static void losses_fp64(void **state) { (void)state, check_losses(NDP_F64, &ndp_device_ref, &exact, 0, 8, 1); }
static void losses_fp32(void **state) { (void)state, check_losses(NDP_F32, &ndp_device_cpu, &other_single, 5, 8, 1); }
static void losses_bf16(void **state) { (void)state, check_losses(NDP_BF16, &ndp_device_cpu, &half, 12, 8, 2); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_fp64), cmocka_unit_test(losses_fp32),
                                       cmocka_unit_test(losses_bf16), cmocka_unit_test(weights_of_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
