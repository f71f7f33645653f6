/* Keys that follow from the optimizer: which of them it reads, and its own defaults of some. */
#include "check.h"
#include "config/config.h"

#include <string.h>

static ndp_status parse(ndp_config *c, const char *text) { return ndp_config_parse(c, text, strlen(text), "job.yaml"); }

/* What the table of optimizers says is what the options say: names, and keys that only some of them read. */
static void optimizers_have_their_options(void **state) {
    ndp_config whole, *c = &whole;
    (void)state;
    CHECK_OK(ndp_config_init(c));
    ndp_str help = {0};
    ndp_config_help(&help);
    for (int i = 0; i < NDP_OPTIMIZER_COUNT; i++) {
        const ndp_optimizer *o = ndp_optimizers[i];
        char line[64], *value;
        CHECK_OK(ndp_config_setf(c, "optimizer.name=%s", o->name));
        assert_int_equal(c->optimizer.name, i);
        CHECK_FAILS(ndp_config_set(c, "optimizer.name=adam"), NDP_EINVAL, o->name);
        for (int k = 0; k < NDP_OPTIMIZER_OPTIONS && o->reads[k].key; k++) {
            snprintf(line, sizeof line, "optimizer.%s", o->reads[k].key);
            CHECK_OK(ndp_config_get(c, line, &value));
            if (o->reads[k].value)
                assert_string_equal(value, o->reads[k].value);
            free(value);
            snprintf(line, sizeof line, "\n  %-22s ", o->reads[k].key);
            const char *at = strstr(help.data, line), *named = at ? strstr(at, o->name) : NULL;
            if (!named || named > strchr(at + 1, '\n'))
                fail_msg("help of optimizer.%s does not name %s", o->reads[k].key, o->name);
        }
    }
    ndp_str_release(&help);
    ndp_config_release(c);
}

/* Lion's betas, and Muon's momentum, are its own unless they are given: in a file or by --set, before the name or after
 * it. */
static void options_follow_the_optimizer(void **state) {
    (void)state;
    static const struct {
        const char *file, *sets[2], *value; /* in brackets: betas, else momentum */
    } cases[] = {
        {"optimizer: {lr: 1}", {0}, "[0.9, 0.95]"},
        {"optimizer: {name: sgd}", {0}, "[0.9, 0.95]"},
        {"optimizer: {name: lion}", {0}, "[0.9, 0.99]"},
        {"optimizer: {name: lion, betas: [0.5, 0.6]}", {0}, "[0.5, 0.6]"},
        {"optimizer: {betas: [0.5, 0.6], name: lion}", {0}, "[0.5, 0.6]"},
        {"optimizer: {name: lion, betas: [0.9, 0.95]}", {0}, "[0.9, 0.95]"},
        {"optimizer: {name: adamw}", {"optimizer.name=lion"}, "[0.9, 0.99]"},
        {"optimizer: {name: lion}", {"optimizer.name=adamw"}, "[0.9, 0.95]"},
        {"optimizer: {betas: [0.5, 0.6]}", {"optimizer.name=lion"}, "[0.5, 0.6]"},
        {"optimizer: {lr: 1}", {"optimizer.betas=[0.5, 0.6]", "optimizer.name=lion"}, "[0.5, 0.6]"},
        {"optimizer: {lr: 1}", {"optimizer.name=lion", "optimizer.betas=[0.5, 0.6]"}, "[0.5, 0.6]"},
        {"optimizer: {lr: 1}", {"optimizer.name=lion", "optimizer.lr=2"}, "[0.9, 0.99]"},
        {"optimizer: {name: muon}", {0}, "0.95"},
        {"optimizer: {name: muon, momentum: 0.8}", {0}, "0.8"},
        {"optimizer: {name: lion}", {"optimizer.name=muon"}, "0.95"},
        {"optimizer: {name: muon}", {"optimizer.name=sgd"}, "0"},
        {"optimizer: {momentum: 0.7}", {"optimizer.name=muon"}, "0.7"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_config c, back;
        ndp_str text = {0};
        const char *key = cases[i].value[0] == '[' ? "optimizer.betas" : "optimizer.momentum";
        char *value, *again;
        CHECK_OK(ndp_config_init(&c));
        CHECK_OK(parse(&c, cases[i].file));
        for (int k = 0; k < 2 && cases[i].sets[k]; k++)
            CHECK_OK(ndp_config_set(&c, cases[i].sets[k]));
        CHECK_OK(ndp_config_get(&c, key, &value));
        if (strcmp(value, cases[i].value) != 0)
            fail_msg("case %d: %s is %s, expected %s", i, key, value, cases[i].value);
        CHECK_OK(ndp_config_write(&c, &text));
        CHECK_OK(ndp_config_init(&back));
        CHECK_OK(parse(&back, text.data));
        CHECK_OK(ndp_config_get(&back, key, &again));
        assert_string_equal(again, value);
        free(again);
        free(value);
        ndp_str_release(&text);
        ndp_config_release(&back);
        ndp_config_release(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(optimizers_have_their_options),
                                       cmocka_unit_test(options_follow_the_optimizer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
