/* Files of ids: the header, if there is one, says how wide they are; each id is checked as it is read, and documents
 * end at end tokens or before begin tokens. Called by share.c. */
#include "data/corpus/bin.h"

#include <endian.h>
#include <string.h>

enum { HEADER_WORDS = 256, HEADER_BYTES = 4 * HEADER_WORDS };

static const struct {
    uint32_t magic, version;
    int id_bytes;
} headers[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static uint32_t word(const unsigned char *data, int i) {
    uint32_t w;
    memcpy(&w, data + 4 * i, sizeof w);
    return le32toh(w);
}

static uint32_t id_at(const ndp_bin *b, int64_t i) {
    const unsigned char *at = b->data + b->header + i * b->id_bytes;
    uint16_t narrow;
    if (b->id_bytes == 4)
        return word(at, 0);
    memcpy(&narrow, at, sizeof narrow);
    return le16toh(narrow);
}

/* Reads the header, if there is one. */
static ndp_status read_header(ndp_bin *b, size_t size, int64_t *stated) {
    for (int i = 0; size >= HEADER_BYTES && i < NDP_COUNT(headers); i++) {
        if (word(b->data, 0) != headers[i].magic)
            continue;
        if (word(b->data, 1) != headers[i].version)
            return NDP_FAIL(NDP_EFORMAT, "%s: the header says version %u; only version %u is supported", b->path,
                            word(b->data, 1), headers[i].version);
        b->header = HEADER_BYTES;
        b->id_bytes = headers[i].id_bytes;
        *stated = word(b->data, 2);
    }
    return NDP_OK;
}

/* Whether these are 32-bit ids of a vocabulary below 65536, read as 16-bit ones: every second one is zero, and some
 * other one is not. */
static bool looks_wider(const ndp_bin *b) {
    enum { LEAST = 16, MOST = 4096 };
    int64_t n = b->n < MOST ? b->n : MOST;
    uint32_t ids = 0, between = 0;
    for (int64_t i = 0; i < n; i++)
        *(i % 2 ? &between : &ids) |= id_at(b, i);
    return b->header == 0 && b->id_bytes == 2 && b->n % 2 == 0 && n >= LEAST && ids && !between;
}

ndp_status ndp_bin_open(const char *path, const void *contents, size_t size, int id_bytes, ndp_bin *out) {
    ndp_bin b = {.path = path, .data = contents, .id_bytes = id_bytes};
    int64_t stated = -1;
    NDP_TRY(read_header(&b, size, &stated));
    size_t bytes = size - b.header;
    b.n = (int64_t)(bytes / (size_t)b.id_bytes);
    if (bytes % (size_t)b.id_bytes)
        return NDP_FAIL(NDP_EFORMAT,
                        "%s: %zu bytes are not a whole number of %d-bit ids: the file is cut short, or data.bin_type "
                        "is wrong",
                        path, bytes, 8 * b.id_bytes);
    if (stated >= 0 && stated != b.n)
        return NDP_FAIL(NDP_EFORMAT, "%s: the header says %lld tokens, the file has %lld", path, (long long)stated,
                        (long long)b.n);
    if (looks_wider(&b))
        return NDP_FAIL(NDP_EFORMAT, "%s: every second 16-bit id is 0: these are 32-bit ids; set data.bin_type: uint32",
                        path);
    *out = b;
    return NDP_OK;
}

ndp_status ndp_places_add(ndp_places *p, int64_t at) {
    NDP_TRY(ndp_array_reserve(&p->items, &p->capacity, p->n + 1, sizeof *p->items));
    p->items[p->n++] = at;
    return NDP_OK;
}

ndp_status ndp_bin_read(const ndp_bin *b, int64_t first, int64_t end, const ndp_bin_rule *rule, ndp_ids *ids,
                        ndp_places *ends) {
    bool begins = rule->bos >= 0 && b->n > 0 && id_at(b, 0) == (uint32_t)rule->bos;
    NDP_TRY(ndp_array_reserve(&ids->items, &ids->capacity, ids->n + end - first, sizeof *ids->items));
    for (int64_t i = first; i < end; i++) {
        uint32_t id = id_at(b, i);
        if (id >= (uint64_t)rule->vocab)
            return NDP_FAIL(NDP_EFORMAT,
                            "%s: token %lld, at byte %zu of the file, is the id %u; the vocabulary ends at %lld. The "
                            "file belongs to another tokenizer, or data.bin_type is wrong",
                            b->path, (long long)i, b->header + (size_t)i * (size_t)b->id_bytes, id,
                            (long long)rule->vocab - 1);
        if (begins && id == (uint32_t)rule->bos && i > 0)
            NDP_TRY(ndp_places_add(ends, ids->n));
        ids->items[ids->n++] = (int32_t)id;
        bool ended = !begins && rule->eos >= 0 && id == (uint32_t)rule->eos;
        if (ended || i == b->n - 1)
            NDP_TRY(ndp_places_add(ends, ids->n));
    }
    return NDP_OK;
}
