/* The simulator's times are those of theory for every schedule, of the schedule's table by itself, and of programs
 * written for a case. */
#include "step/pipelines.h"
#include "step/timeline.h"

#include <math.h>

static ndp_simulation simulated(const pipeline_setup *s, const stage_costs *c) {
    ndp_simulation out;
    CHECK_OK(ndp_simulate(s->programs, s->table.ranks, &(ndp_step_costs){.seconds = stage_seconds, .user = c}, &out));
    return out;
}

/* Seconds that program i computes. */
static double busy_of(const ndp_simulation *t, int i) {
    double sum = 0;
    for (int k = 0; k <= NDP_PART_UPDATE; k++)
        sum += t->parts[i][k];
    return sum;
}

/* Idle units of time per rank, of a makespan with m (F + I + W) units of work on each. */
static double idle_of(ndp_pipeline_kind kind, int p, int v, int m, double f, double i, double w) {
    pipeline_setup s;
    stage_costs c = {f / v, i / v, w / v, 0, true};
    pipeline_begin(&s, kind, p, v, m);
    ndp_simulation t = simulated(&s, &c);
    for (int r = 0; r < p; r++)
        assert_true(fabs(busy_of(&t, r) - m * (f + i + w)) < 1e-9);
    double idle = t.makespan - m * (f + i + w);
    ndp_simulation_release(&t);
    pipeline_end(&s);
    return idle;
}

static void check_idle(ndp_pipeline_kind kind, int p, int v, int m, const double *fiw, double theory) {
    double idle = idle_of(kind, p, v, m, fiw[0], fiw[1], fiw[2]);
    printf("  %-12s p %d v %d m %2d, F I W %g %g %g: idle %g, theory %g\n", ndp_pipeline_table[kind].name, p, v, m,
           fiw[0], fiw[1], fiw[2], idle, theory);
    assert_true(fabs(idle - theory) <= 1e-9);
}

/* Proof: for p 4, m 8 and F = I = W = 1 the ranks are idle for 9, 9, 4.5, 3, 1.5; the formulas for other p, m, costs.
 */
static void idle_is_that_of_theory(void **state) {
    (void)state;
    static const double costs[][3] = {{1, 1, 1}, {1, 1.25, 0.75}};
    static const int shapes[][2] = {{4, 8}, {2, 4}, {2, 6}, {4, 12}};
    for (int k = 0; k < NDP_COUNT(costs); k++)
        for (int i = 0; i < NDP_COUNT(shapes); i++) {
            int p = shapes[i][0], m = shapes[i][1];
            double f = costs[k][0], b = costs[k][1], w = costs[k][2], all = (p - 1) * (f + b + w);
            check_idle(NDP_PIPELINE_GPIPE, p, 1, m, costs[k], all);
            check_idle(NDP_PIPELINE_1F1B, p, 1, m, costs[k], all);
            check_idle(NDP_PIPELINE_INTERLEAVED, p, 2, m, costs[k], all / 2);
            check_idle(NDP_PIPELINE_ZERO_BUBBLE, p, 1, m, costs[k], (p - 1) * (f + b - w));
            check_idle(NDP_PIPELINE_DUALPIPEV, p, 2, m, costs[k], (p - 1) * (f + b - w) / 2);
        }
}

/* zbv has no formula but for F = I = W: its staggered start remains, since the norm ends the step for all. */
static void zbv_idles_a_third_of_1f1b(void **state) {
    (void)state;
    for (int p = 2; p <= 8; p *= 2) {
        double idle = idle_of(NDP_PIPELINE_ZBV, p, 2, 2 * p, 1, 1, 1), all = 3.0 * (p - 1);
        printf("  zbv          p %d v 2 m %2d: idle %g, 1f1b %g, staggered start %g\n", p, 2 * p, idle, all,
               (p - 1) / 2.0);
        assert_true(idle <= all / 3 + 1e-9);
        assert_true(idle >= (p - 1) / 2.0 - 1e-9);
    }
    for (int v = 2; v <= 3; v++)
        check_idle(NDP_PIPELINE_ZERO_BUBBLE, 4, v, 12, (const double[]){1, 1, 1}, 3.0 / v);
}

/* With fewer micro-batches than ranks there are too few weight gradients to fill the end. */
static void few_micro_batches_idle_longer(void **state) {
    (void)state;
    check_idle(NDP_PIPELINE_ZERO_BUBBLE, 4, 1, 2, (const double[]){1, 1, 1}, 5);
    check_idle(NDP_PIPELINE_ZERO_BUBBLE, 4, 1, 3, (const double[]){1, 1, 1}, 4);
}

