/* Normalizers: text -> text, applied in sequence. */
#ifndef NDP_TEXT_NORMALIZE_H
#define NDP_TEXT_NORMALIZE_H

#include "text/text_steps.h"

typedef enum ndp_normalizer_kind {
    NDP_NORMALIZER_PREPEND,       /* puts `content` before a non-empty text */
    NDP_NORMALIZER_REPLACE,       /* replaces matches by `content` */
    NDP_NORMALIZER_STRIP,         /* removes white space at the start, and at the end, where these are not 0 */
    NDP_NORMALIZER_LOWERCASE,     /* character by character */
    NDP_NORMALIZER_STRIP_ACCENTS, /* removes marks */
    NDP_NORMALIZER_NFC,
    NDP_NORMALIZER_NFD,
    NDP_NORMALIZER_NFKC,
    NDP_NORMALIZER_NFKD,
    NDP_NORMALIZER_PRECOMPILED /* SentencePiece's table (charsmap.h) */
} ndp_normalizer_kind;

/* Memory that one thread reuses from text to text; `{0}` at first. */
typedef struct ndp_normalize_scratch {
    ndp_str a, b;
    int32_t *characters, *sorted;
    int64_t capacity, sorted_capacity;
} ndp_normalize_scratch;
void ndp_normalize_scratch_release(ndp_normalize_scratch *s);

/* *out is the result: in the scratch (whose previous contents are lost), or `text` itself. Text and result are valid
 * UTF-8. *first: how many leading bytes stem from the user's first character, before and after the call; 0 if the text
 * starts later in the user's text, or the character is gone. */
NDP_API ndp_status ndp_normalize(const ndp_text_steps *n, ndp_span text, ndp_normalize_scratch *s,
                                 ndp_regex_scratch *regex, size_t *first, ndp_span *out);

#endif
