/* CSV files: torch's in both formats, ours in and out, and bad ones. The files of torch are made, and ours are read by
 * torch, with tests/golden/make_pipelines.py. */
#include "golden_text.h"
#include "pipeline/unit_time.h"

#include <unistd.h>

static ndp_status parse(const char *text, int micro_batches, ndp_pipeline *out) {
    return ndp_pipeline_parse(text, strlen(text), "x.csv", micro_batches, out);
}

/* Same actions in the same order; columns may differ. */
static void check_equal(const ndp_pipeline *a, const ndp_pipeline *b) {
    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->micro_batches, b->micro_batches);
    assert_memory_equal(a->rank_of, b->rank_of, (size_t)a->stages * sizeof *a->rank_of);
    for (int rank = 0; rank < a->ranks; rank++) {
        assert_int_equal(a->rows[rank].n, b->rows[rank].n);
        for (int i = 0; i < a->rows[rank].n; i++) {
            const ndp_stage_action *x = &a->rows[rank].actions[i], *y = &b->rows[rank].actions[i];
            if (x->stage != y->stage || x->micro_batch != y->micro_batch || x->action != y->action ||
                x->paired != y->paired)
                fail_msg("%s and %s, rank %d, action %d: %d%c%d and %d%c%d", a->name, b->name, rank, i, x->stage,
                         ndp_action_letter(x->action), x->micro_batch, y->stage, ndp_action_letter(y->action),
                         y->micro_batch);
        }
    }
}

static ndp_pipeline read_fixture(const char *name) {
    const char *root = getenv("NDP_SOURCE_DIR");
    char *path = ndp_format("%s/tests/golden/pipeline/%s.csv", root ? root : ".", name);
    ndp_pipeline s;
    CHECK_OK(ndp_pipeline_read(path, 8, &s));
    free(path);
    return s;
}

/* ---- torch's files ---- */

/* The generators follow the same papers: the orders are equal. */
static void torch_has_the_orders_of_our_generators(void **state) {
    (void)state;
    static const struct {
        const char *name;
        ndp_pipeline_kind kind;
    } files[] = {{"interleaved", NDP_PIPELINE_INTERLEAVED},
                 {"interleaved_zero_bubble", NDP_PIPELINE_ZERO_BUBBLE},
                 {"zbv", NDP_PIPELINE_ZBV},
                 {"dualpipev", NDP_PIPELINE_DUALPIPEV}};
    for (int i = 0; i < NDP_COUNT(files); i++) {
        char *with_messages = ndp_format("%s_comms", files[i].name);
        ndp_pipeline a = read_fixture(files[i].name), b = read_fixture(with_messages), c = make(files[i].kind, 4, 2, 8);
        check_equal(&a, &b);
        check_equal(&a, &c);
        ndp_pipeline_release(&a);
        ndp_pipeline_release(&b);
        ndp_pipeline_release(&c);
        free(with_messages);
    }
}

/* ---- ours ---- */

static void what_we_write_we_read(void **state) {
    (void)state;
    for (ndp_pipeline_kind kind = 0; kind < NDP_PIPELINE_FILE; kind++)
        for (int p = 1; p <= 5; p++)
            for (int m = 1; m <= 11; m += 2) {
                int v = ndp_pipeline_table[kind].fewest;
                ndp_pipeline s = make(kind, p, v, m), again;
                ndp_str text = {0};
                CHECK_OK(ndp_pipeline_text(&s, &text));
                CHECK_OK(parse(text.data, m, &again));
                check_equal(&s, &again);
                ndp_str_release(&text);
                ndp_pipeline_release(&s);
                ndp_pipeline_release(&again);
            }
}

/* The texts that reviewers read, and that make_pipelines.py shows to torch. */
static void the_texts_are_as_reviewed(void **state) {
    (void)state;
    for (ndp_pipeline_kind kind = 0; kind < NDP_PIPELINE_FILE; kind++) {
        ndp_pipeline s = make(kind, 4, ndp_pipeline_table[kind].fewest, 8);
        ndp_str text = {0};
        CHECK_OK(ndp_pipeline_text(&s, &text));
        char *name = ndp_format("pipeline/golden/%s.csv", s.name);
        check_golden(name, &text);
        free(name);
        ndp_pipeline_release(&s);
    }
}

static void a_file_is_written_and_read(void **state) {
    (void)state;
    char folder[] = "/tmp/ndp-pipeline-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = ndp_format("%s/zbv.csv", folder);
    ndp_pipeline s = make(NDP_PIPELINE_ZBV, 3, 2, 5), again;
    CHECK_OK(ndp_pipeline_write(&s, path));
    CHECK_OK(ndp_pipeline_read(path, 5, &again));
    check_equal(&s, &again);
    assert_string_equal(again.name, path);
    ndp_pipeline_release(&again);
    unlink(path);
    CHECK_FAILS(ndp_pipeline_read(path, 5, &again), NDP_EINVAL, path);
    CHECK_FAILS(ndp_pipeline_read(folder, 5, &again), NDP_EIO, folder);
    ndp_pipeline_release(&s);
    rmdir(folder);
    free(path);
}

