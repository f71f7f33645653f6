/* Folding: two copies of a body become one range that repeats. The builder calls ndp_program_fold.
 *
 *     before   prologue | body | body' | rest           what the builder wrote, for few micro-batches
 *     after    prologue | body x times | rest           what the step runs
 *
 * Comparison: the copies are the same where body' names, in place of an item x of the body, an item next(x), and all
 * else is equal but micro-batches and message tags, which are later by the same number. What enters the body at its
 * start must enter body' as next(x): then the state after an iteration is that before it, and any number of iterations
 * runs as two do. x and next(x) become one item, which may not live on when next(x) begins to: its life has a gap
 * between. Items that do live on rotate (rotation.c). */
#include "step/folding.h"

#include <stdlib.h>
#include <string.h>

static int item_of(const folding *f, int begin) { return f->p->n_blocks + begin; }

/* ---- items ---- */

/* Messages have roles of their own, after those of blocks. */
static void list_items(folding *f) {
    const ndp_program *p = f->p;
    int roles = 0;
    for (int i = 0; i < f->n_items; i++) {
        f->items[i] = (folded_item){.life = {-1, -1, 0, 0},
                                    .next = NDP_NONE,
                                    .before = NDP_NONE,
                                    .role = NDP_NONE,
                                    .slot = NDP_NONE,
                                    .last_slot = NDP_NONE};
        if (!ndp_fold_is_block(f, i))
            continue;
        f->items[i].life = p->blocks[i].life;
        f->items[i].role = p->blocks[i].role;
        f->items[i].micro_batch = p->blocks[i].micro_batch;
        roles = p->blocks[i].role >= roles ? p->blocks[i].role + 1 : roles;
    }
    for (int i = 0; i < p->n; i++)
        if (ndp_instr_is(&p->instrs[i], NDP_CALL_BEGIN)) {
            folded_item *x = &f->items[item_of(f, i)];
            x->life = (ndp_life){i, p->instrs[i].call.partner, 0, 0};
            x->role = p->instrs[i].role == NDP_NONE ? NDP_NONE : roles + p->instrs[i].role;
            x->micro_batch = p->instrs[i].micro_batch;
        }
}

/* ---- comparing ---- */

/* True if y is next(x). Items that rotate are linked already, others where they are first named. */
static bool pair(folding *f, int x, int y) {
    if (x == NDP_NONE || y == NDP_NONE)
        return x == y;
    folded_item *a = &f->items[x], *b = &f->items[y];
    if (a->next == NDP_NONE && b->before == NDP_NONE)
        a->next = y, b->before = x;
    return a->next == y && b->before == x;
}

static bool pair_bases(folding *f, const ndp_operand *a, const ndp_operand *b, int n) {
    bool same = true;
    for (int k = 0; k < n; k++)
        same = same && pair(f, a[k].base, b[k].base);
    return same;
}

static bool is_message(const ndp_instr *in) { return in->role != NDP_NONE; }

static bool same_call(folding *f, const ndp_instr *a, const ndp_instr *b) {
    const ndp_call *x = &a->call, *y = &b->call;
    const ndp_walk later = {.micro_batch = is_message(a) ? f->micro_batches : 0};
    return ndp_calls_alike(x, y) && ndp_tag_at(x, &later) == y->attr.tag && pair(f, x->scratch, y->scratch) &&
           (x->kind == NDP_CALL_KERNEL || pair(f, item_of(f, a->work), item_of(f, b->work))) &&
           pair_bases(f, x->in, y->in, x->n_in) && pair_bases(f, x->out, y->out, x->n_out);
}

static bool same_run(folding *f, const ndp_instr *a, const ndp_instr *b) {
    bool same = a->unit == b->unit && a->phase == b->phase && a->accumulate == b->accumulate;
    for (int i = 0; same && i < NDP_BASE_DATA; i++)
        same = pair(f, a->bases[i], b->bases[i]);
    return same;
}

/* RUNs and messages are for micro-batches; any other instruction is for all of them. */
static bool has_micro_batch(const ndp_instr *in) { return in->code == NDP_DO_RUN || is_message(in); }

