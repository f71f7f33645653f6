/* Proof 3 for every family of models on every pipeline schedule, alone and with each other axis, none excepted:
 * gradients of steps 1, 2 and 3, of models with 5 and 7 layers. */
#include "verify/family_pipelines.h"

static void layers_5(void **state) { check_family_pipelines(*state, 5, "adamw"); }
static void layers_7(void **state) { check_family_pipelines(*state, 7, "adamw"); }

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    struct CMUnitTest tests[2 * FAMILIES];
    char names[2 * FAMILIES][40];
    for (int i = 0; i < 2 * FAMILIES; i++) {
        const family_model *m = &family_models[i / 2];
        snprintf(names[i], sizeof names[i], "%s_%d", m->name, i % 2 ? 7 : 5);
        tests[i] = (struct CMUnitTest){names[i], i % 2 ? layers_7 : layers_5, NULL, NULL, (void *)m};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_the_corpus, drop_the_corpus);
}
