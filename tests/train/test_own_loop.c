/* A loop of the user's own: with the job's samples and one call it has the run's bits on every layout; in several calls
 * it has them where gradients are reduced per micro-batch; weights, functions of log-probabilities and forward passes
 * are the same on every layout, and the same as each other where they should be. */
#include "train/tiny_run.h"
#include "train/trainer.h"

#include <math.h>

typedef struct layout_case {
    tiny_layout axes;
    bool exact; /* in several calls */
    const char *sets[4];
} layout_case;

static const layout_case layouts[] = {
    {{"one", 1, 1, 1, 1}, true, {NULL}},
    {{"shard", 1, 2, 1, 1}, true, {NULL}},
    {{"replicas", 2, 1, 1, 1}, true, {NULL}},
    {{"both", 2, 2, 1, 1}, true, {"parallelism.reshard_after_forward=true"}},
    {{"context", 1, 1, 2, 1}, true, {"batch.micro_batch_size=2"}},
    {{"tensor", 1, 1, 1, 2}, true, {"train.recompute=block"}},
    {{"sequence", 1, 1, 1, 1}, true, {"parallelism.sp_size=2"}},
    {{"stages", 1, 1, 1, 1}, false, {"parallelism.pp_size=2"}},
    {{"gpipe", 1, 2, 1, 1}, false, {"parallelism.pp_size=2", "pipeline.schedule=gpipe"}},
    {{"interleaved", 1, 1, 1, 1}, false, {"parallelism.pp_size=2", "pipeline.schedule=interleaved"}},
    {{"v-shape", 1, 1, 1, 1}, false, {"parallelism.pp_size=2", "pipeline.schedule=zbv"}},
    {{"zero-bubble", 2, 1, 1, 1}, false, {"parallelism.pp_size=2", "pipeline.schedule=zero_bubble"}},
    {{"once", 1, 2, 1, 1}, false, {"parallelism.reduce_every=update"}},
    {{"product", 2, 1, 2, 2}, true, {"optimizer.name=muon"}},
    {{"all", 2, 2, 1, 2}, false, {"parallelism.pp_size=2"}},
    {{"bf16", 1, 2, 1, 2}, true, {"precision.compute=bf16"}},
    {{"lora", 2, 1, 1, 2}, true, {"adapter.type=lora", "adapter.dropout=0.1"}},
    {{"reference", 1, 2, 1, 1}, true, {"train.device=ref", "precision.compute=fp64"}},
    {{"queue", 1, 2, 1, 1}, true, {"train.device=sim", "train.share_gpu=true"}},
    {{"sgd", 1, 2, 2, 1}, true, {"optimizer.name=sgd", "optimizer.momentum=0.9"}},
    {{"experts", 1, 2, 1, 2}, true, {"parallelism.ep_size=4"}},
    {{"staged-experts", 1, 2, 1, 1}, false, {"parallelism.pp_size=2", "parallelism.ep_size=2"}},
};

enum { UPDATES = 3, GLOBAL = 8, LENGTH = 32 };

/* ---- runs ---- */

typedef struct outcome {
    double loss[UPDATES], norm[UPDATES];
    int64_t tokens[UPDATES];
    double *weights; /* of all tensors */
    int64_t n;
} outcome;

typedef struct loop_run {
    const ndp_config *config;
    int calls;  /* 0: ndp_trainer_step */
    bool parts; /* each data rank gives its own samples */
    bool late;  /* the number of calls is not known */
    outcome *out;
} loop_run;

/* Samples of the run as one batch; the caller frees. */
typedef struct samples {
    ndp_batch batch;
    int32_t ids[GLOBAL * LENGTH], labels[GLOBAL * LENGTH], positions[GLOBAL * LENGTH], documents[GLOBAL * LENGTH];
} samples;

static ndp_status read_samples(ndp_trainer *t, const int64_t *numbers, int n, bool global, samples *s) {
    for (int i = 0; i < n; i++)
        NDP_TRY(ndp_trainer_sample(t, numbers[i], s->ids + i * LENGTH, s->labels + i * LENGTH,
                                   s->positions + i * LENGTH, s->documents + i * LENGTH));
    s->batch = (ndp_batch){s->ids, s->labels, NULL, s->positions, s->documents, NULL, n, LENGTH, global};
    return NDP_OK;
}

