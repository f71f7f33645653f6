/* Sums in rank order: the bits do not depend on threads or block borders; NaN is not hidden by a maximum. */
#include "comm/rank_sum.h"

#include "check.h"
#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { RANKS = 3, COUNT = 300007 };

static void the_bits_do_not_depend_on_threads(void **state) {
    float *in[RANKS], *one = malloc(COUNT * sizeof *one), *many = malloc(COUNT * sizeof *many);
    (void)state;
    for (int r = 0; r < RANKS; r++) {
        in[r] = malloc(COUNT * sizeof *in[r]);
        for (int i = 0; i < COUNT; i++)
            in[r][i] = (float)((r * 7919 + i) % 1013) / 7.0f * (r == 1 ? 1e6f : 1.0f);
    }
    omp_set_num_threads(1);
    ndp_reduce_ranks(NDP_F32, NDP_SUM, (void **)in, RANKS, (void *[]){one}, 1, COUNT, false);
    omp_set_num_threads(3);
    ndp_reduce_ranks(NDP_F32, NDP_SUM, (void **)in, RANKS, (void *[]){many}, 1, COUNT, false);
    for (int i = 0; i < COUNT; i++)
        assert_true(one[i] == (in[0][i] + in[1][i]) + in[2][i]);
    assert_memory_equal(one, many, COUNT * sizeof *one);
    /* into all ranks' buffers at once, as all_reduce does */
    ndp_reduce_ranks(NDP_F32, NDP_SUM, (void **)in, RANKS, (void **)in, RANKS, COUNT, false);
    for (int r = 0; r < RANKS; r++)
        assert_memory_equal(in[r], one, COUNT * sizeof *one);
    memset(many, 0, COUNT * sizeof *many);
    ndp_copy_large(many, one, COUNT * sizeof *one);
    assert_memory_equal(one, many, COUNT * sizeof *one);
    omp_set_num_threads(1);
    for (int r = 0; r < RANKS; r++)
        free(in[r]);
    free(one);
    free(many);
}

static void bf16_is_summed_in_fp32(void **state) {
    uint16_t big = ndp_f32_to_bf16(256.0f), half = ndp_f32_to_bf16(0.5f), out = 0;
    (void)state;
    /* rank by rank in bf16 every 0.5 would be lost: the spacing at 256 is 2 */
    ndp_reduce_ranks(NDP_BF16, NDP_SUM, (void *[]){&big, &half, &half, &half, &half}, 5, (void *[]){&out}, 1, 1, false);
    assert_true(ndp_bf16_to_f32(out) == 258.0f);
}

static void a_maximum_keeps_nan(void **state) {
    (void)state;
    for (int where = 0; where < RANKS; where++) {
        float x[RANKS] = {5, 7, 6}, out = 0;
        x[where] = NAN;
        ndp_reduce_ranks(NDP_F32, NDP_MAX, (void *[]){&x[0], &x[1], &x[2]}, RANKS, (void *[]){&out}, 1, 1, false);
        assert_true(isnan(out));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_do_not_depend_on_threads),
        cmocka_unit_test(bf16_is_summed_in_fp32),
        cmocka_unit_test(a_maximum_keeps_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
