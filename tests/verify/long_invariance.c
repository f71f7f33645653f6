/* Proof 3, all of it: every legal product of the axes dp_replicate, dp_shard, cp, sp, tp for worlds of 2 to 16 ranks,
 * on the trained and on two random models. The other choices (ring or all_gather, zig-zag, rows of the tensor axis,
 * recompute, how weights are held, accumulation) are drawn anew for every layout. Prints how many runs each choice had,
 * and how near to its bounds the family came, and where. */
#include "verify/matrix.h"

/* Bounds that are numbers. */
static void fixed(subject s, int length, int draws) {
    s.length = length;
    try_all(s, 0, 1, draws);
}

/* The naive loops are slow, and need few of them: nothing hides in their rounding. */
static void exact(subject s, int window, int step) {
    s.length = 29, s.window = window, s.steps = 3;
    try_all(s, 0, step, 1);
}

/* 20 plain steps without clipping: nothing hides the size of a gradient. */
static void plain(subject s, double lr) {
    s.optimizer = "sgd", s.lr = lr, s.clip = 0, s.length = 64;
    try_all(s, DIVISIBLE, 6, 1);
}

/* 20 updates by signs, in which rounding turns some weights' steps. */
static void signs(subject s) {
    s.optimizer = "lion", s.lr = 1e-4, s.length = 64;
    try_all(s, DIVISIBLE, 6, 1);
}

/* 20 updates of whole matrices, by an iteration that magnifies what rounding does to small singular directions. */
static void whole(subject s) {
    s.optimizer = "muon", s.momentum = 0.95, s.lr = 1e-3, s.length = 64;
    try_all(s, DIVISIBLE, 6, 1);
}

/* 20 updates by 8-bit states, whose blocks tp cuts elsewhere. */
static void coded(subject s) {
    s.optimizer = "adamw8bit", s.length = 64;
    try_all(s, DIVISIBLE, 6, 1);
}

/* A length of 64 is one attention block: there cutting the batch on one rank moves no block, splitting its sums does.
 */
static void half(subject s, int length, int step) {
    s.length = length;
    try_all(s, DIVISIBLE, step, 1);
}

static void stories_fp32(void **state) { fixed(stories_subject(*state, "stories260K fp32", "fp32"), 100, 1); }
static void stories_sgd(void **state) { plain(stories_subject(*state, "stories260K fp32 SGD", "fp32"), 0.02); }
static void stories_lion(void **state) { signs(stories_subject(*state, "stories260K fp32 Lion", "fp32")); }
static void stories_muon(void **state) { whole(stories_subject(*state, "stories260K fp32 Muon", "fp32")); }
static void stories_codes(void **state) { coded(stories_subject(*state, "stories260K fp32, 8-bit states", "fp32")); }
static void stories_bf16(void **state) { half(stories_subject(*state, "stories260K bf16", "bf16"), 100, 3); }
static void stories_fp64(void **state) { exact(stories_subject(*state, "stories260K fp64 ref", "fp64"), 0, 4); }
static void nines_fp32(void **state) { fixed(nines_subject(*state, "nines fp32", "fp32"), 97, 2); }
static void nines_bf16(void **state) { half(nines_subject(*state, "nines bf16", "bf16"), 97, 2); }
static void nines_bf16_blocks(void **state) { half(nines_subject(*state, "nines bf16, whole blocks", "bf16"), 64, 1); }
static void nines_fp64(void **state) { exact(nines_subject(*state, "nines fp64 ref", "fp64"), 0, 2); }
static void odd_fp32(void **state) { fixed(odd_subject(*state, "odd fp32", "fp32"), 91, 1); }
static void odd_sgd(void **state) { plain(odd_subject(*state, "odd fp32 SGD", "fp32"), 0.05); }
static void odd_lion(void **state) { signs(odd_subject(*state, "odd fp32 Lion", "fp32")); }
static void odd_muon(void **state) { whole(odd_subject(*state, "odd fp32 Muon", "fp32")); }
static void odd_codes(void **state) { coded(odd_subject(*state, "odd fp32, 8-bit states", "fp32")); }
static void odd_codes_bf16(void **state) {
    subject s = odd_subject(*state, "odd bf16, 8-bit states", "bf16");
    s.optimizer = "adamw8bit";
    half(s, 91, 6);
}
static void odd_bf16(void **state) { half(odd_subject(*state, "odd bf16", "bf16"), 91, 3); }
static void odd_fp64(void **state) { exact(odd_subject(*state, "odd fp64 ref", "fp64"), 11, 4); }

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories_fp64),  cmocka_unit_test(nines_fp64),   cmocka_unit_test(odd_fp64),
        cmocka_unit_test(stories_sgd),   cmocka_unit_test(odd_sgd),      cmocka_unit_test(stories_lion),
        cmocka_unit_test(odd_lion),      cmocka_unit_test(stories_muon), cmocka_unit_test(odd_muon),
        cmocka_unit_test(stories_codes), cmocka_unit_test(odd_codes),    cmocka_unit_test(odd_codes_bf16),
        cmocka_unit_test(stories_bf16),  cmocka_unit_test(nines_bf16),   cmocka_unit_test(nines_bf16_blocks),
        cmocka_unit_test(odd_bf16),      cmocka_unit_test(nines_fp32),   cmocka_unit_test(odd_fp32),
        cmocka_unit_test(stories_fp32)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
