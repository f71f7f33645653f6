/* Models that no family has, drawn from what the public header can build (model/drawn_model.h): on every axis and with
 * what a job may ask, they compute what one rank does, resume on other layouts, and are written and read again; where
 * an axis cannot cut one, the message has the op. */
#include "model/drawn_model.h"
#include "verify/parts.h"

static const tiny_layout one = {"one", 1, 1, 1, 1};

/* `convs`: blocks have convolutions, which mix rows. */
static void put_model(const char *folder, int seed, bool convs) {
    char text[300];
    snprintf(text, sizeof text,
             "{\"model_type\": \"drawn\", \"seed\": %d, \"convs\": %s, \"vocab_size\": 258, \"hidden_size\": 24, "
             "\"width\": 40, \"blocks\": 4, \"heads\": 4, \"kv_heads\": 2, \"max_position_embeddings\": 64, "
             "\"eos_token_id\": 257}",
             seed, convs ? "true" : "false");
    tiny_put(folder, "model.json", text);
}

static ndp_config *configure_drawn(const char *folder, const tiny_layout *l, const char *run) {
    ndp_config *c = configure(folder, l, run, "adamw");
    CHECK_OK(ndp_config_add_architecture(c, &drawn_architecture));
    tiny_set(c, "batch.micro_batch_size=2");
    return c;
}

static int make(void **state) {
    int failed = tiny_make(state);
    if (failed)
        return failed;
    put_held(*state);
    return 0;
}

/* ---- layouts ---- */

static const char *const layouts[] = {"dp_shard=2", "tp=2",
                                      "pp=2",       "cp=2",
                                      "sp=2",       "dp_replicate=2",
                                      "tp=4",       "pp=2,dp_shard=2",
                                      "pp=2,tp=2",  "dp_shard=2,cp=2",
                                      "sp=2,tp=2",  "pp=2,cp=2"};
/* By their number, of each: "" is nothing. */
static const char *const features[][3] = {
    {""},
    {"train.recompute=block"},
    {"parallelism.tp_sequence_parallel=false"},
    {"adapter.type=lora", "adapter.r=4", "adapter.dropout=0.1"},
    {"precision.compute=bf16"},
    {"pipeline.schedule=zbv"},
    {"adapter.type=lora", "adapter.dora=true", "adapter.modules_to_save=[embed.tokens]"},
    {"model.frozen=[blocks.0, embed]"},
    {"adapter.type=qlora", "adapter.base=int8"},
    {"optimizer.name=muon", "pipeline.schedule=interleaved"},
    {"optimizer.groups=[{params: [vectors], lr_scale: 0.5}]"},
    {"model.sliding_window=4", "pipeline.schedule=zero_bubble"},
    {"precision.compute=bf16", "train.recompute=block", "parallelism.cp_method=all_gather"}};

static void verify_one(const char *folder, int i, bool convs) {
    ndp_verify_opts o = NDP_VERIFY_OPTS_INIT;
    ndp_verdict v;
    const char *layout = layouts[i % NDP_COUNT(layouts)];
    const char *const *set = features[i % NDP_COUNT(features)];
    put_model(folder, i, convs);
    ndp_config *c = configure_drawn(folder, &one, "verified");
    for (int k = 0; k < 3 && set[k] && set[k][0]; k++)
        tiny_set(c, "%s", set[k]);
    o.layouts = &layout, o.n = 1, o.steps = 2;
    ndp_status st = ndp_verify(c, &o, &v);
    bool cut = convs && (strstr(layout, "cp=") || strstr(layout, "sp="));
    printf("%d: %s, %s%s: %s\n", i, layout, set[0], convs ? ", convs" : "",
           st == NDP_OK ? v.words : ndp_error_message());
    if (cut)
        assert_true(st == NDP_ENOTSUP && strstr(ndp_error_message(), "op causal_conv mixes rows"));
    else if (st != NDP_OK || !v.agrees)
        fail_msg("seed %d, %s, %s: %s", i, layout, set[0], st == NDP_OK ? v.words : ndp_error_message());
    ndp_config_destroy(c);
}

static void every_axis_and_feature_agrees(void **state) {
    for (int i = 0; i < NDP_COUNT(layouts) * NDP_COUNT(features); i++)
        if (!left_out())
            verify_one(*state, i, i / NDP_COUNT(layouts) % 3 == 1);
}

