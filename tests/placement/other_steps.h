/* Step programs that are right, but that the passes do not write, made of emitted ones by hand. */
#ifndef TESTS_PLACEMENT_OTHER_STEPS_H
#define TESTS_PLACEMENT_OTHER_STEPS_H

#include "check.h"
#include "placement/edits.h"

/* ---- finding and making calls ---- */

/* The first begin at or after `from` of that op (of a buffer and within a stage, or of `what`); NDP_NONE: there is
 * none.
 */
static inline int find_begin(const ndp_program *p, const ndp_op *op, const char *what, int from) {
    for (int i = from; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        if (ndp_instr_is(in, NDP_CALL_BEGIN) && in->call.op == op &&
            (what ? strcmp(in->what, what) == 0
                  : in->buffer != NDP_NONE && !ndp_group_spans(ndp_channel_group(in->call.channel), NDP_PP)))
            return i;
    }
    return NDP_NONE;
}

static inline int find_kernel(const ndp_program *p, const ndp_op *op, int from) {
    int i = from;
    while (i < p->n && !(ndp_instr_is(&p->instrs[i], NDP_CALL_KERNEL) && p->instrs[i].call.op == op))
        i++;
    return i < p->n ? i : NDP_NONE;
}

/* Turns the begin and wait of a collective into those of `op` over a group. */
static inline void make_collective(const edited *e, int begin, const ndp_op *op, ndp_group_kind group, ndp_operand in,
                                   ndp_operand out) {
    edited_own_operands(e, begin);
    ndp_call *c = edited_call(e, begin), *wait = edited_call(e, c->partner);
    c->op = wait->op = op;
    c->attr.accumulate = wait->attr.accumulate = false;
    c->attr.group = wait->attr.group = c->channel = wait->channel = (int)group;
    c->attr.ranks = wait->attr.ranks = ndp_mesh_group(&e->program->opts.step.mesh, group).count;
    c->in[0] = in, c->out[0] = out;
}

/* A copy of the begin and wait at `begin`, right after that wait. Returns the place of the new begin. */
static inline int one_more(const edited *e, int begin) {
    int wait = edited_call(e, begin)->partner;
    edited_copy(e, begin, wait + 1, wait);
    edited_copy(e, wait, wait + 2, wait + 1);
    edited_pair(e, wait + 1, wait + 2);
    return wait + 1;
}

static inline void swap_entries(const edited *e, int a, int b) {
    if (e->list) {
        ndp_call x = e->list->calls[a];
        journal_keep(e->journal, &e->list->calls[a], sizeof x);
        journal_keep(e->journal, &e->list->calls[b], sizeof x);
        e->list->calls[a] = e->list->calls[b], e->list->calls[b] = x;
        return;
    }
    ndp_instr x = e->program->instrs[a];
    journal_keep(e->journal, &e->program->instrs[a], sizeof x);
    journal_keep(e->journal, &e->program->instrs[b], sizeof x);
    e->program->instrs[a] = e->program->instrs[b], e->program->instrs[b] = x;
}

/* Columns [first, first + cols) of a row. */
static inline ndp_operand part_of(ndp_operand x, int64_t first, int64_t cols) {
    x.offset += (size_t)first * ndp_dtype_size(x.view.dtype);
    x.view.rows = 1, x.view.cols = x.view.ld = cols;
    return x;
}

static inline ndp_operand in_block(int block, int64_t rows, int64_t cols, ndp_dtype type) {
    return ndp_operand_at((ndp_address){block, 0}, rows, cols, type);
}

static const ndp_operand absent = {.base = NDP_NONE, .value = NDP_NONE};

/* Makes entry `at` a copy of one operand to another. */
static inline void make_copy(const edited *e, int at, ndp_operand from, ndp_operand to) {
    ndp_operand in[] = {from, absent};
    assert_true(edited_kernel(e, at, &ndp_op_copy, &(ndp_op_attr){.type = to.view.dtype}, in, 2, &to, 1));
}

/* ---- the step ---- */

