/* The trained adapter as a folder of PEFT: adapter_config.json and adapter_model.safetensors. */
#include "weights/adapter_config.h"
#include "weights/export.h"

#include <stdio.h>
#include <string.h>

enum { MODULE = 512 };

/* ---- names of modules ---- */

/* The module of a tensor, without PEFT's prefix and ending. */
static void module_of(const char *tensor, char out[MODULE]) {
    bool factor = ndp_factor_of(tensor) != NDP_NO_FACTOR;
    const char *name = tensor + (factor ? strlen(NDP_ADAPTER_PREFIX) : 0);
    const char *end = factor ? strstr(name, ".lora_") : strrchr(name, '.');
    snprintf(out, MODULE, "%.*s", end ? (int)(end - name) : 0, name);
}

/* Which modules are listed: those with factors, or those that are trained whole. */
static bool is_listed(const ndp_buffer *b, const ndp_segment *s, bool factors) {
    return !b->base && (ndp_factor_of(s->name) == NDP_FACTOR_A) == factors &&
           (factors || ndp_factor_of(s->name) == NDP_NO_FACTOR);
}

static bool lists_module(const ndp_model *m, const char *module, bool factors) {
    char other[MODULE];
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++) {
            const ndp_segment *s = &m->buffers[b].segments.items[i];
            module_of(s->name, other);
            if (is_listed(&m->buffers[b], s, factors) && strcmp(other, module) == 0)
                return true;
        }
    return false;
}

/* Whether one of the modules that a segment is, or is a part of, has a name that ends with `end` and is not listed. */
static bool has_other(const ndp_model *m, const ndp_segment *s, const char *end, bool factors) {
    char module[MODULE], room[NDP_SEGMENT_NAME];
    for (int64_t i = 0; i < ndp_segment_tensors(s); i++) {
        module_of(ndp_segment_tensor_name(s, i, room), module);
        if (ndp_ends_with(module, end) && !lists_module(m, module, factors))
            return true;
    }
    return false;
}

/* Whether all modules whose names end with `end` are listed: PEFT takes every one of them. */
static bool is_exact(const ndp_model *m, const char *end, bool factors) {
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++)
            if (has_other(m, &m->buffers[b].segments.items[i], end, factors))
                return false;
    return true;
}

/* Whether the last word of a module's name is that of an expert's matrix. In transformers from 5 on, experts are no
 * modules, and PEFT takes each target with such a word, also a whole name, for the experts of all layers. So these
 * modules are named by their parameter, which it looks up as it is. */
static bool is_like_expert(const ndp_model *m, const char *module) {
    const char *word = strrchr(module, '.');
    char other[MODULE], room[NDP_SEGMENT_NAME];
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++) {
            const ndp_segment *s = &m->buffers[b].segments.items[i];
            for (int64_t k = 0; ndp_segment_is_stack(s) && k < ndp_segment_tensors(s); k++) {
                module_of(ndp_segment_tensor_name(s, k, room), other);
                if (word && ndp_ends_with(other, word))
                    return true;
            }
        }
    return false;
}

static bool is_covered(const ndp_strings *list, const char *module) {
    for (int i = 0; i < list->n; i++)
        if (ndp_ends_with(module, list->items[i]))
            return true;
    return false;
}

/* Adds the shortest end of a module's name that means no other module: "q_proj", "mlp.c_proj", "model.norm". Nothing if
 * a list has one already, as it has for all layers but the first. */
static ndp_status add_module(const ndp_model *m, const char *module, bool factors, ndp_adapter_config *a) {
    const char *end = module + strlen(module);
    ndp_strings *list = factors ? &a->targets : &a->save;
    if (is_covered(list, module) || is_covered(&a->parameters, module))
        return NDP_OK;
    for (bool exact = false; !exact && end > module; exact = is_exact(m, end + (*end == '.'), factors))
        for (end--; end > module && *end != '.'; end--)
            continue;
    return ndp_strings_add(factors && is_like_expert(m, module) ? &a->parameters : list, end + (*end == '.'));
}

static ndp_status list_modules(const ndp_model *m, bool factors, ndp_adapter_config *a) {
    char module[MODULE];
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++) {
            const ndp_segment *s = &m->buffers[b].segments.items[i];
            module_of(s->name, module);
            if (is_listed(&m->buffers[b], s, factors))
                NDP_TRY(add_module(m, module, factors, a));
        }
    return NDP_OK;
}

/* Whether the table of a tied pair is trained. */
static bool saves_tied(const ndp_job *j, const ndp_model *m) {
    char module[MODULE];
    module_of(j->spec.tie[0], module);
    return j->spec.tie[0][0] && !j->spec.own_head && lists_module(m, module, false);
}

/* PEFT loads such a table into both modules, each from a tensor of its own. */
static ndp_status save_both(const ndp_job *j, ndp_strings *save) {
    char module[MODULE];
    module_of(j->spec.tie[1], module);
    return ndp_strings_add(save, module);
}

ndp_status ndp_export_tied(const ndp_job *j, const ndp_model *m, ndp_tensor_list *list) {
    char tokens[MODULE], head[MODULE];
    if (!saves_tied(j, m))
        return NDP_OK;
    snprintf(tokens, sizeof tokens, "%s%s", NDP_ADAPTER_PREFIX, j->spec.tie[0]);
    snprintf(head, sizeof head, "%s%s", NDP_ADAPTER_PREFIX, j->spec.tie[1]);
    return ndp_tensor_list_repeat(list, tokens, head);
}

/* ---- the folder ---- */

/* Whether files hold the projections transposed. */
static bool is_transposed(const ndp_model *m) {
    bool is = false;
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++)
            is |= m->buffers[b].segments.items[i].transposed;
    return is;
}

ndp_status ndp_export_adapter_rest(const ndp_job *j, const ndp_job_data *d, const ndp_model *m, const char *folder) {
    const ndp_config *c = j->config;
    ndp_adapter_config a = {.r = c->adapter.r,
                            .alpha = c->adapter.alpha,
                            .dropout = c->adapter.dropout,
                            .rslora = c->adapter.rslora,
                            .dora = c->adapter.dora,
                            .fan_in_fan_out = is_transposed(m),
                            .base = (char *)c->model.path}; /* borrowed: not released */
    ndp_status st = list_modules(m, true, &a);
    if (st == NDP_OK)
        st = list_modules(m, false, &a);
    if (a.parameters.n > 0)
        a.dropout = 0; /* PEFT loads no other beside them; it is of training alone */
    a.tied = saves_tied(j, m);
    if (st == NDP_OK && a.tied)
        st = save_both(j, &a.save);
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
