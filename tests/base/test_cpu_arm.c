/* What is of aarch64 alone. */
#include "base/cpu.h"
#include "check.h"

#include <stdlib.h>
#include <sys/prctl.h>

/* Linux gives the length of vectors only where there are some. */
static void sve_is_what_the_processor_has(void **state) {
    (void)state;
    assert_int_equal(ndp_cpu_supports(NDP_ISA_SVE), prctl(PR_SVE_GET_VL, 0, 0, 0, 0) > 0);
    assert_false(ndp_cpu_supports(NDP_ISA_AVX2) || ndp_cpu_supports(NDP_ISA_AVX512));
    assert_string_equal(ndp_isa_words[0].word, "generic");
    assert_string_equal(ndp_isa_words[1].word, "sve");
    assert_null(ndp_isa_words[2].word);
}

static void bf16_is_multiplied_by_the_library(void **state) {
    (void)state;
    assert_int_equal(ndp_cpu_bf16_way(), NDP_BF16_LIBRARY);
    assert_string_equal(ndp_cpu_bf16_way_text(), "in fp32 by oneDNN");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sve_is_what_the_processor_has),
                                       cmocka_unit_test(bf16_is_multiplied_by_the_library)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
