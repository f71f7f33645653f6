/* Inside the checkpoint room: the list of tensors of a set of weights, which folder.c makes of the files and
 * folder_stacks.c changes where stacks of experts are stored in other forms. */
#ifndef NDP_CHECKPOINT_FOLDER_STACKS_H
#define NDP_CHECKPOINT_FOLDER_STACKS_H

#include "base/arena.h"
#include "checkpoint/folder.h"

typedef struct ndp_named_tensor {
    const ndp_tensor_entry *entry;
    const ndp_safetensors *file;
    const struct ndp_dequantised *packed; /* NULL: the entry is in the file */
} ndp_named_tensor;

/* What an entry is made of (packed_forms.h). */
typedef struct ndp_dequantised ndp_dequantised;

struct ndp_weights {
    const char *folder;
    ndp_safetensors **files;
    int64_t n_files, file_capacity;
    ndp_named_tensor *tensors; /* sorted by name */
    int64_t n, capacity;
    /* What names of a text begin with in files, and here; what that of a head's tensors does. NULL: as here. */
    const char *file_text, *text, *file_head;
    ndp_arena arena;
};

/* NULL: there is no tensor of that name. */
const ndp_named_tensor *ndp_weights_named(const ndp_weights *w, const char *name);
/* By name. NDP_EFORMAT: two have one name. */
ndp_status ndp_weights_sort(ndp_weights *w);

/* ndp_weights_read of a `packed` tensor: at most as many elements as the caller's block has; all of a stack is never
 * asked for at once. */
ndp_status ndp_dequantised_read(const ndp_weights *w, const ndp_named_tensor *t, int64_t first, int64_t count,
                                void *dest, ndp_dtype type, bool finite);

#endif
