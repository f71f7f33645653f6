/* adapter_config.json: what PEFT writes is read, what is written is read again as the same, and every key that would
 * change numbers is refused by name. */
#include "weights/adapter_config.h"

#include "check.h"
#include "checkpoint/files.h"
#include <math.h>

static ndp_status parse(const char *text, ndp_adapter_config *out) {
    return ndp_adapter_config_parse(text, strlen(text), "file", out);
}

/* PEFT 0.21. */
static const char whole[] =
    "{\"alora_invocation_tokens\": null, \"alpha_pattern\": {}, \"arrow_config\": null, \"auto_mapping\": null,"
    "\"base_model_name_or_path\": \"org/base\", \"bias\": \"none\", \"corda_config\": null, \"ensure_weight_tying\": "
    "true, \"eva_config\": null, \"exclude_modules\": null, \"fan_in_fan_out\": true, \"inference_mode\": true, "
    "\"init_lora_weights\": true, \"kasa_config\": null, \"layer_replication\": null, \"layers_pattern\": null, "
    "\"layers_to_transform\": null, \"loftq_config\": {}, \"lora_alpha\": 32, \"lora_bias\": false, \"lora_dropout\": "
    "0.05, \"lora_ga_config\": null, \"megatron_config\": null, \"megatron_core\": \"megatron.core\", "
    "\"modules_to_save\": [\"embed_tokens\", \"lm_head\"], \"monteclora_config\": null, \"peft_type\": \"LORA\", "
    "\"peft_version\": \"0.21.2\", \"qalora_group_size\": 16, \"r\": 16, \"rank_pattern\": {}, \"revision\": null, "
    "\"target_modules\": [\"q_proj\", \"mlp.down_proj\"], \"target_parameters\": [\"mlp.up_proj.weight\"], "
    "\"task_type\": \"CAUSAL_LM\", \"trainable_token_indices\": null, \"use_bdlora\": null, \"use_dora\": true, "
    "\"use_qalora\": false, "
    "\"use_rslora\": true, \"velora_config\": null}";

static void check_whole(const ndp_adapter_config *c) {
    assert_int_equal(c->r, 16);
    assert_true(c->alpha == 32 && c->dropout == 0.05);
    assert_true(c->rslora && c->form == NDP_DORA && c->fan_in_fan_out && c->tied);
    assert_string_equal(c->base, "org/base");
    assert_null(c->pattern);
    assert_int_equal(c->targets.n, 2);
    assert_string_equal(c->targets.items[0], "q_proj");
    assert_string_equal(c->targets.items[1], "mlp.down_proj");
    assert_int_equal(c->parameters.n, 1);
    assert_string_equal(c->parameters.items[0], "mlp.up_proj.weight");
    assert_int_equal(c->save.n, 2);
    assert_string_equal(c->save.items[1], "lm_head");
    assert_true(ndp_adapter_config_scale(c) == 8);
}

static void what_peft_writes_is_read(void **state) {
    (void)state;
    ndp_adapter_config c;
    CHECK_OK(parse(whole, &c));
    check_whole(&c);
    ndp_adapter_config_release(&c);
    CHECK_OK(parse("{\"peft_type\": \"LORA\"}", &c)); /* PEFT's defaults */
    assert_true(c.r == 8 && c.alpha == 8 && c.dropout == 0 && !c.rslora && c.form == NDP_LORA && !c.fan_in_fan_out &&
                !c.tied);
    assert_true(!c.base && !c.pattern && c.targets.n == 0 && c.parameters.n == 0 && c.save.n == 0);
    ndp_adapter_config_release(&c);
    CHECK_OK(parse("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6, \"target_modules\": \"all-linear\"}", &c));
    assert_string_equal(c.pattern, "all-linear");
    assert_true(ndp_adapter_config_scale(&c) == 1.5);
    assert_false(ndp_adapter_config_targets(&c, "q_proj"));
    ndp_adapter_config_release(&c);
}

