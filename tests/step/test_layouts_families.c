/* Layout invariance (test_layouts.c) of other families than Llama. */
#include "step/models.h"

/* Other families, by config.json: windows, norms of heads and of all heads, fused and transposed tensors, LayerNorm,
 * learned positions, caps, layers without RoPE. */
static const char *const families[] = {
    TINY("qwen3", "\"head_dim\": 6, \"sliding_window\": 4, \"use_sliding_window\": true, \"max_window_layers\": 1"),
    TINY("olmo2", "\"head_dim\": 6, \"attention_bias\": true"),
    TINY("phi3", "\"head_dim\": 6, \"partial_rotary_factor\": 0.7, \"sliding_window\": 5"),
    TINY("gemma2", "\"head_dim\": 6, \"sliding_window\": 4, \"attn_logit_softcapping\": 0.5, "
                   "\"final_logit_softcapping\": 2.0"),
    TINY("gemma3_text", "\"head_dim\": 6, \"sliding_window\": 4, \"sliding_window_pattern\": 2"),
    TINY("smollm3", "\"head_dim\": 6, \"no_rope_layers\": [1, 0]"),
    TINY("stablelm", "\"partial_rotary_factor\": 0.7, \"use_qkv_bias\": true, \"use_parallel_residual\": true"),
    TINY_GPT2};

/* On the layouts from number `first` on (5: those that are more than data parallel; 12: products of two axes). */
static void check_families(ndp_dtype compute, const ndp_device *device, const bounds *bound, int first) {
    static ndp_facts f;
    for (int i = 0; i < NDP_COUNT(families); i++) {
        CHECK_OK(ndp_facts_parse_text(families[i], "tiny", &f));
        check_model(&f, compute, device, bound, first, 8);
    }
}

static void families_fp64(void **state) { (void)state, check_families(NDP_F64, &ndp_device_ref, &exact, 5); }
static void families_fp32(void **state) { (void)state, check_families(NDP_F32, &ndp_device_cpu, &other_single, 5); }
static void families_bf16(void **state) { (void)state, check_families(NDP_BF16, &ndp_device_cpu, &half, 12); }

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(families_fp64), cmocka_unit_test(families_fp32),
                                       cmocka_unit_test(families_bf16)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
