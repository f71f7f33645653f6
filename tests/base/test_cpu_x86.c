/* What is of x86-64 alone. */
#include "base/cpu.h"
#include "check.h"

#include <cpuid.h>
#include <stdlib.h>

static bool is_amd(void) {
    unsigned a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
}

/* Pairs only where they are known to be fast, or are asked for by name. */
static void bf16_is_multiplied_by_what_the_processor_is_fast_at(void **state) {
    (void)state;
    unsetenv("NDP_ISA");
    bool vectors = ndp_cpu_has_avx512(), pairs = ndp_cpu_has_avx512_bf16(), tiles = ndp_cpu_has_amx_bf16();
    ndp_bf16_way by_vectors = vectors ? NDP_BF16_WIDENED : NDP_BF16_LIBRARY;
    assert_int_equal(ndp_cpu_bf16_way(), tiles ? NDP_BF16_TILES : pairs && is_amd() ? NDP_BF16_PAIRS : by_vectors);
    setenv("NDP_ISA", "avx512_bf16", 1);
    assert_int_equal(ndp_cpu_bf16_way(), pairs && is_amd() ? NDP_BF16_PAIRS : by_vectors);
    setenv("NDP_ISA", "dpbf16ps", 1);
    assert_int_equal(ndp_cpu_bf16_way(), pairs ? NDP_BF16_PAIRS : by_vectors);
    setenv("NDP_ISA", "avx512", 1);
    assert_int_equal(ndp_cpu_bf16_way(), by_vectors);
    setenv("NDP_ISA", "generic", 1);
    assert_int_equal(ndp_cpu_bf16_way(), NDP_BF16_LIBRARY);
    unsetenv("NDP_ISA");
}

static void words_are_those_of_the_kernels(void **state) {
    (void)state;
    static const char *const words[] = {"generic", "avx512", "avx512_bf16", "dpbf16ps", "amx_bf16"};
    for (int i = 0; i < NDP_COUNT(words); i++)
        assert_string_equal(ndp_isa_words[i].word, words[i]);
    assert_null(ndp_isa_words[NDP_COUNT(words)].word);
    assert_false(ndp_cpu_supports(NDP_ISA_SVE) || ndp_cpu_supports(NDP_ISA_BFMMLA));
    assert_true(ndp_cpu_supports(NDP_ISA_AVX2) || !ndp_cpu_supports(NDP_ISA_AVX512));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_is_multiplied_by_what_the_processor_is_fast_at),
                                       cmocka_unit_test(words_are_those_of_the_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
