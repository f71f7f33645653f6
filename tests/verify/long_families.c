/* Proof 3 for every family of models through the whole trainer: the legal products of the axes for worlds of 2 to 16
 * ranks in fp32, a sample of them in bf16. As long_invariance, which has the other subjects. */
#include "verify/families.h"
#include "verify/matrix.h"

static void check(const family_model *m, const char *precision, int global, int step) {
    char *path, *name = ndp_format("%s %s", m->name, precision);
    subject s = family_subject(the_corpus, m, precision, &path);
    s.name = name;
    try_all(s, global, step, 1);
    free(path);
    free(name);
}

static void fp32(void **state) { check(*state, "fp32", 0, 1); }
static void bf16(void **state) { check(*state, "bf16", DIVISIBLE, 3); }

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    struct CMUnitTest tests[2 * FAMILIES];
    char names[2 * FAMILIES][40];
    for (int i = 0; i < 2 * FAMILIES; i++) {
        const family_model *m = &family_models[i / 2];
        snprintf(names[i], sizeof names[i], "%s_%s", m->name, i % 2 ? "bf16" : "fp32");
        tests[i] = (struct CMUnitTest){names[i], i % 2 ? bf16 : fp32, NULL, NULL, (void *)m};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_the_corpus, drop_the_corpus);
}
