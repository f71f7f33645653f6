/* Added tokens: found in a text before the normalizers, the pre-tokenizers and the model see it. */
#ifndef NDP_TEXT_ADDED_H
#define NDP_TEXT_ADDED_H

#include "base/text.h"
#include "text/prefixes.h"

typedef struct ndp_added_token {
    const char *text; /* in the tokenizer's arena */
    size_t length;
    int32_t id;
    bool single_word;    /* matches only where no word character is adjacent */
    bool lstrip, rstrip; /* also takes the white space on that side */
} ndp_added_token;

typedef struct ndp_added {
    ndp_added_token *tokens;
    int64_t n, capacity;
    ndp_prefixes index; /* ids are indices into `tokens` */
} ndp_added;

/* Texts are not empty, and no two are equal. */
NDP_API ndp_status ndp_added_add(ndp_added *a, ndp_added_token token);
/* After the last ndp_added_add. */
NDP_API ndp_status ndp_added_build(ndp_added *a);
void ndp_added_release(ndp_added *a);

/* The tokens of a text from left to right: the leftmost match, and of several there the longest. */
typedef struct ndp_added_walk {
    const ndp_added *added;
    ndp_span text;   /* valid UTF-8 */
    size_t at, done; /* where to look next; end of the last token's stretch */
} ndp_added_walk;
/* The next token and the stretch [*from, *to) that it takes; NULL: there are no more. Stretches do not overlap: *from
 * is at or after the end of the previous one. */
const ndp_added_token *ndp_added_next(ndp_added_walk *w, size_t *from, size_t *to);

#endif
