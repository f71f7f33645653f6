/* Training steps of known shapes from random weights on one GPU, in bf16 with fp32 masters: tokens a second and the
 * share of the speed of light, tokens x (6 N + 6 L T H D) / the peak of the data sheet, with N the parameters without
 * the embedding, and causal attention counted once. Then the share of its roof of every op, with two roofs measured in
 * the same run: a product of bf16 [8192,8192] x [8192,8192] on random numbers, and a copy. Steps are submitted ahead,
 * and ops timed on the GPU. Beside the planned memory, the most that the GPU has lost to the engine: what is free
 * before it is created, when the kernels of the roofs have run, less what is free later. One line of JSON per result.
 *
 * Usage: bench_gpu [shape] [samples] [length] [accumulation] [steps] [device] [recompute 0|1] */
#include "ops/devices.h"
#include "row.h"
#include "step.h"

typedef struct shape {
    const char *name;
    int layers, hidden, heads, kv_heads, ffn, vocabulary;
    bool bias, tied;
    int samples, length, accumulation; /* where the command line says nothing */
} shape;

static const shape shapes[] = {
    {"smollm2", 30, 576, 9, 3, 1536, 49152, false, true, 8, 1024, 4},
    {"0.5b", 24, 896, 14, 2, 4864, 151936, true, true, 4, 1024, 4},
    {"1.5b", 28, 1536, 12, 2, 8960, 151936, true, false, 4, 1024, 4},
    {"7b", 28, 3584, 28, 4, 18944, 152064, true, false, 1, 1024, 4},
    {"tiny", 2, 64, 4, 2, 128, 512, false, false, 1, 64, 2},
};

typedef struct gpu_job {
    const shape *shape;
    int samples, length, accumulation, steps, recompute;
    const ndp_device *device;
    double peak; /* of the data sheet, flop/s */
} gpu_job;

static ndp_facts facts_of(const shape *s) {
    char config[512];
    ndp_facts f;
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"vocab_size\": %d, \"num_hidden_layers\": %d, \"hidden_size\": %d, "
             "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"intermediate_size\": %d, "
             "\"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02, "
             "\"rope_theta\": 100000.0, \"tie_word_embeddings\": %s}",
             s->vocabulary, s->layers, s->hidden, s->heads, s->kv_heads, s->ffn, s->tied ? "true" : "false");
    must(ndp_facts_parse_text(config, s->name, &f));
    f.qkv_bias = s->bias;
    return f;
}

static ndp_status load(ndp_engine *e, void *user, int update) {
    const gpu_job *j = user;
    int n = j->samples * j->length;
    int32_t *a = malloc(4 * (size_t)n * sizeof *a);
    for (int mb = 0; mb < j->accumulation; mb++) {
        for (int t = 0; t < n; t++) {
            uint64_t x = (uint64_t)(t + (update * j->accumulation + mb) * 7919 + 13) * 2654435761u;
            a[t] = (int32_t)(x % (uint64_t)j->shape->vocabulary);
            a[n + t] = (int32_t)((x >> 7) % (uint64_t)j->shape->vocabulary);
            a[2 * n + t] = t % j->length, a[3 * n + t] = t / j->length * j->length;
        }
        ndp_micro_batch b = ndp_micro_batch_of(a, n);
        must(ndp_engine_load(e, mb, &b));
    }
    free(a);
    return NDP_OK;
}

/* ---- the GPU beside the engine ---- */

typedef struct gpu {
    const ndp_device *device;
    ndp_device_context *context;
    ndp_queue *queue;
    size_t total, before, least; /* bytes: all, free before the engine, the least since then */
} gpu;

static size_t free_memory(gpu *g) {
    size_t bytes;
    must(g->device->memory(g->context, &bytes, &g->total));
    return bytes;
}

static void see_memory(gpu *g) {
    size_t now = free_memory(g);
    g->least = now < g->least ? now : g->least;
}

/* ---- roofs ---- */

static size_t bytes_of(const ndp_view *v) { return (size_t)(v->rows * v->cols) * ndp_dtype_size(v->dtype); }

/* A view in memory of the device, with random numbers. */
static ndp_view filled(const gpu *g, int64_t rows, int64_t cols) {
    ndp_view v = {.dtype = NDP_BF16, .rows = rows, .cols = cols, .ld = cols};
    size_t bytes = bytes_of(&v);
    uint16_t *host = malloc(bytes);
    uint64_t x = 88172645463325252u;
    for (int64_t i = 0; i < rows * cols; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        host[i] = ndp_f32_to_bf16((float)(x >> 40) / (float)(1 << 23) - 1.0f);
    }
    must(g->device->memory_map(g->context, bytes, NDP_MEMORY_DEVICE, &v.data));
    must(g->device->copy(g->queue, v.data, bytes, host, bytes, bytes, 1));
    must(g->device->drain(g->queue));
    free(host);
    return v;
}

