/* Memory of a rank, as spans by the bytes of each region. */
#include "placement/step_memory.h"

#include <string.h>

/* ---- spans ---- */

ndp_held ndp_held_cut(const ndp_held *s, size_t start, size_t end) {
    ndp_held cut = *s;
    if (start > s->start) {
        cut.first += (int64_t)((start - s->start) / ndp_held_unit(s));
        cut.start = start;
    }
    cut.end = end < s->end ? end : s->end;
    return cut;
}

static bool continues(const ndp_held *a, const ndp_held *b) {
    return a->end == b->start && a->kind == b->kind && a->type == b->type && a->own == b->own && a->of == b->of &&
           a->at == b->at && a->made == b->made && a->share == b->share &&
           a->first + (int64_t)((a->end - a->start) / ndp_held_unit(a)) == b->first;
}

ndp_status ndp_held_add(ndp_arena *arena, ndp_held_list *s, ndp_held span) {
    if (s->n > 0 && continues(&s->items[s->n - 1], &span)) {
        s->items[s->n - 1].end = span.end;
        return NDP_OK;
    }
    NDP_TRY(NDP_GROW(arena, s->n, &s->capacity, s->items));
    s->items[s->n++] = span;
    return NDP_OK;
}

ndp_status ndp_held_append(ndp_arena *arena, ndp_held_list *s, const ndp_held_list *more) {
    for (int i = 0; i < more->n; i++)
        NDP_TRY(ndp_held_add(arena, s, more->items[i]));
    return NDP_OK;
}

