/* Weights that a folder stores in fewer bits, by the method that quantization_config names. They are dequantised where
 * they are read (checkpoint/packed_forms.h), so all that a row has to say is which forms of a method that reads. */
#include "model/read.h"

#include <stdlib.h>
#include <string.h>

static bool is_word(struct json_object *o, const char *key, const char *word) {
    const char *text = ndp_json_text(json_object_object_get(o, key));
    return text && strcmp(text, word) == 0;
}

static bool is_true(struct json_object *o, const char *key) {
    struct json_object *value = json_object_object_get(o, key);
    return json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
}

/* 4 bits have nf4 or fp4; without a type they are fp4. */
static bool bitsandbytes(struct json_object *o) {
    bool typed = ndp_json_text(json_object_object_get(o, "bnb_4bit_quant_type")) != NULL;
    bool known = is_word(o, "bnb_4bit_quant_type", "nf4") || is_word(o, "bnb_4bit_quant_type", "fp4");
    return is_true(o, "load_in_8bit") || (is_true(o, "load_in_4bit") && (known || !typed));
}

static bool fp8(struct json_object *o) {
    struct json_object *size = json_object_object_get(o, "weight_block_size");
    bool square = json_object_is_type(size, json_type_array) && json_object_array_length(size) == 2;
    for (size_t i = 0; square && i < 2; i++)
        square = json_object_get_int64(json_object_array_get_idx(size, i)) == 128;
    return square;
}

static bool modelopt(struct json_object *o) { return is_word(o, "quant_algo", "NVFP4"); }
static bool compressed(struct json_object *o) { return is_word(o, "format", "nvfp4-pack-quantized"); }
static bool mxfp4(struct json_object *o) { return o != NULL; }

static const struct {
    const char *method;
    bool (*reads)(struct json_object *packing);
    bool stacks; /* of families whose files have whole stacks of experts; else of all others */
    const char *packed;
} methods[] = {
    {"bitsandbytes", bitsandbytes, false, "matrices that the model folder has in 4 or 8 bits (bitsandbytes)"},
    {"fp8", fp8, false, "matrices that the model folder has as fp8"},
    {"modelopt", modelopt, false, "matrices that the model folder has as NVFP4"},
    {"compressed-tensors", compressed, false, "matrices that the model folder has as NVFP4"},
    {"mxfp4", mxfp4, true, "experts that the model folder has as MXFP4"},
};

ndp_status ndp_config_packing(struct json_object *config, const char *what, bool stacks, ndp_facts *f) {
    struct json_object *packing = ndp_config_member(config, "quantization_config");
    if (ndp_config_is_neutral(packing, 0))
        return NDP_OK;
    for (int i = 0; i < NDP_COUNT(methods) && json_object_is_type(packing, json_type_object) && !f->transposed; i++)
        if (is_word(packing, "quant_method", methods[i].method) && methods[i].stacks == stacks &&
            methods[i].reads(packing)) {
            f->packed = methods[i].packed;
            return NDP_OK;
        }
    return ndp_config_refuse(what, "quantization_config", packing,
                             f->transposed ? ""
                             : stacks      ? "; supported for this family: mxfp4"
                                           : "; supported: bitsandbytes (nf4, fp4, int8), fp8 in blocks of [128, 128], "
                                             "NVFP4 of modelopt or compressed-tensors");
}
