/* The program's own kernel calls: the loss scale before the first run; norm, clipping and updates after the last one.
 * They work on scalars and owned slices in the device's memory, so the host reads nothing during a step. */
#include "step/program_parts.h"

#include <stddef.h>

static ndp_operand scalar(const ndp_program *p, size_t field, ndp_dtype type) {
    return ndp_operand_at((ndp_address){p->scalars.block, field}, 1, 1, type);
}

#define SCALAR(field, type) scalar(p, offsetof(ndp_scalars, field), type)
#define ALL(field, type) scalar(p, offsetof(ndp_all_scalars, field), type)

/* ---- before the runs ---- */

/* An input of tokens of all micro-batches, one row each. False if the model has none of that kind. */
static bool input_of(const ndp_program *p, ndp_input_kind kind, ndp_operand *out) {
    const ndp_inputs *inputs = p->opts.model->inputs;
    for (int i = 0; i < inputs->n; i++)
        if (inputs->items[i].kind == kind) {
            *out = ndp_operand_at(ndp_program_input(p, i, 0), p->opts.step.accumulation,
                                  inputs->rows[inputs->items[i].extent], NDP_I32);
            out->view.ld = (int64_t)(p->batch_stride / sizeof(int32_t));
            return true;
        }
    return false;
}

/* Counts numbers of all micro-batches and ranks: those of an input of rows that have the mark (0: that are not
 * negative); *scale gets one over them. */
static ndp_status emit_count(ndp_program *p, ndp_input_kind kind, int mark, size_t count, const char *what,
                             const ndp_operand *scale) {
    const ndp_op_attr marked = {.mask = mark}, none = {0};
    ndp_operand rows, counted = scalar(p, count, NDP_I64);
    if (!input_of(p, kind, &rows))
        return NDP_FAIL(NDP_EBUG, "the model has no input whose %s could be counted", what);
    NDP_TRY(ndp_emit_kernel(p, &ndp_op_count_valid, &marked, &rows, 1, &counted, 1, what));
    NDP_TRY(ndp_emit_scalar(p, NDP_GROUP_LOSS, count, NDP_I64, what));
    return ndp_emit_kernel(p, &ndp_op_loss_scale, &none, &counted, 1, scale, 1, what);
}

static ndp_status emit_pairs(ndp_program *p) {
    ndp_operand scale = SCALAR(scale, NDP_F64), nll_scale = ALL(pair.nll_scale, NDP_F64);
    NDP_TRY(
        emit_count(p, NDP_INPUT_DOCUMENTS, NDP_DOCUMENT_PAIR, offsetof(ndp_all_scalars, pair.pairs), "pairs", &scale));
    return emit_count(p, NDP_INPUT_DOCUMENTS, NDP_DOCUMENT_NLL, offsetof(ndp_all_scalars, pair.nll_tokens),
                      "nll_tokens", &nll_scale);
}

static ndp_status emit_router_scale(ndp_program *p) {
    ndp_operand scale = ALL(router.scale, NDP_F64);
    ndp_operand sums = ndp_operand_at((ndp_address){p->scalars.block, offsetof(ndp_all_scalars, router.sums)}, 1,
                                      NDP_ROUTER_LOSSES, NDP_F64);
    NDP_TRY(emit_count(p, NDP_INPUT_SAMPLES, 0, offsetof(ndp_all_scalars, router.rows), "routed_rows", &scale));
    return ndp_emit_kernel(p, &ndp_op_zero, &(ndp_op_attr){0}, &sums, 1, &sums, 1, "router_losses");
}

ndp_status ndp_emit_loss_scale(ndp_builder *b) {
    ndp_program *p = b->p;
    const ndp_op_attr none = {0};
    ndp_operand labels, valid = SCALAR(valid, NDP_I64), scale = SCALAR(scale, NDP_F64);
    ndp_operand loss = ndp_operand_at((ndp_address){p->scalars.block, ndp_loss_at(p)}, 1, ndp_loss_sums(p), NDP_F64);
    if (input_of(p, NDP_INPUT_LABELS, &labels))
        NDP_TRY(ndp_emit_kernel(p, &ndp_op_count_valid, &none, &labels, 1, &valid, 1, "tokens"));
    NDP_TRY(ndp_emit_scalar(p, NDP_GROUP_LOSS, offsetof(ndp_scalars, valid), NDP_I64, "valid_tokens"));
    if (!ndp_program_has_pairs(p))
        NDP_TRY(ndp_emit_kernel(p, &ndp_op_loss_scale, &none, &valid, 1, &scale, 1, "loss"));
    if (ndp_program_has_pairs(p))
        NDP_TRY(emit_pairs(p));
    if (ndp_program_has_router_losses(p))
        NDP_TRY(emit_router_scale(p));
    if (ndp_program_loads(p) > 0) {
        ndp_operand loads = ndp_operand_at(p->loads, 1, ndp_program_loads(p), NDP_F64);
        NDP_TRY(ndp_emit_kernel(p, &ndp_op_zero, &none, &loads, 1, &loads, 1, "loads"));
    }
    return ndp_emit_kernel(p, &ndp_op_zero, &none, &loss, 1, &loss, 1, "loss");
}

