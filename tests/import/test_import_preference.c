/* Axolotl's rl: dpo, ipo, orpo, simpo, and its types of preference data. */
#include "import/imported.h"

#include <stdio.h>

#define HEAD "base_model: m\nmax_steps: 9\nlearning_rate: 1e-5\n"
#define INTEL "datasets: [{path: a.jsonl, type: chatml.intel}]\n"

static void losses(void **state) {
    (void)state;
    static const struct {
        const char *text, *name, *variant, *beta, *gamma, *weight;
    } cases[] = {
        {"rl: dpo\n", "dpo", "sigmoid", "0.1", "0.5", "0"},
        {"rl: dpo\nrl_beta: 0.3\norpo_alpha: 0.2\n", "dpo", "sigmoid", "0.3", "0.5", "0"},
        {"rl: ipo\nrl_beta: 0.02\ntrl: {beta: 0.4}\n", "dpo", "ipo", "0.4", "0.5", "0"},
        {"rl: orpo\norpo_alpha: 0.2\nsimpo_gamma: 2\ncpo_alpha: 3\n", "orpo", "sigmoid", "0.2", "0.5", "1"},
        {"rl: simpo\nrl_beta: 2.5\nsimpo_gamma: 1.5\n", "simpo", "sigmoid", "2.5", "1.5", "1"},
        {"rl: simpo\ncpo_alpha: 0\n", "simpo", "sigmoid", "0.1", "0.5", "0"},
        {"rl: DPO\ndpo_label_smoothing: 0\ndpo_use_weighting: false\nrl_adapter_ref_model: true\n", "dpo", "sigmoid",
         "0.1", "0.5", "0"},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        imported i;
        char text[512];
        snprintf(text, sizeof text, HEAD INTEL "%s", cases[k].text);
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"data.format", "preference"}, {"loss.name", cases[k].name}, {"loss.variant", cases[k].variant},
                   {"loss.beta", cases[k].beta}, {"loss.gamma", cases[k].gamma}, {"loss.sft_weight", cases[k].weight},
                   {"data.packing", "false"}, {"data.train_on", "assistant"}, {"data.overlong", "drop"});
        CHECK_OK(ndp_config_check(&i.c));
        check_round_trip(&i);
        release(&i);
    }
}

/* KTO has weights of its own; without it they are not read. Its batches count answers. */
static void single_answers(void **state) {
    (void)state;
    imported i;
    static const char weights[] = "kto_desirable_weight: 0.2\nkto_undesirable_weight: 1.5\nmicro_batch_size: 3\n";
    for (int kto = 0; kto < 2; kto++) {
        char text[512];
        snprintf(text, sizeof text, HEAD INTEL "rl: %s\n%s", kto ? "kto" : "dpo", weights);
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"loss.name", kto ? "kto" : "dpo"}, {"loss.desirable_weight", kto ? "0.2" : "1"},
                   {"loss.undesirable_weight", kto ? "1.5" : "1"}, {"batch.micro_batch_size", kto ? "3" : "6"});
        CHECK_OK(ndp_config_check(&i.c));
        check_round_trip(&i);
        release(&i);
    }
}

/* Axolotl's batches count pairs. */
static void batches(void **state) {
    (void)state;
    imported i;
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    o.ranks = 4;
    CHECK_OK(
        import(&i, HEAD INTEL "rl: dpo\nmicro_batch_size: 3\ngradient_accumulation_steps: 2\nval_set_size: 0.1\n", &o));
    CHECK_KEYS(&i, {"batch.micro_batch_size", "6"}, {"batch.global_batch_size", "48"},
               {"parallelism.dp_replicate_size", "4"}, {"data.validation_fraction", "0.1"});
    CHECK_NOTES(&i, "batch sizes here count rows, of which a pair is two",
                "eval_loss is the mean over all held-out pairs");
    check_round_trip(&i);
    release(&i);
}

/* Of a reward model, whatever the order of the keys; without reward_model they say nothing. */
static void reward_models(void **state) {
    (void)state;
    static const char set[] = "datasets: [{path: a.jsonl, type: bradley_terry.chat_template, chat_template: gemma}]\n",
                      more[] = "model_type: AutoModelForSequenceClassification\nnum_labels: 1\nmicro_batch_size: 3\n";
    for (int after = 0; after < 2; after++)
        for (int center = 0; center < 2; center++) {
            imported i;
            char text[512];
            snprintf(text, sizeof text, HEAD "%s%s%s%s%s", after ? "" : "reward_model: true\n", set, more,
                     center ? "center_rewards_coefficient: 0.01\n" : "", after ? "reward_model: true\n" : "");
            CHECK_OK(import(&i, text, NULL));
            CHECK_KEYS(&i, {"data.format", "preference"}, {"loss.name", "reward"}, {"data.prompt_field", "\"input\""},
                       {"loss.center", center ? "0.01" : "0"}, {"data.chat_template", "\"gemma2\""},
                       {"batch.micro_batch_size", "6"}, {"data.packing", "false"});
            CHECK_NOTES(&i, "Axolotl writes an empty message of the system");
            CHECK_OK(ndp_config_check(&i.c));
            check_round_trip(&i);
            release(&i);
        }
    imported i;
    CHECK_OK(import(&i, HEAD INTEL "rl: dpo\nreward_model: false\ncenter_rewards_coefficient: 0.01\n", NULL));
    CHECK_KEYS(&i, {"loss.name", "dpo"}, {"loss.center", "0"});
    release(&i);
}

