/* What the placement check costs: seconds of the processor for Llama-3.1-405B on 16,384 ranks, beside those that it
 * takes to build the programs that are checked, in the same run: one of each role (every stage; of other axes the first
 * and the last rank). Alike programs share one. The fastest of several times.
 *
 * Usage: bench_placement [times] */
#include "clock.h"
#include "model/decoder.h"
#include "placement/placement.h"
#include "result.h"
#include "step/engine.h"

#include <string.h>

static void must(ndp_status st) {
    if (st != NDP_OK) {
        fprintf(stderr, "%s\n", ndp_error_message());
        exit(1);
    }
}

enum { MOST_PROGRAMS = 1024, ROWS = 8192 };

typedef struct job {
    int pp, shard, tp, micro_batches, chunks;
    ndp_pipeline_kind kind;
} job;

typedef struct setup {
    ndp_model model;
    ndp_pipeline table;
    int first[2 * 16 + 1];
    ndp_layout layout;
    ndp_engine_opts opts;
    ndp_engine *engines[MOST_PROGRAMS];
    ndp_program shared[MOST_PROGRAMS];
    const ndp_program *programs[MOST_PROGRAMS];
    int n;
} setup;

static const ndp_exec exec = {.device = &ndp_device_null, .threads = 1};

static void llama_405b(ndp_model *out) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"num_hidden_layers\": 126, \"hidden_size\": 16384, "
        "\"num_attention_heads\": 128, \"num_key_value_heads\": 8, \"head_dim\": 128, \"intermediate_size\": 53248, "
        "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0}";
    static ndp_facts f;
    ndp_model_opts mo = {
        .mode = NDP_MODEL_TRAIN, .rows = ROWS, .positions = ROWS, .compute = NDP_BF16, .master = NDP_F32};
    must(ndp_facts_parse_text(config, "Llama-3.1-405B", &f));
    must(ndp_decoder_build(&f, &mo, out));
}

static void begin(const job *j, setup *s) {
    *s = (setup){.layout = NDP_LAYOUT_ONE};
    llama_405b(&s->model);
    s->layout.size[NDP_PP] = j->pp, s->layout.size[NDP_DP_SHARD] = j->shard, s->layout.size[NDP_TP] = j->tp;
    s->opts = (ndp_engine_opts){
        .model = &s->model,
        .step = {
            .exec = &exec,
            .parallel = NDP_PARALLEL_INIT,
            .accumulation = j->micro_batches,
            .node_ranks = 8,
            .reshard = j->pp == 1, /* as a job has it where nothing is said */
            .recompute = true,
            .reduce_once = j->pp > 1,
            .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}}};
    if (j->pp == 1)
        return;
    must(ndp_pipeline_make(j->kind, j->pp, j->chunks, j->micro_batches, &s->table));
    for (int i = 1; i < s->table.stages; i++)
        s->first[i] = 1 + i * (s->model.n_units - 2) / s->table.stages;
    s->first[s->table.stages] = s->model.n_units;
    s->opts.step.stages = (ndp_stages){s->table.stages, s->first, s->table.rank_of};
    s->opts.pipeline = &s->table;
}

static void end(setup *s) {
    for (int i = 0; i < s->n; i++)
        ndp_engine_destroy(s->engines[i]);
    ndp_pipeline_release(&s->table);
    ndp_model_release(&s->model);
}

/* The program of a rank, or an earlier one that is the same. */
static void add(setup *s, int rank) {
    ndp_engine_opts o = s->opts;
    ndp_engine *e;
    int same = 0, i = s->n++;
    must(ndp_mesh_init(&s->layout, rank, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(&s->model)}, &o.step.mesh));
    must(ndp_engine_create(&o, &e));
    s->programs[i] = ndp_engine_program(e);
    while (same < i && !(s->engines[same] && ndp_program_same(s->programs[same], s->programs[i])))
        same++;
    if (same == i) {
        s->engines[i] = e;
        return;
    }
    s->shared[i] = *s->programs[same];
    s->shared[i].opts.step.mesh = s->programs[i]->opts.step.mesh;
    s->programs[i] = &s->shared[i];
    ndp_engine_destroy(e);
}

static void add_roles(const job *j, setup *s) {
    for (int pp = 0; pp < j->pp; pp++)
        for (int corner = 0; corner < 4; corner++) {
            int coord[NDP_AXES] = {
                [NDP_PP] = pp, [NDP_DP_SHARD] = corner & 1 ? j->shard - 1 : 0, [NDP_TP] = corner & 2 ? j->tp - 1 : 0};
            add(s, ndp_mesh_rank_of(&s->layout, coord));
        }
}

static void measure(const job *j, int times) {
    double build = 1e30, check = 1e30, start;
    static setup s;
    int n = 0;
    for (int i = 0; i < times; i++) {
        start = ndp_thread_now();
        begin(j, &s);
        add_roles(j, &s);
        double took = ndp_thread_now() - start;
        build = took < build ? took : build;
        const ndp_placement_opts o = {s.programs, s.n, &ndp_engine_claims};
        start = ndp_thread_now();
        must(ndp_placement_check(&o, NULL));
        took = ndp_thread_now() - start;
        check = took < check ? took : check;
        n = s.n;
        end(&s);
    }
    printf("pp %2d x dp_shard %4d x tp %d, %-11s v %d, %3d micro-batches: %2d programs built in %5.2f s, checked in "
           "%5.3f s, %.2f of it\n",
           j->pp, j->shard, j->tp, j->pp > 1 ? ndp_pipeline_table[j->kind].name : "", j->chunks, j->micro_batches, n,
           build, check, check / build);
    char what[96];
    snprintf(what, sizeof what, "check of pp %d x dp_shard %d x tp %d, %d virtual stages, %d micro-batches", j->pp,
             j->shard, j->tp, j->chunks, j->micro_batches);
    bench_result(what, check, "s of a core", 0);
}

int main(int argc, char **argv) {
    static const int micro_batches[] = {16, 64, 512};
    int times = argc > 1 ? atoi(argv[1]) : 3;
    bench_begin(argv);
    for (int k = 0; k < 3; k++)
        measure(&(job){16, 128, 8, micro_batches[k], 1, NDP_PIPELINE_1F1B}, times);
    for (int k = 0; k < 3; k++)
        measure(&(job){16, 128, 8, micro_batches[k], 2, NDP_PIPELINE_INTERLEAVED}, times);
    for (int k = 0; k < 3; k++)
        measure(&(job){1, 2048, 8, k ? micro_batches[k - 1] : 1, 1, NDP_PIPELINE_1F1B}, times);
    return 0;
}
