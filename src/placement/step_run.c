/* RUN: the first half of the contract under which the unit level has proven the list (unit.h), and what the run leaves
 * in memory. */
#include "placement/step_world.h"

#include <stddef.h>

typedef struct step_run {
    const ndp_list *list;
    const ndp_unit_program *program;
    const ndp_unit *unit;
    const ndp_unit_made *made;
    int micro_batch;  /* as numbered in the step */
    ndp_share weight; /* of the micro-batch */
} step_run;

static ndp_bytes bytes_of(const ndp_step_lane *l, int base, size_t n) {
    int block = l->instr->bases[base];
    return (ndp_bytes){block == NDP_NONE ? block : ndp_block_at(l->program->blocks, block, &l->walk), 0, n};
}

/* ---- activations ---- */

/* The bases of activations: what each holds, of this unit or of one before it, its bytes in ndp_unit_program, and the
 * phases that make it. */
enum { FORWARDS = 1 << NDP_FORWARD | 1 << NDP_FORWARD_DROP };
#define BYTES(field) offsetof(ndp_unit_program, field)
static const struct {
    ndp_held_kind kind;
    int before;
    size_t bytes;
    unsigned made;
} activations[NDP_BASE_WORK] = {
    [NDP_BASE_INPUT] = {NDP_HELD_BOUNDARY, 1, BYTES(input_bytes), 0},
    [NDP_BASE_OUTPUT] = {NDP_HELD_BOUNDARY, 0, BYTES(output_bytes), FORWARDS},
    [NDP_BASE_GRAD_OUTPUT] = {NDP_HELD_BOUNDARY_GRAD, 0, BYTES(output_bytes), 0},
    [NDP_BASE_GRAD_INPUT] = {NDP_HELD_BOUNDARY_GRAD, 1, BYTES(grad_input_bytes), 1 << NDP_BACKWARD_INPUT},
    [NDP_BASE_SAVED] = {NDP_HELD_SAVED, 0, BYTES(saved_bytes), 1 << NDP_FORWARD | 1 << NDP_RECOMPUTE},
    [NDP_BASE_SAVED_INPUT] = {NDP_HELD_SAVED_INPUT, 0, BYTES(saved_input_bytes), 1 << NDP_FORWARD | 1 << NDP_RECOMPUTE},
    [NDP_BASE_KEPT] = {NDP_HELD_KEPT, 0, BYTES(kept_bytes), 1 << NDP_FORWARD_DROP},
    [NDP_BASE_BETWEEN] = {NDP_HELD_BETWEEN, 0, BYTES(between_bytes), 1 << NDP_BACKWARD_INPUT},
};
#undef BYTES

static ndp_bytes activation_bytes(const ndp_step_lane *l, const step_run *r, int base) {
    return bytes_of(l, base, *(const size_t *)((const char *)r->program + activations[base].bytes));
}

static bool writes(const ndp_step_lane *l, const step_run *r, ndp_phase phase, int base) {
    return l->shared->written[r->unit->graph][phase] >> base & 1;
}

static bool makes(ndp_phase phase, int base) { return activations[base].made >> phase & 1; }

/* A recompute leaves the output as it is. */
static bool is_left_out(const step_run *r, ndp_phase phase, int base) {
    return !ndp_list_names(r->list, base) || (phase == NDP_RECOMPUTE && base == NDP_BASE_OUTPUT);
}

/* What a base is to hold. What the input gradients change in place the weight gradients read so; the lists were proven
 * in that order. */
static ndp_held activation_of(const ndp_step_lane *l, const step_run *r, int base) {
    bool changed =
        l->instr->phase == NDP_BACKWARD_WEIGHT && base != NDP_BASE_BETWEEN && writes(l, r, NDP_BACKWARD_INPUT, base);
    return (ndp_held){.kind = activations[base].kind,
                      .of = r->unit->number - activations[base].before,
                      .at = r->micro_batch,
                      .share = changed ? 1u << NDP_BACKWARD_INPUT : 0,
                      .made = NDP_NONE};
}

static bool holds(const ndp_held *s, const ndp_held *want) {
    return s->kind == want->kind && s->of == want->of && s->at == want->at && s->share == want->share;
}

