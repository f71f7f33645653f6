/* Dumps of our own, of all families and on all axes, agree; and a dump that is no dump is refused with one message,
 * before anything large is allocated. */
#include "verify/dumps.h"

/* Every axis with another one. */
static const way ways[] = {
    {.global = DUMP_ROWS, .accumulation = 2, .threads = 1},
    {.replicate = 2, .shard = 2, .global = DUMP_ROWS, .accumulation = 2, .threads = 1},
    {.shard = 2, .cp = 2, .tp = 2, .global = DUMP_ROWS, .accumulation = 1, .threads = 1},
    {.pp = 2, .tp = 2, .global = DUMP_ROWS, .accumulation = 4, .threads = 1, .once = true},
    {.cp = 2, .sp = 2, .global = DUMP_ROWS, .accumulation = 1, .threads = 1, .all_gather = true}};

static void check_agrees(const ndp_config *c, const char *folder, const char *what) {
    ndp_against a = judge_dump(c, folder);
    char *causes = causes_of(&a);
    if (!a.agrees || a.n_causes)
        fail_msg("%s: %s", what, causes);
    assert_int_equal(a.rows, DUMP_ROWS);
    assert_int_equal(a.tokens[0], a.tokens[1]);
    assert_true(a.n > 10);
    double most = 0;
    for (int i = 0; i < a.n; i++)
        most = fmax(most, a.gradients[i].off);
    assert_true(most > 0); /* another order of sums: it was not compared with itself */
    printf("%s: worst gradient off by %.2g\n", what, most);
    free(causes);
    ndp_against_release(&a);
}

static void family_agrees(void **state) {
    const family_model *m = *state;
    for (int i = 0; i < NDP_COUNT(ways); i++) {
        char what[WAY_TEXT];
        char *folder = dump_folder("own");
        ndp_config *c = dump_job(m, &ways[i]);
        make_dump(c, folder, NULL, NULL);
        check_agrees(c, folder, way_text(&ways[i], what));
        ndp_config_destroy(c);
        free(folder);
    }
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[FAMILIES];
    for (int i = 0; i < FAMILIES; i++)
        tests[i] = (struct CMUnitTest){family_models[i].name, family_agrees, NULL, NULL, (void *)&family_models[i]};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_the_corpus, drop_the_corpus);
}
