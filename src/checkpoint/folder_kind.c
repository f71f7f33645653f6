/* Model folders and files of kinds that are not read (folder.h). */
#include "checkpoint/folder.h"

#include "base/json.h"
#include <stdio.h>

#define NO_GGUF                                                                                                        \
    "GGUF is not supported: its weights are for inference, most often quantized; download the model's folder with "    \
    "config.json and safetensors from the Hub"

static ndp_status refuse_adapter(const char *folder, const char *path) {
    struct json_object *adapter = NULL;
    NDP_TRY(ndp_json_read(path, &adapter));
    struct json_object *base = json_object_object_get(adapter, "base_model_name_or_path");
    const char *of = json_object_is_type(base, json_type_string) ? json_object_get_string(base) : "its base model";
    ndp_status st =
        NDP_FAIL(NDP_EINVAL,
                 "'%s' is a LoRA adapter (adapter_config.json) of %.200s, not a model; use that, or merge them with "
                 "ndparallel merge --model MODEL --adapter '%s' -o FOLDER",
                 folder, of, folder);
    json_object_put(adapter);
    return st;
}

static ndp_status find_gguf(void *user, const char *folder, const char *name) {
    (void)folder;
    char *found = user;
    if (ndp_ends_with(name, ".gguf"))
        snprintf(found, NDP_PATH, "%s", name);
    return NDP_OK;
}

ndp_status ndp_model_folder_refuse(const char *path) {
    char adapter[NDP_PATH], gguf[NDP_PATH] = "";
    NDP_CHECK(!ndp_ends_with(path, ".gguf"), "'%s': " NO_GGUF, path);
    if (!ndp_path_is_folder(path) || ndp_weights_exist(path))
        return NDP_OK;
    NDP_TRY(ndp_path_join(adapter, path, "adapter_config.json"));
    if (ndp_path_exists(adapter))
        return refuse_adapter(path, adapter);
    NDP_TRY(ndp_folder_visit(path, find_gguf, gguf));
    NDP_CHECK(!gguf[0], "'%s' has no safetensors, but %s: " NO_GGUF, path, gguf);
    return NDP_OK;
}
