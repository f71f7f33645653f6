/* Steps of a shape, SmolLM2-135M's if no other is given, from random weights on a layout, timed beside their floor: 6 x
 * the parameters that a token meets x tokens at the peak rate of this machine, measured in the same run before and
 * after every step (a loop of nothing but multiply-adds in registers; in bf16 on AMX tiles where the processor has
 * them). */
#ifndef BENCH_STEP_H
#define BENCH_STEP_H

#include "clock.h"
#include "model/block.h"
#include "model/decoder.h"
#include "step/engine.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static inline void must(ndp_status st) {
    if (st != NDP_OK) {
        fprintf(stderr, "%s (%s)\n", ndp_error_message(), ndp_error_trail());
        exit(1);
    }
}

static inline double median(const double *x, int n) {
    double s[MOST] = {0};
    for (int i = 0; i < n && i < MOST; i++) {
        int k = i;
        for (; k > 0 && s[k - 1] > x[i]; k--)
            s[k] = s[k - 1];
        s[k] = x[i];
    }
    return s[n / 2];
}

/* SmolLM2-135M; or, where an axis must divide the heads, with 8 heads of 4 kv heads in place of 9 and 3. */
static ndp_facts smollm2(bool even_heads) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 49152, \"num_hidden_layers\": 30, \"hidden_size\": 576, "
        "\"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"head_dim\": 64, \"intermediate_size\": 1536, "
        "\"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, \"initializer_range\": 0.041666666666666664, "
        "\"rope_theta\": 100000.0, \"tie_word_embeddings\": true}";
    ndp_facts f;
    must(ndp_facts_parse_text(config, "SmolLM2-135M", &f));
    if (even_heads)
        f.heads = 8, f.kv_heads = 4;
    return f;
}

/* The parameters that a token is multiplied with: of a mixture's experts those that it chooses, and of tables of tokens
 * the head's. */
static int64_t met_parameters(const ndp_facts *f) {
    int64_t n = ndp_facts_parameters(f), expert = 3 * (int64_t)f->hidden * f->expert_ffn;
    for (int i = 0; i < f->layers; i++)
        if (f->kinds[f->kind_of[i]].mlp == &ndp_mlp_experts)
            n -= (f->experts - f->choices) * expert;
    return f->tied ? n : n - f->vocab * f->hidden;
}

static ndp_facts shape_facts(const char *config, bool even_heads) {
    ndp_facts f;
    if (!config)
        return smollm2(even_heads);
    must(ndp_facts_parse_text(config, "config.json", &f));
    return f;
}

typedef struct job {
    const char *config; /* the text of another config.json; NULL: SmolLM2-135M */
    ndp_dtype compute;
    int samples, length;                  /* B, T of a micro-batch */
    int replicate, shard, cp, sp, tp, ep; /* 0: 1 */
    int threads, steps;
    bool even_heads, details, quiet;
    bool all_gather, whole_rows; /* cp without its ring; tp without sequence parallelism */
    bool balanced;               /* mixtures are given choices, equally many of each expert, */
    int chosen;                  /* of the first so many; 0: all */
    double capacity;             /* moe.capacity_factor; 0: full */
    /* results: medians; of rank 0: share of the step in begins and waits; of the communications' time that others'
     * work hid */
    double seconds, ratio, communicating, hidden;
    double busy;   /* as ratio, of the time that cores worked: other programs change it less */
    double worked; /* seconds of the processor, of all ranks */
    size_t planned;
    int64_t parameters; /* that a token meets */
    ndp_optimizer_name optimizer;
} job;

static void draw(ndp_engine *e) {
    const ndp_model *m = ndp_engine_model(e);
    for (int b = 0; b < m->n_buffers; b++) {
        const ndp_shard *s = ndp_engine_shard(e, b);
        ndp_run p;
        for (int64_t c = 0; ndp_segments_run(&m->buffers[b].segments, s->shards, s->index, &c, &p);) {
            float *values = malloc((size_t)p.count * sizeof *values);
            ndp_decoder_random(ndp_decoder_facts(m), 42, p.segment, p.tensor_first, p.count, values);
            must(ndp_engine_write(e, NDP_OWNED_MASTER, b, p.slice_first, p.count, p.stride, values));
            free(values);
        }
    }
    must(ndp_engine_publish(e));
}

static void fill(ndp_engine *e, const job *j, const ndp_mixtures *mixtures, int64_t vocab, int64_t update) {
    int32_t n = j->samples * j->length, *a = malloc(4 * (size_t)n * sizeof *a);
    for (int32_t t = 0; t < n; t++) {
        uint64_t x = (uint64_t)(t + update * 7919 + 13) * 2654435761u;
        a[t] = (int32_t)(x % (uint64_t)vocab), a[n + t] = (int32_t)((x >> 7) % (uint64_t)vocab);
        a[2 * n + t] = t % j->length, a[3 * n + t] = t / j->length * j->length;
    }
    ndp_micro_batch b = ndp_micro_batch_of(a, n);
    int32_t of_all = j->balanced ? mixtures->n * n * mixtures->choices : 0,
            *choices = malloc(((size_t)of_all + 1) * sizeof *choices);
    for (int32_t i = 0; i < of_all; i++)
        choices[i] = i % (j->chosen ? j->chosen : mixtures->experts);
    b.choices = j->balanced ? choices : NULL;
    must(ndp_engine_load(e, 0, &b));
    free(choices);
    free(a);
}

static ndp_layout layout_of(const job *j) {
    ndp_layout l = NDP_LAYOUT_ONE;
    const int sizes[] = {j->replicate, j->shard, j->cp, j->sp, j->tp, j->ep};
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        l.size[NDP_DP_REPLICATE + i] = sizes[i] ? sizes[i] : 1;
    return l;
}

