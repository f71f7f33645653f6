/* Inside the model room: reading config.json. */
#ifndef NDP_MODEL_READ_H
#define NDP_MODEL_READ_H

#include "base/json.h"
#include "model/families.h"

enum { NDP_SEES_NOTHING = -1 }; /* a window of 0 keys, refused where a layer has it */

/* NULL when the member is missing or null. */
struct json_object *ndp_config_member(struct json_object *o, const char *key);
/* Missing, null, false, empty, or the number `neutral`. */
bool ndp_config_is_neutral(struct json_object *value, double neutral);
/* NDP_ENOTSUP: what the key asks for is not built; `way_out` ends the message. */
ndp_status ndp_config_refuse(const char *what, const char *key, struct json_object *value, const char *way_out);
/* A whole number in [1, high] that has no default. */
ndp_status ndp_config_size(struct json_object *config, const char *what, const char *key, int64_t high, int64_t *out);
/* The readers below leave the default in *out when the key is missing, and refuse null: transformers refuses it too, or
 * reads something else than its default. */
ndp_status ndp_config_not_null(struct json_object *o, const char *what, const char *key);
ndp_status ndp_config_bool(struct json_object *o, const char *what, const char *key, bool *out);
ndp_status ndp_config_count(struct json_object *o, const char *what, const char *key, int64_t low, int64_t high,
                            int64_t *out);
/* A number strictly between 0 and infinity. */
ndp_status ndp_config_positive(struct json_object *o, const char *what, const char *key, double *out);
/* The same; null is the default as well. */
ndp_status ndp_config_optional(struct json_object *o, const char *what, const char *key, double *out);
/* A cap of scores or logits; null for 0: none. */
ndp_status ndp_config_cap(struct json_object *o, const char *what, const char *key, double *out);

/* The tables of angles: rope_theta and rope_scaling {type or rope_type, ...}, or both in rope_parameters (transformers
 * 5), where families with two tables have one for each kind of layer. Head sizes are read already. */
ndp_status ndp_config_ropes(struct json_object *config, const char *what, const ndp_family *family, ndp_facts *f);

/* Kinds of layers: by a family's rule of windows; with and without RoPE by no_rope_layers (smollm3). */
ndp_status ndp_layers_by_windows(struct json_object *config, const char *what, const ndp_window_rule *rule,
                                 ndp_facts *f);
ndp_status ndp_layers_smollm3(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_layers_delta(struct json_object *config, const char *what, ndp_facts *f);

/* Keys of one family (ndp_family.more). */
ndp_status ndp_more_delta(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_experts(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_glm4_moe(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_shape_latent(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_deepseek_v2(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_deepseek_v3(struct json_object *config, const char *what, ndp_facts *f);
/* Sets f->packed by quantization_config. `stacks`: of a family whose files have whole stacks of experts. NDP_ENOTSUP: a
 * form that is not read (read_packing.c). */
ndp_status ndp_config_packing(struct json_object *config, const char *what, bool stacks, ndp_facts *f);
/* How many modules for more tokens there are behind the last layer. */
ndp_status ndp_config_further(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_ministral3(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_gpt_oss(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_gemma(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_gemma2(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_shape_gemma4(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_gemma4(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_granite(struct json_object *config, const char *what, ndp_facts *f);
ndp_status ndp_more_stablelm(struct json_object *config, const char *what, ndp_facts *f);

#endif
