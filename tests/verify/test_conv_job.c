/* An architecture of a program's own is trained from a job, whose configuration has it. */
#include "model/conv_model.h"
#include "verify/parts.h"

static const tiny_layout one = {"one", 1, 1, 1, 1}, hybrid = {"hybrid", 2, 2, 1, 1};

static const char config[] = "{\"model_type\": \"conv\", \"vocab_size\": 258, \"hidden_size\": 24, \"width\": 48, "
                             "\"blocks\": 3, \"max_position_embeddings\": 64}";

static ndp_config *configure_conv(const char *folder, const tiny_layout *l, const char *run) {
    ndp_config *c = configure(folder, l, run, "adamw");
    CHECK_OK(ndp_config_add_architecture(c, &conv_architecture));
    return c;
}

static void run_conv(const char *folder, const tiny_layout *l, const char *run, int first, int last, double *losses) {
    ndp_config *c = configure_conv(folder, l, run);
    train_part(c, first, last, losses);
    ndp_config_destroy(c);
}

static int make(void **state) {
    int failed = tiny_make(state);
    if (failed)
        return failed;
    tiny_put(*state, "model.json", config);
    put_held(*state);
    return 0;
}

/* ---- tests ---- */

/* Trained on one rank and on four, cut and resumed on the same layout and on the other one. */
static void trains_and_resumes(void **state) {
    double whole[STEPS], wide[STEPS], cut[STEPS], moved[STEPS];
    const char *folder = *state;
    run_conv(folder, &one, "whole", 0, STEPS, whole);
    run_conv(folder, &hybrid, "wide", 0, STEPS, wide);
    run_conv(folder, &hybrid, "cut", 0, CUT, cut);
    run_conv(folder, &hybrid, "cut", CUT, STEPS, cut);
    run_conv(folder, &hybrid, "moved", 0, CUT, moved);
    run_conv(folder, &one, "moved", CUT, STEPS, moved);
    for (int s = 0; s < STEPS; s++) {
        printf("step %d: loss %.7f, on four ranks %.7f\n", s + 1, whole[s], wide[s]);
        assert_true(cut[s] == wide[s]); /* to the last bit */
        assert_true(fabs(wide[s] - whole[s]) < 2e-6 * whole[s] && fabs(moved[s] - whole[s]) < 2e-6 * whole[s]);
    }
    assert_true(whole[STEPS - 1] < 0.95 * whole[0] && fabs(whole[0] - log(258)) < 1);
}

static void check_same_file(const char *name, const char *folder, const char *other) {
    char *a = ndp_format("%s/%s", folder, name), *b = ndp_format("%s/%s", other, name), *x, *y;
    size_t n, k;
    CHECK_OK(ndp_file_read(a, &x, &n));
    CHECK_OK(ndp_file_read(b, &y, &k));
    assert_true(n == k && memcmp(x, y, n) == 0);
    free(a), free(b), free(x), free(y);
}

/* A run from its job file, its export, that of its last checkpoint, and a job that begins from the exported folder. */
static void exports(void **state) {
    double unused[STEPS];
    const char *folder = *state;
    char *run = ndp_format("%s/exported", folder), *own = ndp_format("%s/model", run),
         *later = ndp_format("%s/later", folder);
    int64_t step;
    ndp_config *c = configure_conv(folder, &hybrid, "exported");
    CHECK_OK(ndp_world_run(c, whole_run, c));
    ndp_config_destroy(c);
    CHECK_FAILS(ndp_checkpoint_export(run, 0, later, &step), NDP_ENOTSUP, "model_type 'conv' is");
    CHECK_OK(ndp_architecture_export(&conv_architecture, run, 0, later, &step));
    assert_int_equal(step, STEPS);
    check_same_file("config.json", own, later);
    check_same_file("model.safetensors", own, later);
    c = configure_conv(folder, &one, "begun");
    tiny_set(c, "model.config=null");
    tiny_set(c, "model.path=%s", own);
    tiny_set(c, "model.init=pretrained");
    part begun = {c, 0, 0, unused, NAN}, resumed = {.first = STEPS, .last = STEPS, .losses = unused};
    CHECK_OK(ndp_world_run(c, run_rank, &begun));
    ndp_config_destroy(c);
    c = configure_conv(folder, &hybrid, "exported");
    resumed.config = c;
    CHECK_OK(ndp_world_run(c, run_rank, &resumed));
    ndp_config_destroy(c);
    printf("held-out loss %.7f, from the exported folder %.7f\n", resumed.held, begun.held);
    assert_true(resumed.held < 5 && fabs(begun.held - resumed.held) < 1e-6 * resumed.held);
    free(run), free(own), free(later);
}

static void verifies(void **state) {
    static const char *const layouts[] = {"dp_shard=2", "dp_replicate=2,dp_shard=2"};
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    ndp_verdict v[NDP_COUNT(layouts)];
    ndp_config *c = configure_conv(*state, &one, "verified");
    o.layouts = layouts, o.n = NDP_COUNT(layouts), o.steps = 4;
    CHECK_OK(ndp_verify(c, &o, v));
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        if (!v[i].agrees)
            fail_msg("%s: %s", layouts[i], v[i].words);
        assert_true(v[i].of[NDP_MEASURE_FIRST_GRADIENT].worst.off > 0); /* other sums */
    }
    ndp_config_destroy(c);
}

