#include "placement/edits.h"

#include <stdlib.h>
#include <string.h>

static void *take(journal *j, size_t n) {
    void *p = ndp_arena_alloc(&j->arena, n > 0 ? n : 1);
    if (!p)
        abort();
    return p;
}

void journal_keep(journal *j, void *at, size_t n) {
    if (ndp_array_reserve(&j->records, &j->capacity, j->n + 1, sizeof *j->records) != NDP_OK)
        abort();
    void *old = take(j, n);
    memcpy(old, at, n);
    j->records[j->n++] = (edit_record){at, old, n};
}

void journal_undo(journal *j) {
    while (j->n > 0) {
        const edit_record *r = &j->records[--j->n];
        memcpy(r->at, r->old, r->n);
    }
    free(j->records);
    ndp_arena_release(&j->arena);
    *j = (journal){0};
}

int edited_n(const edited *e) { return e->list ? e->list->n : e->program->n; }

ndp_call *edited_call(const edited *e, int i) {
    if (e->list)
        return &e->list->calls[i];
    ndp_instr *in = &e->program->instrs[i];
    return in->code == NDP_DO_CALL ? &in->call : NULL;
}

static ndp_operand *copied(journal *j, const ndp_operand *from, int n) {
    ndp_operand *to = take(j, (size_t)n * sizeof *to);
    if (n > 0)
        memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

void edited_own_operands(const edited *e, int i) {
    ndp_call *c = edited_call(e, i);
    journal_keep(e->journal, c, sizeof *c);
    c->in = copied(e->journal, c->in, c->n_in);
    c->out = copied(e->journal, c->out, c->n_out);
    if (c->kind == NDP_CALL_KERNEL)
        return;
    ndp_call *partner = edited_call(e, c->partner);
    journal_keep(e->journal, partner, sizeof *partner);
    partner->in = c->in, partner->out = c->out;
}

/* ---- places ---- */

/* The array becomes the edit's own, with room for one more. */
static void own_array(const edited *e) {
    size_t n = (size_t)edited_n(e);
    if (e->list) {
        ndp_call *calls = take(e->journal, (n + 1) * sizeof *calls);
        memcpy(calls, e->list->calls, n * sizeof *calls);
        journal_keep(e->journal, e->list, sizeof *e->list);
        e->list->calls = calls;
        return;
    }
    ndp_instr *instrs = take(e->journal, (n + 1) * sizeof *instrs);
    memcpy(instrs, e->program->instrs, n * sizeof *instrs);
    journal_keep(e->journal, e->program, sizeof *e->program);
    e->program->instrs = instrs;
}

static ndp_repeats *repeats_of(const edited *e) { return e->list ? &e->list->repeats : &e->program->repeats; }

/* An entry before place `at` comes (by 1) or goes (-1), which is in the ranges of entry `like`. */
static void shift_ranges(const edited *e, int like, int by) {
    ndp_repeats *r = repeats_of(e);
    ndp_repeat *items = take(e->journal, (size_t)r->n * sizeof *items);
    if (r->n > 0)
        memcpy(items, r->items, (size_t)r->n * sizeof *items);
    r->items = items; /* the list or the program is kept already */
    for (int k = 0; k < r->n; k++)
        if (like >= items[k].first && like < items[k].first + items[k].n)
            items[k].n += by;
        else if (like < items[k].first)
            items[k].first += by;
}

static void shift_lives(const edited *e, int at, int by) {
    ndp_program *p = e->program;
    ndp_block *blocks = take(e->journal, (size_t)p->n_blocks * sizeof *blocks);
    memcpy(blocks, p->blocks, (size_t)p->n_blocks * sizeof *blocks);
    p->blocks = blocks;
    for (int i = 0; i < p->n_blocks; i++) {
        ndp_life *l = &blocks[i].life;
        l->first += l->first >= at + (by < 0) ? by : 0;
        l->last += l->last >= at ? by : 0;
        l->gap += l->gap >= at + (by < 0) ? by : 0;
    }
}

static void shift_partners(const edited *e, int at, int by) {
    for (int i = 0; i < edited_n(e); i++) {
        ndp_call *c = edited_call(e, i);
        if (c && c->partner != NDP_NONE && c->partner >= at)
            c->partner += by;
    }
}

static void shift(const edited *e, int at, int like, int by) {
    shift_partners(e, at, by);
    shift_ranges(e, like, by);
    if (e->list)
        return;
    shift_lives(e, at, by);
    e->program->first_update += like < e->program->first_update ? by : 0;
}

void edited_remove(const edited *e, int i) {
    own_array(e);
    shift(e, i, i, -1);
    if (e->list) {
        memmove(e->list->calls + i, e->list->calls + i + 1, (size_t)(e->list->n - i - 1) * sizeof *e->list->calls);
        e->list->n--;
        return;
    }
    ndp_program *p = e->program;
    memmove(p->instrs + i, p->instrs + i + 1, (size_t)(p->n - i - 1) * sizeof *p->instrs);
    p->n--;
}

void edited_copy(const edited *e, int of, int at, int like) {
    own_array(e);
    shift(e, at, like, 1);
    if (e->list) {
        ndp_call made = e->list->calls[of];
        memmove(e->list->calls + at + 1, e->list->calls + at, (size_t)(e->list->n - at) * sizeof *e->list->calls);
        e->list->calls[at] = made;
        e->list->n++;
        return;
    }
    ndp_program *p = e->program;
    ndp_instr made = p->instrs[of];
    memmove(p->instrs + at + 1, p->instrs + at, (size_t)(p->n - at) * sizeof *p->instrs);
    p->instrs[at] = made;
    p->n++;
}

void edited_pair(const edited *e, int begin, int wait) {
    ndp_call *b = edited_call(e, begin), *w = edited_call(e, wait);
    journal_keep(e->journal, b, sizeof *b);
    journal_keep(e->journal, w, sizeof *w);
    b->partner = wait, w->partner = begin;
}

int edited_block(const edited *e, size_t bytes) {
    ndp_program *p = e->program;
    journal_keep(e->journal, p, sizeof *p);
    ndp_block *blocks = take(e->journal, (size_t)(p->n_blocks + 1) * sizeof *blocks);
    memcpy(blocks, p->blocks, (size_t)p->n_blocks * sizeof *blocks);
    p->blocks = blocks;
    p->bytes[NDP_REGION_ARENA] = (p->bytes[NDP_REGION_ARENA] + 63) & ~(size_t)63;
    blocks[p->n_blocks] = (ndp_block){.class = NDP_MEM_WORK,
                                      .region = NDP_REGION_ARENA,
                                      .bytes = bytes,
                                      .offset = p->bytes[NDP_REGION_ARENA],
                                      .life = {0, p->n, 0, 0},
                                      .ring = {p->n_blocks, 1},
                                      .role = NDP_NONE};
    p->bytes[NDP_REGION_ARENA] += bytes;
    return p->n_blocks++;
}

bool edited_kernel(const edited *e, int i, const ndp_op *op, const ndp_op_attr *attr, const ndp_operand *in, int n_in,
                   const ndp_operand *out, int n_out) {
    ndp_call made, *c = edited_call(e, i);
    if (ndp_call_init(&made, &e->journal->arena, op, attr, in, n_in, out, n_out) != NDP_OK ||
        ndp_call_find_kernel(&made, e->program->opts.step.exec->device) != NDP_OK)
        return false;
    made.of = c->of, made.what = c->what;
    journal_keep(e->journal, c, sizeof *c);
    *c = made;
    return true;
}
