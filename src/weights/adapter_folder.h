/* The folder of an adapter, as PEFT saves it: adapter_config.json and adapter_model.safetensors, whose names are those
 * of the model's tensors, after a prefix:
 *
 *   base_model.model.MODULE.lora_A.weight             A [r, inputs]
 *   base_model.model.MODULE.lora_B.weight             B [outputs, r]
 *   base_model.model.MODULE.lora_magnitude_vector     m [outputs], with DoRA
 *   base_model.model.TENSOR                           a tensor that is saved whole */
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

/* What a tensor of the file is. */
typedef enum ndp_adapter_part {
    NDP_ADAPTER_A,
    NDP_ADAPTER_B,
    NDP_ADAPTER_MAGNITUDE,
    NDP_ADAPTER_WHOLE,
    NDP_ADAPTER_PARTS
} ndp_adapter_part;
/* The part that a name says. *target: where the rest of the name begins, that of a module (of *length bytes), or of the
 * tensor that is saved whole. NULL: the name has not the prefix of an adapter. */
ndp_adapter_part ndp_adapter_part_of(const char *name, const char **target, size_t *length);

#endif
