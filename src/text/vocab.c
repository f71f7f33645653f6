/* Strings by id in one text, and ids by string in a hash table with open addressing that is at most half full. Equal
 * strings share a slot: the last one is found. Called by the loaders, bpe.c and unigram.c. */
#include "text/vocab.h"

#include "base/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint64_t hash_of(const char *text, size_t length) { return XXH3_64bits(text, length); }

/* The slot of the string, or the free slot for it. */
static uint32_t slot_of(const ndp_vocab *v, const char *text, size_t length, uint64_t hash) {
    uint32_t i = (uint32_t)hash & v->mask, tag = (uint32_t)(hash >> 32);
    for (;; i = (i + 1) & v->mask) {
        if (v->slots[i].id < 0)
            return i;
        if (v->slots[i].tag != tag)
            continue;
        const ndp_vocab_word *w = &v->words[v->slots[i].id];
        if (w->length == length && !memcmp(v->text.data + w->at, text, length))
            return i;
    }
}

static ndp_status rehash(ndp_vocab *v, uint32_t slots) {
    ndp_vocab_slot *old = v->slots, *grown = malloc(slots * sizeof *grown);
    NDP_CHECK_MEMORY(grown, "for a vocabulary of %lld", (long long)v->n);
    memset(grown, 0xff, slots * sizeof *grown);
    uint32_t before = old ? v->mask + 1 : 0;
    v->slots = grown;
    v->mask = slots - 1;
    for (uint32_t i = 0; i < before; i++)
        if (old[i].id >= 0) {
            const ndp_vocab_word *w = &v->words[old[i].id];
            const char *text = v->text.data + w->at;
            grown[slot_of(v, text, w->length, hash_of(text, w->length))] = old[i];
        }
    free(old);
    return NDP_OK;
}

static ndp_status fail_taken(const ndp_vocab *v, const char *what, const char *text, size_t length, int64_t id) {
    const ndp_vocab_word *w = &v->words[id];
    return NDP_FAIL(NDP_EFORMAT, "%s: the id %lld is given to both '%.*s' and '%.*s'", what, (long long)id,
                    (int)w->length, v->text.data + w->at, (int)length, text);
}

static ndp_status reserve_id(ndp_vocab *v, int64_t id) {
    if (id < v->n)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&v->words, &v->capacity, id + 1, sizeof *v->words));
    memset(v->words + v->n, 0, (size_t)(id + 1 - v->n) * sizeof *v->words);
    v->n = id + 1;
    return NDP_OK;
}

ndp_status ndp_vocab_add(ndp_vocab *v, const char *what, const char *text, size_t length, int64_t id,
                         ndp_vocab_search search) {
    bool searchable = search != NDP_VOCAB_NOT_FOUND;
    if (id < 0 || id > NDP_VOCAB_MAX_ID)
        return NDP_FAIL(NDP_EFORMAT, "%s: the id %lld of '%.*s' is out of range: 0 to %d", what, (long long)id,
                        (int)length, text, NDP_VOCAB_MAX_ID);
    if (id < v->n && v->words[id].used)
        return fail_taken(v, what, text, length, id);
    if (length > UINT32_MAX - v->text.length)
        return NDP_FAIL(NDP_EFORMAT, "%s: the vocabulary holds more than 4 GiB of text", what);
    if (searchable && 2 * (v->filled + 1) > (v->slots ? v->mask + 1 : 0))
        NDP_TRY(rehash(v, v->slots ? 2 * (v->mask + 1) : 1024));
    uint64_t hash = searchable ? hash_of(text, length) : 0;
    uint32_t slot = searchable ? slot_of(v, text, length, hash) : 0;
    if (search == NDP_VOCAB_FOUND_ONCE && v->slots[slot].id >= 0)
        return NDP_FAIL(NDP_EFORMAT, "%s: '%.*s' is in the vocabulary twice, as %d and %lld", what, (int)length, text,
                        v->slots[slot].id, (long long)id);
    NDP_TRY(reserve_id(v, id));
    uint32_t at = (uint32_t)v->text.length;
    ndp_str_add_bytes(&v->text, text, length);
    NDP_CHECK_MEMORY(!v->text.failed, "for a vocabulary of %lld", (long long)v->n);
    v->words[id] = (ndp_vocab_word){at, (uint32_t)length, true};
    if (searchable) {
        v->filled += v->slots[slot].id < 0;
        v->slots[slot] = (ndp_vocab_slot){(uint32_t)(hash >> 32), (int32_t)id};
    }
    return NDP_OK;
}

int32_t ndp_vocab_find(const ndp_vocab *v, const char *text, size_t length) {
    return v->slots ? v->slots[slot_of(v, text, length, hash_of(text, length))].id : -1;
}

int32_t ndp_vocab_find_any(const ndp_vocab *v, const char *text, size_t length) {
    int32_t id = ndp_vocab_find(v, text, length);
    for (int64_t i = 0; id < 0 && i < v->n; i++)
        if (v->words[i].used && v->words[i].length == length && !memcmp(v->text.data + v->words[i].at, text, length))
            id = (int32_t)i;
    return id;
}

const char *ndp_vocab_text(const ndp_vocab *v, int64_t id, size_t *length) {
    if (id < 0 || id >= v->n || !v->words[id].used)
        return NULL;
    *length = v->words[id].length;
    return v->text.data + v->words[id].at;
}

void ndp_vocab_find_bytes(const ndp_vocab *v, bool byte_fallback, int32_t byte_ids[256]) {
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        byte_ids[i] = byte_fallback ? ndp_vocab_find(v, name, 6) : -1;
    }
}

bool ndp_vocab_has_bytes(const int32_t byte_ids[256], const char *text, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (byte_ids[(unsigned char)text[i]] < 0)
            return false;
    return true;
}

void ndp_vocab_release(ndp_vocab *v) {
    ndp_str_release(&v->text);
    free(v->words);
    free(v->slots);
    *v = (ndp_vocab){0};
}
