/* Executing a list: each lane goes on until it must wait for others. */
#include "placement/unit_trial.h"

#include <string.h>

/* A lane while a phase runs. */
typedef struct phase_lane {
    ndp_walk walk;
    bool waits;       /* its call is a wait that was not over */
    ndp_text where;   /* "rank 1 (tp 1): unit layers.0, forward" */
    int64_t *numbers; /* by call: of a begin, its number on its channel */
} phase_lane;

typedef struct phase_run {
    ndp_unit_trial *run;
    ndp_phase phase;
    ndp_meetings meetings;
    phase_lane *lanes; /* by lane - first */
} phase_run;

static phase_lane *lane_of(const phase_run *p, int lane) { return &p->lanes[lane - p->run->first]; }

static const ndp_list *list_of(const phase_run *p, int lane) {
    return &p->run->lanes->items[lane].program->opts.units[p->run->graph].lists[p->phase];
}

static ndp_matrix matrix_of(const ndp_operand *o) {
    size_t size = ndp_dtype_size(o->view.dtype);
    return (ndp_matrix){o->offset, (size_t)o->view.ld * size, size, o->view.rows, o->view.cols};
}

/* ---- a call ---- */

/* Reads the operands; results are empty. */
static ndp_status begin_rule(const phase_run *p, int lane, int index, const ndp_call *c, ndp_rule *r) {
    ndp_unit_trial *run = p->run;
    const ndp_lane *l = &run->lanes->items[lane];
    ndp_unit_memory *m = &run->memory[lane - run->first];
    *r = (ndp_rule){.uses = &run->uses,
                    .g = run->uses.graph,
                    .of = c->of,
                    .c = c,
                    .lane = l,
                    .buffers = l->program->opts.model->units[run->unit].buffers,
                    .sets = &run->sets,
                    .arena = &run->arena,
                    .index = index,
                    .where = lane_of(p, lane)->where.s};
    if (c->of < 0 || c->of >= r->g->nodes[NDP_NODES_FORWARD].n)
        return ndp_refuse(r, "it names no node of the whole graph");
    r->n = &r->g->nodes[NDP_NODES_FORWARD].items[c->of];
    for (int k = 0; k < c->n_in; k++) {
        if (c->in[k].base == NDP_NONE)
            continue;
        ndp_matrix x = matrix_of(&c->in[k]);
        r->in[k] = ndp_content_of(r->arena, x.rows, x.cols);
        bool whole;
        NDP_TRY(ndp_tile_map_read(&m->bases[c->in[k].base], &x, &r->in[k]));
        NDP_TRY(ndp_unfold(&run->sets, &r->in[k], &whole));
        if (!whole)
            return ndp_refuse(r, "operand %d has some of the rows that come in a round, or of several rounds", k);
    }
    for (int k = 0; k < c->n_out; k++)
        r->out[k] = ndp_content_of(r->arena, c->out[k].view.rows, c->out[k].view.cols);
    return NDP_OK;
}

/* Adds result k, a gradient, to what the list has written of it. *old: nothing; what it adds to is from before. */
static ndp_status add_to_gradient(ndp_rule *r, const ndp_content *have, int k, bool *old) {
    *old = have->n == 0;
    if (*old)
        return NDP_OK;
    if (!ndp_content_full(have))
        return ndp_refuse(r, "it adds to a gradient of which this list has written a part");
    ndp_content sum = ndp_content_of(r->arena, have->rows, have->cols);
    NDP_TRY(ndp_sum_contents(r, have, &r->out[k], &sum));
    r->out[k] = sum;
    return NDP_OK;
}

/* The program's mask makes `=` of a call with a bit `+=`, so there may be one such call. */
static ndp_status write_gradient(ndp_rule *r, ndp_unit_memory *m, int k) {
    const ndp_operand *o = &r->c->out[k];
    int slot = o->base - NDP_BASE_PGRAD;
    ndp_matrix x = matrix_of(o);
    bool old = false;
    ndp_content have = ndp_content_of(r->arena, x.rows, x.cols);
    NDP_TRY(ndp_tile_map_read(&m->bases[o->base], &x, &have));
    if (!r->c->attr.accumulate && r->c->pgrad != NDP_NONE && have.n > 0)
        return ndp_refuse(r, "it writes a gradient that the list has written, and adds to it in later micro-batches");
    if (r->c->attr.accumulate)
        NDP_TRY(add_to_gradient(r, &have, k, &old));
    for (int i = 0; i < r->out[k].n; i++) {
        const ndp_tile *t = &r->out[k].tiles[i];
        if (t->what.kind != NDP_THING_PGRADIENT || t->what.id / 64 != slot)
            return ndp_refuse(r, "it writes something else to where gradients of slot %d are", slot);
        ndp_first_write *w = &m->writes[slot][t->what.id % 64];
        if (!r->c->attr.accumulate || old)
            *w = (ndp_first_write){true, old, r->c->pgrad};
    }
    return ndp_tile_map_write(&m->bases[o->base], &x, &r->out[k]);
}

