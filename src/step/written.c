/* Gradients are read only where this step has written them.
 *
 * The memory of a gradient is not cleared between steps: a block that lives in the arena has what other blocks left
 * there, the owners' slices have the gradient of the step before. So a segment that is read but was not written adds an
 * old gradient, silently. The walk keeps, for each block of gradients, the byte ranges that calls have written, and
 * compares what each call reads of a segment with them; an output that is added to is read. The gaps between segments
 * and the padding of a buffer are never written: a collective moves them, but no update reads them.
 *
 * ndp_program_order calls ndp_gradients_written. */
#include "step/program_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a block. */
typedef struct span {
    size_t start, end;
} span;

/* What is written of a block: disjoint, ascending, none touches the next. */
typedef struct spans {
    span *items;
    int n;
    int64_t capacity;
} spans;

typedef struct written {
    const ndp_program *program;
    const ndp_instr *instr;
    ndp_walk at;
    spans *of; /* by block */
} written;

static ndp_status add_span(spans *s, span new) {
    int first = 0, end;
    while (first < s->n && s->items[first].end < new.start)
        first++;
    for (end = first; end < s->n && s->items[end].start <= new.end; end++) {
        new.start = s->items[end].start < new.start ? s->items[end].start : new.start;
        new.end = s->items[end].end > new.end ? s->items[end].end : new.end;
    }
    NDP_TRY(ndp_array_reserve(&s->items, &s->capacity, s->n + 1, sizeof *s->items));
    memmove(s->items + first + 1, s->items + end, (size_t)(s->n - end) * sizeof *s->items);
    s->items[first] = new;
    s->n += 1 - (end - first);
    return NDP_OK;
}

/* The first byte of `wanted` that is not written; wanted.end if all are. */
static size_t first_unwritten(const spans *s, span wanted) {
    for (int i = 0; i < s->n; i++)
        if (s->items[i].start <= wanted.start && wanted.start < s->items[i].end)
            return s->items[i].end < wanted.end ? s->items[i].end : wanted.end;
    return wanted.start;
}

/* ---- what calls read ---- */

/* True for a block of gradients; *out: where the operand is in it. */
static bool is_gradient(const written *w, const ndp_operand *x, ndp_address *out) {
    if (x->base == NDP_NONE || x->view.rows == 0 || x->view.cols == 0)
        return false;
    *out = ndp_base_address(w->program, w->instr, &w->at, x->base);
    out->offset += x->offset;
    return out->block != NDP_NONE && w->program->blocks[out->block].class == NDP_MEM_GRADIENTS;
}

/* The bytes of row r. Rows without a space between them are one: *rows is 1 then. */
static span row_of(const ndp_operand *x, size_t offset, int64_t r, int64_t *rows) {
    size_t size = ndp_dtype_size(x->view.dtype), width = (size_t)x->view.cols * size;
    bool whole = x->view.ld == x->view.cols || x->view.rows == 1;
    *rows = whole ? 1 : x->view.rows;
    size_t start = offset + (size_t)(r * x->view.ld) * size;
    return (span){start, start + (whole ? width * (size_t)x->view.rows : width)};
}

/* The buffer whose gradient block `block` has, and whether it is that of an owner's slice. */
static int buffer_of(const written *w, int block, bool *slice) {
    const ndp_program *p = w->program;
    *slice = true;
    for (int i = 0; i < p->opts.model->n_buffers; i++)
        if (p->owned[i].grad.block == block)
            return i;
    *slice = false;
    if (w->instr->code == NDP_DO_CALL)
        return w->instr->buffer;
    for (int s = 0; s < NDP_SLOTS; s++)
        if (w->instr->bases[NDP_BASE_PGRAD + s] == block)
            return p->opts.model->units[w->instr->unit].buffers[s];
    return NDP_NONE;
}

static ndp_status fail(const written *w, const ndp_call *c, int index, const ndp_segment *s, size_t byte) {
    char at[32];
    snprintf(at, sizeof at, index == NDP_NONE ? "#%d" : "#%d.%d", w->at.at, index);
    return NDP_FAIL(NDP_EBUG,
                    "%s %s%s%s reads the gradient of %s, which nothing in this step has written from byte %zu on", at,
                    c->op->name, w->instr->what ? " " : "", w->instr->what ? w->instr->what : "", s->name, byte);
}

