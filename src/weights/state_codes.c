/* States that are codes, to and from checkpoints.
 *
 * The blocks of a part are those of its place in a rank's buffer, so a table of the buffer for each rank of the tensor
 * axis, or of those that share experts, says how many there are (parallel/apply.h). A load with other blocks decodes
 * each moment into the gradient slice, which is free between two steps and has the layout of the slice, and encodes it
 * again from there. */
#include "weights/state_codes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ndp_step_opts *step_of(const ndp_engine *e) { return &ndp_engine_program(e)->opts.step; }
static const ndp_update_groups *groups_of(const ndp_engine *e) { return &ndp_engine_program(e)->groups; }
static bool is_coded(const ndp_engine *e, const ndp_segment *s) {
    return ndp_optimizer_codes(ndp_update_opts_of(groups_of(e), s)->name);
}
static ndp_owned_kind codes_of(int state) { return (ndp_owned_kind)(NDP_OWNED_CODES0 + state); }
static ndp_owned_kind scales_of(int state) { return (ndp_owned_kind)(NDP_OWNED_SCALES0 + state); }

/* ---- the blocks of a buffer ---- */

ndp_code_cut ndp_code_cut_of(const ndp_engine *e) {
    const int *size = step_of(e)->mesh.layout.size;
    return (ndp_code_cut){size[NDP_TP], size[NDP_EP]};
}

/* What of it cuts a buffer of the whole model: stacks either ranks of experts or the tensor axis, others the latter. */
static ndp_code_cut cut_of(const ndp_engine *e, int buffer, ndp_code_cut cut) {
    const ndp_segments *s = &ndp_engine_whole(e)->buffers[buffer].segments;
    bool experts = cut.ep > 1 && s->n > 0 && ndp_segment_is_stack(&s->items[0]);
    return experts ? (ndp_code_cut){1, cut.ep} : (ndp_code_cut){cut.tp, 1};
}

/* Whether ranks of that cut have the blocks that the engine's have. */
static bool has_own_blocks(const ndp_engine *e, int buffer, ndp_code_cut cut) {
    return ndp_code_cuts_equal(cut_of(e, buffer, cut), cut_of(e, buffer, ndp_code_cut_of(e)));
}

/* The tables of a buffer of the whole model on the ranks that cut it. */
typedef struct buffer_blocks {
    int ranks;
    ndp_group_kind of;
    ndp_segments *tables; /* by rank */
    ndp_arena arena;
} buffer_blocks;

static void drop_blocks(buffer_blocks *b) { ndp_arena_release(&b->arena); }

static ndp_status find_blocks(const ndp_engine *e, int buffer, ndp_code_cut all, buffer_blocks *out) {
    const ndp_model *whole = ndp_engine_whole(e);
    ndp_code_cut cut = cut_of(e, buffer, all);
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_TP] = cut.tp, layout.size[NDP_DP_SHARD] = layout.size[NDP_EP] = cut.ep;
    *out = (buffer_blocks){.ranks = cut.tp * cut.ep, .of = cut.ep > 1 ? NDP_GROUP_EP : NDP_GROUP_TP};
    out->tables = ndp_arena_alloc(&out->arena, (size_t)out->ranks * sizeof *out->tables);
    ndp_status st = NDP_MEMORY(out->tables, "for the tables of %d ranks", out->ranks);
    for (int r = 0; r < out->ranks && st == NDP_OK; r++) {
        ndp_mesh mesh;
        st = ndp_mesh_init(&layout, r, &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(whole)}, &mesh);
        if (st == NDP_OK)
            st = ndp_parallel_segments(&whole->buffers[buffer].segments, &mesh, &step_of(e)->parallel, &out->arena,
                                       &out->tables[r]);
    }
    if (st != NDP_OK)
        drop_blocks(out);
    return st;
}

static const ndp_segment *part_of(const buffer_blocks *b, int rank, int segment) {
    return &b->tables[rank].items[segment];
}

/* Blocks of a rank's part. Those of a stack go on from one member to the next: where they begin does not depend on the
 * slices, and small members waste none. */
static int64_t count_of(const ndp_segment *s) { return ndp_code_blocks(s->offset, ndp_segment_elements(s)); }

