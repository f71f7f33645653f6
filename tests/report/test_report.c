/* Pages and lists of run folders that were written by hand: texts that would be markup, 100,000 steps, what a folder
 * lacks, lines of 79 columns. */
#include "base/text.h"
#include "check.h"

#include <math.h>
#include <unistd.h>

static char folder[64]; /* of a test */

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ndp_report_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}
static int remove_folder(void **state) {
    (void)state;
    return ndp_folder_remove(folder) == NDP_OK ? 0 : -1;
}

/* Writes a file of a folder below the test's, which is made. Returns that folder's path. */
static const char *put(const char *run, const char *name, const char *text) {
    static char path[NDP_PATH + 64];
    char file[NDP_PATH + 128];
    snprintf(path, sizeof path, "%s/%s", folder, run);
    snprintf(file, sizeof file, "%s/%s", path, name);
    CHECK_OK(ndp_folder_create(path));
    CHECK_OK(ndp_file_write_atomic(file, text, strlen(text)));
    return path;
}

static char *report(const char *const *runs, int n, size_t *size) {
    char path[128], *text;
    snprintf(path, sizeof path, "%s/report.html", folder);
    CHECK_OK(ndp_runs_report(runs, n, path));
    CHECK_OK(ndp_file_read(path, &text, size));
    return text;
}

static void has(const char *page, const char *words) {
    if (!strstr(page, words))
        fail_msg("the page lacks '%s'", words);
}

static const char job[] = "# kernels: avx2\nmodel:\n  config: \"a/config.json\"\ndata:\n  files:\n    - \"<script>x\"\n"
                          "optimizer:\n  lr: 0.001\ntrain:\n  steps: 4\n  output_dir: \"x\"\n";
static const char line[] =
    "{\"step\": 1, \"loss\": 3, \"lr\": 1, \"<script>k\": 2, \"tokens\": 8, \"step_seconds\": 1}\n";

static void texts_of_runs_are_no_markup(void **state) {
    (void)state;
    size_t size;
    put("a<script>", "job.yaml", job);
    put("a<script>", "samples.jsonl",
        "{\"step\": 1, \"prompt\": \"<script>p\", \"text\": \"\\\"\\u00e4<script>t\"}\n{\"st\n");
    put("a<script>", "run.json",
        "{\"version\": \"<script>v\", \"command\": [\"<script>c\", 1], \"hosts\": [\"<script>h\"], "
        "\"layout\": {\"<script>l\": \"<script>m\"}, \"memory\": {\"w\": 1048576}, \"parts\": "
        "[{\"cause\": \"<script>d\", \"seconds\": {\"<script>s\": 3, \"compute\": 1}}, 7], "
        "\"warnings\": [\"<script>w\", 3]}");
    const char *run = put("a<script>", "metrics.jsonl", line);
    char *page = report(&run, 1, &size);
    assert_null(strstr(page, "<script"));
    static const char *const kept[] = {"a&lt;script&gt;</title>",
                                       "&lt;script&gt;k",
                                       "&lt;script&gt;x",
                                       "&lt;script&gt;p",
                                       "&quot;\xc3\xa4&lt;script&gt;t",
                                       "&lt;script&gt;v",
                                       "&lt;script&gt;c 1",
                                       "&lt;script&gt;h",
                                       "&lt;script&gt;l",
                                       "&lt;script&gt;m",
                                       "&lt;script&gt;d",
                                       "&lt;script&gt;s 3 s, 75.0%",
                                       "&lt;script&gt;w",
                                       "1 MiB"};
    for (int i = 0; i < NDP_COUNT(kept); i++)
        has(page, kept[i]);
    free(page);
}

static void several_runs(void **state) {
    (void)state;
    char *runs[2];
    size_t size;
    put("one/run", "job.yaml", job);
    runs[0] = strdup(put("one/run", "metrics.jsonl", line));
    put("two/run", "job.yaml",
        "model:\n  config: \"b/config.json\"\noptimizer:\n  lr: 0.002\n  eps: 1\ntrain:\n  steps: 1\n");
    runs[1] = strdup(
        put("two/run", "metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"step\": 2, \"loss\": null}\n{\"step\": 3"));
    char *page = report((const char *const *)runs, 2, &size);
    static const char *const words[] = {"These runs train different models",
                                        "1 line of metrics.jsonl is damaged",
                                        "the loss of 1 step is not a number, first at step 2",
                                        "<td>optimizer.lr</td><td>0.001</td><td>0.002</td>",
                                        "<td>optimizer.eps</td><td>-</td><td>1</td>",
                                        "<td>stopped</td>",
                                        "<td>done</td>",
                                        "one/run</span>",
                                        "two/run</span>"};
    for (int i = 0; i < NDP_COUNT(words); i++)
        has(page, words[i]);
    assert_null(strstr(page, "<td>train.output_dir</td>"));
    free(page);
    free(runs[0]);
    free(runs[1]);
}

