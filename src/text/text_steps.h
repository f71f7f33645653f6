/* What a normalizer or a decoder of a tokenizer does, as steps: they are loaded, kept and released alike; normalize.h
 * and decode.h run them. */
#ifndef NDP_TEXT_TEXT_STEPS_H
#define NDP_TEXT_TEXT_STEPS_H

#include "text/regex.h"

typedef struct ndp_text_step {
    int kind;                      /* ndp_normalizer_kind, or ndp_decoder_kind */
    ndp_regex *pattern;            /* owned */
    const char *content;           /* in the tokenizer's arena */
    struct ndp_charsmap *charsmap; /* owned */
    int start, stop;               /* what the kind does at the start, and at the end */
} ndp_text_step;

typedef struct ndp_text_steps {
    ndp_text_step *items;
    int64_t n, capacity;
} ndp_text_steps;
/* Takes ownership of the step's members, even if it fails. */
NDP_API ndp_status ndp_text_steps_add(ndp_text_steps *all, ndp_text_step s);
void ndp_text_steps_release(ndp_text_steps *all);

#endif
