/* The numbers of a step: valid tokens, loss, the norm of the gradient, and what is made of them. A sum has its share by
 * the data axes on which it is of own samples, or slices: parts of both kinds may be in one sum. */
#include "placement/step_world.h"

#include <stddef.h>

static const struct {
    const char *name;
    size_t at;
    ndp_dtype type;
    ndp_input_kind input; /* of units that it is; TOKENS: none */
} numbers[] = {
#define ROW(NAME, name, field, type, input) {name, offsetof(ndp_all_scalars, field), NDP_##type, NDP_INPUT_##input},
    NDP_STEP_SCALARS_LIST(ROW)
#undef ROW
};

int ndp_step_scalar_of(ndp_input_kind kind) {
    int k = 0;
    while (k < NDP_STEP_SCALARS && (kind == NDP_INPUT_TOKENS || numbers[k].input != kind))
        k++;
    return k < NDP_STEP_SCALARS ? k : NDP_NONE;
}

ndp_address ndp_step_scalar_address(const ndp_program *p, int scalar) {
    size_t at = scalar == NDP_STEP_LOSS    ? ndp_loss_at(p)
                : scalar == NDP_STEP_LOADS ? p->loads.offset
                                           : numbers[scalar].at;
    return (ndp_address){p->scalars.block, p->scalars.offset + at};
}

const char *ndp_step_scalar_name(int scalar) { return numbers[scalar].name; }

/* True if the program has that number. */
static bool is_known(const ndp_step_lane *l, int scalar) {
    return scalar == NDP_STEP_LOADS   ? ndp_program_loads(l->program) > 0
           : scalar < NDP_STEP_PAIRS  ? true
           : scalar < NDP_STEP_ROUTED ? ndp_program_has_pairs(l->program)
                                      : ndp_program_has_router_losses(l->program);
}

/* How many numbers: the loss of pairs is one of several sums, which are made together; so are the losses of routers,
 * and the loads of experts. */
static int64_t count_of(const ndp_step_lane *l, int scalar) {
    return scalar == NDP_STEP_LOSS      ? ndp_loss_sums(l->program)
           : scalar == NDP_STEP_ROUTERS ? NDP_ROUTER_LOSSES
           : scalar == NDP_STEP_LOADS   ? ndp_program_loads(l->program)
                                        : 1;
}

static ndp_bytes bytes_of(const ndp_step_lane *l, int scalar) {
    ndp_address at = ndp_step_scalar_address(l->program, scalar);
    return (ndp_bytes){at.block, at.offset, at.offset + (size_t)count_of(l, scalar) * sizeof(double)};
}

int ndp_step_scalar_at(const ndp_step_lane *l, ndp_bytes b) {
    if (b.block != l->program->scalars.block)
        return NDP_NONE;
    ndp_held s = ndp_memory_find(&l->memory, b);
    return s.kind == NDP_HELD_SCALAR && b.end == s.end && b.start == s.start ? s.of : NDP_NONE;
}

bool ndp_step_scalar_is_written(const ndp_step_lane *l, int scalar) {
    return ndp_step_scalar_at(l, bytes_of(l, scalar)) == scalar;
}

ndp_status ndp_step_scalar_write(ndp_step_lane *l, int scalar, ndp_sum value) {
    l->scalars[scalar] = value;
    return ndp_memory_write(&l->memory, bytes_of(l, scalar),
                            (ndp_held){.kind = NDP_HELD_SCALAR, .of = scalar, .made = l->walk.at});
}

static ndp_sum part_of_scalar(const ndp_step_lane *l, const void *what) { return l->scalars[*(const int *)what]; }