static void many_steps_make_a_small_page(void **state) {
    (void)state;
    enum { STEPS = 100000 };
    ndp_str text = {0};
    size_t size;
    for (int i = 1; i <= STEPS; i++) {
        ndp_str_addf(&text, "{\"step\": %d, \"loss\": %.17g, \"grad_norm\": %.17g, \"lr\": 0.001, \"tokens\": 4096, ",
                     i, 2 + 5.0 / i + 0.1 * sin(i * 1.7), 1 + sin(i * 0.7));
        ndp_str_addf(&text,
                     "\"tokens_per_second\": %.17g, \"step_seconds\": %.17g, \"mfu\": 0.4, "
                     "\"peak_memory_bytes\": %d, \"rewards/margins\": %.17g, \"kl\": %.17g%s}\n",
                     4096 / (1.1 + sin(i)), 1.1 + sin(i), 1 << 30, cos(i), cos(2.0 * i),
                     i % 100 ? "" : ", \"eval_loss\": 2");
    }
    assert_false(text.failed);
    put("long", "job.yaml", job);
    const char *run = put("long", "metrics.jsonl", text.data);
    char *page = report(&run, 1, &size);
    assert_in_range(size, 50000, 500000);
    has(page, "100000 of 4");
    has(page, "the last 40 of 1000");
    free(page);
    ndp_str_release(&text);
}

/* Labels of an axis differ, of a curve with one small value too. */
static void labels_differ(void **state) {
    (void)state;
    size_t size;
    put("flat", "job.yaml", job);
    const char *run = put("flat", "metrics.jsonl", "{\"step\": 1, \"loss\": 0.033512, \"tokens\": 8}\n");
    char *page = report(&run, 1, &size), *text = strstr(page, "<text"), *end = text ? strstr(text, "</svg>") : NULL;
    assert_non_null(end);
    *end = '\0';
    const char *first = strstr(text, ">0.033");
    assert_non_null(first);
    for (const char *label = first; label; label = strstr(label + 1, ">0.033")) {
        size_t n = strcspn(label, "<") + 1;
        for (const char *other = strstr(label + n, ">0.033"); other; other = strstr(other + 1, ">0.033"))
            if (strncmp(label, other, n) == 0)
                fail_msg("a label is there twice: %.*s", (int)n, label);
    }
    free(page);
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/no.html", folder);
    const char *run = put("model", "config.json", "{}");
    CHECK_FAILS(ndp_runs_report(&run, 1, path), NDP_EINVAL, "model/job.yaml'");
    run = put("model", "job.yaml", job);
    CHECK_FAILS(ndp_runs_report(&run, 1, path), NDP_EINVAL, "no metrics.jsonl and no lock");
    run = "/nowhere/at/all";
    CHECK_FAILS(ndp_runs_report(&run, 1, path), NDP_EINVAL, "No such file or directory");
    CHECK_FAILS(ndp_runs_report(&run, 0, path), NDP_EINVAL, "no run folder");
    run = NULL;
    CHECK_FAILS(ndp_runs_report(&run, 1, path), NDP_EINVAL, "runs[0] is NULL");
    assert_false(ndp_path_exists(path));
    run = put("model", "lock", "{");
    CHECK_OK(ndp_runs_report(&run, 1, path)); /* has begun, and not ended a step */
}

static void lists_have_79_columns(void **state) {
    (void)state;
    char *text;
    static const char deep[] =
        "w/a-long-name-of-a-folder-that-goes-on-and-on-\xc3\xa4\xc3\xb6\xc3\xbc-until-it-ends/\x1brun";
    put("w/w/w/deeper/run", "metrics.jsonl", line);
    put("w/w/w/deeper/run", "job.yaml", job);
    put(".hidden", "metrics.jsonl", line);
    put(".hidden", "job.yaml", job);
    put("plain", "job.yaml", job);
    CHECK_OK(ndp_runs_list(folder, false, &text));
    assert_non_null(strstr(text, "no runs in"));
    free(text);
    put(deep, "metrics.jsonl", line);
    put(deep, "job.yaml", job);
    put("none", "job.yaml", "train:\n  steps: 0\n  epochs: 2\n");
    put("none", "lock", "x");
    CHECK_OK(ndp_runs_list(folder, false, &text));
    int lines = 0;
    for (const char *p = text; *p; lines++) {
        int columns = 0;
        for (; *p != '\n'; p++)
            columns += ((unsigned char)*p & 0xc0) != 0x80;
        assert_in_range(columns, 50, 79);
        p++;
    }
    assert_int_equal(lines, 3);
    assert_memory_equal(text, "run ", 4);
    has(text, "\n...");
    has(text, "-until-it-ends/?run  stopped    1/4  3.0000");
    has(text, "none ");
    has(text, "running?     0       -     -         -");
    free(text);
    CHECK_OK(ndp_runs_list(folder, true, &text));
    has(text, "\"state\": \"running?\", \"step\": 0, \"steps\": null, \"loss\": null, \"eval_loss\": null, "
              "\"tokens_per_second\": null, \"age_seconds\": null}");
    free(text);
    CHECK_FAILS(ndp_runs_list("/nowhere/at/all", false, &text), NDP_EINVAL, "No such file");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(texts_of_runs_are_no_markup),  IN_FOLDER(several_runs),
                                       IN_FOLDER(many_steps_make_a_small_page), IN_FOLDER(labels_differ),
                                       IN_FOLDER(what_is_missing_is_named),     IN_FOLDER(lists_have_79_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
