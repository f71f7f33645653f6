/* What `watch` shows and serves of a run folder that was written by hand: the screen at many sizes, rows while the file
 * grows, is cut and replaced, numbers for Prometheus, answers to requests. */
#include "base/text.h"
#include "check.h"
#include "report/open_metrics.h"
#include "report/screen.h"
#include "report/serve.h"
#include "report/watch.h"

#include <math.h>
#include <unistd.h>
#include <utf8proc.h>

static char folder[64]; /* of a test */

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ndp_watch_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}
static int remove_folder(void **state) {
    (void)state;
    return ndp_folder_remove(folder) == NDP_OK ? 0 : -1;
}

static const char *path_of(const char *name) {
    static char path[NDP_PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text) {
    CHECK_OK(ndp_file_write_atomic(path_of(name), text, strlen(text)));
}

static void append(const char *name, const char *text) {
    FILE *f = fopen(path_of(name), "a");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static const char job[] = "data:\n  validation_files:\n    - \"x\"\ntrain:\n  steps: 4\n  log_every: 2\n";

/* ---- reading on ---- */

typedef struct heard {
    ndp_metrics newest;
    int n;
    int64_t steps;
} heard;

static void hear(void *user, const ndp_metrics *m, int64_t steps) {
    heard *h = user;
    h->newest = *m;
    h->n++;
    h->steps = steps;
}

static void rows_are_heard_once(void **state) {
    (void)state;
    ndp_watch *w;
    ndp_watch_state s;
    heard h = {0};
    put("job.yaml", job);
    put("metrics.jsonl",
        "{\"step\": 1, \"loss\": 3, \"lr\": 0.5, \"step_seconds\": 2, \"peak_flops\": 7}\n{\"step\": 2, \"lo");
    CHECK_OK(ndp_watch_create(folder, &s, &w));
    assert_true(s.log_every == 2 && s.held && s.steps == 4 && !s.live);
    CHECK_OK(ndp_watch_read(w, hear, &h, &s));
    assert_true(h.n == 1 && h.steps == 4 && h.newest.step == 1 && h.newest.loss == 3 && h.newest.lr == 0.5);
    assert_true(h.newest.peak_flops == 7 && h.newest.eval_tokens == 0 && isnan(h.newest.mfu));
    assert_int_equal(s.damaged, 1); /* no process will write the end of that line */
    append("metrics.jsonl", "ss\": 2, \"eval_loss\": 9, \"mfu\": 0.5}\nnonsense\n");
    CHECK_OK(ndp_watch_read(w, hear, &h, &s));
    assert_true(h.n == 2 && h.newest.step == 2 && h.newest.eval_loss == 9 && h.newest.eval_tokens &&
                h.newest.mfu == 0.5);
    assert_true(h.newest.peak_flops == 7 && s.damaged == 1 && s.step == 2);
    CHECK_OK(ndp_watch_read(w, hear, &h, NULL));
    assert_int_equal(h.n, 2);
    /* Resumed from step 1: another file, as long as the one before. */
    put("metrics.jsonl", "{\"step\": 1, \"loss\": 3}\n{\"step\": 2, \"loss\": 5}\n{\"step\": 3, \"loss\": 4}\n"
                         "                                                                             \n");
    CHECK_OK(ndp_watch_read(w, hear, &h, &s));
    assert_true(h.n == 3 && h.newest.step == 3 && w->run.metrics.lines == 3);
    put("metrics.jsonl", "");
    CHECK_OK(ndp_watch_read(w, hear, &h, &s));
    assert_true(w->run.metrics.lines == 0 && s.step == 0);
    assert_int_equal(unlink(path_of("job.yaml")), 0);
    CHECK_FAILS(ndp_watch_read(w, hear, &h, &s), NDP_EINVAL, "job.yaml'");
    put("job.yaml", job);
    append("metrics.jsonl", "{\"step\": 4, \"loss\": 1}\n");
    CHECK_OK(ndp_watch_read(w, hear, &h, &s));
    assert_true(h.n == 4 && strcmp(s.word, "done") == 0);
    ndp_watch_destroy(w);
    CHECK_FAILS(ndp_watch_create("/nowhere/at/all", NULL, &w), NDP_EINVAL, "No such file");
}

/* A lock whose holder this host does not see: alive once its counter has moved. */
static void put_lock(int counter) {
    char *text =
        ndp_format("{\"host\": \"elsewhere\", \"machine_id\": \"0123456789abcdef0123456789abcdef\", \"pid\": 1, "
                   "\"start_time\": 1, \"boot_id\": \"01234567-89ab-cdef-0123-456789abcdef\", "
                   "\"pid_namespace\": 1, \"generation\": 1, \"counter\": %d}\n",
                   counter);
    put("lock", text);
    free(text);
}

static void a_lock_elsewhere_is_seen_to_move(void **state) {
    (void)state;
    ndp_watch *w;
    ndp_watch_state s;
    put("job.yaml", job);
    put_lock(5);
    CHECK_OK(ndp_watch_create(folder, NULL, &w));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(ndp_watch_read(w, NULL, NULL, &s));
        assert_true(s.live && strcmp(s.word, "running?") == 0);
    }
    put_lock(6);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(ndp_watch_read(w, NULL, NULL, &s));
        assert_true(s.live && strcmp(s.word, "running") == 0);
    }
    w->moved_at -= 1000;
    CHECK_OK(ndp_watch_read(w, NULL, NULL, &s));
    assert_true(!s.live && strcmp(s.word, "died") == 0);
    ndp_watch_destroy(w);
}

