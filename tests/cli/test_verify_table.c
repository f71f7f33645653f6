/* What `ndparallel verify` makes of verdicts: the words, the JSON and the exit code of layouts that do not agree, which
 * no healthy build brings about. The command is the real one; ndp_verify and the two about dumps are played here. */
#include "check.h"

#include "cli/cli.c"
#include "cli/cli_options.c"
#include "cli/cmd_verify.c"
#include "cli/print_against.c"
#include <json-c/json.h>
#include <unistd.h>

static ndp_verdict played[2];

ndp_status ndp_verify(const ndp_config *c, const ndp_verify_opts *o, ndp_verdict *verdicts) {
    (void)c;
    assert_true(o->n <= 2);
    memcpy(verdicts, played, (size_t)o->n * sizeof *verdicts);
    return NDP_OK;
}

static const char *dumped_to;

ndp_status ndp_verify_dump(const ndp_config *c, const ndp_dump_opts *o) {
    (void)c;
    dumped_to = o->folder;
    return NDP_OK;
}

static ndp_against judged;

ndp_status ndp_verify_against(const ndp_config *c, const ndp_against_opts *o, ndp_against *out) {
    (void)c;
    assert_string_equal(o->folder, "theirs \"1\"");
    *out = judged;
    return NDP_OK;
}

void ndp_against_release(ndp_against *a) { *a = (ndp_against){0}; }

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

/* The command on an empty job; what it wrote to stdout. */
static int run_command(const char *const *words, int n, char out[4096]) {
    char job[] = "/tmp/ndp-verify-XXXXXX", said[] = "/tmp/ndp-verify-XXXXXX";
    int jobs = mkstemp(job), to = mkstemp(said), before = dup(STDOUT_FILENO);
    assert_true(jobs >= 0 && to >= 0 && before >= 0);
    close(jobs);
    char *argv[12] = {"verify", job};
    assert_true(n < 10);
    for (int i = 0; i < n; i++)
        argv[2 + i] = (char *)words[i];
    fflush(stdout);
    dup2(to, STDOUT_FILENO);
    int code = cmd_verify.run(&cmd_verify, 2 + n, argv);
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    ssize_t got = pread(to, out, 4095, 0);
    assert_true(got >= 0);
    out[got] = '\0';
    close(to);
    unlink(job);
    unlink(said);
    return code;
}

/* With two layouts. */
static int command(const char *option, char out[4096]) {
    return run_command((const char *const[]){"--layout", "dp_shard=2", "-l", "tp=2,cp=2", option}, option ? 5 : 4, out);
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

/* Also what is not a number. */
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

/* Of a mixture: choices that a layout would make otherwise, in a column and below the table. */
static void flips(void **state) {
    (void)state;
    char out[4096];
    played[0] = verdict(1e-6), played[1] = verdict(4e-6);
    for (int i = 0; i < 2; i++)
        played[i].choices = 81920, played[i].flips = i * 9, played[i].n_listed = i;
    played[1].listed[0] = (ndp_flip){3, 1, 17, 5, 2, 3.4e-6, "layers.1"};
    assert_int_equal(command(NULL, out), 0);
    assert_non_null(strstr(out, "  loss            flips              verdict\n"));
    assert_non_null(strstr(out, "  0 of 81920         agrees\n"));
    assert_non_null(strstr(out, "  9 of 81920         agrees\n\n"
                                "tp=2,cp=2 would make 9 of 81920 choices of experts otherwise; those with the largest "
                                "gaps:\n"
                                "  step 3, layers.1, row 17: expert 5 instead of 2, whose probabilities differ by "
                                "3.4e-06\n"));
    assert_int_equal(command("--json", out), 0);
    assert_non_null(strstr(out, "\"choices\": 81920, \"flips\": 0, \"listed\": [], "));
    assert_non_null(strstr(out, "\"flips\": 9, \"listed\": [{\"step\": 3, \"unit\": \"layers.1\", \"row\": 17, "
                                "\"expert\": 5, \"instead_of\": 2, \"gap\": "));
}

/* ---- dumps ---- */

static int against(const char *option, char out[4096]) {
    static char first[] = "model.norm.weight", second[] = "lm_head.weight",
                cause[] = "model.norm.weight is 0.500 of ours";
    static char *causes[] = {cause};
    static ndp_against_tensor gradients[] = {{first, 0.5, 2e-5, false}, {second, 1e-6, 2e-5, true}};
    judged = (ndp_against){.rows = 4,
                           .length = 32,
                           .tokens = {62, 124},
                           .loss = {2, 4},
                           .loss_bound = 2e-6,
                           .n = 2,
                           .gradients = gradients,
                           .has_weights = true,
                           .weights_off = 1e-3,
                           .weights_bound = 1e-2,
                           .weights_most = "lm_head.weight",
                           .n_causes = 1,
                           .causes = causes};
    return run_command((const char *const[]){"--against", "theirs \"1\"", option}, option ? 3 : 2, out);
}

static void dump_differs(void **state) {
    (void)state;
    char out[4096];
    assert_int_equal(against(NULL, out), 1);
    assert_string_equal(out, "                   off      of bound  verdict\n"
                             "tokens                                DIFFERS: 62, ours 124\n"
                             "loss               5.0e-01  2.5e+05x  DIFFERS: 2, ours 4\n"
                             "model.norm.weight  5.0e-01  2.5e+04x  DIFFERS\n"
                             "lm_head.weight     1.0e-06      5.0%  agrees\n"
                             "weights            1.0e-03       10%  agrees, most in lm_head.weight\n"
                             "\nmodel.norm.weight is 0.500 of ours\n"
                             "theirs \"1\" differs from our step on its 4 rows of 32 tokens, in 1 of 2 gradients\n");
}

static void dump_as_json(void **state) {
    (void)state;
    char out[4096];
    assert_int_equal(against("--json", out), 1);
    struct json_object *o = json_tokener_parse(out), *value, *gradient;
    assert_non_null(o);
    assert_true(json_object_object_get_ex(o, "dump", &value));
    assert_string_equal(json_object_get_string(value), "theirs \"1\"");
    assert_true(json_object_object_get_ex(o, "gradients", &value));
    assert_true(json_object_object_get_ex(value, "model.norm.weight", &gradient));
    assert_true(json_object_object_get_ex(gradient, "agrees", &value));
    assert_false(json_object_get_boolean(value));
    assert_true(json_object_object_get_ex(o, "causes", &value));
    assert_int_equal(json_object_array_length(value), 1);
    json_object_put(o);
}

static void dump_is_written(void **state) {
    (void)state;
    char out[4096];
    assert_int_equal(run_command((const char *const[]){"--dump", "there"}, 2, out), 0);
    assert_string_equal(dumped_to, "there");
    assert_string_equal(out, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_agree),      cmocka_unit_test(flips),
                                       cmocka_unit_test(one_disagrees),  cmocka_unit_test(as_json),
                                       cmocka_unit_test(dump_differs),   cmocka_unit_test(dump_as_json),
                                       cmocka_unit_test(dump_is_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
