/* The picture of a layout says what each rank holds. The expected words follow from the model, 5 layers, 8 heads of 4
 * kv heads, ffn 172, and from the definitions of the axes. */
#include "base/text.h"
#include "plan/odd_job.h"

#include <unistd.h>

/* The texts of an SVG, one a line. */
static char *texts_of(const char *svg) {
    ndp_str out = {0};
    for (const char *at = svg; (at = strstr(at, "<text ")); at++) {
        const char *begin = strchr(at, '>') + 1;
        ndp_str_add_bytes(&out, begin, (size_t)(strstr(begin, "</text>") - begin));
        ndp_str_add(&out, "\n");
    }
    return ndp_str_detach(&out);
}

/* Draws the layout of a job with these assignments; returns the texts, which the caller frees. */
static char *draw(const char *const *assignments) {
    char *svg, *path = ndp_format("/tmp/ndp-layout-%d.svg", (int)getpid());
    size_t size;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    ndp_config *c = odd_job(assignments);
    o.layout_picture = path;
    free(plan_of(c, &o));
    CHECK_OK(ndp_file_read(path, &svg, &size));
    char *texts = texts_of(svg);
    assert_non_null(texts);
    unlink(path);
    free(svg);
    free(path);
    ndp_config_destroy(c);
    return texts;
}
#define DRAW(...) draw((const char *const[]){__VA_ARGS__, NULL})

static void check_has(const char *texts, const char *words) {
    if (!strstr(texts, words))
        fail_msg("the picture lacks '%s':\n%s", words, texts);
}

/* The card of a rank has a line of this label with these words. */
static void check_card(const char *texts, int rank, const char *label, const char *words) {
    char title[32], line[128];
    snprintf(title, sizeof title, "\nrank %d\n", rank);
    snprintf(line, sizeof line, "\n%s\n%s\n", label, words);
    const char *card = strstr(texts, title), *found = card ? strstr(card, line) : NULL;
    const char *next = card ? strstr(card + strlen(title), "\nrank ") : NULL;
    if (!found || (next && found > next))
        fail_msg("rank %d: %s is not %s:\n%s", rank, label, words, texts);
}

static void three_axes(void **state) {
    (void)state;
    char *t = DRAW("parallelism.dp_shard_size=2", "parallelism.cp_size=2", "parallelism.tp_size=2",
                   "batch.global_batch_size=4", "batch.micro_batch_size=1");
    check_has(t, "dp_shard 2 x cp 2 x tp 2: what each of 8 ranks holds\n");
    check_has(t, "5 layers, 8 heads (4 kv), ffn 172, ");
    check_has(t, "A step: 4 samples of 128 tokens.\n");
    check_has(t, "\ndp_shard 0: samples 0, 2\n");
    check_has(t, "\ncp 0: tokens 0-31, 96-127\n");
    check_has(t, "half of it from the front and half from the back (zig-zag)");
    for (int rank = 0; rank < 8; rank++) {
        check_card(t, rank, "samples", rank < 4 ? "0, 2" : "1, 3");
        check_card(t, rank, "tokens", rank & 2 ? "32-95" : "0-31, 96-127");
        check_card(t, rank, "layers", "all 5");
        check_card(t, rank, "heads", rank & 1 ? "4-7, kv 2-3" : "0-3, kv 0-1");
        check_card(t, rank, "ffn", rank & 1 ? "86-171" : "0-85");
    }
    check_card(t, 5, "dp_shard", "ranks 1, 5");
    check_card(t, 5, "cp", "ranks 5, 7");
    check_card(t, 5, "tp", "ranks 4, 5");
    free(t);
}

/* The slices of all ranks are the parameters of the model: those cut by tp once, its copies of norms twice. */
static void slices_are_all_parameters(void **state) {
    (void)state;
    char *t = DRAW("parallelism.dp_shard_size=1", "parallelism.cp_size=3", "parallelism.cp_zigzag=false",
                   "parallelism.dp_replicate_size=2", "batch.global_batch_size=8", "batch.micro_batch_size=2");
    double sum = 0, all = 0;
    const char *total = strstr(t, "K parameters");
    check_card(t, 0, "tokens", "0-85");
    check_card(t, 1, "tokens", "86-171");
    check_card(t, 2, "tokens", "172-255"); /* two samples, padded to 258 rows */
    check_card(t, 4, "samples", "2-3, 6-7");
    check_has(t, "tokens are numbered through the 2 samples of a micro-batch");
    assert_null(strstr(t, "zig-zag"));
    for (const char *at = t; (at = strstr(at, "slice ")); at++)
        if (at[-1] == '\n')
            sum += atof(strchr(at, ':') + 1);
    while (total > t && strchr("0123456789. ", total[-1]))
        total--;
    all = total ? atof(total) : 0;
    assert_true(all > 1);
    assert_true(sum > 2 * all - 0.5 && sum < 2 * all + 0.5);
    free(t);
}

static void stages(void **state) {
    (void)state;
    char *t = DRAW("parallelism.pp_size=2", "parallelism.dp_shard_size=2", "pipeline.stages=[2, 3]",
                   "batch.global_batch_size=8", "batch.micro_batch_size=2");
    check_has(t, "\npp 0: layers embed, 0-1\n");
    check_has(t, "\npp 1: layers 2-4, head\n");
    check_card(t, 1, "layers", "embed, 0-1");
    check_card(t, 2, "layers", "2-4, head");
    check_card(t, 2, "samples", "0-1, 4-5");
    check_card(t, 1, "heads", "all 8");
    check_card(t, 3, "pp", "ranks 1, 3");
    free(t);
}

static void sequence_axis(void **state) {
    (void)state;
    char *t = DRAW("parallelism.sp_size=2", "parallelism.tp_size=2", "parallelism.dp_shard_size=1",
                   "batch.global_batch_size=1", "batch.micro_batch_size=1");
    check_card(t, 0, "attends", "0-1");
    check_card(t, 1, "attends", "4-5");
    check_card(t, 2, "attends", "2-3");
    check_card(t, 2, "tokens", "64-127");
    check_card(t, 2, "heads", "0-3, kv 0-1");
    free(t);
}

static void large_worlds_say_what_is_left_out(void **state) {
    (void)state;
    char *t = DRAW("parallelism.dp_replicate_size=8", "parallelism.dp_shard_size=64", "parallelism.tp_size=2",
                   "batch.global_batch_size=512", "batch.micro_batch_size=1");
    check_has(t, "Drawn: 16 of 1024 ranks, the first 2 of 8 along dp_replicate, 4 of 64 along dp_shard; ");
    check_card(t, 135, "samples", "67");
    assert_null(strstr(t, "\nrank 8\n"));
    free(t);
    t = DRAW("parallelism.dp_shard_size=64", "batch.global_batch_size=64", "batch.micro_batch_size=1");
    assert_null(strstr(t, "Drawn"));
    check_card(t, 63, "samples", "63");
    free(t);
}

static void other_files_are_refused(void **state) {
    (void)state;
    ndp_config *c = JOB(NULL);
    char *text = NULL;
    ndp_plan_opts o = NDP_PLAN_OPTS_INIT;
    o.layout_picture = "layout.png";
    CHECK_FAILS(ndp_plan(c, &o, &text), NDP_EINVAL, "'layout.png' does not end in .svg");
    ndp_config_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(three_axes),
                                       cmocka_unit_test(slices_are_all_parameters),
                                       cmocka_unit_test(stages),
                                       cmocka_unit_test(sequence_axis),
                                       cmocka_unit_test(large_worlds_say_what_is_left_out),
                                       cmocka_unit_test(other_files_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
