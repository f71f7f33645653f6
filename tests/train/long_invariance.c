/* Proof 3, all of it: every layout, with every switch in every position, on the trained and on the random model. Prints
 * what was tried and how near to its bounds it came. Not run twice are ways that are one program: without shards
 * nothing is gathered, and what is read in place is never dropped. */
#include "train/invariance.h"

#include "base/clock.h"

typedef enum extent {
    ALL,   /* every combination */
    COVER, /* each layout with each value of each switch */
    FEW    /* some layouts */
} extent;

static void try_one(family *f, const way *w, int *bad) {
    char text[160], words[512];
    const char *out_of = try_way(f, w, words);
    if (out_of) {
        printf("OUT OF BOUNDS: %s, %s: %s\n", f->s.name, way_text(w, text), out_of);
        (*bad)++;
    }
    fflush(stdout);
}

typedef enum held { IN_PLACE, GATHERED, KEPT, HELDS } held;

/* COVER: for each layout (its number i), accumulations (number k) meet every way to hold the weights, and both others.
 */
static bool is_chosen(extent e, int i, int k, bool recompute, held h, int shards) {
    bool twin = shards == 1 && h != IN_PLACE;
    if (e == FEW)
        return i % 3 == 0 && k < 2 && !twin;
    if (e == ALL)
        return !twin;
    return recompute == ((k + i / 3) % 2 == 1) && h == (shards == 1 ? IN_PLACE : (held)((k + i) % HELDS));
}

static void try_layout(family *f, extent e, int ways, int i, int *bad) {
    int replicate = layouts[i][0], shard = layouts[i][1];
    for (int k = 0; k < 3; k++)
        for (int recompute = 0; recompute < 2; recompute++)
            for (held h = IN_PLACE; h < HELDS; h++) {
                way w = {.replicate = replicate,
                         .shard = shard,
                         .global = global_batch(replicate * shard, 1 << k, ways),
                         .accumulation = 1 << k,
                         .threads = 1,
                         .recompute = recompute,
                         .gathered = h != IN_PLACE,
                         .keep = h == KEPT};
                if (is_chosen(e, i, k, recompute, h, shard))
                    try_one(f, &w, bad);
            }
}

static void try_all(family *f, extent e, int ways) {
    double start = ndp_now();
    int bad = 0;
    for (int i = 0; i < NDP_COUNT(layouts); i++)
        try_layout(f, e, ways, i, &bad);
    print_family(f);
    printf("%-22s %.0f s\n", "", ndp_now() - start);
    fflush(stdout);
    family_release(f);
    assert_int_equal(bad, 0);
}

static void fixed(subject s, extent e) {
    family f = {.s = s};
    try_all(&f, e, 3);
}

/* 20 plain steps without clipping: nothing hides the size of a gradient. */
static void plain(subject s, double lr) {
    family f = {.s = s};
    f.s.optimizer = "sgd", f.s.lr = lr, f.s.clip = 0;
    try_all(&f, COVER, 3);
}

static void half(subject s) {
    family f = {.s = s};
    try_all(&f, COVER, 6);
}

/* The plain loops are slow: short rows, few steps. */
static subject small(subject s, int window) {
    s.length = 32, s.window = window, s.steps = 3;
    return s;
}

static void stories_fp32(void **state) { fixed(stories_subject(*state, "stories260K fp32", "fp32"), ALL); }
static void stories_sgd(void **state) { plain(stories_subject(*state, "stories260K fp32 SGD", "fp32"), 0.02); }
static void stories_bf16(void **state) { half(stories_subject(*state, "stories260K bf16", "bf16")); }
static void stories_fp64(void **state) {
    fixed(small(stories_subject(*state, "stories260K fp64 ref", "fp64"), 0), FEW);
}
static void odd_fp32(void **state) { fixed(odd_subject(*state, "odd fp32", "fp32"), ALL); }
static void odd_sgd(void **state) { plain(odd_subject(*state, "odd fp32 SGD", "fp32"), 0.05); }
static void odd_bf16(void **state) { half(odd_subject(*state, "odd bf16", "bf16")); }
static void odd_fp64(void **state) { fixed(small(odd_subject(*state, "odd fp64 ref", "fp64"), 11), FEW); }

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stories_fp64), cmocka_unit_test(odd_fp64),
                                       cmocka_unit_test(stories_sgd),  cmocka_unit_test(stories_bf16),
                                       cmocka_unit_test(stories_fp32), cmocka_unit_test(odd_sgd),
                                       cmocka_unit_test(odd_bf16),     cmocka_unit_test(odd_fp32)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
