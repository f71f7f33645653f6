/* The proof that the house is not built around decoders: a model of convolutions, built by the public header alone
 * (conv_model.h), learns, computes the same on every data-parallel layout, and is refused by name where an axis cuts
 * the rows that it mixes. */
#include "model/conv_model.h"
#include "step/layouts.h"

enum { LENGTH = 64, SAMPLES_AT_ONCE = 8, UPDATES = 150 };

/* ---- learning ---- */

typedef struct text {
    unsigned char *bytes;
    size_t n;
    const ndp_device *device;
    ndp_optimizer_name optimizer;
} text;

static text read_text(void) {
    text t = {0};
    char *path = ndp_format("%s/LICENSE", getenv("NDP_SOURCE_DIR") ? getenv("NDP_SOURCE_DIR") : ".");
    CHECK_OK(ndp_file_read(path, (char **)&t.bytes, &t.n));
    free(path);
    return t;
}

/* Nats of a byte for a model that knows how often each occurs, and nothing else. */
static double unigram_entropy(const text *t) {
    double counts[256] = {0}, entropy = 0;
    for (size_t i = 0; i < t->n; i++)
        counts[t->bytes[i]]++;
    for (int b = 0; b < 256; b++)
        entropy -= counts[b] > 0 ? counts[b] / (double)t->n * log(counts[b] / (double)t->n) : 0;
    return entropy;
}

/* Passages from places that the update decides. */
static void load_passages(ndp_engine *e, const text *t, int update) {
    int32_t a[4][SAMPLES_AT_ONCE * LENGTH];
    for (int s = 0; s < SAMPLES_AT_ONCE; s++) {
        size_t at = (size_t)ndp_rng_below(5, 1, (uint64_t)(update * SAMPLES_AT_ONCE + s), t->n - LENGTH - 1);
        for (int i = 0; i < LENGTH; i++) {
            int row = s * LENGTH + i;
            a[0][row] = t->bytes[at + (size_t)i], a[1][row] = t->bytes[at + (size_t)i + 1];
            a[2][row] = i, a[3][row] = s * LENGTH;
        }
    }
    ndp_micro_batch b = ndp_micro_batch_of(a[0], SAMPLES_AT_ONCE * LENGTH);
    CHECK_OK(ndp_engine_load(e, 0, &b));
}

static void draw(ndp_engine *e) {
    const ndp_model *m = ndp_engine_model(e);
    for (int i = 0; i < m->n_buffers; i++) {
        ndp_run p;
        for (int64_t at = 0; ndp_segments_run(&m->buffers[i].segments, 1, 0, &at, &p);) {
            float *values = malloc((size_t)p.count * sizeof *values);
            m->architecture->random(m->facts, 3, p.segment, 0, p.count, values);
            CHECK_OK(ndp_engine_write(e, NDP_OWNED_MASTER, i, p.slice_first, p.count, p.stride, values));
            free(values);
        }
    }
    CHECK_OK(ndp_engine_publish(e));
}

static ndp_status learn(ndp_transport *t, void *arg) {
    const text *of = arg;
    ndp_model m;
    ndp_engine *e;
    ndp_layout one = NDP_LAYOUT_ONE;
    conv_model(NDP_F32, SAMPLES_AT_ONCE * LENGTH, &m);
    const ndp_exec exec = {.device = of->device, .threads = 1};
    ndp_engine_opts o = {
        .model = &m,
        .transport = t,
        .step = {.exec = &exec,
                 .accumulation = 1,
                 .parallel = NDP_PARALLEL_INIT,
                 .optimizer = {
                     .name = of->optimizer, .betas = {0.9, 0.95}, .eps = 1e-8, .momentum = 0.95, .max_norm = 1.0}}};
    NDP_TRY(ndp_mesh_init(&one, 0, NDP_NO_MODEL, &o.step.mesh));
    NDP_TRY(ndp_engine_create(&o, &e));
    draw(e);
    double first = 0, last = 0, entropy = unigram_entropy(of);
    for (int u = 0; u < UPDATES; u++) {
        ndp_step_result r;
        load_passages(e, of, u);
        NDP_TRY(ndp_engine_step(e, 1e-2, u, true, &r));
        first = u == 0 ? r.loss : first;
        last += u >= UPDATES - 10 ? r.loss / 10 : 0;
    }
    printf("conv, %s: loss %.3f to %.3f, a byte's entropy is %.3f\n", ndp_optimizers[of->optimizer]->name, first, last,
           entropy);
    assert_true(last < 0.6 * first && last < 0.8 * entropy);
    ndp_engine_destroy(e);
    ndp_model_release(&m);
    return NDP_OK;
}

