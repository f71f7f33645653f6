#include "checkpoint/checkpoint.h"
#include "checkpoint/steps.h"

#include <stdlib.h>

struct ndp_checkpoint {
    ndp_manifest manifest;
    ndp_weights *model, *optimizer; /* NULL: the checkpoint has no such tensors */
};

static bool is_optimizer(const char *name) { return strncmp(name, "optimizer.", 10) == 0; }

static bool has_stem(const ndp_manifest *m, const char *stem) {
    for (int i = 0; i < m->n_files; i++)
        if (strncmp(m->files[i].name, stem, strlen(stem)) == 0)
            return true;
    return false;
}

static ndp_status open_sets(ndp_checkpoint *c, const char *path) {
    if (has_stem(&c->manifest, "model"))
        NDP_TRY(ndp_weights_open_stem(path, "model", &c->model));
    if (has_stem(&c->manifest, "optimizer"))
        NDP_TRY(ndp_weights_open_stem(path, "optimizer", &c->optimizer));
    return NDP_OK;
}

ndp_status ndp_checkpoint_open(const char *folder, int64_t step, ndp_checkpoint **out) {
    ndp_checkpoint *c = calloc(1, sizeof *c);
    char *path = ndp_step_path(folder, step, false);
    ndp_status st = c && path ? ndp_step_manifest(folder, step, &c->manifest)
                              : NDP_FAIL(NDP_ENOMEM, "not enough memory to open '%s'", folder);
    if (st == NDP_OK)
        st = open_sets(c, path);
    free(path);
    if (st != NDP_OK) {
        ndp_checkpoint_close(c);
        return st;
    }
    *out = c;
    return NDP_OK;
}

void ndp_checkpoint_close(ndp_checkpoint *c) {
    if (!c)
        return;
    ndp_weights_close(c->model);
    ndp_weights_close(c->optimizer);
    ndp_manifest_release(&c->manifest);
    free(c);
}

const ndp_checkpoint_info *ndp_checkpoint_get_info(const ndp_checkpoint *c) { return &c->manifest.info; }

const ndp_tensor_entry *ndp_checkpoint_find(const ndp_checkpoint *c, const char *name) {
    const ndp_weights *w = is_optimizer(name) ? c->optimizer : c->model;
    return w ? ndp_weights_find(w, name) : NULL;
}

ndp_status ndp_checkpoint_read(const ndp_checkpoint *c, const char *name, int64_t first, int64_t count, void *dest,
                               ndp_dtype type) {
    const ndp_weights *w = is_optimizer(name) ? c->optimizer : c->model;
    if (!w)
        return NDP_FAIL(NDP_EFORMAT, "the checkpoint of step %lld holds no tensor %s", (long long)c->manifest.info.step,
                        name);
    return ndp_weights_read(w, name, first, count, dest, type, false);
}

ndp_status ndp_checkpoint_intact(const ndp_checkpoint *c) {
    if (c->model)
        NDP_TRY(ndp_weights_intact(c->model));
    return c->optimizer ? ndp_weights_intact(c->optimizer) : NDP_OK;
}

/* Checks one set against those of the expected tensors that belong to it. */
static ndp_status check_set(const ndp_checkpoint *c, const ndp_weights *w, const ndp_tensor_spec *expected, int n,
                            bool optimizer) {
    ndp_tensor_spec *own = malloc(((size_t)n + 1) * sizeof *own);
    if (!own)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory to check %d tensors", n);
    int count = 0;
    for (int i = 0; i < n; i++)
        if (is_optimizer(expected[i].name) == optimizer)
            own[count++] = expected[i];
    ndp_status st = NDP_OK;
    if (w)
        st = ndp_weights_check(w, own, count, NULL, NULL);
    else if (count)
        st = NDP_FAIL(NDP_EFORMAT, "the checkpoint of step %lld holds none of %d tensors such as %s",
                      (long long)c->manifest.info.step, count, own[0].name);
    free(own);
    return st;
}

ndp_status ndp_checkpoint_check(const ndp_checkpoint *c, const ndp_tensor_spec *expected, int n) {
    NDP_TRY(check_set(c, c->model, expected, n, false));
    return check_set(c, c->optimizer, expected, n, true);
}
