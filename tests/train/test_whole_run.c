/* A whole training run from its configuration to the model folder and back, on 4, 8 and 16 ranks as threads: what the
 * sanitizer builds look at. Random weights on a small text, with recompute; stopped in the middle and resumed; then
 * read back. The data axes in fp32 and bf16 with the stories260K shape, all axes with a smaller one. */
#include "train/guarded_trainer.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_STEPS = 4 };

typedef struct whole {
    const char *name, *precision, *cp_method;
    int size[NDP_AXES]; /* of the axes */
    int layers, hidden, ffn, steps;
} whole;

static const whole wholes[] = {
    {"data-fp32", "fp32", "ring", {1, 2, 2, 1, 1, 1}, 5, 64, 172, 4},
    {"data-bf16", "bf16", "ring", {1, 2, 2, 1, 1, 1}, 5, 64, 172, 4},
    {"heads-and-rows", "fp32", "ring", {1, 1, 1, 2, 2, 2}, 2, 32, 84, 3},
    {"all-axes", "fp32", "all_gather", {1, 2, 2, 2, 1, 2}, 2, 32, 84, 3},
};

static const char model[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 512, \"hidden_size\": %d, "
    "\"num_hidden_layers\": %d, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"intermediate_size\": %d, "
    "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true}";

static int make_folder(void **state) {
    char path[128], *folder = strdup("/tmp/ndp-whole-XXXXXX");
    ndp_str text = {0};
    *state = folder;
    if (!folder || !mkdtemp(folder))
        return -1;
    for (int d = 0; d < 60; d++)
        ndp_str_addf(&text, "Once upon a time there were %d bears and %d foxes, and they shared %d apples.\n%s", d,
                     3 * d, d * d, d % 4 == 3 ? "\n" : "");
    snprintf(path, sizeof path, "%s/corpus.txt", folder);
    ndp_status st = ndp_file_write_atomic(path, text.data, text.length);
    ndp_str_release(&text);
    return st == NDP_OK ? 0 : -1;
}

static int drop_folder(void **state) {
    ndp_status st = ndp_folder_remove(*state);
    free(*state);
    return st == NDP_OK ? 0 : -1;
}

__attribute__((format(printf, 2, 3))) static void set(ndp_config *c, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    CHECK_OK(ndp_config_set(c, text));
}

static void write_model(const char *folder, const whole *w) {
    char *path = ndp_format("%s/%s.json", folder, w->name), *text = ndp_format(model, w->hidden, w->layers, w->ffn);
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
    free(path);
    free(text);
}

static ndp_config *configure(const char *folder, const whole *w) {
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    set(c, "model.config=%s/%s.json", folder, w->name);
    set(c, "data.files=%s/corpus.txt", folder);
    set(c, "data.cache_dir=%s/cache", folder);
    set(c, "data.tokenizer=bytes");
    set(c, "data.sequence_length=96");
    set(c, "precision.compute=%s", w->precision);
    for (int axis = 0; axis < NDP_AXES; axis++)
        set(c, "parallelism.%s_size=%d", ndp_axis_name((ndp_axis)axis), w->size[axis]);
    set(c, "parallelism.cp_method=%s", w->cp_method);
    set(c, "batch.global_batch_size=8");
    set(c, "schedule.name=constant");
    set(c, "train.transport=local");
    set(c, "train.threads=1");
    set(c, "train.recompute=block");
    set(c, "train.steps=%d", w->steps);
    set(c, "train.output_dir=%s/%s", folder, w->name);
    return c;
}

/* ---- the run ---- */

typedef struct run {
    const ndp_config *config;
    ndp_train_opts opts;
    volatile sig_atomic_t stop;
    int64_t stop_after;
    double loss[MOST_STEPS + 1];
    int steps;
} run;

static void progress(void *user, const ndp_metrics *m, int64_t steps) {
    run *r = user;
    (void)steps;
    r->loss[m->step] = m->loss;
    r->steps++;
    if (m->step == r->stop_after)
        __atomic_store_n(&r->stop, 1, __ATOMIC_RELAXED); /* a signal would come to any thread */
}

static ndp_status body(ndp_world *w, void *arg) {
    run *r = arg;
    return ndp_train(r->config, w, &r->opts);
}

static ndp_status train(run *r, bool resume, int64_t stop_after) {
    r->opts = (ndp_train_opts)NDP_TRAIN_OPTS_INIT;
    r->opts.resume = resume;
    r->opts.stop = &r->stop;
    r->opts.progress = progress;
    r->opts.user = r;
    r->stop = 0, r->stop_after = stop_after, r->steps = 0;
    return ndp_world_run(r->config, body, r);
}

/* ---- its model ---- */

typedef struct weights {
    const ndp_config *config;
    int resume; /* the step; 0: from the model folder */
    double *values;
    int64_t n;
} weights;

static ndp_status read_all(ndp_trainer *t, bool first, weights *out) {
    int64_t n, total = 0, at = 0;
    for (int i = 0; i < ndp_trainer_tensors(t); i++)
        total += (ndp_trainer_tensor(t, i, &n), n);
    double *values = malloc((size_t)total * sizeof *values);
    if (!values)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for %lld weights", (long long)total);
    ndp_status st = NDP_OK;
    for (int i = 0; st == NDP_OK && i < ndp_trainer_tensors(t); i++, at += n) {
        ndp_trainer_tensor(t, i, &n);
        st = ndp_trainer_read(t, NDP_WEIGHT, i, values + at);
    }
    if (!first || st != NDP_OK) {
        free(values);
        return st;
    }
    out->values = values, out->n = total;
    return NDP_OK;
}

static ndp_status load(ndp_world *w, void *arg) {
    weights *out = arg;
    ndp_trainer *t;
    int64_t step = -1;
    NDP_TRY(guarded_trainer_create(out->config, w, &t));
    ndp_status st = out->resume ? ndp_trainer_resume(t, NULL, &step) : NDP_OK;
    if (st == NDP_OK && out->resume && step != out->resume)
        st = NDP_FAIL(NDP_EBUG, "the newest checkpoint is of step %lld", (long long)step);
    if (st == NDP_OK)
        st = read_all(t, ndp_world_rank(w) == 0, out);
    guarded_trainer_destroy(t);
    return st;
}

/* The model folder holds what the last checkpoint holds, rounded to the type that it is stored in. */
static void check_model(const ndp_config *c, const char *folder, const whole *w) {
    weights kept = {.config = c, .resume = w->steps}, stored = {0};
    ndp_config *again = configure(folder, w);
    set(again, "model.config=null");
    set(again, "model.init=pretrained");
    set(again, "model.path=%s/%s/model", folder, w->name);
    stored.config = again;
    CHECK_OK(ndp_world_run(c, load, &kept));
    CHECK_OK(ndp_world_run(again, load, &stored));
    assert_int_equal(kept.n, stored.n);
    double rounding = strcmp(w->precision, "bf16") == 0 ? 1.0 / 256 : 0;
    for (int64_t i = 0; i < kept.n; i++)
        if (fabs(kept.values[i] - stored.values[i]) > rounding * fabs(kept.values[i]))
            fail_msg("weight %lld is %.9g in the checkpoint, %.9g in the model", (long long)i, kept.values[i],
                     stored.values[i]);
    free(kept.values);
    free(stored.values);
    ndp_config_destroy(again);
}

static void check_evaluation(const char *folder, const whole *w, double loss) {
    char path[256], data[256];
    snprintf(path, sizeof path, "%s/%s/model", folder, w->name);
    snprintf(data, sizeof data, "%s/corpus.txt", folder);
    ndp_evaluate_opts o = NDP_EVALUATE_OPTS_INIT;
    ndp_evaluation e;
    o.model = path, o.data = (const char *const[]){data}, o.data_count = 1, o.sequence_length = 96, o.threads = 1;
    CHECK_OK(ndp_evaluate(&o, &e, NULL));
    if (!(fabs(e.mean_nll - loss) < 0.5))
        fail_msg("trained to a loss of %g, evaluated to %g", loss, e.mean_nll);
}

/* ---- all of it ---- */

static void whole_run(const char *folder, const whole *w) {
    write_model(folder, w);
    ndp_config *c = configure(folder, w);
    run r = {.config = c};
    assert_int_equal(train(&r, false, w->steps / 2), NDP_EINTR);
    assert_int_equal(r.steps, w->steps / 2);
    CHECK_OK(train(&r, true, 0));
    assert_int_equal(r.steps, w->steps - w->steps / 2);
    if (!(r.loss[w->steps] < r.loss[1] && r.loss[1] < 7))
        fail_msg("the loss went from %g to %g", r.loss[1], r.loss[w->steps]);
    check_model(c, folder, w);
    check_evaluation(folder, w, r.loss[w->steps]);
    ndp_config_destroy(c);
}

static void data_fp32(void **state) { whole_run(*state, &wholes[0]); }
static void data_bf16(void **state) { whole_run(*state, &wholes[1]); }
static void heads_and_rows(void **state) { whole_run(*state, &wholes[2]); } /* 8 ranks */
static void all_axes(void **state) { whole_run(*state, &wholes[3]); }       /* 16 */

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(data_fp32), cmocka_unit_test(data_bf16),
                                       cmocka_unit_test(heads_and_rows), cmocka_unit_test(all_axes)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