static void what_is_written_is_read_again(void **state) {
    (void)state;
    char folder[] = "/tmp/ndp-adapter-XXXXXX";
    ndp_adapter_config c, again;
    assert_non_null(mkdtemp(folder));
    CHECK_OK(parse(whole, &c));
    CHECK_OK(ndp_adapter_config_write(&c, folder));
    CHECK_OK(ndp_adapter_config_read(folder, &again));
    check_whole(&again);
    ndp_adapter_config_release(&again);
    ndp_str text = {0};
    ndp_adapter_config_text(&c, &text);
    assert_non_null(strstr(text.data, "\"lora_alpha\":32,"));
    assert_non_null(strstr(text.data, "\"lora_dropout\":0.05,"));
    assert_non_null(strstr(text.data, "\"task_type\":\"CAUSAL_LM\""));
    ndp_str_release(&text);
    ndp_adapter_config_release(&c);
    CHECK_OK(ndp_folder_remove(folder));
    CHECK_FAILS(ndp_adapter_config_read(folder, &c), NDP_EINVAL, "adapter_config.json");
}

static void names_of_modules(void **state) {
    (void)state;
    ndp_adapter_config c;
    CHECK_OK(parse("{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\", \"mlp.c_proj\", \"model.norm\"], "
                   "\"target_parameters\": [\"mlp.up_proj.weight\"], \"modules_to_save\": [\"norm\"]}",
                   &c));
    assert_true(ndp_adapter_config_targets(&c, "model.layers.0.self_attn.q_proj"));
    assert_true(ndp_adapter_config_targets(&c, "q_proj"));
    assert_false(ndp_adapter_config_targets(&c, "model.layers.0.self_attn.eq_proj"));
    assert_false(ndp_adapter_config_targets(&c, "q_proj.lora"));
    assert_true(ndp_adapter_config_targets(&c, "transformer.h.0.mlp.c_proj"));
    assert_false(ndp_adapter_config_targets(&c, "transformer.h.0.attn.c_proj"));
    assert_true(ndp_adapter_config_targets(&c, "model.norm"));
    assert_true(ndp_adapter_config_targets(&c, "model.layers.0.mlp.up_proj"));
    assert_false(ndp_adapter_config_targets(&c, "model.layers.0.mlp.experts.0.up_proj"));
    assert_true(ndp_adapter_config_saves(&c, "model.norm"));
    assert_true(ndp_adapter_config_saves(&c, "model.layers.0.input_layernorm"));
    assert_false(ndp_adapter_config_saves(&c, "model.norm.weight"));
    ndp_adapter_config_release(&c);
}

/* The module of all stacks is wrapped once for each that has factors, and down_proj's are outside. */
static void names_of_stacks(void **state) {
    static const char module[] = "model.layers.0.mlp.experts", inner[] = "model.layers.0.mlp.experts.base_layer";
    static const struct {
        const char *parameters, *of_module, *of_inner; /* the stacks; NULL: none */
    } cases[] = {{"\"mlp.experts.gate_up_proj\", \"mlp.experts.down_proj\"", "down_proj", "gate_up_proj"},
                 {"\"down_proj\"", "down_proj", NULL},
                 {"\"experts.gate_up_proj\"", "gate_up_proj", NULL},
                 {"\"experts.0.gate_up_proj\", \"w\"", NULL, NULL},
                 {"\"mlp.down_proj.weight\"", NULL, NULL}};
    (void)state;
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char text[200], stack[NDP_MODULE_NAME];
        ndp_adapter_config c;
        snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", \"target_parameters\": [%s]}", cases[i].parameters);
        CHECK_OK(parse(text, &c));
        assert_true(ndp_adapter_config_stack(&c, module, stack) == (cases[i].of_module != NULL));
        if (cases[i].of_module)
            assert_string_equal(strrchr(stack, '.') + 1, cases[i].of_module);
        assert_true(ndp_adapter_config_stack(&c, inner, stack) == (cases[i].of_inner != NULL));
        if (cases[i].of_inner)
            assert_string_equal(stack, "model.layers.0.mlp.experts.gate_up_proj");
        ndp_adapter_config_release(&c);
    }
}

