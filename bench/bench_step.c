/* The training step of the SmolLM2-135M shape from random weights, 1,024 tokens a step, beside its floor: 6 x
 * parameters x tokens at the peak rate of this machine, measured in the same run before and after every step (a loop of
 * nothing but multiply-adds in registers; in bf16 on AMX tiles where the processor has them). Prints the median of the
 * ratios, the time and share of every part, and the planned and resident memory. Then 2 ranks x 1 thread with dp_shard
 * 2 on the same global batch, beside one rank x 2 threads.
 *
 * Usage: bench_step [steps] [fp32|bf16|all] */
#include "peak.h"
#include "step/engine.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static void must(ndp_status st) {
    if (st != NDP_OK) {
        fprintf(stderr, "%s (%s)\n", ndp_error_message(), ndp_error_trail());
        exit(1);
    }
}

static double median(const double *x, int n) {
    double s[MOST];
    memcpy(s, x, (size_t)n * sizeof *s);
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && s[k - 1] > s[k]; k--) {
            double t = s[k];
            s[k] = s[k - 1], s[k - 1] = t;
        }
    return s[n / 2];
}

static ndp_facts smollm2(void) {
    return (ndp_facts){.family = "llama",
                       .vocab = 49152,
                       .layers = 30,
                       .hidden = 576,
                       .heads = 9,
                       .kv_heads = 3,
                       .head_dim = 64,
                       .ffn = 1536,
                       .max_positions = 8192,
                       .norm_eps = 1e-5,
                       .init_std = 0.041666666666666664,
                       .rope = {.theta = 100000.0},
                       .tied = true,
                       .bos = -1,
                       .eos = -1};
}

typedef struct job {
    ndp_dtype compute;
    int samples, length; /* B, T of a micro-batch */
    int ranks, threads, accumulation, steps;
    double seconds, ratio, share_wait; /* results: medians */
    bool details;
} job;

static void draw(ndp_engine *e, const ndp_model *m) {
    for (int b = 0; b < m->n_buffers; b++) {
        const ndp_shard *s = ndp_engine_shard(e, b);
        float *w = ndp_engine_slice(e, NDP_OWNED_MASTER, b);
        ndp_piece p;
        for (int c = 0; ndp_segments_piece(&m->buffers[b].segments, s->shards, s->index, &c, &p);)
            ndp_model_random(&m->facts, 42, p.segment, p.tensor_first, p.count, w + p.slice_first);
    }
    ndp_engine_publish(e);
}

static void fill(ndp_engine *e, const job *j, int64_t update) {
    for (int m = 0; m < j->accumulation; m++) {
        ndp_batch b = ndp_engine_batch(e, m);
        for (int32_t t = 0; t < j->samples * j->length; t++) {
            uint64_t x = (uint64_t)(t + update * 7919 + 13) * 2654435761u;
            b.tokens[t] = (int32_t)(x % 49152), b.labels[t] = (int32_t)((x >> 7) % 49152);
            b.q_pos[t] = b.k_pos[t] = t;
            b.rope_pos[t] = t % j->length, b.q_low[t] = t / j->length * j->length;
        }
    }
}

static void print_parts(const ndp_profile *p) {
    printf("    by part:");
    for (int i = 0; i < NDP_PHASES; i++)
        if (p->phase[i] > 0)
            printf("  %s %.1f%%", ndp_phase_name((ndp_phase)i), 100 * p->phase[i] / p->total);
    printf("  begin %.1f%%  wait %.1f%%  norm %.1f%%  update %.1f%%\n    by op: ", 100 * p->begin / p->total,
           100 * p->wait / p->total, 100 * p->norm / p->total, 100 * p->update / p->total);
    for (int i = 0; i < NDP_OP_COUNT; i++)
        if (p->op[i] > 0.0005 * p->total)
            printf("  %s %.1f%%", ndp_op_name(i), 100 * p->op[i] / p->total);
    printf("\n");
}

