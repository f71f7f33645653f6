/* Lists of hosts: hostfiles, and what batch systems put into the environment. */
#include "check.h"
#include "launch/launch.h"

#include <stdlib.h>
#include <unistd.h>

/* "node-1:2 node-2:?1": the slots; ? where the list does not state them. The user before an @. */
static const char *text_of(const ndp_host_list *list) {
    static char text[1024];
    int n = 0;
    text[0] = '\0';
    for (int i = 0; i < list->n; i++) {
        const ndp_host *h = &list->items[i];
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s%s%s:%s%d", i ? " " : "", h->user ? h->user : "",
                      h->user ? "@" : "", h->name, h->stated ? "" : "?", h->slots);
    }
    return text;
}

static void reads_as(const char *hostfile, const char *expected) {
    ndp_host_list list;
    CHECK_OK(ndp_hosts_parse(hostfile, strlen(hostfile), "hosts", &list));
    assert_string_equal(text_of(&list), expected);
    ndp_host_list_release(&list);
}

static void refused(const char *hostfile, const char *words) {
    ndp_host_list list;
    CHECK_FAILS(ndp_hosts_parse(hostfile, strlen(hostfile), "hosts", &list), NDP_EINVAL, words);
}

static void a_hostfile(void **state) {
    (void)state;
    reads_as("", "");
    reads_as("# none\n\n   \n", "");
    reads_as("node-1 slots=2\nnode-2 slots=4\n", "node-1:2 node-2:4");
    reads_as("node-1\nnode-2", "node-1:?1 node-2:?1");
    reads_as("\t node-1 \t slots =2 # two\r\nnode-2#3\n#node-3\n10.0.0.4 slots = 3", "node-1:2 node-2:?1 10.0.0.4:3");
    reads_as("node-1 count=2\nnode-2 cpu=3 max_slots=4\nnode-3 max-slots=5\nnode-4 slots_max=2 slots=1",
             "node-1:2 node-2:3 node-3:5 node-4:1");
    reads_as("user@node-1 slots=2\nnode-2 username=root slots=1\n::1 slots=0", "user@node-1:2 root@node-2:1 ::1:0");
}

static void a_host_on_several_lines(void **state) {
    (void)state;
    reads_as("node-1\nnode-2\nnode-1\n", "node-1:?2 node-2:?1");
    reads_as("b slots=2\na slots=1\nb slots=3\nuser@a\n", "b:5 user@a:2");
    ndp_host_list list;
    static const char lines[] = "\nb\na\n\nb\n";
    CHECK_OK(ndp_hosts_parse(lines, sizeof lines - 1, "hosts", &list));
    assert_int_equal(ndp_host_find(&list, "b")->line, 2);
    assert_int_equal(ndp_host_find(&list, "a")->line, 3);
    assert_null(ndp_host_find(&list, "c"));
    ndp_host_list_release(&list);
}

static void what_is_not_a_hostfile(void **state) {
    (void)state;
    refused("node-1\nnode-2 slots=x\n", "hosts:2: 'slots' needs a number from 0 to 16383 behind '='");
    refused("node-1 slots=-1", "hosts:1: 'slots' needs a number");
    refused("node-1 slots=16384", "hosts:1: 'slots' needs a number");
    refused("node-1 slots=99999999999999999999", "hosts:1: 'slots' needs a number");
    refused("node-1 slots", "hosts:1: 'slots' needs a number");
    refused("node-1 slots 2", "hosts:1: 'slots' needs a number");
    refused("node-1 username=", "hosts:1: 'username' needs a name");
    refused("node-1 slots=2 node-2 slots=4", "hosts:1: 'node-2' is not known; a line is [USER@]NAME [slots=N]");
    refused("\n\nnode-1 slots=2 max_slots=1", "hosts:3: 2 slots, more than max_slots, 1");
    refused("node-1:3", "hosts:1: 'node-1:3': a hostfile has the number of ranks as a word, 'node-1 slots=3'");
    refused("^node-1", "hosts:1: '^node-1' is not the name of a host");
    refused("+n0", "hosts:1: '+n0' is not the name of a host");
    refused("a;reboot", "hosts:1: 'a;reboot' is not the name of a host");
    refused("user@", "hosts:1: a host's name of 0 characters");
    refused("=", "hosts:1: '=' is not the name of a host");
    char *far = malloc(301);
    memset(far, 'a', 300);
    far[300] = '\0';
    refused(far, "hosts:1: a host's name of 300 characters; 1 to 255 are possible");
    free(far);
    ndp_host_list list;
    CHECK_FAILS(ndp_hosts_parse("a\0b", 3, "hosts", &list), NDP_EINVAL, "hosts:1: 'a");
    CHECK_FAILS(ndp_hosts_read("/nowhere/hosts", &list), NDP_EINVAL, "/nowhere/hosts");
}

/* ---- names ---- */

