/* The tables of all schedules: each passes the check, and has the bubble and the memory that it is known for. */
#include "pipeline/held.h"
#include "pipeline/unit_time.h"

#include <math.h>

enum { RANKS = 8, VIRTUAL = 4, MICRO_BATCHES = 16 };

typedef void visitor(ndp_pipeline_kind kind, const ndp_pipeline *s, int v);

/* Visits all tables of a kind; NDP_PIPELINE_KINDS: of every kind. */
static void visit(ndp_pipeline_kind kind, visitor *visit_one) {
    int visited = 0;
    for (ndp_pipeline_kind k = 0; k < NDP_PIPELINE_FILE; k++)
        for (int p = 1; p <= RANKS; p++)
            for (int v = 1; v <= VIRTUAL; v++)
                for (int m = 1; m <= MICRO_BATCHES; m++) {
                    const ndp_pipeline_info *info = &ndp_pipeline_table[k];
                    if ((kind != k && kind != NDP_PIPELINE_KINDS) || v < info->fewest || v > info->most)
                        continue;
                    ndp_pipeline s = make(k, p, v, m);
                    visit_one(k, &s, v);
                    ndp_pipeline_release(&s);
                    visited++;
                }
    assert_true(visited >= RANKS * MICRO_BATCHES);
}

static void check_table(ndp_pipeline_kind kind, const ndp_pipeline *s, int v) {
    CHECK_OK(ndp_pipeline_check(s, s->micro_batches));
    for (int stage = 0; stage < s->stages; stage++) {
        int p = s->ranks, turned = 2 * p - 1 - stage;
        bool in_a_v = ndp_pipeline_table[kind].map == NDP_STAGES_V;
        assert_int_equal(s->rank_of[stage], in_a_v ? (stage < p ? stage : turned) : stage % p);
    }
    assert_int_equal(s->stages, s->ranks * v);
}

static void every_table_passes_the_check(void **state) {
    (void)state;
    visit(NDP_PIPELINE_KINDS, check_table);
}

static void check_weight_order(ndp_pipeline_kind kind, const ndp_pipeline *s, int v) {
    (void)kind, (void)v;
    int *next = calloc((size_t)s->stages, sizeof *next);
    for (int rank = 0; rank < s->ranks; rank++)
        for (int i = 0; i < s->rows[rank].n; i++) {
            const ndp_stage_action *a = &s->rows[rank].actions[i];
            if (a->action == NDP_ACTION_BACKWARD || a->action == NDP_ACTION_WEIGHT_GRADIENT)
                assert_int_equal(a->micro_batch, next[a->stage]++);
        }
    free(next);
}

static void weight_gradients_are_in_the_order_of_micro_batches(void **state) {
    (void)state;
    visit(NDP_PIPELINE_KINDS, check_weight_order);
}

/* ---- bubbles ---- */

static const double costs[][3] = {{1, 1, 1}, {1, 1.5, 1}, {2, 1, 1}, {1, 1.25, 0.5}, {1, 2, 1}};

/* A rank's idle time, with at least as many micro-batches as ranks (dualpipev: as stages). dualpipev has the published
 * bubble while (p-1) I <= p F: a longer chain of input gradients to the last rank takes longer than the 2p+1 forwards
 * for which that rank has memory. */
static double bubble_of(ndp_pipeline_kind kind, int p, int v, const double cost[3]) {
    double F = cost[0], I = cost[1], W = cost[2], late = (p - 1) * I - p * F;
    switch (kind) {
    case NDP_PIPELINE_INTERLEAVED:
        return (p - 1) * (F + I + W) / v;
    case NDP_PIPELINE_ZERO_BUBBLE:
        return (p - 1) * (F + I - W) / v;
    case NDP_PIPELINE_DUALPIPEV:
        return ((p - 1) * (F + I - W) + (late > 0 ? late : 0)) / 2;
    default:
        return (p - 1) * (F + I + W);
    }
}

