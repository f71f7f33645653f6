/* Inside the infer room: a model with a cache of keys and values. Two graphs share the weights and the cache: one for
 * chunks of one text's tokens (a prompt), and one for the next token of every text.
 *
 * Each text has `stride` rows of the cache; token p of text i is row i * stride + p. Attention is limited to the rows
 * of the token's own text, so texts do not affect each other. The last chunk of a call is padded. The padding writes
 * rows after the end of the text, which no query reads before real tokens overwrite them. */
#ifndef NDP_INFER_CACHED_H
#define NDP_INFER_CACHED_H

#include "infer/infer.h"
#include "model/text_cache.h"

typedef struct ndp_cached {
    ndp_model chunk_model, next_model;
    ndp_engine *chunk, *next;
    float *logits; /* [V] of the last token of the latest ndp_cached_feed */
    int64_t longest, texts, stride;
    int64_t *used;   /* [texts] tokens of each text so far; lower it to take tokens back */
    int32_t *inputs; /* positions, starts and places of the latest rows */
} ndp_cached;

/* For `texts` texts of up to `longest` tokens, fed in chunks of `rows`. Borrows `f`. `less`: how to need less memory,
 * for the message. */
NDP_API ndp_status ndp_cached_init(ndp_cached *c, const ndp_infer *f, int64_t texts, int64_t longest, int64_t rows,
                                   const char *less);
void ndp_cached_release(ndp_cached *c);

/* Receives the logits [V] for the token after `position`. */
typedef void ndp_logits_visitor(void *user, int64_t position, const float *logits);
/* Appends n >= 1 tokens to a text. The caller must not exceed `longest`. `visit` may be NULL. */
NDP_API ndp_status ndp_cached_feed(ndp_cached *c, int64_t text, const int32_t *ids, int64_t n,
                                   ndp_logits_visitor *visit, void *user);
/* Appends a token to every text; ndp_cached_logits reads the results. Texts that are over get any token; one of
 * `longest` tokens loses its last. */
NDP_API ndp_status ndp_cached_next(ndp_cached *c, const int32_t *ids);
/* Copies the logits [V] of a text after ndp_cached_next. */
NDP_API ndp_status ndp_cached_logits(const ndp_cached *c, int64_t text, float *logits);

#endif
