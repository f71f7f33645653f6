/* What is said of the links of a layout whose rates are set by hand, and of axes on hosts made up. */
#include "base/json.h"
#include "measure/used_links.h"

/* ---- rates by hand ---- */

/* A ring of hosts of two ranks, whose links do 118 MB/s each way. */
static ndp_link_check ring_of(int hosts) {
    char layout[32];
    snprintf(layout, sizeof layout, "dp_shard=%d", 2 * hosts);
    ndp_link_check c = list_on(layout, 2, NDP_NO_MODEL);
    for (int i = 0; i < c.n; i++)
        c.links[i].probe.to_a = c.links[i].probe.to_b = 118e6;
    return c;
}

/* The link between two hosts. */
static ndp_used_link *between(ndp_link_check *c, int x, int y) {
    for (int i = 0; i < c->n; i++) {
        ndp_used_link *l = &c->links[i];
        if ((l->host_a == x && l->host_b == y) || (l->host_a == y && l->host_b == x))
            return l;
    }
    fail_msg("no link between the hosts %d and %d", x, y);
    return NULL;
}

static int slow_links(ndp_link_check *c) {
    int n = 0;
    ndp_link_check_judge(c);
    for (int i = 0; i < c->n; i++)
        n += c->links[i].slow;
    return n;
}

static void check_words(ndp_link_check *c, const char *wanted) {
    ndp_str_release(&c->warnings);
    ndp_link_check_explain(c);
    assert_string_equal(c->warnings.length ? c->warnings.data : "", wanted);
}

static void rates_alike_are_not_slow(void **state) {
    (void)state;
    for (int hosts = 3; hosts <= 9; hosts++) {
        ndp_link_check c = ring_of(hosts);
        uint32_t random = (uint32_t)hosts;
        for (int round = 0; round < 50; round++) {
            for (int i = 0; i < c.n; i++)
                for (int way = 0; way < 2; way++) {
                    random = random * 1664525u + 1013904223u;
                    *(way ? &c.links[i].probe.to_a : &c.links[i].probe.to_b) = 70e6 + 60e6 * (random >> 8) / (1 << 24);
                }
            assert_int_equal(slow_links(&c), 0);
            check_words(&c, "");
        }
        ndp_link_check_release(&c);
    }
}

/* Links inside a host are not judged, nor do they count for the others. */
static void links_inside_hosts_are_another_matter(void **state) {
    (void)state;
    ndp_link_check c = ring_of(4);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < c.n; i++)
            if (c.links[i].host_a == c.links[i].host_b)
                c.links[i].probe.to_a = c.links[i].probe.to_b = k ? 1e6 : 1e12;
        assert_int_equal(slow_links(&c), 0);
        check_words(&c, "");
    }
    between(&c, 1, 2)->probe.to_b = 11e6;
    assert_int_equal(slow_links(&c), 1);
    check_words(&c, "node-1 -> node-2: 11 MB/s, 3 others of its kind 118 MB/s; group shard (ranks 0-7)\n");
    ndp_link_check_release(&c);
}

static void one_slow_link_is_named(void **state) {
    (void)state;
    char words[128];
    for (int hosts = 3; hosts <= 8; hosts++)
        for (int way = 0; way < 2; way++) {
            ndp_link_check c = ring_of(hosts);
            ndp_used_link *l = between(&c, 1, 2);
            *(way ? &l->probe.to_a : &l->probe.to_b) = 11e6;
            assert_int_equal(slow_links(&c), 1);
            assert_true(l->slow);
            snprintf(words, sizeof words,
                     "node-%d -> node-%d: 11 MB/s, %d others of its kind 118 MB/s; group shard (ranks 0-%d)\n", 1 + way,
                     2 - way, hosts - 1, 2 * hosts - 1);
            check_words(&c, words);
            ndp_link_check_release(&c);
        }
}

/* "5 others", and the words of groups that are a part of the ranks. */
static void the_group_is_named_by_its_ranks(void **state) {
    (void)state;
    ndp_link_check c = list_on("dp_replicate=2,dp_shard=4", 1, NDP_NO_MODEL);
    for (int i = 0; i < c.n; i++)
        c.links[i].probe.to_a = c.links[i].probe.to_b = 118e6;
    between(&c, 4, 5)->probe.to_b = 2.51e6;
    assert_int_equal(slow_links(&c), 1);
    check_words(&c, "node-4 -> node-5: 2.51 MB/s, 11 others of its kind 118 MB/s; group shard (ranks 4-7)\n");
    between(&c, 4, 5)->probe.to_b = 118e6;
    between(&c, 1, 5)->probe.to_a = 11e6;
    assert_int_equal(slow_links(&c), 1);
    check_words(&c, "node-5 -> node-1: 11 MB/s, 11 others of its kind 118 MB/s; group replicate (ranks 1, 5)\n");
    ndp_link_check_release(&c);
    c = list_on("dp_replicate=10,dp_shard=2", 1, NDP_NO_MODEL);
    for (int i = 0; i < c.n; i++)
        c.links[i].probe.to_a = c.links[i].probe.to_b = 2.5e9;
    between(&c, 3, 5)->probe.to_b = 1e9;
    assert_int_equal(slow_links(&c), 1);
    check_words(&c, "node-3 -> node-5: 1 GB/s, 29 others of its kind 2.5 GB/s; group replicate (ranks 1, 3, 5, 7, 9, "
                    "11, 13, 15, ... 19)\n");
    ndp_link_check_release(&c);
}

