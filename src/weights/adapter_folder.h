/* The folder of an adapter, as PEFT saves it: adapter_config.json and adapter_model.safetensors, whose names are those
 * of the model's tensors, after a prefix:
 *
 *   base_model.model.MODULE.lora_A.weight     a factor (model/adapter_form.h has their endings and shapes)
 *   base_model.model.TENSOR                   a tensor that is saved whole */
#ifndef NDP_WEIGHTS_ADAPTER_FOLDER_H
#define NDP_WEIGHTS_ADAPTER_FOLDER_H

#include "checkpoint/folder.h"
#include "weights/adapter_config.h"

typedef struct ndp_adapter_folder {
    char path[NDP_PATH];
    ndp_adapter_config config;
    ndp_weights *weights;
} ndp_adapter_folder;

/* Opens a folder, or the folder `adapter` in it (of a run that has trained one), and checks its files by themselves.
 * NDP_EINVAL: it is not an adapter, but something else. The caller closes it. */
NDP_API ndp_status ndp_adapter_folder_open(const char *path, ndp_adapter_folder *out);
/* Accepts {0}. */
void ndp_adapter_folder_close(ndp_adapter_folder *a);

/* The same for the folder that a name in the Hub cache has. */
NDP_API ndp_status ndp_adapter_folder_find(const char *name, ndp_adapter_folder *out);

/* Appends the modules that have factors, and those of tensors that are saved whole, as the names of the tensors say. */
ndp_status ndp_adapter_folder_modules(const ndp_adapter_folder *a, ndp_strings *targets, ndp_strings *save);

#endif
