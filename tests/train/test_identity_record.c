/* What manifests keep of accepted changes, and checkpoints that other versions made. */
#include "train/resumes.h"

/* ---- what later manifests keep ---- */

/* A second resume has no difference left to accept, and keeps the record of the first. */
static void the_record_is_kept(void **state) {
    static const char *const first[] = {"optimizer.lr", NULL}, *const second[] = {"train.seed", NULL};
    const struct {
        const char *const *accept;
        const char *set;
        int steps;
    } resumes[] = {{first, "train.seed=42", 4}, {NULL, "train.seed=42", 5}, {second, "train.seed=7", 6}};
    copy_run(*state, CONSTANT);
    for (int i = 0; i < NDP_COUNT(resumes); i++) {
        ndp_config *c = configure(*state, CONSTANT, "again");
        CHECK_OK(ndp_config_setf(c, "train.steps=%d", resumes[i].steps));
        set(c, *state, "optimizer.lr=1e-3");
        set(c, *state, resumes[i].set);
        run r = {.config = c};
        CHECK_OK(train(&r, true, resumes[i].accept));
        ndp_str_release(&r.said);
        ndp_config_destroy(c);
    }
    struct json_object *extra = extra_of(*state, "again", 6), *list = json_object_object_get(extra, "accepted");
    assert_string_equal(json_object_to_json_string_ext(list, JSON_C_TO_STRING_PLAIN),
                        "[{\"key\":\"optimizer.lr\",\"from\":\"0.0003\",\"to\":\"0.001\",\"step\":2},"
                        "{\"key\":\"train.seed\",\"from\":\"42\",\"to\":\"7\",\"step\":5}]");
    json_object_put(extra);
    char *path = ndp_format("%s/again/job.yaml", (char *)*state), *text;
    size_t size;
    CHECK_OK(ndp_file_read(path, &text, &size));
    assert_non_null(strstr(text, "\n# accepted at step 2: optimizer.lr from 0.0003 to 0.001\n"
                                 "# accepted at step 5: train.seed from 42 to 7\n"));
    assert_non_null(strstr(text, "\n  lr: 0.001\n"));
    free(text);
    free(path);
}

static void nothing_to_accept_in_an_empty_folder(void **state) {
    static const char *const accept[] = {"optimizer.lr", NULL};
    ndp_config *c = configure(*state, COSINE, "empty");
    run r = {.config = c};
    CHECK_FAILS(train(&r, true, accept), NDP_EINVAL, "to differ from");
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
}

/* ---- checkpoints of earlier versions ---- */

/* The manifest of a run as version 1 wrote it. */
static void write_old_manifest(const char *folder, const char *extra) {
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors"};
    ndp_str s = {0};
    char *step = ndp_format("%s/again/checkpoints/step-%08d", folder, SAVED);
    ndp_str_addf(&s,
                 "{\"format\": \"ndparallel checkpoint\", \"version\": 1, \"step\": 2, \"samples\": 8, \"seed\": 42, "
                 "\"extra\": %s, \"files\": [",
                 extra);
    for (int i = 0; i < NDP_COUNT(files); i++) {
        struct stat file;
        char *path = ndp_format("%s/%s", step, files[i]);
        assert_int_equal(stat(path, &file), 0);
        ndp_str_addf(&s, "%s{\"name\": \"%s\", \"bytes\": %lld}", i ? ", " : "", files[i], (long long)file.st_size);
        free(path);
    }
    ndp_str_add(&s, "]}\n");
    tiny_write(step, "manifest.json", s.data);
    ndp_str_release(&s);
    free(step);
}

static ndp_status resume_extra(const char *folder, int base, const char *extra, const char *other,
                               const char *const *accept) {
    copy_run(folder, base);
    write_old_manifest(folder, extra);
    ndp_config *c = configure(folder, base, "again");
    if (other)
        set(c, folder, other);
    run r = {.config = c};
    ndp_status st = train(&r, true, accept);
    ndp_str_release(&r.said);
    ndp_config_destroy(c);
    return st;
}

/* Counts of the data, no identity. */
static ndp_status resume_old(const char *folder, const char *other, const char *const *accept) {
    return resume_extra(folder, COSINE,
                        "{\"rows\": 20, \"epoch_rows\": 20, \"tokens\": 1496, \"sequence_length\": 96, "
                        "\"shuffle\": true}",
                        other, accept);
}

