/* ndp_restart_find: what a run that has lost hosts goes on with. Its ranks start on the slots that are left; where
 * these are too few, on another layout of fewer ranks, if that is wanted. A layout is legal if the job of it is, and is
 * tried in the order of its distance from the run's own (mesh/layout.c), of those that divide the same global batch.
 * Called by `train --restarts` with a hostfile. */
#include "base/text.h"
#include "launch/spare_hosts.h"
#include "plan/plan_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- layouts of fewer ranks ---- */

typedef struct smaller_layout {
    ndp_layout layout;
    int ranks;
    double far;
} smaller_layout;

typedef struct fewer_ranks {
    const ndp_job *of;
    int most; /* ranks */
    smaller_layout *items;
    int64_t n, capacity;
} fewer_ranks;

/* ep becomes the largest size up to that of the run which divides the ranks that it is a view of. */
static ndp_status add(fewer_ranks *all, ndp_layout l, int ranks) {
    int replica = ranks / (l.size[NDP_PP] * l.size[NDP_DP_REPLICATE]);
    if (all->of->batch.global_batch % (l.size[NDP_DP_REPLICATE] * l.size[NDP_DP_SHARD]) != 0)
        return NDP_OK;
    while (replica % l.size[NDP_EP] != 0)
        l.size[NDP_EP]--;
    NDP_TRY(ndp_array_reserve(&all->items, &all->capacity, all->n + 1, sizeof *all->items));
    all->items[all->n++] = (smaller_layout){l, ranks, ndp_layout_distance(&all->of->layout, &l)};
    return NDP_OK;
}

/* Sizes up to those of the run; dp_shard, of which each rank needs less memory the larger it is, may grow. */
static ndp_status list_sizes(fewer_ranks *all, ndp_layout l, int axis, int ranks) {
    int limit = axis == NDP_AXES || axis == NDP_DP_SHARD ? all->most : all->of->layout.size[axis];
    if (axis == NDP_AXES)
        return add(all, l, ranks);
    for (int size = 1; size <= limit && (int64_t)size * ranks <= all->most; size++) {
        l.size[axis] = size;
        NDP_TRY(list_sizes(all, l, axis + 1, ranks * size));
    }
    return NDP_OK;
}

/* Of as near ones the one with more ranks. */
static int nearest_first(const void *a, const void *b) {
    const smaller_layout *x = a, *y = b;
    return x->far != y->far ? (x->far > y->far) - (x->far < y->far) : y->ranks - x->ranks;
}

/* Ranks of the fullest host; memory is compared with this host's, if ranks start here. */
static ndp_propose_opts machine_of(const ndp_spare_hosts *h, int ranks) {
    ndp_propose_opts o = {.ranks = ranks, .ranks_per_node = 1, .memory = INT64_MAX};
    for (int i = 0; i < h->list.n; i++)
        if (!h->lost[i]) {
            int places = h->list.items[i].slots * h->a_slot;
            o.ranks_per_node = places > o.ranks_per_node ? places : o.ranks_per_node;
            o.memory = ndp_is_here(h->list.items[i].name) ? 0 : o.memory;
        }
    return o;
}

/* *legal: the job of this layout is, and it fits. */
static ndp_status try(const ndp_job *of, const smaller_layout *c, const ndp_spare_hosts *h, bool *legal) {
    ndp_config config;
    ndp_job j;
    ndp_proposal p = {.fits = false};
    const ndp_propose_opts o = machine_of(h, c->ranks);
    NDP_TRY(ndp_config_copy(of->config, &config));
    config.train.ranks = 0;
    memcpy(config.parallelism.size, c->layout.size, sizeof config.parallelism.size);
    ndp_status st = ndp_job_init_like(of, &config, c->ranks, &j);
    if (st == NDP_OK) {
        st = ndp_propose_job(&j, &o, &p);
        if (st == NDP_OK && !p.fits && !config.train.force_memory)
            st = NDP_FAIL(NDP_EINVAL, "%s: a rank needs %.3g GiB, of which there are %.3g", p.layout,
                          (double)p.rank_memory / 1073741824.0, (double)p.limit / 1073741824.0);
        ndp_job_release(&j);
    }
    ndp_config_release(&config);
    *legal = st == NDP_OK;
    return st == NDP_ENOMEM || st == NDP_EBUG ? st : NDP_OK;
}

static ndp_status find_nearest(const ndp_job *of, const ndp_spare_hosts *h, fewer_ranks *all, smaller_layout *out) {
    enum { MOST_TRIED = 64 };
    char why[512] = "no size of its data axes divides the global batch";
    NDP_TRY(list_sizes(all, (ndp_layout){.size = {[NDP_EP] = of->layout.size[NDP_EP]}}, 0, 1));
    if (all->n)
        qsort(all->items, (size_t)all->n, sizeof *all->items, nearest_first);
    for (int i = 0; i < all->n && i < MOST_TRIED; i++) {
        bool legal;
        NDP_TRY(try(of, &all->items[i], h, &legal));
        if (legal) {
            ndp_error_set(NDP_OK, "");
            *out = all->items[i];
            return NDP_OK;
        }
        if (i == 0)
            snprintf(why, sizeof why, "%s", ndp_error_message());
    }
    return NDP_FAIL(NDP_EINVAL, "%s, and no layout of at most %d ranks can go on with the run: %s", h->names, all->most,
                    why);
}

