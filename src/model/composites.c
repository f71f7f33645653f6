/* Models of several parts, of which the text is one: their config.json has the configuration of a decoder in
 * text_config. Only this decoder is built; tensors of other parts are not read (ndp_facts_carries). Source: the
 * configuration_* files and conversion_mapping.py of transformers 5.24. */
#include "model/composites.h"

#include "model/read.h"
#include <stdio.h>
#include <string.h>

#define LANGUAGE_MODEL .base = "model.language_model."
#define TEXT_MODEL .base = "model.text_model."

static const ndp_composite composites[] = {
    {"gemma3", "Gemma3ForConditionalGeneration", LANGUAGE_MODEL, .text = "gemma3_text", .fixed = true, .tied = true},
    {"gemma4", "Gemma4ForConditionalGeneration", LANGUAGE_MODEL, .text = "gemma4_text", .fixed = true, .tied = true,
     .caps = true},
    {"gemma4_unified", "Gemma4UnifiedForConditionalGeneration", LANGUAGE_MODEL, .text = "gemma4_unified_text",
     .fixed = true, .tied = true, .caps = true},
    {"mistral3", "Mistral3ForConditionalGeneration", LANGUAGE_MODEL, .text = "mistral", .tied = true},
    {"llava", "LlavaForConditionalGeneration", LANGUAGE_MODEL, .text = "llama", .ties_as_text = true},
    {"llava_next", "LlavaNextForConditionalGeneration", LANGUAGE_MODEL, .text = "llama"},
    {"llava_onevision", "LlavaOnevisionForConditionalGeneration", LANGUAGE_MODEL, .text = "qwen2",
     .ties_as_text = true},
    {"internvl", "InternVLForConditionalGeneration", LANGUAGE_MODEL, .text = "qwen2", .tied = true},
    {"smolvlm", "SmolVLMForConditionalGeneration", TEXT_MODEL, .text = "llama"},
    {"idefics3", "Idefics3ForConditionalGeneration", TEXT_MODEL, .text = "llama"},
    {"qwen2_vl", "Qwen2VLForConditionalGeneration", LANGUAGE_MODEL, .text = "qwen2_vl_text", .fixed = true,
     .flat = true, .ties_as_text = true},
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", LANGUAGE_MODEL, .text = "qwen2_5_vl_text", .fixed = true,
     .flat = true, .ties_as_text = true},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", LANGUAGE_MODEL, .text = "qwen3_vl_text", .fixed = true},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", LANGUAGE_MODEL, .text = "qwen3_5_text", .fixed = true},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", LANGUAGE_MODEL, .text = "qwen3_5_moe_text", .fixed = true},
};

/* A published text_config leaves out what its class has: these sizes, by model_type. */
#define SIZES(vocab, hidden, ffn, layers, heads, kv_heads, positions)                                                  \
    "{\"vocab_size\": " #vocab ", \"hidden_size\": " #hidden ", \"intermediate_size\": " #ffn                          \
    ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv_heads   \
    ", \"max_position_embeddings\": " #positions "}"
#define MIXTURE_SIZES(vocab, hidden, layers, heads, kv_heads, positions, ffn, shared_ffn, choices, experts)            \
    "{\"vocab_size\": " #vocab ", \"hidden_size\": " #hidden ", \"num_hidden_layers\": " #layers                       \
    ", \"num_attention_heads\": " #heads ", \"num_key_value_heads\": " #kv_heads                                       \
    ", \"max_position_embeddings\": " #positions ", \"moe_intermediate_size\": " #ffn                                  \
    ", \"shared_expert_intermediate_size\": " #shared_ffn ", \"num_experts_per_tok\": " #choices                       \
    ", \"num_experts\": " #experts "}"
static const struct {
    const char *type, *sizes;
} classes[] = {
    {"llama", SIZES(32000, 4096, 11008, 32, 32, null, 2048)},
    {"mistral", SIZES(32000, 4096, 14336, 32, 32, 8, 131072)},
    {"ministral3", SIZES(131072, 4096, 14336, 34, 32, 8, 262144)},
    {"qwen2", SIZES(151936, 4096, 22016, 32, 32, 32, 32768)},
    {"qwen3", SIZES(151936, 4096, 22016, 32, 32, 32, 32768)},
    {"gemma3_text", SIZES(262208, 2304, 9216, 26, 8, 4, 131072)},
    {"gemma4_text", SIZES(262144, 2304, 9216, 30, 8, 4, 131072)},
    {"gemma4_unified_text", SIZES(262144, 2304, 9216, 30, 8, 4, 262144)},
    {"qwen2_vl_text", SIZES(152064, 8192, 29568, 80, 64, 8, 32768)},
    {"qwen2_5_vl_text", SIZES(152064, 8192, 29568, 80, 64, 8, 32768)},
    {"qwen3_vl_text", SIZES(151936, 4096, 22016, 32, 32, 32, 128000)},
    {"qwen3_5_text", SIZES(248320, 4096, 12288, 32, 16, 4, 32768)},
    {"qwen3_5_moe_text", MIXTURE_SIZES(248320, 2048, 40, 16, 2, 32768, 512, 512, 8, 256)},
};

