/* The ways in which a job is planned: as it is, on a cluster, in several layouts, or in the fastest ones
 * (search_machines.c). */
#include "data/corpus/files.h"
#include "plan/anchor.h"
#include "plan/micro_batch.h"
#include "plan/plan_report.h"

#include <stdlib.h>

/* ---- ways of a job: on a cluster, in several layouts ---- */

ndp_status ndp_plan_take_cluster(const ndp_plan_opts *o, ndp_config *c) {
    ndp_cluster cluster;
    NDP_CHECK(!o->ranks_per_node, "--ranks-per-node and --cluster both say how many ranks a node has: leave out one of "
                                  "the two");
    if (o->as_run) /* which has its own device and ranks */
        return NDP_OK;
    NDP_TRY(ndp_cluster_plan_find(o, &cluster));
    bool gpus = !ndp_cluster_of_hosts(&cluster) && !ndp_config_given(c, "train", "device");
    bool all = o->search || (c->train.ranks == 0 && (o->n_layouts || c->parallelism.size[NDP_DP_SHARD] == 0));
    int devices = ndp_cluster_devices(&cluster);
    ndp_cluster_release(&cluster);
    if (all)
        c->train.ranks = devices;
    return gpus ? ndp_config_set(c, "train.device=cuda") : NDP_OK;
}

static ndp_status take_layout(const char *text, ndp_config *c) {
    ndp_layout layout;
    NDP_TRY(ndp_layout_parse_open(text, &layout));
    for (int i = 0; i < NDP_SIZES; i++)
        NDP_TRY(layout.size[i]
                    ? ndp_config_setf(c, "parallelism.%s_size=%d", ndp_axis_name((ndp_axis)i), layout.size[i])
                    : ndp_config_setf(c, "parallelism.%s_size=auto", ndp_axis_name((ndp_axis)i)));
    return NDP_OK;
}

static ndp_status plan_config(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_output *out) {
    ndp_job j;
    ndp_config own = {0}; /* with the micro-batch that is chosen */
    NDP_TRY(o->data ? ndp_job_init(c, 0, &j) : ndp_job_init_planned(c, 0, o->cluster, &j));
    ndp_status st = ndp_plan_choose_rows(&j, o, &own);
    if (st == NDP_OK)
        st = ndp_plan_report_job(&j, o, out);
    ndp_job_release(&j);
    ndp_config_release(&own);
    return st;
}

/* The job itself, or as a cluster and the layout say. */
static ndp_status plan_way(const ndp_config *c, const ndp_plan_opts *o, const char *layout, ndp_plan_output *out) {
    ndp_config way;
    if (!o->cluster && !layout)
        return plan_config(c, o, out);
    NDP_TRY(ndp_config_copy(c, &way));
    ndp_status st = o->cluster ? ndp_plan_take_cluster(o, &way) : NDP_OK;
    if (st == NDP_OK && layout)
        st = take_layout(layout, &way);
    if (st == NDP_OK)
        st = plan_config(&way, o, out);
    ndp_config_release(&way);
    return st;
}

/* Plans one way with members of its own; those of the first stay. */
static ndp_status plan_one(const ndp_config *c, const ndp_plan_opts *o, const char *layout, ndp_json_out *first,
                           ndp_plan_output *out) {
    out->report.json = (ndp_json_out){0};
    ndp_json_open(&out->report.json, NULL, '{');
    ndp_status st = plan_way(c, o, layout, out);
    if (st == NDP_OK && !first->text.data)
        *first = out->report.json;
    else
        ndp_str_release(&out->report.json.text);
    return st;
}

/* The text has a block of each layout. */
static ndp_status plan_layouts(const ndp_config *c, const ndp_plan_opts *o, ndp_json_out *first, ndp_plan_output *out) {
    ndp_status st = NDP_OK;
    for (int i = 0; i < (o->n_layouts ? o->n_layouts : 1) && st == NDP_OK; i++) {
        const char *layout = o->n_layouts ? o->layouts[i] : NULL;
        if (o->n_layouts > 1)
            ndp_str_addf(&out->report.text, "%slayout %s\n", i ? "\n" : "", layout);
        st = plan_one(c, o, layout, first, out);
    }
    return st;
}

