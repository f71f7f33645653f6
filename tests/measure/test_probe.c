/* Links measured between threads: what comes back is a number, and all ranks have the same. How large it is, a test
 * cannot know. */
#include "check.h"
#include "measure/host_links.h"
#include "measure/link_check.h"
#include "comm/cases.h"

#include <math.h>

enum { MOST_RANKS = 8, MOST_PROBES = MOST_RANKS / 2 };
static const ndp_probe_opts quick = {.seconds = 2e-4, .most = 1 << 19, .repeats = 2};

/* ---- pairs ---- */

typedef struct pairs_case {
    int world, n;
    int of[MOST_PROBES][2];
} pairs_case;

static const pairs_case pairs_cases[] = {{2, 1, {{0, 1}}},
                                         {2, 1, {{1, 0}}},
                                         {2, 0, {{0}}},
                                         {4, 2, {{0, 1}, {2, 3}}},
                                         {4, 2, {{3, 0}, {1, 2}}},
                                         {5, 2, {{0, 2}, {1, 4}}},
                                         {5, 1, {{4, 3}}},
                                         {8, 4, {{0, 7}, {1, 6}, {2, 5}, {3, 4}}},
                                         {8, 3, {{6, 7}, {0, 4}, {5, 1}}}};

/* What each rank has after the measurement, and after it was shared. */
typedef struct pairs_run {
    const pairs_case *pairs;
    ndp_probe own[MOST_RANKS][MOST_PROBES], shared[MOST_RANKS][MOST_PROBES];
} pairs_run;

static ndp_status run_pairs(ndp_transport *t, void *arg) {
    pairs_run *run = arg;
    const pairs_case *k = run->pairs;
    int rank = ndp_transport_rank(t);
    ndp_probe probes[MOST_PROBES];
    ndp_comm *c;
    for (int i = 0; i < k->n; i++) /* as after another measurement */
        probes[i] = (ndp_probe){k->of[i][0], k->of[i][1], 1e30, 1e30, 1e30, 0};
    NDP_TRY(ndp_comm_create(t, world_group(t), "links", &c));
    ndp_status st = ndp_probes_run(c, probes, k->n, &quick);
    memcpy(run->own[rank], probes, sizeof probes[0] * (size_t)k->n);
    if (st == NDP_OK)
        st = ndp_probes_share(c, probes, k->n);
    memcpy(run->shared[rank], probes, sizeof probes[0] * (size_t)k->n);
    ndp_comm_destroy(c);
    return st;
}

static void check_measured(const ndp_probe *p) {
    assert_true(isfinite(p->latency) && p->latency > 0 && p->latency < 1e9);
    assert_true(isfinite(p->to_a) && p->to_a > 0 && p->to_a < 1e30);
    assert_true(isfinite(p->to_b) && p->to_b > 0 && p->to_b < 1e30);
}

static bool are_equal(const ndp_probe *x, const ndp_probe *y) {
    return x->a == y->a && x->b == y->b && x->latency == y->latency && x->to_a == y->to_a && x->to_b == y->to_b;
}

static void check_pairs(const pairs_run *run) {
    const pairs_case *k = run->pairs;
    for (int i = 0; i < k->n; i++) {
        const ndp_probe *own = &run->own[k->of[i][0]][i];
        check_measured(own);
        for (int r = 0; r < k->world; r++) {
            assert_true(are_equal(&run->shared[r][i], own));
            if (r != k->of[i][0] && r != k->of[i][1])
                assert_true(run->own[r][i].latency == 0 && run->own[r][i].to_a == 0 && run->own[r][i].to_b == 0);
        }
    }
}

static void pairs_are_measured_at_once(void **state) {
    (void)state;
    for (int t = 0; t < NDP_COUNT(pairs_cases); t++) {
        pairs_run run = {.pairs = &pairs_cases[t]};
        CHECK_OK(ndp_local_world(pairs_cases[t].world, run_pairs, &run));
        check_pairs(&run);
    }
}

/* ---- the links of a layout ---- */

typedef struct check_run {
    const char *layout;
    const int *host_of;
    ndp_link_check checks[MOST_RANKS];
} check_run;

static ndp_status take_hosts(const int *host_of, int world, ndp_world_hosts *out) {
    char names[MOST_RANKS][NDP_HOST_TEXT] = {0};
    for (int r = 0; r < world; r++)
        snprintf(names[r], sizeof names[r], "node-%d", host_of[r]);
    return ndp_world_hosts_take(names, world, out);
}

static ndp_status run_check(ndp_transport *t, void *arg) {
    check_run *run = arg;
    ndp_link_check *check = &run->checks[ndp_transport_rank(t)];
    ndp_layout l;
    ndp_comm *c;
    NDP_TRY(ndp_layout_parse(run->layout, &l));
    NDP_TRY(take_hosts(run->host_of, ndp_transport_world(t), &check->hosts));
    NDP_TRY(ndp_comm_create(t, world_group(t), "links", &c));
    ndp_status st = ndp_link_check_run(c, &l, NDP_NO_MODEL, check);
    ndp_comm_destroy(c);
    return st;
}

static const char *words_of(const ndp_link_check *c) { return c->warnings.length ? c->warnings.data : ""; }

static void check_verdicts(const check_run *run, int world) {
    const ndp_link_check *first = &run->checks[0];
    assert_true(first->n > 0);
    for (int i = 0; i < first->n; i++)
        check_measured(&first->links[i].probe);
    for (int r = 0; r < world; r++) {
        const ndp_link_check *c = &run->checks[r];
        assert_int_equal(c->n, first->n);
        assert_string_equal(words_of(c), words_of(first));
        assert_true(isfinite(c->seconds) && c->seconds > 0);
        for (int i = 0; i < c->n; i++) {
            assert_true(are_equal(&c->links[i].probe, &first->links[i].probe));
            assert_int_equal(c->links[i].slow, first->links[i].slow);
        }
    }
}