#define WITH(more) "{\"peft_type\": \"LORA\", " more "}"

static void what_changes_numbers_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {WITH("\"rank_pattern\": {\"q_proj\": 4}"), "file: \"rank_pattern\": {\"q_proj\":4} is not supported: all"},
        {WITH("\"alpha_pattern\": {\"q_proj\": 4}"), "\"alpha_pattern\": {\"q_proj\":4} is not supported"},
        {WITH("\"lora_bias\": true"), "\"lora_bias\": true is not supported"},
        {WITH("\"bias\": \"all\""), "file: \"bias\": \"all\" is not supported"},
        {WITH("\"layers_to_transform\": [0, 1]"), "\"layers_to_transform\": [0,1] is not supported"},
        {WITH("\"layers_to_transform\": 0"), "\"layers_to_transform\": 0 is not supported"},
        {WITH("\"layer_replication\": [[0, 2]]"), "\"layer_replication\": [[0,2]] is not supported"},
        {WITH("\"exclude_modules\": \"lm_head\""), "\"exclude_modules\": \"lm_head\" is not supported"},
        {WITH("\"trainable_token_indices\": [7]"), "\"trainable_token_indices\": [7] is not supported"},
        {WITH("\"use_qalora\": true"), "\"use_qalora\": true is not supported"},
        {WITH("\"megatron_config\": {\"a\": 1}"), "\"megatron_config\": {\"a\":1} is not supported"},
        {WITH("\"loftq_config\": {\"bits\": 4}"), "\"loftq_config\": {\"bits\":4} is not supported"},
        {WITH("\"corda_config\": {\"verbose\": false}"), "\"corda_config\": {\"verbose\":false} is not supported"},
        {WITH("\"eva_config\": {\"rho\": 2.0}"), "\"eva_config\": {\"rho\":2.0} is not supported"},
        {WITH("\"lora_ga_config\": {\"scale\": \"unit\"}"), "\"lora_ga_config\": {\"scale\":\"unit\"} is not"},
        {WITH("\"arrow_config\": {\"top_k\": 3}"), "\"arrow_config\": {\"top_k\":3} is not supported"},
        {WITH("\"alora_invocation_tokens\": [1, 2]"), "\"alora_invocation_tokens\": [1,2] is not supported"},
        {WITH("\"use_bdlora\": {\"nblocks\": 2}"), "\"use_bdlora\": {\"nblocks\":2} is not supported"},
        {WITH("\"kasa_config\": {\"beta\": 0.1}"), "\"kasa_config\": {\"beta\":0.1} is not supported"},
        {WITH("\"monteclora_config\": {\"n\": 1}"), "\"monteclora_config\": {\"n\":1} is not supported"},
        {WITH("\"velora_config\": {\"n\": 1}"), "\"velora_config\": {\"n\":1} is not supported"},
        {WITH("\"init_lora_weights\": \"pissa_niter_16\""), "\"init_lora_weights\": \"pissa_niter_16\" is not"},
        {WITH("\"init_lora_weights\": \"olora\""), "\"init_lora_weights\": \"olora\" is not supported: it changes"},
        {WITH("\"init_lora_weights\": \"corda\""), "\"init_lora_weights\": \"corda\" is not supported"},
        {WITH("\"init_lora_weights\": \"loftq\""), "\"init_lora_weights\": \"loftq\" is not supported"},
        {WITH("\"later_key\": 1"), "file: \"later_key\": 1 is not known here"},
        {WITH("\"later_key\": {\"a\": null}"), "\"later_key\": {\"a\":null} is not known here"},
        {"{\"peft_type\": \"IA3\"}", "file: \"peft_type\": \"IA3\" is not supported; only LORA is"},
    };
    ndp_adapter_config c;
    for (int i = 0; i < NDP_COUNT(cases); i++)
        CHECK_FAILS(parse(cases[i].text, &c), NDP_ENOTSUP, cases[i].words);
}

