/* How BPE is computed in O(n log n).
 *
 * Borders. Symbols are strings, and a merged symbol starts with the first character of its left part and ends with the
 * last one of its right part. So between a symbol ending in x and one starting with y nothing can ever be merged,
 * unless some merge joins "...x" and "y...". may_join looks (x, y) up in a bitmap; false positives cost time, not ids.
 * The text is cut at these borders, and the stretches between them are merged independently.
 *
 * Merging (flush). The symbols of a stretch form a doubly linked list; a heap holds (rank, position) of every adjacent
 * pair that has a merge. Popping the smallest gives the lowest rank, and of equal ranks the leftmost. Entries are not
 * removed when a neighbour changes: an entry is valid only if its position is alive and still has that rank.
 *
 * Called by words.c, one word or one stretch at a time. */
#include "text/bpe.h"

#include "base/utf8.h"
#include <string.h>

enum { JOIN_BITS = 18 };    /* 32 KiB: fits in the L1 cache */
enum { LONGEST = 1 << 24 }; /* symbols in a stretch: 800 MB of scratch */
static const uint32_t NO_RANK = UINT32_MAX;

/* A symbol of the list: `next` and `previous` are positions, -1 at the ends. `rank` and `product` belong to the pair
 * that starts here. A merge keeps the left position and kills the right one (id -1). */
typedef struct ndp_bpe_symbol {
    int32_t id, previous, next, product;
    uint32_t rank;
} ndp_bpe_symbol;

static uint64_t mix(uint64_t x) {
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 32;
}

static const ndp_bpe_merge *find_merge(const ndp_bpe *b, int32_t left, int32_t right) {
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint64_t i = mix(pair) & b->mask;; i = (i + 1) & b->mask)
        if (b->merges[i].pair == pair || b->merges[i].pair == UINT64_MAX)
            return &b->merges[i];
}

static uint32_t join_bit(uint32_t last, uint32_t first) {
    return (uint32_t)(mix((uint64_t)last << 32 | first) >> 20) & ((1u << JOIN_BITS) - 1);
}

static bool may_join(const ndp_bpe *b, int32_t left, int32_t right) {
    uint32_t bit = join_bit(b->last[left], b->first[right]);
    return b->joins[bit / 64] >> bit % 64 & 1;
}

/* ---- building ---- */

/* First and last character of every token. Empty tokens never become symbols. */
static void find_edges(ndp_bpe *b) {
    for (int64_t id = 0; id < b->vocab->n; id++) {
        size_t n = 0;
        const char *text = ndp_vocab_text(b->vocab, id, &n);
        if (!text || !n)
            continue;
        size_t end = n - 1;
        while (end && ((unsigned char)text[end] & 0xc0) == 0x80)
            end--;
        b->first[id] = ndp_utf8_decode(text, ndp_utf8_length((unsigned char)text[0]));
        b->last[id] = ndp_utf8_decode(text + end, n - end);
    }
}

static void find_characters(ndp_bpe *b) {
    memset(b->char_ids, 0xff, 65536 * sizeof *b->char_ids);
    for (int64_t id = 0; id < b->vocab->n; id++) {
        size_t n = 0;
        const char *text = ndp_vocab_text(b->vocab, id, &n);
        if (text && n && n < 4 && n == ndp_utf8_length((unsigned char)text[0]) &&
            ndp_vocab_find(b->vocab, text, n) == id)
            b->char_ids[ndp_utf8_decode(text, n)] = (int32_t)id;
    }
    ndp_vocab_find_bytes(b->vocab, b->byte_fallback, b->byte_ids);
}

