/* plan --anchor: all times of a plan, scaled by a run of the same stack; other runs are refused. */
#include "base/text.h"
#include "plan/anchor.h"
#include "plan/odd_job.h"

#include <math.h>
#include <unistd.h>

static char folder[] = "/tmp/ndp-anchor-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return ndp_folder_remove(folder) == NDP_OK ? 0 : -1;
}

/* Of GPUs. */
#define GPU_JOB(...) JOB("train.device=cuda", __VA_ARGS__)

static void write_text(const char *name, const char *text) {
    char path[NDP_PATH];
    CHECK_OK(ndp_path_join(path, folder, name));
    CHECK_OK(ndp_file_write_atomic(path, text, strlen(text)));
}

/* Steps of a run: 9 s each for the first five, then `seconds` but for one of a second more, and a damaged line. */
static void write_run(const ndp_config *c, double seconds, int steps) {
    ndp_str lines = {0};
    char *yaml;
    CHECK_OK(ndp_config_text(c, &yaml));
    write_text("job.yaml", yaml);
    free(yaml);
    for (int i = 1; i <= steps; i++)
        ndp_str_addf(&lines, "{\"step\": %d, \"loss\": 3, \"step_seconds\": %.17g}\n%s", i,
                     i <= 5 ? 9.0 : seconds + (i == 7), i == 6 ? "{\"step\": 6, \"lo\n" : "");
    write_text("metrics.jsonl", lines.data);
    ndp_str_release(&lines);
    write_text("run.json", "{}");
}

static char *plan_with(const ndp_config *c, ndp_plan_opts o, const char *cluster) {
    o.rank = -1, o.cluster = cluster, o.json = true;
    return plan_of(c, &o);
}
static char *plan(const ndp_config *c, const char *cluster, const char *anchor) {
    return plan_with(c, (ndp_plan_opts){.anchor = anchor}, cluster);
}

static void check_near(double x, double expected, const char *what) {
    if (fabs(x / expected - 1) > 1e-9)
        fail_msg("%s: %.17g, expected %.17g", what, x, expected);
}

/* The keys of a result that are times, or come from them: `power` of the scale. */
static const struct {
    const char *key;
    int power;
} scaled[] = {{"step_seconds", 1}, {"tokens_per_second", -1},
              {"mfu", -1},         {"hfu", -1},
              {"matmul", 1},       {"gather", 1},
              {"seconds", 1},      {"exposed_seconds", 1},
              {"pass_seconds", 1}, {"pass_rows", 0},
              {"bound_by", 0},     {"critical_rank", 0},
              {"peak_bytes", 0}};

/* A result and the same of a plan without an anchor. */
static void check_scaled(const char *result, const char *plain, double scale) {
    for (int i = 0; i < NDP_COUNT(scaled); i++) {
        double was = number(plain, scaled[i].key), is = number(result, scaled[i].key);
        if (was != 0 || is != 0)
            check_near(is, was * pow(scale, scaled[i].power), scaled[i].key);
    }
    double sum = 0;
    for (int k = 0; k < NDP_TIME_PARTS; k++)
        sum += number(strstr(result, "\"time\": {"), ndp_time_part_name(k));
    check_near(sum, number(result, "step_seconds"), "the sum of the parts");
    const char *run = strstr(result, "\"run\": {"), *plain_run = strstr(plain, "\"run\": {");
    double saves = number(plain_run, "seconds") - number(plain_run, "steps") * number(plain, "step_seconds");
    check_near(number(run, "seconds"), number(run, "steps") * number(result, "step_seconds") + saves, "the run");
}

/* Planned on the cluster of the run itself, the step takes what was measured. */
static void its_own_step_takes_what_was_measured(void **state) {
    (void)state;
    ndp_config *c = GPU_JOB("parallelism.dp_shard_size=8", "precision.compute=bf16");
    write_run(c, 0.25, 12);
    char *with = plan(c, "1x8:h100-sxm", folder), *plain = plan(c, "1x8:h100-sxm", NULL);
    assert_null(strstr(plain, "\"anchor\""));
    const char *anchor = strstr(with, "\"anchor\": {"), *result = strstr(with, "\"results\": [");
    assert_non_null(strstr(anchor, folder));
    check_near(number(result, "step_seconds"), 0.25, "its own step");
    check_near(number(anchor, "measured_seconds"), 0.25, "measured");
    check_near(number(anchor, "planned_seconds"), number(plain, "step_seconds"), "planned");
    check_scaled(result, strstr(plain, "\"results\": ["), number(anchor, "scale"));
    free(with);
    free(plain);
    ndp_config_destroy(c);
}