ndp_status ndp_step_scalar_needs(const ndp_step_lane *l, int scalar) {
    const ndp_sum *s = &l->scalars[scalar];
    if (!ndp_step_scalar_is_written(l, scalar))
        return ndp_step_refuse(l, "the %s was not written in this step", numbers[scalar].name);
    if (ndp_sum_is_complete(s))
        return NDP_OK;
    static const ndp_group_kind kinds[] = {NDP_GROUP_PP, NDP_GROUP_CP,    NDP_GROUP_SP,
                                           NDP_GROUP_TP, NDP_GROUP_SHARD, NDP_GROUP_LOSS};
    const char *axis = ndp_step_axis(l, kinds, NDP_COUNT(kinds), part_of_scalar, &scalar);
    int own = s->by_own[3] ? 3 : s->by_own[2] ? 2 : s->by_own[1] ? 1 : 0;
    if (axis)
        return ndp_step_refuse(l, "the %s is a summand over %s, must be complete", numbers[scalar].name, axis);
    return ndp_step_refuse(l, "the %s is %s%s%s, must be complete", numbers[scalar].name,
                           ndp_share_text(s->by_own[own]).s, own & NDP_OWN_REPLICATE ? ", own over dp_replicate" : "",
                           own & NDP_OWN_SHARD ? ", own over dp_shard" : "");
}

/* ---- operands ---- */

/* The scalar whose place an operand is, of its `count` numbers; NDP_NONE: another place. */
static int named_of(const ndp_step_lane *l, const ndp_operand *o, int64_t count) {
    for (int k = 0; k < NDP_STEP_SCALARS; k++)
        if (is_known(l, k) && o->base == l->program->scalars.block && o->offset == bytes_of(l, k).start &&
            o->view.rows == 1 && o->view.cols == count && o->view.dtype == numbers[k].type)
            return k;
    return NDP_NONE;
}

static int named(const ndp_step_lane *l, const ndp_operand *o) { return named_of(l, o, 1); }

static ndp_status refuse_operand(const ndp_step_lane *l, int scalar, bool out) {
    return ndp_step_refuse(l, "%s is not the %s", out ? "its result" : "its operand", numbers[scalar].name);
}

/* ---- tokens ---- */

/* What is counted into which number: labels, or documents with a mark. */
static const struct {
    int scalar, mask;
    ndp_input_kind input;
} counts[] = {{NDP_STEP_VALID, 0, NDP_INPUT_LABELS},
              {NDP_STEP_PAIRS, NDP_DOCUMENT_PAIR, NDP_INPUT_DOCUMENTS},
              {NDP_STEP_NLL_TOKENS, NDP_DOCUMENT_NLL, NDP_INPUT_DOCUMENTS},
              {NDP_STEP_ROUTED, 0, NDP_INPUT_SAMPLES}};

/* The labels, the documents, or the samples, of all micro-batches. */
static ndp_status count_valid(ndp_step_lane *l) {
    const ndp_program *p = l->program;
    const ndp_inputs *inputs = p->opts.model->inputs;
    const ndp_operand *in = &l->instr->call.in[0];
    int k = 0, made = named(l, &l->instr->call.out[0]);
    while (k < NDP_COUNT(counts) && counts[k].scalar != made)
        k++;
    int labels = k < NDP_COUNT(counts) ? ndp_inputs_find(inputs, counts[k].input) : NDP_NONE;
    if (labels < 0)
        return refuse_operand(l, NDP_STEP_VALID, true);
    if (l->instr->call.attr.mask != counts[k].mask)
        return ndp_step_refuse(l, "counts rows with the mark %d, must be %d", l->instr->call.attr.mask, counts[k].mask);
    ndp_extent extent = inputs->items[labels].extent;
    ndp_bytes b = {p->batch.block, p->batch.offset + p->input_at[labels], 0};
    b.end = b.start + p->batch_stride * (size_t)(p->opts.step.accumulation - 1) + ndp_input_bytes(inputs, labels);
    ndp_held s = ndp_memory_find(&l->memory, b);
    bool all = in->base == b.block && in->offset == b.start && in->view.rows == p->opts.step.accumulation &&
               in->view.cols == inputs->rows[extent] && (size_t)in->view.ld * sizeof(int32_t) == p->batch_stride;
    if (!all || s.kind != NDP_HELD_INPUTS)
        return ndp_step_refuse(l, "counts other memory than the %s of all %d micro-batches", inputs->items[labels].name,
                               p->opts.step.accumulation);
    ndp_sum sum = {{0}};
    sum.by_own[l->world->data] = ndp_lane_rows(l->world->lanes, l->lane, extent);
    return ndp_step_scalar_write(l, made, sum);
}

static const ndp_sum complete = {{1}};