static bool same_instr(folding *f, const ndp_instr *a, const ndp_instr *b) {
    int later = has_micro_batch(a) ? f->micro_batches : 0;
    if (a->code != b->code || a->buffer != b->buffer || a->role != b->role || strcmp(a->what, b->what) != 0 ||
        a->micro_batch + later != b->micro_batch)
        return false;
    return a->code == NDP_DO_RUN ? same_run(f, a, b) : same_call(f, a, b);
}

static bool same_bodies(folding *f) {
    const ndp_instr *a = f->p->instrs + f->first, *b = a + f->n;
    for (int i = 0; i < f->n; i++)
        if (!same_instr(f, &a[i], &b[i]))
            return false;
    return true;
}

/* True if what enters the body enters body' in its place, and nothing else does, and what leaves body' left the body in
 * its place. Items that neither names stay. */
static bool same_borders(const folding *f) {
    int body = ndp_fold_body(f), copy = ndp_fold_copy(f), rest = ndp_fold_rest(f);
    for (int i = 0; i < f->n_items; i++) {
        const folded_item *x = &f->items[i];
        bool stays = x->next == NDP_NONE && x->before == NDP_NONE && !x->rotates;
        int later = stays ? i : x->next, earlier = stays ? i : x->before;
        if (ndp_fold_is_block(f, i) && f->p->blocks[i].persistent) {
            if (!stays && x->next != i)
                return false;
            continue;
        }
        bool in = !ndp_fold_crosses(f, i, body) || (later != NDP_NONE && ndp_fold_crosses(f, later, copy));
        bool out = !ndp_fold_crosses(f, i, copy) || (earlier != NDP_NONE && ndp_fold_crosses(f, earlier, body));
        bool left = !ndp_fold_crosses(f, i, rest) || earlier == NDP_NONE || ndp_fold_crosses(f, earlier, copy);
        bool apart = x->rotates || x->next == NDP_NONE || x->next == i || x->life.last < f->items[x->next].life.first;
        if (!in || !out || !left || !apart)
            return false;
    }
    return true;
}

/* ---- the folded program ---- */

/* The number of an instruction after body' was removed. */
static int folded_at(const folding *f, int at) { return at < ndp_fold_copy(f) ? at : at - f->n; }

/* What item `i` lives over, the first of those that become one. */
static ndp_life folded_life(const folding *f, int i) {
    const folded_item *x = &f->items[i];
    int end = ndp_fold_copy(f) - 1;
    ndp_life life = {folded_at(f, x->life.first), folded_at(f, x->life.last), 0, 0};
    if (ndp_fold_crosses(f, i, ndp_fold_copy(f)) && life.last < end)
        life.last = end; /* the next iteration has it too */
    if (x->next == NDP_NONE || x->next == i || !ndp_fold_crosses(f, i, ndp_fold_body(f)))
        return life;
    const folded_item *next = &f->items[x->next];
    life.gap = x->life.last + 1;
    life.gap_n = next->life.first - life.gap;
    int after = next->next == NDP_NONE ? end : folded_at(f, f->items[next->next].life.last);
    life.last = after > end ? after : end;
    return life;
}

/* The first of the items that become one: of a chain x, next(x), ... of those that do not rotate, in the bodies. */
static int first_of(const folding *f, int i) {
    while (!f->items[i].rotates && f->items[i].before != NDP_NONE && f->items[i].before != i)
        i = f->items[i].before;
    return i;
}

/* ---- numbers ---- */

static void add_block(folding *f, int item, ndp_life life, ndp_ring ring, ndp_block *blocks) {
    blocks[f->n_blocks] = f->p->blocks[item];
    blocks[f->n_blocks].life = life;
    blocks[f->n_blocks++].ring = ring;
}

/* Numbers the slots of a cycle, those of an item, if they have none yet. */
static void number_cycle(folding *f, int item, int slot, ndp_block *blocks) {
    bool block = ndp_fold_is_block(f, item);
    int *n = block ? &f->n_blocks : &f->n_works, s = f->slots[slot].cycle;
    const ndp_ring ring = {*n, f->slots[s].turns};
    if (f->slots[s].number != NDP_NONE)
        return;
    for (int k = 0; k < ring.n; k++, s = f->slots[s].next) {
        ndp_life life = f->slots[s].life;
        f->slots[s].number = ring.first + k;
        f->slots[s].ring = ring;
        if (block)
            add_block(f, item, (ndp_life){life.first, folded_at(f, life.last), 0, 0}, ring, blocks);
        else
            ++*n;
    }
}