static ndp_status read_activation(ndp_step_lane *l, const step_run *r, int base) {
    ndp_bytes b = activation_bytes(l, r, base);
    ndp_held want = activation_of(l, r, base), s = ndp_memory_find(&l->memory, b);
    if (!holds(&s, &want) || s.first + (int64_t)(b.start - s.start) != 0) {
        while (ndp_memory_next(&l->memory, b.block, &b.start, b.end, &s) && holds(&s, &want))
            ;
        return ndp_step_refuse(l, "%s is %s, must be %s", ndp_base_name(base), ndp_held_text(l, &s).s,
                               ndp_held_text(l, &want).s);
    }
    if (!writes(l, r, l->instr->phase, base))
        return NDP_OK;
    s.first = 0;
    s.share |= 1u << l->instr->phase;
    return ndp_memory_write(&l->memory, b, s);
}

static ndp_status write_activation(ndp_step_lane *l, const step_run *r, int base) {
    ndp_bytes b = activation_bytes(l, r, base);
    ndp_held made = activation_of(l, r, base);
    if (b.block == NDP_NONE || b.end > l->program->blocks[b.block].bytes)
        return ndp_step_refuse(l, "%s has no memory of %zu bytes", ndp_base_name(base), b.end);
    made.made = l->walk.at;
    return ndp_memory_write(&l->memory, b, made);
}

/* ---- parameters ---- */

static ndp_status read_param(ndp_step_lane *l, const step_run *r, int slot) {
    int buffer = r->unit->buffers[slot];
    if (buffer == NDP_NONE)
        return ndp_step_refuse(l, "the unit has no buffer in slot %d", slot);
    const ndp_step_buffer *b = &l->shared->buffers[buffer];
    int64_t end = ndp_step_buffer_end(b);
    ndp_dtype type = l->program->opts.model->buffers[buffer].storage.kept;
    ndp_bytes bytes = bytes_of(l, NDP_BASE_PARAM + slot, (size_t)end * ndp_dtype_size(type));
    ndp_step_reads(l, buffer);
    return ndp_step_needs(l, bytes.block, 0, NDP_HELD_PARAM, b, 0, end, type, 0);
}

/* ---- inputs ---- */

static ndp_status read_input(const ndp_step_lane *l, int input) {
    const ndp_program *p = l->program;
    const ndp_inputs *inputs = p->opts.model->inputs;
    ndp_input_kind kind = inputs->items[input].kind;
    bool batch = ndp_input_is_of_batch(kind);
    int scalar = ndp_step_scalar_of(kind);
    bool added = scalar == NDP_STEP_LOSS || scalar == NDP_STEP_ROUTERS || scalar == NDP_STEP_LOADS;
    if (scalar != NDP_NONE && !added)
        return ndp_step_scalar_needs(l, scalar);
    if (!batch && !ndp_input_is_table(kind))
        return NDP_OK;
    size_t at = p->input_at[input] + (batch ? (size_t)ndp_micro_batch_at(l->instr, &l->walk) * p->batch_stride : 0);
    ndp_bytes b = {batch ? p->batch.block : p->tables.block, at, at + ndp_input_bytes(inputs, input)};
    ndp_held s = ndp_memory_find(&l->memory, b);
    return s.kind == NDP_HELD_INPUTS && s.of == !batch
               ? NDP_OK
               : ndp_step_refuse(l, "input %s was overwritten", inputs->items[input].name);
}

/* The losses of all routers are one sum; the loads of all mixtures count as one. */
static ndp_status add_sum(ndp_step_lane *l, const step_run *r, ndp_sum_made made, int scalar) {
    ndp_sum sum = {{0}};
    if (made.share == 0 && !made.adds)
        return NDP_OK;
    int64_t routers = scalar == NDP_STEP_ROUTERS ? ndp_model_router_losses(l->world->whole)
                      : scalar == NDP_STEP_LOADS ? l->world->whole->inputs->mixtures.n
                                                 : 1;
    if (made.adds) {
        if (!ndp_step_scalar_is_written(l, scalar))
            return ndp_step_refuse(l, "adds to the %s, which was not set to zero in this step",
                                   ndp_step_scalar_name(scalar));
        sum = l->scalars[scalar];
    }
    ndp_share *own = &sum.by_own[l->world->data];
    *own = ndp_share_add(*own,
                         ndp_share_mul(ndp_share_mul(made.share, ndp_share_inverse(ndp_share_of(routers))), r->weight));
    return ndp_step_scalar_write(l, scalar, sum);
}

/* ---- gradients ---- */

