/* What `ndparallel verify` makes of verdicts: the words, the JSON and the exit code of layouts that do not agree, which
 * no healthy build brings about. The command is the real one; ndp_verify is played here. */
#include "check.h"

#include "cli/cli.c"
#include "cli/cli_options.c"
#include "cli/cmd_verify.c"
#include <json-c/json.h>
#include <unistd.h>

static ndp_verdict played[2];

ndp_status ndp_verify(const ndp_config *c, const ndp_verify_opts *o, ndp_verdict *verdicts) {
    (void)c;
    assert_true(o->n <= 2);
    memcpy(verdicts, played, (size_t)o->n * sizeof *verdicts);
    return NDP_OK;
}

static ndp_deviation deviation(double off, double bound, const char *where) {
    ndp_deviation d = {.worst = {.off = off, .bound = bound}, .beyond = off > bound};
    snprintf(d.worst.where, sizeof d.worst.where, "%s", where);
    if (d.beyond)
        d.first = d.worst;
    return d;
}

static ndp_verdict verdict(double gradient) {
    ndp_verdict v = {.agrees = gradient <= 2e-5, .ranks = 2, .seconds = 1.5};
    v.of[NDP_MEASURE_FIRST_GRADIENT] = deviation(gradient, 2e-5, "model.norm.weight");
    v.of[NDP_MEASURE_LAST_GRADIENT] = deviation(1e-5, 1e-4, "model.layers.0.mlp.up_proj.weight");
    v.of[NDP_MEASURE_GRAD_NORM] = deviation(0, 3e-5, "");
    v.of[NDP_MEASURE_LOSS] = deviation(1e-7, 2e-6, "step 3");
    v.of[NDP_MEASURE_WEIGHTS] = deviation(1e-3, INFINITY, "model.norm.weight");
    if (!v.agrees)
        snprintf(v.words, sizeof v.words, "gradient of step 1, model.norm.weight (head): off by 1, bound 2e-05");
    return v;
}

/* The command on an empty job with two layouts; what it wrote to stdout. */
static int command(char *option, char out[4096]) {
    char job[] = "/tmp/ndp-verify-XXXXXX", said[] = "/tmp/ndp-verify-XXXXXX";
    int jobs = mkstemp(job), to = mkstemp(said), before = dup(STDOUT_FILENO);
    assert_true(jobs >= 0 && to >= 0 && before >= 0);
    close(jobs);
    char *argv[] = {"verify", job, "--layout", "dp_shard=2", "-l", "tp=2,cp=2", option, NULL};
    fflush(stdout);
    dup2(to, STDOUT_FILENO);
    int code = cmd_verify(option ? 7 : 6, argv);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    ssize_t n = pread(to, out, 4095, 0);
    assert_true(n >= 0);
    out[n] = '\0';
    close(to);
    unlink(job);
    unlink(said);
    return code;
}

static void all_agree(void **state) {
    (void)state;
    char out[4096];
    played[0] = verdict(1e-6), played[1] = verdict(4e-6);
    assert_int_equal(command(NULL, out), 0);
    assert_string_equal(
        out,
        "layout      gradient, step 1  of tensor          gradient, step 20  grad_norm       loss            verdict\n"
        "dp_shard=2  1.0e-06     5.0%  model.norm.weight  1.0e-05       10%  0.0e+00   0.0%  1.0e-07   5.0%  agrees\n"
        "tp=2,cp=2   4.0e-06      20%  model.norm.weight  1.0e-05       10%  0.0e+00   0.0%  1.0e-07   5.0%  agrees\n"
        "\nAll agree with one rank; the closest to its bound, at 20%, is the gradient of step 1 of tp=2,cp=2\n");
}

static void one_disagrees(void **state) {
    (void)state;
    char out[4096];
    played[0] = verdict(1e-6), played[1] = verdict(1);
    assert_int_equal(command(NULL, out), 1);
    assert_non_null(strstr(out, "tp=2,cp=2   1.0e+00   5e+04x  model.norm.weight"));
    assert_non_null(strstr(out, "  DISAGREES\n"));
    assert_non_null(
        strstr(out, "\ntp=2,cp=2 disagrees: gradient of step 1, model.norm.weight (head): off by 1, bound"));
    assert_null(strstr(out, "\ndp_shard=2 disagrees"));
    assert_null(strstr(out, "with one rank"));
}

/* What is no number, too. */
static void as_json(void **state) {
    (void)state;
    char out[4096];
    played[0] = verdict(1e-6), played[1] = verdict(INFINITY);
    assert_int_equal(command("--json", out), 1);
    struct json_object *o = json_tokener_parse(out), *layouts, *agrees, *first, *value;
    assert_non_null(o);
    assert_true(json_object_object_get_ex(o, "layouts", &layouts));
    assert_int_equal(json_object_array_length(layouts), 2);
    for (int i = 0; i < 2; i++) {
        struct json_object *v = json_object_array_get_idx(layouts, (size_t)i);
        assert_true(json_object_object_get_ex(v, "agrees", &agrees));
        assert_int_equal(json_object_get_boolean(agrees), i == 0);
        assert_true(json_object_object_get_ex(v, "first_gradient", &first));
        assert_true(json_object_object_get_ex(first, "off", &value));
        assert_true(i == 0 ? json_object_get_double(value) == 1e-6 : value == NULL);
    }
    json_object_put(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_agree), cmocka_unit_test(one_disagrees),
                                       cmocka_unit_test(as_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
