/* What a rank sends in a step, as lines of text and as JSON. Communications that differ only in their unit or buffer
 * are one line, with a count: a model of 126 layers has as many lines as one of two. Bytes are those that leave the
 * rank in a whole step, repeated ranges included. */
#include "plan/traffic.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

static const char *graph_of(const ndp_program *p, const ndp_comm_event *e) {
    return e->call_index == NDP_NONE ? ""
                                     : p->opts.units[p->opts.model->units[p->instrs[e->instr].unit].graph].graph->name;
}

static bool are_alike(const ndp_traffic_line *a, const ndp_comm_event *e, const char *graph) {
    const ndp_comm_event *f = &a->first;
    return f->call->op == e->call->op && f->call->channel == e->call->channel && f->bytes == e->bytes &&
           f->call->in_place == e->call->in_place && f->call->attr.peer == e->call->attr.peer &&
           strcmp(a->graph, graph) == 0 && (!*graph || strcmp(f->call->what, e->call->what) == 0);
}

static ndp_status add_event(ndp_traffic *t, const ndp_comm_event *e) {
    const ndp_program *p = t->program;
    const char *graph = graph_of(p, e);
    int i = 0;
    while (i < t->n && !are_alike(&t->lines[i], e, graph))
        i++;
    NDP_TRY(ndp_array_reserve(&t->lines, &t->capacity, i + 1, sizeof *t->lines));
    if (i == t->n)
        t->lines[t->n++] = (ndp_traffic_line){.first = *e, .graph = graph};
    ndp_traffic_line *line = &t->lines[i];
    int64_t times = ndp_repeats_times(&p->repeats, e->instr);
    line->others |= strcmp(line->first.call->what, e->call->what) != 0 ||
                    (ndp_comm_event_is_message(e) && (times > 1 || line->first.micro_batch != e->micro_batch));
    line->times += times;
    return NDP_OK;
}

ndp_status ndp_traffic_read(const ndp_program *p, ndp_traffic *out) {
    ndp_traffic t = {.program = p};
    ndp_comm_event e;
    ndp_status st = NDP_OK;
    ndp_program_traffic(p, t.sent);
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_ITERATIONS(1));
         st == NDP_OK && ndp_program_comm_event(p, &c, &e);)
        st = e.begin ? add_event(&t, &e) : NDP_OK;
    if (st == NDP_OK)
        *out = t;
    else
        ndp_traffic_release(&t);
    return st;
}

void ndp_traffic_release(ndp_traffic *t) { free(t->lines); }

/* ---- links ---- */

static double moved(const ndp_traffic *t, const ndp_traffic_line *line) {
    return ndp_comm_event_kind(&line->first) == NDP_RECV ? 0 : ndp_comm_event_moved(t->program, &line->first);
}

/* Where a line goes, and how long it takes a step. *links NULL: nowhere. */
static ndp_status use_of(const ndp_traffic *t, const ndp_traffic_line *line, ndp_cluster_plan *p,
                         const ndp_group_links **links, double *seconds) {
    double bytes = moved(t, line);
    *links = NULL;
    *seconds = 0;
    if (!p || bytes == 0)
        return NDP_OK;
    ndp_send_pattern pattern = ndp_cluster_plan_pattern(p, t->program, &line->first);
    NDP_TRY(ndp_cluster_plan_links(p, ndp_comm_event_group(&line->first), pattern, links));
    if ((*links)->n == 0)
        *links = NULL;
    else
        *seconds = (double)line->times * ndp_cluster_plan_seconds(p, *links, bytes);
    return NDP_OK;
}

/* "1 to 2" */
static void add_per_node(const ndp_group_links *l, ndp_str *out) {
    if (l->least == l->most)
        ndp_str_addf(out, "%d", l->most);
    else
        ndp_str_addf(out, "%d to %d", l->least, l->most);
}

/* "; infiniband, 2 a node, 25 GB/s each: 0.31 s" */
static void add_use(const ndp_cluster_plan *p, const ndp_group_links *l, double seconds, ndp_str *out) {
    char name[64], rate[NDP_RATE_TEXT];
    ndp_str_addf(out, "; %s, ", ndp_cluster_level_name(&p->cluster, l->of[l->slowest].level, name, sizeof name));
    add_per_node(l, out);
    ndp_str_addf(out, " a node, %s each: %.3g s", ndp_rate_text(l->rate, rate), seconds);
}

/* ---- text ---- */

static ndp_status print_line(const ndp_traffic *t, const ndp_traffic_line *line, ndp_cluster_plan *p, ndp_str *out) {
    char bytes[16];
    double seconds;
    const ndp_group_links *links;
    const ndp_comm_event *e = &line->first;
    NDP_TRY(use_of(t, line, p, &links, &seconds));
    ndp_str_addf(out, "    %6lld x %10s  %-14s %s%s%s", (long long)line->times,
                 ndp_human_bytes((double)e->bytes, bytes), e->call->op->name, line->graph, *line->graph ? ": " : "",
                 e->call->what);
    if (ndp_comm_event_is_message(e))
        ndp_str_addf(out, ", micro-batch %d", e->micro_batch);
    ndp_str_addf(out, "%s%s", line->others ? ", ..." : "", e->call->in_place ? "; in place" : "");
    if (links)
        add_use(p, links, seconds, out);
    ndp_str_add(out, "\n");
    return NDP_OK;
}

