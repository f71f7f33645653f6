/* Opening the folder of an adapter. Called where adapters are merged, trained further or used beside a model. */
#include "weights/adapter_folder.h"

#include <stdio.h>
#include <string.h>

static const char prefix[] = "base_model.model.";
static const char *const endings[NDP_ADAPTER_PARTS] = {".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector",
                                                       ""};

ndp_adapter_part ndp_adapter_part_of(const char *name, const char **target, size_t *length) {
    ndp_adapter_part part = NDP_ADAPTER_A;
    while (!ndp_ends_with(name, endings[part]))
        part++;
    size_t n = strlen(name) - strlen(endings[part]), skip = sizeof prefix - 1;
    bool there = strncmp(name, prefix, skip) == 0 && n >= skip;
    *target = there ? name + skip : NULL;
    *length = there ? n - skip : 0;
    return part;
}

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

void ndp_adapter_folder_close(ndp_adapter_folder *a) {
    ndp_weights_close(a->weights);
    ndp_adapter_config_release(&a->config);
    *a = (ndp_adapter_folder){0};
}