static void it_learns(void **state) {
    (void)state;
    text t = read_text();
    t.device = guarded(&ndp_device_cpu);
    CHECK_OK(ndp_local_world(1, learn, &t));
    t.optimizer = NDP_MUON;
    CHECK_OK(ndp_local_world(1, learn, &t));
    unguard(t.device);
    free(t.bytes);
}

/* ---- layouts ---- */

static void layouts(ndp_dtype compute, const ndp_device *device, const bounds *bound) {
    static const struct {
        int size[5];
        bool whole_rows;
    } of[] = {{{1, 2, 1, 1, 1}, false}, {{2, 1, 1, 1, 1}, false}, {{2, 2, 1, 1, 1}, false},
              {{1, 3, 1, 1, 1}, false}, {{1, 1, 1, 1, 2}, true},  {{2, 1, 1, 1, 3}, true}};
    ndp_model m;
    conv_model(compute, ROWS, &m);
    result one = run(&m, device, &(way){.size = {1, 1, 1, 1, 1}, .parallel = NDP_PARALLEL_INIT});
    for (int i = 0; i < NDP_COUNT(of); i++) {
        way w = {.reshard = i % 2, .recompute = i % 3, .gathered = i > 1, .parallel = NDP_PARALLEL_INIT};
        w.parallel.tp_sequence_parallel = !of[i].whole_rows;
        memcpy(w.size, of[i].size, sizeof w.size);
        check_against(&m, device, &w, &one, bound);
    }
    release(&one);
    ndp_model_release(&m);
}

static void every_data_parallel_layout_is_one_rank(void **state) {
    (void)state;
    layouts(NDP_F64, &ndp_device_ref, &exact);
    layouts(NDP_F32, &ndp_device_cpu, &other_single);
}

static void axes_that_cut_its_rows_are_refused(void **state) {
    static const struct {
        ndp_axis axis;
        const char *words;
    } of[] = {
        {NDP_CP, "unit blocks.0: op causal_conv mixes rows, and cp_size 2 cuts the rows: set parallelism.cp_size: 1"},
        {NDP_SP, "op causal_conv mixes rows, and sp_size 2 cuts the rows: set parallelism.sp_size: 1"},
        {NDP_TP, "op causal_conv mixes rows, and tp_size 2 cuts the rows: set parallelism.tp_sequence_parallel: "
                 "false, or parallelism.tp_size: 1"}};
    (void)state;
    for (int i = 0; i < NDP_COUNT(of); i++) {
        ndp_model m, local;
        ndp_mesh mesh;
        ndp_layout layout = NDP_LAYOUT_ONE;
        const ndp_parallel how = NDP_PARALLEL_INIT;
        layout.size[of[i].axis] = 2;
        conv_model(NDP_F32, ROWS, &m);
        CHECK_OK(ndp_mesh_init(&layout, 1, NDP_NO_MODEL, &mesh));
        CHECK_FAILS(ndp_parallel_apply(&m, &mesh, &how, &(ndp_stages){0}, &local), NDP_ENOTSUP, of[i].words);
        ndp_model_release(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_learns),
                                       cmocka_unit_test(every_data_parallel_layout_is_one_rank),
                                       cmocka_unit_test(axes_that_cut_its_rows_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