/* The room pipeline replays its tables by themselves. Messages that take no time do not get in the way of the program:
 * no send is waited for too early, no receive begins too late. */
static void programs_take_the_time_of_their_table(void **state) {
    (void)state;
    for (int kind = 0; kind < NDP_PIPELINE_FILE; kind++)
        for (int p = 2; p <= 8; p *= 2)
            for (int v = ndp_pipeline_table[kind].fewest; v <= ndp_pipeline_table[kind].most && v <= 3; v++)
                for (int m = p / 2; m <= 4 * p; m *= 2) {
                    pipeline_setup s = {0};
                    ndp_pipeline_times table;
                    double one[32];
                    for (int i = 0; i < NDP_COUNT(one); i++)
                        one[i] = 1;
                    if (ndp_pipeline_make((ndp_pipeline_kind)kind, p, v, m, &s.table) != NDP_OK)
                        continue; /* a number of micro-batches that the schedule does not have */
                    ndp_pipeline_release(&s.table);
                    pipeline_begin(&s, (ndp_pipeline_kind)kind, p, v, m);
                    ndp_simulation t = simulated(&s, &(stage_costs){1, 1, 1, 0, true});
                    CHECK_OK(ndp_pipeline_replay(&s.table, &(ndp_pipeline_costs){one, one, one, 0}, &table));
                    if (fabs(t.makespan - table.makespan) > 1e-9)
                        fail_msg("%s on %d ranks, %d stages each, %d micro-batches: the table takes %g, the program %g",
                                 ndp_pipeline_table[kind].name, p, v, m, table.makespan, t.makespan);
                    ndp_pipeline_times_release(&table);
                    ndp_simulation_release(&t);
                    pipeline_end(&s);
                }
}

/* Each rank waits for a send whose receive the other has begun and waits for later: it is copied in the other's wait
 * for its own send. */
static void sends_are_copied_in_other_waits(void **state) {
    (void)state;
    static const char rows[] = "0F0,0F1,0F2,0F3,0F4,0F5,0I0,0I1,0I2,0I3,0I4,0I5,0W0,0W1,0W2,0W3,0W4,0W5\n"
                               "1F0,1F1,1F2,1I0,1I1,1I2,1F3,1F4,1F5,1I3,1I4,1I5,1W0,1W1,1W2,1W3,1W4,1W5\n";
    pipeline_setup s = {0};
    CHECK_OK(ndp_pipeline_parse(rows, strlen(rows), "rows", 6, &s.table));
    pipeline_build(&s, 24, 1.0);
    CHECK_OK(ndp_program_check(s.programs, 2));
    ndp_simulation t = simulated(&s, &(stage_costs){1, 1, 1, 0, true});
    /* rank 0: 6 forwards, 1 in the wait, 3 gradients, 1 until the fourth begins, 3 more, 6 of weights */
    assert_true(fabs(t.makespan - 20) < 1e-9);
    ndp_simulation_release(&t);
    pipeline_end(&s);
}

/* One micro-batch over two ranks: two messages, each of which takes 0.25. */
static void messages_take_their_time(void **state) {
    (void)state;
    for (int background = 0; background < 2; background++) {
        pipeline_setup s;
        ndp_simulation t;
        stage_costs c = {1, 1, 1, 0.25, true};
        pipeline_begin(&s, NDP_PIPELINE_1F1B, 2, 1, 1);
        ndp_step_costs costs = {.seconds = stage_seconds, .user = &c, .background = background};
        CHECK_OK(ndp_simulate(s.programs, 2, &costs, &t));
        assert_true(fabs(t.makespan - (2 * 3 + 2 * 0.25)) < 1e-9);
        ndp_simulation_release(&t);
        pipeline_end(&s);
    }
    pipeline_setup s; /* while a rank computes, only a network card moves its messages */
    double makespan[2];
    for (int background = 0; background < 2; background++) {
        ndp_simulation t;
        stage_costs c = {1, 1, 1, 0.25, true};
        pipeline_begin(&s, NDP_PIPELINE_1F1B, 4, 1, 8);
        ndp_step_costs costs = {.seconds = stage_seconds, .user = &c, .background = background};
        CHECK_OK(ndp_simulate(s.programs, 4, &costs, &t));
        makespan[background] = t.makespan;
        ndp_simulation_release(&t);
        pipeline_end(&s);
    }
    assert_true(makespan[1] < makespan[0] && makespan[1] >= 33);
}

