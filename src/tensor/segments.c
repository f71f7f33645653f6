/* Where the tensors of a unit are in its flat buffer, which parts of them a slice has, and which elements of a file
 * those parts are. Walks visit the segments in the order of their offsets, so a slice's elements in order.
 * A group has room for what the rank with the most elements has, so slices are equally long on all ranks. model/ lays
 * segments out, parallel/ cuts them, ops/pieces.c, step/ and train/ walk them. */
#include "tensor/segments.h"

#include <stdio.h>
#include <string.h>

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
                         .part = {rows, cols},
                         .grain = {1, 1},
                         .most = {rows, cols},
                         .sums = NDP_GROUP_BIT(NDP_GROUP_REPLICATE),
                         .copies = 1};
}

void ndp_segment_fuse(ndp_segment *s, int axis, int64_t base, int64_t whole) {
    s->base[axis] = s->first[axis] = base;
    s->whole[axis] = whole;
}

void ndp_segment_fuse_in_turn(ndp_segment *s, int axis, int64_t base, int64_t apart, int64_t whole) {
    ndp_segment_fuse(s, axis, base, whole);
    s->apart = apart;
}

/* Whether parts take turns along that axis. */
static bool in_turn(const ndp_segment *s, int axis) { return s->apart > 0 && axis == (s->ndim == 1); }

int64_t ndp_segment_at(const ndp_segment *s, int axis, int64_t i) {
    int64_t in_part = s->first[axis] - s->base[axis] + i, grain = s->grain[axis];
    return in_turn(s, axis) ? s->base[axis] + in_part / grain * s->apart + in_part % grain : s->first[axis] + i;
}

int64_t ndp_segment_find(const ndp_segment *s, int axis, int64_t at) {
    int64_t behind = at - s->base[axis], grain = s->grain[axis];
    if (!in_turn(s, axis))
        return at - s->first[axis];
    if (behind < 0 || behind % s->apart >= grain)
        return -1;
    return behind / s->apart * grain + behind % s->apart - (s->first[axis] - s->base[axis]);
}

void ndp_segment_cut(ndp_segment *s, int axis, int64_t first, int64_t count, int64_t most) {
    s->first[axis] = s->base[axis] + first;
    *(axis == 0 ? &s->rows : &s->cols) = count;
    s->most[0] = axis == 0 ? most : s->rows;
    s->most[1] = axis == 1 ? most : s->cols;
}

/* ---- stacks ---- */

ndp_segment ndp_segment_member(const ndp_segment *s, int64_t i) {
    ndp_segment one = *s;
    if (!ndp_segment_is_stack(s))
        return one;
    one.stack = one.stack_first = one.stack_whole = 0;
    one.length = s->rows * s->cols;
    one.offset += i * one.length;
    return one;
}

void ndp_segment_cut_stack(ndp_segment *s, int n, int i) {
    int64_t grains = s->stack_whole / s->stack_grain, first = grains * i / n, end = grains * (i + 1) / n;
    s->stack_first = first * s->stack_grain;
    s->stack = (end - first) * s->stack_grain;
}

/* Where the number stands in the name of a pattern; NULL: the name is not a pattern. */
static const char *number_in(const ndp_segment *s) { return ndp_segment_is_stack(s) ? strstr(s->name, "%d") : NULL; }

int64_t ndp_segment_tensors(const ndp_segment *s) { return number_in(s) ? s->stack : 1; }

int64_t ndp_segment_tensor_elements(const ndp_segment *s) {
    return s->whole[0] * s->whole[1] * (number_in(s) || !ndp_segment_is_stack(s) ? 1 : s->stack_whole);
}

/* The words of a pattern that members take in turn, "{gate,up}"; 1: there are none. */
static int64_t words_in(const char *name) {
    int64_t n = 1;
    for (const char *c = strchr(name, '{'); c && *c != '}' && *c; c++)
        n += *c == ',';
    return n;
}

