#include "tensor/segments.h"

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

void ndp_segments_layout(ndp_segments *s) {
    int64_t at = 0;
    for (int i = 0; i < s->n; i++) {
        ndp_segment *seg = &s->items[i];
        seg->offset = seg->glued ? at : round_up(at, NDP_SEGMENT_ALIGN);
        at = seg->offset + seg->rows * seg->cols;
    }
    s->elements = at;
}

int64_t ndp_segments_slice(const ndp_segments *s, int shards) {
    return round_up(s->elements, (int64_t)shards * NDP_SEGMENT_ALIGN) / shards;
}

bool ndp_segments_piece(const ndp_segments *s, int shards, int index, int *cursor, ndp_piece *out) {
    int64_t slice = ndp_segments_slice(s, shards), low = slice * index, high = low + slice;
    for (; *cursor < s->n; (*cursor)++) {
        const ndp_segment *seg = &s->items[*cursor];
        int64_t first = seg->offset > low ? seg->offset : low;
        int64_t end = seg->offset + seg->rows * seg->cols;
        if (end > high)
            end = high;
        if (first >= end)
            continue;
        (*cursor)++;
        *out = (ndp_piece){seg, first - seg->offset, first - low, end - first};
        return true;
    }
    return false;
}
