/* Collectives of memory that the host cannot access (step/staging.h): on a guard, every axis gives the bits of the
 * device that it wraps, since staging only moves bytes. Places in pinned memory overlap only where they may. */
#include "step/layouts.h"

#include "step/staging.h"

static void check_equal(const ndp_model *m, const result *a, const result *b, const char *text) {
    size_t bytes = (size_t)model_elements(m) * sizeof(double);
    if (memcmp(a->loss, b->loss, sizeof a->loss) != 0 || memcmp(a->norm, b->norm, sizeof a->norm) != 0 ||
        memcmp(a->grads, b->grads, bytes) != 0 || memcmp(a->weights, b->weights, bytes) != 0)
        fail_msg("%s: not the bits of the device on host memory; losses %.17g, %.17g", text, a->loss[2], b->loss[2]);
}

/* What is gathered in place on the device is gathered into buffers on the guard. */
static void check_way(const ndp_model *m, const ndp_device *device, const way *w) {
    char text[256];
    const ndp_device *guard = guarded(device);
    result plain = run(m, device, w), staged = run(m, guard, w);
    check_equal(m, &staged, &plain, text_of(w, text, sizeof text));
    release(&plain);
    release(&staged);
    unguard(guard);
}

/* dp_replicate, dp_shard, cp, sp, tp: gathers and reductions of buffers, rings, all_to_all, sums of rows. */
static void check_axes(ndp_dtype compute, const ndp_device *device) {
    static const int sizes[][5] = {{1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 1, 1, 1, 2}, {1, 1, 2, 1, 1},
                                   {1, 1, 1, 2, 1}, {1, 1, 2, 1, 2}, {1, 2, 1, 2, 1}};
    ndp_facts f = tiny_facts(compute == NDP_BF16);
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    for (int i = 0; i < NDP_COUNT(sizes); i++)
        for (int k = 0; k < 2; k++) {
            way w = {.samples = 4, .reshard = k, .recompute = k, .gathered = i % 2};
            w.parallel = (ndp_parallel){k, k ? NDP_CP_ALL_GATHER : NDP_CP_RING, true, 0, 0, 1.5};
            memcpy(w.size, sizes[i], sizeof w.size);
            check_way(&m, device, &w);
        }
    ndp_model_release(&m);
}

static void axes_fp32(void **state) { (void)state, check_axes(NDP_F32, &ndp_device_cpu); }
static void axes_bf16(void **state) { (void)state, check_axes(NDP_BF16, &ndp_device_cpu); }
static void axes_fp64(void **state) { (void)state, check_axes(NDP_F64, &ndp_device_ref); }

/* ---- pipelines ---- */

typedef struct stage_job {
    const ndp_model *model;
    const ndp_device *device;
    const ndp_pipeline *table;
    int first[8];
    result *out;
} stage_job;

static ndp_status run_stage(ndp_transport *t, void *arg) {
    const stage_job *j = arg;
    const ndp_exec exec = {.device = j->device, .threads = 1};
    ndp_engine_opts o = {.model = j->model,
                         .transport = t,
                         .step = {.exec = &exec,
                                  .parallel = NDP_PARALLEL_INIT,
                                  .accumulation = j->table->micro_batches,
                                  .reshard = true,
                                  .reduce_once = true,
                                  .stages = {j->table->stages, j->first, j->table->rank_of},
                                  .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = 1.0}},
                         .pipeline = j->table};
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_PP] = j->table->ranks, layout.size[NDP_DP_SHARD] = 2;
    ndp_mesh_facts facts = {.kv_heads = ndp_model_kv_heads(j->model), .ties.of = {{0, j->table->ranks - 1}}};
    NDP_TRY(ndp_mesh_init(&layout, ndp_transport_rank(t), &facts, &o.step.mesh));
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    ndp_status st = NDP_OK;
    for (int u = 0; u < 3 && st == NDP_OK; u++) {
        ndp_step_result r;
        for (int m = 0; m < o.step.accumulation; m++)
            tiny_batch(e, m, 2 * m + ndp_mesh_group(&o.step.mesh, NDP_GROUP_DATA).rank);
        st = ndp_engine_step(e, 1e-2, u, true, &r);
        if (ndp_transport_rank(t) == 0)
            j->out->loss[u] = r.loss, j->out->norm[u] = r.grad_norm;
    }
    ndp_engine_destroy(e);
    return st;
}

