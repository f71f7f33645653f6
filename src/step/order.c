/* The order of a program's memory: between the begin of a communication and its wait, no other operation may write what
 * it reads, or touch what it writes.
 *
 * Kernels run on one queue, in the order of the list. A communication runs beside them: on a device with queues of its
 * own, on a stream of its channel, which waits at the begin for all kernels before it; elsewhere, whenever peers read
 * or write this rank's memory. Communications of one channel run in the order of their begins, so a wait is one for all
 * before it on its channel as well. With one queue of kernels, the vector clocks of such an execution reduce to a set:
 * the communications that are pending. Every call is compared with them, byte range by byte range. Memory that the
 * plan gives to several blocks is covered like any other: what counts are the bytes in the arena, not the blocks.
 *
 * Of a repeated range two iterations are walked (graph/repeat.h).
 *
 * Scratch memory of kernels is not covered; it is never an operand of a communication. written.c has the second rule of
 * ndp_program_order. */
#include "step/program_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `rows` runs of `width` bytes, `pitch` bytes apart. */
typedef struct byte_range {
    ndp_region region;
    size_t start, width, pitch;
    int64_t rows; /* 0: nothing, or memory that no communication names */
    bool written;
} byte_range;

enum { MOST_RANGES = NDP_OP_MAX_IN + NDP_OP_MAX_OUT };

typedef struct pending_op {
    ndp_comm_event event;
    int work;             /* of the program's own; NDP_NONE: of the unit that runs */
    bool near;            /* what it reads or writes meets a block of the instruction */
    byte_range ranges[2]; /* what a communication reads, and what it writes */
} pending_op;

/* The bytes of a base from the first to the last that a list names. */
typedef struct extent {
    size_t start, end;
} extent;

typedef struct order_check {
    const ndp_program *program;
    const ndp_instr *instr;
    ndp_walk at;
    pending_op *pending;
    int n, n_near;
    int64_t capacity;
    extent *extents[NDP_MAX_GRAPHS][NDP_PHASES]; /* by base; NULL: not looked at yet */
} order_check;

/* ---- ranges ---- */

ndp_address ndp_base_address(const ndp_program *p, const ndp_instr *in, const ndp_walk *w, int base) {
    if (in->code == NDP_DO_RUN && base >= NDP_BASE_DATA)
        return ndp_program_input(p, base - NDP_BASE_DATA, ndp_micro_batch_at(in, w));
    int block = in->code == NDP_DO_RUN ? in->bases[base] : base;
    return (ndp_address){block == NDP_NONE ? block : ndp_block_at(p->blocks, block, w), 0};
}

static byte_range range_of(const order_check *o, const ndp_operand *x, bool written) {
    if (x->base == NDP_NONE || x->view.rows == 0 || x->view.cols == 0)
        return (byte_range){0};
    ndp_address at = ndp_base_address(o->program, o->instr, &o->at, x->base);
    if (at.block == NDP_NONE) /* lent to the engine */
        return (byte_range){0};
    const ndp_block *b = &o->program->blocks[at.block];
    size_t size = ndp_dtype_size(x->view.dtype);
    return (byte_range){.region = b->region,
                        .start = b->offset + at.offset + x->offset,
                        .width = (size_t)x->view.cols * size,
                        .pitch = (size_t)x->view.ld * size,
                        .rows = x->view.rows,
                        .written = written};
}

static size_t end_of(const byte_range *r) { return r->start + (size_t)(r->rows - 1) * r->pitch + r->width; }

/* Views of different columns of one matrix share no byte, though their rows alternate. */
static bool columns_apart(const byte_range *low, const byte_range *high) {
    size_t column = low->pitch > 0 ? (high->start - low->start) % low->pitch : 0;
    return low->pitch == high->pitch && column >= low->width && column + high->width <= low->pitch;
}

static bool overlap(const byte_range *a, const byte_range *b) {
    if (a->rows == 0 || b->rows == 0 || a->region != b->region || a->start >= end_of(b) || b->start >= end_of(a))
        return false;
    return a->start <= b->start ? !columns_apart(a, b) : !columns_apart(b, a);
}

/* ---- the walk ---- */

static ndp_status report(const order_check *o, const ndp_call *c, int index, const pending_op *p, bool writes) {
    char begun[192], at[32];
    snprintf(at, sizeof at, index == NDP_NONE ? "#%d" : "#%d.%d", o->at.at, index);
    return NDP_FAIL(NDP_EBUG, "%s %s%s%s %s memory of %s, which has begun and is not waited for", at, c->op->name,
                    o->instr->what ? " " : "", o->instr->what ? o->instr->what : "", writes ? "writes" : "reads",
                    ndp_comm_event_text(&p->event, begun, sizeof begun));
}

/* Compares a call with what is pending. */
static ndp_status compare(const order_check *o, const ndp_call *c, int index, const byte_range *ranges, int n) {
    for (int i = 0; i < o->n; i++) {
        const pending_op *p = &o->pending[i];
        for (int k = 0; p->near && k < 2 * n; k++) {
            const byte_range *mine = &ranges[k / 2], *theirs = &p->ranges[k % 2];
            if ((mine->written || theirs->written) && overlap(mine, theirs))
                return report(o, c, index, p, mine->written);
        }
    }
    return NDP_OK;
}

/* Ends the program's work `work`, or what began as call `index` of the unit that runs. */
static void end_pending(order_check *o, int work, int index) {
    int i = 0;
    while (i < o->n && !(o->pending[i].work == work && o->pending[i].event.call_index == index))
        i++;
    o->n_near -= i < o->n && o->pending[i].near;
    for (; i + 1 < o->n; i++)
        o->pending[i] = o->pending[i + 1];
    o->n = i < o->n ? o->n - 1 : o->n;
}

