/* Layout invariance of the engine on `local`: every dp_replicate x dp_shard gives the gradients, norm and loss of one
 * rank; after updates the weights too. The programs of all ranks pass the checker. */
#include "check.h"
#include "step/tiny.h"
#include <math.h>

enum { ROWS = 12, SAMPLES = 12 }; /* micro-batches of an update, over all ranks */

typedef struct result {
    double loss[3], norm[3];
    double *grads, *weights; /* whole, all buffers one behind the other */
} result;

typedef struct job {
    const ndp_model *model;
    const ndp_device *device;
    ndp_layout layout;
    bool reshard, recompute;
    int node_ranks;
    result *out;
} job;

static int64_t model_elements(const ndp_model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_buffers; i++)
        n += m->buffers[i].segments.elements;
    return n;
}

/* Copies this rank's pieces to their places in a whole array. */
static void collect(const job *j, ndp_engine *e, ndp_owned_kind kind, double *whole) {
    int64_t base = 0;
    for (int i = 0; i < j->model->n_buffers; i++) {
        const ndp_segments *segments = &j->model->buffers[i].segments;
        const ndp_shard *s = ndp_engine_shard(e, i);
        const char *slice = ndp_engine_slice(e, kind, i);
        ndp_piece p;
        for (int c = 0; ndp_segments_piece(segments, s->shards, s->index, &c, &p);)
            ndp_convert(slice + (size_t)p.slice_first * ndp_dtype_size(j->model->opts.master), j->model->opts.master,
                        whole + base + p.segment->offset + p.tensor_first, NDP_F64, p.count);
        base += segments->elements;
    }
}

static ndp_status body(ndp_transport *t, void *arg) {
    const job *j = arg;
    int data = j->layout.size[NDP_DP_REPLICATE] * j->layout.size[NDP_DP_SHARD], rank = ndp_transport_rank(t);
    ndp_engine_opts o = {
        .model = j->model,
        .transport = t,
        .device = j->device,
        .threads = 1,
        .accumulation = SAMPLES / data,
        .reshard = j->reshard,
        .recompute = j->recompute,
        .node_ranks = j->node_ranks,
        .optimizer = {
            .kind = NDP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}};
    NDP_TRY(ndp_mesh_init(&j->layout, rank, &o.mesh));
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e, j->model);
    ndp_status st = NDP_OK;
    for (int u = 0; u < 3 && st == NDP_OK; u++) {
        for (int m = 0; m < o.accumulation; m++)
            tiny_batch(ndp_engine_batch(e, m), j->model, m * data + rank);
        ndp_step_result r;
        st = ndp_engine_step(e, 1e-2, u, true, &r);
        if (rank == 0)
            j->out->loss[u] = r.loss, j->out->norm[u] = r.grad_norm;
        if (u == 0)
            collect(j, e, NDP_OWNED_GRAD, j->out->grads);
    }
    collect(j, e, NDP_OWNED_MASTER, j->out->weights);
    ndp_engine_destroy(e);
    return st;
}

static result run(const ndp_model *m, const ndp_device *device, int replicate, int shard, bool reshard, bool recompute,
                  int node_ranks) {
    int64_t n = model_elements(m);
    result r = {.grads = calloc((size_t)n, sizeof(double)), .weights = calloc((size_t)n, sizeof(double))};
    job j = {m, device, NDP_LAYOUT_ONE, reshard, recompute, node_ranks, &r};
    j.layout.size[NDP_DP_REPLICATE] = replicate, j.layout.size[NDP_DP_SHARD] = shard;
    if (ndp_local_world(replicate * shard, body, &j) != NDP_OK)
        fail_msg("%d x %d: %s", replicate, shard, ndp_error_message());
    return r;
}

static double distance(const double *a, const double *b, int64_t n) {
    double d = 0, norm = 0;
    for (int64_t i = 0; i < n; i++)
        d += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    return sqrt(d / norm);
}

