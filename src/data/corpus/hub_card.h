/* What the README.md of a data set on the Hub says of its files: the block `configs` of its front matter. */
#ifndef NDP_DATA_CORPUS_HUB_CARD_H
#define NDP_DATA_CORPUS_HUB_CARD_H

#include "base/text.h"

/* Three lists of equal length: pattern i names files of split i of configuration i. */
typedef struct ndp_hub_card {
    ndp_strings configs, splits, patterns;
    char *preferred; /* the configuration marked `default: true`; NULL: none */
} ndp_hub_card;

/* Reads FOLDER/README.md. No such file, no front matter, or no `configs` in it: an empty card. NDP_EFORMAT: it is not
 * YAML, or `data_files` has a form that is not known. The caller releases the card. */
ndp_status ndp_hub_card_read(const char *folder, ndp_hub_card *out);
void ndp_hub_card_release(ndp_hub_card *c);

#endif
