#include "import/imported.h"

/* Optimizers with states of 8 bits, and those that page their states, which changes no number. */
static void axolotl_adamw(void **state) {
    (void)state;
    static const char paged[] = ": nothing is paged; the states stay in memory, and `plan` shows how much they take\n";
    static const struct {
        const char *word, *name, *note; /* note NULL: none */
    } cases[] = {{"adamw_torch", "adamw", NULL},
                 {"adamw_torch_fused", "adamw", NULL},
                 {"adamw_hf", "adamw", NULL},
                 {"paged_adamw_32bit", "adamw", paged},
                 {"adamw_bnb_8bit", "adamw8bit", NULL},
                 {"adamw_8bit", "adamw8bit", NULL},
                 {"paged_adamw_8bit", "adamw8bit", paged},
                 {"adamw_torch_8bit", "adamw8bit", "blocks and codes are torchao's; states of embeddings are fp32\n"},
                 {"paged_lion_32bit", "lion", paged},
                 {"sgd", "sgd", NULL}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        char text[512];
        imported i;
        snprintf(text, sizeof text,
                 "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\noptimizer: %s\n"
                 "adam_beta2: 0.95\n",
                 cases[k].word);
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"optimizer.name", cases[k].name}, {"optimizer.betas", "[0.9, 0.95]"});
        assert_non_null(strstr(i.job, cases[k].name));
        if (cases[k].note)
            CHECK_NOTES(&i, cases[k].note);
        else
            assert_null(strstr(i.notes, "optimizer.name"));
        check_round_trip(&i);
        release(&i);
    }
}

/* Rates of their own, as Axolotl's OptimizerMixin gives them: of embeddings and heads, without weight decay; of
 * modules. */
static void axolotl_rates(void **state) {
    (void)state;
    static const char lora[] = "adapter: lora\nlora_target_linear: true\n";
    static const struct {
        const char *keys, *before, *groups, *ratio, *note; /* note NULL: none */
    } cases[] = {{"embedding_lr: 1.0e-4\n", "",
                  "[{params: [\"embed_tokens\", \"lm_head\"], lr_scale: 0.1, weight_decay: 0}]", "1", NULL},
                 {"embedding_lr: 1.0e-4\nembedding_lr_scale: 0.5\n", "",
                  "[{params: [\"embed_tokens\", \"lm_head\"], lr_scale: 0.5, weight_decay: 0}]", "1", NULL},
                 {"lr_groups:\n  - {name: a, modules: [q_proj, o_proj], lr: 5.0e-4}\n  - {name: b, modules: [mlp], lr: "
                  "2.0e-3}\n",
                  "",
                  "[{params: [\"embed_tokens\", \"lm_head\"], lr_scale: 1, weight_decay: 0}, "
                  "{params: [\"*q_proj*.weight\", \"*o_proj*.weight\"], lr_scale: 0.5}, "
                  "{params: [\"*mlp*.weight\"], lr_scale: 2}]",
                  "1", "lr_groups: norms of these modules have the rate too"},
                 {"embedding_lr: 1.0e-4\n", lora, "[]", "1", NULL}, /* no embedding is trained */
                 {"embedding_lr: 1.0e-4\nlora_modules_to_save: [lm_head]\n", lora,
                  "[{params: [\"lm_head\"], lr_scale: 0.1, weight_decay: 0}]", "1", NULL},
                 {"loraplus_lr_ratio: 16\nloraplus_lr_embedding: 1.0e-6\nembedding_lr: 1.0e-4\n", lora, "[]", "16",
                  "loraplus_lr_ratio: with it, Axolotl reads no other rates"}};
    for (int k = 0; k < NDP_COUNT(cases); k++) {
        imported i;
        char text[700];
        snprintf(
            text, sizeof text,
            "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\nlearning_rate: 1.0e-3\n%s%s",
            cases[k].before, cases[k].keys);
        CHECK_OK(import(&i, text, NULL));
        CHECK_KEYS(&i, {"optimizer.groups", cases[k].groups}, {"adapter.lr_ratio_b", cases[k].ratio});
        if (cases[k].note)
            CHECK_NOTES(&i, cases[k].note);
        check_round_trip(&i);
        release(&i);
    }
}

static void axolotl_groups_are_checked(void **state) {
    (void)state;
    static const char *const of[][2] = {
        {"lr_groups: [{name: a, lr: 1.0e-3}]\n",
         "'lr_groups': expected {name: NAME, modules: [PART, ...], lr: NUMBER}"},
        {"lr_groups: [{name: a, modules: [x]}]\n", "expected {name: NAME, modules"},
        {"lr_groups: [a]\n", "lr_groups"},
        {"embedding_lr: 1.0e-4\nlearning_rate: 0\n", "rates of groups are multiples of it"}};
    for (int k = 0; k < NDP_COUNT(of); k++) {
        imported i;
        char text[400];
        snprintf(text, sizeof text, "base_model: m\ndatasets: [{path: a.jsonl, type: completion}]\nmax_steps: 9\n%s",
                 of[k][0]);
        CHECK_FAILS(import(&i, text, NULL), NDP_EINVAL, of[k][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(axolotl_adamw), cmocka_unit_test(axolotl_rates),
                                       cmocka_unit_test(axolotl_groups_are_checked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
