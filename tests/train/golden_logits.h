/* The logits that a model of tests/golden gives for the first batch of its references. */
#ifndef TESTS_TRAIN_GOLDEN_LOGITS_H
#define TESTS_TRAIN_GOLDEN_LOGITS_H

#include "train/golden.h"

#include <math.h>

static inline ndp_model_opts golden_opts(const golden *g, ndp_model_mode mode, ndp_dtype type) {
    return (ndp_model_opts){.mode = mode,
                            .rows = g->length,
                            .keys = g->length,
                            .positions = g->length,
                            .compute = type,
                            .master = type == NDP_F64 ? NDP_F64 : NDP_F32};
}

/* The rows of `logits` in expected.safetensors: tokens of the batch. The caller frees them. */
static inline int32_t *golden_rows(const golden *g, int64_t *n) { return read_all(g, "logits_rows", NDP_I32, n); }

/* Logits [n,V] of these tokens, each sample through the cached graph in one chunk, with the weights in g->folder and of
 * an adapter (a folder; NULL: none); of the decoder `m`, which was built with golden_opts. The caller frees them. */
static inline double *golden_logits(const golden *g, const ndp_model *m, const char *adapter, const ndp_device *device,
                                    const int32_t *rows, int64_t n) {
    ndp_transport *t;
    ndp_engine *e;
    ndp_dtype type = m->opts.compute;
    size_t vocab = (size_t)g->facts.vocab;
    double *logits = malloc((size_t)n * vocab * sizeof *logits), *stored = malloc(vocab * sizeof *stored);
    CHECK_OK(ndp_transport_self(&t));
    ndp_layout one = NDP_LAYOUT_ONE;
    const ndp_exec exec = {.device = device, .threads = 1};
    ndp_engine_opts o = {.model = m, .transport = t, .step = {.exec = &exec, .accumulation = 1}};
    o.step.parallel = (ndp_parallel)NDP_PARALLEL_INIT;
    CHECK_OK(ndp_mesh_init(&one, 0, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(m)}, &o.step.mesh));
    CHECK_OK(ndp_engine_create(&o, &e));
    CHECK_OK(ndp_weights_start(e, &(ndp_weight_sources){.folder = g->folder, .adapter = adapter}));
    for (int layer = 0; layer < g->facts.layers; layer++)
        for (const ndp_mixer_cache *kept = ndp_decoder_cache(&g->facts, layer); kept->name; kept++) {
            void *memory;
            CHECK_OK(ndp_engine_map(e, (size_t)(g->length * kept->cols(&g->facts)) * ndp_dtype_size(type), &memory));
            CHECK_OK(ndp_engine_lend(e, layer + 1, kept->name, memory));
        }
    for (int64_t i = 0; i < n; i++) {
        int64_t first = rows[i] / g->length * g->length;
        ndp_step_result r;
        CHECK_OK(ndp_engine_load(e, 0, &(ndp_micro_batch){.tokens = g->ids + first, .labels = g->labels + first}));
        CHECK_OK(ndp_engine_step(e, 0, 0, false, &r));
        CHECK_OK(ndp_engine_logits(e, rows[i] % g->length, stored));
        ndp_convert(stored, type, logits + i * g->facts.vocab, NDP_F64, g->facts.vocab);
    }
    free(stored);
    ndp_engine_destroy(e);
    ndp_transport_destroy(t);
    return logits;
}

/* How far logits are from others: the largest difference of a row as a part of its largest logit; of all, as a part of
 * their norm. */
typedef struct logits_distance {
    double worst, all;
} logits_distance;

static inline logits_distance compare_logits(const golden *g, const double *have, const double *want, int64_t n) {
    double worst = 0, apart = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double largest = 0, off = 0;
        for (int64_t v = i * g->facts.vocab; v < (i + 1) * g->facts.vocab; v++) {
            largest = fmax(largest, fabs(want[v]));
            off = fmax(off, fabs(want[v] - have[v]));
            apart += pow(want[v] - have[v], 2), norm += want[v] * want[v];
        }
        worst = fmax(worst, off / largest);
    }
    return (logits_distance){worst, sqrt(apart / norm)};
}

#endif
