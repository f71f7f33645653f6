/* The rounds in which hosts are paired; and racks found in links that a small model of a network gives: each host has a
 * NIC, each rack a trunk, and the pairs of a round share what they have in common fairly. */
#include "check.h"
#include "measure/host_links.h"

#include <stdlib.h>

enum { MOST_HOSTS = 64, MOST_RACKS = 16 };

/* ---- rounds ---- */

/* Marks whom a host meets; the others of the round are paired likewise. */
static void check_round(int hosts, int round, int *met) {
    int alone = 0;
    for (int i = 0; i < hosts; i++) {
        int peer = ndp_host_round_peer(hosts, round, i);
        assert_true(peer >= -1 && peer < hosts && peer != i);
        alone += peer < 0;
        if (peer < 0)
            continue;
        assert_int_equal(ndp_host_round_peer(hosts, round, peer), i);
        met[i * hosts + peer]++;
    }
    if (hosts <= 16)
        assert_int_equal(alone, hosts % 2);
}

static void all_pairs_meet_once(void **state) {
    (void)state;
    for (int hosts = 2; hosts <= 16; hosts++) {
        int met[16 * 16] = {0};
        assert_int_equal(ndp_host_rounds(hosts), hosts % 2 ? hosts : hosts - 1);
        for (int round = 0; round < ndp_host_rounds(hosts); round++)
            check_round(hosts, round, met);
        for (int i = 0; i < hosts; i++)
            for (int k = 0; k < hosts; k++)
                assert_int_equal(met[i * hosts + k], i != k);
    }
}

static bool is_one_bit(int x) { return x > 0 && (x & (x - 1)) == 0; }

static void many_hosts_meet_those_that_differ_in_a_bit(void **state) {
    static const int hosts[] = {17, 18, 24, 31, 32, 33, 48, 63, 64}, rounds[] = {5, 5, 5, 5, 5, 6, 6, 6, 6};
    (void)state;
    for (int t = 0; t < NDP_COUNT(hosts); t++) {
        int met[MOST_HOSTS * MOST_HOSTS] = {0}, n = hosts[t];
        assert_int_equal(ndp_host_rounds(n), rounds[t]);
        for (int round = 0; round < rounds[t]; round++)
            check_round(n, round, met);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++)
                assert_int_equal(met[i * n + k], is_one_bit(i ^ k));
    }
}

/* ---- a network ---- */

typedef struct network {
    int n, racks;
    int rack_of[MOST_HOSTS];
    double nic[MOST_HOSTS];   /* of one rank; 1: usual */
    double trunk[MOST_RACKS]; /* each way */
    uint32_t random;          /* state */
    double noise;             /* rates are up to this share more or less */
} network;

static double noisy(network *w, double rate) {
    w->random = w->random * 1664525u + 1013904223u;
    return rate * (1 + w->noise * (2.0 * (w->random >> 8) / (1 << 24) - 1));
}

/* Racks of these sizes, whose trunks carry what their NICs do, divided by `over`. */
static network of_racks(const int *sizes, int racks, double over) {
    network w = {.racks = racks, .random = 1, .noise = 0.08};
    for (int a = 0; a < racks; a++) {
        for (int i = 0; i < sizes[a]; i++)
            w.rack_of[w.n++] = a;
        w.trunk[a] = sizes[a] / over;
    }
    for (int i = 0; i < w.n; i++)
        w.nic[i] = 1;
    return w;
}

/* Hosts of one rack after those of another in turn. */
static void alternate(network *w) {
    int left[MOST_RACKS] = {0};
    for (int i = 0; i < w->n; i++)
        left[w->rack_of[i]]++;
    for (int i = 0, a = 0; i < w->n; a = (a + 1) % w->racks)
        if (left[a] > 0) {
            left[a]--;
            w->rack_of[i++] = a;
        }
}

