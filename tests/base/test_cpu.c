#include "base/cpu.h"
#include "check.h"

#include <cpuid.h>
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

/* Each word of NDP_ISA switches off what is above it and changes nothing below. */
static void isa_is_lowered_never_raised(void **state) {
    (void)state;
    static const char *const words[] = {"generic", "avx512", "avx512_bf16", "amx_bf16", "nonsense"};
    static bool (*const has[])(void) = {ndp_cpu_has_avx512, ndp_cpu_has_avx512_bf16, ndp_cpu_has_amx_bf16};
    bool unlimited[3];
    unsetenv("NDP_ISA");
    for (int i = 0; i < 3; i++) {
        unlimited[i] = has[i]();
        assert_true(i == 0 || unlimited[i - 1] || !unlimited[i]);
    }
    for (int word = 0; word < NDP_COUNT(words); word++) {
        setenv("NDP_ISA", words[word], 1);
        int best = 0;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(has[i](), i < word && unlimited[i]);
            best = has[i]() ? i + 1 : best;
        }
        assert_string_equal(ndp_cpu_isa(), words[best]);
    }
    unsetenv("NDP_ISA");
}

/* Whatever NDP_ISA says: each level is in one of the lists, and what is below one that runs also runs. */
static void words_of_levels_are_the_machines(void **state) {
    (void)state;
    char runs[NDP_CPU_NAME], lacks[NDP_CPU_NAME], all[2 * NDP_CPU_NAME + 2];
    setenv("NDP_ISA", "generic", 1);
    ndp_cpu_isa_words(true, runs);
    ndp_cpu_isa_words(false, lacks);
    unsetenv("NDP_ISA");
    assert_memory_equal(runs, "generic", 7);
    snprintf(all, sizeof all, "%s%s%s", runs, lacks[0] ? ", " : "", lacks);
    assert_string_equal(all, "generic, avx512, avx512_bf16, dpbf16ps, amx_bf16");
    assert_non_null(strstr(runs, ndp_cpu_isa()));
}

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

static void the_processor_has_a_name(void **state) {
    (void)state;
    char name[NDP_CPU_NAME];
    assert_ptr_equal(ndp_cpu_name(name), name);
    assert_non_null(strstr(name, ", family "));
    assert_null(strpbrk(name, "\n\t"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_processor_has_a_name), cmocka_unit_test(cores_follow_the_affinity),
        cmocka_unit_test(bf16_is_multiplied_by_what_the_processor_is_fast_at),
        cmocka_unit_test(isa_is_lowered_never_raised), cmocka_unit_test(words_of_levels_are_the_machines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
