/* Appending blocks and instructions to a program. The builder's stages call these functions; nothing else changes the
 * two arrays.
 *
 * Invariant: a block lives from the first instruction that names it to the last one. ndp_emit extends the life of every
 * block that an instruction names, so a stage never states a life, and the memory plan can rely on all of them. */
#include "step/program_parts.h"

const ndp_list *ndp_list_of_run(const ndp_builder *b, int r) {
    const ndp_unit_run *run = &b->runs[r];
    return &b->p->opts.units[b->m->units[run->unit].graph].lists[run->phase];
}

static ndp_status add(ndp_program *p, ndp_memory_class class, ndp_region region, bool persistent, size_t bytes,
                      int *out) {
    NDP_TRY(ndp_array_reserve(&p->blocks, &p->block_capacity, p->n_blocks + 1, sizeof *p->blocks));
    p->blocks[p->n_blocks] = (ndp_block){.class = class,
                                         .region = region,
                                         .persistent = persistent,
                                         .bytes = bytes,
                                         .life = {-1, -1, 0, 0},
                                         .ring = {p->n_blocks, 1},
                                         .role = NDP_NONE};
    *out = p->n_blocks++;
    return NDP_OK;
}

ndp_status ndp_block_add(ndp_program *p, ndp_memory_class class, size_t bytes, int *out) {
    return add(p, class, NDP_REGION_ARENA, false, bytes, out);
}

ndp_status ndp_block_of_role(ndp_program *p, size_t bytes, int role, int micro_batch, int *out) {
    NDP_TRY(ndp_block_add(p, NDP_MEM_ACTIVATIONS, bytes, out));
    p->blocks[*out].role = role;
    p->blocks[*out].micro_batch = micro_batch;
    return NDP_OK;
}

ndp_status ndp_block_keep(ndp_program *p, ndp_memory_class class, ndp_region region, size_t bytes, ndp_address *out) {
    out->offset = 0;
    return add(p, class, region, true, bytes, &out->block);
}

static void touch(ndp_program *p, int block) {
    if (block == NDP_NONE)
        return;
    ndp_block *b = &p->blocks[block];
    if (b->life.first < 0)
        b->life.first = p->n;
    b->life.last = p->n;
}

ndp_status ndp_emit(ndp_program *p, ndp_instr in) {
    NDP_TRY(ndp_array_reserve(&p->instrs, &p->capacity, p->n + 1, sizeof *p->instrs));
    if (in.code == NDP_DO_RUN)
        for (int i = 0; i < NDP_BASE_DATA; i++)
            touch(p, in.bases[i]);
    if (in.code == NDP_DO_CALL) {
        for (int k = 0; k < in.call.n_in; k++)
            touch(p, in.call.in[k].base);
        for (int k = 0; k < in.call.n_out; k++)
            touch(p, in.call.out[k].base);
        touch(p, in.call.scratch);
    }
    p->instrs[p->n++] = in;
    p->n_works = p->n;
    return NDP_OK;
}

ndp_operand ndp_operand_at(ndp_address at, int64_t rows, int64_t cols, ndp_dtype type) {
    return (ndp_operand){.base = at.block,
                         .value = NDP_NONE,
                         .offset = at.offset,
                         .view = {.dtype = type, .rows = rows, .cols = cols, .ld = cols}};
}

/* Finds the size of a kernel's scratch memory, which lives for its instruction alone, and prepares the kernel. */
static ndp_status take_scratch(ndp_program *p, ndp_call *c) {
    ndp_op_call shapes = {.op = c->op, .attr = &c->attr, .exec = p->opts.step.exec};
    for (int k = 0; k < c->n_in; k++)
        shapes.in[k] = c->in[k].view;
    for (int k = 0; k < c->n_out; k++)
        shapes.out[k] = c->out[k].view;
    NDP_TRY(c->op->shape(&shapes));
    if (c->kernel->prepare && p->opts.step.exec->device->executes)
        NDP_TRY(c->kernel->prepare(&shapes));
    c->plan[0] = shapes.plan;
    size_t bytes = c->kernel->scratch ? c->kernel->scratch(&shapes) : 0;
    return bytes > 0 ? ndp_block_add(p, NDP_MEM_WORK, bytes, &c->scratch) : NDP_OK;
}