/* ---- the screen ---- */

static const char record[] =
    "{\"version\": \"v\\n1\", \"device\": \"cpu\", \"transport\": \"shm\", \"hosts\": [\"a\", \"a\", \"b\\u001b[2J\", "
    "\"b\"], "
    "\"layout\": {\"tp\": 2, \"dp_shard\": 2, \"cp\": 1}, \"memory\": {\"training\": 1048576, \"pinned\": 9}, "
    "\"warnings\": [\"old\", \"this \\u4f60 \\u001b]0;x\\u0007 is a warning\"], \"parts\": [{\"cause\": \"disk "
    "full\"}]}";

static void put_run(void) {
    ndp_str text = {0};
    put("job.yaml", job);
    put("run.json", record);
    for (int i = 1; i <= 3; i++)
        ndp_str_addf(&text,
                     "{\"step\": %d, \"loss\": %d, \"grad_norm\": 0.5, \"lr\": 0.001, \"tokens\": 100, "
                     "\"tokens_per_second\": 50, \"step_seconds\": 2, \"compute_seconds\": 1, \"data_seconds\": 1, "
                     "\"mfu\": 0.25, \"peak_memory_bytes\": 2097152%s}\n",
                     i, 4 - i, i == 2 ? ", \"eval_loss\": 2.5" : "");
    assert_false(text.failed);
    put("metrics.jsonl", text.data);
    append("metrics.jsonl", "{\"st\n");
    ndp_str_release(&text);
}

static char *screen_of(const char *name, const ndp_screen_opts *o) {
    ndp_run_view r;
    ndp_str out = {0};
    CHECK_OK(ndp_run_read(folder, false, &r));
    ndp_str_add(&out, "");
    ndp_screen_add(&out, &r, name, o);
    ndp_run_release(&r);
    assert_false(out.failed);
    return out.data;
}

