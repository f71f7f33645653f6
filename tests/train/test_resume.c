/* Proof 4 and checkpoints: the same run twice is the same to the last bit; a run that was cut and resumed goes on to
 * the last bit on its layout, within the bounds of proof 3 on another; an exported model is the model that was trained.
 */
#include "checkpoint/safetensors.h"
#include "train/guarded_trainer.h"
#include "verify/families.h"
#include "verify/invariance.h"

enum { UPDATES = 6, CUT = 3 };

/* Small samples of the odd model. */
static subject short_rows(const corpus *c, const char *name, const char *precision) {
    subject s = odd_subject(c, name, precision);
    s.length = 40, s.window = 16, s.steps = UPDATES;
    return s;
}

/* A layout, with updates of 12 samples, in micro-batches of one unless it says otherwise. */
static way twelve(way w) {
    ndp_layout l = layout_of(&w);
    w.global = 12, w.threads = 1;
    w.accumulation = w.accumulation ? w.accumulation : 12 / data_ranks_of(&l);
    return w;
}

static const way one = {.replicate = 1}, data = {.replicate = 2, .shard = 2},
                 tensor_data = {.shard = 2, .tp = 2, .accumulation = 3},
                 tensor_context = {.cp = 2, .tp = 2, .accumulation = 4},
                 every = {.cp = 2, .sp = 2, .tp = 2, .accumulation = 4};

/* ---- the same run twice ---- */

static void check_repeat(const corpus *c, const char *precision, way w) {
    subject s = short_rows(c, "twice", precision);
    outcome a = train(&s, &w), b = train(&s, &w);
    assert_true(same_bits(&a, &b));
    outcome_release(&a);
    outcome_release(&b);
}

static void repeat_fp32(void **state) { check_repeat(*state, "fp32", twelve(data)); }
static void repeat_bf16(void **state) { check_repeat(*state, "bf16", twelve(data)); }
static void repeat_every_axis(void **state) {
    check_repeat(*state, "fp32", twelve(every));
    check_repeat(*state, "bf16", twelve(every));
}
static void repeat_threads(void **state) {
    way w = twelve(one);
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
    NDP_TRY(guarded_trainer_create(p->r.config, w, &t));
    ndp_status st = o->of.n == 0 ? ndp_outcome_init(&o->of, t, p->r.subject->steps, first) : NDP_OK;
    if (st == NDP_OK)
        st = train_part(t, p, o);
    guarded_trainer_destroy(t);
    outcome_release(&mine);
    return st;
}

