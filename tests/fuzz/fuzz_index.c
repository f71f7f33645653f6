/* libFuzzer: a folder of weights: model.safetensors.index.json up to the first zero byte, then up to three shards,
 * named s1 to s3, each behind two bytes that tell its length. What opens has every tensor once, in order of their
 * names, each readable. */
#include "base/text.h"
#include "checkpoint/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[] = "/dev/shm/ndp-fuzz-XXXXXX"; /* in memory: files are written for every input */

static void check(bool fine) {
    if (!fine)
        __builtin_trap();
}

static void remove_folder(void) { (void)!ndp_folder_remove(folder); }

static void put_file(const char *name, const uint8_t *bytes, size_t n) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    check(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

static void put_folder(const uint8_t *data, size_t size) {
    const uint8_t *border = memchr(data, 0, size);
    size_t at = border ? (size_t)(border - data) : size;
    put_file("model.safetensors.index.json", data, at);
    at += at < size;
    for (int i = 1; i <= 3; i++) {
        size_t n = size - at >= 2 ? (size_t)data[at] | (size_t)data[at + 1] << 8 : 0;
        char name[3] = {'s', (char)('0' + i), '\0'};
        at += size - at >= 2 ? 2 : size - at;
        n = n < size - at ? n : size - at;
        put_file(name, data + at, n);
        at += n;
    }
}

static void use(const ndp_weights *w) {
    for (int i = 0; i < ndp_weights_count(w); i++) {
        const ndp_tensor_entry *e = ndp_weights_at(w, i);
        check(ndp_weights_find(w, e->spec.name) == e);
        check(i == 0 || strcmp(ndp_weights_at(w, i - 1)->spec.name, e->spec.name) < 0);
        double *x = malloc((size_t)e->elements * sizeof *x + 1);
        check(ndp_weights_read(w, e->spec.name, 0, e->elements, x, NDP_F64, false) != NDP_OK ||
              e->spec.dtype < NDP_DTYPES);
        free(x);
    }
    check(ndp_weights_intact(w) == NDP_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static bool made;
    ndp_weights *w;
    if (!made) {
        check(mkdtemp(folder) != NULL && atexit(remove_folder) == 0);
        made = true;
    }
    put_folder(data, size);
    if (ndp_weights_open(folder, &w) != NDP_OK)
        return 0;
    const char *prefix = size % 2 ? "model." : "a", *text = size % 2 ? "model.t." : "at.";
    if (ndp_weights_rename(w, &(ndp_naming){prefix, size % 3 ? "" : text, size % 5 ? NULL : text}) == NDP_OK)
        use(w);
    ndp_weights_close(w);
    return 0;
}
