/* Pre-tokenizers: text to words, in stages. The types that tokenizer.json names (Digits, Metaspace, ByteLevel,
 * Punctuation, ...) are composed of four kinds when the file is read. */
#ifndef NDP_TEXT_PRETOKENIZE_H
#define NDP_TEXT_PRETOKENIZE_H

#include "text/regex.h"

typedef enum ndp_pretokenizer_kind {
    NDP_PRETOKENIZER_SPLIT,   /* splits at the matches of a pattern */
    NDP_PRETOKENIZER_REPLACE, /* replaces matches by `content` */
    NDP_PRETOKENIZER_PREPEND, /* puts `content` before text that does not start with it */
    NDP_PRETOKENIZER_BYTES    /* writes bytes as GPT-2's characters */
} ndp_pretokenizer_kind;

/* What happens to the matches; the names are the file's. */
typedef enum ndp_split_behavior {
    NDP_SPLIT_REMOVED,
    NDP_SPLIT_ISOLATED,
    NDP_SPLIT_MERGED_WITH_PREVIOUS,
    NDP_SPLIT_MERGED_WITH_NEXT,
    NDP_SPLIT_CONTIGUOUS,
    NDP_SPLIT_BEHAVIORS
} ndp_split_behavior;

typedef struct ndp_pretokenizer {
    ndp_pretokenizer_kind kind;
    ndp_regex *pattern; /* owned */
    ndp_split_behavior behavior;
    bool invert;         /* matches and the text between them swap roles */
    bool first_only;     /* PREPEND: only at the start of the user's text */
    const char *content; /* in the tokenizer's arena */
} ndp_pretokenizer;

enum { NDP_PRETOKENIZERS = 16 }; /* limit on stages, as each may lengthen a text */

typedef struct ndp_pretokenizers {
    ndp_pretokenizer items[NDP_PRETOKENIZERS];
    int n;
} ndp_pretokenizers;
void ndp_pretokenizers_release(ndp_pretokenizers *p);

/* Memory that one thread reuses from text to text; `{0}` at first. */
typedef struct ndp_pretokenize_scratch {
    ndp_str texts[NDP_PRETOKENIZERS];
} ndp_pretokenize_scratch;
void ndp_pretokenize_scratch_release(ndp_pretokenize_scratch *s);

/* Any status but NDP_OK stops the walk and is returned. */
typedef ndp_status ndp_word_visitor(void *user, ndp_span word);

/* Visits the words of a normalized text in order. `first`: how many of its leading bytes stem from the user's first
 * character (see ndp_normalize); a word cut from these is at the start of the user's text. */
NDP_API ndp_status ndp_pretokenize(const ndp_pretokenizers *p, ndp_pretokenize_scratch *s, ndp_regex_scratch *regex,
                                   ndp_span text, size_t first, ndp_word_visitor *visit, void *user);
/* Appends bytes as GPT-2's characters. */
void ndp_bytes_to_characters(ndp_span bytes, ndp_str *out);

#endif
