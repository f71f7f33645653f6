/* A model whose blocks have stacks of matrices, from a job: it trains on every axis, resumes on other layouts with all
 * kinds of optimizer state, is exported, begins from its own export, is verified and dumped; and what files hold of it
 * is what they hold of a model with a segment for each member. Every run proves the placements of its programs. */
#include "checkpoint/folder.h"
#include "model/decoder.h"
#include "model/stack_model.h"
#include "verify/parts.h"

const ndp_architecture_table *const ndp_architectures[] = {&ndp_decoder, &stack_architecture, NULL};

static const tiny_layout one = {"one", 1, 1, 1, 1}, cut = {"cut", 1, 2, 1, 2}, wide = {"wide", 2, 1, 1, 3};

static void put_model(const char *folder, stack_stored stored) {
    char text[256];
    snprintf(text, sizeof text,
             "{\"model_type\": \"stack\", \"vocab_size\": 258, \"hidden_size\": 24, \"width\": 47, \"blocks\": 3, "
             "\"max_position_embeddings\": 64, \"stored\": %d}",
             stored);
    tiny_put(folder, "model.json", text);
}

static int make(void **state) {
    int failed = tiny_make(state);
    if (failed)
        return failed;
    put_held(*state);
    return 0;
}

/* A run from its job file; its exported model is in the folder that is returned, for the caller to free. */
static char *run_whole(const char *folder, const tiny_layout *l, const char *optimizer, stack_stored stored,
                       const char *name) {
    char *run = ndp_format("%s-%s-%d", name, optimizer, stored), *model = ndp_format("%s/%s/model", folder, run);
    put_model(folder, stored);
    ndp_config *c = configure(folder, l, run, optimizer);
    CHECK_OK(ndp_world_run(c, whole_run, c));
    ndp_config_destroy(c);
    free(run);
    return model;
}

/* ---- tests ---- */

/* Cut and resumed on the same layout, to the last bit, and on another one, whose tensor axis cuts other rows and
 * columns of the members. States of 8 bits are quantized anew there. */
static void trains_and_resumes(void **state) {
    static const struct {
        const char *optimizer;
        double apart, moved; /* how far losses may be */
    } of[] = {{"adamw", 2e-6, 2e-6}, {"muon", 2e-6, 2e-6}, {"adamw8bit", 1e-3, 1e-3}};
    for (int i = 0; i < 2 * NDP_COUNT(of); i++) {
        double whole[STEPS], on_four[STEPS], again[STEPS], moved[STEPS];
        const char *folder = *state, *o = of[i / 2].optimizer;
        char name[4][40];
        put_model(folder, i % 2 ? STACK_TENSOR : STACK_PATTERN);
        for (int k = 0; k < 4; k++)
            snprintf(name[k], sizeof name[k], "%s-%d-%d", o, i, k);
        run_part(folder, &one, o, name[0], 0, STEPS, whole);
        run_part(folder, &cut, o, name[1], 0, STEPS, on_four);
        run_part(folder, &cut, o, name[2], 0, CUT, again);
        run_part(folder, &cut, o, name[2], CUT, STEPS, again);
        run_part(folder, &cut, o, name[3], 0, CUT, moved);
        run_part(folder, &wide, o, name[3], CUT, STEPS - 1, moved);
        run_part(folder, &one, o, name[3], STEPS - 1, STEPS, moved);
        for (int s = 0; s < STEPS; s++) {
            printf("%s %d, step %d: loss %.7f, on four ranks %.7f, moved %.7f\n", o, i % 2, s + 1, whole[s], on_four[s],
                   moved[s]);
            assert_true(again[s] == on_four[s]);
            assert_true(fabs(on_four[s] - whole[s]) < of[i / 2].apart * whole[s]);
            assert_true(fabs(moved[s] - whole[s]) < of[i / 2].moved * whole[s]);
        }
        assert_true(whole[STEPS - 1] < 0.95 * whole[0]);
    }
}

/* ---- states of 8 bits ---- */

typedef struct saving {
    const ndp_config *config;
    const char *from, *to; /* from: NULL: it trains; else it only resumes from there */
} saving;

static ndp_status save_rank(ndp_world *w, void *arg) {
    const saving *s = arg;
    ndp_trainer *t;
    int64_t step;
    NDP_TRY(ndp_trainer_create(s->config, w, &t));
    ndp_status st = s->from ? ndp_trainer_resume(t, s->from, &step) : NDP_OK;
    for (int i = 0; i < CUT && !s->from && st == NDP_OK; i++)
        st = ndp_trainer_step(t, &(ndp_metrics){0});
    if (st == NDP_OK)
        st = ndp_trainer_save(t, s->to);
    ndp_trainer_destroy(t);
    return st;
}

