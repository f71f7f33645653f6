/* Updates: an owner updates the elements of its slice that are in pieces, once each, from complete gradients. */
#include "placement/step_world.h"

#include "ops/update.h"

/* ---- tables ---- */

ndp_status ndp_step_pieces(const ndp_step_lane *l, const ndp_operand *o, ndp_piece_rows *out) {
    *out = (ndp_piece_rows){0};
    if (ndp_step_is_absent(o))
        return NDP_OK;
    size_t row = (size_t)l->shared->columns * sizeof(int64_t);
    ndp_held s = ndp_memory_find(&l->memory, ndp_step_bytes(o));
    if (s.kind != NDP_HELD_PIECES || o->view.cols != l->shared->columns || o->view.ld != o->view.cols ||
        o->view.dtype != NDP_I64)
        return ndp_step_refuse(l, "operand 2 is not a table of pieces");
    size_t at = o->offset - l->program->owned[s.at].pieces.offset;
    out->number = s.at;
    out->buffer = &l->shared->buffers[s.at];
    out->first = (int64_t)(at / row);
    out->n = o->view.rows;
    out->rows = out->buffer->pieces + out->first * l->shared->columns;
    return at % row == 0 && out->first + out->n <= out->buffer->n_pieces
               ? NDP_OK
               : ndp_step_refuse(l, "its table has parts of rows, or rows that no table has");
}

/* ---- updates ---- */

typedef struct step_update {
    const ndp_call *call;
    ndp_piece_rows rows;
    int64_t base;          /* the buffer's element at which the slice starts */
    bool directs, follows; /* makes directions; updates by them */
    bool codes;            /* its states are codes */
} step_update;

static size_t byte_of(const ndp_operand *o, int64_t element) {
    return o->offset + (size_t)element * ndp_dtype_size(o->view.dtype);
}

static ndp_bytes bytes_of(const ndp_operand *o, int64_t first, int64_t count) {
    return (ndp_bytes){o->base, byte_of(o, first), byte_of(o, first + count)};
}

static ndp_status write_elements(ndp_step_lane *l, const step_update *u, const ndp_operand *o, int64_t at,
                                 int64_t first, int64_t count, ndp_held_kind kind, int version) {
    return ndp_memory_write(&l->memory, bytes_of(o, at, count),
                            (ndp_held){.kind = kind,
                                       .of = u->rows.buffer->whole,
                                       .type = o->view.dtype,
                                       .at = version,
                                       .first = first,
                                       .made = l->walk.at});
}

static ndp_status needs(const ndp_step_lane *l, const step_update *u, const ndp_operand *o, int64_t at, int64_t first,
                        int64_t count, ndp_held_kind kind, int version) {
    return ndp_step_needs(l, o->base, byte_of(o, at), kind, u->rows.buffer, first, count, o->view.dtype, version);
}

/* Elements [at, at + count) of a state: from the step before to this one. */
static ndp_status renew(ndp_step_lane *l, const step_update *u, const ndp_operand *o, int64_t at, int64_t count,
                        ndp_held_kind kind) {
    NDP_TRY(needs(l, u, o, at, at, count, kind, 0));
    return write_elements(l, u, o, at, at, count, kind, 1);
}

/* The states of a piece, in the places that the table says: numbers, or codes and the scales of their blocks. */
static ndp_status update_states(ndp_step_lane *l, const step_update *u, const int64_t *row) {
    int64_t first = row[NDP_PIECE_FIRST], count = row[NDP_PIECE_COUNT];
    for (int k = 0; k < NDP_OPTIMIZER_STATES; k++) {
        const ndp_operand *o = &u->call->in[NDP_UPDATE_STATE + k], *scales = o + NDP_OPTIMIZER_STATES;
        if (u->codes) {
            NDP_TRY(renew(l, u, o, first, count, ndp_held_of_state(NDP_HELD_CODES0, k)));
            NDP_TRY(renew(l, u, scales, row[NDP_PIECE_PLACE], ndp_step_blocks(row),
                          ndp_held_of_state(NDP_HELD_SCALES0, k)));
        } else if (!ndp_step_is_absent(o)) {
            bool own = ndp_step_state_is_short(l, u->rows.buffer, o->view.cols);
            NDP_TRY(renew(l, u, o, own ? row[NDP_PIECE_PLACE] : first, count, ndp_held_of_state(NDP_HELD_STATE0, k)));
        }
    }
    return NDP_OK;
}

