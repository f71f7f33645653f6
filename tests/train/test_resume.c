/* Proof 4 and checkpoints: the same run twice is the same to the last bit; a run that was cut and resumed goes on to
 * the last bit on its layout, within the bounds of proof 3 on another; an exported model is the model that was trained.
 */
#include "train/invariance.h"

enum { CUT = 10 };

/* Small samples of the odd model. */
static subject short_rows(const corpus *c, const char *name, const char *precision) {
    subject s = odd_subject(c, name, precision);
    s.length = 40, s.window = 16;
    return s;
}

static way layout(int replicate, int shard) {
    return (way){
        .replicate = replicate, .shard = shard, .global = 12, .accumulation = 12 / (replicate * shard), .threads = 1};
}

/* ---- the same run twice ---- */

static void check_repeat(const corpus *c, const char *precision, way w) {
    subject s = short_rows(c, "twice", precision);
    s.steps = 8;
    outcome a = train(&s, &w), b = train(&s, &w);
    assert_true(same_bits(&a, &b));
    outcome_release(&a);
    outcome_release(&b);
}

static void repeat_fp32(void **state) { check_repeat(*state, "fp32", layout(2, 2)); }
static void repeat_bf16(void **state) { check_repeat(*state, "bf16", layout(2, 2)); }
static void repeat_threads(void **state) {
    way w = layout(1, 1);
    w.accumulation = 1, w.threads = 2; /* rows enough for both */
    check_repeat(*state, "fp32", w);
    check_repeat(*state, "bf16", w);
}

/* ---- cut and resumed ---- */

/* Steps first .. last-1 of a run: from the checkpoint in `folder` unless first is 0, to one there unless last is all.
 */
typedef struct part {
    running r;
    const char *folder;
    int first, last;
} part;

static ndp_status train_part(ndp_trainer *t, const part *p, outcome *o) {
    if (p->first > 0) {
        int64_t step;
        NDP_TRY(ndp_trainer_resume(t, p->folder, &step));
        if (step != p->first || ndp_trainer_updates(t) != p->first)
            return NDP_FAIL(NDP_EBUG, "resumed from step %d, expected %d", (int)step, p->first);
    }
    for (int s = p->first; s < p->last; s++)
        NDP_TRY(ndp_outcome_step(&o->of, t));
    return p->last < p->r.subject->steps ? ndp_trainer_save(t, p->folder) : NDP_OK;
}

static ndp_status run_part(ndp_world *w, void *arg) {
    const part *p = arg;
    ndp_trainer *t;
    bool first = ndp_world_rank(w) == 0;
    outcome mine = {0}, *o = first ? p->r.out : &mine;
    NDP_TRY(ndp_trainer_create(p->r.config, w, &t));
    ndp_status st = o->of.n == 0 ? ndp_outcome_init(&o->of, t, p->r.subject->steps, first) : NDP_OK;
    if (st == NDP_OK)
        st = train_part(t, p, o);
    ndp_trainer_destroy(t);
    outcome_release(&mine);
    return st;
}

static void do_part(const subject *s, const way *w, const char *folder, int first, int last, outcome *o) {
    ndp_config *c = configure(s, w);
    part p = {.r = {s, w, c, o}, .folder = folder, .first = first, .last = last};
    CHECK_OK(ndp_world_run(c, run_part, &p));
    ndp_config_destroy(c);
}

/* CUT steps one way, saved, and the others another way. */
static outcome train_in_two(const corpus *c, const subject *s, const way *before, const way *after) {
    outcome o = {0};
    char *folder = ndp_format("%s/checkpoints-%s", c->folder, s->name);
    do_part(s, before, folder, 0, CUT, &o);
    do_part(s, after, folder, CUT, s->steps, &o);
    free(folder);
    return o;
}

static void check_resume(const corpus *c, const char *name, const char *precision, const char *optimizer, way w) {
    subject s = short_rows(c, name, precision);
    s.optimizer = optimizer;
    s.momentum = strcmp(optimizer, "sgd") == 0 ? 0.9 : 0.0;
    outcome whole = train(&s, &w), cut = train_in_two(c, &s, &w, &w);
    assert_true(same_bits(&cut, &whole));
    outcome_release(&whole);
    outcome_release(&cut);
}

