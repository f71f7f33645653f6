/* Lists of units that are right, but that the passes do not write, made of emitted ones by hand. */
#ifndef TESTS_PLACEMENT_OTHER_UNITS_H
#define TESTS_PLACEMENT_OTHER_UNITS_H

#include "placement/other_steps.h"

/* The list of a phase that has a call of the op, the first one with it; the call's place in *i. */
static inline ndp_list *find_list(ndp_program *p, const ndp_op *op, int *i) {
    for (int g = 0; g < p->opts.model->n_graphs; g++)
        for (int phase = 0; phase < NDP_PHASES; phase++) {
            ndp_list *list = &((ndp_unit_program *)p->opts.units)[g].lists[phase];
            for (*i = 0; *i < list->n; ++*i)
                if (list->calls[*i].op == op && list->calls[*i].kind != NDP_CALL_WAIT)
                    return list;
        }
    return NULL;
}

/* More work memory for a list: a block behind all others, for all its runs. Returns where the new part begins. */
static inline size_t more_work(const edited *e, size_t bytes) {
    ndp_program *p = e->program;
    size_t at = (e->list->work_bytes + 63) & ~(size_t)63;
    int block = edited_block(e, at + bytes);
    for (int i = 0; i < p->n; i++)
        if (p->instrs[i].code == NDP_DO_RUN && ndp_program_list(p, &p->instrs[i]) == e->list) {
            journal_keep(e->journal, &p->instrs[i], sizeof p->instrs[i]);
            p->instrs[i].bases[NDP_BASE_WORK] = block;
        }
    return at;
}

static inline size_t view_bytes(const ndp_operand *x) {
    return (size_t)(x->view.rows * x->view.cols) * ndp_dtype_size(x->view.dtype);
}

static inline bool unit_sum_by_parts(const void *how, ndp_program *p, journal *j) {
    int i;
    edited e = {j, p, find_list(p, &ndp_op_all_reduce, &i)};
    (void)how;
    if (!e.list)
        return false;
    const ndp_call c = e.list->calls[i];
    ndp_operand whole = c.in[0], part = whole;
    if (whole.view.rows % c.attr.ranks != 0)
        return false;
    part.base = NDP_BASE_WORK, part.offset = more_work(&e, view_bytes(&whole) / (size_t)c.attr.ranks);
    part.view.rows /= c.attr.ranks;
    int second = one_more(&e, i);
    make_collective(&e, i, &ndp_op_reduce_scatter, (ndp_group_kind)c.attr.group, whole, part);
    make_collective(&e, second, &ndp_op_all_gather, (ndp_group_kind)c.attr.group, part, whole);
    return true;
}

static inline bool unit_sum_in_halves(const void *how, ndp_program *p, journal *j) {
    int i;
    edited e = {j, p, find_list(p, &ndp_op_all_reduce, &i)};
    (void)how;
    if (!e.list || e.list->calls[i].in[0].view.rows < 2)
        return false;
    const ndp_call c = e.list->calls[i];
    ndp_operand low = c.in[0], high = low;
    low.view.rows /= 2;
    high.view.rows -= low.view.rows;
    high.offset += view_bytes(&low);
    int second = one_more(&e, i);
    make_collective(&e, i, c.op, (ndp_group_kind)c.attr.group, low, low);
    make_collective(&e, second, c.op, (ndp_group_kind)c.attr.group, high, high);
    return true;
}

/* b + a. */
static inline bool operands_swapped(const void *how, ndp_program *p, journal *j) {
    int i;
    edited e = {j, p, find_list(p, &ndp_op_add, &i)};
    (void)how;
    if (!e.list)
        return false;
    edited_own_operands(&e, i);
    ndp_operand *in = e.list->calls[i].in, x = in[0];
    in[0] = in[1], in[1] = x;
    return true;
}

/* What the op `how` reads goes to other memory first, and is read there. */
static inline bool unit_copied(const void *how, ndp_program *p, journal *j) {
    int i;
    edited e = {j, p, find_list(p, how, &i)};
    if (!e.list)
        return false;
    const ndp_operand x = e.list->calls[i].in[0];
    ndp_operand away = x;
    away.base = NDP_BASE_WORK, away.offset = more_work(&e, view_bytes(&x));
    away.view.ld = away.view.cols;
    edited_copy(&e, i, i, i);
    e.list->calls[i].partner = NDP_NONE, e.list->calls[i].pgrad = NDP_NONE;
    make_copy(&e, i, x, away);
    edited_own_operands(&e, i + 1);
    e.list->calls[i + 1].in[0] = away;
    return true;
}

/* Waits for all collectives of a list at once. */
static inline bool wait_at_once(const edited *e) {
    bool any = false;
    for (int i = 0; i < e->list->n; i++) {
        int wait = e->list->calls[i].partner;
        if (e->list->calls[i].kind != NDP_CALL_BEGIN || wait == i + 1)
            continue;
        edited_copy(e, wait, i + 1, i);
        edited_pair(e, i, i + 1);
        edited_remove(e, wait + 1);
        any = true;
    }
    return any;
}

static inline bool unit_without_overlap(const void *how, ndp_program *p, journal *j) {
    bool any = false;
    (void)how;
    for (int k = 0; k < p->opts.model->n_graphs * NDP_PHASES; k++) {
        edited e = {j, p, &((ndp_unit_program *)p->opts.units)[k / NDP_PHASES].lists[k % NDP_PHASES]};
        any |= wait_at_once(&e);
    }
    return any;
}

/* A collective that is not in place is done again; waits of a group have the order of begins. */
static inline bool unit_again(const void *how, ndp_program *p, journal *j) {
    int i;
    edited e = {j, p, find_list(p, how, &i)};
    if (!e.list)
        return false;
    wait_at_once(&e);
    for (i = 0; e.list->calls[i].op != how;)
        i++;
    one_more(&e, i);
    return true;
}

/* Two gradients of parameters change places in their list. */
static inline bool gradients_in_the_other_order(const void *how, ndp_program *p, journal *j) {
    int i;
    edited e = {j, p, find_list(p, &ndp_op_linear_dw, &i)};
    (void)how;
    for (; e.list && i + 1 < e.list->n; i++)
        if (e.list->calls[i].pgrad != NDP_NONE && e.list->calls[i + 1].pgrad != NDP_NONE) {
            swap_entries(&e, i, i + 1);
            return true;
        }
    return false;
}

#endif