static ndp_status loss_scale(ndp_step_lane *l) {
    const ndp_call *c = &l->instr->call;
    int made = named(l, &c->out[0]);
    int scale = made == NDP_STEP_NLL_SCALE || made == NDP_STEP_ROUTER_SCALE ? made : NDP_STEP_SCALE;
    int of = scale == NDP_STEP_NLL_SCALE         ? NDP_STEP_NLL_TOKENS
             : scale == NDP_STEP_ROUTER_SCALE    ? NDP_STEP_ROUTED
             : ndp_program_has_pairs(l->program) ? NDP_STEP_PAIRS
                                                 : NDP_STEP_VALID;
    if (named(l, &c->in[0]) != of)
        return refuse_operand(l, of, false);
    if (named(l, &c->out[0]) != scale)
        return refuse_operand(l, scale, true);
    if (ndp_inputs_find(l->program->opts.model->inputs, NDP_INPUT_LABELS) >= 0) {
        NDP_TRY(ndp_step_scalar_needs(l, of));
        NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_VALID)); /* which is reported, if nothing else */
    }
    return ndp_step_scalar_write(l, scale, complete);
}

/* ---- zeros ---- */

static ndp_status zero(ndp_step_lane *l) {
    const ndp_operand *o = &l->instr->call.out[0];
    int scalar = named_of(l, o, o->view.cols);
    if (scalar != NDP_NONE && count_of(l, scalar) == o->view.cols)
        return ndp_step_scalar_write(l, scalar, (ndp_sum){{0}});
    if (o->view.rows > 1 && o->view.ld != o->view.cols)
        return ndp_step_refuse(l, "zeroes memory with gaps");
    return ndp_memory_write(&l->memory, ndp_step_bytes(o),
                            (ndp_held){.kind = NDP_HELD_ZERO, .of = NDP_NONE, .made = l->walk.at});
}

/* ---- the norm ---- */

/* The squares of all of the buffer on this rank's place of the axes that do not cut it into slices; of the slices, the
 * one that this rank has. */
static void add_squares(const ndp_step_lane *l, const ndp_piece_rows *rows, ndp_sum *sum) {
    const ndp_step_buffer *b = rows->buffer;
    const ndp_segments *table = ndp_step_table(l, rows->number);
    const ndp_segments *claimed = &l->program->opts.model->buffers[rows->number].segments;
    const ndp_members *owners = ndp_step_members(l, l->program->opts.model->buffers[rows->number].owners);
    int before = ndp_step_trained(l->world->whole, b->whole),
        trained = ndp_step_trained(l->world->whole, l->world->whole->n_buffers);
    ndp_share all = 0, slice = ndp_range_share(ndp_dim_make(0, 's'), owners->n, owners->me, owners->me + 1);
    for (int k = 0; k < b->n; k++) {
        const ndp_segment *s = &table->items[b->stretches[k].segment];
        int64_t n = (int64_t)claimed->items[b->stretches[k].segment].copies;
        ndp_share copies = n == 1 ? 1 : ndp_share_inverse(ndp_share_of(n));
        int tensor = before + b->stretches[k].segment;
        ndp_share weight = ndp_range_share(ndp_dim_make(0, 'n'), trained, tensor, tensor + 1);
        ndp_share part = ndp_step_measure(s, b->whole, b->stretches[k].segment, 0, ndp_segment_elements(s));
        all = ndp_share_add(all, ndp_share_mul(ndp_share_mul(weight, copies), part));
    }
    sum->by_own[owners->own] = ndp_share_add(sum->by_own[owners->own], ndp_share_mul(all, slice));
}

/* The buffer whose gradient's slice an operand is. */
static ndp_status find_slice(const ndp_step_lane *l, const ndp_operand *o, int *buffer) {
    const ndp_program *p = l->program;
    for (*buffer = 0; *buffer < p->opts.model->n_buffers; ++*buffer) {
        const ndp_owned *own = &p->owned[*buffer];
        if (own->grad.block == o->base && own->grad.offset == o->offset && own->shard.slice == o->view.cols)
            return NDP_OK;
    }
    return ndp_step_refuse(l, "its operand is not a slice of a gradient");
}

