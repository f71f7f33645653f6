/* Memory of a rank, as spans by place. */
#include "placement/step_memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- places ---- */

static int by_place(const void *a, const void *b, void *user) {
    const ndp_block *blocks = user, *x = &blocks[*(const int *)a], *y = &blocks[*(const int *)b];
    if (x->region != y->region)
        return x->region < y->region ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool same_place(const ndp_block *a, const ndp_block *b) {
    return a->region == b->region && a->offset == b->offset && a->bytes == b->bytes;
}

/* Numbers the places in the order of their bytes. `order`: room for all blocks. */
static void number_places(const ndp_program *p, int *order, ndp_step_places *out) {
    int n = 0;
    for (int i = 0; i < p->n_blocks; i++) {
        out->of[i] = NDP_NONE;
        if (p->blocks[i].bytes > 0)
            order[n++] = i;
    }
    qsort_r(order, (size_t)n, sizeof *order, by_place, p->blocks);
    for (int i = 0; i < n; i++) {
        const ndp_block *b = &p->blocks[order[i]];
        if (i == 0 || !same_place(b, &p->blocks[order[i - 1]])) {
            out->at[out->n] = b->offset, out->bytes[out->n] = b->bytes, out->region[out->n] = b->region;
            out->n++;
        }
        out->of[order[i]] = out->n - 1;
    }
}

static bool starts_in(const ndp_step_places *p, int later, int i) {
    return later < p->n && p->region[later] == p->region[i] && p->at[later] < p->at[i] + p->bytes[i];
}

/* Lists for each place those that it meets. */
static ndp_status find_meets(ndp_step_places *p, ndp_arena *arena) {
    int *filled;
    for (int i = 0; i < p->n; i++)
        for (int k = i + 1; starts_in(p, k, i); k++)
            p->first[i + 1]++, p->first[k + 1]++;
    for (int i = 0; i < p->n; i++)
        p->first[i + 1] += p->first[i];
    NDP_TRY(NDP_NEW(arena, p->first[p->n], p->meets));
    NDP_TRY(NDP_NEW(arena, p->n, filled));
    for (int i = 0; i < p->n; i++)
        for (int k = i + 1; starts_in(p, k, i); k++) {
            p->meets[p->first[i] + filled[i]++] = k;
            p->meets[p->first[k] + filled[k]++] = i;
        }
    return NDP_OK;
}

ndp_status ndp_step_places_init(const ndp_program *p, ndp_arena *arena, ndp_step_places *out) {
    int n = p->n_blocks, *order;
    *out = (ndp_step_places){.n = 0};
    NDP_TRY(NDP_NEW(arena, n, order));
    NDP_TRY(NDP_NEW(arena, n, out->of));
    NDP_TRY(NDP_NEW(arena, n, out->at));
    NDP_TRY(NDP_NEW(arena, n, out->bytes));
    NDP_TRY(NDP_NEW(arena, n, out->region));
    NDP_TRY(NDP_NEW(arena, n + 1, out->first));
    number_places(p, order, out);
    return find_meets(out, arena);
}

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

/* ---- memory ---- */

ndp_status ndp_memory_init(const ndp_step_places *places, ndp_arena *arena, ndp_memory *out) {
    *out = (ndp_memory){.places = places, .arena = arena};
    return NDP_NEW(arena, places->n, out->of);
}

/* The first span that ends after byte `at`. */
static int first_after(const ndp_held_list *p, size_t at) {
    int i = 0;
    while (i < p->n && p->items[i].end <= at)
        i++;
    return i;
}

/* Puts a span before the one at place `i`. */
static ndp_status insert(const ndp_memory *m, ndp_held_list *p, int i, ndp_held s) {
    NDP_TRY(NDP_GROW(m->arena, p->n, &p->capacity, p->items));
    memmove(p->items + i + 1, p->items + i, (size_t)(p->n - i) * sizeof *p->items);
    p->items[i] = s;
    p->n++;
    return NDP_OK;
}

/* Cuts the span that holds byte `at` in two there. */
static ndp_status split(const ndp_memory *m, ndp_held_list *p, size_t at) {
    int i = first_after(p, at);
    if (i == p->n || p->items[i].start >= at)
        return NDP_OK;
    NDP_TRY(insert(m, p, i, ndp_held_cut(&p->items[i], p->items[i].start, at)));
    p->items[i + 1] = ndp_held_cut(&p->items[i + 1], at, p->items[i + 1].end);
    return NDP_OK;
}

/* Removes bytes [start, end) from the spans; *where: the place of a span that starts at `start`. */
static ndp_status remove_bytes(const ndp_memory *m, ndp_held_list *p, size_t start, size_t end, int *where) {
    NDP_TRY(split(m, p, start));
    NDP_TRY(split(m, p, end));
    int i = first_after(p, start), last = i;
    while (last < p->n && p->items[last].start < end)
        last++;
    memmove(p->items + i, p->items + last, (size_t)(p->n - last) * sizeof *p->items);
    p->n -= last - i;
    *where = i;
    return NDP_OK;
}

/* Takes the bytes from all other places. */
static ndp_status take_bytes(ndp_memory *m, int place, size_t start, size_t end) {
    const ndp_step_places *p = m->places;
    for (int i = p->first[place]; i < p->first[place + 1]; i++) {
        int other = p->meets[i], where;
        if (m->of[other].n == 0)
            continue;
        size_t low = p->at[place] + start, high = p->at[place] + end, at = p->at[other];
        if (high > at && low < at + p->bytes[other])
            NDP_TRY(remove_bytes(m, &m->of[other], low > at ? low - at : 0, high - at, &where));
    }
    return NDP_OK;
}

ndp_status ndp_memory_clear(ndp_memory *m, ndp_bytes b) {
    int place = b.block == NDP_NONE ? NDP_NONE : m->places->of[b.block], where;
    if (place == NDP_NONE || b.start >= b.end)
        return NDP_OK;
    NDP_TRY(take_bytes(m, place, b.start, b.end));
    return m->of[place].n > 0 ? remove_bytes(m, &m->of[place], b.start, b.end, &where) : NDP_OK;
}

ndp_status ndp_memory_write(ndp_memory *m, ndp_bytes b, ndp_held s) {
    int place = b.block == NDP_NONE ? NDP_NONE : m->places->of[b.block], where;
    if (place == NDP_NONE || b.start >= b.end)
        return NDP_OK;
    NDP_TRY(take_bytes(m, place, b.start, b.end));
    s.start = b.start, s.end = b.end;
    NDP_TRY(remove_bytes(m, &m->of[place], b.start, b.end, &where));
    return insert(m, &m->of[place], where, s);
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
    int place = block == NDP_NONE ? NDP_NONE : m->places->of[block];
    const ndp_held_list none = {0}, *p = place == NDP_NONE ? &none : &m->of[place];
    if (*at >= end)
        return false;
    int i = first_after(p, *at);
    if (i < p->n && p->items[i].start <= *at) {
        *out = ndp_held_cut(&p->items[i], *at, end);
    } else {
        size_t next = i < p->n && p->items[i].start < end ? p->items[i].start : end;
        *out = (ndp_held){.start = *at, .end = next, .made = NDP_NONE};
    }
    *at = out->end;
    return true;
}

ndp_held ndp_memory_first(const ndp_memory *m, ndp_bytes b) {
    ndp_held s = {.made = NDP_NONE};
    ndp_memory_next(m, b.block, &b.start, b.end, &s);
    return s;
}

const ndp_held *ndp_memory_find(const ndp_memory *m, ndp_bytes b) {
    int place = b.block == NDP_NONE ? NDP_NONE : m->places->of[b.block];
    if (place == NDP_NONE)
        return NULL;
    const ndp_held_list *p = &m->of[place];
    int i = first_after(p, b.start);
    return i < p->n && p->items[i].start <= b.start && b.end <= p->items[i].end ? &p->items[i] : NULL;
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
    int place = b.block == NDP_NONE ? NDP_NONE : m->places->of[b.block];
    if (place == NDP_NONE)
        return NDP_OK;
    ndp_held_list *p = &m->of[place];
    NDP_TRY(split(m, p, b.start));
    NDP_TRY(split(m, p, b.end));
    NDP_TRY(take_bytes(m, place, b.start, b.end));
    for (int i = first_after(p, b.start); i < p->n && p->items[i].start < b.end; i++) {
        p->items[i].share = ndp_share_add(p->items[i].share, share);
        p->items[i].made = made;
    }
    return NDP_OK;
}