/* ---- details of the format ---- */

static void cells_are_read_as_torch_reads_them(void **state) {
    (void)state;
    ndp_pipeline s;
    CHECK_OK(
        parse(", 0F0 ,,0SEND_F0,0UNSHARD,(0F1;0B0)OVERLAP_F_B,0RESHARD,,0I1,0REDUCE_GRAD,\t0W1,0WAIT_REDUCE_GRAD\r\n"
              "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0,1F1,1B1",
              2, &s));
    assert_int_equal(s.ranks, 2);
    assert_int_equal(s.stages, 2);
    assert_int_equal(s.rows[0].n, 5);
    static const ndp_stage_action expected[] = {{0, 0, NDP_ACTION_FORWARD, false, 1},
                                                {0, 1, NDP_ACTION_FORWARD, true, 5},
                                                {0, 0, NDP_ACTION_BACKWARD, false, 5},
                                                {0, 1, NDP_ACTION_INPUT_GRADIENT, false, 8},
                                                {0, 1, NDP_ACTION_WEIGHT_GRADIENT, false, 10}};
    for (int i = 0; i < 5; i++) {
        const ndp_stage_action *a = &s.rows[0].actions[i], *e = &expected[i];
        assert_int_equal(a->stage, e->stage);
        assert_int_equal(a->micro_batch, e->micro_batch);
        assert_int_equal(a->action, e->action);
        assert_int_equal(a->paired, e->paired);
        assert_int_equal(a->column, e->column);
    }
    ndp_pipeline_release(&s);
}

/* ---- bad files ---- */

/* Row 1 of most: a last stage that runs both micro-batches. */
#define GOOD "1F0,1B0,1F1,1B1\n"

