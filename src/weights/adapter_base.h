/* The weights that an adapter was trained beside. A run records their hash in its manifests (train/identity.h), so
 * a command that uses its adapter can see that they are others now. */
#ifndef NDP_WEIGHTS_ADAPTER_BASE_H
#define NDP_WEIGHTS_ADAPTER_BASE_H

#include "base/hash128.h"
#include "base/text.h"

struct json_object;

typedef struct ndp_adapter_base {
    char hash[33]; /* hexadecimal digits; "": not known */
} ndp_adapter_base;

/* What the identity of a run says; not known: its base was random, or the identity is NULL or of an earlier version. */
ndp_adapter_base ndp_adapter_base_of(struct json_object *identity);
/* What the newest readable manifest says of the run whose folder has that of the adapter, RUN/adapter; not known: it is
 * no run's. */
NDP_API ndp_adapter_base ndp_adapter_base_find(const char *adapter);

/* Whether the weights with the hash `now`, those of `folder`, are known to be others; `words` is a sentence about it
 * then, with both hashes. `adapter` names the adapter in it. */
NDP_API bool ndp_adapter_base_differs(const ndp_adapter_base *b, ndp_hash128 now, const char *folder,
                                      const char *adapter, ndp_str *words);
/* Warns on stderr if the weights of a model folder are others; reads all of them. Does nothing where it is not known.
 * NDP_EIO, NDP_EFORMAT. */
NDP_API ndp_status ndp_adapter_base_check(const ndp_adapter_base *b, const char *folder, const char *adapter);

/* The same for the adapter in the folder `adapter`, as its run knows it. */
NDP_API ndp_status ndp_adapter_base_check_folder(const char *adapter, const char *folder);

#endif