static void resume_one_rank(void **state) { check_resume(*state, "one", "fp32", "adamw", layout(1, 1)); }
static void resume_adamw(void **state) { check_resume(*state, "adamw", "fp32", "adamw", layout(2, 2)); }
static void resume_sgd(void **state) { check_resume(*state, "sgd", "fp32", "sgd", layout(2, 2)); }
static void resume_bf16(void **state) { check_resume(*state, "bf16", "bf16", "adamw", layout(2, 2)); }

static void resume_elsewhere(void **state) {
    subject s = short_rows(*state, "elsewhere", "fp32");
    way four = layout(2, 2), three = layout(1, 3);
    outcome whole = train(&s, &four), cut = train_in_two(*state, &s, &four, &three);
    ndp_bounds bounds = bounds_of(&s, &four);
    ndp_difference d = compare(&cut, &whole, bounds.of);
    char words[512];
    const char *bad = ndp_difference_words(&d, words, sizeof words);
    if (bad)
        fail_msg("from 2 x 2 to 1 x 3: %s", bad);
    assert_false(same_bits(&cut, &whole)); /* it was another layout */
    outcome_release(&whole);
    outcome_release(&cut);
}

/* The cursor of a checkpoint counts rows: other rows are refused. */
static ndp_status resume_only(ndp_world *w, void *arg) {
    const part *p = arg;
    ndp_trainer *t;
    int64_t step;
    NDP_TRY(ndp_trainer_create(p->r.config, w, &t));
    ndp_status st = ndp_trainer_resume(t, p->folder, &step);
    ndp_trainer_destroy(t);
    return st;
}

static void resume_other_data(void **state) {
    const corpus *c = *state;
    subject s = short_rows(c, "other data", "fp32");
    way w = layout(1, 2);
    outcome o = {0};
    char *folder = ndp_format("%s/checkpoints-other", c->folder);
    do_part(&s, &w, folder, 0, 1, &o);
    s.length = 65;
    ndp_config *config = configure(&s, &w);
    part p = {.r = {&s, &w, config, NULL}, .folder = folder};
    CHECK_FAILS(ndp_world_run(config, resume_only, &p), NDP_EINVAL, "was made with data of rows");
    ndp_config_destroy(config);
    outcome_release(&o);
    free(folder);
}

/* ---- the whole loop, stopped by a signal's flag ---- */

typedef struct loop_run {
    const ndp_config *config;
    bool resume;
    int stop_at; /* step; 0: never */
    volatile sig_atomic_t stop;
} loop_run;

static void maybe_stop(void *user, const ndp_metrics *m, int64_t steps) {
    loop_run *l = user;
    (void)steps;
    l->stop = m->step == l->stop_at;
}

static ndp_status run_loop(ndp_world *w, void *arg) {
    loop_run *l = arg;
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    o.resume = l->resume;
    o.user = l;
    o.progress = maybe_stop;
    if (ndp_world_rank(w) == 0) /* the others hear of it from this one */
        o.stop = &l->stop;
    return ndp_train(l->config, w, &o);
}

/* Losses and norms of FOLDER/metrics.jsonl, as they were written; returns the number of lines. */
static int read_metrics(const char *folder, double *loss, double *norm) {
    char *path = ndp_format("%s/metrics.jsonl", folder), *text;
    size_t size;
    int n = 0;
    CHECK_OK(ndp_file_read(path, &text, &size));
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        struct json_object *o, *value;
        assert_true(n < MOST_STEPS);
        CHECK_OK(ndp_json_parse(line, (size_t)(end - line), path, &o));
        assert_true(json_object_object_get_ex(o, "step", &value) && json_object_get_int(value) == n + 1);
        CHECK_OK(ndp_json_double(o, path, "loss", &loss[n]));
        CHECK_OK(ndp_json_double(o, path, "grad_norm", &norm[n]));
        json_object_put(o);
    }
    free(text);
    free(path);
    return n;
}

static void check_same_file(const char *a, const char *b, const char *name) {
    char *paths[] = {ndp_format("%s/model/%s", a, name), ndp_format("%s/model/%s", b, name)}, *texts[2];
    size_t sizes[2];
    for (int i = 0; i < 2; i++)
        CHECK_OK(ndp_file_read(paths[i], &texts[i], &sizes[i]));
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(texts[0], texts[1], sizes[0]);
    for (int i = 0; i < 2; i++) {
        free(paths[i]);
        free(texts[i]);
    }
}

