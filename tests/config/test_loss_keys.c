/* Preference data and its losses need each other: what is refused, and what is the default. */
#include "check.h"
#include "config/config.h"

#include <string.h>

static ndp_status parse(ndp_config *c, const char *text) { return ndp_config_parse(c, text, strlen(text), "job.yaml"); }

static void check_case(const char *text, const char *words) {
    ndp_config c;
    CHECK_OK(ndp_config_init(&c));
    CHECK_OK(parse(&c, text));
    if (words)
        CHECK_FAILS(ndp_config_check(&c), NDP_EINVAL, words);
    else
        CHECK_OK(ndp_config_check(&c));
    ndp_config_release(&c);
}

/* The loss of pairs and the data that it needs. */
static void preference_data_and_its_loss(void **state) {
    (void)state;
#define PAIRS "model: {path: x}\ndata: {files: a, format: preference}\nloss: "
    static const char *const cases[][2] = {
        {PAIRS "{name: dpo}", NULL},
        {PAIRS "{name: dpo, variant: robust, label_smoothing: 0.1, beta: 0.3}", NULL},
        {PAIRS "{name: dpo, variant: ipo, sft_weight: 0.5}", NULL},
        {PAIRS "{name: orpo, sft_weight: 0}", NULL},
        {PAIRS "{name: simpo, gamma: 1, label_smoothing: 0.1}", NULL},
        {PAIRS "{name: kto, desirable_weight: 0.5, undesirable_weight: 0}\nbatch: {global_batch_size: 3, "
               "micro_batch_size: 3}",
         NULL},
        {PAIRS "{name: kto}\nbatch: {global_batch_size: 1, micro_batch_size: 1}",
         "batch.global_batch_size is 1, but loss.name kto needs other answers in the update"},
        {PAIRS "{name: dpo, desirable_weight: 2}",
         "loss.desirable_weight is 2 and loss.undesirable_weight 1, which only loss.name kto reads; remove them"},
        {PAIRS "{name: kto, gamma: 1}", "loss.gamma is 1, which only loss.name simpo reads"},
        {PAIRS "{name: kto, variant: ipo}", "loss.variant is ipo, which loss.name kto does not have"},
        {PAIRS "{name: reward, center: 0.1}", NULL},
        {PAIRS "{name: dpo, center: 0.1}", "loss.center is 0.1, which only loss.name reward reads; remove it"},
        {PAIRS "{name: reward, beta: 0.3}", "loss.beta is 0.3 and loss.sft_weight 0, which loss.name reward does not"},
        {PAIRS "{name: reward, variant: ipo}", "loss.variant is ipo, which loss.name reward does not have"},
        {PAIRS "{name: xent}",
         "data.format is preference, but loss.name is xent, a loss of tokens; set loss: {name: dpo}, {name: orpo}"},
        {"model: {path: x}\ndata: {files: a, format: preference}", "loss.name is xent, a loss of tokens"},
        {"model: {path: x}\ndata: {files: a}\nloss: {name: dpo}",
         "loss.name is a loss of preference data, but data.format is not preference; set data.format: preference"},
        {"model: {path: x}\ndata: {files: a, format: messages}\nloss: {name: orpo}", "data.format is not preference"},
        {PAIRS "{name: orpo, variant: hinge}", "loss.variant is hinge, which loss.name orpo does not have"},
        {"model: {path: x}\ndata: {files: a}\nloss: {variant: ipo}",
         "loss.variant is ipo, which loss.name xent does not have; remove it"},
        {PAIRS "{name: dpo, label_smoothing: 0.1}",
         "loss.label_smoothing is 0.1, which only loss.name dpo (variant robust) or simpo reads; remove it"},
        {PAIRS "{name: orpo, label_smoothing: 0.1}", "loss.label_smoothing is 0.1"},
        {PAIRS "{name: dpo, gamma: 1}", "loss.gamma is 1, which only loss.name simpo reads"},
        {"model: {path: x}\ndata: {files: a}\nloss: {sft_weight: 1}", "loss.sft_weight is 1, but loss.name is xent"},
        {PAIRS "{name: dpo}\nbatch: {micro_batch_size: 3}", "batch.micro_batch_size is 3, but a pair is two rows, "
                                                            "which stay together; set it to an even number, such as 4"},
        {PAIRS "{name: dpo}\nbatch: {global_batch_size: 7}",
         "batch.global_batch_size is 7 rows, but a pair is two rows; set it to an even number, such as 8"},
        {"model: {path: x}\ndata: {files: a, format: preference, packing: true}\nloss: {name: dpo}",
         "data.packing is true, but a document of preference data has a row for itself"},
        {"model: {path: x}\ndata: {files: a, format: preference, overlong: cut}\nloss: {name: dpo}",
         "data.overlong is cut, but a document of preference data is one row; set data.overlong: truncate"},
        {"model: {path: x}\ndata: {files: a, format: preference, train_on: all}\nloss: {name: dpo}",
         "data.train_on is all, but of preference data the answers are compared"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++)
        check_case(cases[i][0], cases[i][1]);
}

/* What preference data changes in the defaults, wherever in the file it is said. */
static void defaults_of_preference_data(void **state) {
    ndp_config whole, *c = &whole;
    (void)state;
    CHECK_OK(ndp_config_init(c));
    CHECK_OK(parse(c, "loss: {name: orpo}\ndata: {format: preference}"));
    assert_true(!c->data.packing && c->data.overlong == NDP_OVERLONG_TRUNCATE && c->batch.micro_batch_size == 2);
    assert_true(c->loss.sft_weight == 1);
    CHECK_OK(ndp_config_set(c, "loss.name=dpo"));
    assert_true(c->loss.sft_weight == 0);
    CHECK_OK(ndp_config_set(c, "data.format=auto"));
    assert_true(c->data.packing && c->data.overlong == NDP_OVERLONG_AUTO && c->batch.micro_batch_size == 1);
    CHECK_OK(parse(c, "loss: {name: orpo}\ndata: {format: preference, overlong: auto}"));
    assert_true(c->data.overlong == NDP_OVERLONG_TRUNCATE);
    CHECK_OK(parse(c, "loss: {name: orpo, sft_weight: 0.5}\ndata: {format: preference, overlong: drop}\nbatch: "
                      "{micro_batch_size: 4}"));
    assert_true(c->loss.sft_weight == 0.5 && c->data.overlong == NDP_OVERLONG_DROP && c->batch.micro_batch_size == 4);
    ndp_preference p = ndp_config_preference(c);
    assert_true(p.sft_weight == 0.5 && strcmp(ndp_preference_table[p.kind].name, "orpo") == 0);
    ndp_config_release(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(preference_data_and_its_loss),
                                       cmocka_unit_test(defaults_of_preference_data)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