static void check_layouts(ndp_dtype compute, const ndp_device *device, double bound) {
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(compute, ROWS);
    ndp_model m;
    assert_int_equal(ndp_model_build(&f, &mo, &m), NDP_OK);
    result one = run(&m, device, 1, 1, true, false, 1);
    static const int layouts[][2] = {{1, 2}, {2, 1}, {2, 2}, {1, 3}, {4, 1}, {1, 4}, {3, 2}};
    for (int i = 0; i < NDP_COUNT(layouts); i++)
        for (int way = 0; way < 8; way++) {
            int world = layouts[i][0] * layouts[i][1];
            result r = run(&m, device, layouts[i][0], layouts[i][1], way & 1, way & 2, way & 4 ? 1 : world);
            int64_t n = model_elements(&m);
            double dg = distance(r.grads, one.grads, n), dw = distance(r.weights, one.weights, n);
            double dl = fabs(r.loss[2] / one.loss[2] - 1), dn = fabs(r.norm[2] / one.norm[2] - 1);
            if (!(dg <= bound && dw <= 1e3 * bound && dl <= bound && dn <= 10 * bound))
                fail_msg("%d x %d, reshard %d, recompute %d, %s: gradients %.3g, weights %.3g, loss %.3g, norm %.3g",
                         layouts[i][0], layouts[i][1], way & 1, way >> 1 & 1, way & 4 ? "gathered" : "in place", dg, dw,
                         dl, dn);
            free(r.grads);
            free(r.weights);
        }
    free(one.grads);
    free(one.weights);
    ndp_model_release(&m);
}

static void ref_fp64(void **state) { (void)state, check_layouts(NDP_F64, &ndp_device_ref, 1e-12); }
static void cpu_fp32(void **state) { (void)state, check_layouts(NDP_F32, &ndp_device_cpu, 1e-6); }
static void cpu_bf16(void **state) { (void)state, check_layouts(NDP_BF16, &ndp_device_cpu, 2e-2); }

static void programs_agree(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    ndp_model m;
    assert_int_equal(ndp_model_build(&f, &mo, &m), NDP_OK);
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_REPLICATE] = 2, layout.size[NDP_DP_SHARD] = 3;
    ndp_engine *engines[6];
    const ndp_program *programs[6];
    for (int r = 0; r < 6; r++) {
        ndp_engine_opts o = {.model = &m, .device = &ndp_device_null, .threads = 1, .accumulation = 2, .node_ranks = 1};
        assert_int_equal(ndp_mesh_init(&layout, r, &o.mesh), NDP_OK);
        assert_int_equal(ndp_engine_create(&o, &engines[r]), NDP_OK);
        programs[r] = ndp_engine_program(engines[r]);
    }
    assert_int_equal(ndp_program_check(programs, 6), NDP_OK);
    ndp_program bad = *programs[4];
    bad.instrs = malloc((size_t)bad.n * sizeof *bad.instrs);
    for (int way = 0; way < 2; way++) { /* another size; then another order: two begins change places */
        memcpy(bad.instrs, programs[4]->instrs, (size_t)bad.n * sizeof *bad.instrs);
        int i = 0;
        while (bad.instrs[i].code != NDP_DO_BEGIN || bad.instrs[i].kind != NDP_ALL_GATHER)
            i++;
        if (way == 0)
            bad.instrs[i].count += 64;
        else
            bad.instrs[i].what = "another";
        programs[4] = &bad;
        assert_int_equal(ndp_program_check(programs, 6), NDP_EBUG);
        assert_non_null(strstr(ndp_error_message(), "rank 4"));
        programs[4] = ndp_engine_program(engines[4]);
    }
    free(bad.instrs);
    for (int r = 0; r < 6; r++)
        ndp_engine_destroy(engines[r]);
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ref_fp64), cmocka_unit_test(cpu_fp32),
                                       cmocka_unit_test(cpu_bf16), cmocka_unit_test(programs_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
