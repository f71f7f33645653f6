/* Checkpoints that are written while steps go on have the bytes of those that steps wait for: of every optimizer, with
 * adapters, references and mixtures, on layouts of each axis, between threads and between processes over MPI. */
#include "base/fault.h"
#include "train/tiny_run.h"

#include "train/resumes.h"

#include <dirent.h>

static const char *const ways[][2] = {{"parallelism.dp_shard_size=2"},
                                      {"parallelism.tp_size=2"},
                                      {"parallelism.cp_size=2"},
                                      {"parallelism.pp_size=2"},
                                      {"parallelism.dp_replicate_size=2"},
                                      {"parallelism.ep_size=2", "parallelism.dp_shard_size=2"},
                                      {"parallelism.tp_size=2", "parallelism.sp_size=2"}};

/* Trains with a save after each step. False: the job is not for this layout. */
static bool train_saving(const char *folder, int base, int way, bool behind, ndp_str *why) {
    ndp_config *c = configure(folder, base, behind ? "behind" : "waited");
    set(c, folder, "checkpoint.every=1");
    set(c, folder, "checkpoint.keep=9");
    set(c, folder, behind ? "checkpoint.async=true" : "checkpoint.async=false");
    for (int i = 0; i < 2 && ways[way][i]; i++)
        set(c, folder, ways[way][i]);
    run r = {.config = c};
    ndp_status st = train(&r, false, NULL);
    ndp_config_destroy(c);
    int in_background = 0;
    for (const char *at = r.said.data; at && (at = strstr(at, "; steps waited ")); at++)
        in_background++;
    ndp_str_release(&r.said);
    if (st == NDP_OK && in_background != (behind ? STEPS - 1 : 0))
        fail_msg("%s, %s: %d of %d saves were written in the background", bases[base].name, ways[way][0], in_background,
                 STEPS);
    if (st != NDP_OK)
        ndp_str_addf(why, "%s, %s: %s\n", bases[base].name, ways[way][0], ndp_error_message());
    return st == NDP_OK;
}

/* What a manifest says of files: names, bytes and the hash of every chunk. */
static char *files_of(const char *step) {
    char *path = ndp_format("%s/manifest.json", step);
    struct json_object *o;
    CHECK_OK(ndp_json_read(path, &o));
    char *text = strdup(json_object_to_json_string(json_object_object_get(o, "files")));
    json_object_put(o);
    free(path);
    return text;
}

static void want_same_step(const char *folder, int step, const char *what) {
    char own[64], part[512], other[512];
    snprintf(own, sizeof own, "checkpoints/step-%08d", step);
    snprintf(part, sizeof part, "%s/behind/%s", folder, own);
    snprintf(other, sizeof other, "%s/waited/%s", folder, own);
    char *a = files_of(part), *b = files_of(other);
    if (strcmp(a, b) != 0 || !tiny_same_weights(folder, "behind", "waited", own))
        fail_msg("%s: step %d has other bytes\n%s\n%s", what, step, a, b);
    free(a);
    free(b);
}

static void same_bytes(void **state) {
    const char *folder = *state;
    int compared = 0;
    ndp_str why = {0};
    for (int i = 0; i < NDP_COUNT(bases) * NDP_COUNT(ways); i++) {
        int base = i % NDP_COUNT(bases), way = i / NDP_COUNT(bases);
        bool tried = way == 5 ? base >= MIXTURE : (base + way) % short_or_all(6, 1) == 0;
        if (!tried || !train_saving(folder, base, way, false, &why))
            continue;
        assert_true(train_saving(folder, base, way, true, &why));
        for (int step = 1; step <= STEPS; step++)
            want_same_step(folder, step, bases[base].name);
        compared++;
        tiny_nothing_left(folder, "behind", "", bases[base].name);
        char *command = ndp_format("rm -rf %1$s/behind %1$s/waited", folder);
        assert_int_equal(system(command), 0);
        free(command);
    }
    print_message("%d jobs had the same bytes\n%s", compared, why.data ? why.data : "");
    assert_true(compared >= short_or_all(10, 60));
    ndp_str_release(&why);
}

/* ---- a writer that fails ---- */

/* An operation of the save of step 3 that fails, on one rank: what comes after the files are created is the thread's.
 */
static const struct failure {
    int rank;
    ndp_fault_kind kind;
    int64_t n;
} failures[] = {{0, NDP_FAULT_WRITE, 1}, {0, NDP_FAULT_WRITE, 4}, {0, NDP_FAULT_WRITE, 8}, {0, NDP_FAULT_WRITE, 9},
                {1, NDP_FAULT_WRITE, 1}, {1, NDP_FAULT_WRITE, 2}, {1, NDP_FAULT_SYNC, 1},  {1, NDP_FAULT_SYNC, 2},
                {0, NDP_FAULT_SYNC, 3},  {0, NDP_FAULT_RENAME, 1}};