/* A word that ssh takes for the name of a host or a user, and a shell for itself. */
static bool is_harmless(const char *name) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:%";
    return *name && *name != '-' && strspn(name, allowed) == strlen(name);
}

static ndp_status of_ranks(const char *text, ndp_host_list *out) {
    return ndp_hosts_parse_ranks(text, "LSB_HOSTS", out);
}
static ndp_status of_slurm(const char *text, ndp_host_list *out) { return ndp_hosts_parse_slurm(text, NULL, out); }
static ndp_status of_file(const char *text, ndp_host_list *out) {
    return ndp_hosts_parse(text, strlen(text), "hosts", out);
}

/* Where a name may be listed; `ends` are the characters that end or divide one there. */
static const struct name_place {
    const char *before, *behind, *ends;
    ndp_status (*parse)(const char *text, ndp_host_list *out);
    bool user;
} name_places[] = {
    {"", " slots=2\n", " \t\n\v\f\r=#@", of_file, false},
    {"root@", " slots=2\n", " \t\n\v\f\r=#@", of_file, false},
    {"", "@node slots=2\n", " \t\n\v\f\r=#@", of_file, true},
    {"node username=", "\n", " \t\n\v\f\r=#", of_file, true},
    {"", ",node", ",[", of_slurm, false},
    {"node ", "\n", " \t\n\r", of_ranks, false},
};

static const ndp_host *find(const ndp_host_list *list, const char *name, bool user) {
    for (int i = 0; i < list->n; i++) {
        const char *has = user ? list->items[i].user : list->items[i].name;
        if (has && strcmp(has, name) == 0)
            return &list->items[i];
    }
    return NULL;
}

/* Every character, in the first place of a name and in a later one: it is read if and only if it is harmless. */
static void names_are_harmless_words(void **state) {
    (void)state;
    for (int p = 0; p < NDP_COUNT(name_places); p++)
        for (int c = 1; c < 256; c++)
            for (int at = 0; at < 2; at++) {
                const struct name_place *place = &name_places[p];
                char name[] = "abcd", *text;
                ndp_host_list list;
                name[at * 2] = (char)c;
                if (strchr(place->ends, c) || (c == ':' && place->parse == of_file && !place->user))
                    continue;
                text = ndp_format("%s%s%s", place->before, name, place->behind);
                ndp_status st = place->parse(text, &list);
                if (st != (is_harmless(name) ? NDP_OK : NDP_EINVAL) ||
                    (st == NDP_OK && !find(&list, name, place->user)))
                    fail_msg("'%s' is read with status %d", text, st);
                if (st == NDP_OK)
                    ndp_host_list_release(&list);
                free(text);
            }
}

static void an_option_is_no_name(void **state) {
    (void)state;
    refused("-Fevil", "hosts:1: '-Fevil' is not the name of a host: ssh would take it for an option");
    refused("node\n-oProxyCommand slots=2", "hosts:2: '-oProxyCommand' is not the name of a host");
    refused("-Fevil@node", "hosts:1: '-Fevil' is not the name of a user: ssh would take it for an option");
    refused("node username=-Fevil", "hosts:1: '-Fevil' is not the name of a user");
    refused("node username=-Fevil username=root", "hosts:1: '-Fevil' is not the name of a user");
    refused("-Fevil@node username=root", "hosts:1: '-Fevil' is not the name of a user");
    refused("a@b@c", "hosts:1: 'b@c' is not the name of a host");
    refused("@node", "hosts:1: a user's name of 0 characters");
    ndp_host_list list;
    CHECK_FAILS(of_slurm("a,-Fevil[1-2]", &list), NDP_EINVAL,
                "SLURM_JOB_NODELIST: '-Fevil1' is not the name of a host");
    CHECK_FAILS(of_ranks("a b\n-Fevil", &list), NDP_EINVAL, "LSB_HOSTS: '-Fevil' is not the name of a host");
    CHECK_FAILS(of_ranks("root@a", &list), NDP_EINVAL, "LSB_HOSTS: 'root@a' is not the name of a host");
}

/* PBS writes a line for each rank. */
static void many_lines(void **state) {
    enum { HOSTS = 300, TIMES = 64 };
    ndp_str text = {0};
    (void)state;
    for (int t = 0; t < TIMES; t++)
        for (int h = 0; h < HOSTS; h++)
            ndp_str_addf(&text, "n%d\n", h);
    ndp_host_list list;
    CHECK_OK(ndp_hosts_parse(text.data, text.length, "hosts", &list));
    assert_int_equal(list.n, HOSTS);
    for (int h = 0; h < HOSTS; h++) {
        assert_int_equal(list.items[h].slots, TIMES);
        assert_int_equal(atoi(list.items[h].name + 1), h);
    }
    ndp_host_list_release(&list);
    ndp_str_release(&text);
}

/* ---- Slurm ---- */