/* A bubble is the time in waits of receives; the timeline has the parts of the simulation. */
static void timelines_have_the_bubble(void **state) {
    (void)state;
    static const double bubble[] = {9, 7, 5, 3}; /* of rank r: F of the ranks before it, and the rest on the way back */
    pipeline_setup s;
    ndp_timeline line = {0};
    pipeline_begin(&s, NDP_PIPELINE_1F1B, 4, 1, 8);
    ndp_simulation t = simulated(&s, &(stage_costs){1, 1, 1, 0, true});
    for (int i = 0; i < 4; i++)
        CHECK_OK(ndp_timeline_add(&line, s.programs[i], t.times[i], ndp_program_executed(s.programs[i])));
    assert_int_equal(line.n_ranks, 4);
    for (int i = 0; i < 4; i++) {
        const ndp_rank_time r = ndp_timeline_rank(&line, i);
        assert_int_equal(r.rank, i);
        printf("  rank %d: %g of %g in waits for messages\n", i, r.seconds[NDP_PART_RECEIVE], r.step);
        assert_true(fabs(r.step - 33) < 1e-9);
        assert_true(fabs(r.seconds[NDP_PART_FORWARD] - 8) < 1e-9);
        assert_true(fabs(r.seconds[NDP_PART_INPUT_GRADIENT] - 16) < 1e-9); /* `whole` */
        assert_true(fabs(r.seconds[NDP_PART_RECEIVE] - bubble[i]) < 1e-9);
        for (int k = 0; k < NDP_PARTS; k++)
            assert_true(fabs(r.seconds[k] - t.parts[i][k]) < 1e-9);
    }
    ndp_timeline_release(&line);
    ndp_simulation_release(&t);
    pipeline_end(&s);
}

/* The events of a rank that are actions are its row of the table; recompute is a part of the gradients. */
static void check_actions(const pipeline_setup *s, int rank, const ndp_timeline *line) {
    static const int kinds[NDP_ACTIONS] = {[NDP_ACTION_FORWARD] = NDP_PART_FORWARD,
                                           [NDP_ACTION_BACKWARD] = NDP_EVENT_BACKWARD,
                                           [NDP_ACTION_INPUT_GRADIENT] = NDP_PART_INPUT_GRADIENT,
                                           [NDP_ACTION_WEIGHT_GRADIENT] = NDP_PART_WEIGHT_GRADIENT};
    const ndp_pipeline_row *row = &s->table.rows[rank];
    int n = 0;
    for (int i = 0; i < line->n; i++) {
        const ndp_timeline_event *e = &line->events[i];
        if (e->stage == NDP_NONE)
            continue;
        assert_true(n < row->n);
        const ndp_stage_action *a = &row->actions[n++];
        if (e->kind != kinds[a->action] || e->stage != a->stage || e->micro_batch != a->micro_batch)
            fail_msg("%s, rank %d, action %d: '%s' for %d%c%d", s->table.name, rank, n - 1, e->name, a->stage,
                     ndp_action_letter(a->action), a->micro_batch);
    }
    assert_int_equal(n, row->n);
}

static void timelines_have_the_actions_of_the_table(void **state) {
    (void)state;
    for (int kind = 0; kind < NDP_PIPELINE_FILE; kind++)
        for (int recompute = 0; recompute < 2; recompute++) {
            pipeline_setup s = {0};
            CHECK_OK(ndp_pipeline_make((ndp_pipeline_kind)kind, 4, ndp_pipeline_table[kind].fewest, 8, &s.table));
            s.recompute = recompute;
            pipeline_build(&s, 24, 1.0);
            ndp_simulation t = simulated(&s, &(stage_costs){1, 1, 1, 0, false});
            for (int r = 0; r < 4; r++) {
                ndp_timeline line = {0};
                CHECK_OK(ndp_timeline_add(&line, s.programs[r], t.times[r], ndp_program_executed(s.programs[r])));
                check_actions(&s, r, &line);
                assert_true((t.parts[r][NDP_PART_RECOMPUTE] > 0) == (recompute == 1));
                ndp_timeline_release(&line);
            }
            ndp_simulation_release(&t);
            pipeline_end(&s);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_is_that_of_theory),          cmocka_unit_test(zbv_idles_a_third_of_1f1b),
        cmocka_unit_test(few_micro_batches_idle_longer),   cmocka_unit_test(programs_take_the_time_of_their_table),
        cmocka_unit_test(sends_are_copied_in_other_waits), cmocka_unit_test(messages_take_their_time),
        cmocka_unit_test(timelines_have_the_bubble),       cmocka_unit_test(timelines_have_the_actions_of_the_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
