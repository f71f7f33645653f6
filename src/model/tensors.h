/* Walks through a model: through its segments, and through its tensors as files have them. */
#ifndef NDP_MODEL_TENSORS_H
#define NDP_MODEL_TENSORS_H

#include "model/model.h"

/* The segments of all buffers, in their order. Begins as {.model = m}. */
typedef struct ndp_segment_walk {
    const ndp_model *model;
    const ndp_segment *segment;
    int buffer; /* that it is in */
    int next;   /* place of the next one there */
} ndp_segment_walk;
/* False at the end. */
bool ndp_segment_next(ndp_segment_walk *w);

/* A tensor of the model, as files hold it: several segments may be parts of one, and a segment a stack of many. */
typedef struct ndp_model_tensor {
    const char *name;
    const ndp_segment *segment; /* the first that is a part of it */
    int buffer;
    int64_t member; /* of a pattern; else 0 */
} ndp_model_tensor;

/* The tensors of a whole model, each once, in the order of its segments; of a pattern one for each member. Begins as
 * {.segments.model = m}. The name of a tensor is valid until the next one; that of a segment as long as the model. */
typedef struct ndp_tensor_walk {
    ndp_segment_walk segments;
    ndp_model_tensor tensor;
    char room[NDP_SEGMENT_NAME];
} ndp_tensor_walk;
bool ndp_tensor_next(ndp_tensor_walk *w);
/* How many there are. */
int ndp_tensor_count(const ndp_model *m);
/* The tensor with a name that lasts: its own, or a copy in `arena`. NULL: no memory. */
const char *ndp_tensor_keep_name(const ndp_tensor_walk *w, ndp_arena *arena);

/* The segment that is the first part of the tensor of that name, or of all that the pattern names; NULL: none is. */
const ndp_segment *ndp_model_segment(const ndp_model *m, const char *tensor);

#endif
