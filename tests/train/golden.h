/* A model of tests/golden with what transformers computes for it (README.md there). */
#ifndef TESTS_TRAIN_GOLDEN_H
#define TESTS_TRAIN_GOLDEN_H

#include "check.h"
#include "model/decoder.h"
#include "step/engine.h"
#include "weights/weights.h"

#include <math.h>
#include <stdlib.h>

typedef struct golden {
    const char *name, *folder; /* with the weights */
    ndp_safetensors *expected;
    ndp_facts facts;
    int64_t updates, samples, length;
    int32_t *ids, *labels;
    double *losses, *norms;
} golden;

static inline void *read_all(const golden *g, const char *name, ndp_dtype type, int64_t *elements) {
    const ndp_tensor_entry *t = ndp_safetensors_find(g->expected, name);
    if (!t)
        fail_msg("%s: expected.safetensors has no %s", g->name, name);
    void *out = malloc((size_t)t->elements * ndp_dtype_size(type));
    CHECK_OK(ndp_safetensors_read(g->expected, t, 0, t->elements, out, type, true));
    if (elements)
        *elements = t->elements;
    return out;
}

static inline void open_golden(golden *g, const char *name, const char *folder) {
    *g = (golden){.name = name, .folder = folder};
    char path[2048];
    snprintf(path, sizeof path, "%s/tests/golden/%s/expected.safetensors", getenv("NDP_SOURCE_DIR"), name);
    CHECK_OK(ndp_safetensors_open(path, &g->expected));
    snprintf(path, sizeof path, "%s/config.json", folder);
    CHECK_OK(ndp_facts_read(path, &g->facts));
    if (!ndp_safetensors_find(g->expected, "input_ids")) /* tensors of a model alone */
        return;
    const int64_t *shape = ndp_safetensors_find(g->expected, "input_ids")->spec.shape;
    g->updates = shape[0], g->samples = shape[1], g->length = shape[2];
    g->ids = read_all(g, "input_ids", NDP_I32, NULL);
    g->labels = read_all(g, "labels", NDP_I32, NULL);
    g->losses = read_all(g, "losses", NDP_F64, NULL);
    g->norms = read_all(g, "grad_norms", NDP_F64, NULL);
}

static inline void close_golden(golden *g) {
    ndp_safetensors_close(g->expected);
    free(g->ids);
    free(g->labels);
    free(g->losses);
    free(g->norms);
}

/* How far this rank's piece of a gradient is from the tensor "grad.NAME" of g->expected (into `name`), and the norm of
 * the whole tensor. */
static inline double gradient_distance(const golden *g, const ndp_owned_run *run, char name[NDP_SEGMENT_NAME + 8],
                                       double *norm) {
    const ndp_run *p = &run->run;
    char room[NDP_SEGMENT_NAME];
    snprintf(name, NDP_SEGMENT_NAME + 8, "grad.%s", ndp_segment_tensor_name(p->segment, p->member, room));
    int64_t n;
    float *want = read_all(g, name, NDP_F32, &n);
    double *have = malloc((size_t)p->count * sizeof *have), squares = 0, distance = 0;
    CHECK_OK(ndp_run_get(run, 0, p->count, have, NDP_F64));
    for (int64_t i = 0; i < n; i++)
        squares += (double)want[i] * (double)want[i];
    for (int64_t i = 0; i < p->count; i++)
        distance += pow(have[i] - (double)want[p->tensor_first + i], 2);
    free(want);
    free(have);
    *norm = sqrt(squares);
    return sqrt(distance);
}

/* The folder of a model of tests/golden that has its weights there. */
static inline const char *golden_folder(const char *name, char *out, size_t size) {
    snprintf(out, size, "%s/tests/golden/%s", getenv("NDP_SOURCE_DIR"), name);
    return out;
}

/* Those models, for tests whose *state is a name. */
#define GOLDEN_MODELS(X)                                                                                               \
    X("gqa-bias"), X("llama3-tied"), X("linear-mqa"), X("llama-yarn"), X("mistral"), X("ministral"), X("ministral3"),  \
        X("qwen2"), X("qwen3"), X("seed-oss"), X("phi3"), X("olmo2"), X("olmo3"), X("smollm3"), X("granite"),          \
        X("gemma"), X("gemma2"), X("gemma3"), X("gemma4"), X("gpt2"), X("stablelm"), X("stablelm-parallel"),           \
        X("gpt-neox"), X("gpt-neox-serial"), X("starcoder2"), X("mixtral"), X("qwen3-moe"), X("qwen2-moe"),            \
        X("olmoe"), X("glm4-moe"), X("gpt-oss"), X("deepseek-v2"), X("deepseek-v3"), X("glm4-moe-lite"),               \
        X("qwen3-5"), X("qwen3-5-moe"), X("qwen3-next")

#endif
