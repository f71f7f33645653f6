/* config.json -> facts: real configurations, and a table of those that must be refused. */
#include "model/block.h"

#include "base/json.h"
#include "base/text.h"
#include "check.h"
#include <math.h>
#include <stdlib.h>

static ndp_status parse(const char *text, ndp_facts *f) {
    struct json_object *o;
    NDP_TRY(ndp_json_parse(text, strlen(text), "config.json", &o));
    ndp_status st = ndp_facts_parse(o, "config.json", f);
    json_object_put(o);
    return st;
}

/* A small Llama without the closing brace: keys are appended. A repeated key is refused by the parser. */
#define SHAPE                                                                                                          \
    "\"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 172, \"num_hidden_layers\": 5, "                 \
    "\"max_position_embeddings\": 512"
#define SMALL "{\"model_type\": \"llama\", \"num_attention_heads\": 8, " SHAPE
#define MORE(keys) SMALL ", " keys "}"

static void defaults_are_transformers(void **state) {
    (void)state;
    ndp_facts f;
    CHECK_OK(parse(SMALL "}", &f));
    assert_string_equal(f.family, "llama");
    assert_int_equal(f.vocab, 100);
    assert_int_equal(f.hidden, 64);
    assert_int_equal(f.ffn, 172);
    assert_int_equal(f.layers, 5);
    assert_int_equal(f.heads, 8);
    assert_int_equal(f.kv_heads, 8);
    assert_int_equal(f.head_dim, 8);
    assert_int_equal(f.max_positions, 512);
    assert_true(f.norm_eps == 1e-6 && f.init_std == 0.02);
    assert_true(f.ropes[0].theta == 10000 && f.ropes[0].scaling == NDP_ROPE_PLAIN && f.ropes[0].dim == 8);
    assert_false(f.tied || f.qkv_bias || f.o_bias || f.mlp_bias);
    assert_int_equal(f.n_kinds, 1);
    assert_int_equal(f.kinds[0].window, 0);
    assert_int_equal(f.bos, -1);
    assert_int_equal(f.eos, -1);
}

static void keys_are_read(void **state) {
    (void)state;
    ndp_facts f;
    CHECK_OK(parse(MORE("\"num_key_value_heads\": 2, \"head_dim\": 6, \"rms_norm_eps\": 1e-5, \"rope_theta\": 5e5, "
                        "\"tie_word_embeddings\": true, \"attention_bias\": true, \"mlp_bias\": true, "
                        "\"initializer_range\": 0.1, \"bos_token_id\": 1, \"eos_token_id\": [7, 9], "
                        "\"architectures\": [\"LlamaForCausalLM\"], \"hidden_act\": \"silu\", \"pretraining_tp\": 1, "
                        "\"attention_dropout\": 0.0, \"rope_scaling\": null, \"quantization_config\": null, "
                        "\"sliding_window\": 4096, \"layer_types\": [\"full_attention\"], \"num_experts\": 0, "
                        "\"partial_rotary_factor\": 1.0, \"unknown\": Infinity"),
                   &f));
    assert_int_equal(f.kv_heads, 2);
    assert_int_equal(f.head_dim, 6);
    assert_true(f.norm_eps == 1e-5 && f.ropes[0].theta == 5e5 && f.init_std == 0.1);
    assert_true(f.tied && f.qkv_bias && f.o_bias && f.mlp_bias);
    assert_int_equal(f.kinds[0].window, 0); /* as transformers' Llama, which ignores sliding_window */
    assert_int_equal(f.bos, 1);
    assert_int_equal(f.eos, 7);
    /* embed 100 x 64; block: q 48 x 64, k and v 12 x 64, o 64 x 48, 3 x 64 x 172, biases 48 + 24 + 64 + 344 + 64 */
    int64_t block = 64 * 48 + 2 * 64 * 12 + 48 * 64 + 3 * 64 * 172 + (48 + 24 + 64) + (2 * 172 + 64) + 2 * 64;
    assert_int_equal(ndp_facts_parameters(&f), 100 * 64 + 5 * block + 64);
    f.tied = false;
    assert_int_equal(ndp_facts_parameters(&f), 2 * 100 * 64 + 5 * block + 64);
}

static void rope_forms_are_read(void **state) {
    (void)state;
    ndp_facts f;
    CHECK_OK(parse(MORE("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}"), &f));
    assert_true(f.ropes[0].scaling == NDP_ROPE_LINEAR && f.ropes[0].factor == 4 && f.ropes[0].theta == 10000);
    CHECK_OK(parse(MORE("\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 250000.0}"), &f));
    assert_true(f.ropes[0].scaling == NDP_ROPE_PLAIN && f.ropes[0].theta == 250000);
    CHECK_OK(parse(MORE("\"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
                        "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0}"),
                   &f));
    assert_true(f.ropes[0].scaling == NDP_ROPE_LLAMA3 && f.ropes[0].factor == 8 && f.ropes[0].theta == 500000);
    assert_true(f.ropes[0].low_freq_factor == 1 && f.ropes[0].high_freq_factor == 4);
    assert_int_equal(f.ropes[0].original_positions, 512);
    CHECK_OK(parse(MORE("\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 128}"),
                   &f));
    assert_int_equal(f.ropes[0].original_positions, 128);
}

#define LLAMA3(low, high)                                                                                              \
    "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": " low                           \
    ", \"high_freq_factor\": " high "}"

