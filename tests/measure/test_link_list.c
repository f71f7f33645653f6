/* The links that a layout uses, and the rounds in which they are measured, on hosts made up. */
#include "measure/used_links.h"

#include <stdlib.h>

/* Groups in which neighbours talk, as the axes whose coordinates differ in them. */
typedef struct axes_case {
    ndp_group_kind kind;
    int first, last;
} axes_case;
static const axes_case talkers[] = {
    {NDP_GROUP_PP, NDP_PP, NDP_PP},          {NDP_GROUP_REPLICATE, NDP_DP_REPLICATE, NDP_DP_REPLICATE},
    {NDP_GROUP_SHARD, NDP_DP_SHARD, NDP_SP}, {NDP_GROUP_CP, NDP_CP, NDP_CP},
    {NDP_GROUP_SP, NDP_SP, NDP_SP},          {NDP_GROUP_TP, NDP_TP, NDP_TP}};

static void coordinates(const ndp_layout *l, int rank, int coord[NDP_AXES]) {
    for (int axis = NDP_AXES - 1; axis >= 0; axis--) {
        coord[axis] = rank % l->size[axis];
        rank /= l->size[axis];
    }
}

/* Ranks whose coordinates outside the axes are those of `rank`, in order. */
static int members_of(const ndp_layout *l, const axes_case *k, int rank, int *out) {
    int mine[NDP_AXES], its[NDP_AXES], n = 0;
    coordinates(l, rank, mine);
    for (int r = 0; r < world_of(l); r++) {
        bool same = true;
        coordinates(l, r, its);
        for (int axis = 0; axis < NDP_AXES; axis++)
            same = same && (its[axis] == mine[axis] || (axis >= k->first && axis <= k->last));
        if (same)
            out[n++] = r;
    }
    return n;
}

/* How often the list has a link between two ranks, or between their hosts; *at: the last one. */
static int times_listed(const ndp_link_check *c, int a, int b, int *at) {
    int n = 0, x = c->hosts.of[a], y = c->hosts.of[b];
    for (int i = 0; i < c->n; i++) {
        const ndp_used_link *l = &c->links[i];
        bool ranks = (l->probe.a == a && l->probe.b == b) || (l->probe.a == b && l->probe.b == a);
        bool hosts = (l->host_a == x && l->host_b == y) || (l->host_a == y && l->host_b == x);
        if (x == y ? ranks : hosts) {
            n++;
            *at = i;
        }
    }
    return n;
}

/* All neighbours of all groups are in the list once, with the kinds that use them, and nothing else is. */
static void check_neighbours(const ndp_layout *l, const ndp_link_check *c) {
    static int members[MOST_RANKS];
    uint32_t *kinds = calloc((size_t)c->n + 1, sizeof *kinds);
    assert_non_null(kinds);
    for (int t = 0; t < NDP_COUNT(talkers); t++)
        for (int r = 0; r < world_of(l); r++) {
            int n = members_of(l, &talkers[t], r, members), at = 0;
            for (int i = 0; i < n && members[0] == r && n > 1; i++) {
                assert_int_equal(times_listed(c, members[i], members[(i + 1) % n], &at), 1);
                kinds[at] |= NDP_GROUP_BIT(talkers[t].kind);
            }
        }
    for (int i = 0; i < c->n; i++) {
        assert_int_equal(c->links[i].kinds, kinds[i]);
        assert_true(kinds[i] & NDP_GROUP_BIT(c->links[i].kind));
    }
    free(kinds);
}

