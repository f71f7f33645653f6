/* Inside the model room: which tensors are updated alike, by their names (optimizer.groups).
 *
 * A name is the end of the name of a tensor or of its module, behind a dot ("q_proj", "norm.weight"); a pattern of the
 * whole of one of them (fnmatch(3): "*.bias", "model.layers.0.*"); or "vectors", all tensors of one dimension. */
#ifndef NDP_MODEL_GROUP_NAMES_H
#define NDP_MODEL_GROUP_NAMES_H

#include "model/facts.h"

/* `f`: NULL for a model that is no decoder. Sets ndp_segment.named_by in a model whose trained buffers are known.
 * NDP_EINVAL: a name names no tensor, or none that is trained; two entries name a tensor. NDP_ENOTSUP: a name names
 * some members of a stack. */
ndp_status ndp_groups_name(ndp_model *m, const ndp_facts *f);

#endif