/* Scales of the segment on all ranks; of those with the same elements the first one's. */
static int64_t scales_of_segment(const buffer_blocks *b, int segment) {
    int64_t n = 0;
    for (int r = 0; r < b->ranks; r++)
        n += part_of(b, r, segment)->replica ? 0 : count_of(part_of(b, r, segment));
    return n;
}

static bool continues(const buffer_blocks *b, int segment) {
    return segment > 0 && ndp_segment_continues(part_of(b, 0, segment));
}

/* Scales of the tensor that the segment is the first part of. */
static int64_t scales_of_tensor(const buffer_blocks *b, int segment) {
    int64_t n = scales_of_segment(b, segment);
    for (int k = segment + 1; k < b->tables[0].n && continues(b, k); k++)
        n += scales_of_segment(b, k);
    return n;
}

static bool same_part(const ndp_segment *a, const ndp_segment *b) {
    return a->rows == b->rows && a->cols == b->cols && a->first[0] == b->first[0] && a->first[1] == b->first[1] &&
           a->stack_first == b->stack_first;
}

/* Where the scales of a rank's part begin in those of its tensor. */
static int64_t first_scale(const buffer_blocks *b, int segment, int rank) {
    int64_t n = 0;
    for (int k = segment; continues(b, k); k--)
        n += scales_of_segment(b, k - 1);
    for (int r = 0; r < rank && !same_part(part_of(b, r, segment), part_of(b, rank, segment)); r++)
        n += part_of(b, r, segment)->replica ? 0 : count_of(part_of(b, r, segment));
    return n;
}

/* The number of a rank's buffer in the whole model. */
static int whole_of(const ndp_engine *e, int buffer) {
    const ndp_model *whole = ndp_engine_whole(e);
    int i = 0;
    while (strcmp(whole->buffers[i].name, ndp_engine_model(e)->buffers[buffer].name) != 0)
        i++;
    return i;
}

/* ---- pieces ---- */

/* A coded piece of this rank's slice. */
typedef struct coded_piece {
    int buffer, segment;
    ndp_piece piece;
    int64_t first, count; /* its scales, in those of its tensor */
    int64_t place;        /* and in the slice's */
} coded_piece;

typedef ndp_status coded_visitor(void *user, const coded_piece *p);

static ndp_status visit_buffer(const ndp_engine *e, int buffer, const buffer_blocks *b, coded_visitor *visit,
                               void *user) {
    const ndp_segments *s = &ndp_engine_model(e)->buffers[buffer].segments;
    const ndp_shard *shard = ndp_engine_shard(e, buffer);
    ndp_piece piece;
    for (int cursor = 0; ndp_segments_piece(s, shard->shards, shard->index, &cursor, &piece);) {
        int64_t begin = shard->slice * shard->index + piece.slice_first;
        coded_piece p = {.buffer = buffer, .segment = (int)(piece.segment - s->items), .piece = piece};
        if (!is_coded(e, piece.segment))
            continue;
        p.first = first_scale(b, p.segment, ndp_mesh_group(&step_of(e)->mesh, b->of).rank) + begin / NDP_CODE_BLOCK -
                  piece.segment->offset / NDP_CODE_BLOCK;
        p.count = ndp_code_blocks(piece.slice_first, piece.count);
        p.place = ndp_pieces_place(groups_of(e), s, shard->shards, shard->index, piece.slice_first);
        NDP_TRY(visit(user, &p));
    }
    return NDP_OK;
}

/* Calls `visit` for each coded piece, in the blocks that the engine has. */
static ndp_status visit_pieces(const ndp_engine *e, coded_visitor *visit, void *user) {
    const ndp_model *m = ndp_engine_model(e);
    for (int i = 0; i < m->n_buffers; i++) {
        buffer_blocks b;
        if (!m->buffers[i].trainable)
            continue;
        NDP_TRY(find_blocks(e, whole_of(e, i), ndp_code_cut_of(e), &b));
        ndp_status st = visit_buffer(e, i, &b, visit, user);
        drop_blocks(&b);
        NDP_TRY(st);
    }
    return NDP_OK;
}

/* ---- lists of tensors ---- */

/* What the scales of a segment's tensor are named after, less their prefix: of a pattern one vector has those of all
 * members, on all ranks, with * for their number. */
