/* Inside the infer room: a model with a cache of keys and values. Two graphs, one for chunks of tokens (the prompt) and
 * one for a single token, share the weights and the cache.
 *
 * Token p of the text is row p of the cache. The last chunk of a call is padded. The padding writes rows after the end
 * of the text, which no query reads before real tokens overwrite them. */
#ifndef NDP_INFER_CACHED_H
#define NDP_INFER_CACHED_H

#include "infer/infer.h"

typedef struct ndp_cached {
    ndp_model chunk_model, one_model;
    ndp_engine *chunk, *one;
    float *logits; /* of the last token fed, [V] */
    int64_t longest, used;
} ndp_cached;

/* For texts of up to `longest` tokens, fed in chunks of `rows`. Borrows `f`. */
NDP_API ndp_status ndp_cached_init(ndp_cached *c, const ndp_infer *f, int64_t longest, int64_t rows);
void ndp_cached_release(ndp_cached *c);

/* Receives the logits [V] for the token after `position`. */
typedef void ndp_logits_visitor(void *user, int64_t position, const float *logits);
/* Appends n >= 1 tokens to the text. The caller must not exceed `longest`. `visit` may be NULL. */
NDP_API ndp_status ndp_cached_feed(ndp_cached *c, const int32_t *ids, int64_t n, ndp_logits_visitor *visit, void *user);

#endif
