/* adapter_config.json of an adapter, as PEFT (0.17 and later) has it: the form of the adapter (model/adapter_form.h),
 * how its factors are scaled, and which modules it names.
 *
 * Keys that change numbers and are not supported are refused by name, and so are unknown ones, unless they have a value
 * that asks for nothing: null, false, or something empty. Keys that only say how A and B began, or which program wrote
 * them, are accepted. */
#ifndef NDP_WEIGHTS_ADAPTER_CONFIG_H
#define NDP_WEIGHTS_ADAPTER_CONFIG_H

#include "base/text.h"
#include "model/adapter_form.h"

#define NDP_ADAPTER_CONFIG "adapter_config.json"
enum { NDP_ADAPTER_RANK_MOST = 1 << 16 };

typedef struct ndp_adapter_config {
    int r;
    double alpha, dropout; /* dropout: of A's input, in training */
    bool rslora;
    ndp_adapter_form form;
    bool fan_in_fan_out; /* files hold the matrices of the model as [inputs, outputs] */
    bool rewards;        /* of a reward model: task_type SEQ_CLS */
    bool tied;           /* of two tied modules that are saved, each is the other (ensure_weight_tying) */
    char *base;          /* base_model_name_or_path; NULL: not said */
    /* target_modules: names of modules, whole or the last parts of them; or `pattern`, a regular expression for the
     * whole name, or "all-linear". Neither: it is not said. */
    ndp_strings targets;
    char *pattern;
    /* target_parameters: names of parameters, whole or the last parts of them: MODULE.weight, or of a stack of experts
     * MODULE.gate_up_proj (ndp_stack_parameter). */
    ndp_strings parameters;
    ndp_strings save; /* modules_to_save: ends of the names of modules that are saved whole */
} ndp_adapter_config;

/* Reads FOLDER/adapter_config.json. NDP_ENOTSUP names the key and its value; NDP_EFORMAT; NDP_EIO. */
NDP_API ndp_status ndp_adapter_config_read(const char *folder, ndp_adapter_config *out);
/* The same from a text; `what` names it in messages. */
NDP_API ndp_status ndp_adapter_config_parse(const char *text, size_t size, const char *what, ndp_adapter_config *out);
/* Accepts {0}. */
void ndp_adapter_config_release(ndp_adapter_config *c);

/* Appends the text of the file, which PEFT loads for a causal language model. */
void ndp_adapter_config_text(const ndp_adapter_config *c, ndp_str *out);
/* Writes FOLDER/adapter_config.json. */
NDP_API ndp_status ndp_adapter_config_write(const ndp_adapter_config *c, const char *folder);

/* What B A is multiplied by. */
static inline double ndp_adapter_config_scale(const ndp_adapter_config *c) {
    return ndp_adapter_scale(c->alpha, c->r, c->rslora);
}
/* Whether a module of the model ("model.layers.0.self_attn.q_proj") is named by `targets`, or its weight by
 * `parameters`; false for a pattern. */
bool ndp_adapter_config_targets(const ndp_adapter_config *c, const char *module);
/* Whether a parameter is named by `parameters`. */
bool ndp_adapter_config_has_parameter(const ndp_adapter_config *c, const char *parameter);
/* The stack of experts beside which the factors of a module are, as `parameters` names it. PEFT wraps the module of all
 * stacks once for each that has some: MODULE has those of down_proj, or of gate_up_proj where down_proj has none, else
 * MODULE.base_layer has these. False: it is another module. */
bool ndp_adapter_config_stack(const ndp_adapter_config *c, const char *module, char stack[NDP_MODULE_NAME]);
/* Whether it is named by `save`. As in PEFT, a name is any end of a module's name: "norm" is that of every norm. */
bool ndp_adapter_config_saves(const ndp_adapter_config *c, const char *module);

#endif