static ndp_status update_piece(ndp_step_lane *l, const step_update *u, const int64_t *row) {
    const ndp_operand *w = &u->call->in[NDP_UPDATE_WEIGHT], *g = &u->call->in[NDP_UPDATE_GRAD],
                      *copy = &u->call->out[1];
    int64_t at = row[NDP_PIECE_FIRST], count = row[NDP_PIECE_COUNT], first = u->base + at;
    int part = ndp_step_cut_of(l, u->rows.number);
    NDP_TRY(u->follows ? needs(l, u, g, at, first, count, NDP_HELD_ORTHOGONAL, part)
                       : needs(l, u, g, at, first, count, NDP_HELD_GRAD, 0));
    if (u->directs) {
        NDP_TRY(update_states(l, u, row));
        return write_elements(l, u, &u->call->out[0], at, first, count, NDP_HELD_DIRECTION, part);
    }
    NDP_TRY(needs(l, u, w, at, first, count, NDP_HELD_PARAM, 0));
    if (w->view.dtype == NDP_SPLIT_REST) { /* the copy has the upper parts */
        if (ndp_step_is_absent(copy))
            return ndp_step_refuse(l, "it has no upper parts of the weights");
        NDP_TRY(needs(l, u, copy, at, first, count, NDP_HELD_PARAM, 0));
    }
    NDP_TRY(update_states(l, u, row));
    NDP_TRY(write_elements(l, u, w, at, first, count, NDP_HELD_PARAM, 1));
    return ndp_step_is_absent(copy) ? NDP_OK : write_elements(l, u, copy, at, first, count, NDP_HELD_PARAM, 1);
}

static ndp_status check_numbers(const ndp_step_lane *l, const ndp_call *c) {
    const ndp_operand *k = &c->in[NDP_UPDATE_CONSTANTS], *clip = &c->in[NDP_UPDATE_CLIP];
    ndp_held s = ndp_memory_find(&l->memory, ndp_step_bytes(k));
    if (s.kind != NDP_HELD_CONSTANTS || k->offset != s.start || k->view.rows != l->program->groups.n)
        return ndp_step_refuse(l, "its constants are not those of the update");
    if (clip->base == NDP_NONE || ndp_step_scalar_at(l, ndp_step_bytes(clip)) != NDP_STEP_CLIP)
        return ndp_step_refuse(l, "operand 4 is not the clipping factor");
    return NDP_OK;
}

/* The optimizer that an operation is of; NULL: of none that the groups have. */
static const ndp_optimizer *optimizer_of(const ndp_update_groups *g, const ndp_op *op) {
    for (int i = 0; i < g->n_used; i++) {
        const ndp_optimizer *o = ndp_optimizers[g->used[i]];
        if (op == o->op || (o->whole.direction && op == o->whole.direction))
            return o;
    }
    return NULL;
}

/* Which update it is; all pieces are of groups with that optimizer. */
static ndp_status find_update(const ndp_step_lane *l, step_update *u) {
    const ndp_update_groups *g = &l->program->groups;
    const ndp_optimizer *o = optimizer_of(g, u->call->op);
    if (!o)
        return ndp_step_refuse(l, "is not an operation of optimizer %s",
                               ndp_optimizers[g->items[g->n - 1].opts.name]->name);
    u->directs = u->call->op == o->whole.direction;
    u->follows = o->whole.direction && u->call->op == o->op;
    u->codes = o->scales[0];
    for (int64_t r = 0; r < u->rows.n; r++) {
        int64_t group = ndp_piece_group(u->rows.rows + r * l->shared->columns);
        const ndp_optimizer *by = ndp_optimizers[g->items[group].opts.name];
        if (by != o)
            return ndp_step_refuse(l, "row %lld of the table of %s is a tensor that %s updates",
                                   (long long)(u->rows.first + r), u->rows.buffer->name, by->name);
    }
    return NDP_OK;
}

