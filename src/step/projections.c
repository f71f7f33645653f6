/* Projections that the optimizer transforms as whole matrices (optim/optim.h). A rank has directions for the elements
 * of its slices; for each buffer:
 *
 *   slice -- all_gather over the owners --> buffer -- all_gather over the tensor axis --> the buffers of all its ranks
 *   for each projection of which this rank owns a piece, each member of a stack for itself:
 *       parts -- copy --> whole matrix -- transform --> whole matrix -- copy --> this rank's part, in the buffer
 *
 * Invariant: every owner transforms the same bits. All ranks gather all buffers, in their order; elements that several
 * ranks of the tensor axis hold are read from the first of them. Without a tensor axis a matrix is contiguous in the
 * buffer, and is transformed there. step_update.c calls ndp_transform_matrices. */
#include "step/program_parts.h"

#include "parallel/apply.h"
#include <string.h>

/* A buffer of directions. */
typedef struct directions {
    ndp_dtype type;
    ndp_address own;            /* this rank's buffer */
    ndp_address every;          /* the buffers of all ranks of the tensor axis */
    size_t bytes;               /* of one */
    const ndp_segments *tables; /* by rank of the tensor axis */
    ndp_optimizer_name name;    /* of the optimizer */
} directions;

/* Replaces `count` elements by those of all ranks; nothing for a group of one. */
static ndp_status gather(ndp_builder *b, int buffer, ndp_group_kind group, int64_t count, ndp_address *at) {
    const ndp_buffer *of = &b->m->buffers[buffer];
    int ranks = ndp_mesh_group(&b->p->opts.step.mesh, group).count, begin;
    ndp_collective_call c = {.op = &ndp_op_all_gather,
                             .group = group,
                             .in = *at,
                             .count = count,
                             .type = ndp_wide(of->storage.gradient),
                             .what = of->name,
                             .buffer = buffer};
    if (ranks == 1)
        return NDP_OK;
    NDP_TRY(ndp_block_add(b->p, NDP_MEM_WORK, (size_t)(count * ranks) * ndp_dtype_size(c.type), &c.out.block));
    NDP_TRY(ndp_emit_begin(b->p, &c, &begin));
    *at = c.out;
    return ndp_emit_wait(b->p, begin);
}

static ndp_status copy(ndp_builder *b, ndp_operand from, ndp_operand to, const char *what) {
    const ndp_op_attr attr = {.type = from.view.dtype};
    ndp_operand in[] = {from, {.base = NDP_NONE, .value = NDP_NONE}};
    return ndp_emit_kernel(b->p, &ndp_op_copy, &attr, in, 2, &to, 1, what);
}

/* A segment in a buffer that begins at `at`. */
static ndp_operand in_buffer(const directions *d, ndp_address at, const ndp_segment *s) {
    at.offset += (size_t)s->offset * ndp_dtype_size(d->type);
    return ndp_operand_at(at, s->rows, s->cols, d->type);
}

/* The same elements in the whole matrix. */
static ndp_operand in_matrix(ndp_operand matrix, const ndp_segment *s) {
    int64_t skip = (s->first[0] - s->base[0]) * matrix.view.ld + s->first[1] - s->base[1];
    matrix.offset += (size_t)skip * ndp_dtype_size(matrix.view.dtype);
    matrix.view.rows = s->rows;
    matrix.view.cols = s->cols;
    return matrix;
}

/* Puts a projection, a member of segment k of the tables, together from the parts of all ranks of the tensor axis. */
static ndp_status assemble(ndp_builder *b, const directions *d, const ndp_segment *s, int64_t k, int64_t member,
                           ndp_operand *out) {
    ndp_address at = {NDP_NONE, 0};
    size_t bytes = (size_t)(s->part[0] * s->part[1]) * ndp_dtype_size(d->type);
    NDP_TRY(ndp_block_add(b->p, NDP_MEM_WORK, bytes, &at.block));
    *out = ndp_operand_at(at, s->part[0], s->part[1], d->type);
    for (int r = 0; r < b->p->opts.step.mesh.layout.size[NDP_TP]; r++) {
        const ndp_segment part = ndp_segment_member(&d->tables[r].items[k], member);
        ndp_address from = {d->every.block, d->every.offset + (size_t)r * d->bytes};
        if (!part.replica && part.rows > 0 && part.cols > 0)
            NDP_TRY(copy(b, in_buffer(d, from, &part), in_matrix(*out, &part), s->name));
    }
    return NDP_OK;
}

/* A member of segment k, with the name of its own tensor. */
static ndp_status name_member(ndp_builder *b, const ndp_segment *s, int64_t member, ndp_segment *out) {
    char room[NDP_SEGMENT_NAME];
    const char *name = ndp_segment_tensor_name(s, member, room);
    *out = ndp_segment_member(s, member);
    out->name = name == room ? ndp_arena_strdup(&b->p->arena, name) : name;
    return NDP_MEMORY(out->name, "for the names of a program's calls");
}

