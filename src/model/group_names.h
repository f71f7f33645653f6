/* Inside the model room: which tensors are updated alike (optimizer.groups), or trained (model.trained), by their
 * names.
 *
 * A name is the end of the name of a tensor or of its module, behind a dot ("q_proj", "norm.weight"); a pattern of the
 * whole of one of them (fnmatch(3): "*.bias", "model.layers.0.*"); "regex:" and a regular expression of all of the
 * tensor's name (full_match.h); or "vectors", all tensors of one dimension. */
#ifndef NDP_MODEL_GROUP_NAMES_H
#define NDP_MODEL_GROUP_NAMES_H

#include "model/facts.h"

/* `f`: NULL for a model that is no decoder. Sets ndp_segment.named_by in a model whose trained buffers are known.
 * NDP_EINVAL: a name names no tensor, or none that is trained; two entries name a tensor. NDP_ENOTSUP: a name names
 * some members of a stack. */
ndp_status ndp_groups_name(ndp_model *m, const ndp_facts *f);

/* Whether opts.trained names a segment: all tensors of it. What has no gradient is not trained. */
bool ndp_trained_names(const ndp_model_opts *o, const ndp_segment *s, const ndp_facts *f);
/* Of a model whose buffers are known. NDP_EINVAL: a name in opts.trained names no tensor that could be trained.
 * NDP_ENOTSUP: they name some members of a stack. */
ndp_status ndp_trained_check(const ndp_model *m, const ndp_facts *f);

#endif
