/* The groups of tensors of a job: the entries of optimizer.groups, and what other keys make, each with the names of its
 * tensors, which the model reads, and with how they are updated, which the optimizer reads. */
#include "job/job.h"

#include "model/tensors.h"
#include "optim/groups.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By entry. */
struct ndp_job_groups {
    ndp_group_names names[NDP_MOST_ENTRIES];
    ndp_update_entry entries[NDP_MOST_ENTRIES];
    ndp_strings params[NDP_MOST_ENTRIES];
    char what[NDP_MOST_ENTRIES][48];
    int n;
};

static ndp_status add_entry(ndp_job *j, int i) {
    struct ndp_job_groups *g = j->groups;
    NDP_TRY(ndp_config_group(j->config, i, &g->params[g->n], &g->entries[g->n]));
    const char *key = ndp_config_group_key(j->config, i);
    if (key)
        snprintf(g->what[g->n], sizeof g->what[g->n], "%s", key);
    else
        snprintf(g->what[g->n], sizeof g->what[g->n], "entry %d of optimizer.groups", i + 1);
    g->names[g->n] = (ndp_group_names){.what = g->what[g->n],
                                       .names = (const char *const *)g->params[g->n].items,
                                       .n = g->params[g->n].n,
                                       .any = key != NULL};
    g->n++;
    return NDP_OK;
}

ndp_status ndp_job_find_groups(ndp_job *j) {
    int n = ndp_config_groups(j->config);
    NDP_CHECK(n <= NDP_MOST_ENTRIES, "optimizer.groups has %d entries; give at most %d", n, NDP_MOST_ENTRIES);
    if (n == 0)
        return NDP_OK;
    j->groups = calloc(1, sizeof *j->groups);
    NDP_CHECK_MEMORY(j->groups, "for %d groups of tensors", n);
    for (int i = 0; i < n; i++)
        NDP_TRY(add_entry(j, i));
    j->model.groups = j->groups->names, j->model.n_groups = j->groups->n;
    return NDP_OK;
}

void ndp_job_release_groups(ndp_job *j) {
    for (int i = 0; j->groups && i < j->groups->n; i++)
        ndp_strings_release(&j->groups->params[i]);
    free(j->groups);
    j->groups = NULL;
}

ndp_optimizer_opts ndp_job_optimizer(const ndp_job *j) {
    ndp_optimizer_opts o = ndp_config_optimizer(j->config);
    if (j->groups)
        o.entries = j->groups->entries, o.n_entries = j->groups->n;
    return o;
}

/* ---- for the user ---- */

/* The name of a tensor with * for the numbers in it: layers have it alike. */
static void mask(const char *tensor, char out[NDP_SEGMENT_NAME]) {
    bool starts = true; /* at a word */
    for (; *tensor; starts = out[-1] == '.') {
        size_t digits = strspn(tensor, "0123456789");
        bool number = starts && digits > 0 && (!tensor[digits] || tensor[digits] == '.');
        *out++ = number ? '*' : *tensor;
        tensor += number ? digits : 1;
    }
    *out = '\0';
}

/* Appends the names of a group's tensors, masked, each once. Returns how many tensors there are. */
static int64_t add_tensors(const ndp_update_groups *g, int group, const ndp_model *m, ndp_str *out) {
    enum { SHOWN = 4 };
    int64_t n = 0;
    int kinds = 0;
    char name[NDP_SEGMENT_NAME], shown[SHOWN][NDP_SEGMENT_NAME];
    for (ndp_tensor_walk w = {.segments.model = m}; ndp_tensor_next(&w);) {
        bool known = !m->buffers[w.tensor.buffer].trainable || ndp_update_group_of(g, w.tensor.segment) != group;
        n += !known;
        mask(w.tensor.name, name);
        for (int i = 0; i < kinds && i < SHOWN; i++)
            known |= strcmp(shown[i], name) == 0;
        if (!known && kinds < SHOWN)
            memcpy(shown[kinds], name, sizeof name);
        if (!known && kinds <= SHOWN)
            ndp_str_addf(out, "%s%s", kinds ? ", " : "", kinds < SHOWN ? name : "...");
        kinds += !known;
    }
    return n;
}

void ndp_job_describe_groups(const ndp_job *j, const ndp_model *m, ndp_str *out) {
    ndp_optimizer_opts o = ndp_job_optimizer(j);
    ndp_arena arena = {0};
    ndp_update_groups g;
    if (!j->groups || ndp_update_groups_make(&o, &arena, &g) != NDP_OK)
        return;
    for (int i = 0; i < g.n; i++) {
        const ndp_update_group *of = &g.items[i];
        ndp_str names = {0};
        int64_t n = add_tensors(&g, i, m, &names);
        if (n > 0)
            ndp_str_addf(out, "group: %s, lr %g, weight decay %g: %lld tensor%s (%s; %s)\n",
                         ndp_optimizers[of->opts.name]->name, j->config->optimizer.lr * of->lr_scale,
                         of->opts.weight_decay, (long long)n, n == 1 ? "" : "s",
                         of->entry ? j->groups->names[of->entry - 1].what : "no entry", names.data ? names.data : "");
        ndp_str_release(&names);
    }
    ndp_arena_release(&arena);
}