/* Word `i` of those, or an empty one. */
static const char *word_of(const char *name, int64_t i, int *length) {
    const char *word = strchr(name, '{');
    *length = 0;
    for (; word && i > 0; i--)
        word = strchr(word + 1, ',');
    if (word)
        *length = (int)strcspn(++word, ",}");
    return word ? word : "";
}

const char *ndp_segment_tensor_name(const ndp_segment *s, int64_t i, char room[NDP_SEGMENT_NAME]) {
    const char *number = number_in(s), *end = number ? strchr(number, '{') : NULL;
    int64_t words = number ? words_in(number) : 1;
    int length;
    if (!number)
        return s->name;
    i += s->stack_first;
    const char *word = word_of(number, i % words, &length), *rest = end ? strchr(end, '}') + 1 : "";
    int middle = (int)(end ? (size_t)(end - number) : strlen(number)) - 2;
    snprintf(room, NDP_SEGMENT_NAME, "%.*s%lld%.*s%.*s%s", (int)(number - s->name), s->name, (long long)(i / words),
             middle, number + 2, length, word, rest);
    return room;
}

bool ndp_segment_is_named(const ndp_segment *s, const char *tensor) {
    const char *number = number_in(s);
    size_t before = number ? (size_t)(number - s->name) : 0;
    char room[NDP_SEGMENT_NAME];
    int64_t i = 0, words = number ? words_in(number) : 1;
    if (!number)
        return strcmp(s->name, tensor) == 0;
    if (strncmp(tensor, s->name, before) != 0)
        return false;
    for (const char *c = tensor + before; *c >= '0' && *c <= '9' && i < s->stack_whole; c++)
        i = 10 * i + (*c - '0');
    for (int64_t k = i * words - s->stack_first; k < (i + 1) * words - s->stack_first; k++)
        if (k >= 0 && k < s->stack && strcmp(ndp_segment_tensor_name(s, k, room), tensor) == 0)
            return true;
    return false;
}

ndp_segment ndp_segment_of_tensor(const ndp_segment *s, int64_t i, char room[NDP_SEGMENT_NAME]) {
    if (!number_in(s))
        return *s;
    ndp_segment one = ndp_segment_member(s, i);
    one.name = ndp_segment_tensor_name(s, i, room);
    return one;
}

/* ---- layout ---- */

/* By sums, and otherwise as they are. */
static void order(ndp_segments *s) {
    ndp_groups key[NDP_MOST_SEGMENTS]; /* of all of a group of glued segments, that of the last one */
    for (int i = s->n - 1; i >= 0; i--)
        key[i] = i + 1 < s->n && s->items[i + 1].glued ? key[i + 1] : s->items[i].sums;
    for (int i = 0; i < s->n; i++) {
        int k = i;
        for (; k > 0 && key[s->order[k - 1]] > key[i]; k--)
            s->order[k] = s->order[k - 1];
        s->order[k] = (uint8_t)i;
    }
}

ndp_packed ndp_segment_packed(const ndp_segments *of, const ndp_segment *s) {
    return ndp_packed_of(of->packing, ndp_segment_matrices(s), s->rows, s->cols, s->whole[0] * s->whole[1]);
}

int64_t ndp_segment_first_block(const ndp_segment *s) {
    return (ndp_segment_at(s, 0, 0) * s->whole[1] + s->first[1]) / NDP_PACKED_BLOCK;
}

bool ndp_segment_turns_in_blocks(const ndp_segment *s) {
    const int64_t rows[] = {s->base[0], s->grain[0], s->apart};
    bool whole = s->apart > 0 && s->cols == s->whole[1];
    for (int i = 0; i < 3; i++)
        whole &= rows[i] * s->whole[1] % NDP_PACKED_BLOCK == 0;
    return whole;
}