/* ---- runs ---- */

/* Each part of a run has another layout. */
static const struct {
    const char *axes[3];
    bool convs; /* a model with convolutions can be cut so */
} ways[] = {{{""}, true},
            {{"dp_shard_size=2", "tp_size=2"}, true},
            {{"pp_size=2", "dp_replicate_size=2"}, true},
            {{"cp_size=2", "tp_size=2"}, false},
            {{"sp_size=2", "pp_size=2"}, false}};

static ndp_config *configure_way(const char *folder, int way, const char *run, const char *set) {
    ndp_config *c = configure_drawn(folder, &one, run);
    for (int k = 0; k < 3 && ways[way].axes[k] && ways[way].axes[k][0]; k++)
        tiny_set(c, "parallelism.%s", ways[way].axes[k]);
    if (set[0])
        tiny_set(c, "%s", set);
    return c;
}

static void run_way(const char *folder, int way, const char *run, const char *set, int first, int last,
                    double *losses) {
    ndp_config *c = configure_way(folder, way, run, set);
    train_part(c, first, last, losses);
    ndp_config_destroy(c);
}

/* `set`: what the job asks besides. */
static void check_moves(const char *folder, const char *set, bool convs, int w, const double *whole) {
    double moved[STEPS];
    char name[40];
    snprintf(name, sizeof name, "moved-%d-%d", convs, w);
    run_way(folder, w, name, set, 0, CUT, moved);
    run_way(folder, w == 1 ? 2 : 1, name, set, CUT, STEPS - 1, moved);
    run_way(folder, 0, name, set, STEPS - 1, STEPS, moved);
    for (int s = 0; s < STEPS; s++)
        if (!(fabs(moved[s] - whole[s]) < 5e-6 * whole[s]))
            fail_msg("%s %s, step %d: loss %.7f, on one rank %.7f", name, set, s + 1, moved[s], whole[s]);
}

static void it_resumes_on_every_layout(void **state) {
    static const char *const sets[] = {"", "adapter.type=lora"};
    bool all = one_of_so_many(1) == 1;
    for (int k = all ? 0 : 1; k < (all ? 4 : 3); k++) { /* each setting once, or with both kinds of models */
        bool convs = k % 2;
        const char *set = sets[k / 2];
        double whole[STEPS];
        char name[40];
        put_model(*state, 3 + convs, convs);
        snprintf(name, sizeof name, "whole-%d", k);
        run_way(*state, 0, name, set, 0, STEPS, whole);
        for (int w = 1; w < NDP_COUNT(ways); w++)
            if (w % 2 == k / 2 && (!convs || ways[w].convs))
                check_moves(*state, set, convs, w, whole);
        assert_true(whole[STEPS - 1] < whole[0]);
    }
}

/* The folder of a run has the weights by their names, and a job begins from it; the program cannot. */
static void it_is_exported(void **state) {
    static const char *const names[] = {"embed.tokens.weight", "blocks.0.attention.q.weight",
                                        "blocks.3.mlp.out.weight"};
    const char *folder = *state;
    char *run = ndp_format("%s/exported", folder), *own = ndp_format("%s/model", run),
         *later = ndp_format("%s-later", run), *weights = ndp_format("%s/model.safetensors", later), *bytes;
    double unused[STEPS];
    int64_t step;
    size_t size;
    put_model(folder, 5, true);
    ndp_config *c = configure_way(folder, 1, "exported", "");
    CHECK_OK(ndp_world_run(c, whole_run, c));
    ndp_config_destroy(c);
    CHECK_FAILS(ndp_checkpoint_export(run, 0, later, &step), NDP_ENOTSUP,
                "model_type 'drawn' is not supported; supported: llama");
    assert_non_null(strstr(ndp_error_message(),
                           "An architecture that a program has added (ndp_config_add_architecture) "
                           "is known to that program alone"));
    CHECK_OK(ndp_architecture_export(&drawn_architecture, run, 0, later, &step));
    CHECK_OK(ndp_file_read(weights, &bytes, &size));
    for (int i = 0; i < NDP_COUNT(names); i++)
        if (!memmem(bytes, size, names[i], strlen(names[i])))
            fail_msg("there is no %s", names[i]);
    free(bytes);
    c = configure_way(folder, 2, "begun", "model.config=null");
    tiny_set(c, "model.path=%s", own);
    tiny_set(c, "model.init=pretrained");
    part begun = {c, 0, 0, unused, NAN}, resumed = {.first = STEPS, .last = STEPS, .losses = unused};
    CHECK_OK(ndp_world_run(c, run_rank, &begun));
    ndp_config_destroy(c);
    resumed.config = c = configure_way(folder, 1, "exported", "");
    CHECK_OK(ndp_world_run(c, run_rank, &resumed));
    ndp_config_destroy(c);
    assert_true(fabs(begun.held - resumed.held) < 1e-6 * resumed.held);
    free(run), free(own), free(later), free(weights);
}

