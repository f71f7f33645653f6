#include "base/clock.h"
#include "ops/gemm.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = 768 };

/* Best of a few products; 0 when it cannot be measured. */
static double best_rate(const ndp_gemm *plan, const void *a, void *c, void *scratch) {
    double best = 0;
    for (int i = 0; i < 5; i++) {
        double start = ndp_now();
        ndp_gemm_run(plan, a, a, c, scratch);
        double rate = 2.0 * SIDE * SIDE * SIDE / (ndp_now() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

double ndp_measure_peak(int threads, ndp_dtype type) {
    const ndp_gemm *plan;
    ndp_dtype in = type == NDP_BF16 ? NDP_BF16 : NDP_F32;
    ndp_gemm_shape s = {.m = SIDE,
                        .n = SIDE,
                        .k = SIDE,
                        .lda = SIDE,
                        .ldb = SIDE,
                        .ldc = SIDE,
                        .trans_b = true,
                        .a = in,
                        .b = in,
                        .c = NDP_F32,
                        .threads = threads};
    if (ndp_gemm_plan(&s, &plan) != NDP_OK)
        return 0;
    size_t bytes = (size_t)SIDE * SIDE * 4, scratch = (ndp_gemm_scratch(plan) + 63) & ~(size_t)63;
    char *memory = aligned_alloc(64, 2 * bytes + scratch);
    if (!memory)
        return 0;
    memset(memory, 0, 2 * bytes);
    double rate = best_rate(plan, memory, memory + bytes, memory + 2 * bytes);
    free(memory);
    return rate;
}
