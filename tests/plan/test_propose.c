/* Layouts that are proposed: all that are legal, those that fit first, and what the layout of the job says not at all.
 */
#include "base/text.h"
#include "plan/odd_job.h"

#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 64 };

static int propose(ndp_config *c, int ranks, int64_t memory, ndp_proposal out[MOST]) {
    int n;
    ndp_propose_opts o = {ranks, 0, memory};
    CHECK_OK(ndp_propose_layouts(c, &o, out, MOST, &n));
    return n;
}

static const ndp_proposal *find(const ndp_proposal *p, int n, const char *layout) {
    for (int i = 0; i < n; i++)
        if (strcmp(p[i].layout, layout) == 0)
            return &p[i];
    return NULL;
}

static void four_ranks(void **state) {
    (void)state;
    ndp_config *c = JOB("batch.global_batch_size=24");
    ndp_proposal p[MOST];
    int n = propose(c, 4, (int64_t)8 << 30, p);
    assert_true(n > 6 && p[0].fits && p[0].cost == 1);
    for (int i = 0; i < n; i++) {
        if (!p[i].fits || p[i].recompute || p[i].rank_memory <= 0 || p[i].waits < 0 || p[i].waits > 1)
            fail_msg("%s: %s, %lld bytes, waits %g", p[i].layout, p[i].bound_by, (long long)p[i].rank_memory,
                     p[i].waits);
        assert_true(i == 0 || p[i].cost >= p[i - 1].cost);
    }
    static const char *const legal[] = {"dp_shard 4", "dp_replicate 4", "tp 4", "cp 4", "pp 4", "dp_shard 2 x tp 2"};
    for (int i = 0; i < NDP_COUNT(legal); i++)
        if (!find(p, n, legal[i]))
            fail_msg("no %s among %d", legal[i], n);
    assert_string_equal(find(p, n, "dp_shard 2 x tp 2")->keys, "dp_shard_size: 2, tp_size: 2");
    assert_string_equal(find(p, n, "dp_replicate 4")->keys, "dp_replicate_size: 4, dp_shard_size: 1");
    /* Shards hold less. */
    assert_true(find(p, n, "dp_shard 4")->rank_memory < find(p, n, "dp_replicate 4")->rank_memory);
    /* The job's own layout is not read. */
    CHECK_OK(ndp_config_set(c, "parallelism.tp_size=3"));
    assert_int_equal(propose(c, 4, (int64_t)8 << 30, p), n);
    ndp_config_destroy(c);
}

/* Without memory for any all are listed with recomputation, the smallest first. */
static void little_memory(void **state) {
    (void)state;
    ndp_config *c = JOB("batch.global_batch_size=24");
    ndp_proposal p[MOST];
    int n = propose(c, 2, 1 << 20, p);
    for (int i = 0; i < n; i++) {
        assert_true(!p[i].fits && p[i].recompute);
        assert_string_equal(p[i].bound_by, "memory");
        assert_true(i == 0 || p[i].rank_memory >= p[i - 1].rank_memory);
    }
    ndp_config_destroy(c);
}

/* 5 layers, 8 heads, a batch of 24: nothing can be cut in 7 but the sequence. */
static void illegal_numbers(void **state) {
    (void)state;
    ndp_config *c = JOB("batch.global_batch_size=24");
    ndp_proposal p[MOST];
    int n = propose(c, 7, (int64_t)8 << 30, p);
    for (int i = 0; i < n; i++)
        if (strcmp(p[i].layout, "cp 7") != 0)
            fail_msg("%s", p[i].layout);
    ndp_propose_opts o = {0, 0, 0};
    CHECK_FAILS(ndp_propose_layouts(c, &o, p, MOST, &n), NDP_EINVAL, "0 ranks");
    CHECK_OK(ndp_config_set(c, "data.sequence_length=999999"));
    o.ranks = 2;
    CHECK_FAILS(ndp_propose_layouts(c, &o, p, MOST, &n), NDP_EINVAL, "is longer than");
    ndp_config_destroy(c);
}

/* ---- fewer ranks than before ---- */

typedef struct fewer_case {
    const char *keys[4], *hosts; /* "gone" does not answer */
    int ranks;
    const char *says, *model; /* NULL: that of all jobs here */
} fewer_case;

