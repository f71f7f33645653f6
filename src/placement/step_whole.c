/* Projections that are updated as whole matrices: their directions are put together from the ranks' parts, transformed,
 * and each rank takes its own part back. A matrix is complete when the parts' rectangles are all of it, each element
 * once. */
#include "placement/step_world.h"

/* The matrix of a table that has elements [first, first + count), which is a segment or a member of one; *number: which
 * (ndp_held_matrix). False: the rank has no such matrix. */
static bool find_matrix(const ndp_segments *t, int64_t first, int64_t count, ndp_segment *out, int *number) {
    for (int k = 0; t && k < t->n; k++) {
        const ndp_segment *s = &t->items[k];
        int64_t size = s->rows * s->cols, at = first - s->offset;
        if (size == 0 || count != size || at < 0 || at % size != 0 || at / size >= ndp_segment_matrices(s))
            continue;
        *out = ndp_segment_member(s, at / size);
        *number = ndp_held_matrix(k, at / size);
        return true;
    }
    return false;
}

static ndp_bytes bytes_of(const ndp_operand *o) {
    size_t size = ndp_dtype_size(o->view.dtype);
    return (ndp_bytes){o->base, o->offset, o->offset + (size_t)((o->view.rows - 1) * o->view.ld + o->view.cols) * size};
}

static bool is_contiguous(const ndp_operand *o) { return o->view.rows == 1 || o->view.ld == o->view.cols; }

static ndp_status refuse(const ndp_step_lane *l, const ndp_operand *o, const char *must) {
    ndp_held is = ndp_memory_first(&l->memory, bytes_of(o));
    return ndp_step_refuse(l, "its operand is %s%s", ndp_held_text(l, &is).s, must);
}

/* The lane of the tensor axis at place `tp`. */
static const ndp_step_lane *lane_at(const ndp_step_lane *l, int tp) {
    const ndp_members *m = ndp_step_members(l, NDP_GROUP_TP);
    return &l->world->items[m->lanes[tp]];
}

/* True if the view of a matrix is the rectangle of the segment in it. */
static bool is_rectangle(const ndp_operand *o, size_t base, const ndp_segment *s) {
    size_t size = ndp_dtype_size(o->view.dtype);
    int64_t skip = (s->first[0] - s->base[0]) * s->part[1] + s->first[1] - s->base[1];
    return o->offset == base + (size_t)skip * size && o->view.rows == s->rows && o->view.cols == s->cols &&
           (o->view.ld == s->part[1] || s->rows == 1);
}

/* A rank's part into the matrix, whose block has nothing else. */
static ndp_status assemble(ndp_step_lane *l, const ndp_operand *in, const ndp_operand *out, const ndp_held *from) {
    int number;
    ndp_segment s;
    bool found = find_matrix(ndp_step_table_of(lane_at(l, from->at), from->of), from->first,
                             in->view.rows * in->view.cols, &s, &number);
    if (!found || !s.projection || in->view.rows != s.rows || in->view.dtype != out->view.dtype)
        return refuse(l, in, ", must be the directions of one projection");
    ndp_bytes b = {out->base, 0, (size_t)(s.part[0] * s.part[1]) * ndp_dtype_size(out->view.dtype)};
    if (!is_rectangle(out, 0, &s) || b.end > l->program->blocks[out->base].bytes)
        return ndp_step_refuse(l, "%s: rows %lld and columns %lld of the whole are copied elsewhere", s.name,
                               (long long)s.first[0], (long long)s.first[1]);
    ndp_held is = ndp_memory_find(&l->memory, b);
    ndp_held matrix = {.kind = NDP_HELD_MATRIX, .of = from->of, .at = number, .made = l->walk.at};
    if (is.kind == NDP_HELD_MATRIX && is.of == matrix.of && is.at == matrix.at)
        matrix.share = is.share;
    matrix.share = ndp_share_add(
        matrix.share, ndp_step_measure(&s, from->of, number % NDP_MOST_SEGMENTS, 0, ndp_segment_elements(&s)));
    return ndp_memory_write(&l->memory, b, matrix);
}

/* This rank's part of a transformed matrix: numbers of a program are those of the rank that it is for. */
static ndp_status take_back(ndp_step_lane *l, const ndp_operand *in, const ndp_operand *out, const ndp_held *from) {
    ndp_bytes b = bytes_of(out);
    ndp_held to = ndp_memory_find(&l->memory, b);
    ndp_segment s;
    int number;
    int local = ndp_step_local(l, from->of);
    bool own = to.kind == NDP_HELD_DIRECTION && to.of == from->of && local != NDP_NONE &&
               find_matrix(&l->program->opts.model->buffers[local].segments,
                           to.first + (int64_t)((b.start - to.start) / ndp_held_unit(&to)),
                           out->view.rows * out->view.cols, &s, &number);
    if (!own || number != from->at || !is_rectangle(in, from->start, &s) || !is_contiguous(out))
        return ndp_step_refuse(l, "takes other rows or columns of a matrix than those of its directions");
    to.kind = NDP_HELD_ORTHOGONAL, to.at = ndp_step_cut_of(l, local), to.first = s.offset;
    to.made = l->walk.at;
    return ndp_memory_write(&l->memory, b, to);
}

