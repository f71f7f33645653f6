/* Damaged checkpoints: a short form of long_damage.c, and what has to be seen once. */
#include "checkpoint/damage_runs.h"

static void damages_by_a_seed(void **state) { run_trials(*state, 160); }

/* A tensor of three chunks: the message says which bytes. */
static void a_flip_in_every_chunk(void **state) {
    enum { ELEMENTS = 2500000 };
    const ndp_tensor_spec spec = {"model.large.weight", NDP_F32, 1, {ELEMENTS}, NULL};
    const ndp_checkpoint_info info = {.step = 1};
    float *x = calloc(ELEMENTS, sizeof *x);
    char path[512];
    uint64_t seed = 7;
    ndp_save_cost cost;
    ndp_examined e;
    CHECK_OK(ndp_checkpoint_save(NULL, *state, &info, &spec, 1,
                                 &(ndp_file_piece){0, 0, ELEMENTS, x, NDP_F32, 1, NULL, 0}, 1, 0, NDP_SHARD_BYTES,
                                 &cost));
    assert_true(cost.bytes > (int64_t)ELEMENTS * 4 && cost.seconds > 0 && cost.hashing > 0);
    free(x);
    in(*state, "step-00000001/model.safetensors", path);
    bytes intact = read_bytes(path);
    size_t header = payload_of(&intact), chunk = 4 << 20;
    for (size_t at = header; at < intact.size; at += chunk) {
        size_t end = at + chunk < intact.size ? at + chunk : intact.size;
        char words[128];
        flip(path, at, end, &seed);
        CHECK_OK(ndp_checkpoint_examine(NULL, *state, 1, true, 2, &e));
        snprintf(words, sizeof words, "model.safetensors: tensor model.large.weight: bytes [%zu, %zu) are not those",
                 at, end);
        if (e.state != NDP_CHECKPOINT_DAMAGED || strncmp(e.words, words, strlen(words)) != 0)
            fail_msg("'%s', expected '%s'", e.words, words);
        put_file(path, intact.data, intact.size);
    }
    CHECK_OK(ndp_checkpoint_examine(NULL, *state, 1, true, 2, &e));
    assert_int_equal(e.state, NDP_CHECKPOINT_VERIFIED);
    free(intact.data);
}

/* Names that are taken are not taken again. */
static void what_is_aside_stays(void **state) {
    char name[64], path[512];
    for (int k = 1; k <= 3; k++) {
        CHECK_OK(save_step(NULL, *state, 5, 1, 1 << 20));
        CHECK_OK(ndp_step_set_aside(*state, 5, "damaged", name));
        assert_string_equal(name, k == 1   ? "step-00000005.damaged"
                                  : k == 2 ? "step-00000005.damaged-2"
                                           : "step-00000005.damaged-3");
        assert_true(ndp_step_is_aside(name));
    }
    assert_false(ndp_step_is_aside("step-00000005"));
    assert_false(ndp_step_is_aside("step-5.damaged"));
    assert_false(ndp_step_is_aside("step-00000005.tmp"));
    for (int64_t step = 6; step < 9; step++) /* neither counted nor removed by `keep` */
        CHECK_OK(save_step(NULL, *state, step, 2, 1 << 20));
    assert_true(ndp_path_exists(in(*state, "step-00000005.damaged-3", path)));
    assert_true(ndp_path_exists(in(*state, "step-00000007", path)));
    assert_false(ndp_path_exists(in(*state, "step-00000006", path)));
    CHECK_OK(ndp_folder_remove(in(*state, "step-00000007", path)));
    CHECK_OK(ndp_folder_remove(in(*state, "step-00000008", path)));
    ndp_resume r = {0};
    CHECK_FAILS(ndp_resume_choose(NULL, *state, -1, 1, &r), NDP_EINVAL, "no checkpoint but 3 that were set aside");
}

/* `keep` counts what looks whole: a damaged one is not one of those that stay, and stays. */
static void keep_counts_whole_ones(void **state) {
    char path[512];
    for (int64_t step = 1; step <= 3; step++)
        CHECK_OK(save_step(NULL, *state, step, 0, 1 << 20));
    assert_int_equal(truncate(in(*state, "step-00000003/model.safetensors", path), 100), 0);
    CHECK_OK(save_step(NULL, *state, 4, 2, 1 << 20));
    static const bool stays[] = {false, true, true, true};
    for (int64_t step = 1; step <= 4; step++)
        assert_int_equal(ndp_path_exists(step_in(*state, step, path)), stays[step - 1]);
}

/* --resume-from leaves nothing newer under its name, and nothing is lost. */
static void going_back_supersedes(void **state) {
    char path[512];
    for (int64_t step = 10; step <= 40; step += 10)
        CHECK_OK(save_step(NULL, *state, step, 0, 1 << 20));
    assert_int_equal(truncate(in(*state, "step-00000030/model.safetensors", path), 100), 0);
    ndp_resume r = {0};
    ndp_str names = {0};
    CHECK_FAILS(ndp_resume_choose(NULL, *state, 15, 1, &r), NDP_EINVAL, "no checkpoint of that step in");
    assert_non_null(strstr(ndp_error_message(), "Steps that verify: 40, 20, 10; "));
    CHECK_OK(ndp_resume_choose(NULL, *state, 20, 1, &r));
    assert_int_equal(r.step, 20);
    CHECK_OK(ndp_resume_settle(NULL, *state, &r, &names));
    assert_string_equal(names.data, "step-00000040.superseded, step-00000030.damaged");
    ndp_str_release(&names);
    ndp_resume_release(&r);
    assert_true(ndp_path_exists(in(*state, "step-00000040.superseded/model.safetensors", path)));
    CHECK_OK(ndp_resume_choose(NULL, *state, -1, 1, &r));
    assert_int_equal(r.step, 20);
    ndp_resume_release(&r);
}