int64_t ndp_segment_row_blocks(const ndp_segment *s) {
    if (ndp_segment_turns_in_blocks(s))
        return s->apart * s->whole[1] / NDP_PACKED_BLOCK;
    return s->cols == s->whole[1] ? 0 : s->whole[1] / NDP_PACKED_BLOCK;
}

int64_t ndp_segment_row_group(const ndp_segment *s) { return ndp_segment_turns_in_blocks(s) ? s->grain[0] : 0; }

/* Whole rows are one stretch of the tensor; the last block of all may be a part of one. */
bool ndp_packed_in_blocks(const int64_t whole[2], const int64_t first[2], int64_t rows, int64_t cols) {
    int64_t begin = first[0] * whole[1], end = begin + rows * whole[1];
    if (cols == whole[1])
        return begin % NDP_PACKED_BLOCK == 0 && (end % NDP_PACKED_BLOCK == 0 || end == whole[0] * whole[1]);
    return whole[1] % NDP_PACKED_BLOCK == 0 && first[1] % NDP_PACKED_BLOCK == 0 && cols % NDP_PACKED_BLOCK == 0;
}

/* Elements of the buffer that a segment of that many rows and columns takes. */
static int64_t length_of(const ndp_segments *of, const ndp_segment *s, int64_t rows, int64_t cols) {
    bool packed = of->packing != NDP_PACKING_NONE;
    int64_t matrix = packed ? ndp_packed_of(of->packing, 1, rows, cols, s->whole[0] * s->whole[1]).bytes : rows * cols;
    return ndp_segment_matrices(s) * matrix;
}

static int64_t align_of(const ndp_segments *s) { return s->align > 0 ? s->align : NDP_SEGMENT_ALIGN; }

void ndp_segments_layout(ndp_segments *s) {
    int64_t at = 0, room = 0; /* ends of the previous segment, and of its group's room */
    order(s);
    for (int i = 0; i < s->n; i++) {
        ndp_segment *seg = &s->items[s->order[i]];
        if (!seg->glued)
            at = room = round_up(room, align_of(s));
        seg->offset = at;
        seg->length = length_of(s, seg, seg->rows, seg->cols);
        at += seg->length;
        room += length_of(s, seg, seg->most[0], seg->most[1]);
    }
    s->elements = room;
}

int64_t ndp_segments_slice(const ndp_segments *s, int shards) {
    return round_up(s->elements, (int64_t)shards * align_of(s)) / shards;
}

/* ---- pieces ---- */

bool ndp_segments_piece(const ndp_segments *s, int shards, int index, int *cursor, ndp_piece *out) {
    int64_t slice = ndp_segments_slice(s, shards), low = slice * index, high = low + slice;
    while (*cursor < s->n) {
        const ndp_segment *seg = &s->items[s->order[(*cursor)++]];
        int64_t first = larger(seg->offset, low), end = smaller(seg->offset + seg->length, high);
        if (first >= end)
            continue;
        *out = (ndp_piece){seg, first - low, end - first};
        return true;
    }
    return false;
}

/* ---- runs ---- */

/* How many rows (axis 0) or columns from number `i` on follow each other in files too, of `n`. */
static int64_t together(const ndp_segment *s, int axis, int64_t i, int64_t n) {
    return in_turn(s, axis) ? smaller(n, s->grain[axis] - (s->first[axis] - s->base[axis] + i) % s->grain[axis]) : n;
}

/* Elements [begin, end) of a matrix, after `skip` of them, row by row: in files, a row may extend beyond the segment.
 */
static ndp_run run_of_rows(const ndp_segment *s, int64_t begin, int64_t end, int64_t skip) {
    int64_t at = begin + skip, row = at / s->cols, col = at % s->cols;
    bool rows_whole = s->cols == s->whole[1];
    int64_t count = together(s, 1, col, s->cols - col);
    if (rows_whole)
        count = together(s, 0, row, s->rows - row) * s->cols - col;
    return (ndp_run){.segment = s,
                     .tensor_first = ndp_segment_at(s, 0, row) * s->whole[1] + ndp_segment_at(s, 1, col),
                     .slice_first = skip,
                     .count = smaller(end - at, count),
                     .stride = 1};
}