static const struct {
    const char *text;
    ndp_status code;
    const char *words;
} bad[] = {
    {"[]", NDP_EFORMAT, "not a JSON object"},
    {"{}", NDP_EFORMAT, "\"model_type\""},
    {"{\"model_type\": 3}", NDP_EFORMAT, "model_type"},
    {"{\"model_type\": \"opt\"}", NDP_ENOTSUP,
     "model_type 'opt' is not supported; supported: llama, mistral, ministral, ministral3"},
    {"{\"model_type\": \"phimoe\", \"num_local_experts\": 16}", NDP_ENOTSUP,
     "'phimoe' is a mixture of experts (\"num_local_experts\": 16) with a router of SparseMixer: that is not "
     "supported; supported: llama"},
    {"{\"model_type\": \"own\", \"num_experts\": 4}", NDP_ENOTSUP,
     "'own' is a mixture of experts (\"num_experts\": 4) with a router or layers of its own: that is not supported; "
     "supported: llama"},
    {"{\"model_type\": \"jamba\", \"num_experts\": 16}", NDP_ENOTSUP,
     "'jamba' is a mixture of experts (\"num_experts\": 16) with Mamba layers"},
    {"{\"model_type\": \"own\", \"auto_map\": {\"AutoConfig\": \"own.Config\"}}", NDP_ENOTSUP,
     "'own' is code from the Hub (\"auto_map\": {\"AutoConfig\":\"own.Config\"}), which is not supported; supported: "
     "llama"},
    {"{\"model_type\": \"deepseek_v32\", \"n_routed_experts\": 256, \"auto_map\": {\"AutoConfig\": \"c.C\"}}",
     NDP_ENOTSUP,
     "'deepseek_v32' is a mixture of experts (\"n_routed_experts\": 256) with attention to keys that an index chooses"},
    {"{\"model_type\": \"blip\", \"vision_config\": {\"hidden_size\": 1152}}", NDP_ENOTSUP,
     "'blip' is a model of several parts, some for more than text (\"vision_config\": {\"hidden_size\":1152})"},
    {"{\"model_type\": \"gemma3n\", \"text_config\": {\"model_type\": \"gemma3n_text\"}}", NDP_ENOTSUP,
     "'gemma3n' is a model of several parts, of which text is one (\"text_config\": \"gemma3n_text\"), which is not "
     "supported"},
    {"{\"model_type\": \"t5\", \"is_encoder_decoder\": true}", NDP_ENOTSUP, "'t5' is an encoder and a decoder"},
    {"{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2ForTokenClassification\"]}", NDP_ENOTSUP,
     "GPT2ForTokenClassification\"] is not supported; supported: GPT2LMHeadModel, GPT2ForSequenceClassification"},
    {"{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2ForSequenceClassification\"]}", NDP_ENOTSUP,
     "classifies texts by 2 labels (num_labels, id2label)"},
    {"{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2ForSequenceClassification\"], \"id2label\": {\"0\": \"a\", "
     "\"1\": \"b\", \"2\": \"c\"}}",
     NDP_ENOTSUP, "by 3 labels"},
    {"{\"model_type\": \"qwen2\", \"num_attention_heads\": 8, " SHAPE "}", NDP_EFORMAT,
     "\"num_key_value_heads\" is missing"},
    {"{\"model_type\": \"llama\"}", NDP_EFORMAT, "\"vocab_size\" is missing"},
    {"{\"model_type\": \"llama\", " SHAPE "}", NDP_EFORMAT, "\"num_attention_heads\" is missing"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": null, " SHAPE "}", NDP_EFORMAT, "is missing"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": 0, " SHAPE "}", NDP_EFORMAT, "num_attention_heads"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": -8, " SHAPE "}", NDP_EFORMAT, "num_attention_heads"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": \"8\", " SHAPE "}", NDP_EFORMAT, "num_attention_heads"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": 8e300, " SHAPE "}", NDP_EFORMAT, "num_attention_heads"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": 10, " SHAPE "}", NDP_EFORMAT, "64 is not a multiple"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": 64, " SHAPE "}", NDP_EFORMAT, "head_dim of 1 is odd"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": 1, \"hidden_size\": 99999999999999999999}", NDP_EFORMAT,
     "vocab_size"},
    {MORE("\"head_dim\": 7"), NDP_EFORMAT, "head_dim of 7 is odd"},
    {MORE("\"head_dim\": 1000000"), NDP_EFORMAT, "8 heads of head_dim 1000000"},
    {"{\"model_type\": \"llama\", \"num_attention_heads\": 1, \"hidden_size\": 64, \"intermediate_size\": 5000000, "
     "\"vocab_size\": 100, \"num_hidden_layers\": 5, \"max_position_embeddings\": 512}",
     NDP_EFORMAT, "\"intermediate_size\" is 5000000, expected a whole number from 1 to 4194304"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1000000, \"vocab_size\": 100}", NDP_EFORMAT,
     "\"num_hidden_layers\" is 1000000, expected a whole number from 1 to 4096"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 5, \"vocab_size\": 9000000000}", NDP_EFORMAT, "vocab_size"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 5, \"vocab_size\": 1000000000}", NDP_EFORMAT,
     "\"vocab_size\" is 1000000000, expected a whole number from 1 to 16777216"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1.5, \"vocab_size\": 100}", NDP_EFORMAT, "num_hidden_layers"},
    {MORE("\"num_key_value_heads\": 0"), NDP_EFORMAT, "num_key_value_heads"},
    {MORE("\"num_key_value_heads\": 3"), NDP_EFORMAT, "num_key_value_heads 3"},
    {MORE("\"num_key_value_heads\": 16"), NDP_EFORMAT, "num_key_value_heads"},
    {MORE("\"architectures\": [\"LlamaForTokenClassification\"]"), NDP_ENOTSUP, "LlamaForTokenClassific"},
    {MORE("\"architectures\": \"LlamaForCausalLM\""), NDP_ENOTSUP, "architectures"},
    {MORE("\"hidden_act\": \"gelu\""), NDP_ENOTSUP, "\"hidden_act\": \"gelu\""},
    {MORE("\"hidden_act\": \"no_such\""), NDP_ENOTSUP,
     "\"no_such\" is not supported; supported: silu, swish, gelu_pytorch_tanh, gelu_new, gelu_fast"},
    {MORE("\"hidden_act\": 3"), NDP_EFORMAT, "hidden_act"},
    {MORE("\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}"), NDP_ENOTSUP,
     "\"quantization_config\": {\"quant_method\":\"gptq\",\"bits\":4} is not supported; supported: bitsandbytes (nf4, "
     "fp4"},
    {MORE("\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "
          "\"bnb_4bit_quant_type\": \"nf5\"}"),
     NDP_ENOTSUP, "\"quantization_config\""},
    {MORE("\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}"), NDP_ENOTSUP, "\"quantization_config\""},
    {MORE("\"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}"), NDP_ENOTSUP,
     "of modelopt"},
    {MORE("\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}"),
     NDP_ENOTSUP, "or compressed-tensors"},
    {MORE("\"quantization_config\": {\"quant_method\": \"mxfp4\"}"), NDP_ENOTSUP, "\"quantization_config\""},
    {MORE("\"attention_dropout\": NaN"), NDP_EFORMAT, "\"attention_dropout\" is nan, expected a probability"},
    {MORE("\"hidden_dropout\": -0.1"), NDP_EFORMAT, "\"hidden_dropout\" is -0.1"},
    {MORE("\"resid_pdrop\": 1.5"), NDP_EFORMAT, "\"resid_pdrop\" is 1.5"},
    {MORE("\"embedding_dropout\": \"0.1\""), NDP_EFORMAT, "embedding_dropout"},
    {MORE("\"pretraining_tp\": 2"), NDP_ENOTSUP, "\"pretraining_tp\": 2"},
    {MORE("\"quantization_config\": {\"quant_method\": \"gptq\"}"), NDP_ENOTSUP, "gptq"},
    {MORE("\"final_logit_softcapping\": 30.0"), NDP_ENOTSUP, "final_logit_softcapping"},
    {MORE("\"partial_rotary_factor\": 0.5"), NDP_ENOTSUP, "partial_rotary_factor"},
    {MORE("\"use_sliding_window\": true"), NDP_ENOTSUP, "use_sliding_window"},
    {MORE("\"num_experts\": 8"), NDP_ENOTSUP, "num_experts"},
    {MORE("\"qk_norm\": true"), NDP_ENOTSUP, "qk_norm"},
    {MORE("\"layer_types\": [\"full_attention\", \"sliding_attention\"]"), NDP_ENOTSUP, "sliding_attention"},
    {MORE("\"layer_types\": [null]"), NDP_ENOTSUP, "layer_types"},
    {MORE("\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}"), NDP_ENOTSUP, "rope type 'dynamic'"},
    {MORE("\"rope_parameters\": {\"rope_type\": \"proportional\", \"rope_theta\": 1e4}"), NDP_ENOTSUP,
     "rope type 'proportional' in \"rope_parameters\" is not supported; supported: default, linear, llama3, yarn, "
     "longrope"},
    {MORE("\"rope_scaling\": {\"rope_type\": \"ntk\"}"), NDP_ENOTSUP, "rope type 'ntk' in \"rope_scaling\""},
    {MORE("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": -4}"), NDP_EFORMAT, "\"factor\" is -4"},
    {MORE("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}, \"rope_theta\": 1"), NDP_EFORMAT, "yarn"},
    {MORE("\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1]}"), NDP_EFORMAT, "list of 4 numbers"},
    {MORE("\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 0]}"), NDP_EFORMAT, "holds 0"},
    {MORE("\"use_bidirectional_attention\": true"), NDP_ENOTSUP, "use_bidirectional_attention"},
    {MORE("\"rope_scaling\": 4"), NDP_EFORMAT, "rope_scaling"},
    {MORE("\"rope_scaling\": {\"type\": \"linear\"}"), NDP_EFORMAT, "\"factor\""},
    {MORE("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}"), NDP_EFORMAT, "\"factor\" is 0"},
    {MORE("\"rope_scaling\": {\"type\": \"linear\", \"factor\": Infinity}"), NDP_EFORMAT, "\"factor\""},
    {MORE("\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 1}"), NDP_EFORMAT,
     "high_freq_factor"},
    {MORE(LLAMA3("4", "4")), NDP_EFORMAT, "high_freq_factor 4 is not above low_freq_factor 4"},
    {MORE("\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}"), NDP_ENOTSUP, "full_attention"},
    {MORE("\"rope_parameters\": {\"partial_rotary_factor\": 0.25}"), NDP_ENOTSUP, "partial_rotary_factor"},
    {MORE("\"rope_theta\": 0"), NDP_EFORMAT, "rope_theta"},
    {MORE("\"rope_theta\": NaN"), NDP_EFORMAT, "rope_theta"},
    {MORE("\"rms_norm_eps\": -1e-5"), NDP_EFORMAT, "rms_norm_eps"},
    {MORE("\"initializer_range\": 2"), NDP_EFORMAT, "initializer_range"},
    {MORE("\"tie_word_embeddings\": 1"), NDP_EFORMAT, "tie_word_embeddings"},
    {MORE("\"bos_token_id\": \"<s>\""), NDP_EFORMAT, "bos_token_id"},
    {MORE("\"eos_token_id\": [\"</s>\"]"), NDP_EFORMAT, "eos_token_id"},
};