/* All pieces of a slice, each complete. */
static ndp_status square_sum(ndp_step_lane *l) {
    const ndp_call *c = &l->instr->call;
    ndp_piece_rows rows;
    ndp_sum sum = {{0}};
    int buffer;
    NDP_TRY(find_slice(l, &c->in[0], &buffer));
    NDP_TRY(ndp_step_pieces(l, &c->in[1], &rows));
    const ndp_step_buffer *b = &l->shared->buffers[buffer];
    if (rows.n != b->n_pieces || (rows.n > 0 && rows.number != buffer))
        return ndp_step_refuse(l, "sums %lld of the %lld pieces of %s", (long long)rows.n, (long long)b->n_pieces,
                               b->name);
    for (int64_t r = 0; r < rows.n; r++) {
        const int64_t *row = rows.rows + r * l->shared->columns;
        size_t at = c->in[0].offset + (size_t)row[NDP_PIECE_FIRST] * ndp_dtype_size(c->in[0].view.dtype);
        NDP_TRY(ndp_step_needs(l, c->in[0].base, at, NDP_HELD_GRAD, b,
                               b->shard.index * b->shard.slice + row[NDP_PIECE_FIRST], row[NDP_PIECE_COUNT],
                               c->in[0].view.dtype, 0));
    }
    if (named(l, &c->out[0]) != NDP_STEP_SQUARES)
        return refuse_operand(l, NDP_STEP_SQUARES, true);
    if (c->attr.accumulate && ndp_step_scalar_at(l, bytes_of(l, NDP_STEP_SQUARES)) != NDP_STEP_SQUARES)
        return ndp_step_refuse(l, "adds to a sum of squares that was not written in this step");
    if (c->attr.accumulate)
        sum = l->scalars[NDP_STEP_SQUARES];
    rows.buffer = b, rows.number = buffer;
    add_squares(l, &rows, &sum);
    return ndp_step_scalar_write(l, NDP_STEP_SQUARES, sum);
}

static ndp_status clip_factor(ndp_step_lane *l) {
    const ndp_call *c = &l->instr->call;
    if (named(l, &c->in[0]) != NDP_STEP_SQUARES)
        return refuse_operand(l, NDP_STEP_SQUARES, false);
    if (named(l, &c->in[1]) != NDP_STEP_LOSS)
        return refuse_operand(l, NDP_STEP_LOSS, false);
    if (named(l, &c->out[0]) != NDP_STEP_NORM || named(l, &c->out[1]) != NDP_STEP_CLIP)
        return refuse_operand(l, NDP_STEP_CLIP, true);
    if (c->attr.max_norm != l->program->opts.step.optimizer.max_norm)
        return ndp_step_refuse(l, "clips at %g, must be %g", c->attr.max_norm,
                               l->program->opts.step.optimizer.max_norm);
    if (c->attr.scale != 1)
        return ndp_step_refuse(l, "multiplies gradients by %g", c->attr.scale);
    NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_SQUARES));
    NDP_TRY(ndp_step_scalar_needs(l, NDP_STEP_LOSS));
    NDP_TRY(ndp_step_scalar_write(l, NDP_STEP_NORM, complete));
    return ndp_step_scalar_write(l, NDP_STEP_CLIP, complete);
}

/* ---- kernels ---- */

ndp_status ndp_step_kernel(ndp_step_lane *l) {
    const ndp_call *c = &l->instr->call;
    if (c->op->in_place && !ndp_operands_same(&c->in[0], &c->out[0]))
        return ndp_step_refuse(l, "changes one operand in place and names another");
    if (c->scratch != NDP_NONE)
        NDP_TRY(ndp_memory_clear(&l->memory, (ndp_bytes){c->scratch, 0, l->program->blocks[c->scratch].bytes}));
    switch (c->op->id) {
    case NDP_OP_zero:
        return zero(l);
    case NDP_OP_count_valid:
        return count_valid(l);
    case NDP_OP_loss_scale:
        return loss_scale(l);
    case NDP_OP_square_sum:
        return square_sum(l);
    case NDP_OP_clip_factor:
        return clip_factor(l);
    case NDP_OP_copy:
        return ndp_step_copy(l);
    case NDP_OP_newton_schulz:
        return ndp_step_transform(l);
    case NDP_OP_router_bias_step:
        return ndp_step_move(l);
    default:
        return ndp_step_update(l);
    }
}
