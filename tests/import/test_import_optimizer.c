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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(axolotl_adamw)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
