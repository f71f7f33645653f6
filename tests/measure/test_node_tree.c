/* The nodes in tests/measure/nodes/, as hwloc loads them, and this one. */
#include "check.h"
#include "measure/node_tree.h"

#include <stdlib.h>

static const char *path_of(const char *name) {
    static char path[NDP_PATH];
    const char *source = getenv("NDP_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/measure/nodes/%s", source ? source : ".", name);
    return path;
}

static ndp_node_tree read_node(const char *name) {
    ndp_node_tree t;
    CHECK_OK(ndp_node_tree_read(path_of(name), &t));
    return t;
}

static const char *plural(int n) { return n == 1 ? "" : "s"; }

/* ", socket 1" */
static void add_place(ndp_str *out, const char *address, int socket) {
    if (*address)
        ndp_str_addf(out, " at %s", address);
    if (socket >= 0)
        ndp_str_addf(out, ", socket %d", socket);
}

static void add_sockets(const ndp_node_tree *t, ndp_str *out) {
    char memory[16];
    int threads = 0;
    ndp_str_addf(out, "%d socket%s:", t->n_sockets, plural(t->n_sockets));
    for (int i = 0; i < t->n_sockets; i++) {
        ndp_str_addf(out, "%s %d", i ? " +" : "", t->sockets[i].cores);
        threads += t->sockets[i].threads;
    }
    ndp_str_addf(out, " cores, %d threads, %s in %d NUMA node%s\n", threads, ndp_human_bytes(t->memory_bytes, memory),
                 t->numa_nodes, plural(t->numa_nodes));
}

/* Appends it as lines of text:
 *
 *     2 sockets: 24 + 16 cores, 80 threads, 503.5 GiB in 2 NUMA nodes
 *     1 GPU, 2 NICs
 *     GPU 0 NVIDIA H100 80GB HBM3 at 0000:18:00.0, socket 0: NIC mlx5_0 behind the same PCIe switch
 *     NIC mlx5_0 infiniband at 0000:19:00.0, socket 0
 *     NIC eth0 ethernet at 0000:98:00.0, socket 1 */
static void describe(const ndp_node_tree *t, ndp_str *out) {
#define PATH_TEXT(NAME, text) text,
    static const char *const paths[] = {NDP_NODE_PATHS(PATH_TEXT)};
    add_sockets(t, out);
    ndp_str_addf(out, "%d GPU%s, %d NIC%s\n", t->n_gpus, plural(t->n_gpus), t->n_nics, plural(t->n_nics));
    for (int i = 0; i < t->n_gpus; i++) {
        const ndp_node_gpu *g = &t->gpus[i];
        ndp_str_addf(out, "GPU %d%s%s", i, *g->model ? " " : "", g->model);
        add_place(out, g->address, g->socket);
        if (g->nic >= 0)
            ndp_str_addf(out, ": NIC %s %s", t->nics[g->nic].name, paths[g->path]);
        ndp_str_add(out, "\n");
    }
    for (int i = 0; i < t->n_nics; i++) {
        ndp_str_addf(out, "NIC %s %s", t->nics[i].name, t->nics[i].kind);
        add_place(out, t->nics[i].address, t->nics[i].socket);
        ndp_str_add(out, "\n");
    }
}

static void check_text(const ndp_node_tree *t, const char *expected) {
    ndp_str text = {0};
    describe(t, &text);
    assert_string_equal(text.data, expected);
    ndp_str_release(&text);
}

static void eight_gpus_have_a_nic_each(void **state) {
    (void)state;
    ndp_node_tree t = read_node("eight_gpus.xml");
    assert_int_equal(t.n_sockets, 2);
    assert_int_equal(t.n_gpus, 8); /* CUDA and NVML list each; the display of the management processor is none */
    assert_int_equal(t.n_nics, 9); /* an HCA is one NIC, not two; one more is Ethernet */
    for (int i = 0; i < 8; i++) {
        const ndp_node_gpu *g = &t.gpus[i];
        char cuda[32], hca[32];
        snprintf(cuda, sizeof cuda, "cuda%d", i);
        snprintf(hca, sizeof hca, "mlx5_%d", i);
        assert_string_equal(g->name, cuda);
        assert_string_equal(g->model, "NVIDIA H100 80GB HBM3");
        assert_int_equal(g->socket, i / 4);
        assert_string_equal(t.nics[g->nic].name, hca);
        assert_string_equal(t.nics[g->nic].kind, "infiniband");
        assert_int_equal(t.nics[g->nic].socket, i / 4);
        assert_int_equal(g->path, NDP_NODE_PATH_SWITCH);
        assert_true(g->pci_bandwidth > 63.01e9 && g->pci_bandwidth < 63.02e9);
    }
    assert_string_equal(t.gpus[4].address, "0000:91:00.0");
    assert_string_equal(t.nics[0].kind, "ethernet");
    assert_string_equal(t.nics[0].name, "eno1");
}

