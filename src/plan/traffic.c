/* The communications of a program in groups, as text and as JSON (traffic.h). */
#include "plan/traffic.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* Communications that differ only in their unit or buffer. */
typedef struct traffic_line {
    ndp_comm_event first;
    const char *graph; /* of the unit, or "" */
    bool others;       /* buffers */
    int64_t times;
    const ndp_group_links *links; /* NULL: none, or no cluster */
    double seconds;               /* of all `times` */
} traffic_line;

typedef struct traffic {
    const ndp_program *program;
    ndp_cluster_plan *cluster; /* NULL: none */
    traffic_line *lines;
    int n;
    int64_t capacity;
} traffic;

static const char *graph_of(const ndp_program *p, const ndp_comm_event *e) {
    return e->call_index == NDP_NONE ? ""
                                     : p->opts.units[p->opts.model->units[p->instrs[e->instr].unit].graph].graph->name;
}

static bool are_alike(const traffic_line *a, const ndp_comm_event *e, const char *graph) {
    const ndp_comm_event *f = &a->first;
    return f->call->op == e->call->op && f->call->channel == e->call->channel && f->bytes == e->bytes &&
           f->call->in_place == e->call->in_place && f->call->attr.peer == e->call->attr.peer &&
           strcmp(a->graph, graph) == 0 && (!*graph || strcmp(f->call->what, e->call->what) == 0);
}

static ndp_status add_event(traffic *t, const ndp_comm_event *e) {
    const ndp_program *p = t->program;
    const char *graph = graph_of(p, e);
    int i = 0;
    while (i < t->n && !are_alike(&t->lines[i], e, graph))
        i++;
    NDP_TRY(ndp_array_reserve(&t->lines, &t->capacity, i + 1, sizeof *t->lines));
    if (i == t->n)
        t->lines[t->n++] = (traffic_line){.first = *e, .graph = graph};
    traffic_line *line = &t->lines[i];
    int64_t times = ndp_repeats_times(&p->repeats, e->instr);
    line->others |= strcmp(line->first.call->what, e->call->what) != 0 ||
                    (ndp_comm_event_is_message(e) && (times > 1 || line->first.micro_batch != e->micro_batch));
    line->times += times;
    return NDP_OK;
}

/* Where a line goes, and how long it takes a step. */
static ndp_status find_use(const traffic *t, traffic_line *line) {
    const ndp_comm_event *e = &line->first;
    double bytes = ndp_comm_event_kind(e) == NDP_RECV ? 0 : ndp_comm_event_moved(t->program, e);
    if (!t->cluster || bytes == 0)
        return NDP_OK;
    NDP_TRY(ndp_cluster_plan_call_links(t->cluster, &t->program->opts.step.mesh, e->call, &line->links));
    if (line->links->n == 0)
        line->links = NULL;
    else
        line->seconds =
            (double)line->times *
            ndp_cluster_plan_seconds(t->cluster, line->links, ndp_comm_event_kind(e),
                                     ndp_mesh_group(&t->program->opts.step.mesh, ndp_comm_event_group(e)).count, bytes);
    return NDP_OK;
}

static ndp_status read_program(traffic *t) {
    ndp_comm_event e;
    for (ndp_comm_event_cursor c = NDP_COMM_EVENTS(NDP_FIRST_USUAL); ndp_program_comm_event(t->program, &c, &e);)
        NDP_TRY(e.begin ? add_event(t, &e) : NDP_OK);
    for (int i = 0; i < t->n; i++)
        NDP_TRY(find_use(t, &t->lines[i]));
    return NDP_OK;
}

/* "; infiniband, 1 to 2 a node, 25 GB/s each: 0.31 s" */
static void add_use(const ndp_group_links *l, const char *name, double seconds, ndp_str *out) {
    char rate[NDP_RATE_TEXT];
    ndp_str_addf(out, "; %s, ", name);
    if (l->least < l->most)
        ndp_str_addf(out, "%d to ", l->least);
    ndp_str_addf(out, "%d a node, %s each: %.3g s", l->most, ndp_rate_text(l->rate, rate), seconds);
}