/* Axes that cut the rows which its op mixes; options that it cannot follow; uses that are for decoders. */
static void refuses_by_name(void **state) {
    static const struct {
        const char *setting, *words, *loss;
    } of[] = {
        {"parallelism.cp_size=2", "op causal_conv mixes rows, and cp_size 2 cuts the rows", NULL},
        {"parallelism.sp_size=2", "op causal_conv mixes rows, and sp_size 2 cuts the rows", NULL},
        {"parallelism.tp_size=2", "op causal_conv mixes rows, and tp_size 2 cuts the rows", NULL},
        {"parallelism.pp_size=4", "pp 4 is more than the 3", NULL},
        {"model.sliding_window=8", "conv: model.sliding_window is set, and the model has no attention", NULL},
        {"model.frozen=[tables]", "model.frozen: there is no unit tables; units are table, blocks.0 to blocks.2, head",
         NULL},
        {"data.format=preference", "conv: a loss of pairs (data.format: preference) is not supported", "loss.name=dpo"},
        {"data.sequence_length=65", "data.sequence_length 65 is longer", NULL}};
    for (int i = 0; i < NDP_COUNT(of); i++) {
        ndp_config *c = configure_conv(*state, &one, "refused");
        char *text = NULL;
        tiny_set(c, "%s", of[i].setting);
        if (of[i].loss)
            tiny_set(c, "%s", of[i].loss);
        ndp_status st = ndp_plan(c, &(ndp_plan_opts)NDP_PLAN_OPTS_INIT, &text);
        if (st == NDP_OK || !strstr(ndp_error_message(), of[i].words))
            fail_msg("%s: %s", of[i].setting, st == NDP_OK ? text : ndp_error_message());
        ndp_config_destroy(c);
        free(text);
    }
    ndp_evaluation e;
    ndp_evaluate_opts o = NDP_EVALUATE_OPTS_INIT;
    const char *files[] = {ndp_format("%s/text.txt", (char *)*state)};
    char *model = ndp_format("%s/exported/model", (char *)*state);
    o.model = model, o.data = files, o.data_count = 1, o.threads = 1;
    CHECK_FAILS(ndp_evaluate(&o, &e, NULL), NDP_ENOTSUP, "model_type 'conv' is not supported");
    free((char *)files[0]), free(model);
}

/* A resumed run with other facts. */
static void its_facts_identify_a_run(void **state) {
    double losses[STEPS];
    run_conv(*state, &one, "identified", 0, CUT, losses);
    tiny_put(*state, "model.json",
             "{\"model_type\": \"conv\", \"vocab_size\": 258, \"hidden_size\": 24, \"width\": 40, \"blocks\": 3, "
             "\"max_position_embeddings\": 64}");
    ndp_config *c = configure_conv(*state, &one, "identified");
    part p = {c, CUT, STEPS, losses, NAN};
    CHECK_FAILS(ndp_world_run(c, run_rank, &p), NDP_EINVAL, "model.width was 48, now it is 40");
    tiny_put(*state, "model.json", config);
    ndp_config_destroy(c);
}

/* The job's description and a model type that no architecture has. */
static void describes_itself(void **state) {
    ndp_config *c = configure_conv(*state, &hybrid, "planned");
    char *text;
    CHECK_OK(ndp_plan(c, &(ndp_plan_opts)NDP_PLAN_OPTS_INIT, &text));
    if (!strstr(text, "model: conv, 3 layers, hidden 24, vocabulary 258, 0.01 M parameters"))
        fail_msg("%s", text);
    free(text);
    ndp_model_spec s;
    char *path = ndp_format("%s/model.json", (char *)*state);
    CHECK_OK(ndp_model_spec_read(path, &(ndp_own_list){{&conv_architecture}, 1},
                                 &s)); /* it has no special tokens, no head of its own, no prefix */
    assert_true(s.bos == -1 && s.eos == -1 && !s.tie[0][0] && !*s.prefix && s.layout.heads == 0);
    ndp_model_spec_release(&s);
    free(path);
    tiny_put(*state, "model.json", "{\"model_type\": \"convict\"}");
    CHECK_FAILS(ndp_plan(c, &(ndp_plan_opts)NDP_PLAN_OPTS_INIT, &text), NDP_ENOTSUP, "model_type 'convict' is");
    tiny_put(*state, "model.json", config);
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(trains_and_resumes),
                                       cmocka_unit_test(exports),
                                       cmocka_unit_test(verifies),
                                       cmocka_unit_test(refuses_by_name),
                                       cmocka_unit_test(its_facts_identify_a_run),
                                       cmocka_unit_test(describes_itself)};
    return cmocka_run_group_tests(tests, make, tiny_drop);
}
