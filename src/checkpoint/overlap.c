/* Where the pieces that a rank holds overlap the parts of files. Pieces are in the order of the files, so those of a
 * part are found by bisection. */
#include "checkpoint/overlap.h"

#include <stdlib.h>

/* < 0: element `first` of one tensor precedes element `other_first` of the other, in the order of the files. */
static int compare_places(const ndp_shards *s, int tensor, int64_t first, int other, int64_t other_first) {
    int64_t a[] = {s->file_of[tensor], s->place[tensor], first},
            b[] = {s->file_of[other], s->place[other], other_first};
    for (int i = 0; i < 3; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int compare_pieces(const void *a, const void *b, void *arg) {
    const ndp_held_pieces *g = arg;
    const ndp_file_piece *x = &g->pieces[*(const int *)a], *y = &g->pieces[*(const int *)b];
    return compare_places(g->s, x->tensor, x->first, y->tensor, y->first);
}

ndp_status ndp_held_pieces_sort(const ndp_shards *s, const ndp_file_piece *pieces, int n, ndp_arena *arena,
                                ndp_held_pieces *out) {
    *out = (ndp_held_pieces){.s = s, .pieces = pieces, .sorted = ndp_arena_alloc(arena, ((size_t)n + 1) * sizeof(int))};
    NDP_CHECK_MEMORY(out->sorted, "to sort %d pieces of tensors", n);
    for (int i = 0; i < n; i++)
        if (pieces[i].count)
            out->sorted[out->n++] = i;
    qsort_r(out->sorted, (size_t)out->n, sizeof *out->sorted, compare_pieces, out);
    return NDP_OK;
}

int ndp_overlap_first(const ndp_held_pieces *g, const ndp_shard_part *part) {
    int low = 0, high = g->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const ndp_file_piece *p = &g->pieces[g->sorted[middle]];
        if (compare_places(g->s, p->tensor, p->first, part->tensor, part->first) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? low - 1 : 0;
}

bool ndp_overlap_next(const ndp_held_pieces *g, const ndp_shard_part *part, int *cursor, ndp_overlap *o) {
    int64_t part_end = part->first + part->count;
    while (*cursor < g->n) {
        const ndp_file_piece *p = &g->pieces[g->sorted[*cursor]];
        if (compare_places(g->s, p->tensor, p->first, part->tensor, part_end) >= 0)
            return false;
        ++*cursor;
        int64_t first = p->first > part->first ? p->first : part->first, end = p->first + p->count;
        end = end < part_end ? end : part_end;
        if (p->tensor != part->tensor || first >= end)
            continue;
        *o = (ndp_overlap){p, first - p->first, first - part->first, end - first};
        return true;
    }
    return false;
}

/* The elements of an overlap from a source, block by block, so that each is converted while it is in the CPU cache. */
static ndp_status convert_source(const ndp_overlap *o, char *to, ndp_dtype stored) {
    enum { BLOCK = 8192 };
    double block[BLOCK];
    const ndp_file_piece *p = o->piece;
    int64_t stride = p->stride > 1 ? p->stride : 1;
    for (int64_t done = 0, n; done < o->count; done += n) {
        n = o->count - done < BLOCK ? o->count - done : BLOCK;
        NDP_TRY(p->source->read(p->source->user, p->at + (o->skip + done) * stride, n, stride, block));
        ndp_convert(block, p->dtype, to + (size_t)done * ndp_dtype_size(stored), stored, n);
    }
    return NDP_OK;
}

ndp_status ndp_overlap_convert(const ndp_overlap *o, void *to, ndp_dtype stored) {
    const ndp_file_piece *p = o->piece;
    int64_t stride = p->stride > 1 ? p->stride : 1;
    size_t size = ndp_dtype_size(p->dtype);
    if (p->source && stride == 1 && p->dtype == stored)
        return p->source->read(p->source->user, p->at + o->skip, o->count, 1, to);
    if (p->source)
        return convert_source(o, to, stored);
    const char *from = (const char *)p->data + (size_t)(o->skip * stride) * size;
    if (stride > 1)
        ndp_convert_apart(from, p->dtype, stride, to, stored, 1, o->count);
    else if (p->dtype == stored)
        memcpy(to, from, (size_t)o->count * size);
    else
        ndp_convert(from, p->dtype, to, stored, o->count);
    return NDP_OK;
}