/* Messages between stages, a tied table, and dp_shard 2. Losses and norms of three updates. */
static void pipelines(void **state) {
    (void)state;
    static const ndp_pipeline_kind kinds[] = {NDP_PIPELINE_1F1B, NDP_PIPELINE_ZERO_BUBBLE};
    for (int i = 0; i < NDP_COUNT(kinds); i++) {
        ndp_pipeline table;
        ndp_model m;
        ndp_facts f = tiny_facts(true);
        ndp_model_opts mo = tiny_opts(NDP_F32, 12);
        result plain = {0}, staged = {0};
        CHECK_OK(ndp_pipeline_make(kinds[i], 2, 1, 4, &table));
        CHECK_OK(ndp_decoder_build(&f, &mo, &m));
        stage_job j = {&m, &ndp_device_cpu, &table, {0, 2, m.n_units}, &plain};
        CHECK_OK(ndp_local_world(4, run_stage, &j));
        j.device = guarded(&ndp_device_cpu), j.out = &staged;
        CHECK_OK(ndp_local_world(4, run_stage, &j));
        assert_true(plain.loss[2] > 0);
        assert_memory_equal(plain.loss, staged.loss, sizeof plain.loss);
        assert_memory_equal(plain.norm, staged.norm, sizeof plain.norm);
        unguard(j.device);
        ndp_model_release(&m);
        ndp_pipeline_release(&table);
    }
}

/* ---- the plan ---- */

/* Bytes that a collective's copies take: what it hands in, and its result. */
static size_t bytes_of(const ndp_call *c) {
    const ndp_view *in = &c->in[0].view, *out = &c->out[0].view;
    size_t given = (size_t)(in->rows * in->cols) * ndp_dtype_size(in->dtype);
    size_t made = (size_t)(out->rows * out->cols) * ndp_dtype_size(out->dtype);
    switch (c->op->collective) {
    case NDP_ALL_REDUCE:
    case NDP_ALL_GATHER:
    case NDP_RECV:
        return made;
    case NDP_SEND:
        return given;
    default:
        return given + made;
    }
}

typedef struct under_way {
    const ndp_call *begin;
    size_t at;
} under_way;

/* Follows the program: the place of a begin is inside the memory and apart from those of all begun before and not yet
 * waited for. Returns how many it began. */
static int check_places(const ndp_program *p) {
    enum { MOST = 64 };
    under_way open[MOST];
    int n = 0, begun = 0;
    ndp_comm_event m;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_ALL_ITERATIONS); ndp_program_comm_event(p, &c, &m);) {
        const ndp_instr *in = &p->instrs[m.instr];
        size_t row = m.call_index == NDP_NONE ? (size_t)m.work
                                              : p->staging.of_list[p->opts.model->units[in->unit].graph][in->phase] +
                                                    (size_t)(m.begin ? m.call_index : m.call->partner);
        size_t at = p->staging.places[row], end = at + bytes_of(m.call);
        int k = 0;
        while (k < n && (open[k].at != at || m.begin))
            k++;
        if (!m.begin) {
            assert_true(k < n);
            open[k] = open[--n];
            continue;
        }
        assert_true(end <= p->staging.bytes && at % 64 == 0 && n < MOST);
        for (int i = 0; i < n; i++)
            assert_true(end <= open[i].at || open[i].at + bytes_of(open[i].begin) <= at);
        open[n++] = (under_way){m.call, at};
        begun++;
    }
    assert_int_equal(n, 0);
    return begun;
}

/* On the device `guard` where it only plans, and on `cpu`. */
static void places_are_apart(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_BF16, ROWS);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    const ndp_device *guard = guarded(&ndp_device_cpu);
    ndp_device planned = *guard;
    planned.executes = false;
    const ndp_exec on[] = {{.device = &planned, .threads = 1}, {.device = &ndp_device_null, .threads = 1}};
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = layout.size[NDP_CP] = layout.size[NDP_SP] = layout.size[NDP_TP] = 2;
    for (int host = 0; host < 2; host++) {
        ndp_engine_opts o = {.model = &m,
                             .step = {.exec = &on[host], .accumulation = 3, .reshard = true, .node_ranks = 16}};
        o.step.parallel = (ndp_parallel)NDP_PARALLEL_INIT;
        o.step.optimizer = (ndp_optimizer_opts){.name = NDP_ADAMW, .max_norm = 1};
        CHECK_OK(ndp_mesh_init(&layout, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
        ndp_engine *e;
        ndp_budget budget;
        CHECK_OK(ndp_engine_create(&o, &e));
        const ndp_program *p = ndp_engine_program(e);
        ndp_program_budget(p, &budget);
        assert_int_equal(budget.staging, p->staging.bytes);
        assert_int_equal(p->bytes[NDP_REGION_SHARED + NDP_GROUP_SHARD] > 0, host);
        assert_int_equal(budget.staging > 0, !host);
        if (!host)
            assert_true(check_places(p) > 50);
        ndp_engine_destroy(e);
    }
    unguard(guard);
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(axes_fp32), cmocka_unit_test(axes_bf16),
                                       cmocka_unit_test(axes_fp64), cmocka_unit_test(pipelines),
                                       cmocka_unit_test(places_are_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