static const struct {
    const char *text, *words;
    ndp_status status;
    int micro_batches;
} bad[] = {
    /* an action is missing, or there twice */
    {"0F0,0F1,0B0\n" GOOD, "x.csv: row 0 lacks '0B1': each micro-batch", NDP_EINVAL, 2},
    {"0F0,0F1,0B0,0I1\n" GOOD, "x.csv: row 0 lacks '0W1'", NDP_EINVAL, 2},
    {"0F0,0B0\n" GOOD, "x.csv: row 0 lacks '0F1': the table has 2 stages and 2 micro-batches", NDP_EINVAL, 2},
    {"0F0,0F1,0B0,0B1\n2F0,2F1,2B0,2B1", "x.csv: no row has stage 1: stages are 0 to 2", NDP_EINVAL, 2},
    {"0F0,0F1,,0F0,0B0,0B1\n" GOOD,
     "x.csv: row 0, column 3, '0F0': the row has the forward of stage 0 for micro-batch 0 twice", NDP_EINVAL, 2},
    {"0F0,0F1,0B0,0B1,0B0\n" GOOD,
     "x.csv: row 0, column 4, '0B0': the row has the backward of stage 0 for micro-batch 0 twice", NDP_EINVAL, 2},
    /* B together with I or W */
    {"0F0,0F1,0B0,0I0,0B1\n" GOOD,
     "x.csv: row 0, column 3, '0I0': a B is both gradients, and the row has '0B0' already", NDP_EINVAL, 2},
    {"0F0,0F1,0B0,0B1,0W1\n" GOOD,
     "x.csv: row 0, column 4, '0W1': a B is both gradients, and the row has '0B1' already", NDP_EINVAL, 2},
    {"0F0,0F1,0I0,0B0,0B1\n" GOOD,
     "x.csv: row 0, column 3, '0B0': a B is both gradients, and the row has '0I0' already", NDP_EINVAL, 2},
    /* order within a row */
    {"0F0,0I1,0F1,0W1,0B0\n" GOOD,
     "x.csv: row 0, column 1, '0I1': the input gradient is before its forward: '0F1' has to be earlier", NDP_EINVAL, 2},
    {"0F0,0F1,0W0,0I0,0B1\n" GOOD,
     "x.csv: row 0, column 2, '0W0': the weight gradient is before its input gradient: '0I0' has to be earlier",
     NDP_EINVAL, 2},
    /* a stage on two ranks */
    {"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,0B1,1B1",
     "x.csv: row 1, column 3, '0B1': stage 0 is on rank 0: all its cells have to be in row 0", NDP_EINVAL, 2},
    /* order between rows */
    {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
     "x.csv: row 0, column 1, '0B0': deadlock: it waits for '1B0' in row 1, column 2; before that comes '1F1' in "
     "column 1",
     NDP_EINVAL, 2},
    {"0F0,2F0,0B0,2B0\n1F0,1B0\n", "x.csv: row 0, column 2, '0B0': deadlock", NDP_EINVAL, 1},
    {"1F0,0F0,0B0,1B0\n", "x.csv: row 0, column 0, '1F0': deadlock: it waits for '0F0', which comes later in the row",
     NDP_EINVAL, 1},
    /* micro-batches */
    {"0F0,0F1,0B0,0B1\n" GOOD, "x.csv: the table has 2 micro-batches, but a step has 3", NDP_EINVAL, 3},
    {"0F0,0F1,0B0,0B1\n" GOOD, "x.csv: row 0, column 1, '0F1': the table has 2 micro-batches, but a step has 1",
     NDP_EINVAL, 1},
    {"0F0,0F999999,0B0,0B1\n" GOOD, "x.csv: row 0 lacks '0F1': the table has 2 stages and 1000000 micro-batches",
     NDP_EINVAL, 0},
    /* pairs */
    {"0F0,(0F1;0F1)OVERLAP_F_B,0B0,0B1\n" GOOD, "x.csv: row 0, column 1, '0F1': a pair is a forward and a backward",
     NDP_EINVAL, 2},
    {"0F0,0F1,(0B0;0B1)OVERLAP_F_B\n" GOOD, "x.csv: row 0, column 2, '0B0': a pair is a forward and a backward",
     NDP_EINVAL, 2},
    {"(0F0;0B0)OVERLAP_F_B\n1F0,1B0\n",
     "x.csv: row 0, column 0, '0F0': a pair's halves overlap, but the backward of micro-batch 0 needs this forward",
     NDP_EINVAL, 1},
    {"0F0,(0F1;0B0),0B1\n" GOOD, "x.csv: row 0, column 1, '(0F1;0B0)': expected a pair such as", NDP_EFORMAT, 2},
    {"0F0,(0F1;0B0\n" GOOD, "x.csv: row 0, column 1, '(0F1;0B0': expected a pair", NDP_EFORMAT, 2},
    {"0F0,(0F1)OVERLAP_F_B\n" GOOD, "x.csv: row 0, column 1, '(0F1)OVERLAP_F_B': expected a pair", NDP_EFORMAT, 2},
    {"0F0,(0SEND_F1;0B0)OVERLAP_F_B\n" GOOD, "row 0, column 1, '(0SEND_F1;0B0)OVERLAP_F_B': expected a pair",
     NDP_EFORMAT, 2},
    /* words and numbers */
    {"0F0,0X1\n" GOOD, "x.csv: row 0, column 1, '0X1': expected an action such as 0F3", NDP_EFORMAT, 2},
    {"F0\n" GOOD, "x.csv: row 0, column 0, 'F0': expected an action", NDP_EFORMAT, 2},
    {"0F0,0F\n" GOOD, "x.csv: row 0, column 1, '0F': expected an action", NDP_EFORMAT, 2},
    {"0F0,0F1,0SEND_F,0B0\n" GOOD, "x.csv: row 0, column 2, '0SEND_F': expected an action", NDP_EFORMAT, 2},
    {"0F0,0SEND_FB1,0F1\n" GOOD, "x.csv: row 0, column 1, '0SEND_FB1': expected an action", NDP_EFORMAT, 2},
    {"0F0,0F1;0B0\n" GOOD, "x.csv: row 0, column 1, '0F1;0B0': expected one action, and nothing after it", NDP_EFORMAT,
     2},
    {"0F0,-1F0\n" GOOD, "x.csv: row 0, column 1, '-1F0': expected an action", NDP_EFORMAT, 2},
    {"0F0,1000000F0\n" GOOD, "x.csv: row 0, column 1, '1000000F0': expected an action", NDP_EFORMAT, 2},
    {"\"0F0\",\"0B0\"\n", "x.csv: row 0, column 0, '\"0F0\"': expected an action", NDP_EFORMAT, 1},
    /* rows */
    {"", "x.csv: the file has no rows", NDP_EINVAL, 1},
    {"0F0,0F1,0B0,0B1\n\n" GOOD, "x.csv: row 1 has no action: there is one row per rank", NDP_EINVAL, 2},
    {"0F0,0F1,0B0,0B1\n" GOOD ",,\n", "x.csv: row 2 has no action", NDP_EINVAL, 2},
};

static void bad_files_are_refused_by_cell(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        ndp_pipeline s;
        CHECK_FAILS(parse(bad[i].text, bad[i].micro_batches, &s), bad[i].status, bad[i].words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_has_the_orders_of_our_generators),
        cmocka_unit_test(what_we_write_we_read),
        cmocka_unit_test(the_texts_are_as_reviewed),
        cmocka_unit_test(a_file_is_written_and_read),
        cmocka_unit_test(cells_are_read_as_torch_reads_them),
        cmocka_unit_test(bad_files_are_refused_by_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