static void bad_configs_are_refused(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        ndp_facts f = {.layers = 77};
        CHECK_FAILS(parse(bad[i].text, &f), bad[i].code, bad[i].words);
        assert_int_equal(f.layers, 77);
    }
}

static void missing_file_is_named(void **state) {
    (void)state;
    ndp_facts f;
    CHECK_FAILS(ndp_facts_read("/no/such/config.json", &f), NDP_EINVAL, "/no/such/config.json");
}

/* Other families, with what tells them apart. */
#define GEMMA4(keys) FAMILY("gemma4_text", "\"hidden_size_per_layer_input\": 0, " keys)
#define FAMILY(type, keys)                                                                                             \
    "{\"model_type\": \"" type "\", \"num_attention_heads\": 8, \"num_key_value_heads\": 2, " SHAPE ", " keys "}"

/* Values that transformers refuses, or reads as something else than a reader would expect. */
static const struct {
    const char *text, *words;
} degenerate[] = {
    {MORE("\"rms_norm_eps\": 1e308"), "\"rms_norm_eps\" is 1e+308, expected 1e-15 to 1"},
    {MORE("\"rms_norm_eps\": 1.01"), "\"rms_norm_eps\" is 1.01, expected 1e-15 to 1"},
    {MORE("\"rms_norm_eps\": 9e-16"), "\"rms_norm_eps\" is 9e-16"},
    {MORE("\"rms_norm_eps\": null"), "\"rms_norm_eps\" is null"},
    {MORE("\"hidden_act\": null"), "\"hidden_act\" is null"},
    {MORE("\"hidden_act\": \"silu\\u0000\""), "\"hidden_act\" is \"silu\\u0000\", expected a string without zero"},
    {MORE("\"attention_bias\": null"), "\"attention_bias\" is null"},
    {MORE("\"tie_word_embeddings\": null"), "\"tie_word_embeddings\" is null"},
    {MORE("\"initializer_range\": null"), "\"initializer_range\" is null"},
    {MORE("\"layer_types\": [\"full_attention\\u0000\"]"), "\"layer_types\""},
    {MORE("\"is_causal\": false"), "\"is_causal\": false"},
    {MORE("\"is_causal\": null"), "\"is_causal\" is null"},
    {MORE("\"is_causal\": {}"), "\"is_causal\" is {}, expected true or false"},
    {MORE("\"per_layer_config\": {\"1\": {\"intermediate_size\": 4}}"), "per_layer_config"},
    {MORE("\"text_config\": {\"hidden_size\": 4}"), "text_config"},
    {MORE("\"rope_theta\": null"), "\"rope_theta\" is null"},
    {MORE("\"rope_theta\": 1e-30"), "\"rope_theta\" is 1e-30"},
    {MORE("\"rope_theta\": 1e39"), "\"rope_theta\" is 1e+39, expected at most 1e38"},
    {MORE("\"rope_scaling\": {\"rope_type\": null, \"factor\": 2}"), "\"rope_type\" is null"},
    {MORE("\"rope_scaling\": {\"rope_type\": \"su\", \"factor\": 2}"), "rope type 'su'"},
    {MORE("\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 1e-30}"), "1e+30 radians a position"},
    {MORE("\"rope_scaling\": {\"rope_type\": \"yarn\"}"), "rope type yarn without \"factor\""},
    {MORE("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": null}"), "\"truncate\" is null"},
    {MORE("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1e9}"),
     "\"attention_factor\", given or computed, is 1e+09"},
    {MORE("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": null}"),
     "\"original_max_position_embeddings\" is null"},
    {MORE("\"original_max_position_embeddings\": null, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}"),
     "\"original_max_position_embeddings\" is null"},
    {MORE("\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": [1, 1, 1, \"1\"]}"), "holds \"1\""},
    {FAMILY("phi3", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}"),
     "supported for this family: default, longrope"},
    {FAMILY("seed_oss", "\"head_dim\": null"), "\"head_dim\" is null"},
    {FAMILY("granite", "\"residual_multiplier\": -0.5"), "\"residual_multiplier\" is -0.5, expected a positive number"},
    {FAMILY("granite", "\"logits_scaling\": 1e30"), "\"logits_scaling\" is 1e+30, expected 1e-6 to 1e6"},
    {FAMILY("granite", "\"attention_multiplier\": null"), "\"attention_multiplier\" is null"},
    {FAMILY("olmo3", "\"rope_theta\": 1e4"), "\"rope_theta\": 1e4 is not supported: versions of transformers differ"},
    {FAMILY("olmo3", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}"), "name the key rope_type"},
    {FAMILY("olmo3", "\"sliding_window\": null"), "layer 0 has sliding_attention, but"},
    {FAMILY("phi3", "\"partial_rotary_factor\": null"), "\"partial_rotary_factor\" is null"},
    {FAMILY("mistral", "\"sliding_window\": 0"), "\"sliding_window\" is 0: layer 0 would see no key"},
    {FAMILY("mistral", "\"sliding_window\": null, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
                       "\"full_attention\", \"full_attention\", \"full_attention\"]"),
     "layer 1 has sliding_attention, but"},
    {FAMILY("qwen2", "\"sliding_window\": 0, \"use_sliding_window\": true, \"max_window_layers\": 4"),
     "\"sliding_window\" is 0: layer 4"},
    {FAMILY("qwen2", "\"max_window_layers\": null"), "\"max_window_layers\" is null"},
    {FAMILY("gemma", "\"use_bidirectional_attention\": true"), "\"use_bidirectional_attention\": true"},
    {FAMILY("gemma", "\"final_logit_softcapping\": 30.0"), "final_logit_softcapping"},
    {FAMILY("gemma2", "\"sliding_window\": null"), "layer 0 has sliding_attention, but"},
    {FAMILY("gemma2", "\"attn_logit_softcapping\": 1e-300"), "\"attn_logit_softcapping\" is 1e-300"},
    {FAMILY("gemma2", "\"final_logit_softcapping\": 1e300"), "\"final_logit_softcapping\" is 1e+300"},
    {FAMILY("gemma2", "\"query_pre_attn_scalar\": null"), "\"query_pre_attn_scalar\" is null"},
    {FAMILY("gemma3_text", "\"sliding_window_pattern\": null"), "\"sliding_window_pattern\" is null"},
    {FAMILY("gemma3_text", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}, \"rope_parameters\": "
                           "{\"full_attention\": {\"rope_theta\": 1e5}}"),
     "both \"rope_scaling\" and \"rope_parameters\""},
    {FAMILY("gemma3_text", "\"rope_scaling\": {\"full_attention\": {\"rope_theta\": 1e5}}"),
     "tables for kinds of layers are in \"rope_parameters\""},
    {FAMILY("gemma3_text", "\"rope_parameters\": {\"truncate\": false, \"full_attention\": {\"rope_theta\": 1e5}}"),
     "\"truncate\": false is not supported for a model of two tables"},
    {FAMILY("gemma4_text", "\"head_dim\": 8"), "\"hidden_size_per_layer_input\" is missing, so it is 256"},
    {GEMMA4("\"num_kv_shared_layers\": 2"), "\"num_kv_shared_layers\": 2 is not supported"},
    {GEMMA4("\"enable_moe_block\": true"), "\"enable_moe_block\": true is not supported"},
    {GEMMA4("\"use_bidirectional_attention\": true"), "supported: null, vision"},
    {GEMMA4("\"use_bidirectional_attention\": \"all\""), "supported: null, vision"},
    {GEMMA4("\"rope_theta\": 1e4"), "\"rope_theta\": 1e4 is not supported for this family"},
    {GEMMA4("\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"proportional\", \"rope_theta\": 1e6}}"),
     "without rope_type and rope_theta of sliding_attention"},
    {GEMMA4("\"attention_k_eq_v\": true, \"num_global_key_value_heads\": 3"), "is not a multiple of 3 kv heads"},
    {GEMMA4("\"global_head_dim\": 7"), "7 columns of a head_dim of 7 is odd"},
    {GEMMA4("\"per_layer_config\": {\"4\": {\"head_dim\": 16, \"sliding_window\": 3}}"), "for single layers"},
    {GEMMA4("\"per_layer_config\": {\"3\": {\"head_dim\": 16}}"), "sizes of all layers with full_attention"},
    {FAMILY("smollm3", "\"sliding_window\": 9, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
                       "\"full_attention\", \"full_attention\", \"full_attention\"]"),
     "\"use_sliding_window\" is not true"},
    {FAMILY("stablelm", "\"head_dim\": 16"), "\"head_dim\" is 16"},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 64, \"n_head\": 4, \"n_layer\": 3, \"n_positions\": "
     "32, "
     "\"num_attention_heads\": 8}",
     "\"num_attention_heads\" is 8, but \"n_head\" is 4"},
    {"{\"model_type\": \"llama\\u0000\"}", "model_type"},
};