static ndp_status add_merge(ndp_bpe *b, const char *what, const int32_t pair[2], uint32_t rank, ndp_str *joined) {
    joined->length = 0;
    for (int side = 0; side < 2; side++) {
        size_t n = 0;
        const char *text = ndp_vocab_text(b->vocab, pair[side], &n);
        if (!n)
            return NDP_FAIL(NDP_EFORMAT, "%s: merge %u joins an empty token", what, rank);
        ndp_str_add_bytes(joined, text, n);
    }
    if (joined->failed)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to build the merges", what);
    int32_t product = ndp_vocab_find(b->vocab, joined->data, joined->length);
    if (product < 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: merge %u makes '%s', which is not in the vocabulary", what, rank,
                        joined->data);
    ndp_bpe_merge *m = (ndp_bpe_merge *)find_merge(b, pair[0], pair[1]);
    *m = (ndp_bpe_merge){(uint64_t)(uint32_t)pair[0] << 32 | (uint32_t)pair[1], rank, product};
    uint32_t bit = join_bit(b->last[pair[0]], b->first[pair[1]]);
    b->joins[bit / 64] |= 1ull << bit % 64;
    return NDP_OK;
}

ndp_status ndp_bpe_build(ndp_bpe *b, const char *what, const int32_t (*pairs)[2], int64_t n) {
    uint64_t slots = 16;
    while (slots < 2 * (uint64_t)n)
        slots *= 2;
    b->mask = slots - 1;
    b->merges = malloc(slots * sizeof *b->merges);
    b->char_ids = malloc(65536 * sizeof *b->char_ids);
    b->joins = calloc(1u << JOIN_BITS, 1);
    b->first = calloc((size_t)b->vocab->n + 1, sizeof *b->first);
    b->last = calloc((size_t)b->vocab->n + 1, sizeof *b->last);
    if (!b->merges || !b->char_ids || !b->joins || !b->first || !b->last)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %lld merges", what, (long long)n);
    memset(b->merges, 0xff, slots * sizeof *b->merges);
    find_edges(b);
    find_characters(b);
    ndp_str joined = {0};
    ndp_status st = NDP_OK;
    for (int64_t i = 0; i < n && st == NDP_OK; i++)
        st = add_merge(b, what, pairs[i], (uint32_t)i, &joined);
    ndp_str_release(&joined);
    return st;
}

void ndp_bpe_release(ndp_bpe *b) {
    free(b->merges);
    free(b->char_ids);
    free(b->joins);
    free(b->first);
    free(b->last);
    *b = (ndp_bpe){0};
}

void ndp_bpe_scratch_release(ndp_bpe_scratch *s) {
    free(s->symbols);
    free(s->heap);
    *s = (ndp_bpe_scratch){0};
}

/* ---- merging ---- */

static void heap_push(uint64_t *heap, int64_t *n, uint64_t key) {
    int64_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

static uint64_t heap_pop(uint64_t *heap, int64_t *n) {
    uint64_t top = heap[0], key = heap[--*n];
    int64_t i = 0;
    for (int64_t child = 1; child < *n; child = 2 * i + 1) {
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= key)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = key;
    return top;
}

/* Looks the pair that starts at `at` up, and queues it if it can be merged. */
static void queue_pair(const ndp_bpe *b, ndp_bpe_scratch *s, int64_t *queued, int32_t at) {
    ndp_bpe_symbol *left = &s->symbols[at];
    left->rank = NO_RANK;
    if (left->next < 0)
        return;
    const ndp_bpe_merge *m = find_merge(b, left->id, s->symbols[left->next].id);
    if (m->pair == UINT64_MAX)
        return;
    left->rank = m->rank;
    left->product = m->product;
    heap_push(s->heap, queued, (uint64_t)m->rank << 32 | (uint32_t)at);
}

/* Merges the collected symbols, appends the result and empties the list. At most 2n pairs are queued at a time: n at
 * first, and each of the n merges removes one and adds two. */
static ndp_status flush(const ndp_bpe *b, ndp_bpe_scratch *s, ndp_ids *ids) {
    int64_t n = s->n, queued = 0;
    NDP_TRY(ndp_array_reserve(&ids->items, &ids->capacity, ids->n + n, sizeof *ids->items));
    NDP_TRY(ndp_array_reserve(&s->heap, &s->heap_capacity, 2 * n, sizeof *s->heap));
    for (int32_t i = 0; i < n; i++) {
        s->symbols[i].previous = i - 1;
        s->symbols[i].next = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i < n; i++)
        queue_pair(b, s, &queued, i);
    while (queued) {
        uint64_t top = heap_pop(s->heap, &queued);
        int32_t at = (int32_t)(uint32_t)top;
        ndp_bpe_symbol *left = &s->symbols[at];
        if (left->id < 0 || left->rank != (uint32_t)(top >> 32))
            continue; /* stale: one of the two has been merged with another symbol */
        ndp_bpe_symbol *right = &s->symbols[left->next];
        left->id = left->product;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0)
            s->symbols[left->next].previous = at;
        queue_pair(b, s, &queued, at);
        if (left->previous >= 0)
            queue_pair(b, s, &queued, left->previous);
    }
    for (int32_t i = 0; n && i >= 0; i = s->symbols[i].next)
        ids->items[ids->n++] = s->symbols[i].id;
    s->n = 0;
    return NDP_OK;
}