static const char *scales_name(const ndp_segment *s, char room[NDP_SEGMENT_NAME]) {
    const char *number = ndp_segment_is_stack(s) ? strstr(s->name, "%d") : NULL;
    if (!number)
        return s->name;
    snprintf(room, NDP_SEGMENT_NAME, "%.*s*%s", (int)(number - s->name), s->name, number + 2);
    return room;
}

static ndp_status add_scales(ndp_tensor_list *list, const ndp_engine *e, int buffer, ndp_owned_kind kind,
                             ndp_code_cut cut, ndp_dtype type) {
    const ndp_segments *s = &ndp_engine_whole(e)->buffers[buffer].segments;
    buffer_blocks b;
    char room[NDP_SEGMENT_NAME];
    NDP_TRY(find_blocks(e, buffer, cut, &b));
    ndp_status st = NDP_OK;
    for (int k = 0; k < s->n && st == NDP_OK; k++)
        if (is_coded(e, &s->items[k]) && !continues(&b, k))
            st = ndp_tensor_list_vector(list, ndp_engine_prefix(e, kind, &s->items[k]), scales_name(&s->items[k], room),
                                        scales_of_tensor(&b, k), type);
    drop_blocks(&b);
    return st;
}

typedef struct scales_adding {
    ndp_tensor_list *list;
    const ndp_engine *engine;
    ndp_owned_kind kind;
    int first; /* of the list's tensors */
} scales_adding;

static ndp_status add_piece(void *user, const coded_piece *p) {
    const scales_adding *a = user;
    char room[NDP_SEGMENT_NAME];
    const char *name = scales_name(p->piece.segment, room);
    return p->piece.segment->replica ? NDP_OK
                                     : ndp_tensor_list_part(a->list, a->engine, a->kind, p->buffer, a->first,
                                                            ndp_engine_prefix(a->engine, a->kind, p->piece.segment),
                                                            name, p->first, p->place, p->count);
}

ndp_status ndp_state_codes_add(ndp_tensor_list *list, const ndp_engine *e, int state, ndp_code_cut cut,
                               ndp_dtype scales) {
    const ndp_model *whole = ndp_engine_whole(e);
    if (!ndp_update_codes(groups_of(e)))
        return NDP_OK;
    NDP_TRY(ndp_tensor_list_add(list, e, codes_of(state), NDP_TENSORS_RUN, NDP_U8));
    scales_adding a = {list, e, scales_of(state), list->n};
    for (int i = 0; i < whole->n_buffers; i++)
        if (whole->buffers[i].trainable)
            NDP_TRY(add_scales(list, e, i, a.kind, cut, scales));
    bool writes = ndp_code_cuts_equal(cut, ndp_code_cut_of(e)) && step_of(e)->mesh.coord[NDP_DP_REPLICATE] == 0;
    return writes ? visit_pieces(e, add_piece, &a) : NDP_OK;
}

/* ---- loading the same blocks ---- */

typedef struct state_loading {
    ndp_engine *engine;
    const ndp_checkpoint *checkpoint;
    int state;
    ndp_code_cut cut; /* the checkpoint's */
    int asked;        /* the buffer that `own` is of: whether its blocks are the checkpoint's */
    bool own;
    ndp_dynamic_map map;
    /* The part whose moments are decoded: its buffer's blocks in the checkpoint, and the scales of its tensor. */
    int buffer, segment;
    buffer_blocks blocks;
    float *scales;
    int64_t *firsts; /* by rank that cuts the buffer: where the scales of its part begin */
} state_loading;

static ndp_status read_codes(void *user, const ndp_segment *s, int64_t first, int64_t count, void *out) {
    const state_loading *l = user;
    char name[2 * NDP_SEGMENT_NAME];
    snprintf(name, sizeof name, "%s%s", ndp_engine_prefix(l->engine, codes_of(l->state), s), s->name);
    return ndp_checkpoint_read(l->checkpoint, name, first, count, out, NDP_U8);
}

static ndp_status read_scales(const state_loading *l, const ndp_segment *s, int64_t first, int64_t count, void *out,
                              ndp_dtype type) {
    char name[2 * NDP_SEGMENT_NAME], room[NDP_SEGMENT_NAME];
    snprintf(name, sizeof name, "%s%s", ndp_engine_prefix(l->engine, scales_of(l->state), s), scales_name(s, room));
    return ndp_checkpoint_read(l->checkpoint, name, first, count, out, type);
}

