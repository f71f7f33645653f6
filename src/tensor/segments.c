#include "tensor/segments.h"

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

ndp_segment ndp_segment_whole(const char *name, int ndim, int64_t rows, int64_t cols, ndp_dim row_dim,
                              ndp_dim col_dim) {
    return (ndp_segment){.name = name,
                         .rows = rows,
                         .cols = cols,
                         .ndim = ndim,
                         .dim = {row_dim, col_dim},
                         .whole = {rows, cols},
                         .room = rows * cols,
                         .copies = 1};
}

void ndp_segment_cut(ndp_segment *s, int axis, int64_t first, int64_t count, int64_t most) {
    s->first[axis] = first;
    *(axis == 0 ? &s->rows : &s->cols) = count;
    s->room = axis == 0 ? most * s->cols : s->rows * most;
}

void ndp_segments_layout(ndp_segments *s) {
    int64_t at = 0, room = 0; /* the ends of the segment before, and of the room of its group */
    for (int i = 0; i < s->n; i++) {
        ndp_segment *seg = &s->items[i];
        if (!seg->glued)
            at = room = round_up(room, NDP_SEGMENT_ALIGN);
        seg->offset = at;
        at += seg->rows * seg->cols;
        room += seg->room;
    }
    s->elements = room;
}

int64_t ndp_segments_slice(const ndp_segments *s, int shards) {
    return round_up(s->elements, (int64_t)shards * NDP_SEGMENT_ALIGN) / shards;
}

bool ndp_segments_piece(const ndp_segments *s, int shards, int index, int *cursor, ndp_piece *out) {
    int64_t slice = ndp_segments_slice(s, shards), low = slice * index, high = low + slice;
    while (*cursor < s->n) {
        const ndp_segment *seg = &s->items[(*cursor)++];
        int64_t first = larger(seg->offset, low), end = smaller(seg->offset + seg->rows * seg->cols, high);
        if (first >= end)
            continue;
        *out = (ndp_piece){seg, first - low, end - first};
        return true;
    }
    return false;
}

bool ndp_segments_run(const ndp_segments *s, int shards, int index, int64_t *cursor, ndp_run *out) {
    int64_t low = ndp_segments_slice(s, shards) * index;
    ndp_piece p;
    for (int i = 0; ndp_segments_piece(s, shards, index, &i, &p);) {
        int64_t first = larger(p.slice_first, *cursor), end = p.slice_first + p.count;
        if (first >= end)
            continue;
        const ndp_segment *seg = p.segment;
        int64_t local = low + first - seg->offset, row = local / seg->cols, col = local % seg->cols;
        bool rows_whole = seg->cols == seg->whole[1];
        int64_t count = rows_whole ? end - first : smaller(end - first, seg->cols - col);
        *out = (ndp_run){seg, (seg->first[0] + row) * seg->whole[1] + seg->first[1] + col, first, count};
        *cursor = first + count;
        return true;
    }
    return false;
}