static inline bool sum_by_parts(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int i = find_begin(p, &ndp_op_all_reduce, NULL, 0);
    (void)how;
    if (i == NDP_NONE)
        return false;
    const ndp_call c = p->instrs[i].call;
    int64_t ranks = c.attr.ranks, n = c.in[0].view.cols;
    if (n % ranks != 0)
        return false;
    ndp_operand part = in_block(edited_block(&e, (size_t)(n / ranks) * ndp_dtype_size(c.in[0].view.dtype)), 1,
                                n / ranks, c.in[0].view.dtype);
    ndp_operand parts = c.in[0];
    parts.view.rows = ranks, parts.view.cols = parts.view.ld = n / ranks;
    int second = one_more(&e, i);
    make_collective(&e, i, &ndp_op_reduce_scatter, (ndp_group_kind)c.attr.group, parts, part);
    make_collective(&e, second, &ndp_op_all_gather, (ndp_group_kind)c.attr.group, part, parts);
    return true;
}

static inline bool sum_in_halves(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int i = find_begin(p, &ndp_op_all_reduce, NULL, 0);
    (void)how;
    if (i == NDP_NONE)
        return false;
    const ndp_call c = p->instrs[i].call;
    int64_t n = c.in[0].view.cols, half = n / 2;
    int second = one_more(&e, i);
    ndp_operand low = part_of(c.in[0], 0, half), high = part_of(c.in[0], half, n - half);
    make_collective(&e, i, &ndp_op_all_reduce, (ndp_group_kind)c.attr.group, low, low);
    make_collective(&e, second, &ndp_op_all_reduce, (ndp_group_kind)c.attr.group, high, high);
    return true;
}

/* Two sums of a number over two groups change places. */
static inline bool in_the_other_order(const void *what, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int first = find_begin(p, &ndp_op_all_reduce, what, 0);
    int second = first == NDP_NONE ? NDP_NONE : find_begin(p, &ndp_op_all_reduce, what, first + 1);
    if (second == NDP_NONE)
        return false;
    const ndp_call a = p->instrs[first].call, b = p->instrs[second].call;
    make_collective(&e, first, a.op, (ndp_group_kind)b.attr.group, a.in[0], a.out[0]);
    make_collective(&e, second, b.op, (ndp_group_kind)a.attr.group, b.in[0], b.out[0]);
    return true;
}

/* A sum over one group becomes one over each of two, whose product it is. */
typedef struct two_groups {
    const char *what;
    ndp_group_kind whole, first, second;
} two_groups;

static inline bool over_each_axis(const void *how, ndp_program *p, journal *j) {
    const two_groups *g = how;
    const ndp_mesh *mesh = &p->opts.step.mesh;
    edited e = {j, p, NULL};
    int i = find_begin(p, &ndp_op_all_reduce, g->what, 0);
    int whole = ndp_mesh_group(mesh, g->whole).count, first = ndp_mesh_group(mesh, g->first).count;
    if (i == NDP_NONE || p->instrs[i].call.attr.group != (int)g->whole || first == 1 || first == whole ||
        first * ndp_mesh_group(mesh, g->second).count != whole)
        return false;
    const ndp_operand x = p->instrs[i].call.in[0];
    int second = one_more(&e, i);
    make_collective(&e, i, &ndp_op_all_reduce, g->first, x, x);
    make_collective(&e, second, &ndp_op_all_reduce, g->second, x, x);
    return true;
}

/* A gather too many. */
static inline bool gathered_again(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int i = find_begin(p, &ndp_op_all_gather, NULL, 0);
    (void)how;
    if (i == NDP_NONE)
        return false;
    one_more(&e, i);
    return true;
}

/* The sum of all parts, of which this rank takes its own. */
static inline bool sum_and_take(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int i = find_begin(p, &ndp_op_reduce_scatter, NULL, 0);
    (void)how;
    if (i == NDP_NONE || p->instrs[i].call.attr.accumulate)
        return false;
    const ndp_call c = p->instrs[i].call;
    ndp_operand own =
        part_of(c.in[0], ndp_mesh_group(&p->opts.step.mesh, (ndp_group_kind)c.attr.group).rank * c.out[0].view.cols,
                c.out[0].view.cols);
    make_collective(&e, i, &ndp_op_all_reduce, (ndp_group_kind)c.attr.group, c.in[0], c.in[0]);
    edited_copy(&e, i, c.partner + 1, c.partner);
    edited_call(&e, c.partner + 1)->partner = NDP_NONE;
    make_copy(&e, c.partner + 1, own, c.out[0]);
    return true;
}

