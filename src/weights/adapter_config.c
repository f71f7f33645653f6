/* Reading and writing adapter_config.json, which may come from anywhere. Every key is in one table, with what is done
 * about it; a key that is not there is refused unless it asks for nothing. Called where adapters are merged, loaded and
 * exported. */
#include "weights/adapter_config.h"

#include "base/json.h"
#include "base/json_write.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum key_role {
    READ,    /* into ndp_adapter_config */
    NOTHING, /* without influence on what the factors mean */
    REFUSED  /* unless it asks for nothing */
} key_role;

typedef struct adapter_key {
    const char *name;
    key_role role;
    const char *why; /* REFUSED: what the key would change */
} adapter_key;

static const adapter_key keys[] = {
    {"peft_type", READ, NULL},
    {"r", READ, NULL},
    {"lora_alpha", READ, NULL},
    {"lora_dropout", READ, NULL},
    {"use_rslora", READ, NULL},
    {"use_dora", READ, NULL},
    {"fan_in_fan_out", READ, NULL},
    {"ensure_weight_tying", READ, NULL},
    {"base_model_name_or_path", READ, NULL},
    {"target_modules", READ, NULL},
    {"target_parameters", READ, NULL},
    {"modules_to_save", READ, NULL},
    {"bias", READ, NULL},
    {"init_lora_weights", READ, NULL},
    {"auto_mapping", NOTHING, NULL},
    {"inference_mode", NOTHING, NULL},
    {"layers_pattern", NOTHING, NULL}, /* only with layers_to_transform */
    {"megatron_core", NOTHING, NULL},  /* only with megatron_config */
    {"peft_version", NOTHING, NULL},
    {"qalora_group_size", NOTHING, NULL}, /* only with use_qalora */
    {"revision", NOTHING, NULL},
    {"runtime_config", NOTHING, NULL},
    {"task_type", NOTHING, NULL},
    {"rank_pattern", REFUSED, "all projections have the same r"},
    {"alpha_pattern", REFUSED, "all projections have the same lora_alpha"},
    {"lora_bias", REFUSED, "B has no bias"},
    {"layers_to_transform", REFUSED, "all layers have factors"},
    {"layer_replication", REFUSED, "layers are not repeated"},
    {"exclude_modules", REFUSED, "target_modules alone says what has factors"},
    {"trainable_token_indices", REFUSED, "embeddings are trained whole, by modules_to_save"},
    {"use_qalora", REFUSED, "A reads the whole input"},
    {"megatron_config", REFUSED, "there are no layers of Megatron"},
    {"loftq_config", REFUSED, "it changes the base model's weights"},
    {"corda_config", REFUSED, "it changes the base model's weights"},
    {"lora_ga_config", REFUSED, "it changes the base model's weights"},
    {"eva_config", REFUSED, "it gives projections different ranks"},
    {"arrow_config", REFUSED, "there is one adapter"},
    {"alora_invocation_tokens", REFUSED, "factors apply to all tokens"},
    {"use_bdlora", REFUSED, "factors are full matrices"},
    {"kasa_config", REFUSED, "it changes the base model's weights"},
    {"monteclora_config", REFUSED, "factors are not random"},
    {"velora_config", REFUSED, "gradients are not compressed"},
};