static size_t end_of(const ndp_operand *o) {
    return o->offset + (size_t)((o->view.rows - 1) * o->view.ld + o->view.cols) * ndp_dtype_size(o->view.dtype);
}

/* Columns of one matrix, none of them of both. */
static bool side_by_side(const ndp_operand *a, const ndp_operand *b) {
    int64_t size = (int64_t)ndp_dtype_size(a->view.dtype), ld = a->view.ld * size;
    bool alike = a->view.dtype == b->view.dtype && a->view.ld == b->view.ld && a->view.rows == b->view.rows;
    int64_t apart = (int64_t)b->offset - (int64_t)a->offset;
    return alike && apart > -ld && apart < ld && (apart >= a->view.cols * size || -apart >= b->view.cols * size);
}

/* A result lies apart from the operands. One in place is operand 0; where each row or element of a result is made of
 * the same ones of an operand, it may be that operand. */
static ndp_status expect_apart(const ndp_rule *r) {
    const ndp_call *c = r->c;
    if (c->op->in_place && !ndp_operands_same(&c->in[0], &c->out[0]))
        return ndp_refuse(r, "it works in place, and its result is elsewhere");
    for (int k = 0; k < c->n_out; k++)
        for (int i = 0; i < c->n_in; i++) {
            const ndp_operand *in = &c->in[i], *out = &c->out[k];
            bool meets = in->base != NDP_NONE && in->base == out->base && in->offset < end_of(out) &&
                         out->offset < end_of(in) && !side_by_side(in, out);
            bool one = ndp_operands_same(in, out) && (c->op->in_place || ndp_op_kinds[c->op->id] == NDP_KIND_ROWS);
            if (meets && !one)
                return ndp_refuse(r, "it writes result %d over operand %d", k, i);
        }
    return NDP_OK;
}

/* Memory that the kernel works in holds nothing afterwards. */
static ndp_status clear_scratch(const ndp_rule *r, ndp_unit_memory *m) {
    const ndp_call *c = r->c;
    ndp_op_call shapes = {.op = c->op, .attr = &c->attr, .exec = r->lane->program->opts.step.exec, .plan = c->plan[0]};
    if (c->kind != NDP_CALL_KERNEL || !c->kernel || !c->kernel->scratch || c->scratch == NDP_NONE)
        return NDP_OK;
    for (int k = 0; k < c->n_in; k++)
        shapes.in[k] = c->in[k].view;
    for (int k = 0; k < c->n_out; k++)
        shapes.out[k] = c->out[k].view;
    size_t bytes = c->kernel->scratch(&shapes);
    ndp_content nothing = {.arena = r->arena};
    ndp_matrix x = {c->scratch_offset, bytes, 1, 1, (int64_t)bytes};
    return bytes > 0 ? ndp_tile_map_write(&m->bases[c->scratch], &x, &nothing) : NDP_OK;
}

/* Ops that sum over rows into an input of the engine's. */
static bool sums(const ndp_call *c) { return c->op == &ndp_op_reduce_sum || c->op == &ndp_op_choice_loads; }

/* Only gradients of parameters, and sums of the engine's, are added to; other results of such a call are written. */
static bool may_add(const ndp_call *c) {
    bool may = sums(c);
    for (int k = 0; k < c->n_out; k++)
        may |= c->out[k].base >= NDP_BASE_PGRAD && c->out[k].base < NDP_BASE_DATA;
    return may;
}

/* Adds the result of a sum over rows to what the list makes of the input that it is. */
static ndp_status take_sum(const ndp_rule *r, ndp_unit_memory *m) {
    int input = r->c->out[0].base - NDP_BASE_DATA;
    const ndp_inputs *inputs = r->lane->program->opts.model->inputs;
    ndp_input_kind kind = input >= 0 && input < inputs->n ? inputs->items[input].kind : NDP_INPUT_TOKENS;
    bool loads = r->c->op == &ndp_op_choice_loads;
    ndp_sum_made *s = &m->sums[loads                           ? NDP_MADE_LOADS
                               : kind == NDP_INPUT_ROUTER_SUMS ? NDP_MADE_ROUTERS
                                                               : NDP_MADE_LOSS];
    if (loads ? kind != NDP_INPUT_LOADS : kind != NDP_INPUT_LOSS && kind != NDP_INPUT_ROUTER_SUMS)
        return ndp_refuse(r, "its result is no sum of the engine's");
    s->share = r->c->attr.accumulate ? ndp_share_add(s->share, r->out[0].tiles[0].share) : r->out[0].tiles[0].share;
    s->adds |= r->c->attr.accumulate;
    return NDP_OK;
}

