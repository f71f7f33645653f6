/* A checkpoint's manifest as bytes, and with the hash that they should have after them, which no fuzzer would find:
 * what was accepted, written again, is accepted as the same. */
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const ndp_manifest *a, const ndp_manifest *b) {
    if (a->info.step != b->info.step || a->info.samples != b->info.samples || a->info.seed != b->info.seed ||
        a->n_files != b->n_files || !a->info.extra != !b->info.extra)
        abort();
    for (int i = 0; i < a->n_files; i++) {
        const ndp_manifest_file *f = &a->files[i], *g = &b->files[i];
        if (strcmp(f->name, g->name) != 0 || f->bytes != g->bytes || strchr(f->name, '/') || f->n_chunks != g->n_chunks)
            abort();
        for (int64_t k = 0; k < f->n_chunks; k++)
            if (memcmp(&f->chunks[k], &g->chunks[k], sizeof f->chunks[k]) != 0)
                abort();
    }
}

static void parse(const char *text, size_t size) {
    ndp_manifest m = {0}, again = {0};
    char *rewritten = NULL;
    if (ndp_manifest_parse(text, size, "fuzz", &m) != NDP_OK)
        return;
    if (m.version > 1) { /* the older one is not written any more */
        if (ndp_manifest_text(&m.info, m.files, m.n_files, &rewritten) != NDP_OK ||
            ndp_manifest_parse(rewritten, strlen(rewritten), "again", &again) != NDP_OK)
            abort();
        same(&m, &again);
    }
    free(rewritten);
    ndp_manifest_release(&again);
    ndp_manifest_release(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_str sealed = {0};
    parse((const char *)data, size);
    ndp_str_add_bytes(&sealed, data, size);
    ndp_manifest_seal(&sealed);
    if (!sealed.failed)
        parse(sealed.data, sealed.length);
    ndp_str_release(&sealed);
    return 0;
}
