/* An adapter of a folder beside a model: read by inference, and where training goes on with it. */
#ifndef NDP_WEIGHTS_ADAPTER_USE_H
#define NDP_WEIGHTS_ADAPTER_USE_H

#include "model/adapter.h"
#include "weights/adapter_match.h"

typedef struct ndp_adapter_use {
    char path[NDP_PATH];
    ndp_adapter adapter;       /* borrows the lists */
    ndp_strings targets, save; /* names of modules, as the adapter's tensors say */
} ndp_adapter_use;

/* Opens the folder of an adapter, of a run that has trained one, or a name in the Hub cache; checks it against the
 * model, and says how to build the model with it. Errors as of ndp_adapter_match_make; NDP_ENOTSUP for what only a
 * merge can do. The caller releases *out. */
NDP_API ndp_status ndp_adapter_use_open(const char *name, const ndp_model_spec *s, ndp_adapter_use *out);
/* Accepts {0}. */
void ndp_adapter_use_release(ndp_adapter_use *u);

/* Opens the folder `name` and matches it with a model that was built with options of its own (adapter.r and so on),
 * which must be those of the folder: NDP_EINVAL says which to set. The caller closes *a and releases *match. */
NDP_API ndp_status ndp_adapter_use_match(const char *name, const ndp_model *m, ndp_adapter_folder *a,
                                         ndp_adapter_match *match);

#endif