/* Where rows of a group begin is no matrix of rows. */
static ndp_status fold_result(ndp_rule *r, int k) {
    bool alike;
    if (r->c->op == &ndp_op_route_order && k == 2)
        return NDP_OK;
    NDP_TRY(ndp_fold_rows(r->sets, &r->out[k], r->c->out[k].view.rows, &alike));
    return alike ? NDP_OK : ndp_refuse(r, "the rows of its result %d are not those of its set, or not alike", k);
}

/* The range of calls that the data repeat, which has the call; NDP_NONE: none has. */
static int counted_range(const ndp_list *list, int call) {
    for (int i = 0; i < list->repeats.n; i++) {
        const ndp_repeat *x = &list->repeats.items[i];
        if (x->counted && x->first <= call && call < x->first + x->n)
            return i;
    }
    return NDP_NONE;
}

/* Calls that use what later rounds move are repeated for each of them, and no others are. */
static ndp_status expect_repeated(const ndp_rule *r, const ndp_list *list) {
    int range = counted_range(list, r->index);
    bool later = r->c->op == &ndp_op_route_exchange && ndp_rule_has(r, 1);
    if (later && range != NDP_NONE && !ndp_operands_same(&r->c->in[1], &list->indices[range]))
        return ndp_refuse(r, "its round is not the number of the iteration");
    for (int k = 0; k < r->c->n_in; k++) {
        const ndp_row_set *set = ndp_row_set_find(r->sets, r->in[k].n > 0 ? r->in[k].tiles[0].among : 0);
        later |= set && set->later;
    }
    return later == (range != NDP_NONE) ? NDP_OK
           : later                      ? ndp_refuse(r, "it is of later rounds, and not repeated for each of them")
                                        : ndp_refuse(r, "it is repeated for each later round, and of none");
}

static ndp_status end_rule(const phase_run *p, int lane, ndp_rule *r) {
    ndp_unit_memory *m = &p->run->memory[lane - p->run->first];
    const ndp_call *c = r->c;
    NDP_TRY(expect_repeated(r, list_of(p, lane)));
    NDP_TRY(expect_apart(r));
    NDP_TRY(clear_scratch(r, m));
    if (c->attr.accumulate && !may_add(c))
        return ndp_refuse(r, "it adds to its result, which is not a gradient");
    for (int k = 0; k < c->n_out; k++) {
        int base = c->out[k].base;
        if (base == NDP_NONE)
            continue;
        ndp_content_join(&r->out[k]);
        NDP_TRY(fold_result(r, k));
        if (!ndp_content_full(&r->out[k]))
            return ndp_refuse(r, "no rule says what all of its result %d is", k);
        ndp_matrix x = matrix_of(&c->out[k]);
        if (base >= NDP_BASE_PGRAD && base < NDP_BASE_DATA) {
            NDP_TRY(write_gradient(r, m, k));
        } else if (sums(c)) {
            NDP_TRY(take_sum(r, m));
        } else {
            NDP_TRY(ndp_tile_map_write(&m->bases[base], &x, &r->out[k]));
        }
    }
    if (p->run->observer)
        p->run->observer(p->run->user, lane, p->phase, r);
    return NDP_OK;
}

static ndp_status run_kernel(const phase_run *p, int lane, int index, const ndp_call *c) {
    ndp_rule r;
    NDP_TRY(begin_rule(p, lane, index, c, &r));
    NDP_TRY(ndp_rule_judge(&r));
    return end_rule(p, lane, &r);
}

/* ---- collectives ---- */

static ndp_status begin(phase_run *p, int lane, int index, const ndp_call *c) {
    ndp_rule r;
    NDP_TRY(begin_rule(p, lane, index, c, &r));
    NDP_TRY(expect_repeated(&r, list_of(p, lane)));
    ndp_content *handed;
    NDP_TRY(NDP_NEW(&p->run->arena, 1, handed));
    *handed = r.in[0];
    return ndp_meet_begin(&p->meetings, lane, c->channel, handed, &lane_of(p, lane)->numbers[index]);
}