static void degenerate_values_are_refused(void **state) {
    (void)state;
    static ndp_facts f;
    for (int i = 0; i < NDP_COUNT(degenerate); i++) {
        ndp_status st = parse(degenerate[i].text, &f);
        if (st != NDP_EFORMAT && st != NDP_ENOTSUP)
            fail_msg("accepted: %s", degenerate[i].text);
        CHECK_FAILS(st, st, degenerate[i].words);
    }
}

/* The same where no layer or table uses them, and values at the edges. */
static void what_is_not_used_is_not_refused(void **state) {
    (void)state;
    static ndp_facts f;
    static const char *const good[] = {
        MORE("\"rms_norm_eps\": 1"),
        MORE("\"rms_norm_eps\": 1e-15"),
        MORE("\"sliding_window\": 0"),
        MORE("\"rope_theta\": 0.5"),
        MORE("\"per_layer_config\": {}, \"text_config\": null, \"is_causal\": true"),
        FAMILY("qwen2", "\"sliding_window\": 0"),
        FAMILY("qwen2", "\"sliding_window\": null, \"use_sliding_window\": true"),
        FAMILY("gemma2", "\"sliding_window\": null, \"layer_types\": [\"full_attention\", \"full_attention\", "
                         "\"full_attention\", \"full_attention\", \"full_attention\"]"),
        FAMILY("stablelm", "\"head_dim\": 8")};
    for (int i = 0; i < NDP_COUNT(good); i++)
        CHECK_OK(parse(good[i], &f));
    CHECK_OK(parse(MORE("\"rope_scaling\": {}, \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 3}"), &f));
    assert_true(f.ropes[0].scaling == NDP_ROPE_LINEAR && f.ropes[0].factor == 3); /* as if it were missing */
    CHECK_OK(parse(MORE("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": null, \"beta_fast\": null, "
                        "\"original_max_position_embeddings\": 128}"),
                   &f));
    assert_true(f.ropes[0].factor == 4 && f.ropes[0].beta_fast == 32);
    CHECK_OK(parse(FAMILY("gemma3_text",
                          "\"original_max_position_embeddings\": 64, \"rope_parameters\": {\"full_attention\": "
                          "{\"rope_type\": \"yarn\", \"factor\": 4, "
                          "\"original_max_position_embeddings\": 128}}"),
                   &f));
    assert_true(f.ropes[0].original_positions == 128); /* of the table */
    CHECK_OK(parse("{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 64, \"n_head\": 4, \"n_layer\": 3, "
                   "\"n_positions\": 32, \"num_attention_heads\": 4, \"head_dim\": 5}",
                   &f));
}