/* Compares bytes that call `c` reads of a block with what is written, segment by segment. */
static ndp_status check_span(const written *w, const ndp_call *c, int index, int block, span read) {
    bool slice;
    int buffer = buffer_of(w, block, &slice), cursor = 0;
    if (buffer == NDP_NONE)
        return NDP_FAIL(NDP_EBUG, "#%d %s reads a gradient of no buffer", w->at.at, c->op->name);
    const ndp_buffer *b = &w->program->opts.model->buffers[buffer];
    const ndp_shard *shard = &w->program->owned[buffer].shard;
    size_t size = ndp_dtype_size(b->storage.gradient), base = slice ? w->program->owned[buffer].grad.offset : 0;
    ndp_piece piece;
    while (ndp_segments_piece(&b->segments, slice ? shard->shards : 1, slice ? shard->index : 0, &cursor, &piece)) {
        size_t start = base + (size_t)piece.slice_first * size, end = start + (size_t)piece.count * size;
        span part = {start > read.start ? start : read.start, end < read.end ? end : read.end};
        size_t byte = part.start < part.end ? first_unwritten(&w->of[block], part) : part.end;
        if (part.start < part.end && byte < part.end)
            return fail(w, c, index, piece.segment, byte - start);
    }
    return NDP_OK;
}

static ndp_status check_read(const written *w, const ndp_call *c, int index, const ndp_operand *x) {
    ndp_address at;
    if (!is_gradient(w, x, &at))
        return NDP_OK;
    for (int64_t r = 0, rows = 1; r < rows; r++) {
        span s = row_of(x, at.offset, r, &rows);
        NDP_TRY(check_span(w, c, index, at.block, s));
    }
    return NDP_OK;
}

static ndp_status note_write(const written *w, const ndp_operand *x) {
    ndp_address at;
    if (!is_gradient(w, x, &at))
        return NDP_OK;
    for (int64_t r = 0, rows = 1; r < rows; r++) {
        span s = row_of(x, at.offset, r, &rows);
        NDP_TRY(add_span(&w->of[at.block], s));
    }
    return NDP_OK;
}

/* ---- the walk ---- */

static bool adds(const written *w, const ndp_call *c) {
    return c->attr.accumulate ||
           (c->pgrad != NDP_NONE && w->instr->code == NDP_DO_RUN && (w->instr->accumulate >> c->pgrad & 1u));
}

/* `zero` also has its operand as input, but reads nothing. */
static ndp_status visit(const written *w, const ndp_call *c, int index) {
    if (c->kind == NDP_CALL_WAIT)
        return NDP_OK;
    for (int i = 0; i < c->n_in && c->op != &ndp_op_zero; i++)
        NDP_TRY(check_read(w, c, index, &c->in[i]));
    for (int i = 0; i < c->n_out && adds(w, c); i++)
        NDP_TRY(check_read(w, c, index, &c->out[i]));
    for (int i = 0; i < c->n_out; i++)
        NDP_TRY(note_write(w, &c->out[i]));
    return NDP_OK;
}

static ndp_status walk(written *w) {
    for (w->at = NDP_WALK_START; ndp_program_next(w->program, NDP_FIRST_ITERATIONS(2), &w->at);) {
        w->instr = &w->program->instrs[w->at.at];
        if (w->instr->code == NDP_DO_CALL) {
            NDP_TRY(visit(w, &w->instr->call, NDP_NONE));
            continue;
        }
        const ndp_list *list = ndp_program_list(w->program, w->instr);
        for (ndp_walk c = NDP_WALK_START; ndp_walk_next(&list->repeats, list->n, NDP_FIRST_ITERATIONS(2), &c);)
            NDP_TRY(visit(w, &list->calls[c.at], c.at));
    }
    return NDP_OK;
}

ndp_status ndp_gradients_written(const ndp_program *p) {
    written w = {.program = p, .of = calloc((size_t)p->n_blocks + 1, sizeof *w.of)};
    NDP_CHECK_MEMORY(w.of, "to check the gradients of %d blocks", p->n_blocks);
    ndp_status st = walk(&w);
    for (int i = 0; i < p->n_blocks; i++)
        free(w.of[i].items);
    free(w.of);
    return st;
}
