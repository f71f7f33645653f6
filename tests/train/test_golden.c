/* Proof 2: loss, logits, every gradient and 20 AdamW updates against Hugging Face transformers in fp64, as
 * tests/golden/README.md describes. fp32 on cpu and fp64 on ref; also with the samples spread over 2 x 2 ranks. */
#include "check.h"
#include "train/weights.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct golden {
    const char *name, *folder; /* with the weights */
    ndp_safetensors *expected;
    ndp_facts facts;
    int64_t updates, samples, length;
    int32_t *ids, *labels;
    double *losses, *norms;
} golden;

typedef struct bounds {
    double loss, grad, zero, losses, norms, logits;
} bounds;
/* zero: a gradient that is truly zero, as a part of the global norm */
static const bounds fp32 = {2e-6, 2e-5, 1e-7, 1e-5, 3e-5, 2e-5}, fp64 = {1e-12, 2e-7, 1e-9, 1e-10, 1e-9, 2e-7};

static void *read_all(const golden *g, const char *name, ndp_dtype type, int64_t *elements) {
    const ndp_tensor_entry *t = ndp_safetensors_find(g->expected, name);
    if (!t)
        fail_msg("%s: expected.safetensors has no %s", g->name, name);
    void *out = malloc((size_t)t->elements * ndp_dtype_size(type));
    CHECK_OK(ndp_safetensors_read(g->expected, t, 0, t->elements, out, type, true));
    if (elements)
        *elements = t->elements;
    return out;
}

static void open_golden(golden *g, const char *name, const char *folder) {
    *g = (golden){.name = name, .folder = folder};
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/golden/%s/expected.safetensors", getenv("NDP_SOURCE_DIR"), name);
    CHECK_OK(ndp_safetensors_open(path, &g->expected));
    snprintf(path, sizeof path, "%s/config.json", folder);
    CHECK_OK(ndp_facts_read(path, &g->facts));
    const int64_t *shape = ndp_safetensors_find(g->expected, "input_ids")->spec.shape;
    g->updates = shape[0], g->samples = shape[1], g->length = shape[2];
    g->ids = read_all(g, "input_ids", NDP_I32, NULL);
    g->labels = read_all(g, "labels", NDP_I32, NULL);
    g->losses = read_all(g, "losses", NDP_F64, NULL);
    g->norms = read_all(g, "grad_norms", NDP_F64, NULL);
}

static void close_golden(golden *g) {
    ndp_safetensors_close(g->expected);
    free(g->ids);
    free(g->labels);
    free(g->losses);
    free(g->norms);
}

typedef struct job {
    const golden *g;
    const ndp_model *model;
    const ndp_device *device;
    const bounds *bounds;
    ndp_layout layout;
    double global; /* norm of the expected gradient */
    double worst;
} job;

static void fill(const job *j, ndp_engine *e, int64_t update, int64_t rank, int64_t ranks) {
    const golden *g = j->g;
    for (int64_t m = 0; m < g->samples / ranks; m++) {
        ndp_batch b = ndp_engine_batch(e, (int)m);
        int64_t at = (update * g->samples + m * ranks + rank) * g->length;
        memcpy(b.tokens, g->ids + at, (size_t)g->length * sizeof *b.tokens);
        memcpy(b.labels, g->labels + at, (size_t)g->length * sizeof *b.labels);
        for (int32_t t = 0; t < g->length; t++)
            b.rope_pos[t] = b.q_pos[t] = b.k_pos[t] = t, b.q_low[t] = 0;
    }
}

/* This rank's piece of a gradient against the expected one, by the norm of the whole tensor. */
static ndp_status compare_piece(void *user, const ndp_run *p, void *data) {
    job *j = user;
    char name[300];
    snprintf(name, sizeof name, "grad.%s", p->segment->name);
    int64_t n;
    float *want = read_all(j->g, name, NDP_F32, &n);
    double *have = malloc((size_t)p->count * sizeof *have), norm = 0, distance = 0;
    ndp_convert_apart(data, j->model->opts.master, p->stride, have, NDP_F64, 1, p->count);
    for (int64_t i = 0; i < n; i++)
        norm += (double)want[i] * (double)want[i];
    for (int64_t i = 0; i < p->count; i++)
        distance += pow(have[i] - (double)want[p->tensor_first + i], 2);
    norm = sqrt(norm), distance = sqrt(distance);
    free(want);
    free(have);
    double bound = norm < 1e-12 * j->global ? j->bounds->zero * j->global : j->bounds->grad * norm;
    if (distance / norm > j->worst && norm > 1e-12 * j->global)
        j->worst = distance / norm;
    return distance <= bound
               ? NDP_OK
               : NDP_FAIL(NDP_EBUG, "%s %s: off by %.3g of its norm %.3g", j->g->name, name, distance / norm, norm);
}