static ndp_status transform(ndp_builder *b, const directions *d, const ndp_segments *own, int64_t k, int64_t member) {
    const ndp_whole_update *whole = &ndp_optimizers[d->name]->whole;
    const ndp_op_attr attr = {.spectral = whole->spectral};
    ndp_segment s;
    NDP_TRY(name_member(b, &own->items[k], member, &s));
    ndp_operand part = in_buffer(d, d->own, &s), matrix = part;
    if (d->tables)
        NDP_TRY(assemble(b, d, &s, k, member, &matrix));
    NDP_TRY(ndp_emit_kernel(b->p, whole->transform, &attr, &matrix, 1, &matrix, 1, s.name));
    return d->tables ? copy(b, in_matrix(matrix, &s), part, s.name) : NDP_OK;
}

/* The members that a piece has elements of. */
static ndp_status transform_piece(ndp_builder *b, const directions *d, const ndp_segments *own, const ndp_shard *shard,
                                  const ndp_piece *p) {
    int64_t size = p->segment->rows * p->segment->cols;
    int64_t begin = shard->index * shard->slice + p->slice_first - p->segment->offset, end = begin + p->count;
    for (int64_t member = begin / size; member * size < end; member++)
        NDP_TRY(transform(b, d, own, p->segment - own->items, member));
    return NDP_OK;
}

/* The table of a buffer in the whole model. */
static const ndp_segments *whole_table(const ndp_model *whole, const char *name) {
    int i = 0;
    while (strcmp(whole->buffers[i].name, name) != 0)
        i++;
    return &whole->buffers[i].segments;
}

/* The tables of all ranks of the tensor axis, those at the start of all other axes. */
static ndp_status make_tables(ndp_builder *b, int buffer, ndp_arena *arena, directions *d) {
    const ndp_program_opts *o = &b->p->opts;
    const ndp_segments *whole = whole_table(o->whole, b->m->buffers[buffer].name);
    ndp_mesh mesh = o->step.mesh;
    int tp = mesh.layout.size[NDP_TP];
    memset(mesh.coord, 0, sizeof mesh.coord);
    if (tp == 1 || b->m->buffers[buffer].owners == NDP_GROUP_EXPERT_SHARD)
        return NDP_OK;
    ndp_segments *tables = ndp_arena_alloc(arena, (size_t)tp * sizeof *tables);
    NDP_CHECK_MEMORY(tables, "for the tables of %d ranks", tp);
    for (int r = 0; r < tp; r++) {
        mesh.coord[NDP_TP] = r;
        NDP_TRY(ndp_parallel_segments(whole, &mesh, &o->step.parallel, arena, &tables[r]));
    }
    d->tables = tables;
    return NDP_OK;
}

static ndp_status transform_all(ndp_builder *b, int buffer, const directions *d) {
    const ndp_segments *own = &b->m->buffers[buffer].segments;
    const ndp_shard *shard = &b->p->owned[buffer].shard;
    ndp_piece piece;
    for (int cursor = 0; ndp_segments_piece(own, shard->shards, shard->index, &cursor, &piece);)
        if (ndp_update_opts_of(&b->p->groups, piece.segment)->name == d->name)
            NDP_TRY(transform_piece(b, d, own, shard, &piece));
    return NDP_OK;
}

ndp_status ndp_transform_matrices(ndp_builder *b, int buffer, ndp_optimizer_name name, ndp_address *slice) {
    const ndp_buffer *of = &b->m->buffers[buffer];
    const ndp_shard *shard = &b->p->owned[buffer].shard;
    int64_t elements = shard->slice * shard->shards;
    ndp_dtype type = ndp_wide(of->storage.gradient);
    size_t bytes = (size_t)elements * ndp_dtype_size(type);
    directions d = {.type = type, .own = *slice, .bytes = bytes, .name = name};
    ndp_arena arena = {0};
    NDP_TRY(gather(b, buffer, of->owners, shard->slice, &d.own));
    d.every = d.own;
    if (of->owners != NDP_GROUP_EXPERT_SHARD) /* which have experts whole: no parts of matrices */
        NDP_TRY(gather(b, buffer, NDP_GROUP_TP, elements, &d.every));
    ndp_status st = make_tables(b, buffer, &arena, &d);
    if (st == NDP_OK)
        st = transform_all(b, buffer, &d);
    ndp_arena_release(&arena);
    NDP_TRY(st);
    *slice = d.own;
    if (shard->shards > 1)
        slice->offset += (size_t)(shard->slice * shard->index) * ndp_dtype_size(type);
    return NDP_OK;
}
