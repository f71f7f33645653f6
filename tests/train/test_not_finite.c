/* A step that is not finite is not applied: with each optimizer and on several layouts, the weights, the optimizer's
 * states and the copies that are sent keep their bits, and the run stops and names the step. And results that are taken
 * one step late are those of steps taken one by one. */
#include "step/engine_parts.h"
#include "train/guarded_trainer.h"
#include "train/tiny_run.h"

#include <math.h>

enum { STEPS = 4, KINDS = 4 };

static const tiny_layout layouts[] = {{"one", 1, 1, 1, 1}, {"shard-tensor", 1, 2, 1, 2}};

/* MLPs that are large enough for 8-bit states. */
static int make_wide(void **state) {
    if (tiny_make(state) != 0)
        return -1;
    tiny_put(*state, "wide.json",
             "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 258, "
             "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
             "\"intermediate_size\": 130, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, "
             "\"tie_word_embeddings\": true, \"bos_token_id\": 256, \"eos_token_id\": 257}");
    return 0;
}

/* A rate that makes the weights so large in the first step that the second one overflows. */
static ndp_config *configure(const char *folder, const tiny_layout *l, const char *run, const char *optimizer) {
    ndp_config *c = tiny_configure(folder, l, run);
    tiny_set(c, "model.config=%s/wide.json", folder);
    tiny_set(c, "optimizer.name=%s", optimizer);
    tiny_set(c, "optimizer.lr=1e30");
    tiny_set(c, "checkpoint.every=1");
    return c;
}

/* ---- what a rank owns ---- */

typedef struct owned {
    void *data;
    size_t bytes;
} owned;

static void read_owned(const ndp_engine *e, ndp_address at, int64_t n, ndp_dtype type, owned *out) {
    if (at.block == NDP_NONE)
        return;
    size_t bytes = (size_t)n * ndp_dtype_size(type);
    out->data = realloc(out->data, out->bytes + bytes);
    assert_non_null(out->data);
    CHECK_OK(ndp_engine_copy(e, (char *)out->data + out->bytes, ndp_engine_at(e, at), bytes, true));
    out->bytes += bytes;
}

static owned read_all(const ndp_engine *e) {
    owned out = {0};
    const ndp_model *m = ndp_engine_model(e);
    for (int b = 0; b < m->n_buffers; b++) {
        const ndp_owned *o = &ndp_engine_program(e)->owned[b];
        const ndp_storage *types = &m->buffers[b].storage;
        read_owned(e, o->master, o->shard.slice, types->master, &out);
        for (int s = 0; s < NDP_OPTIMIZER_STATES; s++) {
            read_owned(e, o->state[s], o->state_n[s], types->state, &out);
            read_owned(e, o->codes[s], o->shard.slice, NDP_U8, &out);
            read_owned(e, o->scales[s], o->n_scales, types->state, &out);
        }
        if (!o->shard.same)
            read_owned(e, o->send, o->shard.slice, types->compute, &out);
    }
    return out;
}

/* ---- a step that overflows ---- */

static ndp_status overflow(ndp_world *w, void *arg) {
    ndp_trainer *t;
    ndp_metrics first, second;
    NDP_TRY(guarded_trainer_create(arg, w, &t));
    NDP_TRY(ndp_trainer_step(t, &first));
    owned before = read_all(t->engine);
    NDP_TRY(ndp_trainer_step(t, &second));
    owned after = read_all(t->engine);
    bool fits = isfinite(first.loss) && isfinite(first.grad_norm), same = before.bytes == after.bytes;
    bool finite = isfinite(second.loss) && isfinite(second.grad_norm);
    same = same && memcmp(before.data, after.data, before.bytes) == 0;
    free(before.data);
    free(after.data);
    guarded_trainer_destroy(t);
    NDP_CHECK(fits && !finite, "the losses are %g and %g, the norms %g and %g", first.loss, second.loss,
              first.grad_norm, second.grad_norm);
    NDP_CHECK(same, "a step that is not finite changed weights, states or copies");
    return NDP_OK;
}