/* The resources of a pair: NIC out, NIC in, trunk out, trunk in; -1: it needs no trunk. */
enum { PLACES = 4, MOST_THINGS = 2 * (MOST_HOSTS + MOST_RACKS) };
static void things_of(const network *w, int i, int k, int out[PLACES]) {
    bool crosses = w->rack_of[i] != w->rack_of[k];
    out[0] = i;
    out[1] = MOST_HOSTS + k;
    out[2] = crosses ? 2 * MOST_HOSTS + w->rack_of[i] : -1;
    out[3] = crosses ? 2 * MOST_HOSTS + MOST_RACKS + w->rack_of[k] : -1;
}

static void fill_things(const network *w, double *left) {
    for (int i = 0; i < w->n; i++)
        left[i] = left[MOST_HOSTS + i] = w->nic[i];
    for (int a = 0; a < w->racks; a++)
        left[2 * MOST_HOSTS + a] = left[2 * MOST_HOSTS + MOST_RACKS + a] = w->trunk[a];
}

/* The thing that runs out first if all that are not yet settled get the same; *part: what each gets. -1: all are. */
static int scarcest(const network *w, const int *peer, const bool *settled, const double *left, double *part) {
    int users[MOST_THINGS] = {0}, first = -1, things[PLACES];
    for (int i = 0; i < w->n; i++) {
        things_of(w, i, peer[i] < 0 ? i : peer[i], things);
        for (int t = 0; t < PLACES; t++)
            if (!settled[i] && things[t] >= 0)
                users[things[t]]++;
    }
    for (int t = 0; t < MOST_THINGS; t++)
        if (users[t] && (first < 0 || left[t] / users[t] < *part)) {
            first = t;
            *part = left[t] / users[t];
        }
    return first;
}

/* What each host sends to its peer when all send at once. */
static void share_round(const network *w, const int *peer, double *rate) {
    bool settled[MOST_HOSTS];
    double left[MOST_THINGS] = {0}, part = 0;
    fill_things(w, left);
    for (int i = 0; i < w->n; i++)
        settled[i] = peer[i] < 0;
    for (int thing; (thing = scarcest(w, peer, settled, left, &part)) >= 0;)
        for (int i = 0; i < w->n; i++) {
            int things[PLACES];
            things_of(w, i, peer[i] < 0 ? i : peer[i], things);
            bool uses = false;
            for (int t = 0; t < PLACES; t++)
                uses |= things[t] == thing;
            if (settled[i] || !uses)
                continue;
            settled[i] = true;
            rate[i] = part;
            for (int t = 0; t < PLACES; t++)
                if (things[t] >= 0)
                    left[things[t]] -= part;
        }
}

/* Fills what ndp_host_links_measure would measure. */
static void measure(network *w, ndp_host_links *l) {
    CHECK_OK(ndp_host_links_init(w->n, l));
    for (int round = 0; round < ndp_host_rounds(w->n); round++) {
        int peer[MOST_HOSTS];
        double rate[MOST_HOSTS];
        for (int i = 0; i < w->n; i++)
            peer[i] = ndp_host_round_peer(w->n, round, i);
        share_round(w, peer, rate);
        for (int i = 0; i < w->n; i++)
            if (peer[i] >= 0)
                l->together[i * w->n + peer[i]] = noisy(w, rate[i]);
    }
    for (int i = 0; i < w->n && i < 16; i++)
        l->alone[i] = noisy(w, w->nic[i]);
}

/* ---- racks ---- */

static char *words_of(const int *rack_of, int n, char *out) {
    for (int i = 0; i < n; i++)
        out[i] = (char)('a' + rack_of[i]);
    out[n] = 0;
    return out;
}

/* The racks as letters, numbered in the order of their first hosts. */
static void check_racks(network *w, const char *wanted) {
    for (uint32_t seed = 1; seed <= 12; seed++) {
        ndp_host_links l;
        char found[MOST_HOSTS + 1];
        w->random = seed * 2654435761u;
        measure(w, &l);
        CHECK_OK(ndp_host_links_group(&l));
        words_of(l.rack_of, l.n, found);
        if (strcmp(found, wanted) != 0)
            fail_msg("seed %u: racks %s instead of %s", seed, found, wanted);
        int racks = 0;
        for (int i = 0; i < l.n; i++)
            racks = l.rack_of[i] + 1 > racks ? l.rack_of[i] + 1 : racks;
        assert_int_equal(l.racks, racks);
        ndp_host_links_release(&l);
    }
}