static void what_asks_for_nothing_is_accepted(void **state) {
    (void)state;
    static const char *const texts[] = {
        WITH("\"later_key\": null"),
        WITH("\"later_key\": false, \"another\": {}, \"third\": [], \"fourth\": \"\""),
        WITH("\"rank_pattern\": null, \"alpha_pattern\": null, \"loftq_config\": null, \"bias\": \"none\""),
        WITH("\"init_lora_weights\": \"gaussian\""),
        WITH("\"init_lora_weights\": \"orthogonal\""),
        WITH("\"init_lora_weights\": false"),
        WITH("\"revision\": \"v2\", \"inference_mode\": false, \"auto_mapping\": {\"a\": 1}, \"task_type\": null"),
        WITH("\"target_modules\": null, \"modules_to_save\": []"),
        WITH("\"runtime_config\": {\"ephemeral_gpu_offload\": false}, \"layers_pattern\": \"layers\""),
    };
    ndp_adapter_config c;
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        CHECK_OK(parse(texts[i], &c));
        ndp_adapter_config_release(&c);
    }
}

static void bad_values(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"[]", "file: not an object"},
        {"{}", "file: there is no \"peft_type\""},
        {"{\"peft_type\": 1}", "\"peft_type\" is 1, expected a string"},
        {WITH("\"r\": 0"), "file: \"r\" is 0, expected a whole number from 1 to 65536"},
        {WITH("\"r\": -1"), "\"r\" is -1, expected a whole number"},
        {WITH("\"r\": 65537"), "\"r\" is 65537"},
        {WITH("\"r\": 1.5"), "\"r\" is 1.5"},
        {WITH("\"r\": \"8\""), "\"r\" is \"8\""},
        {WITH("\"lora_alpha\": \"16\""), "\"lora_alpha\" is \"16\", expected a number"},
        {WITH("\"lora_alpha\": NaN"), "\"lora_alpha\" is not a finite number"},
        {WITH("\"lora_alpha\": -Infinity"), "\"lora_alpha\" is not a finite number"},
        {WITH("\"lora_dropout\": 1"), "\"lora_dropout\" is 1, expected a number from 0 to below 1"},
        {WITH("\"lora_dropout\": -0.1"), "\"lora_dropout\" is -0.1"},
        {WITH("\"lora_dropout\": NaN"), "\"lora_dropout\" is nan"},
        {WITH("\"use_dora\": 1"), "\"use_dora\" is 1, expected true or false"},
        {WITH("\"target_modules\": [1]"), "\"target_modules\" is [1], expected a list of names of modules"},
        {WITH("\"target_modules\": {\"a\": 1}"), "\"target_modules\" is {\"a\":1}"},
        {WITH("\"target_modules\": [\"\"]"), "\"target_modules\" is [\"\"]"},
        {WITH("\"target_modules\": [\"q\\u0000\"]"), "\"target_modules\" is "},
        {WITH("\"modules_to_save\": \"lm_head\""), "\"modules_to_save\" is \"lm_head\", expected a list"},
        {WITH("\"base_model_name_or_path\": 5"), "\"base_model_name_or_path\" is 5, expected a string"},
        {"{\"peft_type\": \"LORA\"", "the JSON text ends before its value does"},
    };
    ndp_adapter_config c;
    for (int i = 0; i < NDP_COUNT(cases); i++)
        CHECK_FAILS(parse(cases[i].text, &c), NDP_EFORMAT, cases[i].words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_peft_writes_is_read),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(names_of_modules),
        cmocka_unit_test(names_of_stacks),
        cmocka_unit_test(what_changes_numbers_is_refused),
        cmocka_unit_test(what_asks_for_nothing_is_accepted),
        cmocka_unit_test(bad_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
