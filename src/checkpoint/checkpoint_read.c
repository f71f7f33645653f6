/* A checkpoint for reading: its manifest and two sets of tensors, the model's and the optimizer's. A tensor's name says
 * which set it is in. Called by the trainer when a run resumes. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/steps.h"

#include <stdlib.h>

enum { MODEL, OPTIMIZER, SETS };

struct ndp_checkpoint {
    ndp_manifest manifest;
    ndp_weights *sets[SETS]; /* NULL: the checkpoint has no such tensors */
};

static int set_of(const char *name) { return strncmp(name, "optimizer.", 10) == 0 ? OPTIMIZER : MODEL; }

static bool has_stem(const ndp_manifest *m, const char *stem) {
    for (int i = 0; i < m->n_files; i++)
        if (strncmp(m->files[i].name, stem, strlen(stem)) == 0)
            return true;
    return false;
}

static ndp_status open_sets(ndp_checkpoint *c, const char *folder, int64_t step) {
    static const char *const stems[SETS] = {"model", "optimizer"};
    char path[NDP_PATH];
    NDP_TRY(ndp_step_path(path, folder, step));
    NDP_TRY(ndp_step_manifest(folder, step, &c->manifest));
    for (int i = 0; i < SETS; i++)
        if (has_stem(&c->manifest, stems[i]))
            NDP_TRY(ndp_weights_open_stem(path, stems[i], &c->sets[i]));
    return NDP_OK;
}

ndp_status ndp_checkpoint_open(const char *folder, int64_t step, ndp_checkpoint **out) {
    ndp_checkpoint *c = calloc(1, sizeof *c);
    NDP_CHECK_MEMORY(c, "to open '%s'", folder);
    ndp_status st = open_sets(c, folder, step);
    if (st != NDP_OK) {
        ndp_checkpoint_close(c);
        return st;
    }
    *out = c;
    return NDP_OK;
}

void ndp_checkpoint_close(ndp_checkpoint *c) {
    for (int i = 0; c && i < SETS; i++)
        ndp_weights_close(c->sets[i]);
    if (c)
        ndp_manifest_release(&c->manifest);
    free(c);
}

const ndp_checkpoint_info *ndp_checkpoint_get_info(const ndp_checkpoint *c) { return &c->manifest.info; }

ndp_weights *ndp_checkpoint_weights(const ndp_checkpoint *c) { return c->sets[MODEL]; }

const ndp_tensor_entry *ndp_checkpoint_find(const ndp_checkpoint *c, const char *name) {
    const ndp_weights *w = c->sets[set_of(name)];
    return w ? ndp_weights_find(w, name) : NULL;
}

ndp_status ndp_checkpoint_read(const ndp_checkpoint *c, const char *name, int64_t first, int64_t count, void *dest,
                               ndp_dtype type) {
    const ndp_weights *w = c->sets[set_of(name)];
    if (!w)
        return NDP_FAIL(NDP_EFORMAT, "the checkpoint of step %lld holds no tensor %s", (long long)c->manifest.info.step,
                        name);
    return ndp_weights_read(w, name, first, count, dest, type, false);
}

ndp_status ndp_checkpoint_intact(const ndp_checkpoint *c) {
    for (int i = 0; i < SETS; i++)
        if (c->sets[i])
            NDP_TRY(ndp_weights_intact(c->sets[i]));
    return NDP_OK;
}

/* Checks one set against those of the expected tensors that belong to it. */
static ndp_status check_set(const ndp_checkpoint *c, int set, const ndp_tensor_spec *expected, int n) {
    ndp_tensor_spec *own = malloc(((size_t)n + 1) * sizeof *own);
    NDP_CHECK_MEMORY(own, "to check %d tensors", n);
    int count = 0;
    for (int i = 0; i < n; i++)
        if (set_of(expected[i].name) == set)
            own[count++] = expected[i];
    ndp_status st = NDP_OK;
    if (c->sets[set])
        st = ndp_weights_check(c->sets[set], own, count, NULL, NULL);
    else if (count)
        st = NDP_FAIL(NDP_EFORMAT, "the checkpoint of step %lld holds none of %d tensors such as %s",
                      (long long)c->manifest.info.step, count, own[0].name);
    free(own);
    return st;
}

ndp_status ndp_checkpoint_check(const ndp_checkpoint *c, const ndp_tensor_spec *expected, int n) {
    for (int i = 0; i < SETS; i++)
        NDP_TRY(check_set(c, i, expected, n));
    return NDP_OK;
}
