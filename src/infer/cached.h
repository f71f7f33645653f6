/* Inside the infer room: a model over a cache of keys and values. Two graphs, one for chunks of tokens (the prompt) and
 * one for a single token, read the same weights and the same cache.
 *
 * Token p of the text is row p of the cache. The last chunk of a call is padded; what the padding writes lies behind
 * the text, where no query looks, until real tokens take its rows. */
#ifndef NDP_INFER_CACHED_H
#define NDP_INFER_CACHED_H

#include "infer/infer.h"

typedef struct ndp_cached {
    ndp_model chunk_model, one_model;
    ndp_engine *chunk, *one;
    float *logits; /* of the last token fed, [V] */
    int64_t longest, used;
} ndp_cached;

/* For texts of up to `longest` tokens, in chunks of `rows`. Borrows the folder. */
NDP_API ndp_status ndp_cached_init(ndp_cached *c, const ndp_infer *f, int64_t longest, int64_t rows);
void ndp_cached_release(ndp_cached *c);

/* Sees the logits [V] that follow the token at `position`. */
typedef void ndp_logits_visitor(void *user, int64_t position, const float *logits);
/* Appends n >= 1 tokens to the text; the caller keeps to `longest`. `visit` may be NULL. */
NDP_API ndp_status ndp_cached_feed(ndp_cached *c, const int32_t *ids, int64_t n, ndp_logits_visitor *visit, void *user);

#endif
