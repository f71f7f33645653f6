/* Joules of processors from a folder as Linux has it, those of GPUs from a library in NVIDIA's place. */
#include "check.h"
#include "device/energy.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const ndp_device processors = {.name = "processors", .host_memory = true};
static char root[] = "/tmp/ndp_energy_XXXXXX";

static int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void set(const char *zone, const char *file, const char *value) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, zone);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%s/%s", root, zone, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(value, f) >= 0 && fclose(f) == 0);
}

static void equal(double joules, double wanted) { assert_true(fabs(joules - wanted) < 1e-6); }

/* Past the time in which a count is not read again. */
static double later(ndp_energy *e) {
    e->next = 0;
    return ndp_energy_read(e);
}

static void packages_are_counted_past_the_end_of_their_counts(void **state) {
    (void)state;
    ndp_energy e;
    ndp_energy_open(&e, &processors, NULL, 0, root);
    assert_true(isnan(ndp_energy_read(&e)));
    for (int i = 0; i < 2; i++) {
        set(i ? "intel-rapl:10" : "intel-rapl:0", "energy_uj", "1000000\n");
        set(i ? "intel-rapl:10" : "intel-rapl:0", "max_energy_range_uj", "50000000\n");
    }
    /* A part of a package, the whole machine, and a driver: not packages. */
    set("intel-rapl:0:0", "energy_uj", "5\n");
    set("intel-rapl-mmio:0", "energy_uj", "5\n");
    set("intel-rapl", "enabled", "1\n");
    ndp_energy_open(&e, &processors, NULL, 0, root);
    equal(ndp_energy_read(&e), 0);
    set("intel-rapl:0", "energy_uj", "3000000\n");
    equal(ndp_energy_read(&e), 0); /* was read just now */
    equal(later(&e), 2);
    set("intel-rapl:10", "energy_uj", "49000000\n");
    equal(later(&e), 2 + 48);
    set("intel-rapl:10", "energy_uj", "2000000\n");
    equal(later(&e), 2 + 48 + 3);
}

static void one_rank_of_a_node_counts(void **state) {
    (void)state;
    ndp_energy e;
    ndp_energy_open(&e, &processors, NULL, 1, root);
    set("intel-rapl:0", "energy_uj", "9000000\n");
    equal(later(&e), 0);
}

/* The sum without it would be taken for the whole. */
static void a_package_that_cannot_be_read_makes_it_unknown(void **state) {
    (void)state;
    ndp_energy e;
    ndp_energy_open(&e, &processors, NULL, 0, root);
    set("intel-rapl:10", "energy_uj", "none\n");
    assert_true(isnan(later(&e)));
    set("intel-rapl:10", "energy_uj", "3000000\n");
    assert_true(isnan(later(&e))); /* and it stays so: what was drawn meanwhile is not known */
    set("intel-rapl:11", "enabled", "1\n");
    ndp_energy_open(&e, &processors, NULL, 0, root);
    assert_true(isnan(later(&e)));
}

static const char *bus;
static void give_bus(ndp_device_context *c, char text[NDP_DEVICE_NAME]) {
    (void)c;
    snprintf(text, NDP_DEVICE_NAME, "%s", bus);
}

static double read_gpu(const char *id, ndp_energy *e) {
    static const ndp_device gpu = {.name = "gpu", .bus_id = give_bus};
    bus = id;
    ndp_energy_open(e, &gpu, NULL, 3, root); /* whichever rank it is */
    return ndp_energy_read(e);
}

static void gpus_are_counted_by_their_library(void **state) {
    (void)state;
    ndp_energy e;
    char path[512];
    const char *build = getenv("NDP_BUILD_DIR");
    if (!dlopen("libnvidia-ml.so.1", RTLD_NOW))
        assert_true(isnan(read_gpu("0000:01:00.0", &e)));
    snprintf(path, sizeof path, "%s/fake_nvml/libnvidia-ml.so.1", build ? build : ".");
    void *library = dlopen(path, RTLD_NOW);
    assert_non_null(library);
    int *joules = dlsym(library, "fake_nvml_joules");
    assert_non_null(joules);
    equal(read_gpu("0000:01:00.0", &e), 0);
    *joules = 1234;
    equal(ndp_energy_read(&e), 1234);
    ndp_energy other;
    assert_true(isnan(read_gpu("0000:02:00.0", &other))); /* too old to count */
    assert_true(isnan(read_gpu("none", &other)));         /* not NVIDIA's */
    equal(read_gpu("", &other), 0);                       /* another rank counts it */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_are_counted_past_the_end_of_their_counts),
        cmocka_unit_test(one_rank_of_a_node_counts),
        cmocka_unit_test(a_package_that_cannot_be_read_makes_it_unknown),
        cmocka_unit_test(gpus_are_counted_by_their_library),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
