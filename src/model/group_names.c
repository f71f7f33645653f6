/* Which tensors are updated alike (group_names.h). */
#include "model/group_names.h"

#include "model/adapter_names.h"
#include "model/families.h"
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static bool is_end(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return k < n && name[n - k - 1] == '.' && strcmp(name + n - k, end) == 0;
}

static bool is_named(const ndp_segment *s, const char *tensor, const char *name, const ndp_facts *f) {
    char module[NDP_MODULE_NAME];
    ndp_module_of(tensor, module);
    return strcmp(name, "vectors") == 0 ? s->ndim == 1
                                        : ndp_module_is_named(tensor, name, f) || is_end(tensor, name) ||
                                              fnmatch(name, tensor, 0) == 0 || fnmatch(name, module, 0) == 0;
}

/* How many of a segment's tensors a name names; the first of them is written to `tensor`. */
static int64_t count(const ndp_segment *s, const char *name, const ndp_facts *f, char tensor[NDP_SEGMENT_NAME]) {
    char room[NDP_SEGMENT_NAME];
    int64_t n = 0;
    for (int64_t i = ndp_segment_tensors(s); i-- > 0;) {
        const char *of = ndp_segment_tensor_name(s, i, room);
        bool is = is_named(s, of, name, f);
        if (is)
            snprintf(tensor, NDP_SEGMENT_NAME, "%s", of);
        n += is;
    }
    return n;
}

/* What a name has found so far. */
typedef struct naming {
    const ndp_facts *facts;
    const ndp_group_names *groups;
    int group;
    const char *name;
    bool trained;
    char frozen[NDP_SEGMENT_NAME]; /* one that is not; "": none */
} naming;

static ndp_status name_segment(naming *x, ndp_segment *s, bool trainable) {
    char tensor[NDP_SEGMENT_NAME];
    int64_t n = count(s, x->name, x->facts, tensor), all = ndp_segment_tensors(s);
    const char *what = x->groups[x->group].what;
    if (n == 0)
        return NDP_OK;
    if (!trainable) {
        memcpy(x->frozen, tensor, sizeof tensor);
        return NDP_OK;
    }
    if (n < all)
        return NDP_FAIL(NDP_ENOTSUP,
                        "%s: '%.100s' names %s and %lld others of %lld experts, which are updated alike; name all",
                        what, x->name, tensor, (long long)n - 1, (long long)all);
    if (s->named_by && s->named_by != x->group + 1)
        return NDP_FAIL(NDP_EINVAL, "%s: '%.100s' names %s, which %s names too; a tensor is updated by one of them",
                        what, x->name, tensor, x->groups[s->named_by - 1].what);
    s->named_by = (uint8_t)(x->group + 1);
    x->trained = true;
    return NDP_OK;
}

static ndp_status name_all(ndp_model *m, naming *x) {
    const ndp_group_names *g = &x->groups[x->group];
    x->trained = false, x->frozen[0] = '\0';
    for (int b = 0; b < m->n_buffers; b++)
        for (int i = 0; i < m->buffers[b].segments.n; i++)
            NDP_TRY(name_segment(x, &m->buffers[b].segments.items[i], m->buffers[b].trainable));
    NDP_CHECK(x->trained || g->any || !x->frozen[0],
              "%s: '%.100s' names %s, which is frozen; name tensors that are trained", g->what, x->name, x->frozen);
    NDP_CHECK(
        x->trained || g->any,
        "%s: '%.100s' names no tensor; give the end of the name of a module or tensor (%s, norm.weight), a pattern "
        "of the whole name (*.bias), or vectors",
        g->what, x->name, x->facts ? x->facts->names->tokens : "up");
    return NDP_OK;
}

ndp_status ndp_groups_name(ndp_model *m, const ndp_facts *f) {
    naming x = {.facts = f, .groups = m->opts.groups};
    for (; x.group < m->opts.n_groups; x.group++)
        for (int i = 0; i < x.groups[x.group].n; i++) {
            x.name = x.groups[x.group].names[i];
            NDP_TRY(name_all(m, &x));
        }
    return NDP_OK;
}