typedef struct rack_case {
    int sizes[4], racks;
    double over;
    bool alternates;
    const char *wanted;
} rack_case;

static const rack_case rack_cases[] = {
    {{2, 2}, 2, 2, false, "aabb"},
    {{2, 2}, 2, 4, false, "aabb"},
    {{2, 2}, 2, 2, true, "abab"},
    {{4, 4}, 2, 2, false, "aaaabbbb"}, /* half of the links between them are as fast as NICs */
    {{4, 4}, 2, 3, false, "aaaabbbb"},
    {{4, 4}, 2, 2, true, "abababab"},
    {{4, 4}, 2, 4, true, "abababab"},
    {{3, 3}, 2, 2, false, "aaabbb"}, /* a third of them are */
    {{3, 3}, 2, 3, false, "aaabbb"},
    {{3, 3}, 2, 2, true, "ababab"},
    {{5, 3}, 2, 2, false, "aaaaabbb"},
    {{5, 3}, 2, 2, true, "abababaa"},
    {{2, 2, 2, 2}, 4, 2, false, "aabbccdd"},
    {{2, 2, 2, 2}, 4, 3, true, "abcdabcd"},
    {{4, 4, 4, 4}, 4, 2, false, "aaaabbbbccccdddd"},
    {{4, 4, 4, 4}, 4, 3, true, "abcdabcdabcdabcd"},
    {{8, 8}, 2, 3, true, "abababababababab"},
    {{3, 3, 3}, 3, 2, false, "aaabbbccc"},
    {{3, 3, 3}, 3, 2, true, "abcabcabc"},
    {{1, 1, 1, 1}, 4, 2, false, "abcd"}, /* a switch that carries half of what its hosts do */
    /* racks whose trunks are as wide as their NICs are one */
    {{2, 2}, 2, 1, false, "aaaa"},
    {{4, 4}, 2, 1, true, "aaaaaaaa"},
    {{3, 3}, 2, 1, false, "aaaaaa"},
    {{2, 2, 2, 2}, 4, 1, true, "aaaaaaaa"},
    {{8}, 1, 1, false, "aaaaaaaa"},
    {{3}, 1, 1, false, "aaa"},
    {{2}, 1, 1, false, "aa"},
    {{1}, 1, 1, false, "a"},
};

static void racks_are_found(void **state) {
    (void)state;
    for (int t = 0; t < NDP_COUNT(rack_cases); t++) {
        const rack_case *k = &rack_cases[t];
        network w = of_racks(k->sizes, k->racks, k->over);
        if (k->alternates)
            alternate(&w);
        check_racks(&w, k->wanted);
    }
}

/* In every place. A trunk has room for what it sends, so its links between the racks are as fast as those inside. */
static void a_slow_host_stays_in_its_rack(void **state) {
    static const double rates[] = {0.4, 0.1, 0.02};
    (void)state;
    for (int r = 0; r < NDP_COUNT(rates); r++)
        for (int slow = 0; slow < 8; slow++) {
            network one = of_racks((int[]){8}, 1, 1), two = of_racks((int[]){4, 4}, 2, 3);
            one.nic[slow] = two.nic[slow] = rates[r];
            check_racks(&one, "aaaaaaaa");
            check_racks(&two, "aaaabbbb");
        }
}

/* A rank has one of eight NICs, or one connection has a limit: all ranks of a host pass more than those of the rounds.
 */
static void rates_of_all_ranks_split_nothing(void **state) {
    (void)state;
    network w = of_racks((int[]){4}, 1, 1);
    ndp_host_links l;
    measure(&w, &l);
    for (int i = 0; i < l.n; i++)
        l.streams[i] = 8;
    CHECK_OK(ndp_host_links_group(&l));
    assert_int_equal(l.racks, 1);
    assert_true(ndp_host_links_nic(&l, 2) == 8);
    ndp_host_links_release(&l);
}

