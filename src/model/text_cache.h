/* Decoders with a cache of keys and values, by which texts are continued: a graph for chunks of one text's tokens (a
 * prompt), and one for the next token of every text. Both read the same cache, in which each text has a stride of rows.
 */
#ifndef NDP_MODEL_TEXT_CACHE_H
#define NDP_MODEL_TEXT_CACHE_H

#include "model/decoder.h"

enum { NDP_CHUNK_ROWS = 64 }; /* tokens of a prompt per chunk */

typedef struct ndp_text_cache {
    int64_t texts, longest; /* of up to so many tokens each, */
    int64_t chunk;          /* of which so many are computed at a time */
} ndp_text_cache;

/* Rows of a text. Key blocks of attention begin at the same tokens of every text, so a text's results do not depend on
 * its place. */
int64_t ndp_text_cache_stride(const ndp_text_cache *c);
/* Bytes of keys and values, of all texts. */
int64_t ndp_text_cache_bytes(const ndp_text_cache *c, const ndp_facts *f);
/* Bytes of one text in what a mixer keeps. */
int64_t ndp_text_cache_part(const ndp_text_cache *c, const ndp_facts *f, const ndp_mixer_cache *kept);
/* Builds a graph in fp32, of `rows`: c->chunk, or c->texts. `facts` and `adapter` as of the model; the caller releases
 * *out. */
NDP_API ndp_status ndp_text_cache_build(const ndp_text_cache *c, const ndp_facts *facts, const ndp_adapter *adapter,
                                        int64_t rows, ndp_model *out);

#endif