static void the_screen_is_as_written(void **state) {
    (void)state;
    put_run();
    char *text = screen_of("run", &(ndp_screen_opts){.columns = 80, .rows = 18, .ascii = true});
    assert_string_equal(text, "run  stopped  step 3 of 4  75.0%\n"
                              "[#########################################################....................]\n"
                              "loss 1.0000  eval 2.5000  best 2.5000 at step 2  norm 0.5000  lr 1.00e-03\n"
                              "tok/s 50  mean 50  mfu 25%  step 2 s  tokens 300  time 0:06\n"
                              "       3|*******\n"
                        "        |      ************\n"
                        "        |                 *************\n"
                        "        |                             ************\n"
                        "        |                                        *************\n"
                        "        |                                                    ************\n"
                        "       1|                                                               *******\n"
                        "        +1                                                                    3\n"
                        "cause: disk full\n"
                              "1 line of metrics.jsonl left out: damaged\n"
                              "warning: this ? ?]0;x? is a warning\n"
                              "memory 1.0 MiB planned per rank  rank 0 used 2.0 MiB at most\n"
                              "ranks 4  tp 2 x dp_shard 2  cpu, shm  on a  b?[2J  b\n"
                              "time: compute 50.0%  data 50.0%\n");
    free(text);
}

/* The columns of a line, and whether a terminal would take it as it is. */
static int columns_of(const char *line, size_t n) {
    int columns = 0;
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)line + at, (utf8proc_ssize_t)(n - at), &c);
        assert_true(bytes > 0 && c >= ' ' && c != 0x7f);
        columns += utf8proc_charwidth(c);
        at += (size_t)bytes;
    }
    return columns;
}

static void no_line_is_wider_than_the_terminal(void **state) {
    (void)state;
    put_run();
    for (int i = 0; i < 2 * 130 * 30; i += 7) {
        ndp_screen_opts o = {.columns = 1 + i / 2 % 130, .rows = 1 + i / 260, .ascii = i % 2};
        char *text = screen_of("\xe4\xbd\xa0\xe5\xa5\xbd a name \xff\x1b that is long", &o);
        int rows = 0;
        for (const char *line = text; *line; rows++) {
            size_t n = strcspn(line, "\n");
            if (columns_of(line, n) > o.columns - 1)
                fail_msg("%d columns, %d rows: '%.*s'", o.columns, o.rows, (int)n, line);
            line += n + 1;
        }
        assert_in_range(rows, 1, o.rows);
        free(text);
    }
}

/* ---- Prometheus ---- */

static void has(const char *text, const char *words) {
    if (!strstr(text, words))
        fail_msg("'%s' is not in: %s", words, text);
}

static void numbers_are_open_metrics(void **state) {
    (void)state;
    ndp_run_view r;
    ndp_str out = {0};
    put_run();
    append("metrics.jsonl", "{\"step\": 4, \"loss\": null, \"grad_norm\": null, \"lr\": 0.25}\n");
    CHECK_OK(ndp_run_read(folder, false, &r));
    ndp_open_metrics_add(&out, &r, "a \"b\"\\c\nd\xff");
    ndp_run_release(&r);
    assert_false(out.failed);
    has(out.data, "# TYPE ndparallel_step gauge\n# HELP ndparallel_step Updates so far.\n"
                  "ndparallel_step{run=\"a \\\"b\\\"\\\\c\\nd\xef\xbf\xbd\"} 4\n");
    has(out.data, "# TYPE ndparallel_tokens counter\n");
    has(out.data, "\nndparallel_tokens_total{run=");
    has(out.data, "# UNIT ndparallel_compute_seconds seconds\n");
    has(out.data, "\"} 3\n# TYPE ndparallel_data_seconds counter\n"); /* the sum of three lines */
    has(out.data, "ndparallel_run_state=\"done\"} 1\n");
    has(out.data, "version=\"v\\n1\",device=\"cpu\",transport=\"shm\",ranks=\"4\"} 1\n# EOF\n");
    assert_null(strstr(out.data, "ndparallel_loss")); /* it is not a number */
    assert_null(strstr(out.data, "ndparallel_grad_norm"));
    ndp_str_release(&out);
}

/* ---- requests ---- */