/* A message that was late once is no trunk. */
static void one_slow_link_splits_nothing(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++) {
            network w = of_racks((int[]){4 + i % 2 * 4}, 1, 1);
            ndp_host_links l;
            measure(&w, &l);
            if (i < w.n && k < w.n)
                l.together[i * w.n + k] *= 0.3;
            CHECK_OK(ndp_host_links_group(&l));
            assert_int_equal(l.racks, 1);
            ndp_host_links_release(&l);
        }
}

/* More than 16 hosts: a few links of each. */
static void many_hosts_in_racks_of_eight(void **state) {
    (void)state;
    network w = {.n = 64, .racks = 8, .noise = 0.08}, wide;
    char wanted[MOST_HOSTS + 1], all[MOST_HOSTS + 1];
    for (int i = 0; i < w.n; i++) {
        w.rack_of[i] = i / 8;
        w.nic[i] = 1;
        w.trunk[w.rack_of[i]] = 4;
        wanted[i] = (char)('a' + i / 8);
        all[i] = 'a';
    }
    wanted[w.n] = all[w.n] = 0;
    check_racks(&w, wanted);
    wide = w;
    for (int a = 0; a < wide.racks; a++)
        wide.trunk[a] = 8;
    check_racks(&wide, all);
}

/* As many hosts as a topology has at most: this ends. */
static void a_thousand_hosts_are_grouped(void **state) {
    (void)state;
    enum { HOSTS = 1024, IN_RACK = 32 };
    ndp_host_links l;
    CHECK_OK(ndp_host_links_init(HOSTS, &l));
    for (int round = 0; round < ndp_host_rounds(HOSTS); round++)
        for (int i = 0; i < HOSTS; i++) {
            int peer = ndp_host_round_peer(HOSTS, round, i);
            l.together[i * HOSTS + peer] = i / IN_RACK == peer / IN_RACK ? 100 : 40;
        }
    CHECK_OK(ndp_host_links_group(&l));
    assert_int_equal(l.racks, HOSTS / IN_RACK);
    for (int i = 0; i < HOSTS; i++)
        assert_int_equal(l.rack_of[i], i / IN_RACK);
    ndp_host_links_release(&l);
}

/* Of many hosts only the first are measured alone; of the others the best link counts. */
static void what_a_nic_passes(void **state) {
    (void)state;
    ndp_host_links l;
    CHECK_OK(ndp_host_links_init(3, &l));
    l.together[1 * 3 + 0] = 5;
    l.together[1 * 3 + 2] = 7;
    l.together[0 * 3 + 1] = 50;
    assert_true(ndp_host_links_nic(&l, 1) == 7);
    l.together[1 * 3 + 0] = 9;
    assert_true(ndp_host_links_nic(&l, 1) == 9);
    l.alone[1] = 8;
    assert_true(ndp_host_links_nic(&l, 1) == 8);
    l.streams[1] = 7.5; /* the same but for noise */
    assert_true(ndp_host_links_nic(&l, 1) == 7.5);
    l.streams[1] = 16;
    assert_true(ndp_host_links_nic(&l, 1) == 16);
    l.streams[1] = 4;
    assert_true(ndp_host_links_nic(&l, 1) == 8);
    assert_true(ndp_host_links_nic(&l, 2) == 0);
    ndp_host_links_release(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_pairs_meet_once),
                                       cmocka_unit_test(many_hosts_meet_those_that_differ_in_a_bit),
                                       cmocka_unit_test(racks_are_found),
                                       cmocka_unit_test(a_slow_host_stays_in_its_rack),
                                       cmocka_unit_test(rates_of_all_ranks_split_nothing),
                                       cmocka_unit_test(one_slow_link_splits_nothing),
                                       cmocka_unit_test(many_hosts_in_racks_of_eight),
                                       cmocka_unit_test(a_thousand_hosts_are_grouped),
                                       cmocka_unit_test(what_a_nic_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
