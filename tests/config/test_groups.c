/* Entries of optimizer.groups: what they say, how they are written, and what is refused. */
#include "check.h"
#include "config/table.h"

#include <stdlib.h>

static ndp_update_entry entry(ndp_config *c, const char *groups) {
    ndp_strings params = {0};
    ndp_update_entry e;
    CHECK_OK(ndp_config_setf(c, "optimizer.groups=%s", groups));
    CHECK_OK(ndp_config_group(c, ndp_config_groups(c) - 1, &params, &e));
    assert_true(params.n > 0);
    ndp_strings_release(&params);
    return e;
}

/* What an entry does not state is as in the section; another optimizer begins with its own defaults. */
static void what_an_entry_says(void **state) {
    (void)state;
    ndp_config c;
    CHECK_OK(ndp_config_init(&c));
    CHECK_OK(ndp_config_set(&c, "optimizer.betas=[0.8, 0.9]"));
    CHECK_OK(ndp_config_set(&c, "optimizer.weight_decay=0.3"));
    ndp_update_entry e = entry(&c, "{params: q_proj, lr_scale: 0.5}");
    assert_true(e.lr_scale == 0.5 && !e.chosen && !e.decays && e.opts.name == NDP_ADAMW);
    assert_true(e.opts.betas[0] == 0.8 && e.opts.betas[1] == 0.9 && e.opts.weight_decay == 0.3);
    e = entry(&c, "[{params: [a]}, {params: [b, c], weight_decay: 0, optimizer: lion}]");
    assert_true(e.lr_scale == 1 && e.chosen && e.decays && e.opts.name == NDP_LION && e.opts.weight_decay == 0);
    assert_true(e.opts.betas[0] == 0.9 && e.opts.betas[1] == 0.99);
    e = entry(&c, "{params: [a], optimizer: muon}");
    assert_true(e.opts.momentum == 0.95 && e.opts.weight_decay == 0.3);
    e = entry(&c, "{params: [a], optimizer: sgd, momentum: 0.5}");
    assert_true(e.opts.name == NDP_SGD && e.opts.momentum == 0.5);
    e = entry(&c, "{params: [a], optimizer: adamw, betas: [0.5, 0.6]}");
    assert_true(e.chosen && e.opts.betas[0] == 0.5 && e.opts.betas[1] == 0.6);
    e = entry(&c, "{params: [a], optimizer: adamw}");
    assert_true(e.opts.betas[0] == 0.8); /* the section's own */
    ndp_config_release(&c);
}

/* LoRA+: the last group of the job, after the user's. */
static void the_rate_of_b_is_a_group(void **state) {
    (void)state;
    ndp_config c;
    ndp_strings params = {0};
    ndp_update_entry e;
    CHECK_OK(ndp_config_init(&c));
    assert_int_equal(ndp_config_groups(&c), 0);
    CHECK_OK(ndp_config_set(&c, "adapter.lr_ratio_b=16"));
    for (int own = 0; own < 2; own++) {
        assert_int_equal(ndp_config_groups(&c), own + 1);
        assert_string_equal(ndp_config_group_key(&c, own), "adapter.lr_ratio_b");
        CHECK_OK(ndp_config_group(&c, own, &params, &e));
        assert_true(e.lr_scale == 16 && !e.chosen && !e.decays && e.opts.weight_decay == c.optimizer.weight_decay);
        assert_string_equal(params.items[0], "lora_B");
        ndp_strings_release(&params);
        CHECK_OK(ndp_config_set(&c, "optimizer.groups=[{params: [q_proj]}]"));
    }
    assert_null(ndp_config_group_key(&c, 0));
    ndp_config_release(&c);
}

/* What is written reads back to the same, with the same meaning though all keys are given then. */
static void written_and_read(void **state) {
    (void)state;
    ndp_config c, again;
    ndp_str text = {0};
    char *value, *other;
    CHECK_OK(ndp_config_init(&c));
    CHECK_OK(ndp_config_init(&again));
    ndp_update_entry e = entry(&c, "[{optimizer: lion, params: ['*.bias', \"a: b\"]}, {params: x, lr_scale: 2.0e-1}]");
    CHECK_OK(ndp_config_get(&c, "optimizer.groups", &value));
    assert_string_equal(value, "[{params: [\"*.bias\", \"a: b\"], optimizer: lion}, {params: [\"x\"], lr_scale: 0.2}]");
    CHECK_OK(ndp_config_write(&c, &text));
    CHECK_OK(ndp_config_parse(&again, text.data, text.length, "job.yaml"));
    CHECK_OK(ndp_config_get(&again, "optimizer.groups", &other));
    assert_string_equal(value, other);
    for (int i = 0; i < 2; i++) {
        ndp_strings params[2] = {{0}};
        ndp_update_entry of[2];
        CHECK_OK(ndp_config_group(&c, i, &params[0], &of[0]));
        CHECK_OK(ndp_config_group(&again, i, &params[1], &of[1]));
        assert_true(of[0].opts.name == of[1].opts.name && of[0].opts.betas[1] == of[1].opts.betas[1]);
        ndp_strings_release(&params[0]);
        ndp_strings_release(&params[1]);
    }
    assert_true(e.lr_scale == 0.2);
    free(value);
    free(other);
    ndp_str_release(&text);
    ndp_config_release(&c);
    ndp_config_release(&again);
}

static void refusals(void **state) {
    (void)state;
    static const char *const of[][2] = {
        {"q_proj", "'optimizer.groups' is 'q_proj', expected {KEY: VALUE, ...}, or a list of these"},
        {"[{lr_scale: 2}]", "an entry of optimizer.groups has no params; expected {params: [NAME, ...]"},
        {"[{params: []}]", "has no params"},
        {"[{params: [a], lr_scale: -1}]", "'optimizer.groups.lr_scale' is '-1', expected a number in [0, inf)"},
        {"[{params: [a], weight_decay: x}]", "'optimizer.groups.weight_decay' is 'x', expected a number in [0, inf)"},
        {"[{params: [a], optimizer: adam}]",
         "'optimizer.groups.optimizer' is 'adam', expected adamw, adamw8bit, sgd, lion, muon or muon_spectral"},
        {"[{params: [a], lr: 1}]", "unknown key 'lr' in 'optimizer.groups'; known are params, lr_scale"},
        {"[{params: [a], lr_scle: 1}]", "unknown key 'lr_scle' in 'optimizer.groups'; did you mean 'lr_scale'?"}};
    ndp_config c;
    CHECK_OK(ndp_config_init(&c));
    for (int i = 0; i < NDP_COUNT(of); i++) {
        CHECK_FAILS(ndp_config_setf(&c, "optimizer.groups=%s", of[i][0]), NDP_EINVAL, of[i][1]);
        assert_int_equal(ndp_config_groups(&c), 0);
    }
    ndp_config_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_an_entry_says), cmocka_unit_test(the_rate_of_b_is_a_group),
                                       cmocka_unit_test(written_and_read), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
