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

static const char victim[] = "model.layers.1.mlp.up_proj.weight";
enum { ROW = 37, COLUMN = 5, COLUMNS = 32 };

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

static ndp_status poison(ndp_trainer *t) {
    tensors all = {.trainer = t};
    int64_t n;
    for (int i = 0; ndp_trainer_tensor(t, i, &n); i++) {
        NDP_CHECK(i < NDP_COUNT(all.values) && (all.values[i] = calloc((size_t)n, sizeof(double))), "too many tensors");
        NDP_TRY(ndp_trainer_read(t, NDP_WEIGHT, i, all.values[i]));
        if (strcmp(ndp_trainer_tensor(t, i, NULL), victim) == 0)
            all.values[i][ROW * COLUMNS + COLUMN] = NAN;
    }
    NDP_TRY(ndp_engine_fill(t->engine, NDP_OWNED_MASTER, NDP_TENSORS_RUN, read_poisoned, &all));
    for (int i = 0; i < NDP_COUNT(all.values); i++)
        free(all.values[i]);
    return ndp_engine_publish(t->engine);
}

typedef struct found {
    const ndp_config *config;
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
        st = poison(t);
    if (st == NDP_OK)
        st = ndp_trainer_check_step(t, 1, &checks);
    if (st == NDP_OK && ndp_world_rank(w) == 0)
        f->checks = checks, f->sound = sound;
    ndp_trainer_destroy(t);
    return st;
}

static void the_weight_is_named(void **state) {
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        const layout_case *l = &layouts[i];
        if (left_out() || strcmp(l->axes.name, "lora") == 0) /* its weights are frozen: no segment of the run */
            continue;
        ndp_config *c = configure(*state, l, "poisoned");
        found f = {.config = c};
        CHECK_OK(ndp_world_run(c, check_poisoned, &f));
        const ndp_found_value *v = &f.checks.bad.value;
        ndp_str text = {0};
        ndp_checks_describe(&f.checks, &text);
        char *name = ndp_format("weight %s[%d,%d]", victim, ROW, COLUMN);
        if (strcmp(v->tensor, name) != 0 || strncmp(v->where, "layers.1, forward", 17) != 0 || v->micro_batch != 0 ||
            strcmp(v->op, "linear") != 0 || !isnan(v->value) || !strstr(text.data, " of document "))
            fail_msg("%s: %s", l->axes.name, text.data);
        assert_true(f.sound.bad.value.order == INT64_MAX);
        /* the extremes are those of one rank, whatever the layout */
        assert_true(f.sound.worst.value.value > 0 && f.sound.worst.record[0] && f.sound.largest.record[0]);
        free(name);
        ndp_str_release(&text);
        tiny_remove(*state, "poisoned");
        ndp_config_destroy(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(checks_change_no_bit, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(the_weight_is_named, tiny_make, tiny_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
