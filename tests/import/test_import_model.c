/* Honest success: an import of a model that does not load fails, by its config.json or its published name. */
#include "imported.h"

#include <sys/stat.h>
#include <unistd.h>

#define REST "\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 2\n"

static ndp_status of(imported *i, const char *model, const ndp_import_opts *o) {
    char *text = ndp_format("base_model: %s" REST, model);
    ndp_status st = import(i, text, o);
    free(text);
    return st;
}

static void known_names_that_do_not_load_are_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"tiiuae/Falcon-H1-7B-Base", "published as model_type falcon_h1, which is not supported"},
        {"ai21labs/Jamba-v0.1@main", "published as model_type jamba"},
        {"meta-llama/Llama-3.2-11B-Vision-Instruct", "mllama"},
        {"LiquidAI/LFM2-8B-A1B", "lfm2_moe"},
        {"nvidia/Qwen3-30B-A3B-NVFP4", "its weights are packed in a form that is not read"},
        {"google/gemma-4-26B-A4B", "its layers have an MLP beside a mixture"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        imported i;
        CHECK_FAILS(of(&i, cases[k][0], NULL), NDP_ENOTSUP, cases[k][1]); /* the program ends with 1 */
        release(&i);
    }
}

static void known_names_that_load_say_nothing(void **state) {
    (void)state;
    static const char *const names[] = {
        "meta-llama/Llama-3.1-8B",     "Qwen/Qwen2.5-0.5B",         "qwen/qwen3-30b-a3b",
        "Qwen/Qwen3-Next-80B-A3B",     "Qwen/Qwen3.5-27B",          "google/gemma-3-1b-it",
        "google/gemma-3-27b-it",       "google/gemma-4-31B",        "microsoft/phi-4",
        "mistralai/Mixtral-8x7B-v0.1", "mistralai/Mistral-7B-v0.1", "openai/gpt-oss-20b",
        "deepseek-ai/DeepSeek-V3",     "zai-org/GLM-4.7-Flash",     "EleutherAI/pythia-1b"};
    for (int k = 0; k < NDP_COUNT(names); k++) {
        imported i;
        if (of(&i, names[k], NULL) != NDP_OK || strstr(i.notes, "not checked"))
            fail_msg("%s: %s%s", names[k], ndp_error_message(), i.notes ? i.notes : "");
        release(&i);
    }
}

static void unknown_names_get_a_note(void **state) {
    (void)state;
    imported i;
    CHECK_OK(of(&i, "an-org/a-model", NULL));
    CHECK_NOTES(&i, "not checked: whether the model's family is supported; `plan` tells");
    release(&i);
}

static void force_and_set_continue(void **state) {
    (void)state;
    static const char *const sets[] = {"model.path=Qwen/Qwen3-8B", "model.path=facebook/opt-125m"};
    const ndp_import_opts another = {.assignments = sets, .assignment_count = 1},
                          other = {.assignments = sets + 1, .assignment_count = 1};
    imported i;
    CHECK_OK(of(&i, "tiiuae/falcon-7b", &(ndp_import_opts){.force = true}));
    CHECK_NOTES(&i, "BY --force", "base_model: tiiuae/falcon-7b (line 1): published as model_type falcon");
    CHECK_KEYS(&i, {"model.path", "\"tiiuae/falcon-7b\""});
    release(&i);
    CHECK_OK(of(&i, "tiiuae/falcon-7b", &another));
    release(&i);
    /* The user's own word is checked too. */
    CHECK_FAILS(of(&i, "Qwen/Qwen3-8B", &other), NDP_ENOTSUP,
                "'model.path: facebook/opt-125m': published as model_type opt");
    release(&i);
    /* Another refusal beside it: the file is also wrong. */
    CHECK_FAILS(import(&i, "base_model: tiiuae/falcon-7b\nadapter: ia3" REST, NULL), NDP_EINVAL,
                "adapter.type is lora or qlora");
    assert_non_null(strstr(ndp_error_message(), "published as model_type falcon"));
    release(&i);
}

/* A job that `plan` would refuse is no import. */
static void qlora_of_a_mixture_is_refused_here(void **state) {
    (void)state;
    static const char *const sets[] = {"adapter.type=lora"};
    static const char text[] = "base_model: mistralai/Mixtral-8x7B-v0.1\nadapter: qlora\nload_in_4bit: true\n"
                               "lora_target_modules: [q_proj]" REST;
    imported i;
    CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL,
                "'adapter: qlora': a mixture's experts are not stored in 4 or 8 bits; lora trains the same factors "
                "beside the weights as they are; or --set adapter.type=");
    release(&i);
    CHECK_OK(import(&i, text, &(ndp_import_opts){.assignments = sets, .assignment_count = 1}));
    CHECK_KEYS(&i, {"adapter.type", "lora"});
    CHECK_NOTES(&i, "settled by --set");
    release(&i);
}

static void a_folder_says_it_itself(void **state) {
    (void)state;
    char folder[] = "/tmp/ndp_model_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *config = ndp_format("%s/config.json", folder);
    static const char *const texts[][2] = {{"{\"model_type\": \"zamba\"}", "model_type 'zamba' is not supported"},
                                           {"{}", "no \"model_type\""}};
    for (int k = 0; k < NDP_COUNT(texts); k++) {
        imported i;
        FILE *f = fopen(config, "w");
        fputs(texts[k][0], f);
        fclose(f);
        CHECK_FAILS(of(&i, folder, NULL), NDP_ENOTSUP, texts[k][1]);
        release(&i);
    }
    unlink(config);
    rmdir(folder);
    free(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_names_that_do_not_load_are_refused),
                                       cmocka_unit_test(known_names_that_load_say_nothing),
                                       cmocka_unit_test(unknown_names_get_a_note),
                                       cmocka_unit_test(force_and_set_continue),
                                       cmocka_unit_test(a_folder_says_it_itself),
                                       cmocka_unit_test(qlora_of_a_mixture_is_refused_here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