/* ---- after them ---- */

static const ndp_operand absent = {.base = NDP_NONE, .value = NDP_NONE};

static ndp_operand row_at(ndp_address at, int64_t n, ndp_dtype type) {
    return at.block == NDP_NONE ? absent : ndp_operand_at(at, 1, n, type);
}

static ndp_operand slice_of(const ndp_owned *o, ndp_address at, ndp_dtype type) {
    return row_at(at, o->shard.slice, type);
}

/* Rows [first, end) of the table. */
static ndp_operand pieces_of(const ndp_program *p, const ndp_owned *o, int64_t first, int64_t end) {
    int columns = ndp_piece_columns(&p->groups);
    ndp_address at = {o->pieces.block, o->pieces.offset + (size_t)(first * columns) * sizeof(int64_t)};
    return at.block == NDP_NONE || first == end ? absent : ndp_operand_at(at, end - first, columns, NDP_I64);
}

/* Sums over the axes of one replica, so each element of its buffers counts once, on any of its owners
 * (segment.copies). Adds buffers in their order, and pieces in the order of their buffer, so the sum has the same bits
 * every time. The factor is NaN where the norm or the loss is not finite. All updates get it, and then write nothing:
 * such a step leaves the weights as they were, even if the next step was already submitted. */
static ndp_status emit_norm(ndp_builder *b) {
    ndp_program *p = b->p;
    ndp_operand squares = SCALAR(squares, NDP_F64), clipped[] = {SCALAR(norm, NDP_F64), SCALAR(clip, NDP_F64)};
    bool begun = false;
    for (int i = 0; i < b->m->n_buffers; i++) {
        const ndp_owned *o = &p->owned[i];
        const ndp_op_attr attr = {.accumulate = begun};
        ndp_operand in[] = {slice_of(o, o->grad, b->m->buffers[i].storage.gradient), pieces_of(p, o, 0, o->n_pieces)};
        if (!b->m->buffers[i].trainable)
            continue;
        NDP_TRY(ndp_emit_kernel(p, &ndp_op_square_sum, &attr, in, 2, &squares, 1, b->m->buffers[i].name));
        begun = true;
    }
    const ndp_op_attr none = {0};
    if (!begun) /* a stage with nothing to train */
        NDP_TRY(ndp_emit_kernel(p, &ndp_op_zero, &none, &squares, 1, &squares, 1, "grad_norm"));
    NDP_TRY(ndp_emit_scalar(p, NDP_GROUP_SHARD, offsetof(ndp_scalars, squares), NDP_F64, "grad_norm"));
    NDP_TRY(ndp_emit_scalar(p, NDP_GROUP_TP, offsetof(ndp_scalars, squares), NDP_F64, "grad_norm"));
    NDP_TRY(ndp_emit_scalar(p, NDP_GROUP_PP, offsetof(ndp_scalars, squares), NDP_F64, "grad_norm"));
    const ndp_op_attr most = {.max_norm = p->opts.step.optimizer.max_norm, .scale = 1};
    ndp_operand finite[] = {squares, scalar(p, ndp_loss_at(p), NDP_F64)};
    return ndp_emit_kernel(p, &ndp_op_clip_factor, &most, finite, 2, clipped, 2, "grad_norm");
}

/* An op that walks pieces of a buffer. */
typedef struct update_call {
    const ndp_op *op;
    ndp_operand weights, grad, pieces, clip, copy;
    int states; /* at most */
} update_call;

/* The states of a buffer that an op reads and writes: numbers, or codes and scales. */
static void put_states(const ndp_builder *b, int i, const update_call *u, ndp_operand *in) {
    const ndp_owned *o = &b->p->owned[i];
    ndp_dtype type = b->m->buffers[i].storage.state;
    bool coded = u->op->n_in > NDP_UPDATE_OPERANDS;
    for (int s = 0; s < NDP_OPTIMIZER_STATES; s++) {
        in[NDP_UPDATE_STATE + s] = s >= u->states ? absent
                                   : coded        ? slice_of(o, o->codes[s], NDP_U8)
                                                  : row_at(o->state[s], o->state_n[s], type);
        if (coded)
            in[NDP_UPDATE_SCALES + s] = row_at(o->scales[s], o->n_scales, ndp_wide(type));
    }
}

static ndp_status emit_call(ndp_builder *b, int i, const update_call *u) {
    const ndp_op_attr none = {0};
    ndp_operand in[NDP_CODED_OPERANDS], out[] = {u->weights, u->copy};
    in[NDP_UPDATE_WEIGHT] = u->weights;
    in[NDP_UPDATE_GRAD] = u->grad;
    in[NDP_UPDATE_PIECES] = u->pieces;
    in[NDP_UPDATE_CONSTANTS] = ndp_operand_at(b->p->constants, b->p->groups.n, NDP_OPTIMIZER_CONSTANTS, NDP_F64);
    in[NDP_UPDATE_CLIP] = u->clip;
    put_states(b, i, u, in);
    return ndp_emit_kernel(b->p, u->op, &none, in, u->op->n_in, out, 2, b->m->buffers[i].name);
}