/* Another layout, micro-batch, length of samples and number of nodes: planned are the run's own. */
static void other_layouts_are_scaled(void **state) {
    (void)state;
    ndp_config *run = GPU_JOB("parallelism.dp_shard_size=auto", "precision.compute=bf16", "batch.micro_batch_size=4"),
               *c = GPU_JOB("parallelism.tp_size=2", "parallelism.pp_size=2", "parallelism.dp_shard_size=2",
                            "data.sequence_length=256", "precision.compute=bf16"),
               *same = GPU_JOB("parallelism.dp_shard_size=16", "precision.compute=bf16", "batch.micro_batch_size=4");
    write_run(run, 0.5, 9);
    write_text("run.json", "{\"device\": \"cuda\", \"layout\": {\"pp\": 1, \"dp_replicate\": 1, \"dp_shard\": 16, "
                           "\"cp\": 1, \"sp\": 1, \"tp\": 1}}");
    char *with = plan(c, "1x8:h100-sxm", folder), *plain = plan(c, "1x8:h100-sxm", NULL),
         *own = plan(same, "2x8:h100-sxm", NULL);
    double planned = number(own, "step_seconds");
    check_near(number(with, "planned_seconds"), planned, "the run on two nodes");
    check_scaled(strstr(with, "\"results\": ["), strstr(plain, "\"results\": ["), 0.5 / planned);
    free(with), free(plain), free(own);
    ndp_config_destroy(run), ndp_config_destroy(c), ndp_config_destroy(same);
}

/* The order of a search stays, each of its results is scaled, and what another cluster would change. */
static void a_search_keeps_its_order(void **state) {
    (void)state;
    ndp_config *c = GPU_JOB("parallelism.dp_shard_size=8", "precision.compute=bf16");
    write_run(c, 0.125, 9);
    char *with = plan_with(c, (ndp_plan_opts){.search = true, .anchor = folder}, "2x4:h100-sxm"),
         *plain = plan_with(c, (ndp_plan_opts){.search = true}, "2x4:h100-sxm");
    double scale = number(with, "scale");
    const char *a = with, *b = plain;
    int n = 0;
    for (; (a = strstr(a, "\"place\": ")) && (b = strstr(b, "\"place\": ")); a++, b++, n++) {
        check_scaled(a, b, scale);
        size_t layout = strcspn(strstr(a, "\"layout\": "), "}");
        assert_memory_equal(strstr(a, "\"layout\": "), strstr(b, "\"layout\": "), layout);
    }
    assert_true(n == 5 && !strstr(b, "\"place\": "));
    check_near(number(with, "network_x2"), number(plain, "network_x2"), "twice the network");
    check_near(number(with, "flops_x1.1"), number(plain, "flops_x1.1"), "more flops");
    free(with), free(plain);
    ndp_config_destroy(c);
}

static void check_refused(const ndp_config *c, const char *cluster, const char *words) {
    ndp_plan_opts o = {.rank = -1, .cluster = cluster, .anchor = folder};
    char *text = NULL;
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, words);
    assert_null(text);
    assert_null(strchr(ndp_error_message(), '\n'));
}

