/* The trained adapter as a folder of PEFT: adapter_config.json and adapter_model.safetensors. */
#include "model/tensors.h"
#include "weights/adapter_config.h"
#include "weights/export.h"

#include <stdio.h>
#include <string.h>

/* ---- names of modules ---- */

/* Which modules are listed: those with factors, or those that are trained whole. */
static bool is_listed(const ndp_segment_walk *w, bool factors) {
    return !w->model->buffers[w->buffer].base && !ndp_segment_is_stack(w->segment) &&
           ndp_factor_of(w->segment->name) == (factors ? NDP_FACTOR_A : NDP_NO_FACTOR);
}

static bool lists_module(const ndp_model *m, const char *module, bool factors) {
    char other[NDP_MODULE_NAME];
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);) {
        ndp_module_of(w.segment->name, other);
        if (is_listed(&w, factors) && strcmp(other, module) == 0)
            return true;
    }
    return false;
}

/* Whether all modules whose names end with `end` are listed: PEFT takes every one of them. */
static bool is_exact(const ndp_model *m, const char *end, bool factors) {
    char module[NDP_MODULE_NAME];
    for (ndp_tensor_walk w = {.segments.model = m}; ndp_tensor_next(&w);) {
        ndp_module_of(w.tensor.name, module);
        if (ndp_ends_with(module, end) && !lists_module(m, module, factors))
            return false;
    }
    return true;
}

/* Whether the last word of a module's name is that of an expert's matrix. In transformers from 5 on, experts are no
 * modules, and PEFT takes each target with such a word, also a whole name, for the experts of all layers. So these
 * modules are named by their parameter, which it looks up as it is. */
static bool is_like_expert(const ndp_model *m, const char *module) {
    const char *word = strrchr(module, '.');
    char other[NDP_MODULE_NAME];
    for (ndp_tensor_walk w = {.segments.model = m}; word && ndp_tensor_next(&w);) {
        ndp_module_of(w.tensor.name, other);
        if (ndp_segment_is_stack(w.tensor.segment) && ndp_ends_with(other, word))
            return true;
    }
    return false;
}

static bool is_covered(const ndp_strings *list, const char *name) {
    for (int i = 0; i < list->n; i++)
        if (ndp_ends_with(name, list->items[i]))
            return true;
    return false;
}

/* Of a stack of experts with factors, the end of its parameter's name behind the number of the layer. */
static ndp_status add_stack(const ndp_segment *s, ndp_adapter_config *a) {
    char parameter[NDP_SEGMENT_NAME];
    ndp_stack_parameter(s, parameter);
    const char *end = parameter + strlen(parameter);
    for (int words = 0; end > parameter && words < 3; words += *end == '.')
        end--;
    return is_covered(&a->parameters, parameter) ? NDP_OK : ndp_strings_add(&a->parameters, end + (*end == '.'));
}

/* The modules of single experts, "experts.3.up_proj": other modules may end as they do. */
static ndp_status add_single(const ndp_segment *s, ndp_adapter_config *a) {
    char module[NDP_MODULE_NAME], room[NDP_SEGMENT_NAME];
    for (int64_t i = 0; i < s->stack; i++) {
        ndp_module_of(ndp_segment_tensor_name(s, i, room), module);
        const char *end = strstr(module, "experts.");
        if (end && !is_covered(&a->targets, module))
            NDP_TRY(ndp_strings_add(&a->targets, end));
    }
    return NDP_OK;
}

static ndp_status add_experts(const ndp_model *m, const ndp_segment *s, ndp_adapter_config *a) {
    ndp_stack_factors how =
        ndp_segment_is_stack(s) ? ndp_adapter_of_stack(&m->opts.adapter, s) : NDP_STACK_FACTORS_NONE;
    return how == NDP_STACK_FACTORS_JOINT    ? add_stack(s, a)
           : how == NDP_STACK_FACTORS_SINGLE ? add_single(s, a)
                                             : NDP_OK;
}

/* Adds the shortest end of a module's name that means no other module: "q_proj", "mlp.c_proj", "model.norm"; of one
 * that is saved beside parts that are not built, which may have such ends too, the whole name. Nothing if a list has
 * one already, as it has for all layers but the first. */
static ndp_status add_module(const ndp_model *m, const char *module, bool factors, ndp_adapter_config *a) {
    const char *end = module + strlen(module);
    ndp_strings *list = factors ? &a->targets : &a->save;
    char weight[NDP_MODULE_NAME + sizeof ".weight"];
    ndp_model_spec s;
    ndp_model_describe(m, &s);
    snprintf(weight, sizeof weight, "%s.weight", module);
    if (is_covered(list, module) || is_covered(&a->parameters, weight))
        return NDP_OK;
    for (bool exact = false; !exact && end > module;
         exact = (factors || !s.composite) && is_exact(m, end + (*end == '.'), factors))
        for (end--; end > module && *end != '.'; end--)
            continue;
    end += *end == '.';
    return factors && is_like_expert(m, module) ? ndp_strings_add(&a->parameters, weight + (end - module))
                                                : ndp_strings_add(list, end);
}