static const char text_config[] = "text_config";

const ndp_composite *ndp_composite_find(const char *type) {
    for (int i = 0; i < NDP_COUNT(composites); i++)
        if (strcmp(composites[i].type, type) == 0)
            return &composites[i];
    return NULL;
}

const char *ndp_composite_list(char *out, size_t size) {
    size_t at = 0;
    for (int i = 0; i < NDP_COUNT(composites) && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, i ? ", %s" : "%s", composites[i].type);
    return out;
}

/* transformers reads the sizes in text_config, and leaves those beside it alone: such a file was edited by half. */
static ndp_status check_flat(struct json_object *config, const char *what, struct json_object *text) {
    static const char *const keys[] = {"vocab_size",        "hidden_size",         "intermediate_size",
                                       "num_hidden_layers", "num_attention_heads", "num_key_value_heads"};
    for (int i = 0; i < NDP_COUNT(keys); i++) {
        struct json_object *beside = ndp_config_member(config, keys[i]), *inside = ndp_config_member(text, keys[i]);
        if (beside && inside && !json_object_equal(beside, inside))
            return NDP_FAIL(NDP_EFORMAT,
                            "%s: \"%s\" is %.40s, but %.40s in \"text_config\", which transformers reads; leave out "
                            "the one beside it",
                            what, keys[i], json_object_to_json_string(beside), json_object_to_json_string(inside));
    }
    return NDP_OK;
}

/* Where the text's keys are: in text_config, or, in files of old, beside the others. */
static ndp_status find_text(const ndp_composite *c, struct json_object *config, const char *what,
                            struct json_object **out) {
    struct json_object *text = ndp_config_member(config, text_config);
    *out = text ? text : config;
    if (!text)
        return c->flat ? NDP_OK
                       : NDP_FAIL(NDP_EFORMAT, "%s: a %s without \"text_config\", which has the sizes of its text",
                                  what, c->type);
    if (!json_object_is_type(text, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"text_config\" is %.60s, expected an object", what,
                        json_object_to_json_string(text));
    return c->flat ? check_flat(config, what, text) : NDP_OK;
}

/* Members of `from` go to `to`, where they replace others. */
static void take_members(struct json_object *to, struct json_object *from) {
    json_object_object_foreach(from, key, value) json_object_object_add(to, key, json_object_get(value));
}

/* The sizes that the class of a text has; an empty object for one whose files have all. */
static ndp_status class_sizes(const char *type, const char *what, struct json_object **out) {
    const char *sizes = "{}";
    for (int i = 0; i < NDP_COUNT(classes); i++)
        if (strcmp(classes[i].type, type) == 0)
            sizes = classes[i].sizes;
    return ndp_json_parse(sizes, strlen(sizes), what, out);
}

/* What the whole says of its text: whether the head is tied, how weights are stored, and tokens. */
static ndp_status take_whole(const ndp_composite *c, struct json_object *config, const char *what,
                             struct json_object *text) {
    static const char *const keys[] = {"quantization_config", "bos_token_id", "eos_token_id"};
    bool tied = c->tied;
    NDP_TRY(ndp_config_bool(config, what, "tie_word_embeddings", &tied));
    if (tied || !c->ties_as_text)
        json_object_object_add(text, "tie_word_embeddings", json_object_new_boolean(tied));
    for (int i = 0; i < NDP_COUNT(keys); i++)
        if (ndp_config_member(config, keys[i]))
            json_object_object_add(text, keys[i], json_object_get(ndp_config_member(config, keys[i])));
    return NDP_OK;
}

ndp_status ndp_composite_text(const ndp_composite *c, struct json_object *config, const char *what,
                              struct json_object **out) {
    static const char *const others[] = {"architectures", "text_config", "vision_config"};
    struct json_object *from = NULL, *text = NULL;
    NDP_TRY(find_text(c, config, what, &from));
    const char *type = c->text;
    if (from != config && !c->fixed)
        NDP_TRY(ndp_json_string(from, what, "model_type", &type));
    NDP_TRY(class_sizes(type, what, &text));
    take_members(text, from);
    for (int i = 0; i < NDP_COUNT(others); i++)
        json_object_object_del(text, others[i]);
    json_object_object_add(text, "model_type", json_object_new_string(type));
    ndp_status st = take_whole(c, config, what, text);
    if (st == NDP_OK)
        *out = text;
    else
        json_object_put(text);
    return st;
}
