/* Which files of a data set in the local Hub cache a name stands for (base/hub.h). */
#ifndef NDP_DATA_CORPUS_HUB_DATA_H
#define NDP_DATA_CORPUS_HUB_DATA_H

#include "base/hub.h"

/* Appends the files of org/name, org/name:split or org/name:config/split, sorted by their names. Configurations and
 * splits follow the rules of the `datasets` library: README.md's `configs`, else data/SPLIT-00000-of-00001.*, else a
 * folder or a file whose name has the word train, validation or test (or valid, dev, val, testing, eval, ...), else all
 * files are the split train. A configuration without README.md's `configs` is a folder. NDP_EINVAL: it is not in the
 * cache, a file of the split is missing, or the name leaves open which configuration or split is meant; the message
 * lists them. */
ndp_status ndp_hub_data_files(const char *name, ndp_strings *paths);

#endif
