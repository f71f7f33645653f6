/* libFuzzer: a token cache from memory, behind a byte that says how rows are made of it. Its magic, version and hash
 * are put right, so that what lies behind them is looked at. What is accepted has tables in order, and gives rows whose
 * ids, document_start and positions the model can use, or an error. */
#include "data/cache/cache_file.h"
#include "data/packing.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 64 };

static void check(bool fine) {
    if (!fine)
        __builtin_trap();
}

static void use_row(const ndp_dataset *d, const ndp_token_cache *c, int64_t row, int64_t length) {
    int32_t tokens[MOST], labels[MOST], positions[MOST], document_start[MOST];
    if (ndp_dataset_row(d, row, tokens, labels, positions, document_start) != NDP_OK)
        return;
    for (int64_t t = 0; t < length; t++) {
        check(tokens[t] >= 0 && tokens[t] <= c->largest_id && labels[t] >= -1 && labels[t] <= c->largest_id);
        check(document_start[t] >= 0 && document_start[t] <= t && positions[t] >= 0 && positions[t] < length);
    }
}

static void use(const ndp_token_cache *c, uint8_t how) {
    const ndp_row_opts o = {.length = 1 + how % 7 * 9,
                            .document_mask = how & 8,
                            .single = how & 16,
                            .by_source = how & 32,
                            .held_out = how & 64 ? 0.5 : 0,
                            .validation = how & 128};
    ndp_dataset *d;
    if (ndp_dataset_create(c, &o, &d) != NDP_OK)
        return;
    for (int64_t row = 0; row < ndp_dataset_rows(d) && row < 1000; row++)
        use_row(d, c, row, o.length);
    ndp_dataset_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    ndp_token_cache c;
    ndp_cache_header h;
    unsigned char *bytes = aligned_alloc(8, (size + 7) / 8 * 8);
    ndp_mapped file = {.data = bytes, .size = size - 1};
    memcpy(bytes, data + 1, size - 1);
    if (file.size >= sizeof h) {
        memcpy(&h, bytes, sizeof h);
        memcpy(h.magic, NDP_CACHE_MAGIC, sizeof h.magic);
        h.version = NDP_CACHE_VERSION;
        h.hash = ndp_cache_header_hash(&h);
        memcpy(bytes, &h, sizeof h);
    }
    if (ndp_token_cache_read("fuzz", &file, &c) == NDP_OK)
        use(&c, data[0]);
    free(bytes);
    return 0;
}
