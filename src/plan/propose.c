/* Layouts for a job, by trying them: every legal layout of a number of ranks becomes programs as a run would build them
 * (dry_run.c), of which one step is simulated (plan_check.c) at rates that stand for a machine. So layouts are compared
 * with each other, and what a step takes is not predicted. Called by `ndparallel init`. */
#include "launch/memory_need.h"
#include "plan/gpu_memory.h"
#include "plan/plan_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Worlds have many factorizations; those with the fewest axes are tried. */
enum { MOST_TRIED = 64, MOST_LISTED = 4096 };

typedef struct layout_list {
    ndp_layout items[MOST_LISTED];
    int n;
} layout_list;

static int axes_of(const ndp_layout *l) {
    int n = 0;
    for (int axis = 0; axis < NDP_AXES; axis++)
        n += l->size[axis] > 1;
    return n;
}

/* All sizes of `axis` and those inside it, whose product is `left`. */
static void list_sizes(ndp_layout l, int axis, int left, layout_list *out) {
    if (axis == NDP_AXES) {
        if (left == 1 && out->n < MOST_LISTED)
            out->items[out->n++] = l;
        return;
    }
    for (int size = 1; size <= left; size++)
        if (left % size == 0) {
            l.size[axis] = size;
            list_sizes(l, axis + 1, left / size, out);
        }
}

/* Few axes first; of as many, shards before replicas before cuts of the model. */
static int by_axes(const void *a, const void *b) {
    const ndp_layout *x = a, *y = b;
    double weight[2] = {0, 0};
    for (int axis = 0; axis < NDP_AXES; axis++) {
        weight[0] += ndp_axis_table[axis].weight * (x->size[axis] > 1);
        weight[1] += ndp_axis_table[axis].weight * (y->size[axis] > 1);
    }
    int order = axes_of(x) - axes_of(y);
    return order ? order : (weight[0] > weight[1]) - (weight[0] < weight[1]);
}

/* ---- one layout ---- */

/* What stands for a machine in the comparison: rates inside a node, and what leaves a rank of one for another node.
 * Cores share memory, and GPUs have fast links inside a node. */
typedef struct trial_rates {
    ndp_rates inside;
    double between;
    int per_node;
} trial_rates;

static trial_rates rates_of(bool host_memory, int per_node) {
    return host_memory ? (trial_rates){NDP_RATES_INIT, 1e9, per_node}
                       : (trial_rates){{3e14, 2.5e12, 2e11, 1e-5}, 2.5e10, per_node};
}

static double kernel_seconds(const void *user, const ndp_call *call) {
    const trial_rates *r = user;
    const ndp_price price = ndp_price_by_rates(&r->inside);
    return price.kernel(price.user, call);
}

static double comm_seconds(const void *user, const ndp_call *call, const ndp_group *group) {
    const trial_rates *r = user;
    ndp_rates rates = r->inside;
    if (group->base / r->per_node != (group->base + (group->count - 1) * group->stride) / r->per_node)
        rates.sent = r->between;
    const ndp_price price = ndp_price_by_rates(&rates);
    return price.comm(price.user, call, group);
}

static void name_layout(const ndp_job *j, ndp_proposal *out) {
    size_t used = 0;
    (void)ndp_layout_text(&j->layout, out->layout, sizeof out->layout);
    for (int axis = 0; axis < NDP_AXES; axis++) /* dp_shard has another default than 1 */
        if ((j->layout.size[axis] > 1 || axis == NDP_DP_SHARD) && used < sizeof out->keys)
            used += (size_t)snprintf(out->keys + used, sizeof out->keys - used, "%s%s_size: %d", used ? ", " : "",
                                     ndp_axis_name((ndp_axis)axis), j->layout.size[axis]);
}

/* Bytes that a rank may need, and whether this one does. */
static void compare_memory(const ndp_job *j, const ndp_dry_run *d, int64_t memory, const ndp_plan_trial *t,
                           ndp_proposal *out) {
    int per_node = d->per_node < j->world ? d->per_node : j->world;
    int64_t need, has = memory;
    out->rank_memory = t->device;
    if (d->device.host_memory) {
        const ndp_memory_need n = {.rank = t->device + t->pinned, .ranks = per_node, .mapped = 1, .shared = true};
        has = has ? has : ndp_memory_available();
        need = ndp_memory_of_host(&n);
        out->limit = has / per_node;
    } else {
        const ndp_gpu_memory g = ndp_gpu_memory_of(j, per_node, t->device);
        has = has ? has : g.has;
        need = ndp_gpu_memory_need(&g);
        out->limit = has / g.ranks;
    }
    out->fits = has == 0 || need <= has;
}