static ndp_status contribute(ndp_step_lane *l, const step_run *r, const ndp_contribution *c) {
    int buffer = r->unit->buffers[c->slot];
    if (buffer == NDP_NONE || l->instr->bases[NDP_BASE_PGRAD + c->slot] == NDP_NONE)
        return ndp_step_refuse(l, "no memory is given for the gradient of slot %d", c->slot);
    const ndp_step_buffer *b = &l->shared->buffers[buffer];
    ndp_dtype type = l->program->opts.model->buffers[buffer].storage.gradient;
    size_t size = ndp_dtype_size(type), at = (size_t)c->first * size;
    ndp_bytes bytes = bytes_of(l, NDP_BASE_PGRAD + c->slot, at + (size_t)c->count * size);
    bool adds = c->pgrad == NDP_NONE ? c->adds : l->instr->accumulate >> c->pgrad & 1u;
    ndp_share use = ndp_use_weight(l->world->units, r->unit->number, c->slot, c->segment);
    ndp_held s = {.kind = NDP_HELD_GRAD,
                  .of = b->whole,
                  .first = c->first,
                  .type = type,
                  .own = l->world->data,
                  .share = ndp_share_mul(c->share, ndp_share_mul(use, r->weight)),
                  .made = l->walk.at};
    bytes.start = at;
    if (bytes.end > l->program->blocks[bytes.block].bytes)
        return ndp_step_refuse(l, "the gradient of %s ends behind its block", b->name);
    return adds ? ndp_step_add(l, bytes, &s, b->name) : ndp_memory_write(&l->memory, bytes, s);
}

/* ---- the run ---- */

static ndp_status find_run(const ndp_step_lane *l, step_run *r) {
    const ndp_step_world *w = l->world;
    const ndp_model *m = l->program->opts.model;
    const ndp_instr *in = l->instr;
    r->list = ndp_program_list(l->program, in);
    r->unit = &m->units[in->unit];
    r->program = &l->program->opts.units[r->unit->graph];
    r->made = ndp_units_made(w->units, l->lane, r->unit->graph, in->phase);
    r->micro_batch = ndp_micro_batch_at(in, &l->walk);
    int counted = r->micro_batch - w->without;
    if (counted < 0 || counted >= w->micro_batches)
        return ndp_step_refuse(l, "micro-batch %d of %d", r->micro_batch, l->program->opts.step.accumulation);
    r->weight = ndp_step_weight(w, counted);
    return NDP_OK;
}

/* The run writes these bytes while it reads the others. */
static ndp_status clear_results(ndp_step_lane *l, const step_run *r) {
    for (int base = NDP_BASE_INPUT; base < NDP_BASE_WORK; base++)
        if (!is_left_out(r, l->instr->phase, base) && makes(l->instr->phase, base))
            NDP_TRY(ndp_memory_clear(&l->memory, activation_bytes(l, r, base)));
    return ndp_memory_clear(&l->memory, bytes_of(l, NDP_BASE_WORK, r->list->work_bytes));
}

ndp_status ndp_step_run(ndp_step_lane *l) {
    step_run r;
    NDP_TRY(find_run(l, &r));
    ndp_phase phase = l->instr->phase;
    NDP_TRY(clear_results(l, &r));
    for (int base = NDP_BASE_INPUT; base < NDP_BASE_WORK; base++)
        if (!is_left_out(&r, phase, base) && !makes(phase, base))
            NDP_TRY(read_activation(l, &r, base));
    for (int s = 0; s < NDP_SLOTS; s++)
        if (ndp_list_names(r.list, NDP_BASE_PARAM + s))
            NDP_TRY(read_param(l, &r, s));
    for (int i = 0; i < l->program->opts.model->inputs->n; i++)
        if (ndp_list_names(r.list, NDP_BASE_DATA + i))
            NDP_TRY(read_input(l, i));
    for (int base = NDP_BASE_INPUT; base < NDP_BASE_WORK; base++)
        if (!is_left_out(&r, phase, base) && makes(phase, base))
            NDP_TRY(write_activation(l, &r, base));
    for (int i = 0; i < r.made->n; i++)
        NDP_TRY(contribute(l, &r, &r.made->items[i]));
    NDP_TRY(add_sum(l, &r, r.made->sums[NDP_MADE_LOSS], NDP_STEP_LOSS));
    NDP_TRY(add_sum(l, &r, r.made->sums[NDP_MADE_LOADS], NDP_STEP_LOADS));
    return add_sum(l, &r, r.made->sums[NDP_MADE_ROUTERS], NDP_STEP_ROUTERS);
}