static void check_link(const ndp_layout *l, const ndp_link_check *c, const ndp_used_link *link) {
    ndp_mesh mesh;
    const ndp_group *g = &link->group;
    bool has_a = false, has_b = false;
    assert_true(link->probe.a < link->probe.b);
    assert_int_equal(link->host_a, c->hosts.of[link->probe.a]);
    assert_int_equal(link->host_b, c->hosts.of[link->probe.b]);
    assert_true(link->round >= 0 && link->round < c->rounds);
    CHECK_OK(ndp_mesh_init(l, link->probe.a, NDP_NO_MODEL, &mesh));
    for (int i = 0; i < g->count; i++) {
        has_a |= g->base + i * g->stride == link->probe.a;
        has_b |= g->base + i * g->stride == link->probe.b;
    }
    assert_true(has_a && has_b);
    assert_int_equal(g->base, ndp_mesh_group(&mesh, link->kind).base);
    assert_int_equal(g->count, ndp_mesh_group(&mesh, link->kind).count);
}

/* Whether two links cannot be in one round. */
static bool disturb(const ndp_used_link *x, const ndp_used_link *y) {
    const int xs[] = {x->probe.a, x->probe.b}, ys[] = {y->probe.a, y->probe.b};
    const int xh[] = {x->host_a, x->host_b}, yh[] = {y->host_a, y->host_b};
    bool cross = x->host_a != x->host_b && y->host_a != y->host_b, any = false;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            any |= xs[i] == ys[k] || (cross && xh[i] == yh[k]);
    return any;
}

/* A link that has to avoid n others is in one of the first n + 1 rounds; a round has no two of them. */
static void check_rounds(const ndp_link_check *c, int most) {
    int used = 0;
    for (int i = 0; i < c->n; i++) {
        int others = 0;
        for (int k = 0; k < c->n; k++)
            if (k != i && disturb(&c->links[i], &c->links[k])) {
                assert_int_not_equal(c->links[i].round, c->links[k].round);
                others++;
            }
        assert_true(c->links[i].round <= others);
        used = c->links[i].round + 1 > used ? c->links[i].round + 1 : used;
    }
    assert_int_equal(c->rounds, used);
    if (c->rounds > most)
        fail_msg("%d rounds, more than %d", c->rounds, most);
}

typedef struct list_case {
    const char *layout;
    int each;     /* ranks of a host */
    int crossing; /* links between hosts */
    int rounds;   /* at most */
} list_case;

static const list_case list_cases[] = {
    {"dp_shard=8", 2, 4, 3},
    {"dp_replicate=4,dp_shard=2", 2, 4, 3},
    {"dp_replicate=4,dp_shard=2", 1, 12, 5},
    {"pp=4,dp_shard=2", 2, 4, 3},
    {"tp=2,dp_shard=4", 2, 4, 3},
    {"dp_shard=16", 1, 16, 3},
    {"dp_shard=5", 1, 5, 3},
    {"dp_shard=2", 1, 1, 1},
    {"dp_shard=8", 8, 0, 3},
    {"pp=2,dp_replicate=2,dp_shard=2,cp=2,sp=2,tp=2", 4, 32, 10},
    {"pp=2,dp_replicate=2,dp_shard=2,cp=2,sp=2,tp=2", 1, 192, 14},
    {"pp=4,dp_replicate=2,dp_shard=8,tp=8", 8, 160, 10},
    {"dp_shard=512", 8, 64, 4},
};

static void every_pair_of_neighbours_is_listed_once(void **state) {
    (void)state;
    for (int t = 0; t < NDP_COUNT(list_cases); t++) {
        const list_case *k = &list_cases[t];
        const ndp_layout l = layout_of(k->layout);
        ndp_link_check c = list_on(k->layout, k->each, NDP_NO_MODEL);
        int crossing = 0;
        check_neighbours(&l, &c);
        check_rounds(&c, k->rounds);
        for (int i = 0; i < c.n; i++) {
            check_link(&l, &c, &c.links[i]);
            crossing += c.links[i].host_a != c.links[i].host_b;
        }
        if (crossing != k->crossing)
            fail_msg("%s on hosts of %d: %d links between hosts, not %d", k->layout, k->each, crossing, k->crossing);
        ndp_link_check_release(&c);
    }
}

