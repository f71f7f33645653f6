/* The training step of the SmolLM2-135M shape from random weights, 1,024 tokens a step, beside its floor (step.h).
 * Prints the median of the ratios, the time and share of every part, and the planned memory. Then 2 ranks x 1 thread
 * with dp_shard 2 on the same global batch, beside one rank x 2 threads.
 *
 * Usage: bench_step [steps] [fp32|bf16|all] [optimizer]; with an optimizer, only the first measurement, with it. */
#include "step.h"

/* The same global batch of four samples of 256 tokens. */
static void compare_shards(ndp_dtype compute, int steps) {
    job one = {.compute = compute, .samples = 4, .length = 256, .threads = 2, .steps = steps};
    job two = {
        .compute = compute, .samples = 2, .length = 256, .shard = 2, .threads = 1, .steps = steps, .details = true};
    measure(&one);
    measure(&two);
    printf("  dp_shard 2: %.3f of the one-rank step\n", two.seconds / one.seconds);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 7;
    const char *which = argc > 2 ? argv[2] : "all";
    int named = 0;
    while (argc > 3 && named < NDP_OPTIMIZER_COUNT && strcmp(ndp_optimizers[named]->name, argv[3]) != 0)
        named++;
    if (named == NDP_OPTIMIZER_COUNT)
        return fprintf(stderr, "no optimizer is called %s\n", argv[3]), 2;
    bench_begin(argv);
    if (steps < 1 || steps > MOST)
        return fprintf(stderr, "steps: 1 to %d\n", MOST), 2;
    for (int type = 0; type < 2; type++) {
        ndp_dtype t = type ? NDP_BF16 : NDP_F32;
        if (strcmp(which, "all") != 0 && strcmp(which, ndp_dtype_name(t)) != 0)
            continue;
        measure(&(job){.compute = t,
                       .samples = 1,
                       .length = 1024,
                       .threads = 2,
                       .steps = steps,
                       .details = true,
                       .optimizer = (ndp_optimizer_name)named});
        if (argc > 3)
            continue;
        measure(&(job){.compute = t, .samples = 4, .length = 256, .threads = 2, .steps = steps, .details = true});
        compare_shards(t, steps);
    }
    return 0;
}
