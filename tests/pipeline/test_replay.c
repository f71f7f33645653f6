/* The replay in time, and the check of tables that were changed by hand. */
#include "pipeline/held.h"
#include "pipeline/unit_time.h"

static ndp_pipeline parse(const char *text) {
    ndp_pipeline s;
    CHECK_OK(ndp_pipeline_parse(text, strlen(text), "table", 0, &s));
    return s;
}

static void check_row(const ndp_action_time *times, const double (*expected)[2], int n) {
    for (int i = 0; i < n; i++)
        if (times[i].start != expected[i][0] || times[i].end != expected[i][1])
            fail_msg("action %d runs from %g to %g, expected %g to %g", i, times[i].start, times[i].end, expected[i][0],
                     expected[i][1]);
}

/* Stage 1 takes longer than stage 0, and a message half a unit. */
static void actions_start_when_their_operands_have_arrived(void **state) {
    (void)state;
    ndp_pipeline s = parse("0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1I1,1W1\n");
    const double F[] = {1, 2}, I[] = {1, 3}, W[] = {2, 1};
    ndp_pipeline_times t;
    CHECK_OK(ndp_pipeline_replay(&s, &(ndp_pipeline_costs){F, I, W, 0.5}, &t));
    check_row(t.rows[0], (const double[][2]){{0, 1}, {1, 2}, {8, 9}, {9, 11}, {13, 16}}, 5);
    check_row(t.rows[1], (const double[][2]){{1.5, 3.5}, {3.5, 7.5}, {7.5, 9.5}, {9.5, 12.5}, {12.5, 13.5}}, 5);
    assert_true(t.makespan == 16 && t.idle[0] == 16 - 8 && t.idle[1] == 16 - 12);
    ndp_pipeline_times_release(&t);
    ndp_pipeline_release(&s);
}

/* Two stages of one rank exchange no message. */
static void messages_go_between_ranks_only(void **state) {
    (void)state;
    static const double ones[3] = {1, 1, 1};
    ndp_pipeline turn = make(NDP_PIPELINE_ZBV, 1, 2, 3), s = make(NDP_PIPELINE_ZBV, 3, 2, 6);
    ndp_pipeline_times near = replay(&turn, ones, 100), far = replay(&s, ones, 100);
    assert_true(near.idle[0] == 0 && near.makespan == 9);
    assert_true(far.makespan > 200);
    ndp_pipeline_times_release(&near);
    ndp_pipeline_times_release(&far);
    ndp_pipeline_release(&turn);
    ndp_pipeline_release(&s);
}

/* A pair runs as its halves would one after the other. */
static void a_pair_takes_as_long_as_its_halves(void **state) {
    (void)state;
    static const double ones[3] = {1, 1, 1};
    ndp_pipeline paired = parse("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"), apart = parse("0F0,0F1,0B0,0B1\n");
    ndp_pipeline_times a = replay(&paired, ones, 0), b = replay(&apart, ones, 0);
    assert_true(a.makespan == b.makespan && a.idle[0] == 0);
    ndp_pipeline_times_release(&a);
    ndp_pipeline_times_release(&b);
    ndp_pipeline_release(&paired);
    ndp_pipeline_release(&apart);
}

static void held_counts_what_waits_for_gradients(void **state) {
    (void)state;
    ndp_pipeline s = parse("0F0,0F1,0I0,0I1,0F2,0W0,0W1,0B2\n");
    assert_true(pipeline_held(&s, 0, 0) == 2);
    assert_true(pipeline_held(&s, 0, 0.75) == 2.5);
    assert_true(pipeline_held(&s, 0, 1) == 3);
    ndp_pipeline_release(&s);
}

/* ---- changed tables ---- */

