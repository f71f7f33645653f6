/* Tokens as a text for people, with what the model is trained on marked in it. */
#ifndef NDP_DATA_SHOWN_H
#define NDP_DATA_SHOWN_H

#include "text/tokenizer.h"

/* Of a token: it is in a row; it is predicted in one. */
enum { NDP_SHOWN_ROW = 1, NDP_SHOWN_TRAINED = 2 };

typedef struct ndp_shown_style {
    bool ids;    /* ids instead of texts */
    bool colour; /* a terminal's green and grey instead of [ ] and { } */
} ndp_shown_style;

/* Appends n tokens: those that are trained on in [ ], those that are in no row in { }. Control characters but line
 * breaks and tabs are written as \x1b, bytes that are no character as \xff. Without texts, ids are written. NDP_ENOMEM.
 */
NDP_API ndp_status ndp_shown_add(const ndp_tokenizer *t, const int32_t *ids, const uint8_t *marks, int64_t n,
                                 ndp_shown_style style, ndp_str *out);

#endif
