/* libFuzzer: a file of ids from memory, its first byte says how wide and where it is cut. What is accepted has ids
 * below the vocabulary and documents in order, and read in two parts it is what it is in one. */
#include "data/corpus/bin.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine) {
    if (!fine)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_bin b;
    ndp_ids ids[2] = {{0}};
    ndp_places ends[2] = {{0}};
    if (size == 0 || ndp_bin_open("fuzz.bin", data + 1, size - 1, data[0] & 1 ? 4 : 2, &b) != NDP_OK)
        return 0;
    const ndp_bin_rule rule = {data[0] & 2 ? 3 : -1, data[0] & 4 ? 7 : -1, 50000};
    int64_t cut = b.n * (data[0] / 8) / 32;
    ndp_status whole = ndp_bin_read(&b, 0, b.n, &rule, &ids[0], &ends[0]);
    ndp_status parts = ndp_bin_read(&b, 0, cut, &rule, &ids[1], &ends[1]);
    if (parts == NDP_OK)
        parts = ndp_bin_read(&b, cut, b.n, &rule, &ids[1], &ends[1]);
    check(whole == parts);
    if (whole == NDP_OK) {
        check(ids[0].n == b.n && ids[1].n == b.n && ends[0].n == ends[1].n);
        check(b.n == 0 || (!memcmp(ids[0].items, ids[1].items, (size_t)b.n * sizeof *ids[0].items) &&
                           ends[0].items[ends[0].n - 1] == b.n));
        for (int64_t i = 0; i < ends[0].n; i++)
            check(ends[0].items[i] == ends[1].items[i] && ends[0].items[i] > (i ? ends[0].items[i - 1] : 0));
    }
    for (int i = 0; i < 2; i++) {
        ndp_ids_release(&ids[i]);
        free(ends[i].items);
    }
    return 0;
}
