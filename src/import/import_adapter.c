/* Adapters of Axolotl and LLaMA-Factory: LoRA and QLoRA by PEFT and bitsandbytes. */
#include "import/import_parts.h"

#include "base/full_match.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- targets ---- */

static bool is_regex(const char *target) { return strpbrk(target, "\\()|+^$"); }

/* A module that is no projection, or a regular expression among names, which PEFT compares as a name. */
static ndp_status check_target(ndp_import *m, const char *key, const char *target) {
    static const char *const others[] = {"embed_tokens", "lm_head", "wte", "wpe"};
    const char *why = is_regex(target) ? "a regular expression among names is a name for PEFT; give it alone" : NULL;
    for (int i = 0; i < NDP_COUNT(others); i++)
        if (strcmp(target, others[i]) == 0)
            why = "embedding and head have no factors: name them in lora_modules_to_save, which trains them whole";
    if (strcmp(target, "shared_expert_gate") == 0)
        why = "the gate of a shared expert has no factors";
    if ((strcmp(target, "k_proj") == 0 || strcmp(target, "v_proj") == 0) &&
        ndp_import_has_latent_attention(m->job.model.path))
        why = "the model has kv_a_proj_with_mqa and kv_b_proj instead, and PEFT leaves out names that a model lacks";
    return why ? ndp_import_refuse(&m->notes, key, target, ndp_import_node(&m->notes, key), why, "adapter.targets")
               : NDP_OK;
}

/* A parameter by its end: a module's weight, or a stack of experts, which our targets name by that word. */
static ndp_status add_parameter(ndp_strings *targets, const char *parameter) {
    static const char weight[] = ".weight";
    size_t n = strlen(parameter), k = strlen(weight);
    bool module = n > k && strcmp(parameter + n - k, weight) == 0, stack = strstr(parameter, "experts");
    char *name = ndp_format("%s%.*s", module || stack ? "" : "experts.", (int)(module ? n - k : n), parameter);
    ndp_status st = name ? ndp_strings_add(targets, name) : NDP_FAIL(NDP_ENOMEM, "not enough memory for a target");
    free(name);
    return st;
}

/* One text is a regular expression for PEFT, which compares it with whole names of modules. */
static ndp_status add_target(ndp_import *m, ndp_strings *targets, const char *target) {
    const char *key = ndp_import_find(&m->notes, "lora_target") ? "lora_target" : "lora_target_modules";
    bool listed = ndp_import_is_axolotl(m) &&
                  fy_node_is_sequence(fy_node_mapping_lookup_by_string(m->yaml.root, key, strlen(key))),
         alone =
             m->read.targets.n == 1 && !listed && strcmp(key, "lora_target") != 0; /* TRL makes a text of one item */
    if (!alone || !is_regex(target)) {
        NDP_TRY(check_target(m, key, target));
        return ndp_strings_add(targets, target);
    }
    if (ndp_full_match_check(target) != NDP_OK) {
        char why[400];
        snprintf(why, sizeof why, "%s", ndp_error_message());
        NDP_TRY(ndp_import_refuse(&m->notes, key, target, ndp_import_node(&m->notes, key), why, "adapter.targets"));
        return ndp_strings_add(targets, target);
    }
    char *marked = ndp_format("%s%s", NDP_REGEX_PREFIX, target);
    ndp_status st = marked ? ndp_strings_add(targets, marked) : NDP_MEMORY(false, "for a target");
    free(marked);
    return st;
}

static ndp_status finish_targets(ndp_import *m) {
    ndp_strings *targets = &m->job.adapter.targets;
    if (ndp_import_is_set(&m->notes, "adapter.targets"))
        return NDP_OK;
    ndp_strings_release(targets);
    if (m->read.target_linear == WORD_YES)
        NDP_TRY(ndp_strings_add(targets, "linear"));
    for (int i = 0; i < m->read.targets.n; i++)
        NDP_TRY(add_target(m, targets, m->read.targets.items[i]));
    for (int i = 0; i < m->read.parameters.n; i++)
        NDP_TRY(add_parameter(targets, m->read.parameters.items[i]));
    if (targets->n == 0) /* PEFT has a list for each family; Axolotl's examples name theirs */
        return ndp_import_fail(
            &m->notes, "adapter",
            "'adapter' without lora_target_modules or lora_target_linear: say which projections have "
            "factors, or --set adapter.targets=linear");
    return NDP_OK;
}

/* The keys of an adapter in a file without one are of no effect. */
static ndp_status forget(ndp_import *m) {
    ndp_config defaults;
    NDP_TRY(ndp_config_init(&defaults));
    for (int i = 0; i < ndp_option_count; i++)
        if (strcmp(ndp_options[i].section, "adapter") == 0) {
            ndp_option_release(&ndp_options[i], &m->job);
            m->imported[i] = m->job.given[i] = false;
        }
    m->job.adapter = defaults.adapter; /* which owns its lists now */
    memset(&defaults.adapter, 0, sizeof defaults.adapter);
    ndp_config_release(&defaults);
    return NDP_OK;
}

ndp_status ndp_import_finish_adapter(ndp_import *m) {
    bool four = m->read.four_bits == WORD_YES, eight = m->read.eight_bits == WORD_YES;
    const char *bits = !ndp_import_is_axolotl(m) ? "quantization_bit" : four ? "load_in_4bit" : "load_in_8bit";
    if (m->read.adapter == NDP_ADAPTER_NONE) {
        NDP_TRY(forget(m));
        return four || eight ? ndp_import_refuse(&m->notes, bits, "true", ndp_import_node(&m->notes, bits),
                                                 "quantized weights are not trained; adapter: qlora trains factors "
                                                 "beside them",
                                                 "adapter.base")
                             : NDP_OK;
    }
    bool qlora = m->read.adapter == NDP_ADAPTER_QLORA || four || eight;
    m->job.adapter.type = qlora ? NDP_ADAPTER_QLORA : NDP_ADAPTER_LORA;
    m->job.adapter.base = eight && !four ? NDP_PACKING_INT8 : NDP_PACKING_NF4;
    m->job.adapter.dora = m->read.dora == WORD_YES;
    m->job.adapter.rslora = m->read.rslora == WORD_YES;
    ndp_import_mark(m, offsetof(ndp_config, adapter.type));
    if (qlora && m->job.adapter.base == NDP_PACKING_INT8)
        SAY(m, "8 bits: weights are stored as int8 with a scale for each row; bitsandbytes also computes products "
               "in int8, apart from outliers\n");
    return finish_targets(m);
}
