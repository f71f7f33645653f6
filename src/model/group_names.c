/* Which tensors are updated alike, or trained (group_names.h). */
#include "model/group_names.h"

#include "base/full_match.h"
#include "model/adapter_names.h"
#include "model/families.h"
#include "model/tensors.h"
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static bool is_end(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return k < n && name[n - k - 1] == '.' && strcmp(name + n - k, end) == 0;
}

static bool is_named(const ndp_segment *s, const char *tensor, const char *name, const ndp_facts *f) {
    char module[NDP_MODULE_NAME];
    const char *regex = ndp_regex_of(name);
    bool is = false;
    if (regex) /* config checks that it is one */
        return ndp_full_match(regex, tensor, &is) == NDP_OK && is;
    ndp_module_of(tensor, module);
    return strcmp(name, "vectors") == 0 ? s->ndim == 1
                                        : ndp_module_is_named(tensor, name, f) || is_end(tensor, name) ||
                                              fnmatch(name, tensor, 0) == 0 || fnmatch(name, module, 0) == 0;
}

/* How many of a segment's tensors names name; the first of them is written to `tensor`. */
static int64_t count(const ndp_segment *s, const char *const *names, int n_names, const ndp_facts *f,
                     char tensor[NDP_SEGMENT_NAME]) {
    char room[NDP_SEGMENT_NAME];
    int64_t n = 0;
    for (int64_t i = ndp_segment_tensors(s); i-- > 0;) {
        const char *of = ndp_segment_tensor_name(s, i, room);
        bool is = false;
        for (int k = 0; k < n_names && !is; k++)
            is = is_named(s, of, names[k], f);
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
    int64_t n = count(s, &x->name, 1, x->facts, tensor), all = ndp_segment_tensors(s);
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

/* ---- model.trained ---- */

bool ndp_trained_names(const ndp_model_opts *o, const ndp_segment *s, const ndp_facts *f) {
    char tensor[NDP_SEGMENT_NAME];
    return !s->no_grad && count(s, o->trained, o->n_trained, f, tensor) == ndp_segment_tensors(s);
}

static ndp_status check_whole(const ndp_model_opts *o, const ndp_segment *s, const ndp_facts *f) {
    char tensor[NDP_SEGMENT_NAME];
    int64_t n = count(s, o->trained, o->n_trained, f, tensor), all = ndp_segment_tensors(s);
    return n == 0 || n == all ? NDP_OK
                              : NDP_FAIL(NDP_ENOTSUP,
                                         "model.trained names %s, and in all %lld of the %lld tensors of experts that "
                                         "are one stack: its experts are trained together; name all, or none",
                                         tensor, (long long)n, (long long)all);
}

static ndp_status check_name(const ndp_model *m, const char *name, const ndp_facts *f) {
    char tensor[NDP_SEGMENT_NAME] = "";
    for (ndp_segment_walk w = {.model = m}; ndp_segment_next(&w);)
        if (count(w.segment, &name, 1, f, tensor) > 0 && !w.segment->no_grad)
            return NDP_OK;
    NDP_CHECK(!tensor[0], "model.trained: '%.100s' names %s, which has no gradient, and nothing that has one", name,
              tensor);
    return NDP_FAIL(NDP_EINVAL,
                    "model.trained: '%.100s' names no tensor; give the end of the name of a module or tensor (%s, "
                    "norm.weight), a pattern of the whole name (*.bias), or regex: and a regular expression of it",
                    name, f ? f->names->tokens : "up");
}

ndp_status ndp_trained_check(const ndp_model *m, const ndp_facts *f) {
    const ndp_model_opts *o = &m->opts;
    for (int i = 0; i < o->n_trained; i++)
        NDP_TRY(check_name(m, o->trained[i], f));
    for (ndp_segment_walk w = {.model = m}; o->n_trained > 0 && ndp_segment_next(&w);)
        NDP_TRY(check_whole(o, w.segment, f));
    return NDP_OK;
}
