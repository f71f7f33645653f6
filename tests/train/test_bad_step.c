/* Checked steps: what a check names is where a weight was made NaN, on all layouts; sound steps have nothing to name; a
 * run whose steps are checked, and so updated late, has the bits of one that is not. The norms of the layers' gradients
 * together are the gradient's norm. */
#include "base/json.h"
#include "train/started_run.h"
#include "train/tiny_run.h"
#include "train/trainer.h"
#include "weights/weights.h"

#include <math.h>

typedef struct layout_case {
    tiny_layout axes;
    const char *sets[4];
} layout_case;

static const layout_case layouts[] = {
    {{"one", 1, 1, 1, 1}, {NULL}},
    {{"two-axes", 2, 2, 1, 1}, {"optimizer.name=muon"}},
    {{"context", 1, 1, 2, 1}, {"batch.micro_batch_size=2", "train.recompute=block"}},
    {{"tensor-stages", 1, 1, 1, 2}, {"parallelism.pp_size=2", "batch.micro_batch_size=2"}},
    {{"sequence", 1, 1, 1, 1}, {"parallelism.sp_size=2", "precision.compute=bf16"}},
    {{"shard-bubbles", 1, 2, 1, 1},
     {"parallelism.pp_size=2", "pipeline.schedule=zero_bubble", "batch.micro_batch_size=1",
      "optimizer.name=adamw8bit"}},
    {{"lora", 1, 2, 1, 2}, {"adapter.type=lora"}},
    {{"queue", 1, 2, 1, 1}, {"train.device=sim", "train.share_gpu=true"}},
    {{"reference", 1, 1, 1, 2}, {"train.device=ref", "precision.compute=fp64"}},
};

static ndp_config *configure(const char *folder, const layout_case *l, const char *run) {
    ndp_config *c = tiny_configure(folder, &l->axes, run);
    for (int i = 0; i < NDP_COUNT(l->sets) && l->sets[i]; i++)
        tiny_set(c, "%s", l->sets[i]);
    return c;
}

/* ---- sound steps ---- */

static int lines_with(const char *folder, const char *run, const char *word) {
    char *path = ndp_format("%s/%s/metrics.jsonl", folder, run), *text;
    size_t size;
    int n = 0;
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (const char *at = text; (at = strstr(at, word)); at++)
        n++;
    free(text);
    free(path);
    return n;
}

/* Lines of every fifth step have norms of layers. */
static void check_norms(const char *folder, const char *run) {
    char *path = ndp_format("%s/%s/metrics.jsonl", folder, run), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct json_object *o = NULL;
        double squares = 0, norm;
        CHECK_OK(ndp_json_parse(line, strlen(line), path, &o));
        CHECK_OK(ndp_json_double(o, path, "grad_norm", &norm));
        json_object_object_foreach(o, key, value) squares +=
            strncmp(key, "grad_norm/", 10) == 0 ? pow(json_object_get_double(value), 2) : 0;
        bool measured = json_object_get_int64(json_object_object_get(o, "step")) % 5 == 0;
        if (measured ? fabs(sqrt(squares) - norm) > 1e-12 * norm : squares != 0)
            fail_msg("%s: the layers have %.17g, all %.17g", line, sqrt(squares), norm);
        json_object_put(o);
    }
    free(text);
    free(path);
}

/* Losses that go up and down about their mean: some are above it. */
static void checks_change_no_bit(void **state) {
    const char *folder = *state;
    enum { STEPS = 26 };
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        if (left_out())
            continue;
        const layout_case *l = &layouts[i];
        const char *part = strcmp(l->axes.name, "lora") == 0 ? "adapter" : "model";
        char *plain = ndp_format("%s-plain", l->axes.name);
        const char *runs[] = {plain, l->axes.name};
        for (int k = 0; k < 2; k++) {
            ndp_config *c = configure(folder, l, runs[k]);
            tiny_set(c, "train.steps=%d", STEPS);
            tiny_set(c, "optimizer.lr=1e-6");
            tiny_set(c, "checkpoint.every=0");
            tiny_set(c, "train.spike=%g", k ? 1e-9 : 0.0);
            tiny_set(c, "train.layer_norms_every=%d", k ? 5 : 0);
            run_started((started_run){.config = c, .from = -1});
            ndp_config_destroy(c);
        }
        char *one = tiny_metrics(folder, plain), *other = tiny_metrics(folder, l->axes.name);
        assert_string_equal(one, other);
        assert_true(tiny_same_weights(folder, l->axes.name, plain, part));
        assert_int_equal(lines_with(folder, plain, "\"cause\""), 0);
        check_norms(folder, l->axes.name);
        int checked = lines_with(folder, l->axes.name, "\"cause\": \"all values are finite; the largest loss");
        if (checked < 1 || checked != lines_with(folder, l->axes.name, "\"cause\""))
            fail_msg("%s: %d of %d checks found nothing", l->axes.name, checked,
                     lines_with(folder, l->axes.name, "\"cause\""));
        free(one);
        free(other);
        free(plain);
    }
}