/* True if a communication is over groups of this kind. */
static bool is_used(const ndp_traffic *t, int group) {
    for (int i = 0; i < t->n; i++)
        if ((int)ndp_comm_event_group(&t->lines[i].first) == group)
            return true;
    return false;
}

/* Seconds of all lines of a kind. */
static ndp_status group_seconds(const ndp_traffic *t, int group, ndp_cluster_plan *p, double *out) {
    const ndp_group_links *links;
    *out = 0;
    for (int i = 0; i < t->n; i++) {
        double seconds = 0;
        if ((int)ndp_comm_event_group(&t->lines[i].first) == group)
            NDP_TRY(use_of(t, &t->lines[i], p, &links, &seconds));
        *out += seconds;
    }
    return NDP_OK;
}

ndp_status ndp_traffic_print(const ndp_traffic *t, ndp_cluster_plan *links, ndp_str *out) {
    char bytes[16];
    for (int g = 0; g < NDP_GROUPS; g++) {
        double seconds;
        int ranks = ndp_mesh_group(&t->program->opts.step.mesh, (ndp_group_kind)g).count;
        if (!is_used(t, g))
            continue;
        NDP_TRY(group_seconds(t, g, links, &seconds));
        ndp_str_addf(out, "  %-16s %10s  over %d ranks", ndp_group_name((ndp_group_kind)g),
                     ndp_human_bytes(t->sent[g], bytes), ranks);
        if (links)
            ndp_str_addf(out, ", %.3g s", seconds);
        ndp_str_add(out, "\n");
        for (int i = 0; i < t->n; i++)
            if ((int)ndp_comm_event_group(&t->lines[i].first) == g)
                NDP_TRY(print_line(t, &t->lines[i], links, out));
    }
    return NDP_OK;
}

/* ---- JSON ---- */

static void put_use(const ndp_cluster_plan *p, const ndp_group_links *l, double seconds, ndp_json_out *out) {
    char name[64];
    ndp_json_put_text(out, "link",
                      l ? ndp_cluster_level_name(&p->cluster, l->of[l->slowest].level, name, sizeof name) : NULL);
    ndp_json_put_int(out, "least_ranks_a_node", l ? l->least : 0);
    ndp_json_put_int(out, "most_ranks_a_node", l ? l->most : 0);
    ndp_json_put_number(out, "rate", l ? l->rate : 0);
    ndp_json_put_number(out, "latency", l ? l->latency : 0);
    ndp_json_put_number(out, "seconds", seconds);
}

static ndp_status put_line(const ndp_traffic *t, const ndp_traffic_line *line, ndp_cluster_plan *p, ndp_json_out *out) {
    const ndp_comm_event *e = &line->first;
    double seconds;
    const ndp_group_links *links;
    NDP_TRY(use_of(t, line, p, &links, &seconds));
    ndp_json_open(out, NULL, '{');
    ndp_json_put_int(out, "times", line->times);
    ndp_json_put_int(out, "bytes", (int64_t)e->bytes);
    ndp_json_put_text(out, "operation", e->call->op->name);
    ndp_json_put_text(out, "unit", *line->graph ? line->graph : NULL);
    ndp_json_put_text(out, "what", e->call->what);
    ndp_json_put_bool(out, "others", line->others);
    ndp_json_put_bool(out, "in_place", e->call->in_place);
    if (p)
        put_use(p, links, seconds, out);
    ndp_json_close(out, '}');
    return NDP_OK;
}

ndp_status ndp_traffic_put(const ndp_traffic *t, ndp_cluster_plan *links, const char *key, ndp_json_out *out) {
    ndp_json_open(out, key, '[');
    for (int g = 0; g < NDP_GROUPS; g++) {
        double seconds;
        if (!is_used(t, g))
            continue;
        NDP_TRY(group_seconds(t, g, links, &seconds));
        ndp_json_open(out, NULL, '{');
        ndp_json_put_text(out, "group", ndp_group_name((ndp_group_kind)g));
        ndp_json_put_int(out, "ranks", ndp_mesh_group(&t->program->opts.step.mesh, (ndp_group_kind)g).count);
        ndp_json_put_number(out, "bytes", t->sent[g]);
        if (links)
            ndp_json_put_number(out, "seconds", seconds);
        ndp_json_open(out, "calls", '[');
        for (int i = 0; i < t->n; i++)
            if ((int)ndp_comm_event_group(&t->lines[i].first) == g)
                NDP_TRY(put_line(t, &t->lines[i], links, out));
        ndp_json_close(out, ']');
        ndp_json_close(out, '}');
    }
    ndp_json_close(out, ']');
    return NDP_OK;
}