static ndp_status read_weights(ndp_trainer *t, outcome *out) {
    int64_t n, at = 0;
    for (int i = 0; ndp_trainer_tensor(t, i, &n); i++)
        out->n += n;
    out->weights = calloc((size_t)out->n, sizeof(double));
    for (int i = 0; ndp_trainer_tensor(t, i, &n); at += n, i++)
        NDP_TRY(ndp_trainer_read(t, NDP_WEIGHT, i, out->weights + at));
    return NDP_OK;
}

/* What is written is read again: whole tensors, also those of which other ranks have all. */
static ndp_status write_weights(ndp_trainer *t, const outcome *o) {
    double *values = malloc((size_t)o->n * sizeof *values), *there = values;
    int64_t n;
    ndp_status st = NDP_OK;
    for (int i = 0; st == NDP_OK && ndp_trainer_tensor(t, i, &n); there += n, i++) {
        for (int64_t k = 0; k < n; k++)
            there[k] = 2 * o->weights[there - values + k];
        st = ndp_trainer_write(t, NDP_WEIGHT, i, there);
        memset(there, 0, (size_t)n * sizeof *there);
        if (st == NDP_OK)
            st = ndp_trainer_read(t, NDP_WEIGHT, i, there);
    }
    for (int64_t k = 0; k < o->n && st == NDP_OK; k++)
        if (values[k] != 2 * o->weights[k])
            st = NDP_FAIL(NDP_EBUG, "element %lld is %g, %g was written", (long long)k, values[k], 2 * o->weights[k]);
    free(values);
    return st;
}

/* The samples of call k, which has `each` of them: all, or those of this data rank. */
static int numbers_of(const loop_run *r, const ndp_loop_shape *shape, int64_t first, int each, int64_t *out) {
    int n = 0;
    for (int i = 0; i < each; i++) {
        bool mine = i / shape->micro % shape->data_ranks == shape->data_rank;
        if (!r->parts || mine)
            out[n++] = first + i;
    }
    return n;
}

static ndp_status own_update(ndp_trainer *t, const loop_run *r, int64_t tokens, ndp_update_info *info) {
    ndp_update_opts o = NDP_UPDATE_OPTS_INIT;
    ndp_loop_shape shape;
    samples s;
    NDP_TRY(ndp_trainer_shape(t, &shape));
    o.calls = r->late ? 0 : r->calls;
    if (r->calls > 1 && !r->late)
        o.divide = NDP_DIVIDE_NUMBER, o.divide_by = (double)tokens;
    NDP_TRY(ndp_trainer_begin(t, &o));
    for (int k = 0; k < r->calls; k++) {
        int64_t numbers[GLOBAL];
        int each = GLOBAL / r->calls, n = numbers_of(r, &shape, shape.consumed + k * each, each, numbers);
        NDP_TRY(read_samples(t, numbers, n, !r->parts, &s));
        NDP_TRY(ndp_trainer_forward_backward(t, &s.batch, 1, NULL));
    }
    return ndp_trainer_update(t, info);
}

static ndp_status loop_rank(ndp_world *w, void *arg) {
    loop_run *r = arg;
    ndp_trainer *t;
    outcome own = {.n = 0};
    NDP_TRY(ndp_trainer_create(r->config, w, &t));
    ndp_status st = NDP_OK;
    for (int u = 0; u < UPDATES && st == NDP_OK; u++) {
        ndp_metrics m = {0};
        ndp_update_info info = {0};
        st = r->calls ? own_update(t, r, r->out->tokens[u], &info) : ndp_trainer_step(t, &m);
        own.loss[u] = r->calls ? info.loss : m.loss;
        own.norm[u] = r->calls ? info.grad_norm : m.grad_norm;
        own.tokens[u] = r->calls ? info.tokens : m.tokens;
    }
    if (st == NDP_OK)
        st = read_weights(t, &own);
    if (st == NDP_OK && r->config->parallelism.size[NDP_EP] > 1)
        st = write_weights(t, &own);
    ndp_trainer_destroy(t);
    if (st == NDP_OK && ndp_world_rank(w) == 0)
        *r->out = own;
    else
        free(own.weights);
    return st;
}

