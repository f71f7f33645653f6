/* plan on a cluster: the program is that of its devices, their memory is compared, and what is proposed fits. */
#include "base/rng.h"
#include "base/text.h"
#include "ops/devices.h"
#include "plan/odd_job.h"
#include "plan/plan_parts.h"
#include "step/simulate.h"

#include <math.h>
#include <unistd.h>

static char *plan(const ndp_config *c, const char *cluster, bool json) {
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.cluster = cluster, o.json = json;
    return plan_of(c, &o);
}

static void programs_are_those_of_the_device(void **state) {
    (void)state;
    ndp_config *c = JOB("parallelism.dp_shard_size=8");
    char *text = plan(c, "1x8:h100-sxm", false);
    check_says(text, "planned for h100-sxm: the programs of train.device cuda", true);
    check_says(text, "gathers into buffers", true);
    check_says(text, "all_gather     layers.0", true);
    check_says(text, "this host", false);
    free(text);
    CHECK_OK(ndp_config_set(c, "train.device=cpu")); /* a job's own device stays */
    text = plan(c, "1x8:h100-sxm", false);
    check_says(text, "gathers in place", true);
    check_says(text, "the programs of train.device cpu", true);
    free(text);
    ndp_config_destroy(c);
    c = JOB("parallelism.dp_shard_size=8");
    text = plan(c, "1x8:cpu", false);
    check_says(text, "gathers in place", true);
    check_says(text, "this host has", true);
    free(text);
    ndp_config_destroy(c);
}

/* Rates that a cluster of processors does not state are the same in all plans of a process. */
static void rates_are_measured_once(void **state) {
    (void)state;
    static const char *const layouts[] = {"dp_shard=2,tp=2", "dp_shard=2,tp=2"};
    const int nodes[] = {2, 2};
    ndp_config *c = JOB("parallelism.tp_size=2", "parallelism.dp_shard_size=2");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.cluster = "2x2:cpu", o.json = true, o.layouts = layouts, o.n_layouts = 2, o.nodes = nodes, o.n_nodes = 2;
    char *text = plan_of(c, &o), *own = plan(c, "2x2:cpu", true), *at = strstr(text, "\"results\": [");
    double seconds = number(strstr(own, "\"results\": ["), "step_seconds");
    for (int i = 0; i < 4; i++) {
        at = strstr(at, "\"step_seconds\": ");
        assert_true(number(at, "step_seconds") == seconds);
        at++;
    }
    assert_null(strstr(at, "\"step_seconds\": "));
    free(text);
    free(own);
    ndp_config_destroy(c);
}

/* Messages of tp 8 over two nodes: each rank sends to its neighbours alone, so that of the 4 ranks of a node one sends
 * over the border each way, on half of what it sends; MPI's sends are direct. Of small messages the latencies of seven
 * steps decide, so these are large. */
static void collectives_go_around_rings(void **state) {
    (void)state;
    static const char *const devices[] = {"train.device=cuda", "train.device=cpu"};
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        ndp_config *c = JOB("parallelism.tp_size=8", "parallelism.dp_shard_size=1", "data.sequence_length=512",
                            "batch.micro_batch_size=64", devices[i]);
        char *text = plan(c, "2x4:h100-sxm", true);
        const char *tp = strstr(text, "\"group\": \"tp\"");
        assert_non_null(tp);
        seconds[i] = number(tp, "seconds");
        free(text);
        ndp_config_destroy(c);
    }
    if (!(seconds[0] < seconds[1]))
        fail_msg("tp over two nodes takes %g s by rings, %g s directly", seconds[0], seconds[1]);
}

/* One rank of a node sends over the border, through its one NIC of eight. */
static void neighbours_have_their_own_nics(void **state) {
    (void)state;
    ndp_config *c = JOB("parallelism.cp_size=16", "parallelism.dp_shard_size=1", "data.sequence_length=512");
    char *text = plan(c, "2x8:h100-sxm", false);
    const char *shift = strstr(text, "  shift ");
    assert_non_null(shift);
    char line[256];
    snprintf(line, sizeof line, "%.*s", (int)strcspn(shift, "\n"), shift);
    check_says(line, "50 GB/s each", true);
    free(text);
    ndp_config_destroy(c);
}

