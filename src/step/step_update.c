/* The program's own kernel calls: the loss scale before the first run; norm, clipping and updates after the last one.
 * They work on scalars and owned slices in the device's memory, so the host reads nothing during a step. */
#include "ops/pieces.h"
#include "step/builder.h"

#include <stddef.h>

static ndp_operand scalar(const ndp_program *p, size_t field, ndp_dtype type) {
    return ndp_operand_at((ndp_address){p->scalars.block, field}, 1, 1, type);
}

#define SCALAR(field, type) scalar(p, offsetof(ndp_scalars, field), type)

/* ---- before the runs ---- */

/* The labels of all micro-batches, one row each. False if the model has no labels. */
static bool labels_of(const ndp_program *p, ndp_operand *out) {
    const ndp_inputs *inputs = p->opts.model->inputs;
    for (int i = 0; i < inputs->n; i++)
        if (inputs->items[i].kind == NDP_INPUT_LABELS) {
            *out = ndp_operand_at(ndp_program_input(p, i, 0), p->opts.accumulation,
                                  inputs->rows[inputs->items[i].extent], NDP_I32);
            out->view.ld = (int64_t)(p->batch_stride / sizeof(int32_t));
            return true;
        }
    return false;
}

ndp_status ndp_emit_loss_scale(ndp_builder *b) {
    ndp_program *p = b->p;
    const ndp_op_attr none = {0};
    ndp_operand labels, valid = SCALAR(valid, NDP_I64), scale = SCALAR(scale, NDP_F64), loss = SCALAR(loss, NDP_F64);
    if (labels_of(p, &labels))
        NDP_TRY(ndp_emit_kernel(p, &ndp_op_count_valid, &none, &labels, 1, &valid, 1, "tokens"));
    NDP_TRY(ndp_emit_scalar(p, NDP_GROUP_LOSS, offsetof(ndp_scalars, valid), NDP_I64, "valid_tokens"));
    NDP_TRY(ndp_emit_kernel(p, &ndp_op_loss_scale, &none, &valid, 1, &scale, 1, "loss"));
    return ndp_emit_kernel(p, &ndp_op_zero, &none, &loss, 1, &loss, 1, "loss");
}

/* ---- after them ---- */

static ndp_operand slice_of(const ndp_owned *o, ndp_address at, ndp_dtype type) {
    return at.block == NDP_NONE ? (ndp_operand){.base = NDP_NONE, .value = NDP_NONE}
                                : ndp_operand_at(at, 1, o->shard.slice, type);
}

static ndp_operand pieces_of(const ndp_owned *o) {
    return o->pieces.block == NDP_NONE ? (ndp_operand){.base = NDP_NONE, .value = NDP_NONE}
                                       : ndp_operand_at(o->pieces, o->n_pieces, NDP_PIECE_COLUMNS, NDP_I64);
}

/* Adds buffers in their order, and pieces in the order of their buffer, so the sum has the same bits every time. */
static ndp_status emit_norm(ndp_builder *b) {
    ndp_program *p = b->p;
    ndp_operand squares = SCALAR(squares, NDP_F64), clipped[] = {SCALAR(norm, NDP_F64), SCALAR(clip, NDP_F64)};
    bool begun = false;
    for (int i = 0; i < b->m->n_buffers; i++) {
        const ndp_owned *o = &p->owned[i];
        const ndp_op_attr attr = {.accumulate = begun};
        ndp_operand in[] = {slice_of(o, o->grad, b->m->buffers[i].storage.gradient), pieces_of(o)};
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
    const ndp_op_attr most = {.max_norm = p->opts.optimizer.max_norm};
    return ndp_emit_kernel(p, &ndp_op_clip_factor, &most, &squares, 1, clipped, 2, "grad_norm");
}

static ndp_status emit_buffer(ndp_builder *b, int i) {
    ndp_program *p = b->p;
    const ndp_owned *o = &p->owned[i];
    const ndp_storage *types = &b->m->buffers[i].storage;
    const ndp_op_attr none = {0};
    ndp_operand in[NDP_UPDATE_OPERANDS], weights = slice_of(o, o->master, types->master);
    in[NDP_UPDATE_WEIGHT] = weights;
    in[NDP_UPDATE_GRAD] = slice_of(o, o->grad, types->gradient);
    in[NDP_UPDATE_PIECES] = pieces_of(o);
    in[NDP_UPDATE_CONSTANTS] = ndp_operand_at(p->constants, 1, NDP_OPTIMIZER_CONSTANTS, NDP_F64);
    in[NDP_UPDATE_CLIP] = SCALAR(clip, NDP_F64);
    for (int s = 0; s < NDP_OPTIMIZER_STATES; s++)
        in[NDP_UPDATE_STATE + s] = slice_of(o, o->state[s], types->state);
    const ndp_address nowhere = {NDP_NONE, 0};
    ndp_operand out[] = {weights, slice_of(o, o->shard.same ? nowhere : o->send, types->compute)};
    return ndp_emit_kernel(p, ndp_optimizers[p->opts.optimizer.name]->op, &none, in, NDP_UPDATE_OPERANDS, out, 2,
                           b->m->buffers[i].name);
}

ndp_status ndp_emit_update(ndp_builder *b) {
    NDP_TRY(ndp_reduce_copies(b));
    NDP_TRY(emit_norm(b));
    b->p->first_update = b->p->n;
    for (int i = 0; i < b->m->n_buffers; i++)
        if (b->m->buffers[i].trainable)
            NDP_TRY(emit_buffer(b, i));
    return NDP_OK;
}
