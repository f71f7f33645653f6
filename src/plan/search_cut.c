/* What the units of a job cost on one rank of a cut over cp, sp and tp (search_bounds.h). */
#include "plan/search_bounds.h"

#include "parallel/apply.h"

#include <math.h>
#include <stdlib.h>

/* ---- a list ---- */

typedef struct list_user {
    const ndp_device_price *p;
    const ndp_mesh *mesh;
} list_user;

static double list_seconds(const void *user, const ndp_call *c) {
    const list_user *u = user;
    return c->kind == NDP_CALL_KERNEL ? ndp_device_kernel(u->p, true, c) : ndp_device_comm(u->p, u->mesh, c);
}

static void list_links(const void *user, const ndp_call *c, double busy[NDP_BUSY_LINKS]) {
    const list_user *u = user;
    ndp_priced_busy(u->p, u->mesh, c, busy);
}

/* A unit's list by itself, whose ranks all come to it at once with links that are free. */
static ndp_status list_alone(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_list *list, double *seconds) {
    const list_user u = {p, mesh};
    ndp_streams t = {0};
    ndp_lone_list l;
    ndp_status st = ndp_lone_list_make(list, &(ndp_lone_costs){list_seconds, list_links, &u, p->facts->beside}, &l);
    if (st == NDP_OK)
        ndp_lone_list_run(&l, 0, INFINITY, false, false, &t);
    ndp_lone_list_release(&l);
    *seconds = t.now;
    return st;
}

/* ---- units of a cut ---- */

typedef struct graph_cost {
    ndp_unit_cost cost, rated;
    double again, held, work, message;
    bool reduced;
} graph_cost;

static ndp_status cost_of_graph(const ndp_dry_run *d, const ndp_device_price *p, const ndp_mesh *mesh,
                                const ndp_graph *g, ndp_recompute recompute, graph_cost *out) {
    ndp_unit_program u;
    const ndp_lower_opts opts = {.exec = &d->exec, .selective = recompute == NDP_RECOMPUTE_SELECTIVE, .costs = true};
    NDP_TRY(ndp_lower(g, &opts, &u));
    bool again = recompute && ndp_recompute_pays(&u);
    double saved = (double)(u.saved_bytes + u.saved_input_bytes);
    out->again = 0;
    const struct {
        int list;
        double *seconds;
    } lists[] = {{again ? NDP_FORWARD_DROP : NDP_FORWARD, &out->cost.forward},
                 {NDP_BACKWARD_INPUT, &out->cost.input_gradient},
                 {NDP_BACKWARD_WEIGHT, &out->cost.weight_gradient},
                 {NDP_RECOMPUTE, &out->again}};
    ndp_status st = NDP_OK;
    for (int i = 0; i < NDP_COUNT(lists) - !again && st == NDP_OK; i++)
        st = list_alone(p, mesh, &u.lists[lists[i].list], lists[i].seconds);
    out->cost.input_gradient += out->again;
    const ndp_rates rates = NDP_RATES_INIT;
    const ndp_price rated = ndp_price_by_rates(&rates);
    out->rated = ndp_unit_price(&u, &rated, mesh, recompute);
    out->held = (double)u.output_bytes + (again ? (double)u.kept_bytes : saved);
    out->work = again ? saved - (double)u.kept_bytes : 0;
    out->message = (double)(u.grad_input_bytes < u.output_bytes ? u.grad_input_bytes : u.output_bytes);
    out->reduced = u.lists[NDP_BACKWARD_WEIGHT].n_pgrads > 0;
    ndp_unit_program_release(&u);
    return st;
}

static bool is_experts(const ndp_buffer *b) { return b->owners == NDP_GROUP_EXPERT_SHARD; }

/* Adds those of a unit; returns those of its largest buffer that shards slice. */
static double add_elements(const ndp_model *m, int unit, ndp_cut_cost *out) {
    double largest = 0;
    for (int k = 0; k < NDP_SLOTS; k++) {
        int buffer = m->units[unit].buffers[k];
        if (buffer == NDP_NONE || m->buffers[buffer].base)
            continue;
        double elements = (double)m->buffers[buffer].segments.elements;
        bool experts = is_experts(&m->buffers[buffer]);
        *(experts ? &out->unit_experts[unit] : &out->unit_trained[unit]) += elements;
        largest = experts ? largest : fmax(largest, elements);
    }
    return largest;
}