static const char *bound_of(const ndp_plan_trial *t, bool pipeline) {
    return t->waits < 0.3 ? "compute" : pipeline && t->bubble > t->waits / 2 ? "pipeline" : "communication";
}

ndp_status ndp_propose_job(const ndp_job *j, const ndp_propose_opts *o, ndp_proposal *out) {
    ndp_model m;
    ndp_dry_run d;
    ndp_plan_trial t = {0};
    int per_node = o->ranks_per_node ? o->ranks_per_node : j->world;
    NDP_TRY(ndp_dry_run_init(&d, j, per_node, 0));
    d.fold = NDP_FOLD_ALWAYS;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &m));
    const trial_rates rates = rates_of(d.device.host_memory, per_node);
    ndp_status st = ndp_plan_try(&d, &m, &(ndp_price){kernel_seconds, comm_seconds, &rates}, &t);
    ndp_model_release(&m);
    NDP_TRY(st);
    *out = (ndp_proposal){.recompute = j->config->train.recompute == NDP_RECOMPUTE_BLOCK, .cost = t.seconds};
    name_layout(j, out);
    compare_memory(j, &d, o->memory, &t, out);
    out->waits = t.waits;
    out->bound_by = out->fits ? bound_of(&t, j->layout.size[NDP_PP] > 1) : "memory";
    return NDP_OK;
}

/* The layout as it is, and where that does not fit with recomputation. */
static ndp_status try_layout(ndp_config *c, const ndp_layout *l, const ndp_propose_opts *o, ndp_proposal *out) {
    ndp_job j;
    const ndp_recompute ways[] = {c->train.recompute, NDP_RECOMPUTE_BLOCK};
    memcpy(c->parallelism.size, l->size, sizeof c->parallelism.size);
    ndp_status st = NDP_OK;
    for (int way = 0; way < 2 && st == NDP_OK && (way == 0 || (ways[0] != ways[1] && !out->fits)); way++) {
        c->train.recompute = ways[way];
        st = ndp_job_init(c, o->ranks, &j);
        if (st == NDP_OK) {
            st = ndp_propose_job(&j, o, out);
            ndp_job_release(&j);
        }
    }
    c->train.recompute = ways[0];
    return st;
}

/* ---- all of them ---- */

static int by_worth(const void *a, const void *b) {
    const ndp_proposal *x = a, *y = b;
    if (x->fits != y->fits)
        return y->fits - x->fits;
    double left = x->fits ? x->cost : (double)x->rank_memory, right = y->fits ? y->cost : (double)y->rank_memory;
    return (left > right) - (left < right);
}

static ndp_status try_all(ndp_config *c, const ndp_propose_opts *o, layout_list *list, ndp_proposal *all, int *n) {
    ndp_status st = NDP_OK, first = NDP_OK;
    char why[1024] = "";
    list_sizes((ndp_layout)NDP_LAYOUT_ONE, 0, o->ranks, list);
    qsort(list->items, (size_t)list->n, sizeof *list->items, by_axes);
    for (int i = 0; i < list->n && *n < MOST_TRIED; i++) {
        st = try_layout(c, &list->items[i], o, &all[*n]);
        if (st == NDP_ENOMEM || st == NDP_EBUG)
            return st;
        if (st == NDP_OK)
            ++*n;
        else if (first == NDP_OK) {
            first = st;
            snprintf(why, sizeof why, "%s", ndp_error_message());
        }
    }
    return *n ? NDP_OK : NDP_FAIL(first, "%s", why);
}

ndp_status ndp_propose_layouts(const ndp_config *c, const ndp_propose_opts *o, ndp_proposal *out, int most, int *n) {
    NDP_NOT_NULL(c, o, out, n);
    NDP_CHECK(o->ranks >= 1 && o->ranks <= 1 << 20, "%d ranks; a run has 1 to 1048576", o->ranks);
    ndp_config copy;
    int tried = 0;
    layout_list *list = calloc(1, sizeof *list);
    ndp_proposal *all = calloc(MOST_TRIED, sizeof *all);
    ndp_status st = list && all ? ndp_config_copy(c, &copy) : NDP_FAIL(NDP_ENOMEM, "not enough memory for layouts");
    if (st == NDP_OK) {
        copy.train.ranks = 0;
        st = try_all(&copy, o, list, all, &tried);
        ndp_config_release(&copy);
    }
    if (st == NDP_OK) {
        qsort(all, (size_t)tried, sizeof *all, by_worth);
        *n = tried < most ? tried : most;
        for (int i = 0; i < *n; i++) {
            out[i] = all[i];
            out[i].cost /= all[0].cost;
        }
    }
    free(all);
    free(list);
    return st;
}