static void put_use(const ndp_group_links *l, const char *name, double seconds, ndp_json_out *json) {
    ndp_json_put_text(json, "link", name);
    ndp_json_put_int(json, "least_ranks_a_node", l ? l->least : 0);
    ndp_json_put_int(json, "most_ranks_a_node", l ? l->most : 0);
    ndp_json_put_number(json, "rate", l ? l->rate : 0);
    ndp_json_put_number(json, "latency", l ? l->latency : 0);
    ndp_json_put_number(json, "seconds", seconds);
}

static void write_line(const traffic *t, const traffic_line *line, ndp_str *out, ndp_json_out *json) {
    char bytes[16], text[64];
    const ndp_comm_event *e = &line->first;
    const ndp_group_links *l = line->links;
    const char *name =
        l ? ndp_cluster_level_name(&t->cluster->cluster, l->of[l->slowest].level, text, sizeof text) : NULL;
    ndp_str_addf(out, "    %6lld x %10s  %-14s %s%s%s", (long long)line->times,
                 ndp_human_bytes((double)e->bytes, bytes), e->call->op->name, line->graph, *line->graph ? ": " : "",
                 e->call->what);
    if (ndp_comm_event_is_message(e))
        ndp_str_addf(out, ", micro-batch %d", e->micro_batch);
    ndp_str_addf(out, "%s%s", line->others ? ", ..." : "", e->call->in_place ? "; in place" : "");
    if (l)
        add_use(l, name, line->seconds, out);
    ndp_str_add(out, "\n");
    ndp_json_open(json, NULL, '{');
    ndp_json_put_int(json, "times", line->times);
    ndp_json_put_int(json, "bytes", (int64_t)e->bytes);
    ndp_json_put_text(json, "operation", e->call->op->name);
    ndp_json_put_text(json, "unit", *line->graph ? line->graph : NULL);
    ndp_json_put_text(json, "what", e->call->what);
    ndp_json_put_bool(json, "others", line->others);
    ndp_json_put_bool(json, "in_place", e->call->in_place);
    if (t->cluster)
        put_use(l, name, line->seconds, json);
    ndp_json_close(json, '}');
}

/* Prints all lines over groups of a kind; `sent`: the bytes of all of them. */
static void write_group(const traffic *t, ndp_group_kind kind, double sent, ndp_str *out, ndp_json_out *json) {
    char bytes[16];
    double seconds = 0;
    int ranks = ndp_mesh_group(&t->program->opts.step.mesh, kind).count, lines = 0;
    for (int i = 0; i < t->n; i++)
        if (ndp_comm_event_group(&t->lines[i].first) == kind) {
            seconds += t->lines[i].seconds;
            lines++;
        }
    if (!lines)
        return;
    ndp_str_addf(out, "  %-16s %10s  over %d ranks", ndp_group_name(kind), ndp_human_bytes(sent, bytes), ranks);
    if (t->cluster)
        ndp_str_addf(out, ", %.3g s", seconds);
    ndp_str_add(out, "\n");
    ndp_json_open(json, NULL, '{');
    ndp_json_put_text(json, "group", ndp_group_name(kind));
    ndp_json_put_int(json, "ranks", ranks);
    ndp_json_put_number(json, "bytes", sent);
    if (t->cluster)
        ndp_json_put_number(json, "seconds", seconds);
    ndp_json_open(json, "calls", '[');
    for (int i = 0; i < t->n; i++)
        if (ndp_comm_event_group(&t->lines[i].first) == kind)
            write_line(t, &t->lines[i], out, json);
    ndp_json_close(json, ']');
    ndp_json_close(json, '}');
}

ndp_status ndp_traffic_write(const ndp_program *p, ndp_cluster_plan *links, const char *key, ndp_str *out,
                             ndp_json_out *json) {
    traffic t = {.program = p, .cluster = links};
    double sent[NDP_GROUPS];
    ndp_status st = read_program(&t);
    ndp_program_traffic(p, sent);
    ndp_json_open(json, key, '[');
    for (int kind = 0; kind < NDP_GROUPS && st == NDP_OK; kind++)
        write_group(&t, (ndp_group_kind)kind, sent[kind], out, json);
    ndp_json_close(json, ']');
    free(t.lines);
    return st;
}