enum { BLOCKS = 32 }; /* that are moved at a time */

static bool is_own(state_loading *l, int buffer) {
    if (l->asked != buffer)
        l->own = has_own_blocks(l->engine, whole_of(l->engine, buffer), l->cut);
    l->asked = buffer;
    return l->own;
}

static ndp_status load_scales(void *user, const coded_piece *p) {
    state_loading *l = user;
    if (!is_own(l, p->buffer))
        return NDP_OK;
    ndp_dtype type = ndp_engine_type(l->engine, scales_of(l->state), p->buffer);
    double block[BLOCKS];
    for (int64_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < BLOCKS ? p->count - done : BLOCKS;
        NDP_TRY(read_scales(l, p->piece.segment, p->first + done, n, block, type));
        NDP_TRY(ndp_engine_write(l->engine, scales_of(l->state), p->buffer, p->place + done, n, 1, block));
    }
    return NDP_OK;
}

/* ---- loading others ---- */

/* Reads what is needed to decode moments of a segment: the checkpoint's blocks, and their scales. */
static ndp_status choose_segment(state_loading *l, int buffer, const ndp_segment *s) {
    int segment = (int)(s - ndp_engine_model(l->engine)->buffers[buffer].segments.items);
    if (buffer != l->buffer) {
        drop_blocks(&l->blocks);
        NDP_TRY(find_blocks(l->engine, whole_of(l->engine, buffer), l->cut, &l->blocks));
        l->buffer = buffer;
    }
    int first = segment;
    while (continues(&l->blocks, first))
        first--;
    int64_t n = scales_of_tensor(&l->blocks, first);
    free(l->scales);
    free(l->firsts);
    l->scales = malloc((size_t)n * sizeof *l->scales);
    l->firsts = malloc((size_t)l->blocks.ranks * sizeof *l->firsts);
    NDP_CHECK_MEMORY(l->scales && l->firsts, "for the %lld scales of %s", (long long)n, s->name);
    for (int r = 0; r < l->blocks.ranks; r++)
        l->firsts[r] = first_scale(&l->blocks, segment, r);
    l->segment = segment;
    return read_scales(l, s, 0, n, l->scales, NDP_F32);
}

/* The scale of element (row, column) of the whole matrix of member `member` of all. *rank: which has it, to look there
 * first. */
static float scale_of(const state_loading *l, int64_t member, int64_t row, int64_t col, int *rank) {
    for (int tried = 0; tried < l->blocks.ranks; tried++, *rank = (*rank + 1) % l->blocks.ranks) {
        const ndp_segment *s = part_of(&l->blocks, *rank, l->segment);
        int64_t r = ndp_segment_find(s, 0, row), c = ndp_segment_find(s, 1, col), m = member - s->stack_first;
        if (r < 0 || r >= s->rows || c < 0 || c >= s->cols || m < 0 || m >= ndp_segment_matrices(s))
            continue;
        int64_t at = s->offset + (m * s->rows + r) * s->cols + c;
        int64_t block = at / NDP_CODE_BLOCK - s->offset / NDP_CODE_BLOCK;
        return l->scales[l->firsts[*rank] + block];
    }
    return 0;
}

/* Moments of elements [first, first + n) of the tensor, as files have it, which are of one member. */
static ndp_status decode_moments(const state_loading *l, const ndp_run *run, int64_t first, int n, float *out) {
    uint8_t codes[BLOCKS * NDP_CODE_BLOCK];
    char room[NDP_SEGMENT_NAME];
    const ndp_segment s = ndp_segment_of_tensor(run->segment, run->member, room);
    int64_t length = s.whole[s.transposed ? 0 : 1],
            before = first / (s.whole[0] * s.whole[1]) * s.whole[0] * s.whole[1];
    int64_t member = run->segment->stack_first + run->member;
    int rank = 0;
    NDP_TRY(read_codes((void *)l, &s, first, n, codes));
    for (int i = 0; i < n; i++) {
        int64_t at = (first - before + i) / length, in = (first - before + i) % length;
        out[i] = l->map.values[codes[i]] * scale_of(l, member, s.transposed ? in : at, s.transposed ? at : in, &rank);
    }
    return NDP_OK;
}

