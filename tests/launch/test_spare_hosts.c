/* Where ranks start after hosts were lost. In place of ssh, a program that fails for hosts whose names begin with
 * "silent". */
#include "base/text.h"
#include "check.h"
#include "launch/spare_hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/ndp-spare-XXXXXX", hostfile[64];

static int make_agent(void **state) {
    static const char script[] = "#!/bin/sh\ncase $1 in *silent*) exit 255 ;; esac\n";
    char agent[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(agent, sizeof agent, "%s/agent", folder);
    snprintf(hostfile, sizeof hostfile, "%s/hosts", folder);
    CHECK_OK(ndp_file_write_atomic(agent, script, sizeof script - 1));
    setenv("OMPI_MCA_plm_rsh_agent", agent, 1);
    return chmod(agent, 0755);
}

static int drop_agent(void **state) {
    (void)state;
    return ndp_folder_remove(folder) == NDP_OK ? 0 : 1;
}

typedef struct spare_case {
    const char *hosts; /* "NAME SLOTS, ..." */
    const char *named[3];
    int ranks;
    bool oversubscribe;
    int room;           /* -1: no host is lost */
    const char *places; /* of the ranks; NULL: there are too few */
    const char *moved;
} spare_case;

static void write_hosts(const char *hosts) {
    ndp_str text = {0};
    char name[64];
    int slots, n;
    for (; sscanf(hosts, " %60[^ ] %d%n", name, &slots, &n) == 2; hosts += hosts[n] ? n + 1 : n)
        ndp_str_addf(&text, "%s slots=%d\n", name, slots);
    CHECK_OK(ndp_file_write_atomic(hostfile, text.data, text.length));
    ndp_str_release(&text);
}

static void place(const spare_case *c, const ndp_spare_hosts *h) {
    char **names, *joined;
    ndp_str moved = {0}, all = {0};
    CHECK_OK(ndp_spare_hosts_place(h, c->ranks, NULL, &moved, &names));
    for (int r = 0; r < c->ranks; r++) {
        ndp_str_addf(&all, "%s%s", r ? " " : "", names[r]);
        free(names[r]);
    }
    assert_null(names[c->ranks]);
    free(names);
    joined = ndp_str_detach(&all);
    assert_string_equal(joined, c->places);
    assert_string_equal(moved.data ? moved.data : "", c->moved);
    free(joined);
    ndp_str_release(&moved);
}

static void try_case(const spare_case *c) {
    ndp_spare_hosts h;
    ndp_spare_seek s = {hostfile, c->ranks, c->named, 0, c->oversubscribe};
    while (c->named[s.n_named])
        s.n_named++;
    write_hosts(c->hosts);
    CHECK_OK(ndp_spare_hosts_find(&s, &h));
    assert_int_equal(h.n_lost == 0, c->room < 0);
    if (c->room >= 0)
        assert_int_equal(ndp_spare_hosts_room(&h), c->room);
    if (c->places) {
        place(c, &h);
    } else if (c->room >= 0) {
        ndp_str moved = {0};
        char **names;
        CHECK_FAILS(ndp_spare_hosts_place(&h, c->ranks, NULL, &moved, &names), NDP_EINVAL, "places are left");
    }
    ndp_spare_hosts_release(&h);
}

static void ranks_move_to_what_is_left(void **state) {
    (void)state;
    static const spare_case cases[] = {
        {"a 2,b 2,c 2", {"b"}, 4, false, 4, "a a c c", "ranks 2-3 start on c"},
        {"a 2,b 2,c 2", {"a"}, 4, false, 4, "c c b b", "ranks 0-1 start on c"},
        {"a 2,b 2,c 1,d 3", {"b"}, 4, false, 6, "a a c d", "rank 2 starts on c, rank 3 on d"},
        {"a 1,b 2,c 2,d 1", {"b", "c"}, 3, false, -1, "a b b", ""},
        /* The free place of a host that has others. */
        {"a 2,b 2,c 4", {"a"}, 5, false, 6, "c c b b c", "ranks 0-1 start on c"},
        /* One that was named, and answers, is used where the others have too few slots, and else not. */
        {"a 2,b 2", {"b"}, 4, false, -1, "a a b b", ""},
        {"a 2,silent 2", {NULL}, 4, false, 2, NULL, NULL},
        {"a 2,silent 2", {"silent"}, 2, false, 2, "a a", ""},
        {"a 2,silent 2,b 2", {"a"}, 4, false, 4, "a a b b", "ranks 2-3 start on b"},
        /* A host that does not answer is lost without being named. */
        {"silent 2,a 2,b 1", {NULL}, 3, false, 3, "a b a", "rank 0 starts on a, rank 1 on b"},
        /* Two ranks a slot, if one is not enough. */
        {"a 2,silent 2", {NULL}, 4, true, 4, "a a a a", "ranks 2-3 start on a, up to two ranks a slot"},
        {"a 2,silent 2,b 1", {NULL}, 4, true, 6, "a a b a", "rank 2 starts on b, rank 3 on a, up to two ranks a slot"},
        {"a 2,silent 2,b 2", {NULL}, 4, true, 4, "a a b b", "ranks 2-3 start on b"},
        {"a 1,silent 3", {NULL}, 4, true, 2, NULL, NULL},
        {"silent 2,silent2 2", {NULL}, 4, true, 0, NULL, NULL},
        /* More ranks than slots from the start: those of hosts that are left stay. */
        {"silent 1,a 1,b 8", {NULL}, 3, false, 9, "b a b", "rank 0 starts on b"},
        /* Names up to the first dot. */
        {"a.x.org 2,b 2,c 2", {"a"}, 4, false, 4, "c c b b", "ranks 0-1 start on c"},
        {"a 2,b 2,c 2", {"b.x.org", "unknown"}, 4, false, 4, "a a c c", "ranks 2-3 start on c"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        print_message("%s\n", cases[i].hosts);
        try_case(&cases[i]);
    }
}

/* As --placement best has placed them. */
static void ranks_stay_where_they_were(void **state) {
    (void)state;
    static const char *const before[] = {"b", "silent", "b", "silent"};
    static const char *const after[] = {"b", "a", "b", "a"};
    ndp_spare_hosts h;
    ndp_str moved = {0};
    char **names;
    write_hosts("a 2,b 2,silent 2");
    CHECK_OK(ndp_spare_hosts_find(&(ndp_spare_seek){hostfile, 4, NULL, 0, false}, &h));
    CHECK_OK(ndp_spare_hosts_place(&h, 4, before, &moved, &names));
    for (int r = 0; r < 4; r++) {
        assert_string_equal(names[r], after[r]);
        free(names[r]);
    }
    free(names);
    assert_string_equal(moved.data, "rank 1 starts on a, rank 3 on a");
    ndp_str_release(&moved);
    ndp_spare_hosts_release(&h);
}

static void what_is_not_known_is_said(void **state) {
    (void)state;
    ndp_spare_hosts h;
    ndp_spare_seek s = {hostfile, 2, NULL, 0, false};
    CHECK_OK(ndp_file_write_atomic(hostfile, "a\nsilent\n", 9));
    CHECK_FAILS(ndp_spare_hosts_find(&s, &h), NDP_EINVAL, "host silent is lost, and ");
    CHECK_OK(ndp_file_write_atomic(hostfile, "a\nb\n", 4)); /* nothing is lost, and nothing has to be known */
    CHECK_OK(ndp_spare_hosts_find(&s, &h));
    assert_int_equal(h.n_lost, 0);
    ndp_spare_hosts_release(&h);
    s.hostfile = "/nowhere/hosts";
    CHECK_FAILS(ndp_spare_hosts_find(&s, &h), NDP_EINVAL, "/nowhere/hosts");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_move_to_what_is_left),
        cmocka_unit_test(ranks_stay_where_they_were),
        cmocka_unit_test(what_is_not_known_is_said),
    };
    return cmocka_run_group_tests(tests, make_agent, drop_agent);
}