static void data(void **state) {
    (void)state;
    static const struct {
        const char *set, *prompt, *chosen, *template;
    } cases[] = {
        {"{path: a.jsonl, type: chatml.intel}", "\"question\"", "null", "\"chatml\""},
        {"{path: a.jsonl, type: chatml.icr}", "\"input\"", "null", "\"chatml\""},
        {"{path: a.jsonl, type: chatml.argilla}", "\"prompt\"", "null", "\"chatml\""},
        {"{path: a.jsonl, type: chatml.argilla_chat}", "\"instruction\"", "null", "\"chatml\""},
        {"{path: a.jsonl, type: llama3.prompt_pairs}", "\"prompt\"", "null", "\"llama3\""},
        {"{path: a.jsonl, type: llama3.ultra}", "\"prompt\"", "null", "\"llama3\""},
        {"{path: a.jsonl, type: chat_template.default, chat_template: gemma}", "\"messages\"", "null", "\"gemma2\""},
        {"{path: a.jsonl, type: chat_template.default, field_messages: conversation, field_chosen: good, "
         "field_rejected: bad, message_property_mappings: {role: speaker, content: says}}",
         "\"conversation\"", "\"good\"", "null"},
        {"{path: a.jsonl, type: chat_template.argilla}", "\"prompt\"", "null", "\"chatml\""},
        {"{path: a.jsonl, type: passthrough}", "\"instruction\"", "null", "null"},
        {"{path: a.jsonl}", "\"instruction\"", "null", "null"},
    };
    for (int k = 0; k < NDP_COUNT(cases); k++)
        for (int after = 0; after < 2; after++) { /* the order of the file's keys does not matter */
            imported i;
            char text[512];
            snprintf(text, sizeof text, HEAD "%sdatasets: [%s]\n%s", after ? "" : "rl: dpo\n", cases[k].set,
                     after ? "rl: dpo\n" : "");
            CHECK_OK(import(&i, text, NULL));
            CHECK_KEYS(&i, {"data.format", "preference"}, {"data.prompt_field", cases[k].prompt},
                       {"data.chosen_field", cases[k].chosen}, {"data.chat_template", cases[k].template},
                       {"data.files", "[\"a.jsonl\"]"});
            assert_true(!strstr(cases[k].set, "speaker") || strcmp(i.c.data.role_field, "speaker") == 0);
            check_round_trip(&i);
            release(&i);
        }
}

static void refusals(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"rl: ppo_vllm\n", "'rl: ppo_vllm': rewards are not supported; loss.name is one of: xent dpo orpo simpo kto"},
        {"rl: grpo\ntrl: {beta: 0.1, use_vllm: true}\n", "'rl: grpo': rewards are not supported"},
        {"rl: gdpo\n", "'rl: gdpo': rewards"},
        {"rl: ppo\n", "'rl: ppo': rewards"},
        {"process_reward_model: true\n", "'process_reward_model: true': rewards are not supported"},
        {"reward_model: true\nnum_labels: 2\n", "'num_labels: 2': a reward model has one label"},
        {"reward_model: true\nsample_packing: true\n", "'sample_packing: true': a document of preference data"},
        {"rl: dpo\ndpo_label_smoothing: 0.1\n", "'dpo_label_smoothing: 0.1': smoothed labels (cDPO) are not supported"},
        {"rl: dpo\ndpo_loss_type: [sigmoid, bco_pair]\n", "loss.variant is one of: sigmoid hinge ipo robust"},
        {"rl: dpo\nrpo_alpha: 1\n", "'rpo_alpha: 1': set loss.sft_weight"},
        {"rl: dpo\nsample_packing: true\n",
         "'sample_packing: true': a document of preference data has a row for itself"},
        {"rl: dpo\nrl_beta: 0\n", "'rl_beta' is '0', expected a number in (0, inf)"},
        {"rl: dpo\ndatasets: [{path: a.jsonl, type: zephyr.nectar}]\n",
         "types of preference data are chat_template.default"},
        {"rl: dpo\ndatasets: [{path: a.jsonl, type: {field_prompt: q}}]\n", "types of preference data are"},
        {"datasets: [{path: a.jsonl, type: chatml.intel}]\n", "supported types are alpaca"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        imported i;
        char text[512];
        snprintf(text, sizeof text, HEAD "%s", cases[k][0]);
        CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, cases[k][1]);
        release(&i);
    }
    static const char *const set[] = {"loss.variant=robust", "loss.label_smoothing=0.1"};
    ndp_import_opts o = NDP_IMPORT_OPTS_INIT;
    o.assignments = set;
    o.assignment_count = NDP_COUNT(set);
    imported i;
    CHECK_OK(import(&i, HEAD INTEL "rl: dpo\ndpo_label_smoothing: 0.1\n", &o));
    CHECK_KEYS(&i, {"loss.variant", "robust"}, {"loss.label_smoothing", "0.1"});
    check_round_trip(&i);
    release(&i);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses),  cmocka_unit_test(single_answers),
                                       cmocka_unit_test(batches), cmocka_unit_test(reward_models),
                                       cmocka_unit_test(data),    cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