static void slurm_is(const char *nodes, const char *tasks, const char *expected) {
    ndp_host_list list;
    CHECK_OK(ndp_hosts_parse_slurm(nodes, tasks, &list));
    assert_string_equal(text_of(&list), expected);
    ndp_host_list_release(&list);
}

static void slurm_refused(const char *nodes, const char *tasks, const char *words) {
    ndp_host_list list;
    CHECK_FAILS(ndp_hosts_parse_slurm(nodes, tasks, &list), NDP_EINVAL, words);
}

static void slurms_lists(void **state) {
    (void)state;
    slurm_is("node", "4", "node:4");
    slurm_is("node[1-3,7]", "2(x3),1", "node1:2 node2:2 node3:2 node7:1");
    slurm_is("a[09-11],b,c[1,3]-ib", "1,2(x2),3(x1),4(x2)", "a09:1 a10:2 a11:2 b:3 c1-ib:4 c3-ib:4");
    slurm_is("r[1-2]n[1-2]", NULL, "r1n1:?1 r1n2:?1 r2n1:?1 r2n2:?1");
    slurm_is("n[8-11]", "8(x4)", "n8:8 n9:8 n10:8 n11:8");
}

static void what_slurm_does_not_write(void **state) {
    (void)state;
    slurm_refused("node[1-", "1", "SLURM_JOB_NODELIST 'node[1-': a bracket without its end");
    slurm_refused("node[]", "1", "brackets hold numbers and ranges, as in node[1-3,7]");
    slurm_refused("node[3-1]", "1", "brackets hold numbers and ranges");
    slurm_refused("node[1-2-3]", "1", "brackets hold numbers and ranges");
    slurm_refused("node[1,]", "1", "brackets hold numbers and ranges");
    slurm_refused("a,,b", "1(x2)", "a node without a name");
    slurm_refused("", "1", "a node without a name");
    slurm_refused("n[0-999999999]", "1", "more than 131072 nodes");
    slurm_refused("n[1][1][1][1][1][1][1][1][1]", "1", "more brackets in a name than are supported, 8");
    slurm_refused("n[1-3]", "2(x2)", "SLURM_TASKS_PER_NODE '2(x2)' is for 2 nodes of the 3 of the job");
    slurm_refused("n[1-3]", "2(x4)", "SLURM_TASKS_PER_NODE '2(x4)' is for more nodes than the 3 of the job");
    slurm_refused("n1", "", "SLURM_TASKS_PER_NODE '' is not a list such as 2(x3),1");
    slurm_refused("n1", "2(3)", "is not a list such as 2(x3),1");
    slurm_refused("n1", "2(x1", "is not a list such as 2(x3),1");
    slurm_refused("n1", "2,", "is not a list such as 2(x3),1");
}

/* ---- the environment ---- */

static void allocated(const char *const *variables, const char *hostfile, const char *expected) {
    ndp_host_list list;
    for (int i = 0; variables[i]; i += 2)
        setenv(variables[i], variables[i + 1], 1);
    ndp_status st = ndp_launch_hosts(hostfile, &list);
    for (int i = 0; variables[i]; i += 2)
        unsetenv(variables[i]);
    CHECK_OK(st);
    assert_string_equal(text_of(&list), expected);
    ndp_host_list_release(&list);
}
#define VARIABLES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void batch_systems(void **state) {
    char nodes[] = "/tmp/ndp-nodes-XXXXXX";
    int fd = mkstemp(nodes);
    (void)state;
    assert_true(fd >= 0 && dprintf(fd, "n1\nn2\nn1\n") > 0);
    allocated(VARIABLES(NULL), NULL, "");
    allocated(VARIABLES("SLURM_JOB_ID", "7"), NULL, "");
    allocated(VARIABLES("SLURM_JOB_ID", "7", "SLURM_JOB_NODELIST", "a[1-2]", "SLURM_TASKS_PER_NODE", "3(x2)"), NULL,
              "a1:3 a2:3");
    allocated(VARIABLES("SLURM_JOB_ID", "7", "SLURM_NODELIST", "a1"), NULL, "a1:?1");
    allocated(VARIABLES("PBS_NODEFILE", nodes), NULL, "n1:2 n2:1");
    allocated(VARIABLES("LSB_HOSTS", "n3 n3  n1 "), NULL, "n3:2 n1:1");
    /* A hostfile says which of them. */
    allocated(VARIABLES("SLURM_JOB_ID", "7", "SLURM_JOB_NODELIST", "a[1-2]"), nodes, "n1:?2 n2:?1");
    close(fd);
    unlink(nodes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hostfile),
        cmocka_unit_test(a_host_on_several_lines),
        cmocka_unit_test(what_is_not_a_hostfile),
        cmocka_unit_test(names_are_harmless_words),
        cmocka_unit_test(an_option_is_no_name),
        cmocka_unit_test(many_lines),
        cmocka_unit_test(slurms_lists),
        cmocka_unit_test(what_slurm_does_not_write),
        cmocka_unit_test(batch_systems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