/* Of a model that is cut. */
static ndp_status cost_of_units(const ndp_dry_run *d, const ndp_device_price *p, const ndp_mesh *mesh,
                                const ndp_model *m, ndp_recompute recompute, ndp_cut_cost *out) {
    graph_cost of[NDP_MAX_GRAPHS];
    size_t n = (size_t)m->n_units;
    out->units = calloc(1, n * (2 * sizeof *out->units + 4 * sizeof(double) + sizeof(bool)));
    out->rated = out->units + n;
    out->again = (double *)(void *)(out->rated + n);
    out->unit_held = out->again + n;
    out->unit_trained = out->unit_held + n;
    out->unit_experts = out->unit_trained + n;
    out->reduced = (bool *)(out->unit_experts + n);
    out->n_units = m->n_units;
    NDP_CHECK_MEMORY(out->units, "for the costs of %d units", m->n_units);
    for (int g = 0; g < m->n_graphs; g++)
        NDP_TRY(cost_of_graph(d, p, mesh, &m->graphs[g], recompute, &of[g]));
    for (int i = 0; i < m->n_units; i++) {
        const graph_cost *g = &of[m->units[i].graph];
        out->units[i] = g->cost;
        out->rated[i] = g->rated;
        out->unit_held[i] = g->held;
        double buffer = add_elements(m, i, out);
        out->again[i] = g->again;
        out->held += g->held;
        out->reduced[i] = g->reduced;
        if (i > 0 && i < m->n_units - 1) {
            out->inner = i == 1 ? buffer : fmin(out->inner, buffer);
            out->inner_all += out->unit_trained[i];
            out->largest = fmax(out->largest, out->unit_trained[i]);
            out->message = i == 1 ? g->message : fmin(out->message, g->message);
        }
        out->work = fmax(out->work, g->work);
    }
    for (int i = 0; i < m->n_buffers; i++)
        *(is_experts(&m->buffers[i]) ? &out->experts : &out->trained) +=
            m->buffers[i].base ? 0 : (double)m->buffers[i].segments.elements;
    return NDP_OK;
}

/* The model of the job's micro-batch, which candidates share one after the other. */
static ndp_status take_whole(ndp_search_bounds *b, const ndp_job *j) {
    if (b->whole_rows == j->model.rows)
        return NDP_OK;
    if (b->whole_rows)
        ndp_model_release(&b->whole);
    b->whole_rows = 0;
    NDP_TRY(ndp_model_build(&j->spec, &j->model, &b->whole));
    b->whole_rows = j->model.rows;
    return NDP_OK;
}

/* Rows of the micro-batch of a cut: where a sequence has parts, whole samples, of which the first rank has the first
 * part; else as many as the rank, since positions are not looked at. */
static int64_t whole_rows(const ndp_search_bounds *b, const ndp_cut_cost *u) {
    int64_t length = b->d->job->config->data.sequence_length, parts = u->cp * u->sp;
    return parts == 1 ? u->rows : (u->rows * parts + length - 1) / length * length;
}

static ndp_status make_cost(ndp_search_bounds *b, ndp_cut_cost *out) {
    const ndp_stages one = {0};
    ndp_job job = *b->d->job;
    ndp_device_price own = *b->price;
    ndp_engine_opts e;
    ndp_model cut;
    job.layout = (ndp_layout)NDP_LAYOUT_ONE;
    job.layout.size[NDP_CP] = out->cp;
    job.layout.size[NDP_SP] = out->sp;
    job.layout.size[NDP_TP] = out->tp;
    job.layout.size[NDP_EP] = out->ep;
    job.layout.size[NDP_DP_SHARD] = job.world / (out->cp * out->sp * out->tp);
    job.model.rows = out->whole_rows = whole_rows(b, out);
    ndp_cluster_plan links = ndp_cluster_plan_of(b->price->links, &job, b->price->links->shared);
    own.links = &links, own.rows = job.model.rows;
    NDP_TRY(ndp_job_engine(&job, 0, &b->d->exec, &e));
    NDP_TRY(take_whole(b, &job));
    ndp_status st = ndp_parallel_apply(&b->whole, &e.step.mesh, &e.step.parallel, &one, &cut);
    if (st == NDP_OK) {
        st = cost_of_units(b->d, &own, &e.step.mesh, &cut, out->recompute, out);
        ndp_model_release(&cut);
    }
    for (int i = 0; i < out->n_units && st == NDP_OK; i++)
        out->seconds += out->units[i].forward + out->units[i].input_gradient + out->units[i].weight_gradient;
    return st;
}

ndp_cut_cost ndp_cut_of(const ndp_job *j, const ndp_plan_way *c) {
    const int *size = c->layout.size;
    return (ndp_cut_cost){.cp = size[NDP_CP],
                          .sp = size[NDP_SP],
                          .tp = size[NDP_TP],
                          .ep = size[NDP_EP],
                          .rows = j->config->data.sequence_length * c->micro_batch / (size[NDP_CP] * size[NDP_SP]),
                          .recompute = c->recompute};
}

static bool same_cut(const ndp_cut_cost *a, const ndp_cut_cost *b) {
    return a->cp == b->cp && a->sp == b->sp && a->tp == b->tp && a->ep == b->ep && a->rows == b->rows &&
           a->recompute == b->recompute;
}

ndp_status ndp_cut_cost_of(ndp_search_bounds *b, const ndp_cut_cost *cut, const ndp_cut_cost **out) {
    for (int i = b->n; i-- > 0;) /* those asked for last are asked for again */
        if (same_cut(b->costs[i], cut)) {
            *out = b->costs[i];
            return NDP_OK;
        }
    ndp_cut_cost *new = malloc(sizeof *new);
    ndp_status st = new ? ndp_array_reserve(&b->costs, &b->capacity, b->n + 1, sizeof *b->costs)
                        : NDP_FAIL(NDP_ENOMEM, "not enough memory for the costs of a cut");
    if (st == NDP_OK) {
        *new = *cut;
        st = make_cost(b, new);
        if (st != NDP_OK)
            free(new->units);
    }
    if (st != NDP_OK) {
        free(new);
        return st;
    }
    *out = b->costs[b->n++] = new;
    return NDP_OK;
}