/* Whatever the operand holds, gaps too. */
static ndp_status move(ndp_step_lane *l, const ndp_operand *in, const ndp_operand *out) {
    ndp_bytes from = bytes_of(in), to = bytes_of(out);
    ndp_held_list held = {0};
    if (!is_contiguous(in) || !is_contiguous(out) || in->view.dtype != out->view.dtype)
        return refuse(l, in, ", must be contiguous, and copied as it is");
    if (ndp_region_is_shared(l->program->blocks[to.block].region))
        return ndp_step_refuse(l, "only updates write into memory that other ranks read");
    NDP_TRY(ndp_memory_read(&l->memory, from, &held));
    NDP_TRY(ndp_memory_clear(&l->memory, to));
    ndp_step_moved(l, to.block);
    return ndp_memory_put(&l->memory, to, &held, l->walk.at);
}

ndp_status ndp_step_copy(ndp_step_lane *l) {
    const ndp_call *c = &l->instr->call;
    ndp_bytes b = bytes_of(&c->in[0]);
    ndp_held found = ndp_memory_find(&l->memory, b);
    if (!ndp_step_is_absent(&c->in[1]))
        return ndp_step_refuse(l, "no program adds in a copy");
    if (found.kind == NDP_HELD_ORTHOGONAL_MATRIX)
        return take_back(l, &c->in[0], &c->out[0], &found);
    if (found.kind != NDP_HELD_DIRECTION || !is_contiguous(&c->in[0]))
        return move(l, &c->in[0], &c->out[0]);
    ndp_held from = ndp_held_cut(&found, b.start, b.end);
    return assemble(l, &c->in[0], &c->out[0], &from);
}

/* The transform is the one of the optimizer that updates the matrix. */
static ndp_status check_form(ndp_step_lane *l, const ndp_segment *s) {
    const ndp_optimizer *o = ndp_optimizers[ndp_update_opts_of(&l->program->groups, s)->name];
    const ndp_call *c = &l->instr->call;
    return c->op == o->whole.transform && c->attr.spectral == o->whole.spectral
               ? NDP_OK
               : ndp_step_refuse(l, "%s updates %s, and its matrices are transformed otherwise", o->name, s->name);
}

/* A matrix that was put together, or one that a rank has whole among its directions. */
ndp_status ndp_step_transform(ndp_step_lane *l) {
    const ndp_operand *o = &l->instr->call.in[0], *out = &l->instr->call.out[0];
    ndp_bytes b = bytes_of(o);
    ndp_held found = ndp_memory_find(&l->memory, b);
    const ndp_model *whole = l->world->whole;
    if (found.kind == NDP_HELD_NOTHING || !is_contiguous(o) || out->base != o->base || out->offset != o->offset)
        return refuse(l, o, ", must be a whole matrix of directions");
    ndp_held is = ndp_held_cut(&found, b.start, b.end);
    if (is.kind == NDP_HELD_MATRIX) {
        const ndp_segment *s = &whole->buffers[is.of].segments.items[is.at % NDP_MOST_SEGMENTS];
        ndp_share all = 1;
        if (is.share != all || is.start != found.start || is.end != found.end || o->view.rows != s->part[0] ||
            o->view.cols != s->part[1])
            return ndp_step_refuse(l, "the matrix of %s is not put together of all its parts, each once", s->name);
        NDP_TRY(check_form(l, s));
        is.kind = NDP_HELD_ORTHOGONAL_MATRIX, is.made = l->walk.at;
        return ndp_memory_write(&l->memory, b, is);
    }
    ndp_segment s;
    int number;
    if (is.kind != NDP_HELD_DIRECTION ||
        !find_matrix(ndp_step_table_of(l, is.of), is.first, o->view.rows * o->view.cols, &s, &number) ||
        !s.projection || o->view.rows != s.part[0] || o->view.cols != s.part[1] || s.rows != s.part[0] ||
        s.cols != s.part[1])
        return refuse(l, o, ", must be a whole matrix of directions");
    NDP_TRY(check_form(l, &s));
    is.kind = NDP_HELD_ORTHOGONAL, is.made = l->walk.at;
    return ndp_memory_write(&l->memory, b, is);
}