static void addresses(void **state) {
    (void)state;
    static const struct {
        const char *text, *host; /* host NULL: refused */
        bool any;
        const char *words;
    } cases[] = {{"127.0.0.1:9000", "127.0.0.1", false, NULL},
                 {"9000", "127.0.0.1", false, NULL},
                 {":9000", "127.0.0.1", false, NULL},
                 {"localhost:0", "localhost", false, NULL},
                 {"127.1.2.3:1", "127.1.2.3", false, NULL},
                 {"[::1]:65535", "[::1]", false, NULL},
                 {"0.0.0.0:9000", "0.0.0.0", true, NULL},
                 {"[::]:9000", "[::]", true, NULL},
                 {"0.0.0.0:9000", NULL, false, "0.0.0.0 is not a loopback address"},
                 {"[::]:9000", NULL, false, "[::] is not a loopback address"},
                 {"192.168.1.2:9000", NULL, false, "--http-any"},
                 {"[::ffff:10.0.0.1]:9000", NULL, false, "not a loopback"},
                 {"127.0.0.1", NULL, false, "no address to serve on"},
                 {"127.0.0.1:", NULL, false, "no address"},
                 {"127.0.0.1:65536", NULL, false, "no address"},
                 {"127.0.0.1:-1", NULL, false, "no address"},
                 {"127.0.0.1:9x", NULL, true, "no address"},
                 {"::1:9000", NULL, true, "no address"},
                 {"[::1:9000", NULL, true, "no address"},
                 {"example.com:9000", NULL, true, "no address"},
                 {"", NULL, true, "no address"}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_http_address a;
        if (cases[i].host) {
            CHECK_OK(ndp_http_address_parse(cases[i].text, cases[i].any, &a));
            assert_string_equal(a.host, cases[i].host);
        } else {
            CHECK_FAILS(ndp_http_address_parse(cases[i].text, cases[i].any, &a), NDP_EINVAL, cases[i].words);
        }
    }
}

static void what_is_answered(void **state) {
    (void)state;
    static const struct {
        const char *method, *path, *host;
        int status;
        const char *type, *words;
    } cases[] = {
        {"GET", "/", "127.0.0.1:9000", 200, "text/html", "<!doctype html>"},
        {"HEAD", "/", "LOCALHOST:1", 200, "text/html", "</html>"},
        {"GET", "/metrics", "127.0.0.1", 200, "application/openmetrics-text; version=1.0.0; charset=utf-8", "# EOF\n"},
        {"GET", "/", "[::1]:9000", 200, "text/html", ""},
        {"GET", "/../etc/passwd", "127.0.0.1", 404, "text/plain", "/metrics"},
        {"GET", "/job.yaml", "127.0.0.1", 404, "text/plain", ""},
        {"GET", "", "127.0.0.1", 404, "text/plain", ""},
        {"POST", "/", "127.0.0.1", 405, "text/plain", "GET"},
        {"get", "/", "127.0.0.1", 405, "text/plain", ""},
        {"GET", "/", NULL, 403, "text/plain", "--http-any"},
        {"GET", "/metrics", "evil.example", 403, "text/plain", ""},
        {"GET", "/", "localhost.evil.example", 403, "text/plain", ""},
        {"GET", "/", "127.0.0.1:x", 403, "text/plain", ""}};
    ndp_watch *w;
    ndp_http_address a;
    put_run();
    CHECK_OK(ndp_watch_create(folder, NULL, &w));
    CHECK_OK(ndp_http_address_parse("9000", false, &a));
    struct ndp_http_server *s = ndp_serve_create(w, &a);
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_http_answer out;
        ndp_serve_answer(s, cases[i].method, cases[i].path, cases[i].host, &out);
        assert_int_equal(out.status, cases[i].status);
        assert_memory_equal(out.headers[0].value, cases[i].type, strlen(cases[i].type));
        assert_memory_equal(out.headers[4].value, "default-src 'none'; ", 20);
        has(out.body, cases[i].words);
        assert_int_equal(out.size, strlen(out.body));
    }
    ndp_serve_end(s);
    ndp_watch_destroy(w);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(rows_are_heard_once),      IN_FOLDER(a_lock_elsewhere_is_seen_to_move),
        IN_FOLDER(the_screen_is_as_written), IN_FOLDER(no_line_is_wider_than_the_terminal),
        IN_FOLDER(numbers_are_open_metrics), cmocka_unit_test(addresses),
        IN_FOLDER(what_is_answered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
