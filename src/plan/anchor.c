/* The anchor of a plan (anchor.h): its job.yaml, the layout and device of run.json where there is one, since a job may
 * leave both open, and the seconds of metrics.jsonl. */
#include "plan/anchor.h"

#include "base/arena.h"
#include "measure/measure_device.h"
#include "measure/median.h"
#include "ops/devices.h"
#include "report/run.h"
#include "report/run_facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 5, FEWEST = 3 }; /* steps that are not counted; counted ones that a median needs */

/* ---- what was measured ---- */

typedef struct anchor_steps {
    double *seconds;
    int64_t n, capacity;
    ndp_status st;
} anchor_steps;

static void take_line(void *user, struct json_object *line) {
    anchor_steps *l = user;
    double seconds = ndp_line_number(line, "step_seconds");
    if (l->st != NDP_OK || !(seconds > 0) || !(ndp_line_number(line, "step") > WARM_UP))
        return;
    l->st = ndp_array_reserve(&l->seconds, &l->capacity, l->n + 1, sizeof *l->seconds);
    if (l->st == NDP_OK)
        l->seconds[l->n++] = seconds;
}

static ndp_status read_run(const char *folder, anchor_steps *steps, ndp_run_view *run) {
    *run = (ndp_run_view){.folder = strdup(folder), .metrics = {.on_line = take_line, .user = steps}};
    NDP_CHECK_MEMORY(run->folder, "for a path");
    NDP_TRY(ndp_run_read_on(run));
    return steps->st;
}

/* ---- whether it is of the same stack ---- */

typedef struct fact_comparison {
    const ndp_fact *of;
    bool found, same;
    char other[64]; /* its value, as far as a message shows it */
} fact_comparison;

static void find_fact(void *user, const ndp_fact *fact) {
    fact_comparison *s = user;
    if (strcmp(s->of->key, fact->key) != 0)
        return;
    s->found = true;
    s->same = s->of->value && fact->value && strcmp(s->of->value, fact->value) == 0;
    snprintf(s->other, sizeof s->other, "%s", fact->value ? fact->value : "");
}

typedef struct model_comparison {
    const ndp_model_spec *other;
    char difference[224]; /* the first; "": none */
} model_comparison;

/* Facts that change what a step computes. Others change values alone. */
static bool takes_time(const ndp_fact *f) {
    return f->shape || strcmp(f->key, "num_experts_per_tok") == 0 || strcmp(f->key, "sliding_window") == 0;
}

static void compare_fact(void *user, const ndp_fact *fact) {
    model_comparison *m = user;
    fact_comparison s = {.of = fact};
    if (m->difference[0] || !takes_time(fact))
        return;
    m->other->architecture->list(m->other->facts, find_fact, &s);
    if (!s.same)
        snprintf(m->difference, sizeof m->difference, "%s %.64s, and the job's %s", fact->key,
                 fact->value ? fact->value : "", s.found ? s.other : "has none");
}

/* The facts of the model of `c`, whatever its layout: of one rank. */
static ndp_status model_of(const ndp_config *c, ndp_config *one, ndp_job *j) {
    NDP_TRY(ndp_config_copy(c, one));
    one->train.ranks = 1, one->batch.micro_batch_size = 0;
    for (int axis = 0; axis < NDP_SIZES; axis++)
        one->parallelism.size[axis] = 1;
    ndp_status st = ndp_job_init_planned(one, 0, true, j);
    if (st != NDP_OK)
        ndp_config_release(one);
    return st;
}

static ndp_status same_model(const char *run, const ndp_job *anchor, const ndp_config *c) {
    ndp_config one;
    ndp_job j;
    NDP_TRY(model_of(c, &one, &j));
    model_comparison m = {.other = &j.spec};
    const ndp_model_spec *s = &anchor->spec;
    if (s->architecture != j.spec.architecture)
        snprintf(m.difference, sizeof m.difference, "architecture %s, and the job's %s", s->architecture->name,
                 j.spec.architecture->name);
    else
        s->architecture->list(s->facts, compare_fact, &m);
    ndp_job_release(&j);
    ndp_config_release(&one);
    NDP_CHECK(!m.difference[0], "the anchor %s is a run of another model: its %s; give a run of this model", run,
              m.difference);
    return NDP_OK;
}

static ndp_status same_key(const char *run, const ndp_config *anchor, const ndp_config *c, const char *key) {
    char *own = NULL, *other = NULL;
    ndp_status st = ndp_config_get(anchor, key, &own);
    if (st == NDP_OK)
        st = ndp_config_get(c, key, &other);
    if (st == NDP_OK && strcmp(own, other) != 0)
        st = NDP_FAIL(NDP_EINVAL, "the anchor %s has %s %s, and the job %s: give a run with the same", run, key, own,
                      other);
    free(own);
    free(other);
    return st;
}

/* Runs of before 0.2.0 have no name, and a cluster.yaml may state none. Cores count where all of a processor is known.
 */