static ndp_status list_modules(const ndp_model *m, bool factors, ndp_adapter_config *a) {
    char module[NDP_MODULE_NAME];
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);) {
        ndp_module_of(w.segment->name, module);
        if (is_listed(&w, factors))
            NDP_TRY(add_module(m, module, factors, a));
        if (factors)
            NDP_TRY(add_experts(m, w.segment, a));
    }
    return NDP_OK;
}

/* Beside parts that are not built: a pattern, for PEFT, that names the targets of the text alone. */
static ndp_status name_in_text(const char *text, ndp_adapter_config *a) {
    ndp_str pattern = {0};
    for (const char *c = text; *c; c++)
        ndp_str_addf(&pattern, *c == '.' ? "\\%c" : "%c", *c);
    ndp_str_add(&pattern, ".*\\.(");
    for (int i = 0; i < a->targets.n; i++) {
        ndp_str_add(&pattern, i ? "|" : "");
        for (const char *c = a->targets.items[i]; *c; c++)
            ndp_str_addf(&pattern, *c == '.' ? "\\%c" : "%c", *c);
    }
    ndp_str_add(&pattern, ")");
    a->pattern = pattern.failed ? NULL : pattern.data;
    return NDP_MEMORY(a->pattern, "for the names of an adapter");
}

static bool has_single(const ndp_adapter_config *a) {
    bool has = false;
    for (int i = 0; i < a->targets.n; i++)
        has |= strncmp(a->targets.items[i], "experts.", strlen("experts.")) == 0;
    return has;
}

/* Whether the table of a tied pair is trained. */
static bool saves_tied(const ndp_job *j, const ndp_model *m) {
    char module[NDP_MODULE_NAME];
    ndp_module_of(j->spec.tie[0], module);
    return j->spec.tie[0][0] && !j->spec.own_head && !ndp_preference_scores(m->opts.preference.kind) &&
           lists_module(m, module, false);
}

ndp_status ndp_export_tied(const ndp_job *j, const ndp_model *m, ndp_tensor_list *list) {
    char tokens[NDP_MODULE_NAME], head[NDP_MODULE_NAME];
    if (!saves_tied(j, m))
        return NDP_OK;
    snprintf(tokens, sizeof tokens, "%s%s", NDP_ADAPTER_PREFIX, j->spec.tie[0]);
    snprintf(head, sizeof head, "%s%s", NDP_ADAPTER_PREFIX, j->spec.tie[1]);
    return ndp_tensor_list_repeat(list, tokens, head);
}

/* ---- the folder ---- */

/* Whether files hold the modules' projections transposed. */
static bool is_transposed(const ndp_model *m) {
    bool is = false;
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);)
        is |= w.segment->transposed && !ndp_segment_is_stack(w.segment);
    return is;
}

ndp_status ndp_export_adapter_rest(const ndp_job *j, const ndp_job_data *d, const ndp_model *m, const char *folder) {
    const ndp_config *c = j->config;
    ndp_adapter_config a = {.r = c->adapter.r,
                            .alpha = c->adapter.alpha,
                            .dropout = c->adapter.dropout,
                            .rslora = c->adapter.rslora,
                            .form = m->opts.adapter.form,
                            .rewards = ndp_preference_scores(m->opts.preference.kind),
                            .fan_in_fan_out = is_transposed(m),
                            .base = (char *)c->model.path}; /* borrowed: not released */
    ndp_status st = list_modules(m, true, &a);
    if (st == NDP_OK)
        st = list_modules(m, false, &a);
    if (st == NDP_OK && has_single(&a)) { /* in PEFT gate and up become one pair of twice the rank */
        a.alpha = ndp_adapter_config_scale(&a) * a.r;
        a.rslora = false;
    }
    if (st == NDP_OK && j->spec.composite && a.targets.n > 0)
        st = name_in_text(j->spec.text, &a);
    if (a.parameters.n > 0)
        a.dropout = 0; /* PEFT loads no other beside them; it is of training alone */
    a.tied = saves_tied(j, m);
    if (st == NDP_OK && a.tied) { /* PEFT loads such a table into both modules, each from a tensor of its own */
        char head[NDP_MODULE_NAME];
        ndp_module_of(j->spec.tie[1], head);
        st = ndp_strings_add(&a.save, head);
    }
    if (st == NDP_OK)
        st = ndp_folder_create(folder);
    if (st == NDP_OK)
        st = ndp_adapter_config_write(&a, folder);
    if (st == NDP_OK)
        st = ndp_export_adapter_tokenizer(j, d, folder);
    a.base = NULL;
    ndp_adapter_config_release(&a);
    return st;
}
