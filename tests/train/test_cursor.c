/* A run that goes on with other ranks draws the rows that it would have drawn without the change. */
#include "train/guarded_trainer.h"
#include "train/tiny_model.h"

#include <math.h>

enum { GLOBAL = 8, CUT = 3, STEPS = 9 };

static const char model_text[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 260, \"hidden_size\": 16, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 24, "
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true}";

static int make_folder(void **state) {
    char *folder = strdup("/tmp/ndp-cursor-XXXXXX");
    ndp_str text = {0};
    assert_true(folder && mkdtemp(folder));
    *state = folder;
    tiny_write(folder, "model.json", model_text);
    for (int i = 0; i < 37; i++) /* the last epoch of the run is not its first */
        ndp_str_addf(&text, "{\"text\": \"row %d of the data has %d letters or so\"}\n", i, i * i);
    tiny_write(folder, "rows.jsonl", text.data);
    ndp_str_release(&text);
    return 0;
}

typedef struct part {
    const char *folder, *name, *layout;
    int ranks, micro, from, to;
    const ndp_config *config;
    int64_t rows[STEPS][GLOBAL]; /* in the order of the samples */
    double loss[STEPS];
} part;

/* Each data rank writes what it draws to the places of its samples. Ranks of a tensor group draw the same. */
static void note_rows(ndp_trainer *t, int64_t *out) {
    const ndp_mesh *mesh = &ndp_engine_program(t->engine)->opts.step.mesh;
    int rank = ndp_mesh_group(mesh, NDP_GROUP_DATA).rank;
    for (int m = 0; m < t->rank.job.batch.accumulation && mesh->coord[NDP_TP] == 0; m++) {
        ndp_trainer_draw_rows(t, m);
        for (int64_t j = 0; j < t->rank.feed.shape.micro; j++)
            out[ndp_sample_index(&t->rank.feed.shape, 0, m, rank, j)] = t->rank.feed.rows[j].row;
    }
}

static ndp_status train(ndp_trainer *t, part *p, bool first) {
    int64_t step = 0;
    ndp_metrics m;
    if (p->from)
        NDP_TRY(ndp_trainer_resume(t, NULL, &step));
    if (step != p->from)
        return NDP_FAIL(NDP_EBUG, "resumed from step %d, expected %d", (int)step, p->from);
    for (int s = p->from; s < p->to; s++) {
        note_rows(t, p->rows[s]);
        NDP_TRY(ndp_trainer_step(t, &m));
        if (first)
            p->loss[s] = m.loss;
    }
    return ndp_trainer_save(t, NULL);
}

static ndp_status body(ndp_world *w, void *arg) {
    part *p = arg;
    ndp_trainer *t;
    NDP_TRY(guarded_trainer_create(p->config, w, &t));
    ndp_status st = train(t, p, ndp_world_rank(w) == 0);
    guarded_trainer_destroy(t);
    return st;
}

static void run(part *p) {
    char *job = ndp_format("model: {config: %1$s/model.json}\n"
                           "data: {files: [%1$s/rows.jsonl], tokenizer: bytes, sequence_length: 64, packing: false,\n"
                           "       cache_dir: %1$s/cache}\n"
                           "parallelism: {%2$s}\n"
                           "batch: {global_batch_size: 8, micro_batch_size: %3$d}\n"
                           "train: {steps: %4$d, threads: 1, ranks: %5$d, transport: local, output_dir: %1$s/%6$s}\n",
                           p->folder, p->layout, p->micro, STEPS, p->ranks, p->name);
    ndp_config *c;
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_parse(c, job, strlen(job), "job"));
    p->config = c;
    memset(p->rows, -1, sizeof p->rows);
    CHECK_OK(ndp_world_run(c, body, p));
    ndp_config_destroy(c);
    free(job);
}

static void print_rows(const char *who, int step, const int64_t *rows) {
    ndp_str s = {0};
    for (int i = 0; i < GLOBAL; i++)
        ndp_str_addf(&s, " %2lld", (long long)rows[i]);
    print_message("step %d, %s: rows%s\n", step + 1, who, s.data);
    ndp_str_release(&s);
}

static void check_after_two(const char *folder, const part *whole, int ranks, int micro, const char *layout) {
    char *name = ndp_format("after-%d-%d", ranks, micro), *who = ndp_format("2 -> %d ranks", ranks);
    part before = {folder, name, "dp_shard_size: 2", 2, 2, 0, CUT, NULL, {{0}}, {0}},
         after = {folder, name, layout, ranks, micro, CUT, STEPS, NULL, {{0}}, {0}};
    run(&before);
    run(&after);
    print_message("%s: %s\n", who, layout);
    for (int s = CUT; s < STEPS; s++) {
        print_rows("2 ranks, uninterrupted", s, whole->rows[s]);
        print_rows(who, s, after.rows[s]);
        assert_memory_equal(after.rows[s], whole->rows[s], sizeof whole->rows[s]);
        assert_true(fabs(after.loss[s] / whole->loss[s] - 1) < 1e-5);
    }
    free(name);
    free(who);
}

static void same_rows_on_other_ranks(void **state) {
    part whole = {*state, "whole", "dp_shard_size: 2", 2, 2, 0, STEPS, NULL, {{0}}, {0}};
    run(&whole);
    check_after_two(*state, &whole, 4, 2, "dp_shard_size: 4");
    check_after_two(*state, &whole, 4, 1, "dp_shard_size: 2, tp_size: 2");
    check_after_two(*state, &whole, 1, 4, "dp_shard_size: 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_rows_on_other_ranks)};
    return cmocka_run_group_tests(tests, make_folder, tiny_teardown);
}