/* What a layout saves of what it resumed from; NULL: of its own first steps. The caller closes it. */
static ndp_weights *save_states(const char *folder, const tiny_layout *l, const char *from, const char *to) {
    ndp_config *c = configure(folder, l, "states", "adamw8bit");
    tiny_set(c, "batch.global_batch_size=12");
    char *in = from ? ndp_format("%s/%s", folder, from) : NULL, *out = ndp_format("%s/%s", folder, to),
         *step = ndp_format("%s/step-%08d", out, CUT);
    ndp_weights *w;
    CHECK_OK(ndp_world_run(c, save_rank, &(saving){c, in, out}));
    CHECK_OK(ndp_weights_open_stem(step, "optimizer", &w));
    ndp_config_destroy(c);
    free(in), free(out), free(step);
    return w;
}

static float *read_floats(const ndp_weights *w, const ndp_tensor_entry *t) {
    float *x = malloc((size_t)t->elements * sizeof *x);
    uint8_t *codes = malloc((size_t)t->elements);
    bool coded = t->spec.dtype == NDP_U8;
    CHECK_OK(
        ndp_weights_read(w, t->spec.name, 0, t->elements, coded ? (void *)codes : x, coded ? NDP_U8 : NDP_F32, !coded));
    for (int64_t i = 0; i < t->elements && coded; i++)
        x[i] = codes[i];
    free(codes);
    return x;
}

/* Codes and scales, to the last bit; or scales alone, as near as two quantizations leave them. */
static void compare_states(ndp_weights *a, ndp_weights *b, bool exactly) {
    assert_int_equal(ndp_weights_count(a), ndp_weights_count(b));
    for (int i = 0; i < ndp_weights_count(a); i++) {
        const ndp_tensor_entry *t = ndp_weights_at(a, i), *u = ndp_weights_find(b, t->spec.name);
        double off = 0, most = 0;
        if (!u || u->elements != t->elements)
            fail_msg("%s is not there, or of another size", t->spec.name);
        if (!exactly && !strstr(t->spec.name, "absmax"))
            continue;
        float *x = read_floats(a, t), *y = read_floats(b, u);
        for (int64_t k = 0; k < t->elements; k++)
            off = fmax(off, fabs((double)x[k] - (double)y[k])), most = fmax(most, (double)x[k]);
        if (!(off <= (exactly ? 0 : 2 * 0.9 / 128 * 1.001 * most)))
            fail_msg("%s is off by %g of %g", t->spec.name, off, most);
        free(x), free(y);
    }
}

/* Blocks go on through the members of a stack, and one vector has the scales of all. No number of slices changes a
 * code, and another tensor axis decodes each member with its own scales. */
static void codes_of_stacks_are_kept(void **state) {
    static const tiny_layout sliced[] = {{"", 1, 3, 1, 2}, {"", 2, 1, 1, 2}, {"", 1, 4, 1, 2}};
    for (int stored = STACK_PATTERN; stored <= STACK_TENSOR; stored++) {
        char name[4][40];
        for (int k = 0; k < 4; k++)
            snprintf(name[k], sizeof name[k], "codes-%d-%d", stored, k);
        put_model(*state, (stack_stored)stored);
        ndp_weights *first = save_states(*state, &cut, NULL, name[0]);
        bool pattern = stored == STACK_PATTERN;
        const ndp_tensor_entry *scales =
            ndp_weights_find(first, pattern ? "optimizer.m_absmax.blocks.1.members.*.up.weight"
                                            : "optimizer.m_absmax.blocks.1.members.up.weight");
        const ndp_tensor_entry *codes = ndp_weights_find(first, pattern ? "optimizer.m.blocks.1.members.2.up.weight"
                                                                        : "optimizer.m.blocks.1.members.up.weight");
        assert_non_null(scales);
        assert_true(codes && codes->spec.dtype == NDP_U8 && codes->spec.ndim == (pattern ? 2 : 3));
        /* of 23 and of 24 rows on two ranks, from the start of a block on */
        assert_int_equal(scales->elements, (3 * 23 * 24 + 255) / 256 + (3 * 24 * 24 + 255) / 256);
        for (int i = 0; i < NDP_COUNT(sliced); i++) {
            ndp_weights *same = save_states(*state, &sliced[i], name[0], name[1]);
            compare_states(first, same, true);
            ndp_weights_close(same);
            char *path = ndp_format("%s/%s", (char *)*state, name[1]);
            CHECK_OK(ndp_folder_remove(path));
            free(path);
        }
        ndp_weights_close(save_states(*state, &wide, name[0], name[2]));
        ndp_weights *back = save_states(*state, &cut, name[2], name[3]);
        compare_states(first, back, false);
        ndp_weights_close(back);
        ndp_weights_close(first);
    }
}