/* True if an optimizer updates some tensor of a buffer. */
static bool updates(const ndp_program *p, const ndp_segments *s, ndp_optimizer_name name) {
    bool any = false;
    for (int i = 0; i < s->n; i++)
        any |= ndp_update_opts_of(&p->groups, &s->items[i])->name == name;
    return any;
}

/* Tensors that an optimizer updates as whole matrices. A rank without pieces of them gathers like the others. */
static ndp_status emit_whole(ndp_builder *b, int i, const update_call *u, ndp_optimizer_name name, int64_t pieces) {
    const ndp_owned *o = &b->p->owned[i];
    ndp_dtype type = ndp_wide(b->m->buffers[i].storage.gradient);
    ndp_address slice = {NDP_NONE, 0};
    update_call direct = *u, apply = *u;
    if (!updates(b->p, &b->m->buffers[i].segments, name))
        return NDP_OK;
    NDP_TRY(ndp_block_add(b->p, NDP_MEM_WORK, (size_t)o->shard.slice * ndp_dtype_size(type), &slice.block));
    direct.op = ndp_optimizers[name]->whole.direction;
    direct.weights = slice_of(o, slice, type);
    direct.copy = absent;
    if (pieces > 0)
        NDP_TRY(emit_call(b, i, &direct));
    NDP_TRY(ndp_transform_matrices(b, i, name, &slice));
    apply.grad = slice_of(o, slice, type);
    apply.states = 0;
    return pieces > 0 ? emit_call(b, i, &apply) : NDP_OK;
}

/* One optimizer after the other, the last of the table first. Where there is only one, ranks with nothing but padding
 * have the same program as the others. */
static ndp_status emit_buffer(ndp_builder *b, int i) {
    ndp_program *p = b->p;
    const ndp_owned *o = &p->owned[i];
    const ndp_storage *types = &b->m->buffers[i].storage;
    int64_t end = o->n_pieces;
    for (int k = p->groups.n_used; k-- > 0; end -= o->n_of[k]) {
        const ndp_optimizer *optimizer = ndp_optimizers[p->groups.used[k]];
        update_call u = {.op = optimizer->op,
                         .weights = slice_of(o, o->master, types->master),
                         .grad = slice_of(o, o->grad, types->gradient),
                         .pieces = pieces_of(p, o, end - o->n_of[k], end),
                         .clip = SCALAR(clip, NDP_F64),
                         .copy = o->shard.same ? absent : slice_of(o, o->send, types->kept),
                         .states = ndp_optimizer_codes(p->groups.used[k]) ? NDP_OPTIMIZER_STATES : p->groups.states[k]};
        if (optimizer->whole.transform)
            NDP_TRY(emit_whole(b, i, &u, p->groups.used[k], o->n_of[k]));
        else if (o->n_of[k] > 0 || p->groups.n_used == 1)
            NDP_TRY(emit_call(b, i, &u));
    }
    return NDP_OK;
}

/* Biases of routers, by the loads of the whole update, which are known before the norm. Each owner moves its slice. */
static ndp_status emit_bias(ndp_builder *b, int unit, int i) {
    ndp_program *p = b->p;
    const ndp_owned *o = &p->owned[i];
    int64_t experts = p->opts.whole->inputs->mixtures.experts, first = o->shard.index * o->shard.slice;
    const ndp_op_attr attr = {.scale = b->m->opts.router.bias_rate, .first = first < experts ? first : experts};
    ndp_operand bias = slice_of(o, o->master, b->m->buffers[i].storage.master);
    ndp_operand in[] = {bias, ndp_operand_at(ndp_program_loads_of(p, unit), 1, experts, NDP_F64),
                        SCALAR(clip, NDP_F64)};
    return ndp_emit_kernel(p, &ndp_op_router_bias_step, &attr, in, 3, &bias, 1, b->m->buffers[i].name);
}

static ndp_status emit_biases(ndp_builder *b) {
    for (int u = 0; u < b->m->n_units; u++)
        for (int s = 0; s < NDP_SLOTS; s++) {
            int i = b->m->units[u].buffers[s];
            if (i != NDP_NONE && b->m->buffers[i].moves)
                NDP_TRY(emit_bias(b, u, i));
        }
    return NDP_OK;
}

ndp_status ndp_emit_update(ndp_builder *b) {
    b->p->first_norm = b->p->n;
    NDP_TRY(ndp_reduce_copies(b));
    NDP_TRY(emit_norm(b));
    b->p->first_update = b->p->n;
    for (int i = 0; i < b->m->n_buffers; i++)
        if (b->m->buffers[i].trainable)
            NDP_TRY(emit_buffer(b, i));
    return emit_biases(b);
}
