/* Proof 3 for pipelines: `1f1b` on pp 2 and 4 with every legal product of the other axes for worlds of 2, 4 and 8 ranks
 * and 40 at 16, every other schedule on twelve layouts; with fewer, as many and more micro-batches than stages. The
 * other choices are drawn anew for every run. */
#include "verify/matrix.h"
#include "verify/pipelines.h"

/* Of a world's layouts at most so many, evenly spread. */
static void try_world(family *f, int pp, int world, int most) {
    ndp_layout l = NDP_LAYOUT_ONE, layouts[MOST_LAYOUTS];
    ndp_layout_facts facts = facts_of(&f->s);
    l.size[NDP_PP] = pp;
    int n = add_layouts(&l, NDP_DP_REPLICATE, world / pp, world, &facts, layouts, 0, MOST_LAYOUTS);
    for (int i = 0; i < n && i < most; i++) {
        const ndp_layout *at = &layouts[n > most ? i * n / most : i];
        if (!fits(at, SAMPLES))
            continue;
        way w = staged_way(at->size, &schedules[0], f->tried);
        try_one(f, &w);
    }
}

static void try_1f1b(family *f) {
    static const int worlds[] = {2, 4, 8};
    for (int pp = 2; pp <= 4; pp *= 2) {
        for (int i = 0; i < NDP_COUNT(worlds); i++)
            if (worlds[i] >= pp)
                try_world(f, pp, worlds[i], MOST_LAYOUTS);
        try_world(f, pp, 16, 20);
    }
}

/* Every schedule but 1f1b, of so many stages at most; every `step`th of them. */
static void try_schedules(family *f, int chunks, int step) {
    for (int k = 1, at = 0; k < NDP_COUNT(schedules); k++)
        for (int i = 0; i < NDP_COUNT(staged_layouts); i++) {
            const int *layout = staged_layouts[i];
            way w = staged_way(layout, &schedules[k], 3 * k + i);
            if (schedules[k].chunks * layout[0] <= chunks && at++ % step == 0)
                try_one(f, &w);
        }
}

static void finish(family *f) {
    print_family(f);
    family_release(f);
    assert_int_equal(f->passed, f->tried);
    assert_true(f->tried >= 10);
}

static void tied(corpus *c, const char *precision, bool is_tied, int step) {
    char *path = write_tall(c->folder, is_tied), name[64];
    snprintf(name, sizeof name, "tall%s %s", is_tied ? " tied" : "", precision);
    family f = {.s = tall_subject(c, path, name, precision)};
    bool exact = strcmp(precision, "fp64") == 0;
    f.s.steps = exact ? 2 : MOST_STEPS, f.s.length = exact ? 17 : 29;
    if (step == 1)
        try_1f1b(&f);
    try_schedules(&f, 8, step);
    finish(&f);
    free(path);
}

static void tied_fp32(void **state) { tied(*state, "fp32", true, 1); }
static void untied_fp32(void **state) { tied(*state, "fp32", false, 5); }
static void tied_bf16(void **state) { tied(*state, "bf16", true, 5); }
static void tied_fp64(void **state) { tied(*state, "fp64", true, 5); }

/* Five layers: at most five stages. */
static void stories(subject s, int step) {
    family f = {.s = s};
    if (step == 1)
        try_1f1b(&f);
    try_schedules(&f, 5, step);
    finish(&f);
}

static void stories_fp32(void **state) { stories(stories_subject(*state, "stories260K fp32", "fp32"), 1); }

static void stories_lion(void **state) {
    subject s = stories_subject(*state, "stories260K fp32 Lion", "fp32");
    s.optimizer = "lion", s.lr = 1e-4, s.length = 64;
    stories(s, 5);
}

static void stories_sgd(void **state) {
    subject s = stories_subject(*state, "stories260K fp32 SGD", "fp32");
    s.optimizer = "sgd", s.lr = 0.02, s.clip = 0, s.length = 64;
    stories(s, 5);
}

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tied_fp64),    cmocka_unit_test(tied_fp32),
                                       cmocka_unit_test(untied_fp32),  cmocka_unit_test(tied_bf16),
                                       cmocka_unit_test(stories_lion), cmocka_unit_test(stories_sgd),
                                       cmocka_unit_test(stories_fp32)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