/* ---- files ---- */

static void check_same_file(const char *name, const char *folder, const char *other) {
    char *a = ndp_format("%s/%s", folder, name), *b = ndp_format("%s/%s", other, name), *x, *y;
    size_t n, k;
    CHECK_OK(ndp_file_read(a, &x, &n));
    CHECK_OK(ndp_file_read(b, &y, &k));
    if (n != k || memcmp(x, y, n) != 0)
        fail_msg("%s and %s differ", a, b);
    free(a), free(b), free(x), free(y);
}

/* With the same names the weights are drawn alike, and a step computes the same: the bytes of the exported model, on
 * several layouts and with updates of whole matrices. */
static void files_are_those_of_separate_segments(void **state) {
    static const char *const optimizers[] = {"sgd", "muon"};
    static const tiny_layout *const layouts[] = {&one, &cut, &wide};
    for (int i = 0; i < NDP_COUNT(layouts); i++)
        for (int o = 0; o < NDP_COUNT(optimizers); o++) {
            char *models[2];
            for (int k = 0; k < 2; k++) {
                char *run = ndp_format("same-%s-%s-%d", layouts[i]->name, optimizers[o], k);
                put_model(*state, k ? STACK_PATTERN : STACK_APART);
                ndp_config *c = configure(*state, layouts[i], run, optimizers[o]);
                tiny_set(c, "optimizer.max_grad_norm=0"); /* the norm is a sum over segments, in their order */
                CHECK_OK(ndp_world_run(c, whole_run, c));
                ndp_config_destroy(c);
                models[k] = ndp_format("%s/%s/model", (char *)*state, run);
                free(run);
            }
            check_same_file("model.safetensors", models[0], models[1]);
            free(models[0]), free(models[1]);
        }
}

/* The export of a run and that of its last checkpoint, what tensors they have, and a job that begins from the folder on
 * another layout: it loads what was exported. */
static void exports_and_begins(void **state) {
    for (int stored = STACK_PATTERN; stored <= STACK_TENSOR; stored++) {
        double unused[STEPS];
        int64_t step;
        char *own = run_whole(*state, &cut, "adamw", (stack_stored)stored, "exported"),
             *run = ndp_format("%s/exported-adamw-%d", (char *)*state, stored), *later = ndp_format("%s-later", run);
        CHECK_OK(ndp_checkpoint_export(run, 0, later, &step));
        check_same_file("config.json", own, later);
        check_same_file("model.safetensors", own, later);
        ndp_weights *w;
        CHECK_OK(ndp_weights_open(own, &w));
        const ndp_tensor_entry *member = ndp_weights_find(w, "blocks.1.members.2.down.weight"),
                               *stack = ndp_weights_find(w, "blocks.1.members.down.weight");
        assert_true((member != NULL) == (stored == STACK_PATTERN) && (stack != NULL) == (stored == STACK_TENSOR));
        if (member)
            assert_true(member->spec.ndim == 2 && member->spec.shape[0] == 24 && member->spec.shape[1] == 47);
        else
            assert_true(stack->spec.ndim == 3 && stack->spec.shape[0] == STACK_MEMBERS && stack->spec.shape[1] == 24 &&
                        stack->spec.shape[2] == 47);
        assert_int_equal(ndp_weights_count(w), 2 + 3 * (1 + 2 * (member ? STACK_MEMBERS : 1)));
        ndp_weights_close(w);
        ndp_config *c = configure(*state, &wide, "begun", "adamw");
        tiny_set(c, "model.config=null");
        tiny_set(c, "model.path=%s", own);
        tiny_set(c, "model.init=pretrained");
        part begun = {c, 0, 0, unused, NAN}, resumed = {.first = STEPS, .last = STEPS, .losses = unused};
        CHECK_OK(ndp_world_run(c, run_rank, &begun));
        ndp_config_destroy(c);
        char *name = ndp_format("exported-adamw-%d", stored);
        c = configure(*state, &cut, name, "adamw");
        resumed.config = c;
        CHECK_OK(ndp_world_run(c, run_rank, &resumed));
        ndp_config_destroy(c);
        printf("held-out loss %.7f, from the exported folder %.7f\n", resumed.held, begun.held);
        assert_true(fabs(begun.held - resumed.held) < 1e-6 * resumed.held);
        free(run), free(own), free(later), free(name);
    }
}