static ndp_status body(ndp_transport *t, void *arg) {
    job *j = arg;
    int rank = ndp_transport_rank(t);
    ndp_facts f = smollm2();
    ndp_model m;
    ndp_model_opts mo = {.mode = NDP_MODEL_TRAIN,
                         .rows = (int64_t)j->samples * j->length,
                         .positions = j->length,
                         .compute = j->compute,
                         .master = NDP_F32};
    NDP_TRY(ndp_model_build(&f, &mo, &m));
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = j->ranks;
    ndp_engine_opts o = {
        .model = &m,
        .transport = t,
        .device = &ndp_device_cpu,
        .threads = j->threads,
        .accumulation = j->accumulation,
        .reshard = true,
        .optimizer = {
            .kind = NDP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}};
    NDP_TRY(ndp_mesh_init(&layout, rank, &o.mesh));
    omp_set_num_threads(j->threads);
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    draw(e, &m);
    double floor_flops = 6.0 * (double)ndp_facts_parameters(&f) * j->samples * j->length * j->accumulation * j->ranks;
    double seconds[MOST], ratios[MOST], best_peak = 0;
    ndp_step_result r;
    for (int i = -2; i < j->steps; i++) {
        fill(e, j, (i + 2) * j->ranks + rank);
        double before = peak_rate(j->compute, j->threads, 8);
        if (i == 0)
            ndp_engine_profile_reset(e, true);
        double start = ndp_now();
        NDP_TRY(ndp_engine_step(e, 1e-4, i + 2, true, &r));
        double took = ndp_now() - start, after = peak_rate(j->compute, j->threads, 8);
        best_peak = before > best_peak ? before : best_peak;
        best_peak = after > best_peak ? after : best_peak;
        if (i >= 0)
            seconds[i] = took, ratios[i] = took / (floor_flops / (j->ranks * (before > after ? before : after)));
    }
    if (rank == 0) {
        char text[16];
        ndp_budget budget;
        ndp_program_budget(ndp_engine_program(e), &budget);
        j->seconds = median(seconds, j->steps), j->ratio = median(ratios, j->steps);
        double tokens = (double)j->samples * j->length * j->accumulation * j->ranks;
        printf("%s B=%d T=%d, %d rank%s x %d thread%s: %.0f ms, %.0f tokens/s, %.2f x floor (median of %d; best peak "
               "%.0f GFLOP/s, floor "
               "there %.0f ms), %s planned a rank, loss %.4f\n",
               ndp_dtype_name(j->compute), j->samples, j->length, j->ranks, j->ranks > 1 ? "s" : "", j->threads,
               j->threads > 1 ? "s" : "", 1e3 * j->seconds, tokens / j->seconds, j->ratio, j->steps,
               best_peak * j->ranks * 1e-9, 1e3 * floor_flops / (best_peak * j->ranks),
               ndp_human_bytes((double)budget.total, text), r.loss);
        if (j->compute == NDP_BF16) /* what a processor with dpbf16ps and no tiles could do at best */
            printf("    %.2f x the floor at twice the fp32 rate\n",
                   j->seconds / (floor_flops / (2 * j->ranks * peak_rate(NDP_F32, j->threads, 8))));
        if (j->details)
            print_parts(ndp_engine_profile(e));
    }
    ndp_engine_destroy(e);
    ndp_model_release(&m);
    return NDP_OK;
}

static void compare(ndp_dtype compute, int samples, int length, int steps) {
    job one = {.compute = compute,
               .samples = samples,
               .length = length,
               .ranks = 1,
               .threads = 2,
               .accumulation = 1,
               .steps = steps,
               .details = true};
    must(ndp_local_world(1, body, &one));
}

/* The same global batch of two samples of 512 tokens: one rank takes them as two micro-batches' worth at once. */
static void compare_shards(ndp_dtype compute, int steps) {
    job one = {
        .compute = compute, .samples = 4, .length = 256, .ranks = 1, .threads = 2, .accumulation = 1, .steps = steps};
    job two = {.compute = compute,
               .samples = 2,
               .length = 256,
               .ranks = 2,
               .threads = 1,
               .accumulation = 1,
               .steps = steps,
               .details = true};
    must(ndp_local_world(1, body, &one));
    must(ndp_local_world(2, body, &two));
    printf("  dp_shard 2: %.3f of the one-rank step\n", two.seconds / one.seconds);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 7;
    const char *which = argc > 2 ? argv[2] : "all";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (steps < 1 || steps > MOST)
        return fprintf(stderr, "steps: 1 to %d\n", MOST), 2;
    for (int type = 0; type < 2; type++) {
        ndp_dtype t = type ? NDP_BF16 : NDP_F32;
        if (strcmp(which, "all") != 0 && strcmp(which, ndp_dtype_name(t)) != 0)
            continue;
        compare(t, 1, 1024, steps);
        compare(t, 4, 256, steps);
        compare_shards(t, steps);
    }
    return 0;
}
