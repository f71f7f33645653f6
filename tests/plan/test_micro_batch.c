/* batch.micro_batch_size auto: what is chosen is what trying every micro-batch finds, on random jobs: the largest that
 * fits GPUs of a stated size, or on a cluster the fastest of those that fit. */
#include "base/text.h"
#include "plan/odd_job.h"

#include <math.h>
#include <stdio.h>

static int draw(unsigned *seed, int n) { return (int)((*seed = *seed * 1103515245U + 12345U) >> 16) % n; }

/* NULL: the job is refused. */
static char *plan(const ndp_config *c, const char *cluster, int rank) {
    char *text;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.cluster = cluster, o.json = true, o.rank = rank;
    return ndp_plan(c, &o, &text) == NDP_OK ? text : NULL;
}

typedef struct drawn_job {
    ndp_config *c;
    int pp, ranks, samples; /* of a data rank */
} drawn_job;

/* Up to 4 data ranks, 2 stages. `least`: tokens of a sample. */
static drawn_job draw_job(const char *model, int least, unsigned *seed) {
    static const int counts[] = {1, 6, 7, 8, 12, 24};
    static const char *const sharing[] = {"dp_shard", "dp_replicate"};
    static const char *const schedules[] = {"1f1b", "gpipe"};
    int data = 1 << draw(seed, 3);
    drawn_job j = {.pp = 1 + draw(seed, 2), .samples = counts[draw(seed, NDP_COUNT(counts))]};
    j.ranks = data * j.pp;
    CHECK_OK(ndp_config_create(&j.c));
    CHECK_OK(ndp_config_setf(j.c, "model.config=%s/%s/config.json", getenv("NDP_SOURCE_DIR"), model));
    CHECK_OK(ndp_config_setf(j.c, "data.sequence_length=%d", least << draw(seed, 3)));
    CHECK_OK(ndp_config_setf(j.c, "batch.global_batch_size=%d", data * j.samples));
    CHECK_OK(ndp_config_set(j.c, "parallelism.dp_shard_size=1"));
    CHECK_OK(ndp_config_setf(j.c, "parallelism.%s_size=%d", sharing[draw(seed, 2)], data));
    CHECK_OK(ndp_config_setf(j.c, "parallelism.pp_size=%d", j.pp));
    CHECK_OK(ndp_config_setf(j.c, "pipeline.schedule=%s", schedules[draw(seed, 2)]));
    CHECK_OK(ndp_config_setf(j.c, "train.recompute=%s", draw(seed, 2) ? "block" : "none"));
    CHECK_OK(ndp_config_set(j.c, "train.device=cuda"));
    CHECK_OK(ndp_config_set(j.c, "train.gpu_memory=1")); /* that of CUDA itself is counted where one is stated */
    return j;
}

/* Bytes of the fullest rank's GPU with that micro-batch; 0: it does not divide the samples. */
static double need_of(const drawn_job *j, int rows) {
    double most = 0;
    if (j->samples % rows != 0)
        return 0;
    CHECK_OK(ndp_config_setf(j->c, "batch.micro_batch_size=%d", rows));
    for (int stage = 0; stage < j->pp; stage++) {
        char *text = plan(j->c, NULL, stage * j->ranks / j->pp);
        assert_non_null(text);
        most = fmax(most, number(strstr(text, "\"gpu\": {"), "bytes"));
        free(text);
    }
    return most;
}

/* Up to what one of them needs, a little less, or half way to another. */
static double draw_memory(const double *need, int n, unsigned *seed) {
    double a = 0, b = 0;
    while (a == 0)
        a = need[1 + draw(seed, n)];
    while (b == 0)
        b = need[1 + draw(seed, n)];
    return draw(seed, 2) ? (a + b) / 2 : a - draw(seed, 2);
}

static void the_largest_that_fits(void **state) {
    unsigned seed = 1;
    int smaller = 0;
    (void)state;
    for (int i = 0; i < short_or_all(40, 400); i++) {
        double need[25];
        drawn_job j = draw_job("tests/golden/odd", 32, &seed);
        int expected = 1;
        for (int rows = 1; rows <= j.samples; rows++)
            need[rows] = need_of(&j, rows);
        double memory = draw_memory(need, j.samples, &seed);
        CHECK_OK(ndp_config_setf(j.c, "train.gpu_memory=%.17g", memory / (1 << 30)));
        CHECK_OK(ndp_config_set(j.c, "batch.micro_batch_size=auto"));
        for (int rows = 1; rows <= j.samples; rows++)
            expected = need[rows] > 0 && need[rows] <= floor(memory) ? rows : expected;
        char *text = plan(j.c, NULL, 0);
        assert_non_null(text);
        if (number(strstr(text, "\"batch\": {"), "micro_batch") != expected)
            fail_msg("job %d: %d fits %.0f bytes, chosen was %s", i, expected, memory, strstr(text, "\"batch\": {"));
        smaller += expected > 1 && expected < j.samples;
        free(text);
        ndp_config_destroy(j.c);
    }
    assert_true(smaller > 5); /* as far as jobs were drawn that have a choice */
}

