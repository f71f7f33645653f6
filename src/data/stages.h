/* The stages of a tokenizer other than its model. Each is constant data and one function over it. */
#ifndef NDP_DATA_STAGES_H
#define NDP_DATA_STAGES_H

#include "base/arena.h"
#include "base/text.h"
#include "data/ids.h"

/* Borrowed bytes. */
typedef struct ndp_span {
    const char *data;
    size_t n;
} ndp_span;

/* ---- normalizers (text -> text) and decoders (tokens -> tokens) ---- */

typedef enum ndp_stage_kind {
    NDP_STAGE_PREPEND,       /* content before a text that is not empty */
    NDP_STAGE_REPLACE,       /* pattern by content; also a decoder */
    NDP_STAGE_BYTE_FALLBACK, /* decoder: runs of "<0xE2>" to characters, U+FFFD for each byte of a run that is none */
    NDP_STAGE_FUSE,          /* decoder: all tokens to one */
    NDP_STAGE_STRIP          /* decoder: content off each token, up to `start` times in front and `stop` behind */
} ndp_stage_kind;

typedef struct ndp_stage {
    ndp_stage_kind kind;
    const char *pattern, *content; /* in the tokenizer's arena */
    int start, stop;
} ndp_stage;

typedef struct ndp_stages {
    ndp_stage *items;
    int64_t n, capacity;
} ndp_stages;

/* Runs the normalizers over a text; *out is the result, in `a` or `b` (whose former contents are lost) or `text`
 * itself. */
NDP_API ndp_status ndp_normalize(const ndp_stages *stages, ndp_span text, ndp_str *a, ndp_str *b, ndp_span *out);

/* Tokens on their way to being text: one behind the other, token i ends at ends[i]. */
typedef struct ndp_pieces {
    ndp_str text;
    int64_t *ends;
    int64_t n, capacity;
} ndp_pieces;
NDP_API ndp_status ndp_pieces_add(ndp_pieces *p, const char *text, size_t n);
void ndp_pieces_release(ndp_pieces *p);
/* Runs the decoders in place. */
NDP_API ndp_status ndp_decode_pieces(const ndp_stages *stages, ndp_pieces *p);

/* ---- added tokens: found in the text before the model sees it ---- */

typedef struct ndp_added_token {
    const char *text; /* in the tokenizer's arena */
    size_t length;
    int32_t id;
} ndp_added_token;

/* The tokens, grouped by first byte, longer ones first. */
typedef struct ndp_matcher {
    ndp_added_token *tokens;
    int64_t n, capacity;
    int32_t first[257]; /* tokens that begin with byte c: [first[c], first[c + 1]) */
} ndp_matcher;
NDP_API ndp_status ndp_matcher_add(ndp_matcher *m, ndp_added_token token);
/* Once all are added. */
void ndp_matcher_build(ndp_matcher *m);
/* The leftmost, longest token at or behind `from`; NULL when there is none. */
const ndp_added_token *ndp_matcher_find(const ndp_matcher *m, ndp_span text, size_t from, size_t *at);

#endif