/* A feature that no family here has, off and on; the value that turns it on is refused by its key. */
static void other_features_are_refused(void **state) {
    (void)state;
    static ndp_facts f;
    static const struct {
        const char *key, *off, *on;
    } features[] = {{"attention_chunk_size", "null", "64"},
                    {"clip_qkv", "null", "8.0"},
                    {"num_experts", "0", "8"},
                    {"num_local_experts", "null", "8"},
                    {"n_routed_experts", "null", "64"},
                    {"q_lora_rank", "null", "16"},
                    {"kv_lora_rank", "null", "16"},
                    {"qk_norm", "false", "true"},
                    {"use_qk_norm", "false", "true"},
                    {"qk_layernorm", "false", "true"},
                    {"use_bidirectional_attention", "false", "true"},
                    {"attention_multiplier", "null", "0.5"},
                    {"embedding_multiplier", "1.0", "12.0"},
                    {"residual_multiplier", "1.0", "0.22"},
                    {"logits_scaling", "1.0", "8.0"},
                    {"scale_attn_weights", "true", "false"},
                    {"scale_attn_by_inverse_layer_idx", "false", "true"},
                    {"reorder_and_upcast_attn", "false", "true"},
                    {"add_cross_attention", "false", "true"}};
    static const char *const families[] = {SMALL, "{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 64, "
                                                  "\"n_head\": 4, \"n_layer\": 3, \"n_positions\": 32"};
    for (int i = 0; i < NDP_COUNT(features) * NDP_COUNT(families); i++) {
        const char *form = families[i % NDP_COUNT(families)], *key = features[i / NDP_COUNT(families)].key;
        char *off = ndp_format("%s, \"%s\": %s}", form, key, features[i / NDP_COUNT(families)].off);
        char *on = ndp_format("%s, \"%s\": %s}", form, key, features[i / NDP_COUNT(families)].on);
        CHECK_OK(parse(off, &f));
        CHECK_FAILS(parse(on, &f), NDP_ENOTSUP, key);
        free(off);
        free(on);
    }
}

/* Families whose number of kv heads is not that of the heads where it is left out: transformers has one for its model
 * of that name. */
static void kv_heads_are_not_guessed(void **state) {
    (void)state;
    static ndp_facts f;
    static const char *const families[] = {"mistral",    "ministral",    "seed_oss",  "qwen2",       "qwen3",
                                           "smollm3",    "gemma",        "gemma2",    "gemma3_text", "stablelm",
                                           "starcoder2", "qwen3_5_text", "qwen3_next"};
    for (int i = 0; i < NDP_COUNT(families); i++) {
        char *text = ndp_format("{\"model_type\": \"%s\", \"num_attention_heads\": 8, " SHAPE "}", families[i]);
        CHECK_FAILS(parse(text, &f), NDP_EFORMAT, "num_key_value_heads");
        free(text);
    }
    CHECK_OK(parse(SMALL "}", &f));
    assert_int_equal(f.kv_heads, 8);
}

static void windows_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(FAMILY("mistral", "\"sliding_window\": null"), &f));
    assert_true(f.n_kinds == 1 && f.kinds[0].window == 0 && f.kinds[0].rope == 0);
    CHECK_OK(parse(FAMILY("mistral", "\"rms_norm_eps\": 1e-5"), &f));
    assert_true(f.n_kinds == 1 && f.kinds[0].window == 4096);
    CHECK_OK(parse(FAMILY("mistral", "\"sliding_window\": 9, \"layer_types\": [\"full_attention\", "
                                     "\"sliding_attention\", \"full_attention\", \"full_attention\", "
                                     "\"full_attention\"]"),
                   &f));
    assert_true(f.n_kinds == 2 && f.kinds[f.kind_of[0]].window == 0 && f.kinds[f.kind_of[1]].window == 9);
    CHECK_OK(
        parse(FAMILY("ministral", "\"sliding_window\": 9, \"layer_types\": [\"full_attention\", \"sliding_attention\", "
                                  "\"full_attention\", \"full_attention\", \"full_attention\"]"),
              &f));
    assert_true(f.n_kinds == 2 && f.kinds[f.kind_of[0]].window == 0 && f.kinds[f.kind_of[1]].window == 9);
    CHECK_OK(parse(FAMILY("ministral", "\"rms_norm_eps\": 1e-5"), &f));
    assert_true(f.n_kinds == 1 && f.kinds[0].window == 4096 && !f.qkv_bias);
    CHECK_OK(parse(FAMILY("qwen2", "\"sliding_window\": 9, \"max_window_layers\": 2"), &f));
    assert_true(f.n_kinds == 1 && f.kinds[0].window == 0 && f.qkv_bias && !f.o_bias);
    CHECK_OK(
        parse(FAMILY("qwen2", "\"sliding_window\": 9, \"max_window_layers\": 2, \"use_sliding_window\": true"), &f));
    assert_true(f.n_kinds == 2 && f.kinds[0].window == 0 && f.kinds[1].window == 9);
    CHECK_OK(parse(FAMILY("qwen2", "\"max_window_layers\": 2, \"use_sliding_window\": true"), &f));
    assert_true(f.n_kinds == 2 && f.kinds[1].window == 4096);
    CHECK_OK(parse(FAMILY("qwen3", "\"max_window_layers\": 2, \"use_sliding_window\": true"), &f));
    assert_true(f.n_kinds == 2 && f.kinds[1].window == 4096);
    CHECK_OK(
        parse(FAMILY("qwen2", "\"sliding_window\": 9, \"max_window_layers\": 2, \"use_sliding_window\": true"), &f));
    assert_true(f.kind_of[1] == 0 && f.kind_of[2] == 1 && f.kind_of[4] == 1);
    CHECK_OK(parse(FAMILY("qwen3", "\"sliding_window\": 9, \"use_sliding_window\": true, \"layer_types\": "
                                   "[\"sliding_attention\", \"full_attention\", \"full_attention\", "
                                   "\"full_attention\", \"sliding_attention\"]"),
                   &f));
    assert_true(f.kinds[0].window == 9 && f.kind_of[1] == 1 && f.kind_of[4] == 0 && f.head_dim == 128);
    CHECK_FAILS(parse(FAMILY("qwen3", "\"layer_types\": [\"full_attention\"]"), &f), NDP_EFORMAT, "list of 5 names");
    CHECK_FAILS(parse(FAMILY("gemma2", "\"layer_types\": [\"a\", \"a\", \"a\", \"a\", \"a\"]"), &f), NDP_ENOTSUP,
                "supported: full_attention, sliding_attention");
}

static void gemmas_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(
        parse(FAMILY("gemma", "\"hidden_act\": \"gelu\", \"hidden_activation\": null, \"query_pre_attn_scalar\": 9, "
                              "\"use_bidirectional_attention\": null"),
              &f));
    assert_true(f.norm.offset && f.tied && f.activation == NDP_GELU_TANH && f.head_dim == 256 && !f.qkv_bias);
    assert_true(f.attention_scale == 1 / 16.0 && f.embedding_scale == 8 && f.logit_cap == 0 && f.n_kinds == 1);
    CHECK_OK(parse(FAMILY("gemma", "\"attention_bias\": true, \"hidden_act\": \"silu\""), &f));
    assert_true(f.qkv_bias && f.o_bias && f.activation == NDP_SILU && f.kinds[0].window == 0);
    CHECK_OK(parse(FAMILY("gemma2", "\"query_pre_attn_scalar\": 144"), &f));
    assert_true(f.norm.offset && f.tied && f.activation == NDP_GELU_TANH && f.head_dim == 256);
    assert_true(f.attention_cap == 50 && f.logit_cap == 30 && f.attention_scale == 1 / 12.0 && f.embedding_scale == 8);
    assert_true(f.n_kinds == 2 && f.kinds[f.kind_of[0]].window == 4096 && f.kinds[f.kind_of[1]].window == 0);
    CHECK_OK(parse(FAMILY("gemma2", "\"attn_logit_softcapping\": null, \"final_logit_softcapping\": 7.5"), &f));
    assert_true(f.attention_cap == 0 && f.logit_cap == 7.5 && f.attention_scale == 1 / 16.0);
    CHECK_OK(parse(FAMILY("gemma3_text", "\"rope_theta\": 5e5, \"sliding_window_pattern\": 3, \"rope_scaling\": "
                                         "{\"rope_type\": \"linear\", \"factor\": 8}"),
                   &f));
    assert_true(f.n_ropes == 2 && f.ropes[0].theta == 5e5 && f.ropes[0].factor == 8 && f.ropes[1].theta == 1e4);
    assert_true(f.ropes[1].scaling == NDP_ROPE_PLAIN && f.qk_norm == NDP_QK_NORM_HEAD && f.attention_cap == 0);
    assert_true(f.kinds[f.kind_of[1]].rope == 1 && f.kinds[f.kind_of[2]].rope == 0 &&
                f.kinds[f.kind_of[2]].window == 0);
    CHECK_OK(parse(FAMILY("gemma3_text", "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 3e5}, "
                                         "\"sliding_attention\": {\"rope_theta\": 2e4, \"rope_type\": \"default\"}}"),
                   &f));
    assert_true(f.ropes[0].theta == 3e5 && f.ropes[1].theta == 2e4);
    CHECK_FAILS(parse(FAMILY("gemma3_text", "\"attn_logit_softcapping\": 50.0"), &f), NDP_ENOTSUP, "softcapping");
}