/* A block for each number of nodes. */
static ndp_status plan_nodes(const ndp_config *c, const ndp_plan_opts *o, ndp_json_out *first, ndp_plan_output *out) {
    ndp_plan_opts one = *o;
    one.n_nodes = 1;
    for (int i = 0; i < o->n_nodes; i++) {
        one.nodes = &o->nodes[i];
        ndp_str_addf(&out->report.text, "%s%d node%s\n", i ? "\n" : "", o->nodes[i], o->nodes[i] == 1 ? "" : "s");
        NDP_TRY(plan_layouts(c, &one, first, out));
    }
    return NDP_OK;
}

static ndp_status plan_all(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_output *out) {
    ndp_json_out first = {0};
    if (o->search) {
        ndp_json_open(&out->report.json, NULL, '{');
        return ndp_plan_search(c, o, out);
    }
    ndp_status st = (o->n_nodes ? plan_nodes : plan_layouts)(c, o, &first, out);
    out->report.json = first;
    return st;
}

/* ---- data that are not there ---- */

/* NDP_EINVAL: no file has the name of the entry. */
static ndp_status find_entry(const ndp_config *c, const char *name, const char *own) {
    ndp_config with;
    ndp_file_list files = {0};
    ndp_slice slice;
    char *split;
    NDP_TRY(ndp_config_entry(c, own, &with, &split));
    ndp_status st = ndp_file_list_add(&files, name, split, &slice);
    for (int64_t i = 0; i < files.paths.n && st == NDP_OK; i++)
        if (!ndp_path_exists(files.paths.items[i]))
            st = NDP_FAIL(NDP_EINVAL, "there is no file '%s'", files.paths.items[i]);
    ndp_strings_release(&files.paths);
    ndp_config_release(&with);
    free(split);
    return st;
}

/* The first entry that a run would not find, in words; nothing: it finds all, or needs none. */
static ndp_status find_missing(const ndp_config *c, ndp_str *why) {
    const ndp_strings *files[] = {&c->data.files, &c->data.validation_files};
    const ndp_strings *own[] = {&c->data.files_own, &c->data.validation_own};
    ndp_status st = NDP_OK;
    if (c->data.files.n == 0 && !c->train.own_batches)
        ndp_str_add(why, "data.files is empty");
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < files[k]->n && st == NDP_OK; i++)
            st = find_entry(c, files[k]->items[i], ndp_config_own(own[k], i));
    if (st == NDP_ENOMEM || st == NDP_EBUG)
        return st;
    if (st != NDP_OK)
        ndp_str_add(why, ndp_error_message());
    ndp_error_set(NDP_OK, "");
    return NDP_OK;
}

/* A plan needs no data; that a run would be refused is said. */
static ndp_status note_data(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_report *out) {
    ndp_str why = {0};
    ndp_status st = o->data ? NDP_OK : find_missing(c, &why);
    if (why.length && !o->program && !o->placements)
        ndp_str_addf(&out->text, "planned without data; train refuses the job: %s\n", why.data);
    ndp_json_put_text(&out->json, "missing_data", why.length ? why.data : NULL);
    ndp_str_release(&why);
    return st;
}

/* ---- a measured run ---- */

/* What all times are scaled by, as a line and a member of the whole. */
static ndp_status take_anchor(const ndp_config *c, const ndp_plan_opts *o, ndp_plan_output *out, ndp_json_out *json) {
    ndp_config way;
    ndp_plan_anchor a;
    NDP_TRY(ndp_config_copy(c, &way));
    ndp_status st = ndp_plan_take_cluster(o, &way);
    if (st == NDP_OK)
        st = ndp_plan_anchor_read(&way, o, &a);
    ndp_config_release(&way);
    NDP_TRY(st);
    out->scale = a.measured / a.planned;
    ndp_str_addf(&out->report.text, "anchored: %s measured %.4g s a step, planned %.4g: times are scaled by %.4g\n",
                 o->anchor, a.measured, a.planned, out->scale);
    ndp_str_addf(&out->report.text, *a.note ? "note: %s\n\n" : "\n%s", a.note);
    json->more = true;
    ndp_json_open(json, "anchor", '{');
    ndp_json_put_text(json, "run", o->anchor);
    ndp_json_put_number(json, "measured_seconds", a.measured);
    ndp_json_put_number(json, "planned_seconds", a.planned);
    ndp_json_put_number(json, "scale", out->scale);
    ndp_json_put_text(json, "note", *a.note ? a.note : NULL);
    ndp_json_close(json, '}');
    return NDP_OK;
}

