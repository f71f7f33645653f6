/* Token caches of the small tokenizer (small_tokenizer.h) as text, to compare with. */
#ifndef NDP_TESTS_DATA_CACHE_WORDS_H
#define NDP_TESTS_DATA_CACHE_WORDS_H

#include "data/cache/cache.h"

#include "check.h"

static inline char *cache_word(const ndp_token_cache *c, int64_t i, char out[8]) {
    int32_t id = ndp_token_cache_id(c, i);
    static const char *const names[] = {"<s>", "</s>", "<|end|>", "xy", "x", "y"};
    if (id >= 256)
        snprintf(out, 8, "%s", id < 262 ? names[id - 256] : "?");
    else
        snprintf(out, 8, "%c", id == '\n' ? '/' : id == 0 ? '0' : id);
    return out;
}

/* A cache in words: documents separated by spaces, stretches that are trained on in [ ]. The caller frees. */
static inline char *cache_words(const ndp_token_cache *c) {
    ndp_str s = {0};
    char token[8];
    for (int64_t d = 0; d < c->n_documents; d++) {
        bool trained = false;
        ndp_str_add(&s, d ? " " : "");
        for (int64_t i = (int64_t)c->offsets[d]; i < (int64_t)c->offsets[d + 1]; i++) {
            if (trained != ndp_token_cache_trained(c, i))
                ndp_str_add(&s, trained ? "]" : "[");
            trained = ndp_token_cache_trained(c, i);
            ndp_str_add(&s, cache_word(c, i, token));
        }
        ndp_str_add(&s, trained ? "]" : "");
    }
    ndp_str_add(&s, " |");
    for (int i = 0; i < c->n_sources; i++)
        ndp_str_addf(&s, " %lld", (long long)c->source_ends[i]);
    return ndp_str_detach(&s);
}

#endif