ndp_status ndp_step_update(ndp_step_lane *l) {
    step_update u = {.call = &l->instr->call};
    if (u.call->n_in != u.call->op->n_in || u.call->n_in < NDP_UPDATE_OPERANDS)
        return ndp_step_refuse(l, "no program has this operation");
    NDP_TRY(ndp_step_pieces(l, &u.call->in[NDP_UPDATE_PIECES], &u.rows));
    NDP_TRY(find_update(l, &u));
    if (u.rows.n == 0)
        return NDP_OK;
    NDP_TRY(check_numbers(l, u.call));
    const ndp_shard *s = &u.rows.buffer->shard;
    u.base = s->index * s->slice;
    ndp_step_writes(l, u.rows.number);
    for (int64_t r = 0; r < u.rows.n; r++)
        NDP_TRY(update_piece(l, &u, u.rows.rows + r * l->shared->columns));
    return NDP_OK;
}

/* ---- biases of routers ---- */

/* The unit with a buffer that moves, whose slice an operand is. */
static ndp_status find_moved(const ndp_step_lane *l, const ndp_operand *o, int *unit, int *buffer) {
    const ndp_program *p = l->program;
    const ndp_model *m = p->opts.model;
    for (*unit = 0; *unit < m->n_units; ++*unit)
        for (int s = 0; s < NDP_SLOTS; s++) {
            *buffer = m->units[*unit].buffers[s];
            const ndp_owned *own = *buffer == NDP_NONE ? NULL : &p->owned[*buffer];
            if (own && m->buffers[*buffer].moves && own->master.block == o->base && own->master.offset == o->offset &&
                own->shard.slice == o->view.cols)
                return NDP_OK;
        }
    return ndp_step_refuse(l, "its operand is no slice of a router's bias");
}

/* By the loads of its own mixture, which are complete. */
static ndp_status check_move(ndp_step_lane *l, int unit, const ndp_step_buffer *b) {
    const ndp_call *c = &l->instr->call;
    const ndp_model *whole = l->world->whole;
    int64_t low = b->shard.index * b->shard.slice, experts = whole->inputs->mixtures.experts;
    ndp_address loads = ndp_program_loads_of(l->program, unit);
    if (c->in[1].base != loads.block || c->in[1].offset != loads.offset || c->in[1].view.cols != experts)
        return ndp_step_refuse(l, "operand 1 is not the loads of %s", l->program->opts.model->units[unit].name);
    if (c->attr.first != (low < experts ? low : experts))
        return ndp_step_refuse(l, "its first expert is %lld, must be %lld", (long long)c->attr.first, (long long)low);
    if (c->attr.scale != whole->opts.router.bias_rate)
        return ndp_step_refuse(l, "its rate is %g, must be %g", c->attr.scale, whole->opts.router.bias_rate);
    if (c->in[2].base == NDP_NONE || ndp_step_scalar_at(l, ndp_step_bytes(&c->in[2])) != NDP_STEP_CLIP)
        return ndp_step_refuse(l, "operand 2 is not the clipping factor");
    return ndp_step_scalar_needs(l, NDP_STEP_LOADS);
}

ndp_status ndp_step_move(ndp_step_lane *l) {
    const ndp_operand *o = &l->instr->call.in[0];
    int unit = NDP_NONE, number = NDP_NONE, k = 0;
    NDP_TRY(find_moved(l, o, &unit, &number));
    step_update u = {.call = &l->instr->call, .rows = {.buffer = &l->shared->buffers[number], .number = number}};
    const ndp_step_buffer *b = u.rows.buffer;
    int64_t low = b->shard.index * b->shard.slice;
    ndp_stretch t;
    NDP_TRY(check_move(l, unit, b));
    ndp_step_writes(l, number);
    while (ndp_step_next_stretch(b, &k, low, low + b->shard.slice, &t)) {
        NDP_TRY(needs(l, &u, o, t.first - low, t.first, t.end - t.first, NDP_HELD_PARAM, 0));
        NDP_TRY(write_elements(l, &u, o, t.first - low, t.first, t.end - t.first, NDP_HELD_PARAM, 1));
    }
    return NDP_OK;
}