/* A folder that lacks a member is refused with the member's name. */
static void a_missing_member_is_named(void **state) {
    char *own = run_whole(*state, &one, "sgd", STACK_PATTERN, "whole"), *path = ndp_format("%s/model.safetensors", own),
         *data, *name;
    double unused[STEPS];
    size_t n;
    CHECK_OK(ndp_file_read(path, &data, &n));
    name = strstr(data + 8, "blocks.2.members.1.up.weight");
    assert_non_null(name);
    name[strlen("blocks.2.members.")] = '7';
    CHECK_OK(ndp_file_write_atomic(path, data, n));
    ndp_config *c = configure(*state, &one, "incomplete", "sgd");
    tiny_set(c, "model.config=null");
    tiny_set(c, "model.path=%s", own);
    tiny_set(c, "model.init=pretrained");
    part begun = {c, 0, 0, unused, NAN};
    CHECK_FAILS(ndp_world_run(c, run_rank, &begun), NDP_EFORMAT, "blocks.2.members.1.up.weight");
    ndp_config_destroy(c);
    free(own), free(path), free(data);
}

/* The worst tensor of a comparison of layouts is a tensor of files. */
static void verifies(void **state) {
    static const char *const layouts[] = {"dp_shard=2,tp=2", "dp_replicate=2,tp=3", "pp=3"};
    for (int stored = STACK_PATTERN; stored <= STACK_TENSOR; stored++) {
        ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
        ndp_verdict v[NDP_COUNT(layouts)];
        put_model(*state, (stack_stored)stored);
        ndp_config *c = configure(*state, &one, "verified", "adamw");
        o.layouts = layouts, o.n = NDP_COUNT(layouts), o.steps = 3;
        CHECK_OK(ndp_verify(c, &o, v));
        for (int i = 0; i < NDP_COUNT(layouts); i++) {
            if (!v[i].agrees)
                fail_msg("%s: %s", layouts[i], v[i].words);
            assert_null(strchr(v[i].of[NDP_MEASURE_FIRST_GRADIENT].worst.where, '%'));
        }
        ndp_config_destroy(c);
    }
}

/* A dump of a step on four ranks, and the same step on one: each member is a tensor of its own in both. */
static void is_dumped(void **state) {
    for (int stored = STACK_PATTERN; stored <= STACK_TENSOR; stored++) {
        char *folder = ndp_format("%s/dump-%d", (char *)*state, stored);
        put_model(*state, (stack_stored)stored);
        ndp_config *c = configure(*state, &cut, "dumped", "adamw");
        ndp_against_opts o = {.folder = folder};
        ndp_against a;
        CHECK_OK(ndp_verify_dump(c, &(ndp_dump_opts){.folder = folder}));
        CHECK_OK(ndp_verify_against(c, &o, &a));
        assert_int_equal(a.n, 2 + 3 * (1 + 2 * (stored == STACK_PATTERN ? STACK_MEMBERS : 1)));
        int members = 0;
        for (int i = 0; i < a.n; i++) {
            if (!(a.gradients[i].off <= a.gradients[i].bound))
                fail_msg("%s is off by %g, bound %g", a.gradients[i].name, a.gradients[i].off, a.gradients[i].bound);
            members += strstr(a.gradients[i].name, ".members.2.") != NULL;
        }
        assert_int_equal(members, stored == STACK_PATTERN ? 6 : 0);
        ndp_against_release(&a);
        ndp_config_destroy(c);
        free(folder);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(trains_and_resumes),
                                       cmocka_unit_test(codes_of_stacks_are_kept),
                                       cmocka_unit_test(files_are_those_of_separate_segments),
                                       cmocka_unit_test(exports_and_begins),
                                       cmocka_unit_test(a_missing_member_is_named),
                                       cmocka_unit_test(verifies),
                                       cmocka_unit_test(is_dumped)};
    return cmocka_run_group_tests(tests, make, tiny_drop);
}