static ndp_config *configure(const char *folder, const layout_case *l, int calls) {
    ndp_config *c = tiny_configure(folder, &l->axes, l->axes.name);
    tiny_set(c, "model.config=%s/%s.json", folder, strstr(l->axes.name, "experts") ? "mixture" : "deep");
    tiny_set(c, "train.own_batches=%s", calls ? "true" : "false");
    tiny_set(c, "batch.global_batch_size=%d", calls > 1 ? GLOBAL / calls : GLOBAL);
    for (int i = 0; i < NDP_COUNT(l->sets) && l->sets[i]; i++)
        tiny_set(c, "%s", l->sets[i]);
    return c;
}

static void run_loop(const char *folder, const layout_case *l, int calls, bool parts, bool late, outcome *out) {
    ndp_config *c = configure(folder, l, calls);
    CHECK_OK(ndp_world_run(c, loop_rank, &(loop_run){c, calls, parts, late, out}));
    ndp_config_destroy(c);
}

/* ---- the same as a run ---- */

static double far(const outcome *a, const outcome *b) {
    double off = 0, all = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++)
        off += pow(a->weights[i] - b->weights[i], 2), all += b->weights[i] * b->weights[i];
    return sqrt(off / all);
}

static void compare(const layout_case *l, const char *what, const outcome *run, const outcome *own, bool exact) {
    double off = far(own, run), near = strcmp(l->axes.name, "bf16") == 0 ? 1e-3 : 2e-6;
    for (int u = 0; u < UPDATES; u++) {
        double loss = fabs(own->loss[u] / run->loss[u] - 1), norm = fabs(own->norm[u] / run->norm[u] - 1);
        if (own->tokens[u] != run->tokens[u] || !(loss <= (exact ? 0 : near)) || !(norm <= (exact ? 0 : near)))
            fail_msg("%s, %s, update %d: loss %.17g and %.17g, norm %.17g and %.17g, tokens %lld and %lld",
                     l->axes.name, what, u, own->loss[u], run->loss[u], own->norm[u], run->norm[u],
                     (long long)own->tokens[u], (long long)run->tokens[u]);
    }
    if (!(off <= (exact ? 0 : near)))
        fail_msg("%s, %s: the weights are off by %g", l->axes.name, what, off);
}

/* In several calls losses are summed in another order. */
static void compare_calls(const layout_case *l, const char *what, const outcome *run, const outcome *own) {
    if (l->exact && memcmp(own->norm, run->norm, sizeof own->norm) != 0)
        fail_msg("%s, %s: norms %.17g and %.17g", l->axes.name, what, own->norm[0], run->norm[0]);
    compare(l, what, run, own, false);
    if (l->exact && far(own, run) != 0)
        fail_msg("%s, %s: the weights are off by %g", l->axes.name, what, far(own, run));
}

static void the_jobs_samples_give_the_runs_bits(void **state) {
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        const layout_case *l = &layouts[i];
        outcome run, own;
        if (left_out())
            continue;
        run_loop(*state, l, 0, false, false, &run);
        own = run;
        run_loop(*state, l, 1, i % 2, false, &own);
        compare(l, "one call", &run, &own, true);
        free(own.weights);
        own = run;
        run_loop(*state, l, 2, i % 2 == 0, false, &own);
        compare_calls(l, "two calls", &run, &own);
        free(own.weights);
        own = run;
        run_loop(*state, l, 2, i % 2, true, &own);
        compare(l, "two calls, divided late", &run, &own, false);
        free(own.weights);
        free(run.weights);
    }
}

/* Four layers, for four stages; and a mixture. */
static int make(void **state) {
    int made = tiny_make(state);
    if (made == 0)
        tiny_put(*state, "deep.json",
                 "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 258, "
                 "\"hidden_size\": 32, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
                 "\"num_key_value_heads\": 2, \"intermediate_size\": 64, \"max_position_embeddings\": 64, "
                 "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true, \"bos_token_id\": 256, "
                 "\"eos_token_id\": 257}");
    if (made == 0)
        tiny_put(*state, "mixture.json",
                 "{\"model_type\": \"mixtral\", \"architectures\": [\"MixtralForCausalLM\"], \"vocab_size\": 258, "
                 "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                 "\"num_key_value_heads\": 2, \"intermediate_size\": 40, \"max_position_embeddings\": 64, "
                 "\"rms_norm_eps\": 1e-5, \"num_local_experts\": 5, \"num_experts_per_tok\": 2, \"bos_token_id\": "
                 "256, \"eos_token_id\": 257}");
    return made;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_jobs_samples_give_the_runs_bits, make, tiny_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