static void number_item(folding *f, int i, ndp_block *blocks) {
    folded_item *x = &f->items[i];
    if (ndp_fold_is_block(f, i)) {
        x->becomes = f->n_blocks;
        add_block(f, i, folded_life(f, i), (ndp_ring){f->n_blocks, 1}, blocks);
    } else {
        x->becomes = f->n_works++;
    }
}

/* Numbers what remains, without gaps, and makes the list of blocks again. */
static void number_items(folding *f, ndp_block *blocks) {
    f->n_blocks = f->n_works = 0;
    for (int i = 0; i < f->n_slots; i++)
        f->slots[i].number = NDP_NONE;
    for (int i = 0; i < f->n_items; i++) {
        const folded_item *x = &f->items[i];
        bool removed = x->rotates && x->life.first >= ndp_fold_copy(f) && x->life.last < ndp_fold_rest(f);
        if (x->slot != NDP_NONE)
            number_cycle(f, i, x->slot, blocks);
        if (x->last_slot != NDP_NONE)
            number_cycle(f, i, x->last_slot, blocks);
        if (x->slot == NDP_NONE && x->last_slot == NDP_NONE && first_of(f, i) == i && !removed &&
            (ndp_fold_is_block(f, i) || x->life.first >= 0))
            number_item(f, i, blocks);
    }
}

/* What an instruction that names the item is to name: after the bodies, `rest`, it has the slot of its place there. */
static int renamed(const folding *f, int item, bool rest, ndp_ring *ring) {
    const folded_item *x = &f->items[item];
    int slot = rest ? x->last_slot : x->slot, number = f->items[first_of(f, item)].becomes;
    *ring = slot == NDP_NONE ? (ndp_ring){number, 1} : f->slots[slot].ring;
    return slot == NDP_NONE ? number : f->slots[slot].number;
}

static void rename_block(const folding *f, int *block, bool rest) {
    ndp_ring ring;
    if (*block != NDP_NONE)
        *block = renamed(f, *block, rest, &ring);
}

static void rename_blocks(const folding *f, ndp_instr *in, bool rest) {
    for (int i = 0; in->code == NDP_DO_RUN && i < NDP_BASE_DATA; i++)
        rename_block(f, &in->bases[i], rest);
    if (in->code != NDP_DO_CALL)
        return;
    rename_block(f, &in->call.scratch, rest);
    for (int k = 0; k < in->call.n_in; k++)
        rename_block(f, &in->call.in[k].base, rest);
    for (int k = 0; k < in->call.n_out; k++)
        rename_block(f, &in->call.out[k].base, rest);
}

/* A wait shares the operands of its begin. After the bodies, one for a begin in them gets its own: it names places
 * after all iterations. */
static ndp_status own_operands(const folding *f, ndp_instr *in) {
    ndp_call *c = &in->call;
    size_t n = (size_t)c->n_in + (size_t)c->n_out;
    ndp_operand *own = ndp_arena_alloc(&f->p->arena, n * sizeof *own);
    NDP_CHECK_MEMORY(own, "to fold a program of %d instructions", f->p->n);
    memcpy(own, c->in, (size_t)c->n_in * sizeof *own);
    memcpy(own + c->n_in, c->out, (size_t)c->n_out * sizeof *own);
    c->in = own;
    c->out = own + c->n_in;
    return NDP_OK;
}

static ndp_status part_waits(const folding *f) {
    for (int i = ndp_fold_rest(f); i < f->p->n; i++)
        if (ndp_instr_is(&f->p->instrs[i], NDP_CALL_WAIT) && f->p->instrs[i].call.partner < ndp_fold_rest(f))
            NDP_TRY(own_operands(f, &f->p->instrs[i]));
    return NDP_OK;
}

