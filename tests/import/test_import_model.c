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
        {"ISTA-DASLab/Meta-Llama-3-8B-Instruct-AQLM-2Bit-1x16", "its weights are packed in a form that is not read"},
        {"TheBloke/Llama-2-7B-GPTQ", "its weights are packed in a form that is not read"},
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

#define QLORA(model, target)                                                                                           \
    "base_model: " model "\nadapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\n"                          \
    "lora_target_modules: [o_proj, " target "]" REST

/* Whose experts are stored as the rest. */
static void qlora_of_a_mixture(void **state) {
    (void)state;
    imported i;
    CHECK_OK(import(&i, QLORA("mistralai/Mixtral-8x7B-v0.1", "k_proj"), NULL));
    CHECK_KEYS(&i, {"adapter.type", "qlora"}, {"adapter.base", "nf4"});
    CHECK_NOTES(&i,
                "quantize_moe_experts (line 4): adapter.base stores the projections of layers, those of experts too");
    release(&i);
    /* A job that `plan` would refuse is no import. */
    CHECK_FAILS(import(&i, QLORA("zai-org/GLM-4.7-Flash", "k_proj"), NULL), NDP_EINVAL,
                "'lora_target_modules: k_proj': the model has kv_a_proj_with_mqa and kv_b_proj instead, and PEFT");
    release(&i);
    CHECK_FAILS(import(&i, QLORA("Qwen/Qwen3-Next-80B-A3B", "shared_expert_gate"), NULL), NDP_EINVAL,
                "'lora_target_modules: shared_expert_gate': the gate of a shared expert has no factors");
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

static const char chat[] = "{\"eos_token\": {\"content\": \"</s>\"}, \"bos_token\": \"<s>\", \"unk_token\": null}",
                  vocab[] = "{\"added_tokens\": [{\"content\": \"<|im_end|>\"}, {\"content\": \"<s>\"}],"
                            " \"model\": {\"vocab\": {\"</s>\": 0, \"word\": 1}}}";

static char *write_into(const char *folder, const char *name, const char *text) {
    char *path = ndp_format("%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
    return path;
}

/* Equal to the tokenizer's own: nothing. Another that it has: the end token. None that it lacks. */
static void tokens_are_looked_up(void **state) {
    (void)state;
    static const struct {
        const char *keys, *end_token, *refused;
    } cases[] = {
        {"special_tokens: {eos_token: </s>, bos_token: <s>, unk_token: word, pad_token: x}", "\"auto\"", NULL},
        {"special_tokens: {eos_token: <|im_end|>}", "\"<|im_end|>\"", NULL},
        {"tokens: {eos_token: </s>, bos_token: <s>}", "\"auto\"", NULL},
        {"tokens: [<|im_end|>, word]", "\"auto\"", NULL},
        {"special_tokens: {eos_token: <|eot|>}", NULL,
         "'special_tokens.eos_token: <|eot|>': the tokenizer has no such token, and none is added"},
        {"special_tokens: {bos_token: word}", NULL, "'special_tokens.bos_token: word': not the tokenizer's own"},
        {"tokens: [<|new|>]", NULL, "'tokens: <|new|>': the tokenizer has no such token"},
        {"special_tokens: {additional_special_tokens: [<|new|>]}", NULL, "the tokenizer has no such token"}};
    char folder[] = "/tmp/ndp_tokens_XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *paths[] = {write_into(folder, "tokenizer_config.json", chat), write_into(folder, "tokenizer.json", vocab)};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char *text = ndp_format("base_model: %s\n%s" REST, folder, cases[k].keys);
        imported i;
        if (cases[k].refused)
            CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, cases[k].refused);
        else {
            CHECK_OK(import(&i, text, NULL));
            CHECK_KEYS(&i, {"data.end_token", cases[k].end_token});
            check_round_trip(&i);
        }
        release(&i);
        free(text);
    }
    for (int k = 0; k < NDP_COUNT(paths); k++) {
        unlink(paths[k]);
        free(paths[k]);
    }
    rmdir(folder);
}

static void what_else_a_model_has(void **state) {
    (void)state;
    static const struct {
        const char *keys, *ours, *value, *note;
    } cases[] = {
        {"special_tokens: {eos_token: </s>}", "data.end_token", "\"</s>\"",
         "a run stops at its start if the tokenizer"},
        {"special_tokens: {bos_token: <s>}", "data.end_token", "\"auto\"", "not checked: bos_token <s> has to be"},
        {"revision_of_model: v1", "model.path", "\"org/m@v1\"", "org/m@v1"},
        {"reinit_weights: true", "model.init", "random", ""},
        {"model_config: {output_router_logits: true}", "moe.balance", "sequence", "moe.balance sequence: "},
        {"model_config: {output_router_logits: false}", "moe.balance", "none", ""},
        {"unfrozen_parameters: [model.language_model.*, lm_head.*]", "model.frozen", "[]", ""},
        {"unfrozen_parameters: ['model.*', lm_head]", "model.frozen", "[]", ""},
        {"unfrozen_parameters: ['^lm_head.weight$', 'model.layers.4[4-9]+.mlp.gate']", "model.trained",
         "[\"regex:(?:^lm_head\\\\.weight$).*\", \"regex:(?:model\\\\.layers\\\\.4[4-9]+\\\\.mlp\\\\.gate).*\"]", ""},
        {"use_eaft: true\neaft_alpha: 0.5", "loss.token_weight", "entropy", ""},
        {"use_eaft: true\neaft_k: 30", "loss.entropy_k", "30", ""},
        {"use_eaft: false\neaft_k: 30", "loss.entropy_k", "20", ""},
        {"unfrozen_parameters: [model.norm]\nadapter: lora\nlora_target_linear: true", "adapter.type", "lora",
         "unfrozen_parameters: beside an adapter, its factors alone are trained"},
        {"optimizer: adamw_torch_4bit", "optimizer.name", "adamw8bit", "states of 8 bits, where torchao's have 4"},
        {"lr_quadratic_warmup: true\nlr_scheduler: linear", "schedule.name", "linear", ""},
        {"model_quantization_config: Mxfp4Config", "model.init", "pretrained", "are dequantised where they are read"},
        {"plugins: [axolotl.integrations.swanlab.SwanLabPlugin]", "train.trackers", "[]", "a tracker; metrics are in"},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char *text = ndp_format("base_model: org/m\n%s" REST, cases[k].keys);
        imported i;
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {cases[k].ours, cases[k].value});
        CHECK_NOTES(&i, cases[k].note);
        check_round_trip(&i);
        release(&i);
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_names_that_do_not_load_are_refused),
                                       cmocka_unit_test(known_names_that_load_say_nothing),
                                       cmocka_unit_test(unknown_names_get_a_note),
                                       cmocka_unit_test(force_and_set_continue),
                                       cmocka_unit_test(a_folder_says_it_itself),
                                       cmocka_unit_test(tokens_are_looked_up),
                                       cmocka_unit_test(what_else_a_model_has),
                                       cmocka_unit_test(qlora_of_a_mixture)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