/* Seconds of one call: the best of five runs of ten. */
static double time_call(const gpu *g, ndp_op_call *call) {
    const ndp_device *d = g->device;
    const ndp_kernel *k = d->kernels[call->op->id];
    double best = 1e9, took;
    ndp_stamp from, to;
    must(d->stamp_create(g->context, &from));
    must(d->stamp_create(g->context, &to));
    if (k->prepare)
        must(k->prepare(call));
    for (int r = -1; r < 5; r++) {
        must(d->stamp(g->queue, &from));
        for (int i = 0; i < 10; i++)
            must(k->run(call));
        must(d->stamp(g->queue, &to));
        must(d->drain(g->queue));
        must(d->between(g->context, &from, &to, &took));
        best = r >= 0 && took / 10 < best ? took / 10 : best;
    }
    d->stamp_destroy(&from);
    d->stamp_destroy(&to);
    return best;
}

/* Flop/s of a square product, and bytes a second of a copy, read and written. */
static void measure_roofs(const gpu *g, int64_t n, double *product, double *copy) {
    const ndp_device *d = g->device;
    const ndp_exec exec = {.device = d, .threads = 1};
    const ndp_op_attr none = {0}, to_bf16 = {.type = NDP_BF16};
    ndp_view v[] = {filled(g, n, n), filled(g, n, n), filled(g, n, n)};
    ndp_op_call linear = {
        .op = &ndp_op_linear, .attr = &none, .exec = &exec, .queue = g->queue, .in = {v[0], v[1]}, .out = {v[2]}};
    const ndp_kernel *k = d->kernels[NDP_OP_linear];
    size_t scratch = k->scratch ? k->scratch(&linear) : 0;
    if (scratch)
        must(d->memory_map(g->context, scratch, NDP_MEMORY_DEVICE, &linear.scratch));
    *product = 2.0 * (double)n * (double)n * (double)n / time_call(g, &linear);
    ndp_op_call copied = {
        .op = &ndp_op_copy, .attr = &to_bf16, .exec = &exec, .queue = g->queue, .in = {v[0]}, .out = {v[2]}};
    *copy = 4.0 * (double)n * (double)n / time_call(g, &copied);
    d->memory_unmap(g->context, linear.scratch, scratch, NDP_MEMORY_DEVICE);
    for (int i = 0; i < NDP_COUNT(v); i++)
        d->memory_unmap(g->context, v[i].data, bytes_of(&v[i]), NDP_MEMORY_DEVICE);
}

/* ---- results ---- */

typedef struct op_roofs {
    double seconds[NDP_OP_COUNT]; /* what the calls of a step take at the roofs */
} op_roofs;

static void add_call(op_roofs *r, const ndp_call *c, double product, double copy) {
    double compute = c->flops / product, memory = c->bytes / copy;
    if (c->kind == NDP_CALL_KERNEL)
        r->seconds[c->op->id] += compute > memory ? compute : memory;
}

static op_roofs roofs_of(const ndp_program *p, double product, double copy) {
    op_roofs r = {{0}};
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        const ndp_list *list = in->code == NDP_DO_RUN ? ndp_program_list(p, in) : NULL;
        for (int k = 0; list && k < list->n; k++)
            add_call(&r, &list->calls[k], product, copy);
        if (!list)
            add_call(&r, &in->call, product, copy);
    }
    return r;
}

static void print_ops(const gpu_job *j, ndp_engine *e, double product, double copy) {
    const ndp_profile *p = ndp_engine_profile(e);
    op_roofs r = roofs_of(ndp_engine_program(e), product, copy);
    printf("{\"bench\": \"gpu ops\", \"shape\": \"%s\", \"product_tflops\": %.1f, \"copy_gb_s\": %.0f, \"ops\": {",
           j->shape->name, product / 1e12, copy / 1e9);
    for (int i = 0, n = 0; i < NDP_OP_COUNT; i++)
        if (p->op[i] > 0)
            printf("%s\"%s\": {\"ms\": %.3f, \"share_of_roof\": %.3f}", n++ ? ", " : "", ndp_all_ops[i]->name,
                   1e3 * p->op[i], r.seconds[i] / p->op[i]);
    printf("}}\n");
}

/* Null where the device's memory is the host's. `used_before_bytes`: by an empty context, the kernels of the roofs, and
 * other processes. */
static void print_memory(const gpu *g, size_t planned) {
    printf("\"planned_gib\": %.2f, \"planned_bytes\": %zu, ", (double)planned / (1 << 30), planned);
    if (g->total > 0)
        printf("\"high_water_bytes\": %zu, \"high_water_of_plan\": %.4f, \"used_before_bytes\": %zu, ",
               g->before - g->least, (double)(g->before - g->least) / (double)planned, g->total - g->before);
    else
        printf("\"high_water_bytes\": null, \"high_water_of_plan\": null, \"used_before_bytes\": null, ");
}