/* *done false: a member has not begun it. */
static ndp_status end(phase_run *p, int lane, int index, const ndp_call *c, bool *done) {
    const ndp_call *began = &list_of(p, lane)->calls[c->partner];
    const ndp_members *m = ndp_lane_members(p->run->lanes, lane, ndp_channel_group(began->channel));
    int64_t number = lane_of(p, lane)->numbers[c->partner];
    const ndp_content **handed;
    ndp_rule r;
    NDP_TRY(NDP_NEW(&p->run->arena, m->n, handed));
    for (int i = 0; i < m->n; i++) {
        handed[i] = ndp_meet_handed(&p->meetings, m->lanes[i], began->channel, number);
        if (!handed[i])
            return NDP_OK;
    }
    *done = true;
    NDP_TRY(begin_rule(p, lane, index, began, &r));
    if (began->attr.group != (int)ndp_channel_group(began->channel) || began->attr.ranks != m->ranks ||
        m->ranks != m->n)
        return ndp_refuse(&r, "it is over group %s of %d ranks; this rank's has %d",
                          ndp_group_name(ndp_channel_group(began->channel)), began->attr.ranks, m->n);
    NDP_TRY(ndp_rule_collective(&r, handed, m->n, m->me));
    return end_rule(p, lane, &r);
}

/* ---- the list ---- */

/* A range that begins here is repeated by a number that all ranks of a group have alike. The number of the iteration is
 * written. */
static ndp_status begin_range(const phase_run *p, int lane, const ndp_list *list, int at) {
    ndp_unit_trial *run = p->run;
    for (int i = 0; i < list->repeats.n; i++) {
        const ndp_operand *o = &list->counts[i];
        if (list->repeats.items[i].first != at || o->base == NDP_NONE)
            continue;
        ndp_matrix x = matrix_of(o);
        ndp_content c = ndp_content_of(&run->arena, x.rows, x.cols);
        NDP_TRY(ndp_tile_map_read(&run->memory[lane - run->first].bases[o->base], &x, &c));
        const ndp_row_set *set = c.n == 1 ? ndp_row_set_find(&run->sets, c.tiles[0].among) : NULL;
        if (!set || !set->counts || !ndp_content_full(&c))
            return NDP_FAIL(NDP_EBUG,
                            "placement: %s #%d: the calls from here on are repeated by a number that is not "
                            "that of later rounds",
                            lane_of(p, lane)->where.s, at);
        ndp_matrix index = matrix_of(&list->indices[i]);
        NDP_TRY(ndp_tile_map_write(&run->memory[lane - run->first].bases[list->indices[i].base], &index,
                                   &(ndp_content){.arena = &run->arena}));
    }
    return NDP_OK;
}

/* Runs a lane until it waits or ends. */
static ndp_status advance(void *user, int lane, bool *moved, bool *over) {
    phase_run *p = user;
    const ndp_list *list = list_of(p, lane);
    phase_lane *at = lane_of(p, lane);
    ndp_walk *w = &at->walk;
    while (at->waits || ndp_walk_next(&list->repeats, list->n, NDP_FIRST_ITERATIONS(1), w)) {
        const ndp_call *c = &list->calls[w->at];
        bool done = c->kind != NDP_CALL_WAIT;
        NDP_TRY(at->waits ? NDP_OK : begin_range(p, lane, list, w->at));
        NDP_TRY(c->kind == NDP_CALL_KERNEL  ? run_kernel(p, lane, w->at, c)
                : c->kind == NDP_CALL_BEGIN ? begin(p, lane, w->at, c)
                                            : end(p, lane, w->at, c, &done));
        at->waits = !done;
        if (!done)
            return NDP_OK;
        *moved = true;
    }
    *over = true;
    return NDP_OK;
}

static ndp_status phase_init(ndp_unit_trial *run, phase_run *p) {
    NDP_TRY(NDP_NEW(&run->arena, run->n, p->lanes));
    for (int i = 0; i < run->n; i++) {
        ndp_unit_memory *m = &run->memory[i];
        p->lanes[i] = (phase_lane){.walk = NDP_WALK_START, .where = ndp_trial_text(run, run->first + i)};
        ndp_text_add(&p->lanes[i].where, ", %s", ndp_phase_name(p->phase));
        NDP_TRY(NDP_NEW(&run->arena, list_of(p, run->first + i)->n, p->lanes[i].numbers));
        m->bases[NDP_BASE_WORK].n = 0;
        for (int s = 0; s < NDP_SLOTS; s++)
            m->bases[NDP_BASE_PGRAD + s].n = 0;
        memset(m->writes, 0, sizeof m->writes);
        memset(m->sums, 0, sizeof m->sums);
    }
    return ndp_meetings_init(run->lanes, NDP_CHANNELS, &run->arena, &p->meetings);
}

ndp_status ndp_unit_trial_phase(ndp_unit_trial *run, ndp_phase phase) {
    phase_run p = {.run = run, .phase = phase};
    int stuck;
    NDP_TRY(phase_init(run, &p));
    NDP_TRY(ndp_lanes_run(run->first, run->n, advance, &p, &stuck));
    return stuck == NDP_NONE ? NDP_OK
                             : NDP_FAIL(NDP_EBUG, "placement: unit %s, %s: the ranks wait for each other",
                                        run->uses.graph->name, ndp_phase_name(phase));
}
