/* What needs no peers: the self transport, the launcher's environment, the search for the plugin. */
#include "base/text.h"
#include "comm/cases.h"
#include "comm/launched.h"

#include "check.h"
#include <unistd.h>

static void self_is_a_world_of_one(void **state) {
    ndp_transport *t;
    bool supported;
    (void)state;
    CHECK_OK(ndp_transport_self(&t));
    assert_int_equal(ndp_transport_world(t), 1);
    assert_int_equal(ndp_transport_rank(t), 0);
    assert_int_equal(ndp_transport_node_ranks(t), 1);
    CHECK_OK(check_transport(t, NULL));
    CHECK_OK(check_shared_window(t, &supported));
    assert_true(supported);
    CHECK_OK(check_outstanding(t, NULL));
    CHECK_OK(check_many(t, NULL));
    CHECK_OK(check_uneven_windows(t, NULL));
    ndp_transport_abort(t, "no rank listens");
    ndp_transport_destroy(t);
    ndp_transport_destroy(NULL);
}

static void memory_has_an_end(void **state) {
    ndp_transport *t;
    void *data;
    (void)state;
    CHECK_OK(ndp_transport_self(&t));
    ndp_memory_source source = ndp_transport_memory(t);
    CHECK_FAILS(source.map(source.user, SIZE_MAX - 5, &data), NDP_ENOMEM, "not enough memory for a window");
    ndp_transport_destroy(t);
}

static void a_group_of_one_accumulates(void **state) {
    ndp_transport *t;
    ndp_comm *c;
    ndp_work w;
    float in[2] = {1, 2}, out[2] = {10, 20};
    (void)state;
    CHECK_OK(ndp_transport_self(&t));
    CHECK_OK(ndp_comm_create(t, world_group(t), "world", &c));
    CHECK_OK(ndp_reduce_scatter_begin(c, in, out, 2, NDP_F32, true, &w));
    CHECK_OK(ndp_wait(&w));
    assert_true(out[0] == 11 && out[1] == 22);
    ndp_comm_destroy(c);
    ndp_transport_destroy(t);
}

static void the_launcher_is_recognised(void **state) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                        "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"};
    int ranks = -1;
    (void)state;
    for (int i = 0; i < NDP_COUNT(names); i++)
        unsetenv(names[i]);
    assert_false(ndp_launched(&ranks));
    assert_int_equal(ranks, -1);
    setenv("OMPI_COMM_WORLD_SIZE", "12", 1);
    assert_true(ndp_launched(&ranks));
    assert_int_equal(ranks, 12);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("PMI_SIZE", "many", 1);
    assert_false(ndp_launched(&ranks));
    unsetenv("PMI_SIZE");
    setenv("SLURM_STEP_NUM_TASKS", "64", 1);
    assert_false(ndp_launched(&ranks)); /* not a task of srun */
    setenv("SLURM_PROCID", "3", 1);
    assert_true(ndp_launched(&ranks));
    assert_int_equal(ranks, 64);
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_PROCID");
}

/* srun's own variables, and none by which MPI would find the other tasks. */
static void an_srun_without_pmi_is_recognised(void **state) {
    static const char *const others[] = {"PMIX_RANK", "PMI_FD", "PMI2_ANY", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_pmix"};
    int tasks = -1;
    (void)state;
    assert_false(ndp_launched_without_pmi(&tasks));
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    assert_false(ndp_launched_without_pmi(&tasks)); /* a batch script */
    setenv("SLURM_PROCID", "0", 1);
    assert_true(ndp_launched_without_pmi(&tasks));
    assert_int_equal(tasks, 2);
    for (int i = 0; i < NDP_COUNT(others); i++) {
        setenv(others[i], "1", 1);
        assert_false(ndp_launched_without_pmi(&tasks));
        unsetenv(others[i]);
    }
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    assert_false(ndp_launched_without_pmi(&tasks)); /* one task has none to find */
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_PROCID");
}

static void a_missing_plugin_is_explained(void **state) {
    char folder[] = "/tmp/ndp-plugin-XXXXXX";
    ndp_transport *t;
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("NDP_PLUGIN_DIR", folder, 1);
    CHECK_FAILS(ndp_transport_mpi(&t), NDP_ENOTSUP, "libopenmpi-dev");
    assert_non_null(strstr(ndp_error_message(), folder));
    char *path = ndp_format("%s/ndp_mpi.so", folder);
    CHECK_OK(ndp_file_write_atomic(path, "no library", 10));
    CHECK_FAILS(ndp_transport_mpi(&t), NDP_ENOTSUP, "cannot be loaded");
    free(path);
    CHECK_OK(ndp_folder_remove(folder));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(self_is_a_world_of_one),
        cmocka_unit_test(memory_has_an_end),
        cmocka_unit_test(a_group_of_one_accumulates),
        cmocka_unit_test(the_launcher_is_recognised),
        cmocka_unit_test(an_srun_without_pmi_is_recognised),
        cmocka_unit_test(a_missing_plugin_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