/* Hosts of 3, 1, 2 and 2 ranks; ranks in turn; ranks anywhere. */
static void hosts_may_be_unequal_and_in_any_order(void **state) {
    static const int hosts[][8] = {
        {0, 0, 0, 1, 2, 2, 3, 3}, {0, 1, 2, 3, 0, 1, 2, 3}, {0, 1, 0, 1, 0, 1, 0, 1}, {2, 0, 2, 1, 1, 0, 3, 2}};
    static const char *const layouts[] = {"dp_shard=8", "dp_replicate=4,dp_shard=2", "pp=4,tp=2", "tp=2,sp=2,cp=2",
                                          "pp=2,dp_shard=2,tp=2"};
    (void)state;
    for (int h = 0; h < NDP_COUNT(hosts); h++)
        for (int t = 0; t < NDP_COUNT(layouts); t++) {
            const ndp_layout l = layout_of(layouts[t]);
            ndp_link_check c = {0};
            take_hosts(hosts[h], 8, &c);
            CHECK_OK(ndp_link_check_list(&l, NDP_NO_MODEL, &c));
            check_neighbours(&l, &c);
            check_rounds(&c, 8);
            for (int i = 0; i < c.n; i++)
                check_link(&l, &c, &c.links[i]);
            ndp_link_check_release(&c);
        }
}

/* Pairs of stages that hold a table together, and copies of kv heads, are groups too. */
static void links_of_ties_and_kv_copies_are_listed(void **state) {
    (void)state;
    const ndp_mesh_facts facts = {.kv_heads = 2, .ties = {{{0, 2}}}};
    ndp_link_check c = list_on("pp=4,tp=4", 1, &facts);
    const ndp_link_check plain = list_on("pp=4,tp=4", 1, NDP_NO_MODEL);
    int at = 0;
    assert_int_equal(c.n, plain.n + 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(times_listed(&plain, i, 8 + i, &at), 0);
        assert_int_equal(times_listed(&c, i, 8 + i, &at), 1);
        assert_int_equal(c.links[at].kinds, NDP_GROUP_BIT(NDP_GROUP_TIE));
    }
    assert_int_equal(times_listed(&c, 2, 3, &at), 1);
    assert_int_equal(c.links[at].kinds, NDP_GROUP_BIT(NDP_GROUP_TP) | NDP_GROUP_BIT(NDP_GROUP_KV));
    ndp_link_check_release(&c);
    ndp_link_check_release((ndp_link_check *)&plain);
}

/* Every rank of the largest worlds: all of it ends, and each link is looked at among few others. */
static void thousands_of_ranks_are_no_problem(void **state) {
    static const struct {
        const char *layout;
        int each, links, rounds;
    } worlds[] = {{"dp_shard=4096", 8, 4096, 4},
                  {"dp_shard=4096", 1, 4096, 3},
                  {"pp=8,dp_replicate=8,dp_shard=8,tp=8", 8, 3 * 512 + 4096, 12},
                  {"pp=16,dp_replicate=16,dp_shard=4,tp=4", 1, 4 * 4096, 16}};
    (void)state;
    for (int t = 0; t < NDP_COUNT(worlds); t++) {
        ndp_link_check c = list_on(worlds[t].layout, worlds[t].each, NDP_NO_MODEL);
        assert_int_equal(c.n, worlds[t].links);
        if (c.rounds > worlds[t].rounds)
            fail_msg("%s: %d rounds", worlds[t].layout, c.rounds);
        for (int i = 0; i < c.n; i++)
            c.links[i].probe.to_a = c.links[i].probe.to_b = i % 2 ? 1e9 : 1e8;
        for (int i = 0; i < 100; i++)
            ndp_link_check_judge(&c);
        ndp_link_check_explain(&c);
        ndp_link_check_release(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair_of_neighbours_is_listed_once),
                                       cmocka_unit_test(hosts_may_be_unequal_and_in_any_order),
                                       cmocka_unit_test(links_of_ties_and_kv_copies_are_listed),
                                       cmocka_unit_test(thousands_of_ranks_are_no_problem)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