typedef struct failing_run {
    const ndp_config *config;
    const struct failure *at;
} failing_run;

static void arm(const struct failure *at) { ndp_fault_arm(at->kind, at->n); }

/* Rank 0's. */
static void arm_in_time(void *user, const ndp_metrics *m, int64_t steps) {
    const failing_run *r = user;
    (void)steps;
    if (r->at->rank == 0 && m->step == 2)
        arm(r->at);
}

/* Other ranks have no operations but those of saves. */
static ndp_status failing_body(ndp_world *w, void *arg) {
    failing_run *r = arg;
    ndp_train_opts o = NDP_TRAIN_OPTS_INIT;
    int rank = ndp_world_rank(w);
    o.progress = arm_in_time;
    o.user = r;
    if (rank == r->at->rank && rank > 0)
        arm(r->at);
    return ndp_train(r->config, w, &o);
}

/* What the run says on stderr, less the bytes that the disk has free; its status is NDP_OK. */
static char *heard_of(const char *folder, const struct failure *at, bool behind) {
    char *path = ndp_format("%s/heard", folder), *text;
    size_t size;
    ndp_config *c = tiny_configure(folder, &(tiny_layout){"shard-2", 1, 2, 1, 1}, "failing");
    tiny_set(c, "checkpoint.every=3");
    tiny_set(c, "checkpoint.async=%s", behind ? "true" : "false");
    failing_run r = {c, at};
    int own = tiny_redirect_stderr(path);
    ndp_status st = ndp_world_run(c, failing_body, &r);
    tiny_restore_stderr(own);
    CHECK_OK(ndp_file_read(path, &text, &size));
    if (st != NDP_OK || !strstr(text, "The run goes on, and the next save tries again"))
        fail_msg("rank %d, kind %d, operation %lld: status %d: %s", at->rank, (int)at->kind, (long long)at->n, st,
                 text);
    char *from = strstr(text, "its disk has "), *to = from ? strstr(from, " free.") : NULL;
    if (to)
        memmove(from, to, strlen(to) + 1);
    tiny_nothing_left(folder, "failing", "", text);
    tiny_check_end(folder, "failing", "alone", TINY_STEPS, text);
    tiny_remove(folder, "failing");
    ndp_config_destroy(c);
    free(path);
    return text;
}

/* The same words as of a save that steps wait for, and the same end. */
static void failing_writers(void **state) {
    void *folder = *state;
    ndp_config *c = tiny_configure(folder, &(tiny_layout){"shard-2", 1, 2, 1, 1}, "alone");
    tiny_set(c, "checkpoint.every=3");
    run r = {.config = c};
    CHECK_OK(train(&r, false, NULL));
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
    for (int i = 0; i < NDP_COUNT(failures); i++) {
        char *waited = heard_of(folder, &failures[i], false), *behind = heard_of(folder, &failures[i], true);
        if (strcmp(waited, behind) != 0)
            fail_msg("rank %d, kind %d, operation %lld: a save that is waited for says\n%sone in the background\n%s",
                     failures[i].rank, (int)failures[i].kind, (long long)failures[i].n, waited, behind);
        free(waited);
        free(behind);
    }
}

/* ---- processes ---- */

static void same_bytes_over_mpi(void **state) {
    static const tiny_layout layouts[] = {{"shard-2", 1, 2, 1, 1}, {"replicate-2-tp-2", 2, 1, 1, 2}};
    void *folder = *state;
    if (!getenv("NDP_PROGRAM") || system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("SKIPPED: there is no program, or no mpirun\n");
        skip();
    }
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        ndp_config *c = tiny_configure(folder, &layouts[i], layouts[i].name);
        tiny_set(c, "checkpoint.async=false");
        tiny_set(c, "train.check_links=off");
        run r = {.config = c};
        CHECK_OK(train(&r, false, NULL));
        ndp_str_release(&r.said);
        ndp_config_destroy(c);
        tiny_job started = {folder, "mpi", &layouts[i], "mpi", "log", false, 0, 0, 0};
        assert_int_equal(tiny_end(tiny_start(&started), "mpi"), 0);
        char *log = tiny_log(&started);
        if (!strstr(log, "; steps waited "))
            fail_msg("no checkpoint was written in the background: %s", log);
        free(log);
        assert_true(tiny_same_weights(folder, "mpi", layouts[i].name, "checkpoints/step-00000006"));
        tiny_check_end(folder, "mpi", layouts[i].name, TINY_STEPS, layouts[i].name);
        tiny_remove(folder, "mpi");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_bytes, make_folder, tiny_teardown),
        cmocka_unit_test_setup_teardown(failing_writers, tiny_make, tiny_drop),
        cmocka_unit_test_setup_teardown(same_bytes_over_mpi, tiny_make, tiny_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
