/* Opening the folder of an adapter. Called where adapters are merged, trained further or used beside a model. */
#include "weights/adapter_folder.h"

#include "base/hub.h"
#include <stdio.h>
#include <string.h>

static bool holds(const char *folder, const char *name) {
    char path[NDP_PATH];
    return ndp_path_join(path, folder, name) == NDP_OK && ndp_path_exists(path);
}

/* The folder itself, or the one of a run. */
static ndp_status find_folder(const char *path, char out[NDP_PATH]) {
    char inner[NDP_PATH];
    NDP_CHECK(strlen(path) < NDP_PATH, "'%.80s...' is longer than a path can be", path);
    NDP_CHECK(ndp_path_is_folder(path), "'%s' is not a folder (%s); an adapter is a folder with " NDP_ADAPTER_CONFIG,
              path, ndp_path_why_no_folder(path));
    NDP_TRY(ndp_path_join(inner, path, "adapter"));
    bool of_run = !holds(path, NDP_ADAPTER_CONFIG) && holds(inner, NDP_ADAPTER_CONFIG);
    snprintf(out, NDP_PATH, "%s", of_run ? inner : path);
    NDP_CHECK(holds(out, NDP_ADAPTER_CONFIG), "'%s' has no " NDP_ADAPTER_CONFIG ": it is %s, not an adapter", path,
              holds(path, "job.yaml")      ? "the folder of a run that has written none"
              : holds(path, "config.json") ? "a model"
                                           : "another folder");
    return NDP_OK;
}

static ndp_status open_weights(ndp_adapter_folder *a) {
    static const char stem[] = "adapter_model";
    NDP_CHECK(holds(a->path, "adapter_model.safetensors") || !holds(a->path, "adapter_model.bin"),
              "'%s' has adapter_model.bin, which is not read; PEFT saves it as safetensors with "
              "PeftModel.from_pretrained(MODEL, FOLDER).save_pretrained(FOLDER)",
              a->path);
    return ndp_weights_open_stem(a->path, stem, &a->weights);
}

ndp_status ndp_adapter_folder_open(const char *path, ndp_adapter_folder *out) {
    ndp_adapter_folder a = {0};
    NDP_TRY(find_folder(path, a.path));
    ndp_status st = ndp_adapter_config_read(a.path, &a.config);
    if (st == NDP_OK)
        st = open_weights(&a);
    if (st == NDP_OK)
        *out = a;
    else
        ndp_adapter_folder_close(&a);
    return st;
}

ndp_status ndp_adapter_folder_find(const char *name, ndp_adapter_folder *out) {
    char folder[NDP_PATH];
    NDP_TRY(ndp_hub_find(NDP_HUB_MODEL, name, folder));
    return ndp_hub_explain(NDP_HUB_MODEL, name, folder, ndp_adapter_folder_open(folder, out));
}

void ndp_adapter_folder_close(ndp_adapter_folder *a) {
    ndp_weights_close(a->weights);
    ndp_adapter_config_release(&a->config);
    *a = (ndp_adapter_folder){0};
}

/* Of a matrix of a single expert, a pattern for those of all: "*.experts.*.up_proj". */
static void name_experts(char module[NDP_MODULE_NAME]) {
    static const char all[] = "*.experts.*";
    const char *number = strstr(module, ".experts."), *word = number ? strchr(number + strlen(".experts."), '.') : NULL;
    if (word && number[strlen(".experts.")] >= '0' && number[strlen(".experts.")] <= '9') {
        size_t rest = strlen(word) + 1;
        memmove(module + sizeof all - 1, word, rest);
        memcpy(module, all, sizeof all - 1);
    }
}

static bool has_name(const ndp_strings *list, const char *name) {
    for (int i = list->n; i-- > 0;)
        if (strcmp(list->items[i], name) == 0)
            return true;
    return false;
}

ndp_status ndp_adapter_folder_modules(const ndp_adapter_folder *a, ndp_strings *targets, ndp_strings *save) {
    for (int i = 0; i < ndp_weights_count(a->weights); i++) {
        const char *name = ndp_weights_at(a->weights, i)->spec.name;
        ndp_factor part = ndp_factor_of(name);
        ndp_strings *list = part == NDP_FACTOR_A ? targets : save;
        char module[NDP_MODULE_NAME], stack[NDP_MODULE_NAME];
        ndp_module_of(name, module);
        if (part == NDP_FACTOR_A && ndp_adapter_config_stack(&a->config, module, stack))
            memcpy(module, stack, sizeof module);
        name_experts(module);
        bool listed = has_name(list, module);
        if (ndp_adapter_inner(name) && (part == NDP_FACTOR_A || part == NDP_NO_FACTOR) && !listed)
            NDP_TRY(ndp_strings_add(list, module));
    }
    return NDP_OK;
}