ndp_status ndp_emit_kernel(ndp_program *p, const ndp_op *op, const ndp_op_attr *attr, const ndp_operand *in, int n_in,
                           const ndp_operand *out, int n_out, const char *what) {
    ndp_instr instr = {.code = NDP_DO_CALL, .what = what, .buffer = NDP_NONE, .role = NDP_NONE};
    NDP_TRY(ndp_call_init(&instr.call, &p->arena, op, attr, in, n_in, out, n_out));
    NDP_TRY(ndp_call_find_kernel(&instr.call, p->opts.step.exec->device));
    NDP_TRY(take_scratch(p, &instr.call));
    return ndp_emit(p, instr);
}

ndp_status ndp_emit_begin(ndp_program *p, const ndp_collective_call *c, int *index) {
    int ranks = ndp_mesh_group(&p->opts.step.mesh, c->group).count;
    ndp_op_attr attr = {.group = (int)c->group, .ranks = ranks, .accumulate = c->add, .peer = c->peer, .tag = c->tag};
    bool message = c->op == &ndp_op_send || c->op == &ndp_op_recv;
    bool gathers = c->op == &ndp_op_all_gather, scatters = c->op == &ndp_op_reduce_scatter;
    ndp_operand in = ndp_operand_at(c->in, scatters ? ranks : 1, c->count, c->type);
    ndp_operand out = ndp_operand_at(c->out, gathers ? ranks : 1, c->count, c->type);
    ndp_instr instr = {.code = NDP_DO_CALL, .what = c->what, .buffer = c->buffer, .micro_batch = c->micro_batch};
    NDP_TRY(ndp_call_init(&instr.call, &p->arena, c->op, &attr, &in, 1, &out, 1));
    bool owners = c->buffer != NDP_NONE && p->opts.model->buffers[c->buffer].owners == c->group;
    instr.call.channel = gathers && owners ? NDP_CHANNEL_GATHERS + (int)c->group
                         : !message        ? (int)c->group
                                           : (c->backward ? NDP_CHANNEL_BACKWARD : NDP_CHANNEL_FORWARD);
    instr.call.what = c->what;
    instr.call.in_place = c->in_place;
    instr.work = *index = p->n;
    instr.works = (ndp_ring){instr.work, 1};
    instr.role = message ? c->role : NDP_NONE;
    return ndp_emit(p, instr);
}

ndp_status ndp_emit_wait(ndp_program *p, int begin) {
    ndp_instr in = p->instrs[begin];
    in.call.kind = NDP_CALL_WAIT;
    in.call.partner = begin;
    p->instrs[begin].call.partner = p->n;
    return ndp_emit(p, in);
}

static ndp_status emit_sum(ndp_program *p, ndp_group_kind group, size_t field, int64_t count, ndp_dtype type,
                           const char *what) {
    ndp_address at = {p->scalars.block, field};
    int begin;
    if (ndp_mesh_group(&p->opts.step.mesh, group).count == 1)
        return NDP_OK;
    NDP_TRY(ndp_emit_begin(p,
                           &(ndp_collective_call){.op = &ndp_op_all_reduce,
                                                  .group = group,
                                                  .in = at,
                                                  .out = at,
                                                  .count = count,
                                                  .type = type,
                                                  .what = what,
                                                  .buffer = NDP_NONE},
                           &begin));
    return ndp_emit_wait(p, begin);
}

ndp_status ndp_emit_scalar(ndp_program *p, ndp_group_kind group, size_t field, ndp_dtype type, const char *what) {
    return emit_sum(p, group, field, 1, type, what);
}

ndp_status ndp_emit_loss(ndp_program *p, ndp_group_kind group) {
    NDP_TRY(emit_sum(p, group, ndp_loss_at(p), ndp_loss_sums(p), NDP_F64, "loss"));
    if (!ndp_program_has_router_losses(p))
        return NDP_OK;
    return emit_sum(p, group, offsetof(ndp_all_scalars, router.sums), NDP_ROUTER_LOSSES, NDP_F64, "router_losses");
}

ndp_status ndp_emit_loads(ndp_program *p) {
    const ndp_group_kind groups[] = {NDP_GROUP_LOSS, NDP_GROUP_PP, NDP_GROUP_TP};
    int n = ndp_mixtures_are_sliced(&p->opts.step.mesh) ? 3 : 2;
    for (int i = 0; i < n && ndp_program_loads(p) > 0; i++)
        NDP_TRY(emit_sum(p, groups[i], p->loads.offset, ndp_program_loads(p), NDP_F64, "loads"));
    return NDP_OK;
}