/* Parts of the time add up, and tokens of a second to the batch, also of a layout that does not fit. */
static void times_add_up(void **state) {
    (void)state;
    static const char *const layouts[] = {"tp=2,pp=2", "cp=2,sp=2", "dp_replicate=2,dp_shard=4", "pp=4,tp=2"};
    ndp_config *c = JOB("parallelism.dp_shard_size=1", "train.gpu_memory=0.63");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.cluster = "2x4:h100-sxm", o.json = true, o.layouts = layouts, o.n_layouts = NDP_COUNT(layouts);
    char *text = plan_of(c, &o);
    check_says(text, "\"fits\": false", true);
    const char *at = strstr(text, "\"results\": [");
    for (int i = 0; i < NDP_COUNT(layouts); i++) {
        at = strstr(at, "\"step_seconds\": ");
        assert_non_null(at);
        double step = number(at, "step_seconds"), sum = 0;
        assert_true(fabs(number(at, "tokens_per_second") * step / (64 * 128) - 1) < 1e-9);
        at = strstr(at, "\"time\": {") + strlen("\"time\": {");
        int parts = 0;
        for (char *end = strchr(at, '}'); at < end; at += strcspn(at, ",}"), at += *at == ',', parts++) {
            double part = strtod(strchr(at, ':') + 1, NULL);
            assert_true(part >= 0);
            sum += part;
        }
        assert_true(parts >= 14 && fabs(sum / step - 1) < 1e-9);
    }
    free(text);
    ndp_config_destroy(c);
}

/* A GPU is planned for without its plugin, by the sizes that its kernels have. */
static void no_plugin_is_needed(void **state) {
    (void)state;
    ndp_device d;
    assert_int_equal(setenv("NDP_PLUGIN_DIR", "/nowhere", 1), 0);
    CHECK_OK(ndp_device_find_plan("cuda", &d));
    assert_string_equal(d.name, "cuda");
    assert_false(d.executes || d.host_memory);
    ndp_config *c = JOB("train.device=cuda", "parallelism.dp_shard_size=2", "train.gpu_memory=80");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text = plan_of(c, &o);
    check_says(text, "a GPU of 1 rank needs", true);
    free(text);
    ndp_config_destroy(c);
    assert_int_equal(unsetenv("NDP_PLUGIN_DIR"), 0);
}

static void the_fullest_rank_is_compared(void **state) {
    (void)state;
    ndp_config *c = JOB("parallelism.pp_size=4", "parallelism.dp_shard_size=2", "precision.compute=bf16");
    char *text = plan(c, "1x8:a100-sxm-80", true);
    const char *result = strstr(text, "\"results\": [");
    assert_non_null(result);
    double most = 0, peak = number(result, "peak_bytes");
    for (const char *at = strstr(text, "\"ranks\": [{"); (at = strstr(at, "\"taken\": ")); at++)
        most = number(at, "taken") > most ? number(at, "taken") : most;
    assert_true(peak == most && peak > 0);
    assert_true(number(result, "capacity_bytes") == 85e9 && number(result, "runtime_bytes") == 640 << 20);
    check_says(result, "\"fits\": true, \"why_not\": null, \"runs\": true", true);
    free(text);
    CHECK_OK(ndp_config_setf(c, "train.gpu_memory=%.9f", (peak + (640 << 20) - 1e4) / (1 << 30)));
    text = plan(c, "1x8:a100-sxm-80", true);
    check_says(text, "\"fits\": false, \"why_not\": {\"code\": \"memory\", \"text\": \"rank ", true);
    free(text);
    text = plan(c, "1x8:a100-sxm-80", false);
    check_says(text, "of it for the runtime: does not fit", true);
    check_says(text, "nearest that fit", true);
    free(text);
    ndp_config_destroy(c);
}

