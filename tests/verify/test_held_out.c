/* Held-out rows on any layout: every row counts once, and what fills up the last pass predicts nothing. Their rows go
 * to experts in as many rounds as routers ask for. */
#include "verify/mixtures.h"

typedef struct scored {
    double loss;
    int64_t tokens, rows;
    bool filled; /* the last pass has rows that are empty */
} scored;

typedef struct scoring {
    const ndp_config *config;
    scored *out;
} scoring;

/* An empty row: no label, so nothing is predicted, and nothing that another token may see. */
static void check_empty_row(ndp_trainer *t) {
    int64_t length = t->rank.job.config->data.sequence_length, micro = t->rank.feed.shape.micro;
    ndp_feed *f = &t->rank.feed;
    for (int64_t j = 0; j < micro; j++)
        f->rows[j] = (ndp_feed_row){.of = t->rank.data.held, .row = -1, .update = -1};
    CHECK_OK(ndp_feed_load(f));
    for (int64_t i = 0; i < micro * length; i++) {
        assert_int_equal(f->whole.labels[i], -1);
        assert_int_equal(f->whole.tokens[i], 0);
        assert_int_equal(f->whole.starts[i], i);
    }
}

static ndp_status score_rank(ndp_world *w, void *arg) {
    const scoring *s = arg;
    ndp_trainer *t;
    scored o = {0};
    NDP_TRY(ndp_trainer_open(s->config, w, &(ndp_rank_opts){0}, &t));
    check_empty_row(t);
    o.rows = ndp_dataset_rows(t->rank.data.held);
    o.filled = o.rows % (t->rank.feed.shape.micro * t->rank.feed.shape.data_ranks) != 0;
    ndp_status st = ndp_trainer_evaluate(t, &o.loss, &o.tokens);
    if (ndp_world_rank(w) == 0)
        *s->out = o;
    ndp_trainer_destroy(t);
    return st;
}

static scored score(const subject *s, const way *w) {
    scored o = {0};
    char text[WAY_TEXT];
    ndp_config *c = configure(s, w);
    set(c, "data.validation_fraction=0.1");
    scoring r = {c, &o};
    if (ndp_world_run(c, score_rank, &r) != NDP_OK)
        fail_msg("%s: %s (%s)", way_text(w, text), ndp_error_message(), ndp_error_trail());
    ndp_config_destroy(c);
    return o;
}

static void check_scores(const subject *s, const way *ways, int n) {
    way one = one_rank(1, 1, 1);
    scored want = score(s, &one);
    int filled = 0;
    assert_true(!want.filled && want.tokens > 0 && want.rows > 8);
    for (int i = 0; i < n; i++) {
        char text[WAY_TEXT];
        scored have = score(s, &ways[i]);
        if (have.tokens != want.tokens || have.rows != want.rows || fabs(have.loss - want.loss) > 2e-6 * want.loss)
            fail_msg("%s: %.9g over %lld tokens, on one rank %.9g over %lld", way_text(&ways[i], text), have.loss,
                     (long long)have.tokens, want.loss, (long long)want.tokens);
        filled += have.filled;
    }
    printf("  %lld rows, %lld tokens; %d of %d layouts filled up their last pass\n", (long long)want.rows,
           (long long)want.tokens, filled, n);
    assert_true(filled > 0);
}

static void every_row_counts_once(void **state) {
    static const way ways[] = {{.replicate = 2, .global = 12, .accumulation = 1, .threads = 1},
                               {.replicate = 2, .shard = 2, .global = 12, .accumulation = 1, .threads = 1},
                               {.shard = 3, .cp = 2, .global = 12, .accumulation = 1, .threads = 1},
                               {.shard = 2, .tp = 2, .global = 20, .accumulation = 2, .threads = 1},
                               {.pp = 2, .sp = 2, .global = 14, .accumulation = 2, .threads = 1}};
    subject s = odd_subject(*state, "odd fp32", "fp32");
    check_scores(&s, ways, NDP_COUNT(ways));
}

static void rows_reach_all_experts(void **state) {
    static const way ways[] = {
        {.shard = 2, .ep = 2, .global = 12, .accumulation = 1, .threads = 1, .capacity = "1"},
        {.shard = 2, .cp = 2, .ep = 4, .global = 20, .accumulation = 2, .threads = 1, .capacity = "1", .recompute = 1},
        {.sp = 2, .tp = 2, .ep = 4, .global = 5, .accumulation = 1, .threads = 1, .capacity = "1", .whole_rows = true},
        {.pp = 2, .replicate = 2, .tp = 2, .ep = 2, .global = 12, .accumulation = 2, .threads = 1}};
    for (int i = 0; i < NDP_COUNT(mixture_models); i++) {
        char *path;
        subject s = mixture_subject(*state, &mixture_models[i], "fp32", &path);
        check_scores(&s, ways, NDP_COUNT(ways));
        free(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_counts_once),
                                       cmocka_unit_test(rows_reach_all_experts)};
    return cmocka_run_group_tests(tests, make_corpus, drop_corpus);
}