static void check_idle(const ndp_pipeline *s, const double cost[3], double least, double most) {
    ndp_pipeline_times t = replay(s, cost, 0);
    for (int rank = 0; rank < s->ranks; rank++)
        if (t.idle[rank] < least - 1e-9 || t.idle[rank] > most + 1e-9)
            fail_msg("%s: ranks %d, stages %d, micro-batches %d, F %g, I %g, W %g: rank %d is idle for %.9g, expected "
                     "%.9g to %.9g",
                     s->name, s->ranks, s->stages, s->micro_batches, cost[0], cost[1], cost[2], rank, t.idle[rank],
                     least, most);
    ndp_pipeline_times_release(&t);
}

static void check_bubble(ndp_pipeline_kind kind, const ndp_pipeline *s, int v) {
    if (s->micro_batches < (kind == NDP_PIPELINE_DUALPIPEV ? s->stages : s->ranks))
        return;
    for (int c = 0; c < NDP_COUNT(costs); c++) {
        double bubble = bubble_of(kind, s->ranks, v, costs[c]);
        check_idle(s, costs[c], bubble, bubble);
    }
}

static void the_bubbles_are_as_published(void **state) {
    (void)state;
    for (ndp_pipeline_kind k = 0; k < NDP_PIPELINE_FILE; k++)
        if (k != NDP_PIPELINE_ZBV)
            visit(k, check_bubble);
}

/* With F = I = W a third of the bubble of 1f1b is (p-1)F, and from 3p/2 micro-batches on only the start remains. */
static void check_zbv(ndp_pipeline_kind kind, const ndp_pipeline *s, int v) {
    (void)kind, (void)v;
    int p = s->ranks, m = s->micro_batches;
    double start = (p - 1) / 2.0;
    if (m >= p)
        check_idle(s, costs[0], start, 2 * m >= 3 * p ? start : 2 * start);
}

static void zbv_idles_only_at_its_start(void **state) {
    (void)state;
    visit(NDP_PIPELINE_ZBV, check_zbv);
}

/* p 4, m 8, F = I = W = 1: each rank computes for 24. */
static void an_example_is_exact(void **state) {
    (void)state;
    static const struct {
        ndp_pipeline_kind kind;
        int v, m;
        double idle;
    } examples[] = {
        {NDP_PIPELINE_GPIPE, 1, 8, 9},       {NDP_PIPELINE_1F1B, 1, 8, 9},        {NDP_PIPELINE_INTERLEAVED, 2, 8, 4.5},
        {NDP_PIPELINE_ZERO_BUBBLE, 1, 8, 3}, {NDP_PIPELINE_DUALPIPEV, 2, 8, 1.5}, {NDP_PIPELINE_ZBV, 2, 8, 1.5},
        {NDP_PIPELINE_ZERO_BUBBLE, 1, 2, 5}, {NDP_PIPELINE_ZERO_BUBBLE, 1, 3, 4}, {NDP_PIPELINE_ZERO_BUBBLE, 2, 8, 1.5},
    };
    for (int i = 0; i < NDP_COUNT(examples); i++) {
        ndp_pipeline s = make(examples[i].kind, 4, examples[i].v, examples[i].m);
        check_idle(&s, costs[0], examples[i].idle, examples[i].idle);
        ndp_pipeline_release(&s);
    }
}

/* No schedule is slower than 1f1b, also with few micro-batches. */
static void check_against_1f1b(ndp_pipeline_kind kind, const ndp_pipeline *s, int v) {
    (void)kind, (void)v;
    check_idle(s, costs[0], 0, 3 * (s->ranks - 1));
}

static void none_is_slower_than_1f1b(void **state) {
    (void)state;
    visit(NDP_PIPELINE_KINDS, check_against_1f1b);
}

/* ---- memory ---- */

/* What rank i holds at most, in micro-batches. An interleaved rank holds more if the micro-batches are not a multiple
 * of the ranks: its groups are then larger than p (looped.c). */