static void counts_of_an_earlier_version(void **state) {
    static const char *const accept[] = {"train.seed", NULL}, *const lr[] = {"optimizer.lr", NULL};
    CHECK_OK(resume_old(*state, NULL, NULL));
    CHECK_OK(resume_old(*state, "optimizer.lr=1e-3", NULL)); /* cannot be compared */
    CHECK_FAILS(resume_old(*state, "data.files=[@/texts.jsonl]", NULL), NDP_EINVAL, "data.rows was 20, now it is ");
    CHECK_FAILS(resume_old(*state, "data.sequence_length=80", NULL), NDP_EINVAL, "data.sequence_length was 96");
    CHECK_FAILS(resume_old(*state, "data.shuffle=false", NULL), NDP_EINVAL, "data.shuffle was true");
    CHECK_FAILS(resume_old(*state, "train.seed=7", NULL), NDP_EINVAL, "train.seed was 42, now it is 7");
    CHECK_FAILS(resume_old(*state, "optimizer.lr=1e-3", lr), NDP_EINVAL,
                "--accept optimizer.lr: it cannot be compared");
    CHECK_OK(resume_old(*state, "train.seed=7", accept));
    /* The checkpoint of the run that went on has an identity. */
    struct json_object *extra = extra_of(*state, "again", STEPS);
    assert_true(json_object_object_get_ex(extra, "identity", NULL));
    json_object_put(extra);
}

/* The identity of the run with one value changed (NULL: left out). */
static ndp_status resume_edited_of(const char *folder, int base, const char *key, const char *value,
                                   const char *const *accept) {
    struct json_object *extra = extra_of(folder, bases[base].name, SAVED),
                       *identity = json_object_object_get(extra, "identity");
    json_object_object_del(identity, key);
    if (value)
        json_object_object_add(identity, key, json_object_new_string(value));
    ndp_status st = resume_extra(folder, base, json_object_to_json_string(extra), NULL, accept);
    json_object_put(extra);
    return st;
}

static ndp_status resume_edited(const char *folder, const char *key, const char *value, const char *const *accept) {
    return resume_edited_of(folder, COSINE, key, value, accept);
}

static void identity_of_another_version(void **state) {
    static const char *const tokens[] = {"data.tokens", NULL};
    CHECK_OK(resume_edited(*state, "train.seed", "42", NULL));
    /* The same files under the same keys gave other tokens. */
    CHECK_FAILS(resume_edited(*state, "data.tokens", "0", NULL), NDP_EINVAL, "data.tokens was 0, now it is ");
    CHECK_OK(resume_edited(*state, "data.tokens", "0", tokens));
    /* A key that one of the two does not know cannot be compared. */
    CHECK_OK(resume_edited(*state, "optimizer.eps", NULL, NULL));
    CHECK_OK(resume_edited(*state, "optimizer.later", "1", NULL));
    /* Before optimizer.groups there were none. */
    CHECK_OK(resume_edited(*state, "optimizer.groups", NULL, NULL));
    struct json_object *extra = extra_of(*state, bases[COSINE].name, SAVED);
    json_object_object_del(json_object_object_get(extra, "identity"), "optimizer.groups");
    CHECK_FAILS(resume_extra(*state, COSINE, json_object_to_json_string(extra),
                             "optimizer.groups=[{params: [vectors], lr_scale: 2}]", NULL),
                NDP_EINVAL, "optimizer.groups was [], now it is [{params: ");
    json_object_put(extra);
    /* What a file says is shown without control characters. */
    CHECK_FAILS(resume_edited(*state, "data.end_token", "\033[2J\n", NULL), NDP_EINVAL,
                "data.end_token was ?[2J?, now it is none");
    CHECK_FAILS(resume_extra(*state, COSINE, "{\"identity\": [1]}", NULL, NULL), NDP_EFORMAT, "is not an object");
}

/* What a reference is made from, and the choices of a file, are known by their contents: earlier versions had none of
 * the one, and the name of the other. */
static void contents_that_an_earlier_version_did_not_have(void **state) {
    static const char hash[] = "0123456789abcdef0123456789abcdef";
    CHECK_OK(resume_edited_of(*state, REFERRED, "model.path", "in the checkpoints", NULL));
    CHECK_OK(resume_edited_of(*state, REFERRED, "adapter.path", "in the checkpoints", NULL));
    CHECK_OK(resume_edited_of(*state, REFERRED, "moe.routes", "null", NULL));
    CHECK_FAILS(resume_edited_of(*state, REFERRED, "model.path", hash, NULL), NDP_EINVAL, "model.path was 0123");
    CHECK_FAILS(resume_edited_of(*state, REFERRED, "adapter.path", hash, NULL), NDP_EINVAL, "now it is none");
    CHECK_FAILS(resume_edited_of(*state, REFERRED, "moe.routes", "routes.safetensors", NULL), NDP_EINVAL,
                "moe.routes was routes.safetensors, now it is null");
}

static int make_runs(void **state) {
    make_folder(state);
    train_base(*state, COSINE);
    train_base(*state, CONSTANT);
    train_base(*state, REFERRED);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_record_is_kept), cmocka_unit_test(nothing_to_accept_in_an_empty_folder),
        cmocka_unit_test(counts_of_an_earlier_version), cmocka_unit_test(identity_of_another_version),
        cmocka_unit_test(contents_that_an_earlier_version_did_not_have)};
    return cmocka_run_group_tests(tests, make_runs, tiny_teardown);
}