/* The line of a link of host `h` in a ring of which one host is slow. */
static void add_line(const ndp_link_check *c, const ndp_used_link *l, int others, ndp_str *out) {
    ndp_str_addf(out, "%s -> %s: 11 MB/s, %d other%s of its kind 118 MB/s; group shard (ranks 0-%d)\n",
                 c->hosts.names[l->host_a], c->hosts.names[l->host_b], others, others == 1 ? "" : "s",
                 c->hosts.world - 1);
}

/* Each host of a ring in turn. With three hosts, two of the three links are slow. */
static void a_slow_host_is_named(void **state) {
    static const int rings[] = {3, 4, 5, 8};
    (void)state;
    for (int t = 0; t < NDP_COUNT(rings); t++)
        for (int h = 0; h < rings[t]; h++) {
            ndp_link_check c = ring_of(rings[t]);
            ndp_str wanted = {0};
            for (int i = 0; i < c.n; i++)
                if (c.links[i].host_a != c.links[i].host_b && (c.links[i].host_a == h || c.links[i].host_b == h)) {
                    c.links[i].probe.to_a = c.links[i].probe.to_b = 11e6;
                    add_line(&c, &c.links[i], rings[t] - 2, &wanted);
                }
            assert_int_equal(slow_links(&c), 2);
            ndp_str_addf(&wanted, "all 2 links of node-%d are slow: its NIC, cable or port\n", h);
            check_words(&c, wanted.data);
            ndp_str_release(&wanted);
            ndp_link_check_release(&c);
        }
}

/* Two slow links that are not all links of a host say nothing of a host. */
static void other_slow_links_name_no_host(void **state) {
    (void)state;
    ndp_link_check c = ring_of(8);
    between(&c, 1, 2)->probe.to_b = between(&c, 4, 5)->probe.to_a = 11e6;
    assert_int_equal(slow_links(&c), 2);
    ndp_link_check_explain(&c);
    assert_null(strstr(c.warnings.data, "all"));
    ndp_str_release(&c.warnings);
    between(&c, 2, 3)->probe.to_b = 11e6;
    assert_int_equal(slow_links(&c), 3);
    ndp_link_check_explain(&c); /* all of node-2, and one more */
    assert_null(strstr(c.warnings.data, "all"));
    ndp_link_check_release(&c);
}

/* One slow link is one slow link, also if its host has no other: node-0 is between node-1 and node-2. */
static void a_single_link_names_no_host(void **state) {
    (void)state;
    const ndp_layout l = layout_of("dp_shard=2,tp=2");
    ndp_link_check c = {0};
    take_hosts((int[]){0, 1, 2, 0}, 4, &c);
    CHECK_OK(ndp_link_check_list(&l, NDP_NO_MODEL, &c));
    assert_int_equal(c.n, 2);
    between(&c, 0, 1)->probe.to_a = between(&c, 0, 1)->probe.to_b = 11e6;
    between(&c, 0, 2)->probe.to_a = between(&c, 0, 2)->probe.to_b = 118e6;
    assert_int_equal(slow_links(&c), 1);
    check_words(&c, "node-0 -> node-1: 11 MB/s, 1 other of its kind 118 MB/s; group tp (ranks 0-1)\n");
    ndp_link_check_release(&c);
}

/* One way is enough to be slow: the slower way counts, for the others' rate too. */
static void less_than_half_is_slow(void **state) {
    (void)state;
    ndp_link_check c = ring_of(5);
    ndp_used_link *l = between(&c, 2, 3);
    l->probe.to_b = 59e6;
    assert_int_equal(slow_links(&c), 0);
    l->probe.to_b = 59e6 * (1 - 1e-9);
    assert_int_equal(slow_links(&c), 1);
    l->probe.to_b = 118e6;
    l->probe.to_a = 59e6 * (1 - 1e-9);
    assert_int_equal(slow_links(&c), 1);
    l->probe.to_a = 59e6;
    assert_int_equal(slow_links(&c), 0);
    ndp_link_check_release(&c);
}

