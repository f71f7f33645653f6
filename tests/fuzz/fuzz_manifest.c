/* A checkpoint's manifest as bytes: what was accepted, written again, is accepted as the same. */
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const ndp_manifest *a, const ndp_manifest *b) {
    if (a->info.step != b->info.step || a->info.samples != b->info.samples || a->info.seed != b->info.seed ||
        a->n_files != b->n_files || !a->info.extra != !b->info.extra)
        abort();
    for (int i = 0; i < a->n_files; i++)
        if (strcmp(a->files[i].name, b->files[i].name) != 0 || a->files[i].bytes != b->files[i].bytes ||
            strchr(a->files[i].name, '/'))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ndp_manifest m = {0}, again = {0};
    char *text = NULL;
    if (ndp_manifest_parse((const char *)data, size, "fuzz", &m) != NDP_OK)
        return 0;
    if (ndp_manifest_text(&m.info, m.files, m.n_files, &text) != NDP_OK ||
        ndp_manifest_parse(text, strlen(text), "again", &again) != NDP_OK)
        abort();
    same(&m, &again);
    free(text);
    ndp_manifest_release(&again);
    ndp_manifest_release(&m);
    return 0;
}