static void print_result(const gpu_job *j, const ndp_facts *f, ndp_engine *e, const gpu *g, double seconds,
                         double loss) {
    ndp_budget budget;
    double tokens = (double)j->samples * j->length * j->accumulation;
    double embedding = (double)f->vocab * f->hidden * (f->tied ? 0 : 1);
    double flops =
        6 * ((double)ndp_facts_parameters(f) - embedding) + 6.0 * f->layers * j->length * f->heads * f->head_dim;
    ndp_program_budget(ndp_engine_program(e), &budget);
    printf(
        "{\"bench\": \"gpu\", \"device\": \"%s\", \"shape\": \"%s\", \"parameters\": %lld, \"batch\": %d, \"seq\": %d, "
        "\"accumulate\": %d, \"recompute\": %d, \"step_ms\": %.2f, \"tok_s\": %.0f, \"sol\": %.4f, ",
        j->device->name, j->shape->name, (long long)ndp_facts_parameters(f), j->samples, j->length, j->accumulation,
        j->recompute, 1e3 * seconds, tokens / seconds, tokens * flops / seconds / j->peak);
    print_memory(g, budget.total);
    printf("\"loss\": %.4f}\n", loss);
}

/* A product that cuBLASLt has no algorithm for is slow, and the numbers are not those of a GPU. */
static ndp_status check_products(const ndp_device *d) {
    char first[128];
    long n = d->plain_products ? d->plain_products(first, sizeof first) : 0;
    if (n > 0)
        return NDP_FAIL(NDP_ENOTSUP, "%ld products were computed without tensor cores; the first: %s", n, first);
    return NDP_OK;
}

static ndp_status train(ndp_transport *t, void *arg) {
    gpu_job *j = arg;
    double product = 0, copy = 0, seconds = 0;
    gpu g = {.device = j->device};
    ndp_step_result last;
    ndp_facts f = facts_of(j->shape);
    ndp_model m;
    ndp_model_opts mo = {.mode = NDP_MODEL_TRAIN,
                         .rows = (int64_t)j->samples * j->length,
                         .positions = j->length,
                         .compute = NDP_BF16,
                         .master = NDP_F32};
    NDP_TRY(ndp_decoder_build(&f, &mo, &m));
    const ndp_exec exec = {.device = j->device, .threads = 1};
    ndp_layout one = NDP_LAYOUT_ONE;
    ndp_engine_opts o = {
        .model = &m,
        .transport = t,
        .step = {.exec = &exec,
                 .accumulation = j->accumulation,
                 .parallel = NDP_PARALLEL_INIT,
                 .recompute = j->recompute,
                 .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = 1.0}}};
    NDP_TRY(ndp_mesh_init(&one, 0, &(ndp_mesh_facts){.kv_heads = f.kv_heads}, &o.step.mesh));
    NDP_TRY(g.device->open(g.device, &(ndp_device_opts){0}, &g.context));
    NDP_TRY(g.device->queue_create(g.context, &g.queue));
    measure_roofs(&g, strcmp(j->shape->name, "tiny") == 0 ? 64 : 8192, &product, &copy);
    g.before = g.least = free_memory(&g);
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    see_memory(&g);
    draw(e);
    NDP_TRY(row_of_steps(e, load, j, 0, j->steps + 1, &seconds, &last));
    see_memory(&g);
    print_result(j, &f, e, &g, seconds, last.loss);
    NDP_TRY(row_of_ops(e, load, j, j->steps + 1));
    print_ops(j, e, product, copy);
    NDP_TRY(check_products(j->device));
    ndp_engine_destroy(e);
    g.device->queue_destroy(g.queue);
    g.device->close(g.context);
    ndp_model_release(&m);
    return NDP_OK;
}

static int argument(int argc, char **argv, int at, int otherwise) { return argc > at ? atoi(argv[at]) : otherwise; }

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "1.5b";
    const shape *s = NULL;
    for (int i = 0; i < NDP_COUNT(shapes); i++)
        s = strcmp(shapes[i].name, name) == 0 ? &shapes[i] : s;
    if (!s)
        return fprintf(stderr, "no shape is called %s\n", name), 2;
    gpu_job j = {.shape = s,
                 .samples = argument(argc, argv, 2, s->samples),
                 .length = argument(argc, argv, 3, s->length),
                 .accumulation = argument(argc, argv, 4, s->accumulation),
                 .steps = argument(argc, argv, 5, 5),
                 .recompute = argument(argc, argv, 7, 0),
                 .peak = 989.4e12}; /* H100 SXM, bf16 without sparsity */
    if (j.steps < 1 || j.steps > MOST)
        return fprintf(stderr, "steps: 1 to %d\n", MOST), 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    must(ndp_device_find(argc > 6 ? argv[6] : "cuda", &j.device));
    must(ndp_local_world(1, train, &j));
    return 0;
}
