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

/* Each word of NDP_ISA switches off what is above it and changes nothing below. */
static void isa_is_lowered_never_raised(void **state) {
    (void)state;
    static const struct {
        ndp_isa isa;
        bool (*has)(void);
    } levels[] = {{NDP_ISA_SVE, ndp_cpu_has_sve},
                  {NDP_ISA_AVX512, ndp_cpu_has_avx512},
                  {NDP_ISA_AVX512_BF16, ndp_cpu_has_avx512_bf16},
                  {NDP_ISA_AMX_BF16, ndp_cpu_has_amx_bf16}};
    for (const ndp_isa_word *w = ndp_isa_words; w->word; w++) {
        setenv("NDP_ISA", w->word, 1);
        for (int i = 0; i < NDP_COUNT(levels); i++)
            assert_int_equal(levels[i].has(), levels[i].isa <= w->isa && ndp_cpu_supports(levels[i].isa));
        if (ndp_cpu_supports(w->isa) && w[1].isa != w->isa && (w == ndp_isa_words || w[-1].isa != w->isa))
            assert_string_equal(ndp_cpu_isa(), w->word);
    }
    static const char *const no_words[] = {"nonsense", ""};
    for (int i = 0; i < 2 * NDP_COUNT(levels); i++) {
        setenv("NDP_ISA", no_words[i % 2], 1);
        assert_int_equal(levels[i / 2].has(), ndp_cpu_supports(levels[i / 2].isa));
    }
    unsetenv("NDP_ISA");
}

/* Whatever NDP_ISA says: each word is in one of the lists, and what is below one that runs also runs. */
static void words_of_levels_are_the_machines(void **state) {
    (void)state;
    char runs[NDP_CPU_NAME], lacks[NDP_CPU_NAME], all[2 * NDP_CPU_NAME + 2];
    setenv("NDP_ISA", "generic", 1);
    ndp_cpu_isa_words(true, runs);
    ndp_cpu_isa_words(false, lacks);
    unsetenv("NDP_ISA");
    assert_memory_equal(runs, "generic", 7);
    snprintf(all, sizeof all, "%s%s%s", runs, lacks[0] ? ", " : "", lacks);
    const char *at = all;
    for (const ndp_isa_word *w = ndp_isa_words; w->word; w++, at += strspn(at, ", ")) {
        assert_memory_equal(at, w->word, strlen(w->word));
        at += strlen(w->word);
    }
    assert_int_equal(*at, '\0');
    assert_non_null(strstr(runs, ndp_cpu_isa()));
}

static void the_processor_has_a_name(void **state) {
    (void)state;
    char name[NDP_CPU_NAME];
    assert_ptr_equal(ndp_cpu_name(name), name);
    assert_true(strstr(name, ", family ") || strstr(name, ", part 0x"));
    assert_null(strpbrk(name, "\n\t"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_processor_has_a_name), cmocka_unit_test(cores_follow_the_affinity),
        cmocka_unit_test(isa_is_lowered_never_raised), cmocka_unit_test(words_of_levels_are_the_machines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