/* The median of the hosts' best links: of two in the middle, their mean. */
static void half_of_the_median_is_the_limit(void **state) {
    (void)state;
    ndp_link_check c = ring_of(4); /* best links: 100, 100, 60, 60 MB/s */
    between(&c, 0, 1)->probe.to_b = 100e6;
    between(&c, 1, 2)->probe.to_b = between(&c, 0, 3)->probe.to_a = 30e6;
    between(&c, 2, 3)->probe.to_b = 60e6;
    assert_int_equal(slow_links(&c), 2); /* below 40 */
    between(&c, 1, 2)->probe.to_b = 40e6;
    assert_int_equal(slow_links(&c), 1);
    check_words(&c, "node-3 -> node-0: 30 MB/s, 3 others of its kind 60 MB/s; group shard (ranks 0-7)\n");
    ndp_link_check_release(&c);
}

static void two_hosts_are_not_judged(void **state) {
    (void)state;
    ndp_link_check c = list_on("dp_shard=4", 2, NDP_NO_MODEL);
    between(&c, 0, 1)->probe.to_a = 1;
    between(&c, 0, 1)->probe.to_b = 1e9;
    assert_int_equal(slow_links(&c), 0);
    check_words(&c, "");
    ndp_link_check_release(&c);
    c = list_on("dp_shard=4", 4, NDP_NO_MODEL);
    assert_int_equal(slow_links(&c), 0);
    ndp_link_check_release(&c);
}

/* ---- placement ---- */

typedef struct place_case {
    const char *layout;
    int host_of[8];
    const char *wanted; /* what is said of axes; "": nothing */
} place_case;

static const place_case place_cases[] = {
    {"dp_shard=4,tp=2", {0, 0, 1, 1, 2, 2, 3, 3}, ""},
    {"dp_shard=4,tp=2", {0, 1, 0, 1, 0, 1, 0, 1}, "axis tp (2 ranks) crosses hosts while dp_shard (4), outside it,"},
    {"dp_shard=4,tp=2", {0, 1, 2, 3, 0, 1, 2, 3}, ""}, /* both cross */
    {"dp_shard=4,tp=2", {0, 0, 0, 1, 1, 1, 2, 2}, ""},
    {"dp_shard=8", {0, 1, 0, 1, 0, 1, 0, 1}, ""},
    {"pp=2,dp_shard=4", {0, 1, 2, 3, 0, 1, 2, 3}, "axis dp_shard (4 ranks) crosses hosts while pp (2), outside it,"},
    {"pp=2,dp_shard=4", {0, 0, 1, 1, 0, 0, 1, 1}, "axis dp_shard (4 ranks) crosses hosts while pp (2), outside it,"},
    {"pp=2,dp_shard=4", {0, 0, 0, 0, 1, 1, 1, 1}, ""},
    {"pp=2,dp_shard=4", {0, 0, 0, 0, 0, 0, 0, 0}, ""},
    /* of the axes outside it, the next one that stays inside is named; one between them crosses */
    {"pp=2,dp_shard=2,tp=2", {0, 1, 2, 3, 0, 1, 2, 3}, "axis tp (2 ranks) crosses hosts while pp (2), outside it,"},
    {"pp=2,dp_shard=2,tp=2", {0, 1, 0, 1, 2, 3, 2, 3}, "axis tp (2 ranks) crosses hosts while dp_shard (2), outside"},
    {"pp=2,dp_shard=2,tp=2", {0, 0, 1, 1, 0, 0, 1, 1}, "axis dp_shard (2 ranks) crosses hosts while pp (2), outside"},
};

static void axes_are_named_where_inner_ones_cross_hosts(void **state) {
    (void)state;
    for (int t = 0; t < NDP_COUNT(place_cases); t++) {
        const place_case *k = &place_cases[t];
        const ndp_layout l = layout_of(k->layout);
        ndp_link_check c = {0};
        take_hosts(k->host_of, 8, &c);
        ndp_link_check_placement(&l, &c);
        const char *said = c.warnings.length ? c.warnings.data : "";
        if (strncmp(said, k->wanted, strlen(k->wanted)) != 0 || (*said && !*k->wanted))
            fail_msg("%s, case %d: '%s'", k->layout, t, said);
        ndp_link_check_release(&c);
    }
}

static void the_warning_of_an_axis_has_the_remedy(void **state) {
    (void)state;
    const ndp_layout l = layout_of("dp_shard=4,tp=2");
    ndp_link_check c = {0};
    take_hosts((int[]){0, 1, 0, 1, 0, 1, 0, 1}, 8, &c);
    ndp_link_check_placement(&l, &c);
    assert_string_equal(c.warnings.data,
                        "axis tp (2 ranks) crosses hosts while dp_shard (4), outside it, stays inside them: list the "
                        "hosts so that consecutive ranks share one, or use --placement best\n");
    ndp_link_check_release(&c);
}