/* A dry run, a summary, and a resume with another fact. */
static void it_is_planned_and_identified(void **state) {
    ndp_model_summary summary;
    double losses[STEPS];
    char *text;
    put_model(*state, 8, false);
    ndp_config *c = configure_way(*state, 3, "planned", "");
    CHECK_OK(ndp_plan(c, &(ndp_plan_opts)NDP_PLAN_OPTS_INIT, &text));
    if (!strstr(text, "model: drawn, 4 layers, hidden 24, heads 4 (2 kv), vocabulary 258, "))
        fail_msg("%s", text);
    free(text);
    CHECK_OK(ndp_model_summarize(c, &summary));
    assert_true(summary.layers == 4 && summary.heads == 4 && summary.positions == 64 && summary.vocabulary == 258);
    ndp_config_destroy(c);
    run_way(*state, 0, "identified", "", 0, CUT, losses);
    put_model(*state, 9, false);
    c = configure_way(*state, 0, "identified", "");
    part p = {c, CUT, STEPS, losses, NAN};
    CHECK_FAILS(ndp_world_run(c, run_rank, &p), NDP_EINVAL, "model.seed was 8, now it is 9");
    ndp_config_destroy(c);
}

/* ---- what else the library does with a run ---- */

typedef struct use {
    const ndp_config *config;
    const char *run;
    double held;
    int64_t different;
} use;

static void say(void *user, const char *line) { (void)user, printf("%s\n", line); }

static ndp_status use_run(ndp_world *w, void *arg) {
    use *u = arg;
    ndp_evaluation all;
    NDP_TRY(ndp_evaluate_job(u->config, w, u->run, 0, &all, NULL, NULL));
    if (ndp_world_rank(w) == 0)
        u->held = all.mean_nll;
    return ndp_replay(u->config, w, &(ndp_replay_opts){.first = 5, .last = 5, .compare = true, .say = say},
                      &u->different);
}

/* Its checkpoint is scored, a step runs again, samples are drawn, and a dump of a step agrees with one rank. */
static void a_run_is_used(void **state) {
    const char *folder = *state;
    char *run = ndp_format("%s/used", folder), *dump = ndp_format("%s/dump", folder);
    put_model(folder, 6, true);
    ndp_config *c = configure_way(folder, 1, "used", "checkpoint.every=2");
    tiny_set(c, "train.sample_every=3");
    tiny_set(c, "train.sample_prompts=[There were]");
    tiny_set(c, "train.sample_tokens=4");
    CHECK_OK(ndp_world_run(c, whole_run, c));
    use u = {c, run, 0, -1};
    CHECK_OK(ndp_world_run(c, use_run, &u));
    assert_true(u.held > 1 && u.held < 6 && u.different == 0);
    ndp_config_destroy(c);
    ndp_against a;
    c = configure_way(folder, 1, "dumped", "");
    CHECK_OK(ndp_verify_dump(c, &(ndp_dump_opts){.folder = dump}));
    CHECK_OK(ndp_verify_against(c, &(ndp_against_opts){.folder = dump}, &a));
    for (int i = 0; i < a.n; i++)
        if (!a.gradients[i].agrees)
            fail_msg("%s is off by %g, bound %g", a.gradients[i].name, a.gradients[i].off, a.gradients[i].bound);
    assert_true(a.n > 20);
    ndp_against_release(&a);
    ndp_config_destroy(c);
    free(run), free(dump);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_axis_and_feature_agrees),
                                       cmocka_unit_test(it_resumes_on_every_layout), cmocka_unit_test(it_is_exported),
                                       cmocka_unit_test(it_is_planned_and_identified), cmocka_unit_test(a_run_is_used)};
    return cmocka_run_group_tests(tests, make, tiny_drop);
}
