/* What each axis costs: the SmolLM2-135M shape on 2 ranks x 1 thread beside one rank x 2 threads, same global batch.
 * The tensor and sequence axes want heads that 2 divides: they, and the one rank beside them, have 8 heads of 4 kv
 * heads. For each: the step, beside the floor at the rate that the machine had then, and relative to one rank's; the
 * share of rank 0's step in communication (what it begins and waits for), and how much of the time that its
 * communications were under way was hidden behind work.
 *
 * Usage: bench_axes [steps] [fp32|bf16|all] [axis, the beginning of its name] */
#include "step.h"

static void compare(const char *name, const char *axis, job j, const job *one) {
    char text[16];
    if (strncmp(name, axis, strlen(axis)) != 0)
        return;
    j.compute = one->compute, j.length = one->length, j.steps = one->steps;
    j.samples = one->samples / ((j.replicate ? j.replicate : 1) * (j.shard ? j.shard : 1));
    j.even_heads = one->even_heads, j.threads = 1, j.quiet = true;
    measure(&j);
    printf("  %-24s %6.0f ms, %.2f x floor  %.3f of one rank  communication %4.1f%%  hidden %3.0f%%  %s a rank\n", name,
           1e3 * j.seconds, j.ratio, j.seconds / one->seconds, 100 * j.communicating, 100 * j.hidden,
           ndp_human_bytes((double)j.planned, text));
}

static void batch(ndp_dtype t, int samples, int length, int steps, const char *axis) {
    for (int even = 0; even < 2; even++) {
        job one = {.compute = t,
                   .samples = samples,
                   .length = length,
                   .threads = 2,
                   .steps = steps,
                   .even_heads = even,
                   .quiet = true};
        measure(&one);
        printf("%s B=%d T=%d, %s: one rank %.0f ms, %.2f x floor\n", ndp_dtype_name(t), samples, length,
               even ? "8 heads, 4 kv heads" : "9 heads, 3 kv heads", 1e3 * one.seconds, one.ratio);
        if (!even && samples > 1)
            compare("dp_replicate 2", axis, (job){.replicate = 2}, &one);
        if (!even && samples > 1)
            compare("dp_shard 2", axis, (job){.shard = 2}, &one);
        if (!even)
            compare("cp 2, ring", axis, (job){.cp = 2}, &one);
        if (!even)
            compare("cp 2, all_gather", axis, (job){.cp = 2, .all_gather = true}, &one);
        if (even)
            compare("sp 2", axis, (job){.sp = 2}, &one);
        if (even)
            compare("tp 2", axis, (job){.tp = 2}, &one);
        if (even)
            compare("tp 2, all_reduce", axis, (job){.tp = 2, .whole_rows = true}, &one);
    }
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 5;
    const char *which = argc > 2 ? argv[2] : "all", *axis = argc > 3 ? argv[3] : "";
    bench_begin(argv);
    if (steps < 1 || steps > MOST)
        return fprintf(stderr, "steps: 1 to %d\n", MOST), 2;
    for (int type = 0; type < 2; type++) {
        ndp_dtype t = type ? NDP_BF16 : NDP_F32;
        if (strcmp(which, "all") != 0 && strcmp(which, ndp_dtype_name(t)) != 0)
            continue;
        batch(t, 1, 1024, steps, axis);
        batch(t, 4, 256, steps, axis);
    }
    return 0;
}