/* Every proposal, taken, fits by its own plan and needs what was said. */
static void proposals_fit(void **state) {
    (void)state;
    const char *const limit = "train.gpu_memory=0.645"; /* 5.1 MiB beside the runtime's */
    ndp_config *c = JOB("parallelism.dp_shard_size=1", "batch.micro_batch_size=4", limit);
    char *text = plan(c, "1x1:h100-sxm", true);
    const char *at = strstr(text, "\"nearest\": [");
    int n = 0;
    assert_non_null(at);
    check_says(at, "[\"data.sequence_length=64\", \"batch.global_batch_size=", true);
    while ((at = strstr(at, "\"set\": ["))) {
        char cluster[64], key[128];
        ndp_config *with = JOB("parallelism.dp_shard_size=1", "batch.micro_batch_size=4", limit);
        for (at += strlen("\"set\": ["); sscanf(at, " \"%127[^\"]\"", key) == 1;
             at += strcspn(at, ",]"), at += *at == ',') {
            CHECK_OK(ndp_config_set(with, key));
            at = strchr(at, '"') + 1;
            at = strchr(at, '"');
        }
        snprintf(cluster, sizeof cluster, "%.0fx1:h100-sxm", number(at, "nodes"));
        char *own = plan(with, cluster, true), *result = strstr(own, "\"results\": [");
        check_says(result, "\"fits\": true", true);
        assert_true(number(result, "peak_bytes") == number(at, "peak_bytes"));
        free(own);
        ndp_config_destroy(with);
        n++;
    }
    assert_true(n >= 2);
    free(text);
    ndp_config_destroy(c);
}

/* Values that programs do not have are planned with those that they stand for, and refused elsewhere. */
static void some_values_are_only_planned(void **state) {
    (void)state;
    ndp_config *c = JOB("parallelism.tp_size=4", "parallelism.dp_shard_size=1", "precision.compute=fp8",
                        "precision.reduce=bf16", "precision.tp_reduce=bf16");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text = plan(c, "1x4:h100-sxm", true), *bf16;
    check_says(text, "\"runs\": false", true);
    check_says(text, "\"fits\": true, \"why_not\": null", true);
    CHECK_FAILS(ndp_plan(c, &o, &bf16), NDP_EINVAL, "precision.tp_reduce: bf16: only planned, by `plan --cluster`");
    CHECK_FAILS(ndp_plan_passes(c, &o, &bf16), NDP_EINVAL, "only planned");
    CHECK_OK(ndp_config_set(c, "precision.compute=bf16"));
    CHECK_OK(ndp_config_set(c, "precision.reduce=fp32"));
    CHECK_OK(ndp_config_set(c, "precision.tp_reduce=fp32"));
    bf16 = plan(c, "1x4:h100-sxm", true);
    check_says(bf16, "\"runs\": true", true);
    double peaks[] = {number(text, "peak_bytes"), number(bf16, "peak_bytes")};
    assert_true(peaks[0] == peaks[1]); /* the same programs */
    free(bf16);
    free(text);
    CHECK_OK(ndp_config_set(c, "precision.compute=fp8"));
    text = plan(c, "1x4:h100-sxm", false);
    check_says(text, "compute bf16, products in fp8", true);
    check_says(text, "only planned, does not run: precision.compute: fp8\n", true);
    free(text);
    ndp_config_destroy(c);
}

/* Of a world whose ranks are not all checked: rows of each rank of tp go to experts elsewhere. */
static void experts_over_many_ranks_are_proven(void **state) {
    (void)state;
    ndp_config *c = JOB("precision.compute=bf16", "parallelism.dp_shard_size=32", "parallelism.tp_size=4",
                        "parallelism.ep_size=8", "data.sequence_length=32");
    CHECK_OK(ndp_config_setf(c, "model.config=%s/tests/golden/mixtral/config.json", getenv("NDP_SOURCE_DIR")));
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.cluster = "16x8:h100-sxm";
    char *text = plan_of(c, &o);
    check_says(text, "dp_shard 32 x tp 4 with ep 8", true);
    free(text);
    ndp_config_destroy(c);
}