static const adapter_key *find_key(const char *name) {
    for (int i = 0; i < NDP_COUNT(keys); i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

/* null, false, and what is empty. */
static bool asks_for_nothing(struct json_object *value) {
    switch (json_object_get_type(value)) {
    case json_type_null:
        return true;
    case json_type_boolean:
        return !json_object_get_boolean(value);
    case json_type_string:
        return json_object_get_string_len(value) == 0;
    case json_type_array:
        return json_object_array_length(value) == 0;
    case json_type_object:
        return json_object_object_length(value) == 0;
    default:
        return false;
    }
}

static const char *plain(struct json_object *value) {
    const char *text = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
    return text ? text : "?";
}

static ndp_status check_keys(struct json_object *o, const char *what) {
    json_object_object_foreach(o, name, value) {
        const adapter_key *key = find_key(name);
        if ((key && key->role != REFUSED) || asks_for_nothing(value))
            continue;
        if (key)
            return NDP_FAIL(NDP_ENOTSUP, "%s: \"%s\": %.80s is not supported: %s", what, name, plain(value), key->why);
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: \"%.80s\": %.80s is not known here, and may change what the adapter computes; remove the "
                        "key if it does not",
                        what, name, plain(value));
    }
    return NDP_OK;
}

/* ---- values ---- */

static ndp_status check_type(struct json_object *o, const char *what) {
    const char *type = "";
    NDP_TRY(ndp_json_string(o, what, "peft_type", &type));
    if (!*type)
        return NDP_FAIL(NDP_EFORMAT, "%s: there is no \"peft_type\": it is not the configuration of an adapter of PEFT",
                        what);
    if (strcmp(type, "LORA") != 0)
        return NDP_FAIL(NDP_ENOTSUP, "%s: \"peft_type\": \"%.40s\" is not supported; only LORA is", what, type);
    return NDP_OK;
}

static ndp_status check_bias(struct json_object *o, const char *what) {
    const char *bias = "none";
    NDP_TRY(ndp_json_string(o, what, "bias", &bias));
    return strcmp(bias, "none") == 0
               ? NDP_OK
               : NDP_FAIL(NDP_ENOTSUP, "%s: \"bias\": \"%.40s\" is not supported: biases stay those of the base model",
                          what, bias);
}

/* Some ways to begin subtract the first B A from the base model's weights: PEFT does it again when it loads. */
static ndp_status check_start(struct json_object *o, const char *what) {
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq"};
    const char *start = ndp_json_text(json_object_object_get(o, "init_lora_weights"));
    for (int i = 0; start && i < NDP_COUNT(changing); i++)
        if (strncasecmp(start, changing[i], strlen(changing[i])) == 0)
            return NDP_FAIL(NDP_ENOTSUP,
                            "%s: \"init_lora_weights\": \"%.40s\" is not supported: it changes the base model's "
                            "weights; PEFT saves such an adapter for the weights as they were with "
                            "save_pretrained(FOLDER, path_initial_model_for_weight_conversion=FIRST)",
                            what, start);
    return NDP_OK;
}

static ndp_status read_numbers(struct json_object *o, const char *what, ndp_adapter_config *c) {
    int64_t r = 8; /* PEFT's defaults */
    c->alpha = 8;
    NDP_TRY(ndp_json_int(o, what, "r", 1, NDP_ADAPTER_RANK_MOST, &r));
    NDP_TRY(ndp_json_double(o, what, "lora_alpha", &c->alpha));
    NDP_TRY(ndp_json_double(o, what, "lora_dropout", &c->dropout));
    NDP_TRY(ndp_json_bool(o, what, "use_rslora", &c->rslora));
    for (int form = 0; form < NDP_ADAPTER_FORMS; form++) {
        bool asked = false;
        if (ndp_form_rules[form].key)
            NDP_TRY(ndp_json_bool(o, what, ndp_form_rules[form].key, &asked));
        c->form = asked ? (ndp_adapter_form)form : c->form;
    }
    NDP_TRY(ndp_json_bool(o, what, "fan_in_fan_out", &c->fan_in_fan_out));
    NDP_TRY(ndp_json_bool(o, what, "ensure_weight_tying", &c->tied));
    c->r = (int)r;
    if (!isfinite(c->alpha))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"lora_alpha\" is not a finite number", what);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"lora_dropout\" is %g, expected a number from 0 to below 1", what,
                        c->dropout);
    return NDP_OK;
}

static ndp_status fail_list(const char *what, const char *key, struct json_object *value) {
    return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %.60s, expected a list of names of modules", what, key, plain(value));
}

static ndp_status read_list(struct json_object *value, const char *what, const char *key, ndp_strings *out) {
    if (!value)
        return NDP_OK;
    if (!json_object_is_type(value, json_type_array))
        return fail_list(what, key, value);
    for (size_t i = 0; i < json_object_array_length(value); i++) {
        const char *name = ndp_json_text(json_object_array_get_idx(value, i));
        if (!name || !*name)
            return fail_list(what, key, value);
        NDP_TRY(ndp_strings_add(out, name));
    }
    return NDP_OK;
}