static double most_held(ndp_pipeline_kind kind, int p, int v, int m, int i) {
    int groups = m / p, group = groups ? (m + groups - 1) / groups : m;
    switch (kind) {
    case NDP_PIPELINE_1F1B:
        return p - i;
    case NDP_PIPELINE_INTERLEAVED:
        return ((v - 1) * group + 2 * (p - 1 - i) + 1) / (double)v;
    case NDP_PIPELINE_ZERO_BUBBLE:
        return ((v - 1) * group + p - i) / (double)v;
    case NDP_PIPELINE_ZBV:
        return p;
    case NDP_PIPELINE_DUALPIPEV:
        return m >= 2 * p ? p + 0.5 : m;
    default:
        return m;
    }
}

static void check_held(ndp_pipeline_kind kind, const ndp_pipeline *s, int v) {
    int p = s->ranks, m = s->micro_batches;
    for (int i = 0; i < p; i++) {
        double most = most_held(kind, p, v, m, i), held = pipeline_held(s, i, 0) / v;
        most = most < m ? most : m;
        bool exact = kind < NDP_PIPELINE_ZBV || m >= 2 * p;
        if (exact ? held != most : held > most)
            fail_msg("%s: p %d, v %d, m %d: rank %d holds %g micro-batches, expected %g", s->name, p, v, m, i, held,
                     most);
    }
    if (kind == NDP_PIPELINE_INTERLEAVED && m % p == 0 && m > p)
        assert_true(fabs(pipeline_held(s, 0, 0) / v - (p + (p - 1) / (double)v)) < 1e-9);
}

static void ranks_hold_as_many_micro_batches_as_published(void **state) {
    (void)state;
    visit(NDP_PIPELINE_KINDS, check_held);
}

/* zero_bubble on rank i: p-i whole ones, and i whose weight gradients are pending. */
static void check_kept(ndp_pipeline_kind kind, const ndp_pipeline *s, int v) {
    (void)kind;
    int p = s->ranks;
    for (int i = 0; i < p && v == 1 && s->micro_batches >= p; i++)
        assert_true(pipeline_held(s, i, 0.5) == p - i / 2.0 && pipeline_held(s, i, 1) <= p);
}

static void zero_bubble_holds_p_micro_batches_on_every_rank(void **state) {
    (void)state;
    visit(NDP_PIPELINE_ZERO_BUBBLE, check_kept);
}

/* ---- forwards alone ---- */

/* Micro-batches between the first stage and the last are at most as many as stages: later stages go first. */
static void check_under_way(const ndp_pipeline *s) {
    ndp_pipeline_times t = replay(s, costs[0], 0);
    int first = s->rank_of[0], last = s->rank_of[s->stages - 1];
    for (int i = 0; i < s->rows[first].n; i++) {
        int ended = 0;
        for (int k = 0; k < s->rows[last].n; k++)
            ended +=
                s->rows[last].actions[k].stage == s->stages - 1 && t.rows[last][k].end <= t.rows[first][i].start + 1e-9;
        if (s->rows[first].actions[i].stage == 0)
            assert_true(s->rows[first].actions[i].micro_batch + 1 - ended <= s->stages);
    }
    ndp_pipeline_times_release(&t);
}

static void check_forward(ndp_pipeline_kind kind, const ndp_pipeline *map, int v) {
    int m = map->micro_batches, p = map->ranks;
    ndp_pipeline s;
    CHECK_OK(ndp_pipeline_forward(map, m, &s));
    assert_memory_equal(s.rank_of, map->rank_of, (size_t)s.stages * sizeof *s.rank_of);
    int *next = calloc((size_t)s.stages, sizeof *next);
    for (int rank = 0; rank < p; rank++)
        for (int i = 0; i < s.rows[rank].n; i++) {
            const ndp_stage_action *a = &s.rows[rank].actions[i];
            assert_int_equal(s.rank_of[a->stage], rank);
            assert_int_equal(a->action, NDP_ACTION_FORWARD);
            assert_int_equal(a->micro_batch, next[a->stage]++);
        }
    for (int stage = 0; stage < s.stages; stage++)
        assert_int_equal(next[stage], m);
    free(next);
    if (ndp_pipeline_table[kind].map == NDP_STAGES_LOOP && m % p == 0)
        check_idle(&s, costs[0], (p - 1) / (double)v, (p - 1) / (double)v);
    else
        check_idle(&s, costs[0], 0, 2 * p);
    check_under_way(&s);
    ndp_pipeline_release(&s);
}