static ndp_status decode_run(void *user, const ndp_owned_run *r) {
    enum { MOST = BLOCKS * NDP_CODE_BLOCK };
    state_loading *l = user;
    float moments[MOST];
    double stored[MOST];
    const ndp_segment *s = r->run.segment;
    const ndp_segment *items = ndp_engine_model(l->engine)->buffers[r->buffer].segments.items;
    if (!is_coded(l->engine, s) || is_own(l, r->buffer))
        return NDP_OK;
    if (r->buffer != l->buffer || s - items != l->segment)
        NDP_TRY(choose_segment(l, r->buffer, s));
    for (int64_t done = 0, n; done < r->run.count; done += n) {
        n = r->run.count - done < MOST ? r->run.count - done : MOST;
        NDP_TRY(decode_moments(l, &r->run, r->run.tensor_first + done, (int)n, moments));
        ndp_convert(moments, NDP_F32, stored, ndp_engine_type(l->engine, NDP_OWNED_GRAD, r->buffer), n);
        NDP_TRY(ndp_engine_write(l->engine, NDP_OWNED_GRAD, r->buffer, r->run.slice_first + done * r->run.stride, n,
                                 r->run.stride, stored));
    }
    return NDP_OK;
}

/* Encodes blocks [done, done + n) of a piece from the gradient slice. */
static ndp_status encode_blocks(const state_loading *l, const coded_piece *p, int64_t done, int64_t n) {
    enum { MOST = BLOCKS * NDP_CODE_BLOCK };
    double stored[MOST];
    float moments[MOST], scales[BLOCKS];
    uint8_t codes[MOST];
    int64_t begin = p->piece.slice_first, end = begin + p->piece.count, aligned = begin / NDP_CODE_BLOCK + done;
    int64_t low = aligned * NDP_CODE_BLOCK, high = (aligned + n) * NDP_CODE_BLOCK;
    low = low > begin ? low : begin, high = high < end ? high : end;
    NDP_TRY(ndp_engine_read(l->engine, NDP_OWNED_GRAD, p->buffer, low, high - low, 1, stored));
    ndp_convert(stored, ndp_engine_type(l->engine, NDP_OWNED_GRAD, p->buffer), moments, NDP_F32, high - low);
    for (int64_t b = 0, at = low; b < n; b++) {
        int64_t next = (at / NDP_CODE_BLOCK + 1) * NDP_CODE_BLOCK, stop = next < high ? next : high;
        scales[b] =
            ndp_dynamic_encode(l->state == 0, &l->map, moments + (at - low), (int)(stop - at), codes + (at - low));
        at = stop;
    }
    NDP_TRY(ndp_engine_write(l->engine, codes_of(l->state), p->buffer, low, high - low, 1, codes));
    ndp_convert(scales, NDP_F32, stored, ndp_engine_type(l->engine, scales_of(l->state), p->buffer), n);
    return ndp_engine_write(l->engine, scales_of(l->state), p->buffer, p->place + done, n, 1, stored);
}

static ndp_status encode_piece(void *user, const coded_piece *p) {
    state_loading *l = user;
    if (is_own(l, p->buffer))
        return NDP_OK;
    for (int64_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < BLOCKS ? p->count - done : BLOCKS;
        NDP_TRY(encode_blocks(l, p, done, n));
    }
    return NDP_OK;
}

ndp_status ndp_state_codes_load(ndp_engine *e, const ndp_checkpoint *c, int state, ndp_code_cut cut) {
    state_loading l = {.engine = e,
                       .checkpoint = c,
                       .state = state,
                       .cut = cut,
                       .asked = NDP_NONE,
                       .buffer = NDP_NONE,
                       .segment = NDP_NONE};
    if (!ndp_update_codes(groups_of(e)))
        return NDP_OK;
    NDP_TRY(ndp_engine_fill(e, codes_of(state), NDP_TENSORS_RUN, read_codes, &l));
    NDP_TRY(visit_pieces(e, load_scales, &l));
    if (ndp_code_cuts_equal(cut, ndp_code_cut_of(e)))
        return NDP_OK;
    ndp_dynamic_fill(state == 0, &l.map);
    ndp_status st = ndp_engine_runs(e, NDP_OWNED_GRAD, decode_run, &l);
    if (st == NDP_OK)
        st = visit_pieces(e, encode_piece, &l);
    drop_blocks(&l.blocks);
    free(l.scales);
    free(l.firsts);
    return st;
}