static ndp_status copy_text(const char *text, char **out) {
    *out = strdup(text);
    return *out ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "not enough memory for a text of %zu bytes", strlen(text));
}

static ndp_status read_names(struct json_object *o, const char *what, ndp_adapter_config *c) {
    struct json_object *targets = json_object_object_get(o, "target_modules");
    const char *base = NULL, *pattern = ndp_json_text(targets);
    NDP_TRY(ndp_json_string(o, what, "base_model_name_or_path", &base));
    if (base && *base)
        NDP_TRY(copy_text(base, &c->base));
    if (pattern && *pattern)
        NDP_TRY(copy_text(pattern, &c->pattern));
    else
        NDP_TRY(read_list(targets, what, "target_modules", &c->targets));
    NDP_TRY(read_list(json_object_object_get(o, "target_parameters"), what, "target_parameters", &c->parameters));
    return read_list(json_object_object_get(o, "modules_to_save"), what, "modules_to_save", &c->save);
}

static ndp_status read_config(struct json_object *o, const char *what, ndp_adapter_config *c) {
    if (!json_object_is_type(o, json_type_object))
        return NDP_FAIL(NDP_EFORMAT, "%s: not an object", what);
    NDP_TRY(check_type(o, what));
    NDP_TRY(check_keys(o, what));
    NDP_TRY(check_bias(o, what));
    NDP_TRY(check_start(o, what));
    NDP_TRY(read_numbers(o, what, c));
    return read_names(o, what, c);
}

static ndp_status take(struct json_object *o, const char *what, ndp_adapter_config *out) {
    ndp_adapter_config c = {0};
    ndp_status st = read_config(o, what, &c);
    if (st == NDP_OK)
        *out = c;
    else
        ndp_adapter_config_release(&c);
    json_object_put(o);
    return st;
}

ndp_status ndp_adapter_config_parse(const char *text, size_t size, const char *what, ndp_adapter_config *out) {
    struct json_object *o = NULL;
    NDP_TRY(ndp_json_parse(text, size, what, &o));
    return take(o, what, out);
}

ndp_status ndp_adapter_config_read(const char *folder, ndp_adapter_config *out) {
    struct json_object *o = NULL;
    char path[NDP_PATH];
    NDP_TRY(ndp_path_join(path, folder, NDP_ADAPTER_CONFIG));
    NDP_TRY(ndp_json_read(path, &o));
    return take(o, path, out);
}

void ndp_adapter_config_release(ndp_adapter_config *c) {
    free(c->base);
    free(c->pattern);
    ndp_strings_release(&c->targets);
    ndp_strings_release(&c->parameters);
    ndp_strings_release(&c->save);
    *c = (ndp_adapter_config){0};
}

/* ---- writing ---- */

static struct json_object *list_of(const ndp_strings *names) {
    struct json_object *list = json_object_new_array();
    for (int i = 0; list && i < names->n; i++)
        json_object_array_add(list, json_object_new_string(names->items[i]));
    return list;
}

/* In its shortest digits, a whole number as one: PEFT's type of lora_alpha is int. */
static struct json_object *number_of(double x) {
    ndp_str digits = {0};
    ndp_str_add_number(&digits, x);
    struct json_object *o = digits.failed ? NULL : json_object_new_double_s(x, digits.data);
    ndp_str_release(&digits);
    return o;
}