static void stopped_loop(void **state) {
    const corpus *c = *state;
    subject s = short_rows(c, "loop", "fp32");
    s.steps = 12;
    way w = layout(2, 2);
    char *folders[] = {ndp_format("%s/whole", c->folder), ndp_format("%s/stopped", c->folder)};
    double loss[2][MOST_STEPS] = {{0}}, norm[2][MOST_STEPS] = {{0}};
    for (int i = 0; i < 2; i++) {
        ndp_config *config = configure(&s, &w);
        set(config, "train.output_dir=%s", folders[i]);
        if (i == 1) {
            CHECK_FAILS(ndp_world_run(config, run_loop, &(loop_run){.config = config, .stop_at = 5}), NDP_EINTR,
                        "stopped after step 5");
            assert_int_equal(read_metrics(folders[i], loss[i], norm[i]), 5);
        }
        CHECK_OK(ndp_world_run(config, run_loop, &(loop_run){.config = config, .resume = i == 1}));
        assert_int_equal(read_metrics(folders[i], loss[i], norm[i]), s.steps);
        ndp_config_destroy(config);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(norm[0], norm[1], sizeof norm[0]);
    check_same_file(folders[0], folders[1], "model.safetensors");
    check_same_file(folders[0], folders[1], "config.json");
    free(folders[0]);
    free(folders[1]);
}

/* ---- the exported model ---- */

typedef struct exporting {
    const ndp_config *config;
    const char *folder;
    int steps;   /* before the export */
    double loss; /* of the step after it */
} exporting;

static ndp_status export_rank(ndp_world *w, void *arg) {
    exporting *x = arg;
    ndp_trainer *t;
    ndp_metrics m;
    NDP_TRY(ndp_trainer_create(x->config, w, &t));
    ndp_status st = NDP_OK;
    for (int s = 0; s < x->steps && st == NDP_OK; s++)
        st = ndp_trainer_step(t, &m);
    if (st == NDP_OK && x->folder)
        st = ndp_trainer_export(t, x->folder);
    if (st == NDP_OK)
        st = ndp_trainer_step(t, &m);
    ndp_trainer_destroy(t);
    if (ndp_world_rank(w) == 0)
        x->loss = m.loss;
    return st;
}

/* Four rows, all of them in every update: the loss of a step depends on the weights alone. */
static void check_export(const corpus *c, const char *precision) {
    char *text = ndp_format("%s/rows.txt", c->folder), *folder = ndp_format("%s/model-%s", c->folder, precision),
         letters[159];
    for (int i = 0; i < NDP_COUNT(letters); i++)
        letters[i] = (char)('a' + i * i % 23);
    CHECK_OK(ndp_file_write_atomic(text, letters, sizeof letters)); /* and a BOS */
    subject s = short_rows(c, "export", precision);
    s.data = text;
    way w = {.replicate = 2, .shard = 2, .global = 4, .accumulation = 1, .threads = 1};
    ndp_config *config = configure(&s, &w);
    exporting trained = {config, folder, 3, 0}, loaded = {.folder = NULL};
    CHECK_OK(ndp_world_run(config, export_rank, &trained));
    ndp_config_destroy(config);
    s.model = "model.path", s.path = folder, s.tokenizer = NULL; /* the folder's own */
    w = (way){.replicate = 1, .shard = 1, .global = 4, .accumulation = 4, .threads = 1};
    loaded.config = config = configure(&s, &w);
    CHECK_OK(ndp_world_run(config, export_rank, &loaded));
    ndp_config_destroy(config);
    printf("%s: loss %.15g where it was trained, %.15g where it was loaded\n", precision, trained.loss, loaded.loss);
    assert_true(trained.loss < 6.2 && fabs(loaded.loss / trained.loss - 1) < 1e-12);
    free(text);
    free(folder);
}

static void export_fp32(void **state) { check_export(*state, "fp32"); }
static void export_bf16(void **state) { check_export(*state, "bf16"); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeat_fp32),     cmocka_unit_test(repeat_bf16),      cmocka_unit_test(repeat_threads),
        cmocka_unit_test(resume_one_rank), cmocka_unit_test(resume_adamw),     cmocka_unit_test(resume_sgd),
        cmocka_unit_test(resume_bf16),     cmocka_unit_test(resume_elsewhere), cmocka_unit_test(resume_other_data),
        cmocka_unit_test(stopped_loop),    cmocka_unit_test(export_fp32),      cmocka_unit_test(export_bf16)};
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
