/* A direct-mapped cache of words in front of the model: most words of a text are among a few thousand. A word that
 * is not found is encoded and replaces what its slot had. Called by tokenizer.c. */
#include "text/words.h"

#include "text/pretokenize.h"
#include <string.h>
#include <xxhash.h>

enum { KNOWN_WORDS = 1 << 15 }; /* 2 MiB: about the size of an L2 cache, and more words than most texts have */

/* One cache line. Longer words, and words of more tokens, are rare and encoded each time. */
typedef struct ndp_known_word {
    uint8_t length, n_ids; /* length 0: free */
    char text[30];
    int32_t ids[8];
} known_word;

void ndp_words_release(ndp_words *w) {
    ndp_bpe_release(&w->bpe);
    ndp_unigram_release(&w->unigram);
    ndp_vocab_release(&w->vocab);
}

void ndp_words_scratch_release(ndp_words_scratch *s) {
    ndp_bpe_scratch_release(&s->bpe);
    ndp_unigram_scratch_release(&s->unigram);
    ndp_str_release(&s->characters);
    free(s->known);
    *s = (ndp_words_scratch){0};
}

static ndp_status run_model(const ndp_words *w, ndp_words_scratch *s, ndp_span word, ndp_ids *ids) {
    if (w->byte_level) {
        s->characters.length = 0;
        ndp_bytes_to_characters(word, &s->characters);
        NDP_CHECK_MEMORY(!s->characters.failed, "to encode a word of %zu bytes", word.n);
        word = (ndp_span){s->characters.data, s->characters.length};
    }
    return w->is_unigram ? ndp_unigram_encode(&w->unigram, word, &s->unigram, ids)
                         : ndp_bpe_encode(&w->bpe, word.data, word.n, &s->bpe, ids);
}

static known_word *slot_of(ndp_words_scratch *s, ndp_span word) {
    return &s->known[XXH3_64bits(word.data, word.n) & (KNOWN_WORDS - 1)];
}

static void remember(ndp_words_scratch *s, ndp_span word, const int32_t *ids, int64_t n) {
    known_word *k = slot_of(s, word);
    if (n > NDP_COUNT(k->ids))
        return;
    k->length = (uint8_t)word.n;
    k->n_ids = (uint8_t)n;
    memcpy(k->text, word.data, word.n);
    memcpy(k->ids, ids, (size_t)n * sizeof *ids);
}

/* Uses the cache if the word is short enough. */
static ndp_status encode_word(const ndp_words *w, ndp_words_scratch *s, ndp_span word, ndp_ids *ids) {
    if (word.n > sizeof s->known->text)
        return run_model(w, s, word, ids);
    if (!s->known && !(s->known = calloc(KNOWN_WORDS, sizeof *s->known)))
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a cache of words");
    const known_word *k = slot_of(s, word);
    if (k->length == word.n && !memcmp(k->text, word.data, word.n)) {
        NDP_TRY(ndp_array_reserve(&ids->items, &ids->capacity, ids->n + NDP_COUNT(k->ids), sizeof *ids->items));
        memcpy(ids->items + ids->n, k->ids, sizeof k->ids); /* the whole array: a fixed size is faster */
        ids->n += k->n_ids;
        return NDP_OK;
    }
    int64_t before = ids->n;
    NDP_TRY(run_model(w, s, word, ids));
    remember(s, word, ids->items + before, ids->n - before);
    return NDP_OK;
}

/* Without a pre-tokenizer the whole text is one word. It is cut where no merge crosses, and the cache has most pieces.
 */
ndp_status ndp_words_encode(const ndp_words *w, ndp_words_scratch *s, ndp_span word, ndp_ids *ids) {
    bool cuts = !w->is_unigram && !w->byte_level && !w->bpe.ignore_merges && word.n > sizeof s->known->text;
    while (cuts && word.n) {
        size_t n = ndp_bpe_stretch(&w->bpe, word.data, word.n);
        NDP_TRY(encode_word(w, s, (ndp_span){word.data, n}, ids));
        word = (ndp_span){word.data + n, word.n - n};
    }
    return word.n ? encode_word(w, s, word, ids) : NDP_OK;
}
