/* ndp_evaluate of documents that are longer than a window, against transformers in fp64 (tests/golden/windows.json):
 * six families, one of them with other angles beyond its original length, one with experts, strides from 1 to a whole
 * window. */
#include "train/golden.h"
#include "verify/runs.h"

#include "base/json.h"
#include <math.h>

typedef struct windows_fixture {
    char *base, *documents;
    struct json_object *golden;
} windows_fixture;

static struct json_object *member(struct json_object *o, const char *key) {
    struct json_object *value;
    if (!json_object_object_get_ex(o, key, &value))
        fail_msg("windows.json lacks %s", key);
    return value;
}

static int64_t number(struct json_object *o, const char *key) { return json_object_get_int64(member(o, key)); }

static int make_base(void **state) {
    char path[1024];
    windows_fixture *f = calloc(1, sizeof *f);
    ndp_str lines = {0};
    void *folder;
    if (!f || make_folder(&folder) != 0)
        return -1;
    f->base = folder;
    CHECK_OK(ndp_json_read(golden_folder("windows.json", path, sizeof path), &f->golden));
    struct json_object *list = member(f->golden, "documents");
    for (size_t i = 0; i < json_object_array_length(list); i++)
        ndp_str_addf(&lines, "{\"text\": \"%s\"}\n", json_object_get_string(json_object_array_get_idx(list, i)));
    f->documents = ndp_format("%s/documents.jsonl", f->base);
    CHECK_OK(ndp_file_write_atomic(f->documents, lines.data, lines.length));
    ndp_str_release(&lines);
    *state = f;
    return 0;
}

static int drop_base(void **state) {
    windows_fixture *f = *state;
    void *folder = f->base;
    json_object_put(f->golden);
    free(f->documents);
    free(f);
    return drop_folder(&folder);
}

/* The golden model, with a tokenizer of letters. */
static char *make_model(const windows_fixture *f, const char *name) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    char from[1024], *folder = ndp_format("%s/%s", f->base, name);
    golden_folder(name, from, sizeof from);
    CHECK_OK(ndp_folder_create(folder));
    for (int i = 0; i < NDP_COUNT(files); i++) {
        char *target = ndp_format("%s/%s", from, files[i]), *link = ndp_format("%s/%s", folder, files[i]);
        assert_int_equal(symlink(target, link), 0);
        free(target);
        free(link);
    }
    free(write_tokenizer(folder));
    return folder;
}

static ndp_status evaluate(const windows_fixture *f, const char *folder, int length, int stride, ndp_evaluation *e) {
    ndp_evaluate_opts o = NDP_EVALUATE_OPTS_INIT;
    o.model = folder, o.data = (const char *const *)&f->documents, o.data_count = 1, o.threads = 1;
    o.sequence_length = length, o.stride = stride;
    return ndp_evaluate(&o, e, NULL);
}

/* A bound of 1e-6, as fp32 allows: the results differ by 1e-3 and more between strides. */
static void check_case(const windows_fixture *f, const char *name, const char *folder, struct json_object *want) {
    int length = (int)number(want, "length"), stride = (int)number(want, "stride");
    double mean = json_object_get_double(member(want, "mean_nll"));
    for (int by_default = 0; by_default <= (stride == length - 1); by_default++) {
        ndp_evaluation e;
        CHECK_OK(evaluate(f, folder, length, by_default ? 0 : stride, &e));
        assert_int_equal(e.window, length);
        assert_int_equal(e.stride, stride);
        assert_int_equal(e.tokens, number(want, "tokens"));
        assert_int_equal(e.bytes, 2 * e.tokens); /* letters, which this tokenizer joins by spaces */
        assert_int_equal(e.divided, number(want, "divided"));
        if (!(fabs(e.mean_nll - mean) <= 1e-6))
            fail_msg("%s, windows of %d, stride %d: mean nll %.9f, transformers has %.9f", name, length, stride,
                     e.mean_nll, mean);
    }
}

static void as_transformers(void **state) {
    const windows_fixture *f = *state;
    json_object_object_foreach(member(f->golden, "models"), name, cases) {
        char *folder = make_model(f, name);
        assert_true(json_object_array_length(cases) > 0);
        for (size_t i = 0; i < json_object_array_length(cases); i++)
            check_case(f, name, folder, json_object_array_get_idx(cases, i));
        free(folder);
    }
}

static void strides_that_leave_tokens_out(void **state) {
    const windows_fixture *f = *state;
    char *folder = ndp_format("%s/mistral", f->base);
    ndp_evaluation e;
    CHECK_FAILS(evaluate(f, folder, 17, 18, &e), NDP_EINVAL, "a stride of 18: windows of 17 tokens need 1 to 17");
    CHECK_FAILS(evaluate(f, folder, 0, 65, &e), NDP_EINVAL, "a stride of 65: windows of 64 tokens need 1 to 64");
    CHECK_FAILS(evaluate(f, folder, 17, -1, &e), NDP_EINVAL, "a stride of -1");
    free(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_transformers),
                                       cmocka_unit_test(strides_that_leave_tokens_out)};
    return cmocka_run_group_tests(tests, make_base, drop_base);
}
