/* The middle of a schedule that repeats: what ndp_schedule_find_body promises, for every pipeline and rank. */
#include "step/pipelines.h"
#include <math.h>

enum { AHEAD = 3, SETTLE = 2 }; /* entries that the builder looks ahead; micro-batches before the range */

static bool is_weight_gradient(const ndp_planned_run *r, int unit) {
    return (r->action == NDP_ACTION_BACKWARD || r->action == NDP_ACTION_WEIGHT_GRADIENT) && r->first_unit <= unit &&
           unit < r->end_unit;
}

/* Entries [first, end) come again a body later, for later micro-batches. */
static void check_alike(const ndp_schedule *s, const ndp_schedule_body *b, int first, int end) {
    for (int i = first; i < end; i++) {
        const ndp_planned_run *x = &s->runs[i], *y = &s->runs[i + b->n];
        assert_int_equal(x->action, y->action);
        assert_int_equal(x->first_unit, y->first_unit);
        assert_int_equal(x->end_unit, y->end_unit);
        assert_int_equal(x->micro_batch + b->micro_batches, y->micro_batch);
    }
}

static void check_body(const ndp_schedule *s, const ndp_model *m, const ndp_schedule_body *b) {
    int end = b->first + b->times * b->n, settle = (SETTLE + b->micro_batches - 1) / b->micro_batches;
    assert_true(b->times >= 3 && b->micro_batches > 0);
    assert_in_range(b->first, 1, s->n);
    assert_true(end + AHEAD <= s->n && b->first - settle * b->n >= 0);
    check_alike(s, b, b->first - settle * b->n, end + AHEAD - b->n);
    for (int u = 0; u < m->n_units; u++) {
        int first = 0, last = s->n - 1;
        while (!is_weight_gradient(&s->runs[first], u))
            first++;
        while (!is_weight_gradient(&s->runs[last], u))
            last--;
        assert_true(first < b->first && last >= end);
    }
}

static void bodies_of_pipelines(void **state) {
    (void)state;
    for (int kind = 0; kind < NDP_PIPELINE_KINDS - 1; kind++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            pipeline_setup s;
            double earliest = INFINITY, latest = 0;
            int found = 0;
            pipeline_begin(&s, kind, ranks, ndp_pipeline_table[kind].fewest, 15 * ranks);
            for (int r = 0; r < ranks; r++) {
                const ndp_model *m = ndp_engine_model(s.engines[r]);
                ndp_schedule list;
                CHECK_OK(ndp_schedule_of_rank(&s.table, r, m, &list));
                ndp_schedule_body b = ndp_schedule_find_body(&list, m);
                if (b.times > 0) {
                    check_body(&list, m, &b);
                    earliest = fmin(earliest, list.starts[b.first]);
                    latest = fmax(latest, list.starts[b.first]);
                    found++;
                }
                ndp_schedule_release(&list);
            }
            print_message("%s on %d ranks: %d bodies, which begin at %g to %g\n", s.table.name, ranks, found, earliest,
                          latest);
            assert_int_equal(found, kind == NDP_PIPELINE_GPIPE ? 0 : ranks); /* all forwards, then all backwards */
            assert_true(found == 0 || latest - earliest <= 2);
            pipeline_end(&s);
        }
}

static void bodies_in_order(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, 24);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    for (int accumulation = 1; accumulation < 40; accumulation++) {
        ndp_schedule s;
        CHECK_OK(ndp_schedule_in_order(&m, accumulation, &s));
        ndp_schedule_body b = ndp_schedule_find_body(&s, &m);
        if (b.times > 0)
            check_body(&s, &m, &b);
        assert_int_equal(b.times > 0, accumulation >= 8);
        ndp_schedule_release(&s);
    }
    ndp_model_release(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bodies_of_pipelines), cmocka_unit_test(bodies_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