/* ---- what is said and set ---- */

/* Sets the sizes that differ; the number of ranks, which the job may have too, always. */
static void describe_change(const ndp_job *of, const smaller_layout *c, ndp_restart *r, ndp_str *text) {
    ndp_str_addf(text, "; the layout changes for %d rank%s instead of %d: ", c->ranks, c->ranks == 1 ? "" : "s",
                 of->world);
    snprintf(r->settings[r->n_settings++].text, sizeof r->settings[0].text, "train.ranks=%d", c->ranks);
    for (int axis = 0, n = 0; axis < NDP_SIZES; axis++) {
        const char *name = ndp_axis_name((ndp_axis)axis);
        bool differs = of->layout.size[axis] != c->layout.size[axis];
        if (differs)
            ndp_str_addf(text, "%s%s %d -> %d", n++ ? ", " : "", name, of->layout.size[axis], c->layout.size[axis]);
        if (differs || axis == NDP_DP_SHARD) /* which may be auto */
            snprintf(r->settings[r->n_settings++].text, sizeof r->settings[0].text, "parallelism.%s_size=%d", name,
                     c->layout.size[axis]);
    }
    ndp_str_addf(text, "; the global batch stays %d", of->batch.global_batch);
}

static ndp_status fail_slots(const ndp_job *j, const ndp_restart_opts *o, const ndp_spare_hosts *h) {
    char doubled[96] = "", fewer[64] = "";
    int room = ndp_spare_hosts_room(h);
    if (!o->oversubscribe)
        snprintf(doubled, sizeof doubled, ", start with --oversubscribe (two ranks a slot: %d)", 2 * room);
    if (!o->elastic)
        snprintf(fewer, sizeof fewer, ", or with --elastic (a layout of fewer ranks)");
    return NDP_FAIL(NDP_ECOMM,
                    "%s: %s has %d slots left%s for %d ranks. Add slots to it%s%s; --resume continues from the newest "
                    "checkpoint",
                    h->names, o->hostfile, h->slots, h->a_slot > 1 ? ", with two ranks each too few" : "", j->world,
                    doubled, fewer);
}

/* Chooses the ranks and their layout, and says of `text` what changes. */
static ndp_status choose(const ndp_job *j, const ndp_restart_opts *o, const ndp_spare_hosts *h, ndp_restart *r,
                         ndp_str *text) {
    int room = ndp_spare_hosts_room(h);
    r->ranks = j->world;
    if (room >= j->world)
        return NDP_OK;
    if (!o->elastic || room == 0)
        return fail_slots(j, o, h);
    fewer_ranks all = {.of = j, .most = room};
    smaller_layout c = {.ranks = 0};
    ndp_status st = find_nearest(j, h, &all, &c);
    if (st == NDP_OK) {
        describe_change(j, &c, r, text);
        r->ranks = c.ranks;
    }
    free(all.items);
    return st;
}

static ndp_status find(const ndp_job *j, const ndp_restart_opts *o, const ndp_spare_hosts *h, ndp_restart *r) {
    ndp_str text = {0}, moved = {0}, change = {0};
    ndp_status st = choose(j, o, h, r, &change);
    if (st == NDP_OK)
        st = ndp_spare_hosts_place(h, r->ranks, o->rank_hosts, &moved, &r->rank_hosts);
    if (st == NDP_OK)
        ndp_str_addf(&text, "%s%s%s%s", h->names, moved.data ? ": " : "", moved.data ? moved.data : "",
                     change.data ? change.data : "");
    text.failed |= moved.failed || change.failed;
    ndp_str_release(&moved);
    ndp_str_release(&change);
    r->text = st == NDP_OK ? ndp_str_detach(&text) : NULL;
    ndp_str_release(&text);
    return st == NDP_OK ? NDP_MEMORY(r->text, "for the hosts of a run") : st;
}

void ndp_restart_release(ndp_restart *r) {
    if (!r)
        return;
    ndp_rank_hosts_free(r->rank_hosts);
    free(r->text);
    *r = (ndp_restart){0};
}

ndp_status ndp_restart_find(const ndp_config *c, const ndp_restart_opts *o, ndp_restart *out) {
    NDP_NOT_NULL(c, o, out);
    NDP_CHECK(o->hostfile, "ranks start on other hosts only with a hostfile");
    if (o->n_lost)
        NDP_NOT_NULL(o->lost);
    ndp_job j;
    ndp_restart r = {0};
    NDP_TRY(ndp_job_init_planned(c, 0, false, &j));
    ndp_spare_seek seek = {o->hostfile, j.world, o->lost, o->n_lost, o->oversubscribe};
    ndp_spare_hosts h = {0};
    ndp_status st = ndp_spare_hosts_find(&seek, &h);
    r.ranks = j.world;
    if (st == NDP_OK && h.n_lost > 0)
        st = find(&j, o, &h, &r);
    ndp_spare_hosts_release(&h);
    ndp_job_release(&j);
    if (st == NDP_OK)
        *out = r;
    else
        ndp_restart_release(&r);
    return st;
}
