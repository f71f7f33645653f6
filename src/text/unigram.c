/* Viterbi's algorithm over the positions of a text, with the reference's order of sums and ties.
 *
 * nodes[i] is the best split of the text from `base` to base + i: its score and last token. extend offers to all ends
 * of tokens that start at a position; a later offer replaces an earlier one only if its score is strictly higher.
 *
 *   base            at        reach
 *    |--- tokens ----|--- ... --|        when at == reach, no token crosses `at`: every split has a border there,
 *                                        so decide() fixes the path up to it and starts anew
 *
 * So memory is that of the longest such stretch, not of the text. Runs of unknown characters are collected over
 * stretches and end with the next known token. Called by words.c. */
#include "text/unigram.h"

#include "base/utf8.h"
#include <string.h>

enum { LONGEST = 1 << 24 }; /* bytes of a stretch */
static const double UNKNOWN_PENALTY = 10;

/* The best split up to a position. */
typedef struct ndp_unigram_node {
    double score;
    int32_t id, length; /* of its last token; length 0: no split ends here */
} node;

void ndp_unigram_init(ndp_unigram *u, const ndp_vocab *vocab, double *scores, int32_t unknown, bool byte_fallback) {
    double lowest = vocab->n ? scores[0] : 0;
    for (int64_t id = 0; id < vocab->n; id++)
        lowest = scores[id] < lowest ? scores[id] : lowest;
    *u = (ndp_unigram){.vocab = vocab,
                       .scores = scores,
                       .pieces = vocab->n,
                       .unknown_score = lowest - UNKNOWN_PENALTY,
                       .unknown = unknown};
    ndp_vocab_find_bytes(vocab, byte_fallback, u->byte_ids);
}

ndp_status ndp_unigram_build(ndp_unigram *u) {
    for (int64_t id = 0; id < u->pieces; id++) {
        size_t n = 0;
        const char *text = ndp_vocab_text(u->vocab, id, &n);
        if (text && n && ndp_vocab_find(u->vocab, text, n) == id)
            NDP_TRY(ndp_prefixes_add(&u->index, text, n, (int32_t)id));
    }
    ndp_prefixes_build(&u->index);
    return NDP_OK;
}

void ndp_unigram_release(ndp_unigram *u) {
    free(u->scores);
    ndp_prefixes_release(&u->index);
    *u = (ndp_unigram){0};
}

void ndp_unigram_scratch_release(ndp_unigram_scratch *s) {
    free(s->nodes);
    free(s->path);
    *s = (ndp_unigram_scratch){0};
}

typedef struct lattice {
    const ndp_unigram *u;
    ndp_unigram_scratch *s;
    ndp_ids *ids;
    ndp_span text;
    size_t base, reach; /* position of nodes[0]; the furthest end of a token so far */
    size_t unknown;     /* start of a run of unknown characters that ends at `base`; `base`: there is none */
} lattice;

static ndp_status offer(lattice *l, size_t at, uint32_t length, int32_t id, double score) {
    size_t place = at - l->base + length;
    if (place > LONGEST)
        return NDP_FAIL(
            NDP_EINVAL,
            "a stretch of %d bytes without a place where tokens must end (one letter over and over?): break "
            "it into lines or leave it out",
            LONGEST);
    if (at + length > l->reach) {
        NDP_TRY(ndp_array_reserve(&l->s->nodes, &l->s->capacity, (int64_t)place + 1, sizeof *l->s->nodes));
        memset(l->s->nodes + (l->reach - l->base) + 1, 0, (at + length - l->reach) * sizeof *l->s->nodes);
        l->reach = at + length;
    }
    node *n = &l->s->nodes[place];
    if (!n->length || score > n->score)
        *n = (node){score, id, (int32_t)length};
    return NDP_OK;
}

/* Offers the tokens that start at `at`, or the unknown token for a single character. */
static ndp_status extend(lattice *l, size_t at) {
    const ndp_unigram *u = l->u;
    double before = l->s->nodes[at - l->base].score;
    uint32_t character = (uint32_t)ndp_utf8_length((unsigned char)l->text.data[at]);
    bool covered = false;
    ndp_prefix_walk w = ndp_prefix_begin(&u->index, (unsigned char)l->text.data[at]);
    bool more = w.low < w.high;
    while (more) {
        const ndp_prefix *here = ndp_prefix_here(&u->index, &w);
        if (here) {
            NDP_TRY(offer(l, at, w.depth, here->id, u->scores[here->id] + before));
            covered |= w.depth == character;
        }
        more = at + w.depth < l->text.n && ndp_prefix_step(&u->index, &w, (unsigned char)l->text.data[at + w.depth]);
    }
    if (covered)
        return NDP_OK;
    if (u->unknown < 0)
        return NDP_FAIL(NDP_EINVAL, "the character U+%04X has no token, and the tokenizer has no unknown token",
                        ndp_utf8_decode(l->text.data + at, character));
    return offer(l, at, character, u->unknown, u->unknown_score + before);
}

/* Ends a run of unknown characters, [unknown, end): a token of that text, byte tokens, or the unknown token. */
static ndp_status end_unknown(lattice *l, size_t end) {
    const char *text = l->text.data + l->unknown;
    size_t n = end - l->unknown;
    if (!n)
        return NDP_OK;
    int32_t id = ndp_vocab_find(l->u->vocab, text, n);
    if (id >= 0 || !ndp_vocab_has_bytes(l->u->byte_ids, text, n))
        return ndp_ids_add(l->ids, id >= 0 ? id : l->u->unknown);
    for (size_t i = 0; i < n; i++)
        NDP_TRY(ndp_ids_add(l->ids, l->u->byte_ids[(unsigned char)text[i]]));
    return NDP_OK;
}

/* Fixes the best split up to `end`, where every split has a border. Its node becomes the first of the next stretch. */
static ndp_status decide(lattice *l, size_t end) {
    ndp_unigram_scratch *s = l->s;
    int64_t n = 0, place = (int64_t)(end - l->base);
    node last = s->nodes[place];
    for (; place > 0; place -= s->nodes[place].length) {
        NDP_TRY(ndp_array_reserve(&s->path, &s->path_capacity, n + 1, sizeof *s->path));
        s->path[n++] = (int32_t)place;
    }
    size_t at = l->base;
    while (n-- > 0) {
        const node *token = &s->nodes[s->path[n]];
        if (token->id != l->u->unknown) {
            NDP_TRY(end_unknown(l, at));
            NDP_TRY(ndp_ids_add(l->ids, token->id));
            l->unknown = at + (size_t)token->length;
        }
        at += (size_t)token->length;
    }
    s->nodes[0] = last;
    l->base = end;
    return NDP_OK;
}

ndp_status ndp_unigram_encode(const ndp_unigram *u, ndp_span text, ndp_unigram_scratch *s, ndp_ids *ids) {
    lattice l = {.u = u, .s = s, .ids = ids, .text = text};
    NDP_TRY(ndp_array_reserve(&s->nodes, &s->capacity, 64, sizeof *s->nodes));
    s->nodes[0] = (node){0};
    for (size_t at = 0; at < text.n; at += ndp_utf8_length((unsigned char)text.data[at])) {
        if (at == l.reach && at > l.base)
            NDP_TRY(decide(&l, at));
        NDP_TRY(extend(&l, at));
    }
    NDP_TRY(decide(&l, text.n));
    return end_unknown(&l, text.n);
}