typedef struct check_case {
    const char *layout;
    int world, host_of[MOST_RANKS];
    const char *says; /* of the axes */
} check_case;

static const check_case check_cases[] = {
    {"dp_shard=2", 2, {0, 1}, ""},
    {"dp_shard=4", 4, {0, 1, 2, 3}, ""},
    {"dp_shard=5", 5, {0, 1, 1, 2, 0}, ""},
    {"dp_shard=8", 8, {0, 0, 1, 1, 2, 2, 3, 3}, ""},
    {"pp=2,dp_shard=2,tp=2", 8, {0, 0, 0, 1, 2, 2, 3, 3}, ""},
    {"dp_replicate=2,dp_shard=4", 8, {0, 1, 2, 3, 4, 5, 6, 7}, ""},
    {"dp_shard=4,tp=2", 8, {0, 1, 0, 1, 0, 1, 0, 1}, "axis tp (2 ranks) crosses hosts while dp_shard (4), outside it,"},
};

static void all_ranks_say_the_same_of_links(void **state) {
    (void)state;
    for (int t = 0; t < NDP_COUNT(check_cases); t++) {
        const check_case *k = &check_cases[t];
        check_run run = {.layout = k->layout, .host_of = k->host_of};
        CHECK_OK(ndp_local_world(k->world, run_check, &run));
        check_verdicts(&run, k->world);
        assert_non_null(strstr(words_of(&run.checks[0]), k->says));
        for (int r = 0; r < k->world; r++)
            ndp_link_check_release(&run.checks[r]);
    }
}

/* ---- the links between hosts ---- */

typedef struct hosts_run {
    const int *host_of;
    ndp_host_links links[MOST_RANKS];
} hosts_run;

static ndp_status run_hosts(ndp_transport *t, void *arg) {
    hosts_run *run = arg;
    ndp_world_hosts hosts;
    ndp_comm *c;
    NDP_TRY(take_hosts(run->host_of, ndp_transport_world(t), &hosts));
    NDP_TRY(ndp_comm_create(t, world_group(t), "hosts", &c));
    ndp_status st = ndp_host_links_measure(c, &hosts, quick.seconds, &run->links[ndp_transport_rank(t)]);
    ndp_world_hosts_release(&hosts);
    ndp_comm_destroy(c);
    return st;
}

static bool is_rate(double x) { return isfinite(x) && x > 0; }

/* Every pair of hosts; every host alone; what all ranks of two hosts send, where both have two; ranks of a host. */
static void check_host_links(const ndp_host_links *l, const int *ranks_of, bool inside) {
    assert_true(l->racks >= 1 && l->racks <= l->n);
    assert_true(inside ? is_rate(l->inside) && is_rate(l->inside_latency) : l->inside == 0);
    assert_true(l->racks > 1 ? is_rate(l->trunk) : l->trunk == 0);
    for (int i = 0; i < l->n; i++) {
        assert_true(l->rack_of[i] >= 0 && l->rack_of[i] < l->racks);
        assert_true(l->n == 1 || is_rate(l->alone[i]));
        assert_true(l->streams[i] == 0 || (is_rate(l->streams[i]) && ranks_of[i] > 1));
        for (int k = 0; k < l->n; k++) {
            assert_true(i == k ? l->together[i * l->n + k] == 0 : is_rate(l->together[i * l->n + k]));
            assert_true(l->latency[i * l->n + k] == l->latency[k * l->n + i]);
        }
    }
}

static void check_same(const ndp_host_links *x, const ndp_host_links *y) {
    size_t n = (size_t)x->n, square = n * n;
    assert_int_equal(x->n, y->n);
    assert_memory_equal(x->together, y->together, square * sizeof *x->together);
    assert_memory_equal(x->latency, y->latency, square * sizeof *x->latency);
    assert_memory_equal(x->alone, y->alone, n * sizeof *x->alone);
    assert_memory_equal(x->streams, y->streams, n * sizeof *x->streams);
    assert_memory_equal(x->rack_of, y->rack_of, n * sizeof *x->rack_of);
    assert_int_equal(x->racks, y->racks);
    assert_true(x->inside == y->inside && x->inside_latency == y->inside_latency && x->trunk == y->trunk);
}

static void all_ranks_know_the_links_between_hosts(void **state) {
    static const struct {
        int world, host_of[MOST_RANKS], ranks_of[MOST_RANKS];
        bool inside;
    } cases[] = {{1, {0}, {1}, false},
                 {4, {0, 0, 0, 0}, {4}, true},
                 {2, {0, 1}, {1, 1}, false},
                 {5, {0, 1, 1, 2, 0}, {2, 2, 1}, true},
                 {8, {0, 0, 1, 1, 2, 2, 3, 3}, {2, 2, 2, 2}, true},
                 {8, {0, 0, 0, 1, 2, 2, 3, 3}, {3, 1, 2, 2}, true}};
    (void)state;
    for (int t = 0; t < NDP_COUNT(cases); t++) {
        hosts_run run = {.host_of = cases[t].host_of};
        CHECK_OK(ndp_local_world(cases[t].world, run_hosts, &run));
        check_host_links(&run.links[0], cases[t].ranks_of, cases[t].inside);
        for (int r = 0; r < cases[t].world; r++)
            check_same(&run.links[r], &run.links[0]);
        for (int r = 0; r < cases[t].world; r++)
            ndp_host_links_release(&run.links[r]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(pairs_are_measured_at_once),
                                       cmocka_unit_test(all_ranks_say_the_same_of_links),
                                       cmocka_unit_test(all_ranks_know_the_links_between_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
