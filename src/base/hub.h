/* Names on the Hugging Face Hub, resolved in the local Hub cache as the Hub's own tools fill it. Nothing is downloaded.
 *
 *   CACHE/models--ORG--NAME/refs/main        the commit that `main` was when it was downloaded
 *                          /snapshots/COMMIT the repository's files, links to ../../blobs
 *   CACHE/datasets--ORG--NAME                the same for a data set
 *
 * CACHE is $HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub in $XDG_CACHE_HOME or ~/.cache. */
#ifndef NDP_BASE_HUB_H
#define NDP_BASE_HUB_H

#include "base/text.h"

typedef enum ndp_hub_kind { NDP_HUB_MODEL, NDP_HUB_DATASET } ndp_hub_kind;

/* org/name, org/name@revision; of a data set also org/name:split and org/name:config/split, where the split may end
 * with a slice, train[:10%] (data/corpus/slice.h). */
enum { NDP_HUB_PART = 256 };
typedef struct ndp_hub_name {
    char repo[NDP_HUB_PART], revision[NDP_HUB_PART], config[NDP_HUB_PART], split[NDP_HUB_PART]; /* "": not given */
} ndp_hub_name;

/* Whether `text` has the form of a Hub name with an organization; nothing is looked up. */
bool ndp_hub_parse(ndp_hub_kind kind, const char *text, ndp_hub_name *out);

/* Writes the folder of a Hub name to `out`. A name that exists as a path, or that does not have the form of a Hub name,
 * is copied; for the latter, opening it reports the error. NDP_EINVAL: it is not in the cache (the message has the
 * command that downloads it), or a URL. */
ndp_status ndp_hub_find(ndp_hub_kind kind, const char *name, char out[NDP_PATH]);

/* Returns the status of reading `folder`, which ndp_hub_find made of `name`. If a file of a Hub name is missing
 * (NDP_EIO), the error becomes NDP_EINVAL and says how to complete the download. */
ndp_status ndp_hub_explain(ndp_hub_kind kind, const char *name, const char *folder, ndp_status st);

/* NDP_EINVAL if `name`, the value of `key`, is a URL: only files of this machine are read. */
ndp_status ndp_hub_refuse_url(const char *key, const char *name);

#endif