static ndp_status visit(order_check *o, const ndp_call *c, int index) {
    byte_range ranges[MOST_RANGES];
    int n = 0;
    if (c->kind == NDP_CALL_WAIT) {
        end_pending(o, index == NDP_NONE ? ndp_work_at(o->instr, &o->at) : NDP_NONE,
                    index == NDP_NONE ? NDP_NONE : c->partner);
        return NDP_OK;
    }
    if (c->kind == NDP_CALL_KERNEL && o->n_near == 0)
        return NDP_OK;
    for (int i = 0; i < c->n_in; i++)
        ranges[n++] = range_of(o, &c->in[i], false);
    for (int i = 0; i < c->n_out; i++)
        ranges[n++] = range_of(o, &c->out[i], c->op->collective != NDP_SEND);
    NDP_TRY(compare(o, c, index, ranges, n));
    if (c->kind != NDP_CALL_BEGIN)
        return NDP_OK;
    NDP_TRY(ndp_array_reserve(&o->pending, &o->capacity, o->n + 1, sizeof *o->pending));
    o->pending[o->n++] = (pending_op){ndp_comm_event_at(o->program, &o->at, index),
                                      index == NDP_NONE ? ndp_work_at(o->instr, &o->at) : NDP_NONE,
                                      true,
                                      {ranges[0], ranges[c->n_in]}};
    o->n_near++;
    return NDP_OK;
}

static void widen(extent *of, const ndp_operand *x, int n) {
    for (int k = 0; k < n; k++) {
        const ndp_view *v = &x[k].view;
        if (x[k].base == NDP_NONE || v->rows == 0 || v->cols == 0)
            continue;
        extent *e = &of[x[k].base];
        size_t end = x[k].offset + (size_t)((v->rows - 1) * v->ld + v->cols) * ndp_dtype_size(v->dtype);
        e->start = e->end == 0 || x[k].offset < e->start ? x[k].offset : e->start;
        e->end = end > e->end ? end : e->end;
    }
}

/* The extents of the list of the RUN instruction. */
static ndp_status find_extents(order_check *o, const ndp_list *list, const extent **out) {
    extent **of = &o->extents[o->program->opts.model->units[o->instr->unit].graph][o->instr->phase];
    *out = *of;
    if (*of)
        return NDP_OK;
    *out = *of = calloc(NDP_BASES, sizeof **of);
    NDP_CHECK_MEMORY(*of, "to check the order of a program");
    for (int i = 0; i < list->n; i++) {
        widen(*of, list->calls[i].in, list->calls[i].n_in);
        widen(*of, list->calls[i].out, list->calls[i].n_out);
    }
    return NDP_OK;
}

/* Finds the pending communications that any call of the list may meet: few do, and the others need not be compared with
 * each of its calls. */
static ndp_status mark_near(order_check *o, const ndp_list *list) {
    const extent *extents;
    if (o->n == 0)
        return NDP_OK;
    NDP_TRY(find_extents(o, list, &extents));
    for (int i = 0; i < o->n; i++)
        o->pending[i].near = false;
    for (int base = 0; base < NDP_BASES; base++) {
        const extent *e = &extents[base];
        ndp_address at = {NDP_NONE, 0};
        if (e->end > e->start)
            at = ndp_base_address(o->program, o->instr, &o->at, base);
        if (at.block == NDP_NONE)
            continue;
        const ndp_block *b = &o->program->blocks[at.block];
        const byte_range all = {
            .region = b->region, .start = b->offset + at.offset + e->start, .width = e->end - e->start, .rows = 1};
        for (int i = 0; i < o->n; i++)
            o->pending[i].near |= overlap(&all, &o->pending[i].ranges[0]) || overlap(&all, &o->pending[i].ranges[1]);
    }
    o->n_near = 0;
    for (int i = 0; i < o->n; i++)
        o->n_near += o->pending[i].near;
    return NDP_OK;
}

static void mark_all(order_check *o) {
    for (int i = 0; i < o->n; i++)
        o->pending[i].near = true;
    o->n_near = o->n;
}

static ndp_status walk(order_check *o) {
    char text[192];
    for (o->at = NDP_WALK_START; ndp_program_next(o->program, NDP_FIRST_ITERATIONS(2), &o->at);) {
        o->instr = &o->program->instrs[o->at.at];
        if (o->instr->code == NDP_DO_CALL) {
            mark_all(o);
            NDP_TRY(visit(o, &o->instr->call, NDP_NONE));
            continue;
        }
        const ndp_list *list = ndp_program_list(o->program, o->instr);
        NDP_TRY(mark_near(o, list));
        for (ndp_walk w = NDP_WALK_START; ndp_walk_next(&list->repeats, list->n, NDP_FIRST_ITERATIONS(2), &w);)
            NDP_TRY(visit(o, &list->calls[w.at], w.at));
    }
    return o->n == 0 ? NDP_OK
                     : NDP_FAIL(NDP_EBUG, "%s is never waited for",
                                ndp_comm_event_text(&o->pending[0].event, text, sizeof text));
}

ndp_status ndp_program_order(const ndp_program *p) {
    order_check o = {.program = p};
    ndp_status st = walk(&o);
    free(o.pending);
    for (int i = 0; i < NDP_MAX_GRAPHS * NDP_PHASES; i++)
        free(o.extents[i / NDP_PHASES][i % NDP_PHASES]);
    return st == NDP_OK ? ndp_gradients_written(p) : st;
}
