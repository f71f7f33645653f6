/* Working memory for encoding and decoding. A tokenizer keeps what its threads return, so that short texts do not pay
 * for allocating it. */
#ifndef NDP_TEXT_WORKBENCH_H
#define NDP_TEXT_WORKBENCH_H

#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/words.h"

typedef struct ndp_workbench {
    struct ndp_workbench *next;
    ndp_regex_scratch regex;
    ndp_normalize_scratch normalize;
    ndp_pretokenize_scratch pretokenize;
    ndp_words_scratch words;
} ndp_workbench;

typedef struct ndp_workbenches ndp_workbenches;

NDP_API ndp_status ndp_workbenches_create(ndp_workbenches **out);
void ndp_workbenches_destroy(ndp_workbenches *all);
/* Working memory for the calling thread, until ndp_workbench_put. */
NDP_API ndp_status ndp_workbench_take(ndp_workbenches *all, ndp_workbench **out);
/* `bytes`: size of the text it was used for; after a large text the memory is freed instead of kept. */
void ndp_workbench_put(ndp_workbenches *all, ndp_workbench *w, size_t bytes);

#endif
