/* Added tokens: found in a text before normalizers, pre-tokenizers and the model see it. */
#ifndef NDP_TEXT_ADDED_H
#define NDP_TEXT_ADDED_H

#include "base/text.h"
#include "text/prefixes.h"

typedef struct ndp_added_token {
    const char *text; /* in the tokenizer's arena */
    size_t length;
    int32_t id;
    bool single_word;    /* only where no word character is beside it */
    bool lstrip, rstrip; /* takes white space on that side with it */
} ndp_added_token;

typedef struct ndp_added {
    ndp_added_token *tokens;
    int64_t n, capacity;
    ndp_prefixes index; /* ids are places in `tokens` */
} ndp_added;

/* Texts are not empty and differ. */
NDP_API ndp_status ndp_added_add(ndp_added *a, ndp_added_token token);
/* Once all are added. */
NDP_API ndp_status ndp_added_build(ndp_added *a);
void ndp_added_release(ndp_added *a);

/* The tokens of a text from left to right: leftmost first, of those the longest. */
typedef struct ndp_added_walk {
    const ndp_added *added;
    ndp_span text;   /* valid UTF-8 */
    size_t at, done; /* where to look; the end of what the last token took */
} ndp_added_walk;
/* The next one and the stretch [*from, *to) that it takes; NULL when there is none. *from is not before the end of the
 * last one, *to may be. */
const ndp_added_token *ndp_added_next(ndp_added_walk *w, size_t *from, size_t *to);

#endif
