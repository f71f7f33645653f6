/* A folder for a test's files, and tensors whose elements say where they belong. */
#ifndef TESTS_CHECKPOINT_FILES_H
#define TESTS_CHECKPOINT_FILES_H

#include "base/text.h"
#include "check.h"
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A fresh folder; cmocka's setup and teardown. *state is its path. */
static inline int make_folder(void **state) {
    const char *base = getenv("TMPDIR");
    char *path = ndp_format("%s/ndp-checkpoint-XXXXXX", base ? base : "/tmp");
    *state = path;
    return path && mkdtemp(path) ? 0 : -1;
}

static inline int drop_folder(void **state) {
    int r = ndp_folder_remove(*state) == NDP_OK ? 0 : -1;
    free(*state);
    return r;
}

/* FOLDER/NAME in a buffer of the caller. */
static inline const char *in(const char *folder, const char *name, char out[512]) {
    if (snprintf(out, 512, "%s/%s", folder, name) >= 512)
        fail_msg("%s/%s is too long", folder, name);
    return out;
}

static inline void put_file(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f))
        fail_msg("cannot write %s", path);
}

/* Bytes of a safetensors file with this header (as it is, no padding) and `payload` bytes 0, 1, 2, ...; freed by the
 * caller. */
static inline unsigned char *image(const char *header, size_t payload, size_t *size) {
    size_t n = strlen(header);
    unsigned char *bytes = malloc(8 + n + payload + 1);
    if (!bytes)
        abort();
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(n >> (8 * i));
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < payload; i++)
        bytes[8 + n + i] = (unsigned char)i;
    *size = 8 + n + payload;
    return bytes;
}

/* Element i of tensor t in generation g: exact in fp32. */
static inline float element(int t, int64_t i, int64_t g) { return (float)(t * 100000 + i) + (float)g * 0.125f; }

#endif