/* The first span that ends after byte `at`. Mostly it is the one that was found before, or the next one. */
static int first_after(ndp_held_list *p, size_t at) {
    int low = 0, high = p->n;
    for (int i = p->near; i < p->n && i <= p->near + 1; i++)
        if (p->items[i].end > at && (i == 0 || p->items[i - 1].end <= at))
            return p->near = i;
    while (low < high) {
        int middle = (low + high) / 2;
        if (p->items[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return p->near = low;
}

const ndp_held *ndp_held_at(ndp_held_list *s, size_t at, size_t *end) {
    int i = first_after(s, at);
    bool has = i < s->n && s->items[i].start <= at;
    size_t stop = i == s->n ? *end : has ? s->items[i].end : s->items[i].start;
    *end = stop < *end ? stop : *end;
    return has ? &s->items[i] : NULL;
}

/* ---- memory ---- */

/* The spans of a block's region, and where it starts there; NULL: it has no bytes. */
static ndp_held_list *list_of(const ndp_memory *m, int block, size_t *from) {
    const ndp_block *b = block == NDP_NONE ? NULL : &m->blocks[block];
    *from = b ? b->offset : 0;
    return b && b->bytes > 0 ? (ndp_held_list *)&m->of[b->region] : NULL;
}

/* True if the span was written through the block, or one with all of the same bytes. */
static bool is_of(const ndp_memory *m, const ndp_held *s, int block) {
    const ndp_block *a = &m->blocks[s->block], *b = &m->blocks[block];
    return a == b || (a->offset == b->offset && a->bytes == b->bytes);
}

/* Puts a span before the one at place `i`. */
static ndp_status insert(const ndp_memory *m, ndp_held_list *p, int i, ndp_held s) {
    NDP_TRY(NDP_GROW(m->arena, p->n, &p->capacity, p->items));
    memmove(p->items + i + 1, p->items + i, (size_t)(p->n - i) * sizeof *p->items);
    p->items[i] = s;
    p->n++;
    return NDP_OK;
}

/* Cuts spans where bytes [start, end) begin and end: those with these bytes are *i to *last - 1. */
static ndp_status cut(const ndp_memory *m, ndp_held_list *p, size_t start, size_t end, int *i, int *last) {
    *i = first_after(p, start);
    if (*i < p->n && p->items[*i].start < start) {
        NDP_TRY(insert(m, p, *i, ndp_held_cut(&p->items[*i], p->items[*i].start, start)));
        ++*i;
        p->items[*i] = ndp_held_cut(&p->items[*i], start, p->items[*i].end);
    }
    for (*last = *i; *last < p->n && p->items[*last].start < end; ++*last) {
        if (p->items[*last].end <= end)
            continue;
        NDP_TRY(insert(m, p, *last, ndp_held_cut(&p->items[*last], p->items[*last].start, end)));
        p->items[*last + 1] = ndp_held_cut(&p->items[*last + 1], end, p->items[*last + 1].end);
    }
    return NDP_OK;
}

ndp_status ndp_memory_write(ndp_memory *m, ndp_bytes b, ndp_held s) {
    size_t from;
    int i, last;
    ndp_held_list *p = list_of(m, b.block, &from);
    if (!p || b.start >= b.end)
        return NDP_OK;
    s.start = from + b.start, s.end = from + b.end, s.block = b.block;
    NDP_TRY(cut(m, p, s.start, s.end, &i, &last));
    if (last == i)
        return insert(m, p, i, s);
    p->items[i++] = s;
    if (last > i)
        memmove(p->items + i, p->items + last, (size_t)(p->n - last) * sizeof *p->items);
    p->n -= last - i;
    return NDP_OK;
}

ndp_status ndp_memory_put(ndp_memory *m, ndp_bytes b, const ndp_held_list *s, int made) {
    for (int i = 0; i < s->n; i++) {
        ndp_held span = s->items[i];
        span.made = made;
        NDP_TRY(ndp_memory_write(m, (ndp_bytes){b.block, b.start + span.start, b.start + span.end}, span));
    }
    return NDP_OK;
}

bool ndp_memory_next(const ndp_memory *m, int block, size_t *at, size_t end, ndp_held *out) {
    size_t from, stop;
    ndp_held_list *p = list_of(m, block, &from);
    if (*at >= end)
        return false;
    stop = from + end;
    const ndp_held *s = p ? ndp_held_at(p, from + *at, &stop) : NULL;
    *out = s && is_of(m, s, block) ? ndp_held_cut(s, from + *at, stop) : (ndp_held){.made = NDP_NONE};
    out->start = *at;
    *at = out->end = stop - from;
    return true;
}

ndp_held ndp_memory_first(const ndp_memory *m, ndp_bytes b) {
    ndp_held s = {.made = NDP_NONE};
    ndp_memory_next(m, b.block, &b.start, b.end, &s);
    return s;
}

ndp_held ndp_memory_find(const ndp_memory *m, ndp_bytes b) {
    size_t from, stop = SIZE_MAX;
    ndp_held_list *p = list_of(m, b.block, &from);
    const ndp_held *s = p ? ndp_held_at(p, from + b.start, &stop) : NULL;
    if (!s || from + b.end > s->end || !is_of(m, s, b.block))
        return (ndp_held){.made = NDP_NONE};
    ndp_held found = ndp_held_cut(s, from, from + m->blocks[b.block].bytes);
    found.start -= from, found.end -= from;
    return found;
}

ndp_status ndp_memory_read(const ndp_memory *m, ndp_bytes b, ndp_held_list *out) {
    ndp_held s;
    for (size_t at = b.start; ndp_memory_next(m, b.block, &at, b.end, &s);) {
        s.start -= b.start, s.end -= b.start;
        if (s.kind != NDP_HELD_NOTHING)
            NDP_TRY(ndp_held_add(m->arena, out, s));
    }
    return NDP_OK;
}

ndp_status ndp_memory_add(ndp_memory *m, ndp_bytes b, ndp_share share, int made) {
    size_t from;
    int i, last;
    ndp_held_list *p = list_of(m, b.block, &from);
    if (!p)
        return NDP_OK;
    NDP_TRY(cut(m, p, from + b.start, from + b.end, &i, &last));
    for (; i < last; i++) {
        p->items[i].share = ndp_share_add(p->items[i].share, share);
        p->items[i].made = made;
    }
    return NDP_OK;
}