static void the_fastest_on_a_cluster(void **state) {
    unsigned seed = 2;
    int chosen[3] = {0};
    (void)state;
    for (int i = 0; i < short_or_all(30, 300); i++) {
        drawn_job j = i % 4 ? draw_job("tests/golden/odd", 32, &seed) : draw_job("examples/llama-8b", 1024, &seed);
        int expected = 0, largest = 0;
        double best = INFINITY, need[25] = {0};
        const char *cluster = draw(&seed, 2) ? "1x8:h100-sxm" : "8x1:rtx-4090";
        for (int rows = 1; rows <= j.samples; rows++)
            need[rows] = need_of(&j, rows);
        double memory = draw_memory(need, j.samples, &seed);
        CHECK_OK(ndp_config_setf(j.c, "train.gpu_memory=%.17g", memory / (1 << 30)));
        for (int rows = 1; rows <= j.samples; rows++) {
            CHECK_OK(ndp_config_setf(j.c, "batch.micro_batch_size=%d", rows));
            char *text = need[rows] > 0 ? plan(j.c, cluster, 0) : NULL;
            double seconds = text ? number(strstr(text, "\"results\": ["), "step_seconds") : INFINITY;
            bool fits = text && strstr(text, "\"fits\": true");
            free(text);
            largest = fits ? rows : largest;
            if (!fits || seconds >= best * (1 - 1e-9))
                continue;
            best = seconds;
            expected = rows;
        }
        CHECK_OK(ndp_config_set(j.c, "batch.micro_batch_size=auto"));
        char *text = plan(j.c, cluster, 0);
        assert_non_null(text);
        if (number(strstr(text, "\"results\": ["), "micro_batch_size") != (expected ? expected : 1))
            fail_msg("job %d: %d is the fastest, chosen was %s", i, expected, strstr(text, "\"results\": ["));
        chosen[expected == 0 ? 0 : expected == largest ? 1 : 2]++;
        free(text);
        ndp_config_destroy(j.c);
    }
    if (!chosen[1] || !chosen[2])
        fail_msg("of %d the largest was chosen, of %d another", chosen[1], chosen[2]);
}

/* The line that is printed, and what cannot be chosen. */
static void it_is_said(void **state) {
    (void)state;
    ndp_config *c;
    char *text;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    CHECK_OK(ndp_config_create(&c));
    CHECK_OK(ndp_config_setf(c, "model.config=%s/examples/llama-8b/config.json", getenv("NDP_SOURCE_DIR")));
    CHECK_OK(ndp_config_set(c, "data.sequence_length=4096"));
    CHECK_OK(ndp_config_set(c, "precision.compute=bf16"));
    CHECK_OK(ndp_config_set(c, "batch.global_batch_size=128"));
    CHECK_OK(ndp_config_set(c, "parallelism.dp_shard_size=8"));
    CHECK_OK(ndp_config_set(c, "batch.micro_batch_size=auto"));
    CHECK_OK(ndp_config_set(c, "train.device=cuda"));
    o.rank = 0;
    if (ndp_device_check(c) != NDP_OK) {
        assert_int_equal(ndp_plan(c, &o, &text), NDP_EINVAL);
        assert_non_null(strstr(ndp_error_message(), "set train.gpu_memory, plan --cluster, or set it to a number"));
    }
    CHECK_OK(ndp_config_set(c, "train.gpu_memory=80"));
    CHECK_OK(ndp_plan(c, &o, &text));
    if (!strstr(text, "\nmicro-batch 2 (auto: 4 would need "))
        fail_msg("%s", text);
    free(text);
    CHECK_OK(ndp_config_set(c, "train.gpu_memory=2"));
    CHECK_OK(ndp_plan(c, &o, &text));
    if (!strstr(text, "\nmicro-batch 1 (auto: none fits; 1 would need ") ||
        !strstr(text, "warning: it would be refused"))
        fail_msg("%s", text);
    free(text);
    o.cluster = "1x8:h100-sxm";
    CHECK_OK(ndp_config_set(c, "train.gpu_memory=0"));
    CHECK_OK(ndp_plan(c, &o, &text));
    if (!strstr(text, "\nmicro-batch 2 (auto: the fastest of 1, 2; 4 would need "))
        fail_msg("%s", text);
    free(text);
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_that_fits),
        cmocka_unit_test(the_fastest_on_a_cluster),
        cmocka_unit_test(it_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