static void check_same_angles(const ndp_rope *a, const ndp_rope *b) {
    double x[128], y[128];
    assert_true(a->dim == b->dim && a->dim / 2 <= NDP_COUNT(x) && a->amplitude == b->amplitude);
    for (int64_t positions = 8; positions <= 1 << 20; positions <<= 17) { /* below and beyond the original length */
        ndp_rope_frequencies(a, positions, x);
        ndp_rope_frequencies(b, positions, y);
        for (int i = 0; i < a->dim / 2; i++)
            assert_true(x[i] == y[i]);
    }
}

/* What transformers 5 writes for a model is read as what older files say: all in rope_parameters, layer_types always,
 * dtype for torch_dtype. */
static void both_forms_are_read(void **state) {
    (void)state;
    static const struct {
        const char *before, *since;
    } pairs[] = {
        {FAMILY("llama",
                "\"rope_theta\": 5e5, \"torch_dtype\": \"bfloat16\", \"rope_scaling\": {\"rope_type\": \"llama3\", "
                "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                "\"original_max_position_embeddings\": 64}"),
         FAMILY("llama",
                "\"dtype\": \"bfloat16\", \"head_dim\": 8, \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": "
                "\"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                "\"original_max_position_embeddings\": 64}")},
        {FAMILY("qwen2", "\"rope_theta\": 1e6, \"sliding_window\": 9, \"use_sliding_window\": true, "
                         "\"max_window_layers\": 4"),
         FAMILY("qwen2",
                "\"rope_parameters\": {\"rope_theta\": 1e6, \"rope_type\": \"default\"}, \"sliding_window\": 9, "
                "\"use_sliding_window\": true, \"max_window_layers\": 4, \"layer_types\": [\"full_attention\", "
                "\"full_attention\", \"full_attention\", \"full_attention\", \"sliding_attention\"]")},
        {FAMILY("phi3",
                "\"rope_theta\": 1e3, \"partial_rotary_factor\": 0.5, \"original_max_position_embeddings\": 128, "
                "\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 2], \"long_factor\": [3, 4]}"),
         FAMILY("phi3",
                "\"original_max_position_embeddings\": 128, \"rope_parameters\": {\"rope_theta\": 1e3, "
                "\"partial_rotary_factor\": 0.5, \"rope_type\": \"longrope\", "
                "\"original_max_position_embeddings\": 128, \"short_factor\": [1, 2], \"long_factor\": [3, 4]}")},
        {FAMILY("stablelm", "\"rope_theta\": 1e3, \"partial_rotary_factor\": 0.5"),
         FAMILY("stablelm", "\"rope_parameters\": {\"rope_theta\": 1e3, \"partial_rotary_factor\": 0.5, \"rope_type\": "
                            "\"default\"}")},
        {FAMILY("gemma3_text", "\"rope_theta\": 1e5, \"rope_local_base_freq\": 2e3, \"sliding_window_pattern\": 4, "
                               "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}"),
         FAMILY("gemma3_text",
                "\"_sliding_window_pattern\": 4, \"layer_types\": [\"sliding_attention\", "
                "\"sliding_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\"], "
                "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e5, \"rope_type\": \"linear\", "
                "\"factor\": 8.0}, \"sliding_attention\": {\"rope_theta\": 2e3, \"rope_type\": \"default\"}}")},
    };
    for (int i = 0; i < NDP_COUNT(pairs); i++) {
        static ndp_facts before, since;
        CHECK_OK(parse(pairs[i].before, &before));
        CHECK_OK(parse(pairs[i].since, &since));
        assert_int_equal(before.n_ropes, since.n_ropes);
        for (int r = 0; r < before.n_ropes; r++)
            check_same_angles(&before.ropes[r], &since.ropes[r]);
        for (int k = 0; k < before.layers; k++) {
            const ndp_layer_kind *x = &before.kinds[before.kind_of[k]], *y = &since.kinds[since.kind_of[k]];
            assert_true(x->window == y->window && x->rope == y->rope);
        }
    }
}