static ndp_status check_number(const job *j, const char *what, int64_t update, double have, double want, double bound) {
    double off = fabs(have / want - 1);
    return off <= bound ? NDP_OK
                        : NDP_FAIL(NDP_EBUG, "%s update %d: %s %.12g, expected %.12g, off by %.3g", j->g->name,
                                   (int)update, what, have, want, off);
}

static ndp_status train(job *j, ndp_engine *e, int64_t rank, int64_t ranks) {
    NDP_TRY(ndp_weights_load(e, j->g->folder));
    for (int64_t u = 0; u < j->g->updates; u++) {
        ndp_step_result r;
        fill(j, e, u, rank, ranks);
        NDP_TRY(ndp_engine_step(e, 1e-3, u, true, &r));
        NDP_TRY(check_number(j, "loss", u, r.loss, j->g->losses[u], u ? j->bounds->losses : j->bounds->loss));
        NDP_TRY(check_number(j, "grad_norm", u, r.grad_norm, j->g->norms[u], j->bounds->norms * (u ? 10 : 1)));
        if (u == 0)
            NDP_TRY(ndp_engine_runs(e, NDP_OWNED_GRAD, compare_piece, j));
    }
    return NDP_OK;
}

static ndp_status body(ndp_transport *t, void *arg) {
    job j = *(const job *)arg;
    int ranks = ndp_transport_world(t), rank = ndp_transport_rank(t);
    ndp_engine_opts o = {
        .model = j.model,
        .transport = t,
        .device = j.device,
        .threads = 1,
        .accumulation = (int)j.g->samples / ranks,
        .reshard = true,
        .optimizer = {
            .kind = NDP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1.0}};
    NDP_TRY(ndp_mesh_init(&j.layout, rank, &o.mesh));
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    ndp_status st = train(&j, e, rank, ranks);
    ndp_engine_destroy(e);
    if (st == NDP_OK && rank == 0)
        printf("%-17s %-3s %d rank%s: worst gradient off by %.2g of its norm\n", j.g->name, j.device->name, ranks,
               ranks > 1 ? "s" : " ", j.worst);
    return st;
}

static void check_training(const golden *g, ndp_dtype type, const ndp_device *device, int replicate, int shard) {
    ndp_model_opts mo = {
        .mode = NDP_MODEL_TRAIN, .rows = g->length, .positions = g->length, .compute = type, .master = type};
    ndp_model m;
    CHECK_OK(ndp_model_build(&g->facts, &mo, &m));
    job j = {.g = g,
             .model = &m,
             .device = device,
             .bounds = type == NDP_F64 ? &fp64 : &fp32,
             .layout = NDP_LAYOUT_ONE,
             .global = g->norms[0]};
    j.layout.size[NDP_DP_REPLICATE] = replicate, j.layout.size[NDP_DP_SHARD] = shard;
    CHECK_OK(ndp_local_world(replicate * shard, body, &j));
    ndp_model_release(&m);
}

