/* Appending blocks and instructions. */
#include "step/builder.h"

static ndp_status add(ndp_program *p, ndp_memory_class class, ndp_region region, bool persistent, size_t bytes,
                      int *out) {
    NDP_TRY(ndp_array_reserve(&p->blocks, &p->block_capacity, p->n_blocks + 1, sizeof *p->blocks));
    p->blocks[p->n_blocks] = (ndp_block){
        .class = class, .region = region, .persistent = persistent, .bytes = bytes, .first = -1, .last = -1};
    *out = p->n_blocks++;
    return NDP_OK;
}

ndp_status ndp_block_add(ndp_program *p, ndp_memory_class class, size_t bytes, int *out) {
    return add(p, class, NDP_REGION_ARENA, false, bytes, out);
}

ndp_status ndp_block_keep(ndp_program *p, ndp_memory_class class, ndp_region region, size_t bytes, ndp_place *out) {
    out->offset = 0;
    return add(p, class, region, true, bytes, &out->block);
}

static void touch(ndp_program *p, int block) {
    if (block == NDP_NONE)
        return;
    ndp_block *b = &p->blocks[block];
    if (b->first < 0)
        b->first = p->n;
    b->last = p->n;
}

ndp_status ndp_emit(ndp_program *p, ndp_instr in) {
    NDP_TRY(ndp_array_reserve(&p->instrs, &p->capacity, p->n + 1, sizeof *p->instrs));
    if (in.code == NDP_DO_RUN)
        for (int i = 0; i < NDP_BASE_DATA; i++)
            touch(p, in.bases[i]);
    if (in.code == NDP_DO_BEGIN || in.code == NDP_DO_WAIT) {
        touch(p, in.in.block);
        touch(p, in.out.block);
    }
    p->instrs[p->n++] = in;
    return NDP_OK;
}

ndp_status ndp_emit_begin(ndp_program *p, ndp_instr in, int *index) {
    in.code = NDP_DO_BEGIN;
    in.partner = NDP_NONE;
    *index = p->n;
    return ndp_emit(p, in);
}

ndp_status ndp_emit_wait(ndp_program *p, int begin) {
    ndp_instr in = p->instrs[begin];
    in.code = NDP_DO_WAIT;
    in.partner = begin;
    p->instrs[begin].partner = p->n;
    return ndp_emit(p, in);
}

ndp_status ndp_emit_scalar(ndp_program *p, ndp_group_kind group, size_t field, ndp_dtype type, const char *what) {
    ndp_place at = {p->scalars.block, field};
    int begin;
    if (ndp_mesh_group(&p->opts.mesh, group).count == 1)
        return NDP_OK;
    NDP_TRY(ndp_emit_begin(p,
                           (ndp_instr){.kind = NDP_ALL_REDUCE,
                                       .group = group,
                                       .in = at,
                                       .out = at,
                                       .count = 1,
                                       .type = type,
                                       .what = what,
                                       .buffer = NDP_NONE},
                           &begin));
    return ndp_emit_wait(p, begin);
}
