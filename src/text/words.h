/* Words to ids: the model, with a cache of words in front of it. */
#ifndef NDP_TEXT_WORDS_H
#define NDP_TEXT_WORDS_H

#include "base/text.h"
#include "text/bpe.h"
#include "text/unigram.h"

/* A tokenizer's model: BPE or unigram. */
typedef struct ndp_words {
    ndp_vocab vocab;
    bool is_unigram;
    ndp_bpe bpe;
    ndp_unigram unigram;
    bool byte_level; /* the vocabulary writes bytes as GPT-2's characters; words are given as plain bytes */
} ndp_words;
void ndp_words_release(ndp_words *w);

/* Memory that one thread reuses from word to word; `{0}` at first. Belongs to one ndp_words. */
typedef struct ndp_words_scratch {
    ndp_bpe_scratch bpe;
    ndp_unigram_scratch unigram;
    ndp_str characters;
    struct ndp_known_word *known; /* direct-mapped by hash */
} ndp_words_scratch;
void ndp_words_scratch_release(ndp_words_scratch *s);

/* Appends the ids of a non-empty word. Errors are those of the models. */
NDP_API ndp_status ndp_words_encode(const ndp_words *w, ndp_words_scratch *s, ndp_span word, ndp_ids *ids);

#endif