/* Logits of update 0, each sample through the cached graph in one chunk. */
static void check_logits(const golden *g, ndp_dtype type, const ndp_device *device) {
    ndp_model_opts mo = {.mode = NDP_MODEL_CACHED,
                         .rows = g->length,
                         .keys = g->length,
                         .positions = g->length,
                         .compute = type,
                         .master = type};
    ndp_model m;
    ndp_transport *t;
    ndp_engine *e;
    CHECK_OK(ndp_model_build(&g->facts, &mo, &m));
    CHECK_OK(ndp_transport_self(&t));
    ndp_layout one = NDP_LAYOUT_ONE;
    ndp_engine_opts o = {.model = &m, .transport = t, .device = device, .threads = 1, .accumulation = 1};
    CHECK_OK(ndp_mesh_init(&one, 0, &o.mesh));
    CHECK_OK(ndp_engine_create(&o, &e));
    CHECK_OK(ndp_weights_load(e, g->folder));
    size_t cache = (size_t)(g->length * g->facts.kv_heads * g->facts.head_dim) * ndp_dtype_size(type);
    char *memory = calloc(2 * (size_t)m.n_units, cache);
    for (int u = 0; u < m.n_units; u++)
        ndp_engine_cache(e, u, memory + 2 * (size_t)u * cache, memory + (2 * (size_t)u + 1) * cache);
    int64_t n_rows;
    int32_t *rows = read_all(g, "logits_rows", NDP_I32, &n_rows);
    double *want = read_all(g, "logits", NDP_F64, NULL), *have = malloc((size_t)g->facts.vocab * sizeof *have),
           worst = 0;
    job j = {.g = g};
    for (int64_t i = 0; i < n_rows; i++) {
        golden one_sample = *g;
        one_sample.samples = 1;
        one_sample.ids += rows[i] / g->length * g->length;
        j.g = &one_sample;
        fill(&j, e, 0, 0, 1);
        ndp_step_result r;
        CHECK_OK(ndp_engine_step(e, 0, 0, false, &r));
        const char *logits = ndp_engine_logits(e);
        ndp_convert(logits + (size_t)(rows[i] % g->length * g->facts.vocab) * ndp_dtype_size(type), type, have, NDP_F64,
                    g->facts.vocab);
        double most = 0, off = 0;
        for (int64_t v = 0; v < g->facts.vocab; v++) {
            most = fmax(most, fabs(want[i * g->facts.vocab + v]));
            off = fmax(off, fabs(want[i * g->facts.vocab + v] - have[v]));
        }
        worst = fmax(worst, off / most);
    }
    printf("%-17s %-3s logits off by %.2g of the largest\n", g->name, device->name, worst);
    assert_true(worst <= (type == NDP_F64 ? fp64 : fp32).logits);
    free(rows);
    free(want);
    free(have);
    free(memory);
    ndp_engine_destroy(e);
    ndp_transport_destroy(t);
    ndp_model_release(&m);
}

static void check_golden(const char *name, const char *folder) {
    golden g;
    open_golden(&g, name, folder);
    check_training(&g, NDP_F64, &ndp_device_ref, 1, 1);
    check_training(&g, NDP_F32, &ndp_device_cpu, 1, 1);
    check_training(&g, NDP_F32, &ndp_device_cpu, g.samples % 2 ? 1 : 2, g.samples % 4 ? 1 : 2);
    check_logits(&g, NDP_F64, &ndp_device_ref);
    check_logits(&g, NDP_F32, &ndp_device_cpu);
    close_golden(&g);
}

/* ---- export ---- */

typedef struct exporting {
    const golden *g;
    const ndp_model *model;
    int tp;
    const char *folder;
} exporting;

static ndp_status export_body(ndp_transport *t, void *arg) {
    const exporting *x = arg;
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = 2, layout.size[NDP_TP] = x->tp;
    ndp_engine_opts o = {.model = x->model, .transport = t, .device = &ndp_device_cpu, .threads = 1, .accumulation = 1};
    NDP_TRY(ndp_mesh_init(&layout, ndp_transport_rank(t), &o.mesh));
    ndp_engine *e;
    ndp_comm *world;
    ndp_tensor_list list = {0};
    ndp_group all = {0, 1, ndp_transport_world(t), ndp_transport_rank(t)};
    NDP_TRY(ndp_comm_create(t, all, "world", &world));
    NDP_TRY(ndp_engine_create(&o, &e));
    NDP_TRY(ndp_weights_load(e, x->g->folder));
    NDP_TRY(ndp_tensor_list_add(&list, e, NDP_OWNED_MASTER, "", NDP_F32));
    NDP_TRY(ndp_weights_save(world, x->folder, list.specs, list.n, list.pieces, list.n_pieces, NDP_SHARD_BYTES));
    ndp_tensor_list_release(&list);
    ndp_engine_destroy(e);
    ndp_comm_destroy(world);
    return NDP_OK;
}