/* The same for a transposed segment, column by column: a column is a row in files. */
static ndp_run run_of_columns(const ndp_segment *s, int64_t begin, int64_t end, int64_t skip) {
    for (int64_t col = 0, given = 0;; col++) {
        int64_t row = (begin - col + s->cols - 1) / s->cols, row_end = (end - col + s->cols - 1) / s->cols;
        int64_t count = row_end - row;
        if (count > 0 && given + count > skip)
            return (ndp_run){.segment = s,
                             .tensor_first = (s->first[1] + col) * s->whole[0] + s->first[0] + row,
                             .slice_first = row * s->cols + col - begin,
                             .count = count,
                             .stride = s->cols};
        given += count;
    }
}

/* How many of the elements [0, end) of a stack are among the first n of their group of `size`. */
static int64_t count_before(int64_t end, int64_t size, int64_t n) { return end / size * n + smaller(end % size, n); }

/* The same for NDP_STACK_INNER: in files, an element of a group is followed by that of the next group. */
static ndp_run run_of_inner(const ndp_segment *s, int64_t begin, int64_t end, int64_t skip) {
    int64_t matrix = s->rows * s->cols, size = s->stack_grain * matrix, low = 0, high = size;
    while (high - low > 1) { /* the element of a group that is next */
        int64_t middle = (low + high) / 2;
        bool done = count_before(end, size, middle) - count_before(begin, size, middle) <= skip;
        *(done ? &low : &high) = middle;
    }
    int64_t given = count_before(end, size, low) - count_before(begin, size, low);
    int64_t group = (begin - low + size - 1) / size + skip - given, last = (end - low + size - 1) / size;
    int64_t row = low / matrix * s->whole[0] + s->first[0] + low % matrix / s->cols, col = s->first[1] + low % s->cols;
    return (ndp_run){.segment = s,
                     .member = group * s->stack_grain + low / matrix,
                     .tensor_first = (row * s->whole[1] + col) * (s->stack_whole / s->stack_grain) +
                                     s->stack_first / s->stack_grain + group,
                     .slice_first = group * size + low - begin,
                     .count = last - group,
                     .stride = size};
}

/* Elements [begin, end) of a segment, after `skip` of them. The members before that of the next element are done. */
static ndp_run run_of(const ndp_segment *s, int64_t begin, int64_t end, int64_t skip) {
    int64_t size = s->rows * s->cols, member = (begin + skip) / size, first = larger(begin, member * size);
    int64_t from = first - member * size, to = smaller(end, (member + 1) * size) - member * size;
    int64_t done = skip - (first - begin);
    ndp_run r = s->transposed ? run_of_columns(s, from, to, done) : run_of_rows(s, from, to, done);
    r.member = member;
    r.slice_first += first - begin;
    if (!number_in(s))
        r.tensor_first += (s->stack_first + member) * s->whole[0] * s->whole[1];
    return r;
}

bool ndp_segments_run(const ndp_segments *s, int shards, int index, int64_t *cursor, ndp_run *out) {
    int64_t low = ndp_segments_slice(s, shards) * index, before = 0; /* elements in earlier pieces */
    ndp_piece p;
    if (s->packing != NDP_PACKING_NONE)
        return false;
    for (int i = 0; ndp_segments_piece(s, shards, index, &i, &p); before += p.count) {
        if (*cursor >= before + p.count)
            continue;
        int64_t begin = low + p.slice_first - p.segment->offset, end = begin + p.count, skip = *cursor - before;
        *out = (p.segment->form == NDP_STACK_INNER ? run_of_inner : run_of)(p.segment, begin, end, skip);
        out->slice_first += p.slice_first;
        *cursor += out->count;
        return true;
    }
    return false;
}