static int world_of(const job *j) {
    ndp_layout l = layout_of(j);
    int world = 1;
    for (int i = 0; i < NDP_AXES; i++)
        world *= l.size[i];
    return world;
}

static void print_parts(const ndp_profile *p) {
    printf("    by part:");
    for (int i = 0; i < NDP_PHASES; i++)
        if (p->phase[i] > 0)
            printf("  %s %.1f%%", ndp_phase_name((ndp_phase)i), 100 * p->phase[i] / p->total);
    printf("  begin %.1f%%  wait %.1f%%  norm and update %.1f%%\n    by op: ", 100 * p->begin / p->total,
           100 * p->wait / p->total, 100 * p->own / p->total);
    for (int i = 0; i < NDP_OP_COUNT; i++)
        if (p->op[i] > 0.0005 * p->total)
            printf("  %s %.1f%%", ndp_all_ops[i]->name, 100 * p->op[i] / p->total);
    printf("\n");
}

static void print_step(const job *j, const ndp_profile *p, double tokens, double floor, double loss) {
    char text[16];
    int ranks = world_of(j);
    printf("%s B=%d T=%d, %d rank%s x %d thread%s: %.0f ms, %.0f tokens/s, %.2f x floor, %.2f in time of cores (median "
           "of %d; "
           "floor at the best peak %.0f ms), %s planned a rank, loss %.4f\n",
           ndp_dtype_name(j->compute), j->samples, j->length, ranks, ranks > 1 ? "s" : "", j->threads,
           j->threads > 1 ? "s" : "", 1e3 * j->seconds, tokens / j->seconds, j->ratio, j->busy, j->steps, 1e3 * floor,
           ndp_human_bytes((double)j->planned, text), loss);
    if (j->compute == NDP_BF16) /* what a processor with dpbf16ps and no tiles could do at best */
        printf("    %.2f x the floor at twice the fp32 rate\n",
               j->seconds / (6.0 * tokens * (double)j->parameters / (2 * ranks * bench_peak(false, j->threads))));
    if (j->details)
        print_parts(p);
}

static ndp_status body(ndp_transport *t, void *arg) {
    job *j = arg;
    int rank = ndp_transport_rank(t);
    ndp_facts f = shape_facts(j->config, j->even_heads);
    ndp_model m;
    ndp_model_opts mo = {.mode = NDP_MODEL_TRAIN,
                         .rows = (int64_t)j->samples * j->length,
                         .positions = j->length,
                         .compute = j->compute,
                         .master = NDP_F32,
                         .routes = j->balanced ? NDP_ROUTES_GIVEN : 0};
    if (rank == 0)
        j->parameters = met_parameters(&f);
    NDP_TRY(ndp_decoder_build(&f, &mo, &m));
    ndp_layout layout = layout_of(j);
    int ranks = world_of(j);
    const ndp_exec exec = {.device = &ndp_device_cpu, .threads = j->threads};
    ndp_engine_opts o = {.model = &m,
                         .transport = t,
                         .step = {.exec = &exec,
                                  .accumulation = 1,
                                  .parallel = {!j->whole_rows, j->all_gather ? NDP_CP_ALL_GATHER : NDP_CP_RING, true,
                                               .capacity_factor = j->capacity},
                                  .reshard = true,
                                  .optimizer = {.name = j->optimizer,
                                                .betas = {0.9, 0.95},
                                                .eps = 1e-8,
                                                .momentum = 0.95,
                                                .weight_decay = 0.1,
                                                .max_norm = 1.0}}};
    NDP_TRY(ndp_mesh_init(&layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(&m)}, &o.step.mesh));
    omp_set_num_threads(j->threads);
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    draw(e);
    int data = ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA).count;
    double tokens = (double)j->samples * j->length * data;
    double floor_flops = 6.0 * (double)met_parameters(&f) * tokens;
    double seconds[MOST], ratios[MOST], busy[MOST], work[MOST], best_peak = 0;
    ndp_step_result r;
    for (int i = -2; i < j->steps; i++) {
        fill(e, j, &m.inputs->mixtures, f.vocab, (i + 2) * data + ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA).rank);
        double before = bench_peak(j->compute == NDP_BF16, j->threads);
        if (i == 0)
            NDP_TRY(ndp_engine_profile_reset(e, true));
        double start = ndp_now(), busy_start = ndp_clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
        NDP_TRY(ndp_engine_step(e, 1e-4, i + 2, true, &r));
        double took = ndp_now() - start, worked = ndp_clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - busy_start;
        double after = bench_peak(j->compute == NDP_BF16, j->threads);
        best_peak = before > best_peak ? before : best_peak;
        best_peak = after > best_peak ? after : best_peak;
        if (i >= 0)
            seconds[i] = took, work[i] = worked,
            ratios[i] = took / (floor_flops / (ranks * (before > after ? before : after))),
            busy[i] = ratios[i] * worked / (took * ranks * j->threads);
    }
    if (rank == 0) {
        ndp_budget budget;
        const ndp_profile *p = ndp_engine_profile(e);
        ndp_program_budget(ndp_engine_program(e), &budget);
        double exposed = p->begin + p->wait;
        j->seconds = median(seconds, j->steps), j->ratio = median(ratios, j->steps), j->busy = median(busy, j->steps),
        j->worked = median(work, j->steps), j->planned = budget.total;
        j->communicating = exposed / p->total;
        j->hidden = p->under_way > 0 ? 1 - exposed / p->under_way : 0;
        if (!j->quiet)
            print_step(j, p, tokens, floor_flops / (best_peak * ranks), r.loss);
    }
    ndp_engine_destroy(e);
    ndp_model_release(&m);
    return NDP_OK;
}

static inline void measure(job *j) { must(ndp_local_world(world_of(j), body, j)); }

#endif