static ndp_status add_symbol(const ndp_bpe *b, ndp_bpe_scratch *s, int32_t id, ndp_ids *ids) {
    if (s->n && !may_join(b, s->symbols[s->n - 1].id, id))
        NDP_TRY(flush(b, s, ids));
    if (s->n >= LONGEST)
        return NDP_FAIL(NDP_EINVAL,
                        "a stretch of %d characters without a place where tokens must end (one letter over and over?): "
                        "break it into lines or leave it out",
                        LONGEST);
    if (s->n == s->capacity)
        NDP_TRY(ndp_array_reserve(&s->symbols, &s->capacity, s->n + 1, sizeof *s->symbols));
    s->symbols[s->n++].id = id;
    return NDP_OK;
}

static int32_t character_id(const ndp_bpe *b, const char *text, size_t n) {
    return n < 4 ? b->char_ids[ndp_utf8_decode(text, n)] : ndp_vocab_find(b->vocab, text, n);
}

size_t ndp_bpe_stretch(const ndp_bpe *b, const char *text, size_t n) {
    int32_t before = -1;
    for (size_t at = 0, length; at < n; at += length) {
        length = ndp_utf8_length((unsigned char)text[at]);
        int32_t id = character_id(b, text + at, length);
        if (before >= 0 && id >= 0 && !may_join(b, before, id))
            return at;
        before = id;
    }
    return n;
}

/* Fused unknown characters are one token, added when the next known character arrives; byte tokens do not end such a
 * run, as in the reference. */
ndp_status ndp_bpe_encode(const ndp_bpe *b, const char *text, size_t n, ndp_bpe_scratch *s, ndp_ids *ids) {
    int32_t whole = b->ignore_merges ? ndp_vocab_find(b->vocab, text, n) : -1;
    if (whole >= 0)
        return ndp_ids_add(ids, whole);
    bool pending = false;
    s->n = 0;
    for (size_t at = 0, length; at < n; at += length) {
        length = ndp_utf8_length((unsigned char)text[at]);
        int32_t id = character_id(b, text + at, length);
        if (id >= 0) {
            if (pending)
                NDP_TRY(add_symbol(b, s, b->unknown, ids));
            pending = false;
            NDP_TRY(add_symbol(b, s, id, ids));
        } else if (ndp_vocab_has_bytes(b->byte_ids, text + at, length)) {
            for (size_t i = 0; i < length; i++)
                NDP_TRY(add_symbol(b, s, b->byte_ids[(unsigned char)text[at + i]], ids));
        } else if (b->unknown < 0) {
            return NDP_FAIL(NDP_EINVAL, "the character U+%04X has no token, and the tokenizer has no unknown token",
                            ndp_utf8_decode(text + at, length));
        } else {
            if (pending && !b->fuse_unknown)
                NDP_TRY(add_symbol(b, s, b->unknown, ids));
            pending = true;
        }
    }
    if (pending)
        NDP_TRY(add_symbol(b, s, b->unknown, ids));
    return flush(b, s, ids);
}