/* ---- a weight that is NaN ---- */

/* An element of a tensor, as files have it. */
typedef struct victim {
    const char *name;
    int row, column, columns; /* columns: of the tensor; 0: it is a vector */
} victim;

typedef struct tensors {
    ndp_trainer *trainer;
    double *values[64];
} tensors;

static ndp_status read_poisoned(void *user, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    const tensors *all = user;
    int i = 0;
    while (strcmp(ndp_trainer_tensor(all->trainer, i, NULL), s->name) != 0)
        i++;
    for (int64_t k = 0; k < count; k++)
        if (all->trainer->model.opts.master == NDP_F64)
            ((double *)out)[k] = all->values[i][first + k];
        else
            ((float *)out)[k] = (float)all->values[i][first + k];
    return NDP_OK;
}

static ndp_status poison(ndp_trainer *t, const victim *v) {
    tensors all = {.trainer = t};
    int64_t n;
    for (int i = 0; ndp_trainer_tensor(t, i, &n); i++) {
        NDP_CHECK(i < NDP_COUNT(all.values) && (all.values[i] = calloc((size_t)n, sizeof(double))), "too many tensors");
        NDP_TRY(ndp_trainer_read(t, NDP_WEIGHT, i, all.values[i]));
        if (strcmp(ndp_trainer_tensor(t, i, NULL), v->name) == 0)
            all.values[i][v->row * v->columns + v->column] = NAN;
    }
    NDP_TRY(ndp_engine_fill(t->engine, NDP_OWNED_MASTER, NDP_TENSORS_RUN, read_poisoned, &all));
    for (int i = 0; i < NDP_COUNT(all.values); i++)
        free(all.values[i]);
    return ndp_engine_publish(t->engine);
}

typedef struct found {
    const ndp_config *config;
    const victim *victim;
    ndp_checks checks, sound;
} found;

static ndp_status check_poisoned(ndp_world *w, void *user) {
    found *f = user;
    ndp_trainer *t;
    ndp_metrics m;
    ndp_checks sound, checks;
    NDP_TRY(ndp_trainer_create(f->config, w, &t));
    ndp_status st = ndp_trainer_step(t, &m);
    if (st == NDP_OK)
        st = ndp_trainer_check_step(t, 1, &sound);
    if (st == NDP_OK)
        st = poison(t, f->victim);
    if (st == NDP_OK)
        st = ndp_trainer_check_step(t, 1, &checks);
    if (st == NDP_OK && ndp_world_rank(w) == 0)
        f->checks = checks, f->sound = sound;
    ndp_trainer_destroy(t);
    return st;
}

/* The first op that reads the weight is named, of micro-batch 0. */
static void check_named(const char *folder, const char *what, ndp_config *c, const victim *of) {
    found f = {.config = c, .victim = of};
    CHECK_OK(ndp_world_run(c, check_poisoned, &f));
    const ndp_found_value *v = &f.checks.bad.value;
    ndp_str text = {0};
    ndp_checks_describe(&f.checks, &text);
    char *name = of->columns ? ndp_format("weight %s[%d,%d]", of->name, of->row, of->column)
                             : ndp_format("weight %s[%d]", of->name, of->column);
    if (strcmp(v->tensor, name) != 0 || strncmp(v->where, "layers.1, forward", 17) != 0 || v->micro_batch != 0 ||
        !isnan(v->value))
        fail_msg("%s, %s: %s", what, name, text.data);
    ndp_str sound = {0};
    ndp_checks_describe(&f.sound, &sound);
    if (f.sound.bad.value.order != INT64_MAX)
        fail_msg("%s, %s: a sound step has %s", what, name, sound.data);
    ndp_str_release(&sound);
    assert_true(f.sound.worst.value.value > 0 && f.sound.worst.record[0] && f.sound.largest.record[0]);
    free(name);
    ndp_str_release(&text);
    tiny_remove(folder, "poisoned");
    ndp_config_destroy(c);
}

