/* Real steps of a pipeline against the simulator: two ranks of one thread, a model of SmolLM2-135M's shape, 8
 * micro-batches. The simulator gets the mean time of each unit's phases in the run, and predicts the step to 10%;
 * zero_bubble needs at most 1.05 of the memory of 1f1b; both times are printed. */
#include "parallel/stage_cut.h"
#include "step/pipelines.h"

#include <math.h>

enum { RANKS = 2, MICRO_BATCHES = 8, ROWS = 64, STEPS = 4, MOST_UNITS = 40 };

static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 49152, \"num_hidden_layers\": 30, \"hidden_size\": 576, "
    "\"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"intermediate_size\": 1536, "
    "\"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0}";

/* The shortest step. */
typedef struct measured {
    pipeline_setup setup;
    double step;
    double units[RANKS][MOST_UNITS][NDP_PHASES]; /* means, by number of the unit */
    double *kernels[RANKS];                      /* by instruction */
} measured;

/* Of a RUN, at the first call of its list. */
static double measured_seconds(const void *user, const ndp_program *p, const ndp_instr *in, const ndp_call *call) {
    const measured *m = user;
    int rank = p->opts.step.mesh.rank;
    if (in->code == NDP_DO_RUN && call != ndp_program_list(p, in)->calls)
        return 0;
    if (in->code == NDP_DO_RUN)
        return m->units[rank][p->opts.model->units[in->unit].number][in->phase];
    return in->call.kind == NDP_CALL_KERNEL ? m->kernels[rank][in - p->instrs] : 0;
}

static void keep_means(measured *m, int rank, const ndp_program *p, const ndp_instr_time *times) {
    int runs[MOST_UNITS][NDP_PHASES] = {{0}};
    memset(m->units[rank], 0, sizeof m->units[rank]);
    for (ndp_walk w = NDP_WALK_START; ndp_program_next(p, NDP_ALL_ITERATIONS, &w);) {
        const ndp_instr *in = &p->instrs[w.at];
        double seconds = times[w.executed].end - times[w.executed].start;
        m->kernels[rank][w.at] = seconds;
        if (in->code != NDP_DO_RUN)
            continue;
        int number = p->opts.model->units[in->unit].number;
        m->units[rank][number][in->phase] += seconds;
        runs[number][in->phase]++;
    }
    for (int u = 0; u < MOST_UNITS; u++)
        for (int phase = 0; phase < NDP_PHASES; phase++)
            m->units[rank][u][phase] /= runs[u][phase] ? runs[u][phase] : 1;
}

static ndp_status run_steps(measured *m, ndp_engine *e, ndp_comm *world) {
    int rank = ndp_comm_rank(world);
    int64_t n;
    NDP_TRY(ndp_engine_record(e));
    for (int step = 0; step < STEPS; step++) {
        ndp_step_result r;
        double ends[2] = {0};
        NDP_TRY(ndp_barrier(world));
        NDP_TRY(ndp_engine_step(e, 1e-3, step, true, &r));
        const ndp_instr_time *times = ndp_engine_recorded(e, &n);
        ends[0] = -times[0].start, ends[1] = times[n - 1].end;
        ndp_work w;
        NDP_TRY(ndp_all_reduce_begin(world, ends, 2, NDP_F64, NDP_MAX, &w));
        NDP_TRY(ndp_wait(&w));
        bool keep = step > 0 && (step == 1 || ends[0] + ends[1] < m->step);
        NDP_TRY(ndp_barrier(world)); /* all have read m->step */
        if (keep)
            keep_means(m, rank, ndp_engine_program(e), times);
        if (keep && rank == 0)
            m->step = ends[0] + ends[1];
    }
    return NDP_OK;
}

static ndp_status real_rank(ndp_transport *t, void *arg) {
    measured *m = arg;
    ndp_engine *e;
    ndp_comm *world;
    ndp_exec exec = {.device = &ndp_device_cpu, .threads = 1};
    ndp_engine_opts o = pipeline_opts(&m->setup, ndp_transport_rank(t));
    o.transport = t;
    o.step.exec = &exec;
    NDP_TRY(ndp_engine_create(&o, &e));
    NDP_TRY(ndp_comm_create(t, (ndp_group){0, 1, RANKS, ndp_transport_rank(t)}, "test", &world));
    for (int i = 0; i < MICRO_BATCHES; i++)
        tiny_batch(e, i, i);
    ndp_status st = run_steps(m, e, world);
    ndp_comm_destroy(world);
    ndp_engine_destroy(e);
    return st;
}

/* The model in two stages, cut by costs. */
static void build(measured *m, ndp_pipeline_kind kind) {
    pipeline_setup *s = &m->setup;
    ndp_facts f;
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_unit_cost costs[MOST_UNITS];
    const ndp_rates rates = NDP_RATES_INIT;
    const ndp_price price = ndp_price_by_rates(&rates);
    CHECK_OK(ndp_facts_parse_text(config, "config", &f));
    CHECK_OK(ndp_pipeline_make(kind, RANKS, 1, MICRO_BATCHES, &s->table));
    CHECK_OK(ndp_decoder_build(&f, &mo, &s->model));
    s->first = calloc(RANKS + 1, sizeof *s->first);
    pipeline_take(s, 1.0);
    ndp_engine_opts o = pipeline_opts(s, 0);
    CHECK_OK(ndp_unit_costs(&s->model, &o.step.mesh, &o.step.parallel, false, &price, costs));
    CHECK_OK(ndp_stage_cut(&s->model, costs, RANKS, NULL, 0, s->first));
    pipeline_engines(s);
    for (int r = 0; r < RANKS; r++)
        m->kernels[r] = calloc((size_t)s->programs[r]->n, sizeof *m->kernels[r]);
}

/* Returns seconds of a step; *bytes: of the larger rank. */
static double check_schedule(ndp_pipeline_kind kind, double *bytes) {
    measured *m = calloc(1, sizeof *m);
    ndp_simulation t;
    ndp_step_costs costs = {.seconds = measured_seconds, .user = m};
    build(m, kind);
    CHECK_OK(ndp_local_world(RANKS, real_rank, m));
    CHECK_OK(ndp_simulate(m->setup.programs, RANKS, &costs, &t));
    *bytes = 0;
    for (int r = 0; r < RANKS; r++)
        *bytes = fmax(*bytes, (double)m->setup.programs[r]->bytes[NDP_REGION_ARENA]);
    double step = m->step;
    printf("  %-12s cut at unit %d; step measured %.3f s, simulated %.3f s (%+.1f%%), %.0f MiB\n",
           ndp_pipeline_table[kind].name, m->setup.first[1], step, t.makespan, 100 * (t.makespan / step - 1),
           *bytes / (1 << 20));
    assert_true(SANITIZED || fabs(t.makespan / step - 1) <= 0.10);
    for (int r = 0; r < RANKS; r++)
        free(m->kernels[r]);
    ndp_simulation_release(&t);
    pipeline_end(&m->setup);
    free(m);
    return step;
}

static void real_steps_are_predicted(void **state) {
    (void)state;
    double bytes[2], f1b = check_schedule(NDP_PIPELINE_1F1B, &bytes[0]);
    double zero = check_schedule(NDP_PIPELINE_ZERO_BUBBLE, &bytes[1]);
    printf("  zero_bubble / 1f1b: %.3f of the time, %.3f of the memory\n", zero / f1b, bytes[1] / bytes[0]);
    assert_true(bytes[1] <= 1.05 * bytes[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(real_steps_are_predicted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