/* A gradient goes to other memory and back before its norm. */
static inline bool copied_away_and_back(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int i = find_kernel(p, &ndp_op_square_sum, 0);
    (void)how;
    if (i == NDP_NONE)
        return false;
    const ndp_operand grad = p->instrs[i].call.in[0];
    size_t bytes = (size_t)grad.view.cols * ndp_dtype_size(grad.view.dtype);
    ndp_operand away = in_block(edited_block(&e, bytes), 1, grad.view.cols, grad.view.dtype);
    edited_copy(&e, i, i, i);
    edited_copy(&e, i, i, i);
    make_copy(&e, i, grad, away);
    make_copy(&e, i + 1, away, grad);
    return true;
}

/* Swaps the first two kernels of an op. False: there are not two. */
static inline bool swap_first_two(const ndp_op *op, ndp_program *p, journal *j, int at[2]) {
    edited e = {j, p, NULL};
    at[0] = find_kernel(p, op, 0);
    at[1] = at[0] == NDP_NONE ? NDP_NONE : find_kernel(p, op, at[0] + 1);
    if (at[1] != NDP_NONE)
        swap_entries(&e, at[0], at[1]);
    return at[1] != NDP_NONE;
}

/* The squares of the second buffer come first. */
static inline bool squares_in_the_other_order(const void *how, ndp_program *p, journal *j) {
    int at[2];
    (void)how;
    if (!swap_first_two(&ndp_op_square_sum, p, j, at))
        return false;
    p->instrs[at[0]].call.attr.accumulate = false;
    p->instrs[at[1]].call.attr.accumulate = true;
    return true;
}

/* The sum of squares is zeroed, and then all are added. */
static inline bool squares_added_to_zero(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int i = find_kernel(p, &ndp_op_square_sum, 0);
    (void)how;
    if (i == NDP_NONE)
        return false;
    ndp_operand sum = p->instrs[i].call.out[0];
    edited_copy(&e, i, i, i);
    assert_true(edited_kernel(&e, i, &ndp_op_zero, &(ndp_op_attr){0}, &sum, 1, &sum, 1));
    journal_keep(j, &p->instrs[i + 1], sizeof p->instrs[i + 1]);
    p->instrs[i + 1].call.attr.accumulate = true;
    return true;
}

static inline bool updates_in_the_other_order(const void *how, ndp_program *p, journal *j) {
    int at[2];
    (void)how;
    return swap_first_two(&ndp_op_adamw, p, j, at);
}

/* A number that is computed again from the same: `how` is the op. */
static inline bool computed_again(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int i = find_kernel(p, how, 0);
    if (i == NDP_NONE)
        return false;
    edited_copy(&e, i, i + 1, i);
    return true;
}

/* Nothing runs between the begin of a collective and its wait: of the op `how`. */
static inline bool without_overlap(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    bool any = false;
    for (int i = find_begin(p, how, NULL, 0); i != NDP_NONE; i = find_begin(p, how, NULL, i + 1)) {
        int wait = p->instrs[i].call.partner;
        if (wait == i + 1)
            continue;
        edited_copy(&e, wait, i + 1, i);
        edited_pair(&e, i, i + 1);
        edited_remove(&e, wait + 1);
        any = true;
    }
    return any;
}

/* A forward is done twice. */
static inline bool forward_twice(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int i = 0;
    (void)how;
    while (p->instrs[i].code != NDP_DO_RUN)
        i++;
    edited_copy(&e, i, i + 1, i);
    return true;
}

/* Owned gradients are zeroed first, and the first micro-batch adds to them. */
static inline bool added_to_zero(const void *how, ndp_program *p, journal *j) {
    edited e = {j, p, NULL};
    int zero = find_kernel(p, &ndp_op_zero, 0);
    (void)how;
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        const ndp_list *list = in->code == NDP_DO_RUN ? ndp_program_list(p, in) : NULL;
        if (!list || list->n_pgrads == 0 || in->accumulate)
            continue;
        int buffer = p->opts.model->units[in->unit].buffers[list->pgrads[0].slot];
        const ndp_owned *o = &p->owned[buffer];
        ndp_dtype type = p->opts.model->buffers[buffer].storage.gradient;
        if (o->shard.shards > 1 || zero == NDP_NONE || p->repeats.n > 0)
            return false;
        journal_keep(j, in, sizeof *in);
        in->accumulate = (1u << list->n_pgrads) - 1;
        ndp_operand all = ndp_operand_at(o->grad, 1, o->shard.slice, type);
        edited_copy(&e, zero, zero + 1, zero);
        return edited_kernel(&e, zero + 1, &ndp_op_zero, &(ndp_op_attr){0}, &all, 1, &all, 1);
    }
    return false;
}

#endif