/* The names of devices, where the run and the cluster have one; of processors also the cores of a rank. */
static void other_devices_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *device, *record, *cluster, *says; /* of the note, or refused with */
        bool refused;
    } cases[] = {
        {"cuda", "{\"device_name\": \"NVIDIA H100 80GB HBM3\"}", "{device: h100-sxm}", "\"note\": null", false},
        {"cuda", "{\"device_name\": \"NVIDIA H200\"}", "{device: h100-sxm}",
         "was measured on 'NVIDIA H200', and the cluster's devices, h100-sxm, are 'NVIDIA H100 80GB HBM3'", true},
        {"cuda", "{\"device_name\": \"NVIDIA H200\"}",
         "{device: h100-sxm}\ndevices: {h100-sxm: {full_name: NVIDIA H200}}", "\"note\": null", false},
        {"cuda", "{}", "{device: h100-sxm}", "the anchor does not say which device it ran on (device_name of run.json)",
         false},
        {"cuda", "{\"device_name\": \"Own 1\"}",
         "{device: mine}\ndevices: {mine: {flops: {fp32: 1e12, bf16: 1e13}, memory_bytes: 8e10, memory_bandwidth: "
         "1e12, "
         "multiprocessors: 9, links: {bandwidth: 1e10}}}",
         "the anchor ran on Own 1; whether those of the cluster are, it does not say (full_name)", false},
#define CPU                                                                                                            \
    "{device: cpu}\ndevices: {cpu: {flops: {fp32: 1e12}, memory_bytes: 8e10, memory_bandwidth: 1e10, "                 \
    "multiprocessors: 3, full_name: Own 2}}"
        {"cpu", "{\"device_name\": \"Own 1\", \"threads\": 3}", CPU, "was measured on 'Own 1', and the cluster's",
         true},
        {"cpu", "{\"device_name\": \"Own 2\", \"threads\": 2}", CPU,
         "was measured with 2 cores a rank, and the cluster's ranks have 3", true},
        {"cpu", "{\"device_name\": \"Own 2\", \"threads\": 3}", CPU, "\"note\": null", false},
        {"cpu", "{\"device_name\": \"Own 2\"}", CPU, "\"note\": null", false},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_config *c = JOB("parallelism.dp_shard_size=1");
        char *path = ndp_format("%s/cluster.yaml", folder), *yaml = ndp_format("node: %s\n", cases[i].cluster);
        CHECK_OK(ndp_config_setf(c, "train.device=%s", cases[i].device));
        write_run(c, 0.5, 9);
        write_text("run.json", cases[i].record);
        write_text("cluster.yaml", yaml);
        if (cases[i].refused)
            check_refused(c, path, cases[i].says);
        else {
            char *text = plan(c, path, folder);
            check_says(text, cases[i].says, true);
            free(text);
        }
        free(path), free(yaml);
        ndp_config_destroy(c);
    }
}

static void other_runs_are_refused(void **state) {
    (void)state;
    const char *h100 = "1x8:h100-sxm";
    char path[NDP_PATH];
    ndp_config *c = GPU_JOB("parallelism.dp_shard_size=8", "precision.compute=bf16");
    write_run(c, 0.5, 7);
    check_refused(c, h100, "has 2 measured steps after step 5, and 3 are needed: train for 8 steps");
    write_run(c, 0.5, 8);
    free(plan(c, h100, folder));
    CHECK_OK(ndp_config_set(c, "precision.compute=fp32"));
    check_refused(c, h100, "has precision.compute bf16, and the job fp32");
    CHECK_OK(ndp_config_set(c, "precision.compute=bf16"));
    CHECK_OK(ndp_config_setf(c, "model.config=%s/tests/golden/gpt2/config.json", getenv("NDP_SOURCE_DIR")));
    CHECK_OK(ndp_config_set(c, "data.sequence_length=32"));
    check_refused(c, h100, "is a run of another model: its model_type ");
    ndp_config_destroy(c);
    c = GPU_JOB("parallelism.dp_shard_size=8", "precision.compute=bf16", "train.device=cpu");
    check_refused(c, h100, "has train.device cuda, and the job cpu");
    write_run(c, 0.5, 8);
    check_refused(c, h100, "was measured on device cpu, and the cluster's devices are h100-sxm");
    CHECK_OK(ndp_path_join(path, folder, "job.yaml"));
    assert_int_equal(unlink(path), 0);
    check_refused(c, h100, "there is no ");
    ndp_plan_opts o = {.rank = -1, .anchor = folder};
    char *text;
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, "an anchor scales the times of a plan on a cluster");
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_own_step_takes_what_was_measured),
        cmocka_unit_test(other_layouts_are_scaled),
        cmocka_unit_test(a_search_keeps_its_order),
        cmocka_unit_test(other_runs_are_refused),
        cmocka_unit_test(other_devices_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