/* Every tensor of `a` is in `b` with the same shape and values, save for those that the model ignores; their number. */
static int count_equal(const golden *g, const ndp_weights *a, const ndp_weights *b) {
    int n = 0;
    for (int i = 0; i < ndp_weights_count(a); i++) {
        const ndp_tensor_entry *x = ndp_weights_at(a, i), *y = ndp_weights_find(b, x->spec.name);
        if (ndp_facts_ignores(&g->facts, x->spec.name))
            continue;
        if (!y || y->spec.ndim != x->spec.ndim || memcmp(x->spec.shape, y->spec.shape, sizeof(int64_t) * 2) != 0)
            fail_msg("%s: %s is not exported as it was", g->name, x->spec.name);
        float *have = calloc((size_t)x->elements, sizeof *have), *want = calloc((size_t)x->elements, sizeof *want);
        CHECK_OK(ndp_weights_read(a, x->spec.name, 0, x->elements, have, NDP_F32, true));
        CHECK_OK(ndp_weights_read(b, x->spec.name, 0, x->elements, want, NDP_F32, true));
        assert_memory_equal(have, want, (size_t)x->elements * sizeof *have);
        free(have);
        free(want);
        n++;
    }
    return n;
}

/* Read and written again on 2 shards x some tensor ranks: the same tensors. They stay, beside config.json, in the
 * folder NDP_EXPORTS, where tests/golden/check_exports.py shows them to transformers. */
static void check_export(const char *name, const char *from) {
    golden g;
    open_golden(&g, name, from);
    const char *kept = getenv("NDP_EXPORTS");
    char folder[1024] = "/tmp/ndp_export_XXXXXX", command[2200];
    if (kept)
        snprintf(folder, sizeof folder, "%s/%s", kept, name);
    else
        assert_non_null(mkdtemp(folder));
    exporting x = {.g = &g, .tp = 2, .folder = folder};
    while (g.facts.heads % x.tp != 0)
        x.tp++;
    ndp_model_opts mo = {.mode = NDP_MODEL_SCORE, .rows = 8, .positions = 8, .compute = NDP_F32, .master = NDP_F32};
    ndp_model m;
    CHECK_OK(ndp_model_build(&g.facts, &mo, &m));
    x.model = &m;
    CHECK_OK(ndp_local_world(2 * x.tp, export_body, &x));
    ndp_weights *before, *after;
    CHECK_OK(ndp_weights_open(from, &before));
    CHECK_OK(ndp_weights_prefix(before, ndp_facts_prefix(&g.facts)));
    CHECK_OK(ndp_weights_open(folder, &after));
    assert_int_equal(count_equal(&g, before, after), count_equal(&g, after, before));
    ndp_weights_close(before);
    ndp_weights_close(after);
    ndp_model_release(&m);
    close_golden(&g);
    snprintf(command, sizeof command, kept ? "cp '%s/config.json' '%s'" : "true '%s'; rm -r '%s'", from, folder);
    assert_int_equal(system(command), 0);
}

static void own_export(void **state) {
    const char *name = *state;
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/tests/golden/%s", getenv("NDP_SOURCE_DIR"), name);
    check_export(name, folder);
}

/* A model of tests/golden, by its folder. */
static void own_model(void **state) {
    const char *name = *state;
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/tests/golden/%s", getenv("NDP_SOURCE_DIR"), name);
    check_golden(name, folder);
}

static void stories260k(void **state) {
    (void)state;
    const char *data = getenv("NDP_TEST_DATA");
    if (!data) {
        print_message("SKIPPED: stories260K (NDP_TEST_DATA is not set)\n");
        skip();
    }
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/models/stories260K", data);
    check_golden("stories260K", folder);
}

/* The model, and its export. */
#define OWN(folder)                                                                                                    \
    {folder, own_model, NULL, NULL, (void *)folder}, { "export " folder, own_export, NULL, NULL, (void *)folder }

int main(void) {
    const struct CMUnitTest tests[] = {OWN("gqa-bias"),
                                       OWN("llama3-tied"),
                                       OWN("linear-mqa"),
                                       OWN("llama-yarn"),
                                       OWN("mistral"),
                                       OWN("qwen2"),
                                       OWN("qwen3"),
                                       OWN("phi3"),
                                       OWN("olmo2"),
                                       OWN("smollm3"),
                                       OWN("gemma2"),
                                       OWN("gemma3"),
                                       OWN("gpt2"),
                                       OWN("stablelm"),
                                       OWN("stablelm-parallel"),
                                       OWN("starcoder2"),
                                       cmocka_unit_test(stories260k)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