static void do_part(const subject *s, const way *w, const char *folder, int first, int last, outcome *o) {
    ndp_config *c = configure(s, w);
    part p = {.r = {.subject = s, .way = w, .config = c, .out = o}, .folder = folder, .first = first, .last = last};
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

static double momentum_of(const char *optimizer) {
    return strcmp(optimizer, "sgd") == 0 ? 0.9 : strcmp(optimizer, "muon") == 0 ? 0.95 : 0;
}

static void check_resume(const corpus *c, const char *name, const char *precision, const char *optimizer, way w) {
    subject s = short_rows(c, name, precision);
    s.optimizer = optimizer;
    s.momentum = momentum_of(optimizer);
    outcome whole = train(&s, &w), cut = train_in_two(c, &s, &w, &w);
    assert_true(same_bits(&cut, &whole));
    outcome_release(&whole);
    outcome_release(&cut);
}

/* A family cut and resumed: the same bits on the same layout, on another within the bounds of proof 3. `moe`: keys. */
static void check_mixture(const corpus *c, const char *name, const char *moe, const way *before, const way *after) {
    char *path, text[2][WAY_TEXT];
    subject s = family_subject(c, family_called(name), "fp32", &path);
    s.steps = UPDATES, s.moe = moe;
    outcome whole = train(&s, before), cut = train_in_two(c, &s, before, before), moved;
    assert_true(same_bits(&cut, &whole));
    moved = train_in_two(c, &s, before, after);
    ndp_bounds bounds = bounds_of(&s, before);
    ndp_difference d = compare(&moved, &whole, &bounds);
    char words[512];
    const char *bad = ndp_difference_words(&d, words, sizeof words);
    if (bad)
        fail_msg("%s from %s to %s: %s", name, way_text(before, text[0]), way_text(after, text[1]), bad);
    outcome_release(&whole);
    outcome_release(&cut);
    outcome_release(&moved);
    free(path);
}

static void check_family(const corpus *c, const char *name, const way *before, const way *after) {
    check_mixture(c, name, NULL, before, after);
}

/* Biases of routers that move are a state. */
static void resume_biases(void **state) {
    way shared = twelve((way){.shard = 4, .ep = 2, .accumulation = 3}), other = twelve(tensor_context);
    check_mixture(*state, "glm4_moe", "bias_rate=0.05", &shared, &other);
}

/* Fused and transposed tensors in checkpoints: other runs of elements on another layout. */
static void resume_gpt2(void **state) {
    way four = twelve(data), three = {.shard = 3, .global = 12, .accumulation = 2, .threads = 1};
    check_family(*state, "gpt2", &four, &three);
}

/* Tensors of experts, which are matrices of a stack here. */
static void resume_experts(void **state) {
    way pipeline = twelve((way){.pp = 2, .shard = 2, .accumulation = 3}), other = twelve(tensor_context);
    check_family(*state, "mixtral", &pipeline, &other);
}

/* Experts shared by other ranks than before, by fewer, or by one alone. */
static void resume_shared_experts(void **state) {
    const way moves[][2] = {
        {{.shard = 4, .ep = 4, .accumulation = 3}, {.shard = 2, .tp = 2, .ep = 2}},
        {{.shard = 2, .ep = 2}, one},
        {{.pp = 2, .shard = 2, .ep = 2, .accumulation = 3}, {.cp = 2, .tp = 2, .ep = 4, .accumulation = 4}},
        {one, {.cp = 2, .ep = 2, .accumulation = 4}}};
    for (int i = 0; i < NDP_COUNT(moves); i++) {
        way before = twelve(moves[i][0]), after = twelve(moves[i][1]);
        if (!left_out())
            check_family(*state, i % 2 ? "mixtral" : "qwen3_moe", &before, &after);
    }
}

/* A checkpoint has the weights of frozen tensors, and no state of them. */
static void check_frozen_tensors(const corpus *c, const char *name) {
    char *folder = ndp_format("%s/checkpoints-%s", c->folder, name);
    ndp_checkpoint *k;
    CHECK_OK(ndp_checkpoint_open(folder, CUT, &k));
    assert_non_null(ndp_checkpoint_find(k, "model.layers.0.mlp.down_proj.weight"));
    assert_null(ndp_checkpoint_find(k, "optimizer.m.model.layers.0.mlp.down_proj.weight"));
    ndp_checkpoint_close(k);
    free(folder);
}

/* With frozen units, or some tensors trained: the same bits, and on another layout what one rank makes. */
static void resume_frozen(void **state) {
    static const char *const precisions[] = {"fp32", "bf16"};
    for (int k = 0; k < 4; k++) {
        static const char *const names[] = {"frozen", "frozen-bf16", "trained", "trained-bf16"};
        int i = k % 2;
        subject s = short_rows(*state, names[k], precisions[i]);
        s.frozen = k < 2 ? "[embed, layers.0, layers.2]" : NULL;
        s.trained = k < 2 ? NULL : "['*.[12].mlp.*', o_proj, norm]";
        way four = twelve(data), tensor = twelve(tensor_data);
        outcome whole = train(&s, &four), cut = train_in_two(*state, &s, &four, &four);
        assert_true(same_bits(&cut, &whole));
        check_frozen_tensors(*state, names[k]);
        outcome_release(&cut);
        cut = train_in_two(*state, &s, &four, &tensor);
        ndp_bounds bounds = bounds_of(&s, &four);
        ndp_difference d = compare(&cut, &whole, &bounds);
        char words[512];
        const char *bad = i ? NULL : ndp_difference_words(&d, words, sizeof words); /* bf16: its bounds are measured */
        if (bad)
            fail_msg("%s on another layout: %s", names[k], bad);
        outcome_release(&whole);
        outcome_release(&cut);
    }
}

/* A checkpoint of an adapter has no weights of the base: a resumed run packs those of its model again, on another
 * layout as well. */
static void check_tensors_of_packed(const corpus *c, const char *name) {
    char *folder = ndp_format("%s/checkpoints-%s", c->folder, name);
    ndp_checkpoint *k;
    CHECK_OK(ndp_checkpoint_open(folder, CUT, &k));
    assert_null(ndp_checkpoint_find(k, "model.layers.0.self_attn.q_proj.weight"));
    assert_null(ndp_checkpoint_find(k, "model.layers.4.mlp.down_proj.weight"));
    assert_null(ndp_checkpoint_find(k, "model.embed_tokens.weight"));
    assert_non_null(ndp_checkpoint_find(k, "base_model.model.model.layers.4.mlp.down_proj.lora_A.weight"));
    ndp_checkpoint_close(k);
    free(folder);
}

static void resume_packed(void **state) {
    for (int i = 1; i < NDP_PACKINGS; i++) {
        subject s = short_rows(*state, i == NDP_PACKING_NF4 ? "nf4" : "int8", "fp32");
        s.base = (ndp_packing)i;
        way four = twelve(data), other = twelve(i == NDP_PACKING_NF4 ? (way){.shard = 3, .cp = 2} : tensor_data);
        outcome whole = train(&s, &four), cut = train_in_two(*state, &s, &four, &four);
        assert_true(same_bits(&cut, &whole));
        check_tensors_of_packed(*state, s.name);
        outcome_release(&cut);
        cut = train_in_two(*state, &s, &four, &other);
        ndp_bounds bounds = bounds_of(&s, &four);
        ndp_difference d = compare(&cut, &whole, &bounds);
        char words[512];
        const char *bad = ndp_difference_words(&d, words, sizeof words);
        if (bad)
            fail_msg("%s, on another layout: %s", s.name, bad);
        outcome_release(&whole);
        outcome_release(&cut);
    }
}

static void resume_one_rank(void **state) { check_resume(*state, "one", "fp32", "adamw", twelve(one)); }
static void resume_adamw(void **state) { check_resume(*state, "adamw", "fp32", "adamw", twelve(data)); }
static void resume_sgd(void **state) { check_resume(*state, "sgd", "fp32", "sgd", twelve(data)); }
static void resume_lion(void **state) { check_resume(*state, "lion", "fp32", "lion", twelve(data)); }
/* Projections have one state. */
static void check_states_of_muon(const corpus *c, const char *name) {
    static const struct {
        const char *tensor;
        bool second;
    } of[] = {{"model.layers.0.self_attn.q_proj.weight", false},
              {"model.layers.4.mlp.down_proj.weight", false},
              {"model.layers.0.self_attn.q_proj.bias", true},
              {"model.layers.4.input_layernorm.weight", true},
              {"model.embed_tokens.weight", true},
              {"lm_head.weight", true}};
    char *folder = ndp_format("%s/checkpoints-%s", c->folder, name);
    ndp_checkpoint *k;
    CHECK_OK(ndp_checkpoint_open(folder, CUT, &k));
    for (int i = 0; i < NDP_COUNT(of); i++) {
        char *m = ndp_format("optimizer.m.%s", of[i].tensor), *v = ndp_format("optimizer.v.%s", of[i].tensor);
        assert_non_null(ndp_checkpoint_find(k, m));
        assert_int_equal(ndp_checkpoint_find(k, v) != NULL, of[i].second);
        free(m);
        free(v);
    }
    ndp_checkpoint_close(k);
    free(folder);
}

/* Two ranks add the same two gradients whether they are replicas or own slices, so a run that goes on with slices has
 * the bits of one that did not. The norm is a sum over slices, so nothing is clipped. */
static void check_slices_of_muon(const corpus *c) {
    subject s = short_rows(c, "muon-slices", "fp32");
    s.optimizer = "muon", s.momentum = momentum_of("muon"), s.clip = 0;
    way replicas = {.replicate = 2, .global = 12, .accumulation = 1, .threads = 1},
        slices = {.shard = 2, .global = 12, .accumulation = 1, .threads = 1};
    outcome whole = train(&s, &replicas), cut = train_in_two(c, &s, &replicas, &slices);
    size_t bytes = (size_t)whole.of.first[whole.of.n] * ndp_dtype_size(whole.of.type);
    assert_memory_equal(cut.of.kept[NDP_KEPT_WEIGHTS], whole.of.kept[NDP_KEPT_WEIGHTS], bytes);
    assert_memory_equal(cut.of.loss, whole.of.loss, sizeof cut.of.loss);
    outcome_release(&whole);
    outcome_release(&cut);
}

static void resume_muon(void **state) {
    check_resume(*state, "muon", "fp32", "muon", twelve(data));
    check_states_of_muon(*state, "muon");
    check_resume(*state, "muon-bf16", "bf16", "muon", twelve(tensor_data));
    check_slices_of_muon(*state);
}
static void resume_codes(void **state) {
    check_resume(*state, "adamw8bit", "fp32", "adamw8bit", twelve(data));
    check_resume(*state, "adamw8bit-bf16", "bf16", "adamw8bit", twelve(tensor_data));
}
static void resume_bf16(void **state) { check_resume(*state, "bf16", "bf16", "adamw", twelve(data)); }

static void resume_tensor_data(void **state) {
    check_resume(*state, "tensor-data", "fp32", "adamw", twelve(tensor_data));
}
static void resume_tensor_context(void **state) {
    check_resume(*state, "tensor-context", "fp32", "adamw", twelve(tensor_context));
    check_resume(*state, "tensor-context-bf16", "bf16", "sgd", twelve(tensor_context));
}

/* From one layout to another, against the run that stayed. */
static void check_elsewhere(const corpus *c, const char *name, const char *optimizer, way before, way after) {
    subject s = short_rows(c, name, "fp32");
    s.optimizer = optimizer, s.lr = strcmp(optimizer, "lion") == 0 ? 1e-4 : s.lr;
    s.momentum = momentum_of(optimizer);
    outcome whole = train(&s, &before), cut = train_in_two(c, &s, &before, &after);
    ndp_bounds bounds = bounds_of(&s, &before);
    if (bounds.spreads > 0)
        measure_spread(&(family){.s = s}, before.global, NULL, &bounds);
    ndp_difference d = compare(&cut, &whole, &bounds);
    char words[512];
    const char *bad = ndp_difference_words(&d, words, sizeof words);
    if (bad)
        fail_msg("%s: %s", name, bad);
    ndp_bounds_release(&bounds);
    printf("%s: gradient of the last step off by %.1e, loss by %.1e\n", name, d.of[NDP_MEASURE_LAST_GRADIENT].worst.off,
           d.of[NDP_MEASURE_LOSS].worst.off);
    assert_false(same_bits(&cut, &whole)); /* it was another layout */
    outcome_release(&whole);
    outcome_release(&cut);
}

static void resume_elsewhere(void **state) {
    const struct {
        const char *name, *optimizer;
        way before, after;
    } moves[] = {{"replicas-to-shards", "adamw", data, {.shard = 3}},
                 {"codes-replicas-to-shards", "adamw8bit", data, {.shard = 3}},
                 {"lion-tensor-to-shards", "lion", tensor_data, {.shard = 3}},
                 {"tensor-context-to-tensor", "adamw", tensor_context, {.tp = 4, .accumulation = 4}},
                 {"muon-tensor-to-shards", "muon", tensor_data, {.shard = 3}},
                 {"muon-one-to-tensor", "muon", one, {.tp = 4, .accumulation = 4}},
                 {"codes-one-to-every", "adamw8bit", one, every},
                 {"codes-tensor-to-shards", "adamw8bit", tensor_data, {.shard = 3}},
                 {"tensor-context-to-sequence-data", "adamw", tensor_context, {.shard = 2, .sp = 2, .accumulation = 3}},
                 {"tensor-context-to-one", "adamw", tensor_context, one},
                 {"one-to-every", "adamw", one, every}};
    for (int i = 0; i < NDP_COUNT(moves); i += short_or_all(3, 1))
        if (!left_out())
            check_elsewhere(*state, moves[i].name, moves[i].optimizer, twelve(moves[i].before), twelve(moves[i].after));
}

/* The cursor of a checkpoint counts rows: other rows are refused (test_identity.c has the rest). */
static ndp_status resume_only(ndp_world *w, void *arg) {
    const part *p = arg;
    ndp_trainer *t;
    int64_t step;
    NDP_TRY(guarded_trainer_create(p->r.config, w, &t));
    ndp_status st = ndp_trainer_resume(t, p->folder, &step);
    guarded_trainer_destroy(t);
    return st;
}

static void resume_other_data(void **state) {
    const corpus *c = *state;
    subject s = short_rows(c, "other data", "fp32");
    way w = twelve((way){.shard = 2});
    outcome o = {0};
    char *folder = ndp_format("%s/checkpoints-other", c->folder);
    do_part(&s, &w, folder, 0, 1, &o);
    s.length = 65;
    ndp_config *config = configure(&s, &w);
    part p = {.r = {.subject = &s, .way = &w, .config = config}, .folder = folder};
    CHECK_FAILS(ndp_world_run(config, resume_only, &p), NDP_EINVAL, "data.sequence_length was 40, now it is 65");
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
    char *paths[] = {ndp_format("%s/%s", a, name), ndp_format("%s/%s", b, name)}, *texts[2];
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
    s.steps = 8;
    way w = twelve(data);
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
    check_same_file(folders[0], folders[1], "model/model.safetensors");
    check_same_file(folders[0], folders[1], "model/config.json");
    free(folders[0]);
    free(folders[1]);
}

/* ---- a save of another layout ---- */

static ndp_status save_again(ndp_world *w, void *arg) {
    const part *p = arg;
    ndp_trainer *t;
    int64_t step;
    char *again = ndp_format("%s-again", p->folder);
    NDP_TRY(guarded_trainer_create(p->r.config, w, &t));
    ndp_status st = ndp_trainer_resume(t, p->folder, &step);
    if (st == NDP_OK)
        st = ndp_trainer_save(t, again);
    guarded_trainer_destroy(t);
    free(again);
    return st;
}

/* One rank's checkpoint, written again by ranks that share its experts, has the same bytes. */
static void saves_know_no_ranks_of_experts(void **state) {
    static const char *const files[] = {"step-00000003/model.safetensors", "step-00000003/optimizer.safetensors"};
    const way ways[] = {{.shard = 4, .ep = 4},
                        {.cp = 3, .ep = 3},
                        {.shard = 2, .tp = 2, .ep = 2},
                        {.sp = 2, .tp = 2, .ep = 4},
                        {.pp = 2, .shard = 2, .ep = 2, .accumulation = 3}};
    char *path, *folder = ndp_format("%s/saves", ((corpus *)*state)->folder), *again = ndp_format("%s-again", folder);
    subject s = family_subject(*state, family_called("mixtral"), "fp32", &path);
    way alone = twelve(one);
    outcome o = {0};
    s.steps = UPDATES;
    do_part(&s, &alone, folder, 0, CUT, &o);
    for (int i = 0; i < NDP_COUNT(ways); i++) {
        way w = twelve(ways[i]);
        ndp_config *c = configure(&s, &w);
        part p = {.r = {.subject = &s, .way = &w, .config = c}, .folder = folder};
        CHECK_OK(ndp_world_run(c, save_again, &p));
        for (int k = 0; k < NDP_COUNT(files); k++)
            check_same_file(folder, again, files[k]);
        CHECK_OK(ndp_folder_remove(again));
        ndp_config_destroy(c);
    }
    outcome_release(&o);
    free(again);
    free(folder);
    free(path);
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
    NDP_TRY(guarded_trainer_create(x->config, w, &t));
    ndp_status st = NDP_OK;
    for (int s = 0; s < x->steps && st == NDP_OK; s++)
        st = ndp_trainer_step(t, &m);
    if (st == NDP_OK && x->folder)
        st = ndp_trainer_export(t, x->folder);
    if (st == NDP_OK)
        st = ndp_trainer_step(t, &m);
    guarded_trainer_destroy(t);
    if (ndp_world_rank(w) == 0)
        x->loss = m.loss;
    return st;
}

/* Four rows, all of them in every update: the loss of a step depends on the weights alone. */
static subject four_rows(const corpus *c, const char *precision) {
    subject s = short_rows(c, "export", precision);
    char *text = ndp_format("%s/rows.txt", c->folder), letters[159];
    for (int i = 0; i < NDP_COUNT(letters); i++)
        letters[i] = (char)('a' + i * i % 23);
    CHECK_OK(ndp_file_write_atomic(text, letters, sizeof letters)); /* and a BOS */
    s.data = text;
    return s;
}

/* Three steps, and the model as a folder; the loss of the fourth step. */
static double export_after_three(const subject *s, const way *w, const char *folder) {
    ndp_config *config = configure(s, w);
    exporting trained = {config, folder, 3, 0};
    CHECK_OK(ndp_world_run(config, export_rank, &trained));
    ndp_config_destroy(config);
    return trained.loss;
}

static void check_export(const corpus *c, const char *precision, const way *w) {
    char *folder = ndp_format("%s/model-%s-%d", c->folder, precision, w->tp);
    subject s = four_rows(c, precision);
    double loss = export_after_three(&s, w, folder);
    s.model = "model.path", s.path = folder, s.tokenizer = NULL; /* the folder's own */
    way alone = one_rank(4, 4, 1);
    exporting loaded = {.config = configure(&s, &alone)};
    CHECK_OK(ndp_world_run(loaded.config, export_rank, &loaded));
    ndp_config_destroy((ndp_config *)loaded.config);
    printf("%s: loss %.15g where it was trained, %.15g where it was loaded\n", precision, loss, loaded.loss);
    assert_true(loss < 6.2 && fabs(loaded.loss / loss - 1) < (w->tp > 1 ? 2e-6 : 1e-12));
    free((void *)s.data);
    free(folder);
}

static const way export_data = {.replicate = 2, .shard = 2, .global = 4, .accumulation = 1, .threads = 1},
                 export_tensor = {.shard = 2, .tp = 2, .global = 4, .accumulation = 2, .threads = 1};

static void export_fp32(void **state) { check_export(*state, "fp32", &export_data); }
static void export_bf16(void **state) { check_export(*state, "bf16", &export_data); }
static void export_tp(void **state) { check_export(*state, "fp32", &export_tensor); }

/* |a - b| / |b| of a tensor of two files. */
static double tensor_distance(const ndp_safetensors *a, const ndp_safetensors *b, const ndp_tensor_entry *t) {
    const ndp_tensor_entry *other = ndp_safetensors_find(a, t->spec.name);
    assert_non_null(other);
    assert_int_equal(other->elements, t->elements);
    double *x = malloc((size_t)t->elements * sizeof *x), *y = malloc((size_t)t->elements * sizeof *y), apart = 0,
           norm = 0;
    CHECK_OK(ndp_safetensors_read(a, other, 0, t->elements, x, NDP_F64, true));
    CHECK_OK(ndp_safetensors_read(b, t, 0, t->elements, y, NDP_F64, true));
    for (int64_t i = 0; i < t->elements; i++)
        apart += (x[i] - y[i]) * (x[i] - y[i]), norm += y[i] * y[i];
    free(x);
    free(y);
    return apart == 0 ? 0 : sqrt(apart / norm);
}

/* Plain steps: what they add to the weights is as near as the gradients are, and the biases are nothing else. */
static void export_equals_one_rank(void **state) {
    const corpus *c = *state;
    const way ways[] = {export_tensor, one_rank(4, 4, 1)};
    subject s = four_rows(c, "fp32");
    ndp_safetensors *files[2];
    s.optimizer = "sgd", s.lr = 0.05, s.clip = 0;
    for (int i = 0; i < 2; i++) {
        char *folder = ndp_format("%s/equal-%d", c->folder, i), *path = ndp_format("%s/model.safetensors", folder);
        (void)export_after_three(&s, &ways[i], folder);
        CHECK_OK(ndp_safetensors_open(path, &files[i]));
        free(path);
        free(folder);
    }
    const double bound = 2e-5; /* of a gradient */
    double worst = 0;
    assert_int_equal(ndp_safetensors_count(files[0]), ndp_safetensors_count(files[1]));
    for (int i = 0; i < ndp_safetensors_count(files[1]); i++) {
        const ndp_tensor_entry *t = ndp_safetensors_at(files[1], i);
        double off = tensor_distance(files[0], files[1], t);
        if (!(off <= bound))
            fail_msg("%s: off by %.3g, bound %.3g", t->spec.name, off, bound);
        worst = fmax(worst, off);
    }
    printf("dp_shard 2 x tp 2 and one rank: %d exported tensors, the worst off by %.1e\n",
           ndp_safetensors_count(files[0]), worst);
    assert_true(worst > 0);
    for (int i = 0; i < 2; i++)
        ndp_safetensors_close(files[i]);
    free((void *)s.data);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeat_fp32),           cmocka_unit_test(repeat_threads),
        cmocka_unit_test(repeat_every_axis),     cmocka_unit_test(resume_one_rank),
        cmocka_unit_test(resume_adamw),          cmocka_unit_test(resume_gpt2),
        cmocka_unit_test(resume_experts),        cmocka_unit_test(resume_biases),
        cmocka_unit_test(resume_shared_experts), cmocka_unit_test(saves_know_no_ranks_of_experts),
        cmocka_unit_test(resume_frozen),         cmocka_unit_test(resume_packed),
        cmocka_unit_test(resume_muon),           cmocka_unit_test(resume_codes),
        cmocka_unit_test(resume_tensor_context), cmocka_unit_test(resume_elsewhere),
        cmocka_unit_test(resume_other_data),     cmocka_unit_test(stopped_loop),
        cmocka_unit_test(export_fp32),           cmocka_unit_test(export_tp),
        cmocka_unit_test(export_equals_one_rank)};
    const struct CMUnitTest more[] = {cmocka_unit_test(repeat_bf16),        cmocka_unit_test(resume_sgd),
                                      cmocka_unit_test(resume_lion),        cmocka_unit_test(resume_bf16),
                                      cmocka_unit_test(resume_tensor_data), cmocka_unit_test(export_bf16)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus) ||
           (short_or_all(0, 1) && cmocka_run_group_tests(more, make_corpus, drop_corpus));
}
