/* A pipeline moves no sum: with gradients reduced once an update and without clipping, every schedule gives the bits of
 * one stage, in fp32 and bf16: losses and weights after 20 steps, and the gradients of the first and the last. The norm
 * is a sum over stages, and differs. Mixtures of experts choose by themselves. */
#include "verify/mixtures.h"

enum { MICRO_BATCHES = 8 };

static way way_on(int pp, int shard, int tp) {
    return (way){.pp = pp,
                 .shard = shard,
                 .tp = tp,
                 .global = MICRO_BATCHES * shard,
                 .accumulation = MICRO_BATCHES,
                 .threads = 1,
                 .once = true};
}

static void check_bits(const subject *s, const way *w, const outcome *one) {
    char text[WAY_TEXT];
    const ndp_bounds none = {.of = {[NDP_MEASURE_GRAD_NORM] = 1e-6}};
    outcome o = train(s, w);
    ndp_difference d = compare(&o, one, &none);
    char words[512];
    const char *bad = ndp_difference_words(&d, words, sizeof words);
    if (bad || memcmp(o.of.loss, one->of.loss, sizeof o.of.loss) != 0)
        fail_msg("%s, %s: %s", s->name, way_text(w, text), bad ? bad : "another loss");
    outcome_release(&o);
}

static void check_all(const corpus *c, subject s, int shard, int tp, int every) {
    char *swapped[] = {write_swapped(c->folder, 2, MICRO_BATCHES), write_swapped(c->folder, 4, MICRO_BATCHES)},
         *three[] = {write_uneven(c->folder, MICRO_BATCHES), write_flat(c->folder, MICRO_BATCHES)};
    s.clip = 0;
    way w = way_on(1, shard, tp);
    outcome one = train(&s, &w);
    for (int pp = 2, at = 0; pp <= 4; pp *= 2) {
        for (int k = 0; k < NDP_COUNT(schedules); k++) {
            w = way_on(pp, shard, tp);
            w.recompute = k % 2, w.keep = k % 3 > 0;
            put_on(&w, &schedules[k]);
            if (at++ % every == 0 && !left_out())
                check_bits(&s, &w, &one);
        }
        w = way_on(pp, shard, tp);
        w.schedule = "file", w.file = swapped[pp / 4];
        check_bits(&s, &w, &one);
        for (int i = 0; i < 2 && pp == 2; i++) {
            w.file = three[i];
            check_bits(&s, &w, &one);
        }
    }
    outcome_release(&one);
    for (int i = 0; i < 2; i++)
        free(swapped[i]), free(three[i]);
}

static void check_tall(const corpus *c, const char *precision, int shard, int tp, int every) {
    char *path = write_tall(c->folder, false);
    check_all(c, tall_subject(c, path, precision, precision), shard, tp, every);
    free(path);
}

static void check_mixture(const corpus *c, const mixture_model *m, const char *precision) {
    char *path;
    subject s = mixture_subject(c, m, precision, &path);
    s.steps = 4;
    check_all(c, s, 1, 1, short_or_all(3, 1));
    free(path);
}

static void fp32(void **state) { check_tall(*state, "fp32", 1, 1, 1); }
static void bf16(void **state) { check_tall(*state, "bf16", 1, 1, short_or_all(2, 1)); }
static void fp32_sharded(void **state) { check_tall(*state, "fp32", 2, 2, 4); }

static void mixtral(void **state) { check_mixture(*state, &mixture_models[0], "fp32"); }
static void qwen3_moe(void **state) { check_mixture(*state, &mixture_models[1], "bf16"); }

/* With an argument: only the tests of that name (a pattern). */
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp32), cmocka_unit_test(bf16), cmocka_unit_test(fp32_sharded),
                                       cmocka_unit_test(mixtral), cmocka_unit_test(qwen3_moe)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
