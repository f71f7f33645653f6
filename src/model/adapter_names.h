/* Inside the model room: which tensors an adapter names. */
#ifndef NDP_MODEL_ADAPTER_NAMES_H
#define NDP_MODEL_ADAPTER_NAMES_H

#include "model/facts.h"

/* True if a projection, by the name of its tensor, has factors: a target is the end of its module's name ("q_proj"), a
 * pattern of the whole name (fnmatch(3), with FNM_EXTMATCH: "*.@(q|k)_proj"), "regex:" with a regular expression of it
 * (full_match.h), or "linear", which is all projections. */
bool ndp_adapter_targets(const ndp_adapter *a, const char *tensor);
/* True if a tensor is trained whole. A name is the end of its module's name; that of a tied head is the embedding. */
bool ndp_adapter_saves(const ndp_adapter *a, const char *tensor, const ndp_facts *f);
/* True if `name` is the end of that of a tensor's module, behind a dot; of a tied head it names the embedding. `f` is
 * NULL for a model that is no decoder, here, above and below. */
bool ndp_module_is_named(const char *tensor, const char *name, const ndp_facts *f);

/* Of a model whose tables are made. NDP_EINVAL: a name matches nothing; a projection is to be trained whole. */
ndp_status ndp_adapter_check(const ndp_model *m, const ndp_facts *f);

#endif