/* ---- links.json ---- */

static struct json_object *member(struct json_object *o, const char *key, enum json_type type) {
    struct json_object *found = NULL;
    assert_true(json_object_object_get_ex(o, key, &found));
    assert_true(json_object_is_type(found, type));
    return found;
}

static void check_text(struct json_object *o, const char *key, const char *wanted) {
    assert_string_equal(json_object_get_string(member(o, key, json_type_string)), wanted);
}

static void check_number(struct json_object *o, const char *key, double wanted) {
    struct json_object *found = NULL;
    assert_true(json_object_object_get_ex(o, key, &found));
    assert_true(json_object_is_type(found, json_type_double) || json_object_is_type(found, json_type_int));
    assert_true(json_object_get_double(found) == wanted);
}

static void check_link_json(const ndp_link_check *c, const ndp_used_link *l, struct json_object *o) {
    struct json_object *ranks = member(o, "ranks", json_type_array), *groups = member(o, "groups", json_type_array);
    uint32_t kinds = 0;
    check_text(o, "from", c->hosts.names[l->host_a]);
    check_text(o, "to", c->hosts.names[l->host_b]);
    assert_int_equal(json_object_array_length(ranks), 2);
    assert_int_equal(json_object_get_int(json_object_array_get_idx(ranks, 0)), l->probe.a);
    assert_int_equal(json_object_get_int(json_object_array_get_idx(ranks, 1)), l->probe.b);
    for (size_t i = 0; i < json_object_array_length(groups); i++)
        for (int kind = 0; kind < NDP_GROUPS; kind++)
            if (strcmp(json_object_get_string(json_object_array_get_idx(groups, i)),
                       ndp_group_name((ndp_group_kind)kind)) == 0)
                kinds |= NDP_GROUP_BIT(kind);
    assert_int_equal(kinds, l->kinds);
    check_number(o, "bandwidth", l->probe.to_b);
    check_number(o, "bandwidth_back", l->probe.to_a);
    check_number(o, "latency", l->probe.latency);
    assert_int_equal(json_object_get_boolean(member(o, "slow", json_type_boolean)), l->slow);
}

static void links_are_written_as_json(void **state) {
    (void)state;
    ndp_link_check c = ring_of(4);
    ndp_json_out out = {0};
    struct json_object *all, *list;
    for (int i = 0; i < c.n; i++)
        c.links[i].probe = (ndp_probe){c.links[i].probe.a, c.links[i].probe.b, 1.5e-6, 118.5e6 + i, 112.25e6 + i, 1};
    between(&c, 2, 3)->probe.to_b = 11.5e6;
    assert_int_equal(slow_links(&c), 1);
    c.seconds = 0.25;
    strcpy(c.hosts.names[1], "a \"host\"\\");
    ndp_json_open(&out, NULL, '{');
    ndp_link_check_put(&c, &out);
    ndp_json_close(&out, '}');
    CHECK_OK(ndp_json_parse(out.text.data, out.text.length, "links", &all));
    list = member(all, "hosts", json_type_array);
    assert_int_equal(json_object_array_length(list), 4);
    assert_string_equal(json_object_get_string(json_object_array_get_idx(list, 1)), "a \"host\"\\");
    list = member(all, "host_of_rank", json_type_array);
    assert_int_equal(json_object_array_length(list), 8);
    for (size_t r = 0; r < 8; r++)
        assert_int_equal(json_object_get_int(json_object_array_get_idx(list, r)), r / 2);
    list = member(all, "links", json_type_array);
    assert_int_equal(json_object_array_length(list), c.n);
    for (int i = 0; i < c.n; i++)
        check_link_json(&c, &c.links[i], json_object_array_get_idx(list, (size_t)i));
    check_number(all, "seconds", 0.25);
    json_object_put(all);
    ndp_str_release(&out.text);
    ndp_link_check_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_alike_are_not_slow),
                                       cmocka_unit_test(links_inside_hosts_are_another_matter),
                                       cmocka_unit_test(one_slow_link_is_named),
                                       cmocka_unit_test(the_group_is_named_by_its_ranks),
                                       cmocka_unit_test(a_slow_host_is_named),
                                       cmocka_unit_test(other_slow_links_name_no_host),
                                       cmocka_unit_test(a_single_link_names_no_host),
                                       cmocka_unit_test(less_than_half_is_slow),
                                       cmocka_unit_test(half_of_the_median_is_the_limit),
                                       cmocka_unit_test(two_hosts_are_not_judged),
                                       cmocka_unit_test(axes_are_named_where_inner_ones_cross_hosts),
                                       cmocka_unit_test(the_warning_of_an_axis_has_the_remedy),
                                       cmocka_unit_test(links_are_written_as_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