/* Families and features whose calls the other jobs lack, on devices with and without units for fp8. */
static void every_call_has_a_price(void **state) {
    (void)state;
    static const char *const families[] = {"gpt2", "gemma3", "mixtral", "qwen3-moe", "olmo2", "stablelm-parallel",
                                           "phi3"};
    static const char *const features[] = {
        "optimizer.name=muon", "optimizer.name=adamw8bit", "optimizer.name=lion",    "optimizer.name=sgd",
        "adapter.type=lora",   "precision.compute=fp8",    "precision.compute=fp32", "train.recompute=selective",
        "adapter.type=qlora",  "precision.compute=bf16"};
    static const char *const clusters[] = {"1x2:h100-sxm", "2x1:a100-sxm-80", "1x2:mi300x"};
    static const char *const axes[] = {"dp_shard", "tp", "pp", "dp_replicate"};
    int n = 0;
    for (int i = 0; i < NDP_COUNT(families) * NDP_COUNT(features); i++) {
        const char *feature = features[i % NDP_COUNT(features)], *cluster = clusters[i % NDP_COUNT(clusters)];
        ndp_config *c = JOB("precision.compute=bf16", "data.sequence_length=32", "parallelism.dp_shard_size=1");
        CHECK_OK(ndp_config_setf(c, "model.config=%s/tests/golden/%s/config.json", getenv("NDP_SOURCE_DIR"),
                                 families[i / NDP_COUNT(features)]));
        CHECK_OK(ndp_config_setf(c, "parallelism.%s_size=2", axes[i % NDP_COUNT(axes)]));
        CHECK_OK(ndp_config_set(c, feature));
        ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
        char *text;
        o.cluster = cluster, o.json = true;
        ndp_status st = ndp_plan(c, &o, &text);
        ndp_config_destroy(c);
        if (strstr(feature, "fp8") && strstr(cluster, "a100"))
            CHECK_FAILS(st, NDP_EINVAL, "a100-sxm-80 has no products in fp8");
        else if (st != NDP_OK && st != NDP_ENOTSUP && !strstr(ndp_error_message(), "heads"))
            fail_msg("%s, %s on %s: %s", families[i / NDP_COUNT(features)], feature, cluster, ndp_error_message());
        n += st == NDP_OK;
        if (st != NDP_OK)
            continue;
        double seconds = number(text, "step_seconds");
        if (!(seconds > 0 && isfinite(seconds)))
            fail_msg("%s, %s on %s takes %g s", families[i / NDP_COUNT(features)], feature, cluster, seconds);
        free(text);
    }
    assert_true(n > NDP_COUNT(families) * NDP_COUNT(features) / 2);
}

/* What a selective recompute keeps is in the plan: more than the inputs of blocks, less than all. */
static void what_is_kept_takes_memory(void **state) {
    (void)state;
    static const char *const words[] = {"none", "selective", "block"};
    double activations[3];
    for (int i = 0; i < 3; i++) {
        ndp_config *c = JOB("parallelism.dp_shard_size=2", "batch.micro_batch_size=8");
        CHECK_OK(ndp_config_setf(c, "train.recompute=%s", words[i]));
        char *text = plan(c, "1x2:h100-sxm", true), says[64];
        snprintf(says, sizeof says, "\"recompute\": \"%s\"", words[i]);
        check_says(text, says, true);
        check_says(text, "\"runs\": true", true);
        activations[i] = number(strstr(text, "\"results\": ["), "activations");
        free(text);
        ndp_config_destroy(c);
    }
    if (!(activations[0] > activations[1] && activations[1] > activations[2]))
        fail_msg("activations: none %g, selective %g, block %g", activations[0], activations[1], activations[2]);
}

static void layouts_are_planned_in_turn(void **state) {
    (void)state;
    static const char *const layouts[] = {"tp=2", "pp=2,dp_replicate=2"};
    ndp_config *c = JOB("parallelism.dp_shard_size=2");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text;
    o.cluster = "2x4:h100-sxm", o.json = true, o.layouts = layouts, o.n_layouts = 2;
    CHECK_OK(ndp_plan(c, &o, &text));
    check_says(
        text,
        "\"place\": 1, \"cluster\": \"2x4-h100-sxm\", \"nodes\": 2, \"layout\": {\"pp\": 1, \"dp_replicate\": 1, "
        "\"dp_shard\": 4, \"cp\": 1, \"sp\": 1, \"tp\": 2",
        true);
    check_says(
        text,
        "\"place\": 2, \"cluster\": \"2x4-h100-sxm\", \"nodes\": 2, \"layout\": {\"pp\": 2, \"dp_replicate\": 2, "
        "\"dp_shard\": 2, \"cp\": 1, \"sp\": 1, \"tp\": 1",
        true);
    check_says(text, "\"schedule\": \"1f1b\", \"virtual_stages\": 1", true);
    free(text);
    static const char *const wrong[][2] = {{"tp=2,dp_shard=2", "has 4 ranks, but the run has 8"},
                                           {"tq=2", "did you mean 'tp'"},
                                           {"tp=0", "is not a size"}};
    for (int i = 0; i < NDP_COUNT(wrong); i++) {
        o.layouts = &wrong[i][0], o.n_layouts = 1;
        CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, wrong[i][1]);
    }
    o.layouts = layouts, o.n_layouts = 2, o.json = false, o.timeline = "step.svg";
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, "2 layouts would write the same file");
    ndp_config_destroy(c);
}