static ndp_status restart(ndp_config *c, const char *hosts, bool elastic, ndp_restart *out) {
    static const char agent[] = "#!/bin/sh\n[ \"$1\" != gone ]\n";
    char folder[] = "/tmp/ndp-restart-XXXXXX", program[64], list[64];
    ndp_restart_opts o = {.hostfile = list, .elastic = elastic};
    assert_non_null(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/agent", folder);
    snprintf(list, sizeof list, "%s/hosts", folder);
    CHECK_OK(ndp_file_write_atomic(program, agent, sizeof agent - 1));
    CHECK_OK(ndp_file_write_atomic(list, hosts, strlen(hosts)));
    assert_int_equal(chmod(program, 0755), 0);
    setenv("OMPI_MCA_plm_rsh_agent", program, 1);
    ndp_status st = ndp_restart_find(c, &o, out);
    CHECK_OK(ndp_folder_remove(folder));
    return st;
}

/* The job with what the restart sets is one of so many ranks, by the rules of any job. */
static void check_restart(const fewer_case *k) {
    ndp_config *c = odd_job(k->keys);
    ndp_restart r;
    int ranks;
    if (k->model)
        CHECK_OK(ndp_config_setf(c, "model.config=%s/tests/golden/%s/config.json", getenv("NDP_SOURCE_DIR"), k->model));
    CHECK_OK(restart(c, k->hosts, true, &r));
    if (r.ranks != k->ranks || !strstr(r.text, k->says))
        fail_msg("%s: %d ranks: %s", k->keys[0], r.ranks, r.text);
    for (int i = 0; i < r.n_settings; i++)
        CHECK_OK(ndp_config_set(c, r.settings[i].text));
    CHECK_OK(ndp_config_ranks(c, &ranks));
    assert_int_equal(ranks, r.ranks);
    for (int i = 0; i <= r.ranks; i++)
        assert_true(i < r.ranks ? strcmp(r.rank_hosts[i], "left") == 0 : !r.rank_hosts[i]);
    ndp_restart_release(&r);
    ndp_config_destroy(c);
}

static void fewer_ranks(void **state) {
    (void)state;
    static const fewer_case cases[] = {
        {{"parallelism.dp_shard_size=8", "batch.global_batch_size=24"},
         "left slots=7\ngone slots=1\n",
         6,
         "; the layout changes for 6 ranks instead of 8: dp_shard 8 -> 6; the global batch stays 24",
         NULL},
        {{"parallelism.dp_shard_size=7", "batch.global_batch_size=49"},
         "gone slots=1\nleft slots=6\n",
         1,
         "for 1 rank instead of 7: dp_shard 7 -> 1;",
         NULL},
        /* auto, of train.ranks. */
        {{"train.ranks=8", "batch.global_batch_size=24"},
         "left slots=5\ngone slots=3\n",
         4,
         ": dp_shard 8 -> 4;",
         NULL},
        /* 8 heads and 4 kv heads, 5 layers. */
        {{"parallelism.dp_shard_size=1", "parallelism.tp_size=8"},
         "left slots=7\ngone slots=1\n",
         4,
         ": tp 8 -> 4;",
         NULL},
        {{"parallelism.dp_shard_size=1", "parallelism.pp_size=5"},
         "left slots=4\ngone slots=1\n",
         4,
         ": pp 5 -> 4;",
         NULL},
        {{"parallelism.dp_shard_size=4", "parallelism.tp_size=2"},
         "left slots=7\ngone slots=1\n",
         4,
         ": dp_shard 4 -> 2;",
         NULL},
        {{"parallelism.dp_shard_size=4", "parallelism.dp_replicate_size=2", "batch.global_batch_size=24"},
         "left slots=7\ngone slots=1\n",
         6,
         ": dp_shard 4 -> 3;",
         NULL},
        {{"parallelism.dp_shard_size=4", "parallelism.ep_size=4", "data.sequence_length=16"},
         "left slots=3\ngone slots=1\n",
         2,
         ": dp_shard 4 -> 2, ep 4 -> 2;",
         "mixtral"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        check_restart(&cases[i]);
}

static void as_many_ranks(void **state) {
    (void)state;
    ndp_config *c = JOB("parallelism.dp_shard_size=4");
    ndp_restart r;
    CHECK_OK(restart(c, "left slots=2\nother slots=2\n", true, &r));
    assert_true(r.ranks == 4 && !r.rank_hosts && !r.text && r.n_settings == 0);
    ndp_restart_release(&r);
    CHECK_OK(restart(c, "left slots=4\ngone slots=2\n", true, &r));
    assert_true(r.ranks == 4 && r.n_settings == 0);
    assert_string_equal(r.text, "host gone is lost");
    ndp_restart_release(&r);
    CHECK_FAILS(restart(c, "left slots=3\ngone slots=2\n", false, &r), NDP_ECOMM, "has 3 slots left for 4 ranks");
    CHECK_FAILS(restart(c, "gone slots=4\n", true, &r), NDP_ECOMM, "has 0 slots left for 4 ranks. Add slots to it");
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(four_ranks), cmocka_unit_test(little_memory),
                                       cmocka_unit_test(illegal_numbers), cmocka_unit_test(fewer_ranks),
                                       cmocka_unit_test(as_many_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