static void the_weight_is_named(void **state) {
    static const victim up = {"model.layers.1.mlp.up_proj.weight", 37, 5, 32};
    for (int i = 0; i < NDP_COUNT(layouts); i++)
        if (!left_out() &&
            strcmp(layouts[i].axes.name, "lora") != 0) /* its weights are frozen: no segment of the run */
            check_named(*state, layouts[i].axes.name, configure(*state, &layouts[i], "poisoned"), &up);
}

/* Experts in stacks, transposed and fused tensors, biases. */
static void weights_of_families_are_named(void **state) {
    static const struct {
        const char *config;
        victim of[3];
    } families[] = {
        {"\"model_type\": \"mixtral\", \"architectures\": [\"MixtralForCausalLM\"], \"num_local_experts\": 4, "
         "\"num_experts_per_tok\": 2, \"intermediate_size\": 20",
         {{"model.layers.1.self_attn.v_proj.weight", 9, 30, 32},
          {"model.layers.1.block_sparse_moe.experts.2.w3.weight", 11, 6, 32},
          {"model.layers.1.block_sparse_moe.gate.weight", 3, 31, 32}}},
        {"\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_embd\": 32, \"n_head\": 4, "
         "\"n_layer\": 2, "
         "\"n_positions\": 64, \"layer_norm_epsilon\": 1e-5",
         {{"transformer.h.1.mlp.c_fc.weight", 7, 100, 128},
          {"transformer.h.1.attn.c_attn.weight", 3, 70, 96},
          {"transformer.h.1.mlp.c_fc.bias", 0, 77, 0}}},
        {"\"model_type\": \"phi3\", \"architectures\": [\"Phi3ForCausalLM\"], \"intermediate_size\": 44",
         {{"model.layers.1.self_attn.qkv_proj.weight", 60, 3, 32},
          {"model.layers.1.mlp.gate_up_proj.weight", 80, 1, 32}}},
        {"\"model_type\": \"gpt_neox\", \"architectures\": [\"GPTNeoXForCausalLM\"], \"intermediate_size\": 44, "
         "\"rotary_pct\": 0.5",
         {{"gpt_neox.layers.1.attention.query_key_value.weight", 61, 3, 32},
          {"gpt_neox.layers.1.attention.query_key_value.bias", 0, 77, 0}}},
    };
    static const layout_case cuts[] = {
        {{"one", 1, 1, 1, 1}, {NULL}}, {{"tensor", 1, 1, 1, 2}, {NULL}}, {{"both", 1, 2, 1, 2}, {NULL}}};
    for (int i = 0; i < NDP_COUNT(families) * NDP_COUNT(cuts) * 3; i++) {
        const victim *of = &families[i % NDP_COUNT(families)].of[i / NDP_COUNT(families) % 3];
        const layout_case *l = &cuts[i / NDP_COUNT(families) / 3];
        char *json =
            ndp_format("{%s, \"vocab_size\": 258, \"hidden_size\": 32, \"num_hidden_layers\": 2, "
                       "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": 64, "
                       "\"rms_norm_eps\": 1e-5, \"bos_token_id\": 256, \"eos_token_id\": 257}",
                       families[i % NDP_COUNT(families)].config);
        if (of->name) {
            tiny_put(*state, "family.json", json);
            ndp_config *c = configure(*state, l, "poisoned");
            tiny_set(c, "model.config=%s/family.json", (char *)*state);
            check_named(*state, l->axes.name, c, of);
        }
        free(json);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(checks_change_no_bit, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(the_weight_is_named, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(weights_of_families_are_named, tiny_make, tiny_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