static void forwards_alone_run_on_every_map(void **state) {
    (void)state;
    visit(NDP_PIPELINE_KINDS, check_forward);
    ndp_pipeline map = make(NDP_PIPELINE_1F1B, 2, 1, 1), s;
    CHECK_FAILS(ndp_pipeline_forward(&map, 0, &s), NDP_EINVAL, "a forward of 0 micro-batches");
    ndp_pipeline_release(&map);
}

/* ---- refusals ---- */

static void illegal_sizes_are_refused_with_the_nearest_legal_ones(void **state) {
    (void)state;
    static const struct {
        ndp_pipeline_kind kind;
        int p, v, m;
        const char *words;
    } cases[] = {
        {NDP_PIPELINE_FILE, 2, 1, 2, "the schedule 'file' is read from a CSV file"},
        {NDP_PIPELINE_GPIPE, 2, 2, 2,
         "gpipe takes 1 virtual stage, not 2: the nearest number is 1; interleaved and zero_bubble take more"},
        {NDP_PIPELINE_1F1B, 2, 0, 2, "1f1b takes 1 virtual stage, not 0: the nearest number is 1"},
        {NDP_PIPELINE_INTERLEAVED, 2, 1, 2,
         "takes 2 or more virtual stages, not 1: the nearest number is 2; with 1 it is 1f1b"},
        {NDP_PIPELINE_ZBV, 2, 1, 2, "zbv takes 2 virtual stages, not 1: the nearest number is 2"},
        {NDP_PIPELINE_DUALPIPEV, 2, 3, 2, "dualpipev takes 2 virtual stages, not 3: the nearest number is 2"},
        {NDP_PIPELINE_1F1B, 0, 1, 2, "1f1b of 0 ranks with 1 virtual stage: ranks are 1 to 65536"},
        {NDP_PIPELINE_ZERO_BUBBLE, 40000, 2, 2,
         "zero_bubble of 40000 ranks with 2 virtual stages: ranks are 1 to 32768"},
        {NDP_PIPELINE_1F1B, 2, 1, 0,
         "1f1b of 2 ranks with 1 virtual stage and 0 micro-batches: micro-batches are 1 to"},
        {NDP_PIPELINE_1F1B, 2, 1, 1 << 30, "micro-batches are 1 to 1048576"},
        {NDP_PIPELINE_1F1B, 65536, 1, 1 << 20, "micro-batches are 1 to 341"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_pipeline s;
        CHECK_FAILS(ndp_pipeline_make(cases[i].kind, cases[i].p, cases[i].v, cases[i].m, &s), NDP_EINVAL,
                    cases[i].words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_passes_the_check),
        cmocka_unit_test(weight_gradients_are_in_the_order_of_micro_batches),
        cmocka_unit_test(the_bubbles_are_as_published),
        cmocka_unit_test(zbv_idles_only_at_its_start),
        cmocka_unit_test(an_example_is_exact),
        cmocka_unit_test(none_is_slower_than_1f1b),
        cmocka_unit_test(ranks_hold_as_many_micro_batches_as_published),
        cmocka_unit_test(zero_bubble_holds_p_micro_batches_on_every_rank),
        cmocka_unit_test(forwards_alone_run_on_every_map),
        cmocka_unit_test(illegal_sizes_are_refused_with_the_nearest_legal_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