static void other_families_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(FAMILY("phi3", "\"partial_rotary_factor\": 0.75, \"original_max_position_embeddings\": 128, "
                                  "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 2], "
                                  "\"long_factor\": [1, 3, 5]}, \"auto_map\": {\"AutoConfig\": \"c.C\"}"),
                   &f));
    assert_true(f.ropes[0].dim == 6 && f.ropes[0].long_factor[2] == 5 && f.ropes[0].original_positions == 128);
    assert_true(fabs(f.ropes[0].amplitude - sqrt(1 + log(4) / log(128))) < 1e-15);
    CHECK_OK(parse(FAMILY("seed_oss", "\"mlp_bias\": false"), &f));
    assert_true(f.qkv_bias && !f.o_bias && !f.mlp_bias && f.head_dim == 128 && f.dropout == 0.1 && !f.tied);
    assert_string_equal(f.dropout_lacks, "residual_dropout");
    CHECK_OK(parse(FAMILY("seed_oss", "\"attention_bias\": false, \"attention_out_bias\": true, \"mlp_bias\": true, "
                                      "\"attention_dropout\": 0, \"residual_dropout\": 0.05"),
                   &f));
    assert_true(!f.qkv_bias && f.o_bias && f.mlp_bias && f.dropout == 0.05 && !f.dropout_lacks);
    CHECK_OK(parse(FAMILY("granite", "\"mlp_bias\": true"), &f));
    assert_true(f.attention_scale == 1 && f.embedding_scale == 1 && f.residual_scale == 1 && f.logit_scale == 1);
    CHECK_OK(parse(FAMILY("granite", "\"embedding_multiplier\": 12, \"residual_multiplier\": 0.22, "
                                     "\"attention_multiplier\": 0.0078125, \"logits_scaling\": 16.0"),
                   &f));
    assert_true(f.attention_scale == 1 / 128.0 && f.embedding_scale == 12 && f.residual_scale == 0.22);
    assert_true(f.logit_scale == 1 / 16.0 && !f.tied && f.norm_eps == 1e-6);
    CHECK_OK(parse(FAMILY("smollm3", "\"no_rope_layers\": [1, 1, 0, 1, 0]"), &f));
    assert_true(f.n_kinds == 2 && f.kinds[f.kind_of[0]].rope == 0 && f.kinds[f.kind_of[2]].rope == NDP_NO_ROPE);
    assert_true(f.tied && f.ropes[0].theta == 2e6);
    CHECK_OK(parse(FAMILY("smollm3", "\"rope_theta\": 5e6"), &f));
    assert_true(f.kinds[f.kind_of[3]].rope == NDP_NO_ROPE && f.kind_of[4] == f.kind_of[0]);
    CHECK_OK(parse(FAMILY("olmo2", "\"head_dim\": 8"), &f));
    assert_true(f.qk_norm == NDP_QK_NORM_WHOLE && f.norm_eps == 1e-5);
    CHECK_OK(
        parse(FAMILY("olmo3", "\"rope_theta\": 500000, \"rope_local_base_freq\": 7, \"rope_scaling\": {\"rope_type\": "
                              "\"yarn\", \"factor\": 8, \"original_max_position_embeddings\": 64}"),
              &f));
    assert_true(f.qk_norm == NDP_QK_NORM_WHOLE && f.norm_eps == 1e-5 && f.n_kinds == 2 && f.n_ropes == 2);
    assert_true(f.ropes[0].theta == 5e5 && f.ropes[0].scaling == NDP_ROPE_YARN && f.ropes[0].original_positions == 64);
    assert_true(f.ropes[1].theta == 5e5 && f.ropes[1].scaling == NDP_ROPE_PLAIN);
    for (int i = 0; i < f.layers; i++) {
        const ndp_layer_kind *k = &f.kinds[f.kind_of[i]];
        assert_true(k->rope == (i != 3) && k->window == (i == 3 ? 0 : 4096));
    }
    CHECK_OK(parse(FAMILY("stablelm", "\"use_qkv_bias\": true, \"layer_norm_eps\": 1e-4"), &f));
    assert_true(f.norm.bias && f.qkv_bias && !f.o_bias && f.ropes[0].dim == 2 && f.norm_eps == 1e-4);
    CHECK_FAILS(parse(FAMILY("stablelm", "\"qk_layernorm\": true"), &f), NDP_ENOTSUP, "qk_layernorm");
    CHECK_OK(parse(FAMILY("starcoder2", "\"hidden_act\": \"gelu_pytorch_tanh\", \"residual_dropout\": 0.1"), &f));
    assert_true(!f.kinds[0].mlp->gated && f.mlp_bias && f.o_bias && f.tied && f.dropout == 0.1);
    CHECK_FAILS(parse(FAMILY("starcoder2", "\"hidden_act\": \"silu\""), &f), NDP_ENOTSUP,
                "is not supported; supported: gelu_pytorch_tanh, gelu_new, gelu_fast");
    CHECK_OK(parse(FAMILY("gpt_neox", "\"rotary_emb_base\": 5000, \"rope_theta\": 7"), &f));
    assert_true(f.kv_heads == 8 && f.ropes[0].dim == 2 && f.ropes[0].theta == 5000 && f.norm.bias &&
                f.norm_eps == 1e-5);
    assert_true(f.parallel && f.two_norms && f.qkv_bias && f.o_bias && f.mlp_bias && !f.tied);
    assert_true(f.activation == NDP_GELU_ERF && !f.kinds[0].mlp->gated);
    assert_true(ndp_facts_ignores(&f, "gpt_neox.layers.2.attention.bias") &&
                ndp_facts_ignores(&f, "gpt_neox.layers.0.attention.masked_bias") &&
                ndp_facts_ignores(&f, "gpt_neox.layers.4.attention.rotary_emb.inv_freq"));
    assert_false(ndp_facts_ignores(&f, "gpt_neox.layers.2.attention.dense.bias"));
    CHECK_OK(parse(FAMILY("gpt_neox",
                          "\"rotary_pct\": 0.5, \"use_parallel_residual\": false, \"hidden_act\": \"gelu_fast\", "
                          "\"attention_bias\": false"),
                   &f));
    assert_true(f.ropes[0].dim == 4 && !f.parallel && f.activation == NDP_GELU_TANH && !f.qkv_bias && !f.o_bias &&
                f.mlp_bias);
    CHECK_OK(parse("{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 64, \"n_head\": 4, \"n_layer\": 3, "
                   "\"n_positions\": 32, \"n_inner\": null, \"attn_pdrop\": 0}",
                   &f));
    assert_true(f.ffn == 256 && f.n_ropes == 0 && f.transposed && f.dropout == 0.1 && f.kinds[0].rope == NDP_NO_ROPE);
    assert_true(ndp_facts_ignores(&f, "transformer.h.2.attn.bias") && ndp_facts_ignores(&f, "lm_head.weight"));
    assert_false(ndp_facts_ignores(&f, "transformer.h.2.attn.c_attn.bias") || ndp_facts_ignores(&f, "lm_head.bias"));
}

/* The last layer sees all keys, with heads of its own; half a quarter of their columns are pairs that turn. */
static void heads_by_kind_are_read(void **state) {
    (void)state;
    static ndp_facts f;
    CHECK_OK(parse(GEMMA4("\"attention_k_eq_v\": true, \"num_global_key_value_heads\": 1"), &f));
    assert_true(f.n_kinds == 2 && f.kind_of[3] == 0 && f.kind_of[4] == 1 && f.kinds[0].window == 512);
    assert_true(f.head_dim == 256 && f.kv_heads == 2 && f.full.dim == 512 && f.full.kv == 1 && f.full.v_is_k);
    assert_true(f.ropes[0].dim == 512 && f.ropes[0].turning == 64 && f.ropes[1].dim == 256 && f.attention_scale == 1);
    double frequencies[256];
    ndp_rope_frequencies(&f.ropes[0], 1, frequencies);
    assert_true(fabs(frequencies[63] / pow(1e6, -126.0 / 512) - 1) < 1e-12 && frequencies[64] == 0);
    ndp_layout_facts l = ndp_facts_layout(&f);
    assert_true(l.kv_heads == 1 && l.most_kv_heads == 2);
    CHECK_OK(parse(GEMMA4("\"num_global_key_value_heads\": 1, \"per_layer_config\": {\"4\": {\"head_dim\": 32}}"), &f));
    assert_true(f.full.dim == 32 && f.full.kv == 2 && !f.full.v_is_k && ndp_facts_layout(&f).most_kv_heads == 0);
}