static void put_results(const ndp_plan_opts *o, const ndp_json_out *anchor, ndp_plan_output *out) {
    ndp_json_put_int(&out->report.json, "version", 1); /* of the members of a cluster */
    if (o->within > 0)
        ndp_json_put_number(&out->report.json, "within_seconds", o->within);
    ndp_str_add(&out->report.json.text, anchor->text.data ? anchor->text.data : "");
    ndp_json_put_int(&out->report.json, "considered", out->considered ? out->considered : out->n);
    ndp_json_put_int(&out->report.json, "priced", out->considered ? out->priced : out->n);
    ndp_json_open(&out->report.json, "rejected", '{');
    ndp_json_put_int(&out->report.json, "memory", out->by_memory);
    ndp_json_put_int(&out->report.json, "rule", out->by_rule);
    ndp_json_put_int(&out->report.json, "bound", out->by_bound);
    ndp_json_close(&out->report.json, '}');
    ndp_json_open(&out->report.json, "results", '[');
    ndp_str_add(&out->report.json.text, out->results.text.data ? out->results.text.data : "");
    ndp_json_close(&out->report.json, ']');
}

ndp_status ndp_plan(const ndp_config *c, const ndp_plan_opts *o, char **text) {
    NDP_NOT_NULL(c, o, text);
    ndp_plan_output out = {.scale = 1};
    ndp_json_out anchor = {0};
    NDP_CHECK(!o->json || (!o->program && !o->placements), "a program and placements are printed as text, not as JSON");
    NDP_CHECK(!o->search || (o->cluster && !o->n_layouts && !o->program && !o->data),
              "a search needs a cluster, and has no layouts, program or data of its own");
    NDP_CHECK(!(o->n_nodes || o->fewest_nodes) || o->cluster,
              "numbers of nodes are those of a cluster, which is not named");
    NDP_CHECK(!o->fewest_nodes || o->search,
              "the fewest nodes are those on which a search finds a layout: ask for one");
    NDP_CHECK(o->n_other_clusters == 0 || o->search,
              "%d clusters are compared by a search: ask for one, or give one "
              "cluster",
              o->n_other_clusters + 1);
    NDP_CHECK(o->within == 0 || (o->within > 0 && o->fewest_nodes),
              "a run is done within some time on the fewest nodes that do it: ask for these");
    NDP_CHECK(o->within == 0 || c->train.epochs == 0,
              "train.epochs: how long a run of epochs takes only its data say; set train.steps");
    NDP_CHECK(o->n_nodes <= 1 || (!o->apply && !o->timeline && !o->schedule && !o->layout_picture),
              "%d numbers of nodes would write the same file: give one", o->n_nodes);
    NDP_CHECK(o->n_layouts <= 1 || (!o->schedule && !o->timeline && !o->layout_picture),
              "%d layouts would write the same file: give one --layout", o->n_layouts);
    NDP_CHECK(!o->anchor || o->n_other_clusters == 0, "an anchor is a run on one machine: give one cluster");
    NDP_CHECK(!o->anchor || (o->cluster && !o->program && !o->timeline),
              "an anchor scales the times of a plan on a cluster, and neither programs nor a timeline have such times");
    ndp_status st = o->anchor ? take_anchor(c, o, &out, &anchor) : NDP_OK;
    if (st == NDP_OK)
        st = plan_all(c, o, &out);
    if (st == NDP_OK)
        st = note_data(c, o, &out.report);
    if (st == NDP_OK && o->cluster)
        put_results(o, &anchor, &out);
    ndp_str_release(&anchor.text);
    ndp_json_close(&out.report.json, '}');
    char *whole = st == NDP_OK ? ndp_str_detach(o->json ? &out.report.json.text : &out.report.text) : NULL;
    ndp_plan_report_release(&out.report);
    ndp_str_release(&out.results.text);
    ndp_str_release(&out.search.text);
    if (st != NDP_OK)
        return st;
    *text = whole;
    return NDP_MEMORY(whole, "for a text");
}