static struct json_object *object_of(const ndp_adapter_config *c) {
    struct json_object *o = json_object_new_object();
    json_object_object_add(o, "alpha_pattern", json_object_new_object());
    json_object_object_add(o, "auto_mapping", NULL);
    json_object_object_add(o, "base_model_name_or_path", c->base ? json_object_new_string(c->base) : NULL);
    json_object_object_add(o, "bias", json_object_new_string("none"));
    if (c->tied) /* newer than the other keys */
        json_object_object_add(o, "ensure_weight_tying", json_object_new_boolean(true));
    json_object_object_add(o, "fan_in_fan_out", json_object_new_boolean(c->fan_in_fan_out));
    json_object_object_add(o, "inference_mode", json_object_new_boolean(true));
    json_object_object_add(o, "init_lora_weights", json_object_new_boolean(true));
    json_object_object_add(o, "lora_alpha", number_of(c->alpha));
    json_object_object_add(o, "lora_dropout", number_of(c->dropout));
    json_object_object_add(o, "modules_to_save", c->save.n ? list_of(&c->save) : NULL);
    json_object_object_add(o, "peft_type", json_object_new_string("LORA"));
    json_object_object_add(o, "r", json_object_new_int(c->r));
    json_object_object_add(o, "rank_pattern", json_object_new_object());
    json_object_object_add(o, "revision", NULL);
    json_object_object_add(o, "target_modules", c->pattern ? json_object_new_string(c->pattern) : list_of(&c->targets));
    if (c->parameters.n) /* newer too */
        json_object_object_add(o, "target_parameters", list_of(&c->parameters));
    json_object_object_add(o, "task_type", json_object_new_string(c->rewards ? "SEQ_CLS" : "CAUSAL_LM"));
    for (int form = 0; form < NDP_ADAPTER_FORMS; form++)
        if (ndp_form_rules[form].key)
            json_object_object_add(o, ndp_form_rules[form].key, json_object_new_boolean((int)c->form == form));
    json_object_object_add(o, "use_rslora", json_object_new_boolean(c->rslora));
    return o;
}

void ndp_adapter_config_text(const ndp_adapter_config *c, ndp_str *out) {
    struct json_object *o = object_of(c);
    const char *text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    out->failed |= !text;
    if (text)
        ndp_str_addf(out, "%s\n", text);
    json_object_put(o);
}

ndp_status ndp_adapter_config_write(const ndp_adapter_config *c, const char *folder) {
    char path[NDP_PATH];
    ndp_str text = {0};
    NDP_TRY(ndp_path_join(path, folder, NDP_ADAPTER_CONFIG));
    ndp_adapter_config_text(c, &text);
    ndp_status st = text.failed ? NDP_FAIL(NDP_ENOMEM, "not enough memory to write '%s'", path)
                                : ndp_file_write_atomic(path, text.data, text.length);
    ndp_str_release(&text);
    return st;
}

/* ---- what it means ---- */

static bool names_module(const ndp_strings *names, const char *module) {
    size_t n = strlen(module);
    for (int i = 0; i < names->n; i++) {
        size_t end = strlen(names->items[i]);
        if (end <= n && strcmp(module + n - end, names->items[i]) == 0 && (end == n || module[n - end - 1] == '.'))
            return true;
    }
    return false;
}

bool ndp_adapter_config_has_parameter(const ndp_adapter_config *c, const char *parameter) {
    return names_module(&c->parameters, parameter);
}

bool ndp_adapter_config_targets(const ndp_adapter_config *c, const char *module) {
    char weight[NDP_MODULE_NAME + sizeof ".weight"];
    snprintf(weight, sizeof weight, "%s.weight", module);
    return names_module(&c->targets, module) || ndp_adapter_config_has_parameter(c, weight);
}

bool ndp_adapter_config_stack(const ndp_adapter_config *c, const char *module, char stack[NDP_MODULE_NAME]) {
    static const char inner[] = ".base_layer", down[] = ".down_proj", gate_up[] = ".gate_up_proj";
    size_t n = strlen(module), k = strlen(inner);
    bool is_inner = n > k && strcmp(module + n - k, inner) == 0;
    snprintf(stack, NDP_MODULE_NAME, "%.*s%s", (int)(is_inner ? n - k : n), module, down);
    bool outer = ndp_adapter_config_has_parameter(c, stack);
    if (outer && !is_inner)
        return true;
    snprintf(stack, NDP_MODULE_NAME, "%.*s%s", (int)(is_inner ? n - k : n), module, gate_up);
    return is_inner == outer && ndp_adapter_config_has_parameter(c, stack);
}

bool ndp_adapter_config_saves(const ndp_adapter_config *c, const char *module) {
    for (int i = 0; i < c->save.n; i++)
        if (ndp_ends_with(module, c->save.items[i]))
            return true;
    return false;
}
