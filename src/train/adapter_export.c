/* The trained adapter as a folder of PEFT: adapter_config.json and adapter_model.safetensors. */
#include "checkpoint/adapter_config.h"
#include "checkpoint/agree.h"
#include "train/export.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* Adds the last word of a module's name, to which `tensor` adds `ending`, once. */
static ndp_status add_module(ndp_strings *list, const char *tensor, const char *ending) {
    char module[512];
    snprintf(module, sizeof module, "%.*s", (int)(strlen(tensor) - strlen(ending)), tensor);
    const char *dot = strrchr(module, '.'), *word = dot ? dot + 1 : module;
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i], word) == 0)
            return NDP_OK;
    return ndp_strings_add(list, word);
}

static ndp_status list_modules(const ndp_model *m, ndp_adapter_config *c) {
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n && !m->buffers[b].base; i++) {
            const ndp_segment *s = &m->buffers[b].segments.items[i];
            ndp_factor factor = ndp_factor_of(s->name);
            if (factor == NDP_FACTOR_A)
                NDP_TRY(add_module(&c->targets, s->name, ".lora_A.weight"));
            else if (factor == NDP_NO_FACTOR)
                NDP_TRY(add_module(&c->save, s->name, strrchr(s->name, '.')));
        }
    return NDP_OK;
}

/* Whether files hold the projections transposed. */
static bool is_transposed(const ndp_model *m) {
    bool is = false;
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++)
            is |= m->buffers[b].segments.items[i].transposed;
    return is;
}

ndp_status ndp_export_adapter_config(const ndp_job *j, const ndp_model *m, const char *folder) {
    const ndp_config *c = j->config;
    ndp_adapter_config a = {.r = c->adapter.r,
                            .alpha = c->adapter.alpha,
                            .dropout = c->adapter.dropout,
                            .rslora = c->adapter.rslora,
                            .dora = c->adapter.dora,
                            .fan_in_fan_out = is_transposed(m),
                            .base = (char *)c->model.path}; /* borrowed: not released */
    ndp_status st = list_modules(m, &a);
    a.tied = a.save.n > 0 && j->spec.tie[0][0] && !j->spec.own_head;
    if (st == NDP_OK)
        st = ndp_folder_create(folder);
    if (st == NDP_OK)
        st = ndp_adapter_config_write(&a, folder);
    a.base = NULL;
    ndp_adapter_config_release(&a);
    return st;
}

/* Rank 0. */
static ndp_status write_config(const ndp_trainer *t, const char *folder) {
    NDP_TRY(ndp_lock_check(t->lock));
    return ndp_export_adapter_config(&t->rank.job, &t->model, folder);
}

ndp_status ndp_trainer_export_adapter(ndp_trainer *t, const char *folder) {
    ndp_tensor_list list = {0};
    ndp_dtype type = t->model.opts.master; /* factors are small: nothing is rounded */
    NDP_TRY(ndp_agree(t->rank.world, ndp_is_first(t->rank.world) ? write_config(t, folder) : NDP_OK));
    ndp_status st = ndp_tensor_list_add(&list, t->engine, NDP_OWNED_MASTER, NDP_TENSORS_RUN, "", type);
    if (st == NDP_OK)
        st = ndp_tensor_list_wrap(&list);
    st = ndp_agree(t->rank.world, st);
    if (st == NDP_OK)
        st = ndp_weights_save_stem(t->rank.world, t->lock, folder, "adapter_model", list.specs, list.n, list.pieces,
                                   list.n_pieces, INT64_MAX);
    ndp_tensor_list_release(&list);
    return st;
}