static void a_timeline_has_the_prices_of_the_cluster(void **state) {
    (void)state;
    char path[] = "/tmp/ndp-timeline-XXXXXX.json", *text;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    ndp_config *c = JOB("parallelism.pp_size=2", "parallelism.dp_shard_size=2", "parallelism.tp_size=2");
    int file = mkstemps(path, 5);
    assert_true(file >= 0);
    close(file);
    o.cluster = "1x8:h100-sxm", o.timeline = path;
    CHECK_OK(ndp_plan(c, &o, &text));
    check_says(text, "simulated for h100-sxm", true);
    free(text);
    unlink(path);
    ndp_config_destroy(c);
}

static void short_names_of_clusters(void **state) {
    (void)state;
    static const char *const wrong[][2] = {{"2x8:h100", "there is no built-in device 'h100'; did you mean 'h"},
                                           {"0x8:h100-sxm", "a cluster has 1 to"},
                                           {"999999999x8:h100-sxm", "a cluster has 1 to"},
                                           {"2x8:", "there is no built-in device ''"}};
    ndp_config *c = JOB("parallelism.dp_shard_size=8");
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text;
    for (int i = 0; i < NDP_COUNT(wrong); i++) {
        o.cluster = wrong[i][0];
        CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, wrong[i][1]);
    }
    ndp_config_destroy(c);
    c = JOB("parallelism.dp_replicate_size=2"); /* dp_shard is what is left of the devices */
    text = plan(c, "2x8:h100-sxm", false);
    check_says(text, "dp_replicate 2 x dp_shard 8 on 16 ranks", true);
    free(text);
    ndp_config_destroy(c);
}

enum { MOST_RANKS = 32 };

/* What all ranks need and take, by the programs of each of them, beside what one of each stage says. */
static void compare_with_all(const ndp_job *j, double *memory, double *time) {
    ndp_dry_run d;
    ndp_model m;
    ndp_engine *engines[MOST_RANKS];
    const ndp_program *programs[MOST_RANKS];
    const ndp_rates rates = NDP_RATES_INIT;
    const ndp_price price = ndp_price_by_rates(&rates);
    ndp_plan_need need;
    ndp_plan_trial trial;
    ndp_simulation s;
    int64_t most = 0;
    CHECK_OK(ndp_dry_run_init(&d, j, 4, 0));
    CHECK_OK(ndp_model_build(&j->spec, &j->model, &m));
    for (int r = 0; r < j->world; r++) {
        CHECK_OK(ndp_plan_engine(&d, &m, r, &engines[r]));
        programs[r] = ndp_engine_program(engines[r]);
        const ndp_engine_memory own = ndp_engine_memory_of(engines[r]);
        int64_t bytes = own.device + (d.device.host_memory ? own.pinned : 0);
        most = bytes > most ? bytes : most;
    }
    CHECK_OK(ndp_simulate(programs, j->world,
                          &(ndp_step_costs){.seconds = ndp_price_seconds, .user = &price, .background = true}, &s));
    CHECK_OK(ndp_dry_run_keep(&d, &m)); /* the trial's programs are those of the need */
    CHECK_OK(ndp_plan_fullest(&d, &m, &need));
    CHECK_OK(ndp_plan_try(&d, &m, &price, &trial));
    ndp_dry_run_release(&d);
    *memory = (double)(most - need.peak);
    *time = trial.seconds / s.makespan - 1;
    ndp_simulation_release(&s);
    for (int r = 0; r < j->world; r++)
        ndp_engine_destroy(engines[r]);
    ndp_model_release(&m);
}