static void rename_all(folding *f) {
    ndp_program *p = f->p;
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        bool rest = i >= ndp_fold_rest(f), wait = ndp_instr_is(in, NDP_CALL_WAIT);
        if (!wait || (rest && in->call.partner < ndp_fold_rest(f)))
            rename_blocks(f, in, rest);
        if (!wait && !ndp_instr_is(in, NDP_CALL_BEGIN))
            continue;
        in->work = renamed(f, item_of(f, in->work), rest, &in->works);
        in->call.partner = folded_at(f, in->call.partner);
    }
}

static void rewrite(folding *f) {
    ndp_program *p = f->p;
    int rest = ndp_fold_rest(f), later = (f->times - 2) * f->micro_batches;
    for (int i = rest; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        if (is_message(in)) {
            ndp_walk w = {.micro_batch = later};
            in->call.attr.tag = ndp_tag_at(&in->call, &w);
        }
        in->micro_batch += has_micro_batch(in) ? later : 0;
    }
    memmove(p->instrs + ndp_fold_copy(f), p->instrs + rest, (size_t)(p->n - rest) * sizeof *p->instrs);
    p->n -= f->n;
    p->first_norm = folded_at(f, p->first_norm);
    p->first_update = folded_at(f, p->first_update);
    p->repeats.items[0] = (ndp_repeat){f->first, f->n, f->times, f->micro_batches, false};
    p->repeats.n = 1;
}

/* Links and numbers all items, with slots for each role or for all of a size. False: the copies differ. */
static bool try_to_fold(folding *f, bool by_role, ndp_block *blocks) {
    f->by_role = by_role;
    f->n_slots = 0;
    list_items(f);
    bool same = ndp_fold_rotate(f) && same_bodies(f) && same_borders(f);
    if (same)
        number_items(f, blocks);
    return same;
}

/* Folds in the way that takes less memory; NULL: in none. Where several roles of one size rotate in turns, slots for
 * all are fewer; but while they are free, nothing else has their memory. */
static ndp_status choose_way(folding *f, ndp_block *blocks, bool *folded) {
    size_t least = SIZE_MAX, bytes;
    bool best = false;
    *folded = false;
    for (int by_role = 0; by_role < 2; by_role++) {
        if (!try_to_fold(f, by_role, blocks))
            continue;
        ndp_program with = *f->p;
        with.blocks = blocks;
        with.n_blocks = f->n_blocks;
        NDP_TRY(ndp_memory_least(&with, &bytes));
        best = bytes < least ? by_role : best;
        least = bytes < least ? bytes : least;
        *folded = true;
    }
    if (*folded && !best) /* the other way was tried last */
        try_to_fold(f, false, blocks);
    return NDP_OK;
}

/* Everything that folding works with; the caller's to release in any case. */
static ndp_status take_tables(folding *f, ndp_block **blocks) {
    size_t n = (size_t)f->n_items + 1;
    f->items = malloc(n * sizeof *f->items);
    f->slots = malloc(n * sizeof *f->slots);
    f->order = malloc(n * sizeof *f->order);
    *blocks = malloc(n * sizeof **blocks);
    f->p->repeats.items = calloc(1, sizeof *f->p->repeats.items);
    return NDP_MEMORY(f->items && f->slots && f->order && *blocks && f->p->repeats.items,
                      "to fold a program of %d instructions", f->p->n);
}

ndp_status ndp_program_fold(ndp_program *p, int first, int n, int times, int micro_batches, bool *folded) {
    folding f = {
        .p = p, .first = first, .n = n, .times = times, .micro_batches = micro_batches, .n_items = p->n_blocks + p->n};
    ndp_block *blocks, *old = p->blocks;
    ndp_status st = take_tables(&f, &blocks);
    *folded = false;
    if (st == NDP_OK && n > 0)
        st = choose_way(&f, blocks, folded);
    if (st == NDP_OK && *folded)
        st = part_waits(&f);
    if (st == NDP_OK && *folded) {
        rename_all(&f);
        rewrite(&f);
        p->blocks = blocks;
        p->n_blocks = f.n_blocks;
        p->n_works = f.n_works;
        p->block_capacity = f.n_items + 1;
        blocks = old;
    }
    free(blocks);
    free(f.items);
    free(f.slots);
    free(f.order);
    return st;
}