static ndp_status same_name(const char *run, struct json_object *record, const ndp_cluster *k, ndp_plan_anchor *out) {
    const char *name = ndp_fact_word(record, "device_name"), *own = k->facts.full_name;
    double threads = ndp_fact_number(record, "threads");
    int cores = k->facts.multiprocessors;
    if (!*name)
        snprintf(out->note, sizeof out->note,
                 "the anchor does not say which device it ran on (device_name of run.json)");
    else if (!own)
        snprintf(out->note, sizeof out->note,
                 "the anchor ran on %s; whether those of the cluster are, it does not say (full_name)", name);
    if (!*name || !own)
        return NDP_OK;
    NDP_CHECK(
        strcmp(name, own) == 0,
        "the anchor %s was measured on '%s', and the cluster's devices, %s, are '%s': give a run on such devices, "
        "or state their full_name in cluster.yaml",
        run, name, k->device, own);
    NDP_CHECK(!ndp_cluster_of_hosts(k) || !(threads > 0) || cores == 0 || threads == cores,
              "the anchor %s was measured with %g cores a rank, and the cluster's ranks have %d: give a run with as "
              "many (train.threads), or measure the cluster with as many ranks a node (topology)",
              run, threads, cores);
    return NDP_OK;
}

/* The device of the run is that of the job's programs, of the kind that the cluster has, and of its name. */
static ndp_status same_device(const ndp_run_view *run, const ndp_config *anchor, const ndp_config *c,
                              const ndp_cluster *k, ndp_plan_anchor *out) {
    ndp_device d;
    const char *name = ndp_device_names[anchor->train.device];
    NDP_TRY(same_key(run->folder, anchor, c, "train.device"));
    NDP_TRY(ndp_device_find_plan(name, &d));
    NDP_CHECK(d.host_memory == ndp_cluster_of_hosts(k),
              "the anchor %s was measured on device %s, and the cluster's devices are %s: give a run on such devices",
              run->folder, name, k->device);
    return same_name(run->folder, run->record, k, out);
}

static ndp_status same_stack(const ndp_run_view *run, const ndp_config *anchor, const ndp_job *j, const ndp_config *c,
                             const ndp_cluster *k, ndp_plan_anchor *out) {
    static const char *const keys[] = {"precision.compute", "precision.reduce", "precision.tp_reduce", "train.matmul"};
    NDP_TRY(same_device(run, anchor, c, k, out));
    for (int i = 0; i < NDP_COUNT(keys); i++)
        NDP_TRY(same_key(run->folder, anchor, c, keys[i]));
    return same_model(run->folder, j, c);
}

/* ---- what the plan of it says ---- */

/* What the run had where its job leaves it open. */
static ndp_status take_record(const ndp_run_view *run, ndp_config *c) {
    struct json_object *layout = ndp_fact_member(run->record, "layout", json_type_object);
    const char *device = ndp_fact_word(run->record, "device");
    for (int axis = 0; axis < NDP_SIZES && layout; axis++) {
        double size = ndp_fact_number(layout, ndp_axis_name((ndp_axis)axis));
        if (size >= 1)
            NDP_TRY(ndp_config_setf(c, "parallelism.%s_size=%.0f", ndp_axis_name((ndp_axis)axis), size));
    }
    if (layout)
        c->train.ranks = 0; /* the product of the sizes */
    return *device ? ndp_config_setf(c, "train.device=%s", device) : NDP_OK;
}

/* As many nodes as the run needs, where the cluster has fewer. */
static ndp_status plan_run(const ndp_job *j, const ndp_plan_opts *o, const ndp_cluster *k, double *seconds) {
    ndp_step_time t;
    ndp_plan_opts own = {.rank = -1, .cluster = o->cluster, .cyclic = o->cyclic};
    int nodes = (j->world + k->devices_of[0] - 1) / k->devices_of[0];
    own.nodes = &nodes;
    own.n_nodes = j->world > ndp_cluster_devices(k);
    NDP_TRY(ndp_plan_step_time(j, &own, &t));
    *seconds = t.seconds;
    return NDP_OK;
}

static ndp_status compare(const ndp_run_view *run, anchor_steps *steps, ndp_config *anchor, const ndp_config *c,
                          const ndp_plan_opts *o, const ndp_cluster *k, ndp_plan_anchor *out) {
    char path[NDP_PATH];
    ndp_job j;
    NDP_TRY(ndp_path_join(path, run->folder, "job.yaml"));
    NDP_TRY(ndp_config_read(anchor, path));
    NDP_TRY(take_record(run, anchor));
    NDP_TRY(ndp_job_init_planned(anchor, 0, true, &j));
    ndp_status st = same_stack(run, anchor, &j, c, k, out);
    if (st == NDP_OK && steps->n < FEWEST)
        st = NDP_FAIL(NDP_EINVAL,
                      "the anchor %s has %lld measured step%s after step %d, and %d are needed: train for %d steps",
                      o->anchor, (long long)steps->n, steps->n == 1 ? "" : "s", WARM_UP, FEWEST, WARM_UP + FEWEST);
    if (st == NDP_OK) {
        out->measured = ndp_median(steps->seconds, (int)steps->n);
        st = plan_run(&j, o, k, &out->planned);
    }
    ndp_job_release(&j);
    return st;
}

ndp_status ndp_plan_anchor_read(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_anchor *out) {
    anchor_steps steps = {0};
    ndp_run_view run = {0};
    ndp_config *anchor = NULL;
    ndp_cluster k = {0};
    *out = (ndp_plan_anchor){0};
    ndp_status st = read_run(o->anchor, &steps, &run);
    if (st == NDP_OK)
        st = ndp_cluster_find(o->cluster, &k);
    if (st == NDP_OK)
        st = ndp_cluster_complete(&k);
    if (st == NDP_OK)
        st = ndp_config_create(&anchor);
    if (st == NDP_OK) {
        anchor->own = c->own;
        st = compare(&run, &steps, anchor, c, o, &k, out);
    }
    if (anchor)
        ndp_config_destroy(anchor);
    ndp_cluster_release(&k);
    ndp_run_release(&run);
    free(steps.seconds);
    return st;
}