/* Without any one of its actions, or with one twice, no table passes. */
static void a_lost_or_doubled_action_is_found(void **state) {
    (void)state;
    for (ndp_pipeline_kind kind = 0; kind < NDP_PIPELINE_FILE; kind++) {
        ndp_pipeline s = make(kind, 3, ndp_pipeline_table[kind].fewest, 6);
        for (int rank = 0; rank < s.ranks; rank++)
            for (int i = 0; i < s.rows[rank].n; i++) {
                ndp_pipeline_row *row = &s.rows[rank], whole = *row;
                size_t before = (size_t)i, after = (size_t)(whole.n - i - 1);
                row->actions = malloc(((size_t)whole.n + 1) * sizeof *row->actions);
                memcpy(row->actions, whole.actions, before * sizeof *row->actions);
                memcpy(row->actions + before, whole.actions + before + 1, after * sizeof *row->actions);
                row->n = whole.n - 1;
                assert_int_equal(ndp_pipeline_check(&s, 6), NDP_EINVAL);
                memcpy(row->actions, whole.actions, (size_t)whole.n * sizeof *row->actions);
                row->actions[whole.n] = whole.actions[i];
                row->actions[whole.n].paired = false;
                row->n = whole.n + 1;
                CHECK_FAILS(ndp_pipeline_check(&s, 6), NDP_EINVAL, "twice");
                free(row->actions);
                *row = whole;
            }
        CHECK_OK(ndp_pipeline_check(&s, 6));
        ndp_pipeline_release(&s);
    }
}

/* Any two actions of a row exchanged: the check passes exactly the tables in which every action follows those that it
 * needs, found here by repeated passes over all rows. */
typedef struct brute {
    bool done[2][16][16]; /* F and I of stage and micro-batch */
} brute;

static bool may_run(const brute *b, const ndp_pipeline *s, const ndp_stage_action *a) {
    int stage = a->stage, mb = a->micro_batch;
    if (a->action == NDP_ACTION_FORWARD)
        return stage == 0 || b->done[0][stage - 1][mb];
    if (a->action == NDP_ACTION_WEIGHT_GRADIENT)
        return b->done[1][stage][mb];
    return b->done[0][stage][mb] && (stage == s->stages - 1 || b->done[1][stage + 1][mb]);
}

static bool runs_to_its_end(const ndp_pipeline *s) {
    static brute b;
    int at[8] = {0}, left = 0;
    memset(&b, 0, sizeof b);
    for (int rank = 0; rank < s->ranks; rank++)
        left += s->rows[rank].n;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < s->ranks; rank++) {
            const ndp_stage_action *a = &s->rows[rank].actions[at[rank]];
            if (at[rank] == s->rows[rank].n || !may_run(&b, s, a))
                continue;
            b.done[0][a->stage][a->micro_batch] |= a->action == NDP_ACTION_FORWARD;
            b.done[1][a->stage][a->micro_batch] |=
                a->action == NDP_ACTION_BACKWARD || a->action == NDP_ACTION_INPUT_GRADIENT;
            at[rank]++, left--;
            moved = true;
        }
    }
    return left == 0;
}

static void exchanged_actions_pass_exactly_if_they_can_run(void **state) {
    (void)state;
    static const ndp_pipeline_kind kinds[] = {NDP_PIPELINE_1F1B, NDP_PIPELINE_INTERLEAVED, NDP_PIPELINE_ZERO_BUBBLE,
                                              NDP_PIPELINE_ZBV};
    int passed = 0, refused = 0;
    for (int k = 0; k < NDP_COUNT(kinds); k++) {
        ndp_pipeline s = make(kinds[k], 3, ndp_pipeline_table[kinds[k]].fewest, 5);
        for (int rank = 0; rank < s.ranks; rank++)
            for (int i = 0; i < s.rows[rank].n; i++)
                for (int j = i + 1; j < s.rows[rank].n; j++) {
                    ndp_stage_action *a = s.rows[rank].actions, was = a[i];
                    a[i] = a[j], a[j] = was;
                    bool passes = ndp_pipeline_check(&s, 5) == NDP_OK;
                    assert_int_equal(passes, runs_to_its_end(&s));
                    passed += passes, refused += !passes;
                    a[j] = a[i], a[i] = was;
                }
        ndp_pipeline_release(&s);
    }
    assert_true(passed > 100 && refused > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actions_start_when_their_operands_have_arrived),
        cmocka_unit_test(messages_go_between_ranks_only),
        cmocka_unit_test(a_pair_takes_as_long_as_its_halves),
        cmocka_unit_test(held_counts_what_waits_for_gradients),
        cmocka_unit_test(a_lost_or_doubled_action_is_found),
        cmocka_unit_test(exchanged_actions_pass_exactly_if_they_can_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
