/* Lines of metrics.jsonl: damaged ones, missing keys, sums. */
#include "check.h"
#include "report/run_metrics.h"

#include <math.h>

static ndp_run_metrics read_all(const char *text) {
    ndp_run_metrics m = {0};
    CHECK_OK(ndp_run_metrics_add(&m, text, strlen(text)));
    return m;
}

static void damaged_lines_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int lines, damaged;
    } cases[] = {
        {"", 0, 0},
        {"\n\n", 0, 0},
        {"{\"step\": 1, \"loss\": 2}\n", 1, 0},
        {"{\"step\": 1, \"loss\": 2}", 1, 0}, /* no line break yet */
        {"{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"lo", 1, 1},
        {"{\"step\": 1, \"lo\n{\"step\": 2, \"loss\": 2}\n", 1, 1},
        {"{\"loss\": 2}\n{\"step\": 1}\n{\"step\": -1, \"loss\": 1}\n{\"step\": 1.5, \"loss\": 1}\n", 0, 4},
        {"[1]\nnull\n\"step\"\n\xff\xfe\n{}\n", 0, 5},
        {"{\"step\": 2, \"loss\": 2}\n{\"step\": 2, \"loss\": 2}\n{\"step\": 1, \"loss\": 2}\n", 1, 2},
        {"{\"step\": 1, \"loss\": null, \"lr\": \"x\", \"grad_norm\": []}\n", 1, 0},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_run_metrics m = read_all(cases[i].text);
        assert_int_equal(m.lines, cases[i].lines);
        assert_int_equal(m.damaged, cases[i].damaged);
        ndp_run_metrics_release(&m);
    }
}

static void tokens_and_seconds_are_summed(void **state) {
    (void)state;
    ndp_run_metrics m =
        read_all("{\"step\": 1, \"loss\": 3, \"tokens\": 10, \"step_seconds\": 0.5}\n"
                 "{\"step\": 2, \"loss\": NaN, \"tokens\": 20, \"step_seconds\": 0.25, \"eval_loss\": 4}\n"
                 "{\"step\": 4, \"loss\": 1, \"tokens\": 30, \"step_seconds\": 1, \"eval_loss\": 3, "
                 "\"tokens_per_second\": 30}\n"
                 "{\"step\": 5, \"loss\": 1.5, \"eval_loss\": 3}\n");
    assert_int_equal(m.step, 5);
    assert_true(m.loss == 1.5 && isnan(m.tokens_per_second) && isnan(m.time));
    assert_true(m.over[NDP_OVER_TOKENS] == 60 && m.over[NDP_OVER_SECONDS] == 1.75);
    assert_true(m.tokens == 60 && m.seconds == 1.75);
    assert_int_equal(m.no_loss, 1);
    assert_int_equal(m.first_no_loss, 2);
    assert_int_equal(m.n_evals, 3);
    assert_int_equal(ndp_run_metrics_best(&m)->step, 4);
    assert_non_null(ndp_run_metrics_curve(&m, "eval_loss"));
    assert_null(ndp_run_metrics_curve(&m, "tokens"));
    ndp_run_metrics_release(&m);
}

/* The clock and the totals of the run replace the sums where lines have them, from the first such line on. */
static void clock_and_totals(void **state) {
    (void)state;
    ndp_run_metrics m = read_all(
        "{\"step\": 1, \"loss\": 3, \"tokens\": 10, \"step_seconds\": 2}\n"
        "{\"step\": 2, \"loss\": 3, \"tokens\": 10, \"step_seconds\": 2, \"time\": 1000, \"tokens_total\": 500}\n"
        "{\"step\": 3, \"loss\": 3, \"tokens\": 10, \"step_seconds\": 2, \"time\": 1005, \"tokens_total\": 510}\n"
        "{\"step\": 4, \"loss\": 3, \"tokens\": 10, \"step_seconds\": 2, \"time\": 900, \"tokens_total\": 20}\n");
    assert_true(m.over[NDP_OVER_TOKENS] == 510 && m.over[NDP_OVER_SECONDS] == 9 && m.time == 900);
    ndp_run_metrics_release(&m);
}

static void the_newest_line_alone(void **state) {
    (void)state;
    static const char text[] =
        "{\"step\": 1, \"loss\": 3, \"eval_loss\": 9}\n{\"step\": 2, \"loss\": 3, \"eval_loss\": 8}\n"
        "{\"step\": 3, \"loss\": 2.5}\n{\"step\": 4, \"eval_loss\": 7}\n\n{\"step\": 5, \"loss\": 2";
    ndp_run_metrics m = {0};
    CHECK_OK(ndp_run_metrics_newest(&m, text, sizeof text - 1));
    assert_int_equal(m.step, 3);
    assert_true(m.loss == 2.5 && m.n_evals == 1 && m.evals[0].loss == 8);
    assert_int_equal(m.evals[0].step, 2);
    ndp_run_metrics_release(&m);
    CHECK_OK(ndp_run_metrics_newest(&m, "", 0));
    CHECK_OK(ndp_run_metrics_newest(&m, "\n", 1));
    assert_int_equal(m.lines, 0);
    ndp_run_metrics_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_lines_are_counted),
                                       cmocka_unit_test(tokens_and_seconds_are_summed),
                                       cmocka_unit_test(clock_and_totals), cmocka_unit_test(the_newest_line_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
