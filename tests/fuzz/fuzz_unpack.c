/* libFuzzer: a compressed file, its first byte says of which kind its name tells. What is unpacked is within the limit,
 * its head is the head of the whole, and its records are read or refused. */
#include "data/corpus/source.h"
#include "data/corpus/unpack.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine) {
    if (!fine)
        __builtin_trap();
}

static ndp_status visit(void *user, const ndp_document *d) {
    *(size_t *)user += d->n;
    check(ndp_utf8_valid_prefix(d->text, d->n) == d->n);
    return NDP_OK;
}

static void compare_head(const char *path, const uint8_t *packed, size_t size, size_t most, ndp_status whole,
                         const char *all, size_t n) {
    char *head;
    size_t got;
    if (ndp_unpack_head(path, packed, size, most, &head, &got) != NDP_OK) {
        check(whole != NDP_OK);
        return;
    }
    check(got <= most && (whole != NDP_OK || (got == (n < most ? n : most) && !memcmp(head, all, got))));
    free(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const paths[] = {"a.jsonl.gz", "a.json.zst", "a.txt.xz", "a.zip", "a.jsonl.GZ", "a.tar.gz"};
    if (size == 0)
        return 0;
    const char *path = paths[data[0] % NDP_COUNT(paths)];
    uint8_t *packed = malloc(size - 1 ? size - 1 : 1); /* so that reading beyond is seen */
    char *all = NULL;
    size_t n = 0, documents = 0;
    memcpy(packed, data + 1, --size);
    ndp_status st = ndp_unpack(path, packed, size, &all, &n);
    check(st != NDP_OK || n <= NDP_UNPACK_ALLOWANCE + NDP_UNPACK_RATIO * size);
    if (ndp_unpacked_name(path) < strlen(path))
        compare_head(path, packed, size, 1 + data[0] / 16 * 100u, st, all, n);
    if (n < 1 << 20)
        (void)!ndp_source_visit(path, (const char *)packed, size, NULL, visit, &documents);
    check(documents <= n || st != NDP_OK);
    free(all);
    free(packed);
    return 0;
}