/* Random layouts of 2 to 32 ranks. */
static void the_first_ranks_stand_for_all(void **state) {
    (void)state;
    double most_bytes = 0, most_time = 0;
    int layouts = 0;
    for (uint64_t i = 0; layouts < 40; i++) {
        static const ndp_axis axes[] = {NDP_PP, NDP_DP_REPLICATE, NDP_DP_SHARD, NDP_CP, NDP_SP, NDP_TP};
        ndp_config *c = JOB("precision.compute=bf16");
        ndp_job j;
        double bytes, time;
        int world = 1;
        for (int k = 0; k < NDP_COUNT(axes); k++) {
            int size = ndp_rng_below(7, i, (uint64_t)k, 2) ? 1 : 1 + (int)ndp_rng_below(7, i, (uint64_t)k + 8, 4);
            world *= size;
            CHECK_OK(ndp_config_setf(c, "parallelism.%s_size=%d", ndp_axis_name(axes[k]), size));
        }
        CHECK_OK(ndp_config_setf(c, "train.device=%s", i % 2 ? "cuda" : "cpu"));
        static const char *const recompute[] = {"block", "none", "selective"};
        CHECK_OK(ndp_config_setf(c, "train.recompute=%s", recompute[i % 3]));
        bool legal = world > 1 && world <= MOST_RANKS && ndp_job_init_planned(c, 0, true, &j) == NDP_OK;
        if (legal) {
            compare_with_all(&j, &bytes, &time);
            ndp_job_release(&j);
            layouts++;
            most_bytes = bytes > most_bytes ? bytes : most_bytes;
            most_time = fabs(time) > most_time ? fabs(time) : most_time;
        }
        ndp_config_destroy(c);
    }
    print_message("  %d layouts: a rank needs at most %.0f bytes more, the time differs by at most %.3g\n", layouts,
                  most_bytes, most_time);
    assert_true(most_bytes >= 0 && most_bytes < 8 << 10);
    assert_true(most_time < 0.02); /* a few calls for the norms of the last slice, in a step of some hundred */
}

/* A world with more to prove than a price is worth; without a cluster it is proven. */
static void large_worlds_are_not_proven(void **state) {
    (void)state;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    char *text;
    ndp_config *c = JOB("parallelism.pp_size=4", "parallelism.cp_size=32", "parallelism.tp_size=4",
                        "parallelism.dp_shard_size=4", "train.device=cuda");
    text = plan(c, "256x8:h100-sxm", false);
    check_says(text, "not proven: here 8 ranks stand for all", true);
    check_says(text, "checked:", false);
    free(text);
    text = plan(c, "256x8:h100-sxm", true);
    check_says(text, "\"checked\": {\"ranks\": 8, \"all_ranks\": false, \"proof\": null}", true);
    free(text);
    CHECK_OK(ndp_plan(c, &o, &text));
    check_says(text, "checked: the programs of", true);
    free(text);
    ndp_config_destroy(c);
    c = JOB("parallelism.dp_shard_size=64", "parallelism.tp_size=2");
    text = plan(c, "16x8:h100-sxm", false);
    check_says(text, "checked: the programs of 4 ranks", true);
    free(text);
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_are_those_of_the_device),
                                       cmocka_unit_test(rates_are_measured_once),
                                       cmocka_unit_test(collectives_go_around_rings),
                                       cmocka_unit_test(neighbours_have_their_own_nics),
                                       cmocka_unit_test(times_add_up),
                                       cmocka_unit_test(no_plugin_is_needed),
                                       cmocka_unit_test(the_fullest_rank_is_compared),
                                       cmocka_unit_test(proposals_fit),
                                       cmocka_unit_test(some_values_are_only_planned),
                                       cmocka_unit_test(experts_over_many_ranks_are_proven),
                                       cmocka_unit_test(every_call_has_a_price),
                                       cmocka_unit_test(what_is_kept_takes_memory),
                                       cmocka_unit_test(the_first_ranks_stand_for_all),
                                       cmocka_unit_test(large_worlds_are_not_proven),
                                       cmocka_unit_test(layouts_are_planned_in_turn),
                                       cmocka_unit_test(a_timeline_has_the_prices_of_the_cluster),
                                       cmocka_unit_test(short_names_of_clusters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