static void a_step_that_overflows_changes_nothing(void **state) {
    static const char *const optimizers[] = {"adamw", "adamw8bit", "sgd", "lion", "muon"};
    static const char *const kinds[KINDS][2] = {{"cpu", "fp32"}, {"cpu", "bf16"}, {"ref", "fp32"}, {"ref", "bf16"}};
    for (int k = 0; k < NDP_COUNT(layouts) * NDP_COUNT(optimizers) * KINDS; k++) {
        const tiny_layout *l = &layouts[k % NDP_COUNT(layouts)];
        const char *optimizer = optimizers[k / NDP_COUNT(layouts) % NDP_COUNT(optimizers)],
                   *const *kind = kinds[k / (int)(NDP_COUNT(layouts) * NDP_COUNT(optimizers))];
        ndp_config *c = configure(*state, l, "overflow", optimizer);
        tiny_set(c, "train.device=%s", kind[0]);
        tiny_set(c, "precision.compute=%s", kind[1]);
        tiny_set(c, "optimizer.max_grad_norm=%g", k & 1 ? 1.0 : 0.0);
        ndp_status st = ndp_world_run(c, overflow, c);
        if (st != NDP_OK)
            fail_msg("%s, %s, %s, %s: %s", l->name, optimizer, kind[0], kind[1], ndp_error_message());
        ndp_config_destroy(c);
    }
}

static ndp_status train(ndp_world *w, void *arg) {
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    return ndp_train(arg, w, &o);
}

/* What is on disk is the step before. */
static void the_run_stops_and_names_the_step(void **state) {
    for (int k = 0; k < NDP_COUNT(layouts); k++) {
        ndp_config *c = configure(*state, &layouts[k], layouts[k].name, "adamw");
        CHECK_FAILS(ndp_world_run(c, train, c), NDP_EINVAL, "step 2: the loss is ");
        char *first = ndp_format("%s/%s/checkpoints/step-00000001", (char *)*state, layouts[k].name);
        char *second = ndp_format("%s/%s/checkpoints/step-00000002", (char *)*state, layouts[k].name);
        assert_true(ndp_path_exists(first) && !ndp_path_exists(second));
        free(first);
        free(second);
        ndp_config_destroy(c);
    }
}

/* ---- results one step late ---- */

typedef struct steps {
    const ndp_config *config;
    bool late;
    ndp_metrics metrics[STEPS];
} steps;

static ndp_status take_steps(ndp_world *w, void *arg) {
    steps *s = arg;
    ndp_trainer *t;
    NDP_TRY(guarded_trainer_create(s->config, w, &t));
    double start = ndp_now(), sum = 0;
    if (s->late)
        NDP_TRY(ndp_trainer_submit(t));
    for (int i = 0; i < STEPS; i++) {
        if (!s->late || i < STEPS - 1)
            NDP_TRY(ndp_trainer_submit(t));
        NDP_TRY(ndp_trainer_result(t, &s->metrics[i]));
        sum += s->metrics[i].step_seconds;
    }
    double whole = ndp_now() - start;
    guarded_trainer_destroy(t);
    NDP_CHECK(sum > 0 && sum <= whole, "steps take %g s, all of them %g", sum, whole);
    return NDP_OK;
}

static void late_results_are_the_same(void **state) {
    ndp_config *c = tiny_configure(*state, &layouts[0], "late");
    tiny_set(c, "batch.micro_batch_size=2"); /* several micro-batches */
    steps now = {.config = c}, late = {.config = c, .late = true};
    CHECK_OK(ndp_world_run(c, take_steps, &now));
    CHECK_OK(ndp_world_run(c, take_steps, &late));
    for (int i = 0; i < STEPS; i++) {
        const ndp_metrics *a = &now.metrics[i], *b = &late.metrics[i];
        assert_true(a->step == i + 1 && b->step == a->step && b->lr == a->lr && b->tokens == a->tokens);
        assert_true(b->loss == a->loss && b->grad_norm == a->grad_norm);
    }
    assert_true(now.metrics[0].loss != now.metrics[1].loss);
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_step_that_overflows_changes_nothing, make_wide, tiny_drop),
        cmocka_unit_test_setup_teardown(the_run_stops_and_names_the_step, make_wide, tiny_drop),
        cmocka_unit_test_setup_teardown(late_results_are_the_same, make_wide, tiny_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