/* An entry that is not a folder is not lost work: any number of them is skipped and set aside; a good step is found. */
static void names_without_folders(void **state) {
    char path[512];
    ndp_resume r = {0};
    ndp_str names = {0};
    ndp_examined e;
    CHECK_OK(save_step(NULL, *state, 10, 0, 1 << 20));
    put_file(in(*state, "step-00000013", path), "work", 4);
    assert_int_equal(mkfifo(in(*state, "step-00000012", path), 0600), 0);
    assert_int_equal(symlink("elsewhere/step-00000011", in(*state, "step-00000011", path)), 0);
    static const char *const words[] = {"dangling link", "is a pipe", "is a file"};
    for (int64_t step = 11; step <= 13; step++) {
        CHECK_OK(ndp_checkpoint_examine(NULL, *state, step, false, 1, &e));
        assert_true(e.state == NDP_CHECKPOINT_DAMAGED && e.no_folder && strstr(e.words, words[step - 11]));
    }
    CHECK_FAILS(ndp_resume_choose(NULL, *state, 12, 1, &r), NDP_EINVAL, "Steps that verify: 10; ");
    /* None of them stops a save, or counts. */
    CHECK_OK(save_step(NULL, *state, 9, 2, 1 << 20));
    assert_true(ndp_path_exists(step_in(*state, 10, path)) && ndp_path_exists(step_in(*state, 9, path)));
    CHECK_OK(ndp_resume_choose(NULL, *state, -1, 1, &r));
    assert_int_equal(r.step, 10);
    CHECK_OK(ndp_resume_settle(NULL, *state, &r, &names));
    assert_string_equal(names.data, "step-00000013.damaged, step-00000012.damaged, step-00000011.damaged");
    ndp_str_release(&names);
    ndp_resume_release(&r);
    /* With one damaged checkpoint among them, the one before that; with two, none. */
    put_file(in(*state, "step-00000012", path), "work", 4);
    put_file(in(*state, "step-00000011", path), "work", 4);
    CHECK_OK(ndp_folder_create(in(*state, "step-00000013", path)));
    CHECK_OK(ndp_resume_choose(NULL, *state, -1, 1, &r));
    assert_true(r.step == 10 && r.n_aside == 3);
    ndp_resume_release(&r);
    assert_int_equal(truncate(in(*state, "step-00000010/model.safetensors", path), 100), 0);
    CHECK_FAILS(ndp_resume_choose(NULL, *state, -1, 1, &r), NDP_EINVAL, "of step 13, is damaged (");
    assert_non_null(strstr(ndp_error_message(), "and so is the one before it, of step 10 ("));
    assert_non_null(strstr(ndp_error_message(), "Steps that verify: 9; "));
    /* A run never starts over beside one of them. */
    for (int64_t step = 9; step <= 13; step++)
        CHECK_OK(ndp_folder_remove(step_in(*state, step, path)));
    put_file(in(*state, "step-00000014", path), "work", 4);
    CHECK_FAILS(ndp_resume_choose(NULL, *state, -1, 1, &r), NDP_EINVAL, "and there is no other; nothing was changed");
}

/* As the program before wrote them. */
static void version_1_is_read(void **state) {
    char path[512], *text = NULL;
    size_t size;
    CHECK_OK(save_step(NULL, *state, 3, 0, 1 << 20));
    CHECK_OK(ndp_file_read(in(*state, "step-00000003/manifest.json", path), &text, &size));
    struct json_object *o = NULL, *files = NULL;
    CHECK_OK(ndp_json_parse(text, size, path, &o));
    free(text);
    json_object_object_del(o, "hash");
    json_object_object_add(o, "version", json_object_new_int(1));
    json_object_object_get_ex(o, "files", &files);
    for (size_t i = 0; i < json_object_array_length(files); i++)
        json_object_object_del(json_object_array_get_idx(files, i), "chunks");
    const char *older = json_object_to_json_string(o);
    put_file(path, older, strlen(older));
    json_object_put(o);
    ndp_resume r = {0};
    CHECK_OK(ndp_resume_choose(NULL, *state, -1, 1, &r));
    assert_true(r.step == 3 && r.unverifiable && r.n_aside == 0);
    CHECK_OK(check_step(*state, 3, 0, 1));
    ndp_resume_release(&r);
    assert_int_equal(truncate(in(*state, "step-00000003/model.safetensors", path), 100), 0);
    CHECK_FAILS(ndp_resume_choose(NULL, *state, -1, 1, &r), NDP_EINVAL, "is damaged");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(damages_by_a_seed),     IN_FOLDER(a_flip_in_every_chunk),  IN_FOLDER(what_is_aside_stays),
        IN_FOLDER(names_without_folders), IN_FOLDER(keep_counts_whole_ones), IN_FOLDER(going_back_supersedes),
        IN_FOLDER(version_1_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