static void sockets_may_differ(void **state) {
    (void)state;
    ndp_node_tree t = read_node("uneven_sockets.xml");
    assert_int_equal(t.n_sockets, 2);
    assert_int_equal(t.sockets[0].cores, 6);
    assert_int_equal(t.sockets[0].threads, 12);
    assert_int_equal(t.sockets[1].cores, 4);
    assert_int_equal(t.sockets[1].threads, 8);
    assert_true(t.sockets[0].memory_bytes == 48.0 * (1 << 30));
    assert_true(t.sockets[1].memory_bytes == 16.0 * (1 << 30));
    assert_int_equal(t.sockets[1].numa_nodes, 1);
    check_text(&t, "2 sockets: 6 + 4 cores, 20 threads, 64.0 GiB in 2 NUMA nodes\n0 GPUs, 0 NICs\n");
}

/* No library of GPUs here: the PCI bus lists it. */
static void the_fabric_is_chosen_before_a_nearer_ethernet(void **state) {
    (void)state;
    ndp_node_tree t = read_node("two_nics.xml");
    check_text(&t, "2 sockets: 2 + 2 cores, 4 threads, 128.0 GiB in 2 NUMA nodes\n"
                   "1 GPU, 2 NICs\n"
                   "GPU 0 Instinct MI300X at 0000:41:00.0, socket 0: NIC mlx5_0 at another socket\n"
                   "NIC eno1 ethernet at 0000:42:00.0, socket 0\n"
                   "NIC mlx5_0 roce at 0000:81:00.0, socket 1\n");
}

static void equal_nics_are_shared_out(void **state) {
    (void)state;
    ndp_node_tree t = read_node("shared_roots.xml");
    assert_int_equal(t.n_gpus, 4);
    assert_int_equal(t.n_nics, 2);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(t.gpus[i].nic, i % 2);
        assert_int_equal(t.gpus[i].path, NDP_NODE_PATH_BRIDGE);
    }
}

/* A container that hides the PCI bus. NVML lists the same GPUs as CUDA. */
static void gpus_without_pci_count_once(void **state) {
    (void)state;
    ndp_node_tree t = read_node("hidden_pci.xml");
    assert_int_equal(t.n_gpus, 2);
    assert_string_equal(t.gpus[1].name, "cuda1");
    assert_string_equal(t.gpus[1].address, "");
    assert_int_equal(t.gpus[1].nic, -1);
    assert_int_equal(t.gpus[1].socket, 0);
    check_text(&t, "1 socket: 2 cores, 2 threads, 4.0 GiB in 1 NUMA node\n2 GPUs, 0 NICs\n"
                   "GPU 0 NVIDIA A100-SXM4-40GB, socket 0\nGPU 1 NVIDIA A100-SXM4-40GB, socket 0\n");
}

static void a_node_may_have_no_devices(void **state) {
    (void)state;
    ndp_node_tree t = read_node("bare.xml");
    check_text(&t, "1 socket: 2 cores, 2 threads, 4.0 GiB in 1 NUMA node\n0 GPUs, 0 NICs\n");
}

static void the_environment_names_a_file(void **state) {
    (void)state;
    ndp_node_tree t;
    setenv("HWLOC_XMLFILE", path_of("uneven_sockets.xml"), 1);
    CHECK_OK(ndp_node_tree_read(NULL, &t));
    assert_int_equal(t.sockets[0].cores, 6);
    setenv("HWLOC_XMLFILE", path_of("missing.xml"), 1);
    CHECK_FAILS(ndp_node_tree_read(NULL, &t), NDP_EIO, "nodes/missing.xml");
    unsetenv("HWLOC_XMLFILE");
}

static void what_hwloc_cannot_load_is_named(void **state) {
    (void)state;
    ndp_node_tree t = {.n_sockets = 77};
    CHECK_FAILS(ndp_node_tree_read(path_of("missing.xml"), &t), NDP_EIO, "nodes/missing.xml");
    CHECK_FAILS(ndp_node_tree_read(path_of("../test_node_tree.c"), &t), NDP_EIO, "test_node_tree.c");
    CHECK_FAILS(ndp_node_tree_read(path_of("no_node.xml"), &t), NDP_EIO, "nodes/no_node.xml");
    assert_int_equal(t.n_sockets, 77);
}

static void this_node_is_read(void **state) {
    (void)state;
    ndp_node_tree t;
    CHECK_OK(ndp_node_tree_read(NULL, &t));
    assert_true(t.n_sockets >= 1 && t.sockets[0].cores >= 1 && t.sockets[0].threads >= t.sockets[0].cores);
    assert_true(t.memory_bytes > 0);
    ndp_str text = {0};
    describe(&t, &text);
    print_message("%s", text.data);
    ndp_str_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_gpus_have_a_nic_each),
        cmocka_unit_test(sockets_may_differ),
        cmocka_unit_test(the_fabric_is_chosen_before_a_nearer_ethernet),
        cmocka_unit_test(equal_nics_are_shared_out),
        cmocka_unit_test(gpus_without_pci_count_once),
        cmocka_unit_test(a_node_may_have_no_devices),
        cmocka_unit_test(the_environment_names_a_file),
        cmocka_unit_test(what_hwloc_cannot_load_is_named),
        cmocka_unit_test(this_node_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