/* Every family takes every key of dropout, and says the largest; GPT-2's three are 0.1 where they are missing. */
static void dropout_is_read(void **state) {
    (void)state;
    static const char *const families[] = {"llama",    "mistral",    "ministral",   "qwen2",       "qwen3",
                                           "phi3",     "olmo2",      "olmo3",       "seed_oss",    "smollm3",
                                           "granite",  "gemma",      "gemma2",      "gemma3_text", "stablelm",
                                           "gpt_neox", "starcoder2", "qwen3_5_text"};
    static const char *const keys[] = {"attn_pdrop",     "resid_pdrop",      "embd_pdrop",       "attention_dropout",
                                       "hidden_dropout", "residual_dropout", "embedding_dropout"};
    static const char shape[] =
        "{\"model_type\": \"%s\", \"num_attention_heads\": 8, \"num_key_value_heads\": 2, " SHAPE
        ", \"%s\": 0.25, \"%s\": 0.125}";
    static const char gpt2[] = "{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 64, \"n_head\": 4, "
                               "\"n_layer\": 3, \"n_positions\": 32, \"embd_pdrop\": %s, \"resid_pdrop\": 0, "
                               "\"attn_pdrop\": %s, \"attention_dropout\": %s}";
    static ndp_facts f;
    char text[512];
    for (int i = 0; i < NDP_COUNT(families); i++)
        for (int k = 0; k < NDP_COUNT(keys); k++) {
            snprintf(text, sizeof text, shape, families[i], keys[k], keys[(k + 1) % NDP_COUNT(keys)]);
            CHECK_OK(parse(text, &f));
            assert_true(f.dropout == 0.25);
        }
    CHECK_OK(parse(FAMILY("llama", "\"attention_dropout\": null, \"hidden_dropout\": 1"), &f));
    assert_true(f.dropout == 1);
    CHECK_OK(parse(FAMILY("llama", "\"attention_dropout\": 0"), &f));
    assert_true(f.dropout == 0);
    static const struct {
        const char *embedding, *attention, *other;
        double largest;
        const char *lacks; /* NULL: the number is that of a key */
    } cases[] = {{"0", "0", "0", 0, NULL},
                 {"0.05", "null", "0", 0.1, "attn_pdrop"},
                 {"0", "0.3", "0.2", 0.3, NULL},
                 {"0.1", "null", "0", 0.1, NULL},
                 {"0", "0", "0.2", 0.2, NULL}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        snprintf(text, sizeof text, gpt2, cases[i].embedding, cases[i].attention, cases[i].other);
        CHECK_OK(parse(text, &f));
        assert_true(f.dropout == cases[i].largest);
        assert_true(cases[i].lacks ? strcmp(f.dropout_lacks, cases[i].lacks) == 0 : !f.dropout_lacks);
    }
}

/* Published models have their published number of parameters. */
static void check_published(const char *folder, const char *model, int64_t parameters, int *read) {
    char *path = ndp_format("%s/configs/%s/config.json", folder, model);
    static ndp_facts f;
    CHECK_OK(ndp_facts_read(path, &f));
    if (ndp_facts_parameters(&f) != parameters)
        fail_msg("%s: %lld parameters, expected %lld", model, (long long)ndp_facts_parameters(&f),
                 (long long)parameters);
    (*read)++;
    free(path);
}

static void published_models(void **state) {
    (void)state;
    const char *folder = getenv("NDP_TEST_DATA");
    if (!folder) {
        print_message("skipped: NDP_TEST_DATA (the folder with configs/) is not set\n");
        skip();
    }
    char *path = ndp_format("%s/configs/expected_params.json", folder);
    struct json_object *o, *params;
    CHECK_OK(ndp_json_read(path, &o));
    assert_true(json_object_object_get_ex(o, "params", &params));
    int read = 0, models = 0;
    json_object_object_foreach(params, model, count) {
        check_published(folder, model, json_object_get_int64(count), &read);
        models++;
    }
    print_message("%d configurations, %d of them read\n", models, read);
    assert_int_equal(models, read);
    assert_true(read >= 18);
    json_object_put(o);
    free(path);
}

/* The same of models whose config.json is not among those: its sizes, and the number that its files add up to. */
static void published_sizes(void **state) {
    (void)state;
#define SIZES(vocab, hidden, ffn, layers, heads, kv_heads, keys)                                                       \
    "\"vocab_size\": " #vocab ", \"hidden_size\": " #hidden ", \"intermediate_size\": " #ffn                           \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv_heads   \
    ", \"max_position_embeddings\": 4096" keys "}"
    static const struct {
        const char *model, *config;
        int64_t parameters;
    } models[] = {
        {"gemma-2b", "{\"model_type\": \"gemma\", " SIZES(256000, 2048, 16384, 18, 8, 1, ""), 2506172416},
        {"pythia-160m", "{\"model_type\": \"gpt_neox\", " SIZES(50304, 768, 3072, 12, 12, 12, ""), 162322944},
        {"gpt-neox-20b", "{\"model_type\": \"gpt_neox\", " SIZES(50432, 6144, 24576, 44, 64, 64, ""), 20554567680},
        {"Olmo-3-7B", "{\"model_type\": \"olmo3\", " SIZES(100278, 4096, 11008, 32, 32, 32, ""), 7298011136},
        {"granite-3.1-8b",
         "{\"model_type\": \"granite\", \"tie_word_embeddings\": true, " SIZES(49155, 4096, 12800, 40, 32, 8, ""),
         8170848256},
        {"Ministral-8B",
         "{\"model_type\": \"ministral\", \"head_dim\": 128, " SIZES(131072, 4096, 12288, 36, 32, 8, ""), 8019808256},
        {"gemma-4-31B",
         "{\"model_type\": \"gemma4_text\", \"hidden_size_per_layer_input\": 0, \"attention_k_eq_v\": true, "
         "\"num_global_key_value_heads\": 4, " SIZES(262144, 5376, 21504, 60, 32, 16, ""),
         30697345340},
        {"Qwen3.5-27B",
         "{\"model_type\": \"qwen3_5_text\", \"linear_num_value_heads\": 48, " SIZES(248320, 5120, 17408, 64, 24, 4,
                                                                                     ""),
         26895998464},
        {"Qwen3-Next-80B-A3B",
         "{\"model_type\": \"qwen3_next\", \"num_experts\": 512, \"num_experts_per_tok\": 10, "
         "\"moe_intermediate_size\": 512, \"shared_expert_intermediate_size\": 512, " SIZES(151936, 2048, 5632, 48, 16,
                                                                                            2, ""),
         79674391296},
        {"Seed-OSS-36B", "{\"model_type\": \"seed_oss\", " SIZES(155136, 5120, 27648, 64, 80, 8, ""), 36151104512},
    };
    for (int i = 0; i < NDP_COUNT(models); i++) {
        static ndp_facts f;
        CHECK_OK(parse(models[i].config, &f));
        if (ndp_facts_parameters(&f) != models[i].parameters)
            fail_msg("%s: %lld parameters, expected %lld", models[i].model, (long long)ndp_facts_parameters(&f),
                     (long long)models[i].parameters);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_are_transformers),
                                       cmocka_unit_test(keys_are_read),
                                       cmocka_unit_test(rope_forms_are_read),
                                       cmocka_unit_test(bad_configs_are_refused),
                                       cmocka_unit_test(missing_file_is_named),
                                       cmocka_unit_test(degenerate_values_are_refused),
                                       cmocka_unit_test(what_is_not_used_is_not_refused),
                                       cmocka_unit_test(other_features_are_refused),
                                       cmocka_unit_test(kv_heads_are_not_guessed),
                                       cmocka_unit_test(windows_are_read),
                                       cmocka_unit_test(gemmas_are_read),
                                       cmocka_unit_test(both_forms_are_read),
                                       cmocka_unit_test(other_families_are_read),
                                       cmocka_unit_test(heads_by_kind_are_read),
                                       cmocka_unit_test(dropout_is_read),
                                       cmocka_unit_test(published_sizes),
                                       cmocka_unit_test(published_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
