/* Rotation: which items of a repeated range take turns in the same memory.
 *
 * Activations of a micro-batch live from its forward to its gradients, and messages from their begin to their wait. If
 * that is longer than an iteration, x and next(x) live at once and cannot be one block. Then the items of x's pool (its
 * role, or all roles of its size) have slots. An item takes a slot that is free when it begins, so the body needs as
 * many slots as items live at once, whatever their lives are: greedy coloring of intervals by their starts is optimal.
 *
 *     start of the body    slot 0: a    slot 1: b
 *     c begins                                       slot 2: c
 *     a ends
 *     start of body'                    slot 1: b    slot 2: c        b = next(a), c = next(b)
 *
 * Where x has slot s at the start of the body, next(x) has slot `next` of s at its end: 1 of 0, 2 of 1. Slots that are
 * free complete a permutation: 0 of 2. With iteration k in the k-th images of the slots, every iteration is like the
 * first, and no slot has two items at once. A cycle of the permutation is a ring of numbers (ndp_ring).
 *
 * Slots in cycles are held over the whole body. Others serve only what begins and ends in the body, which has memory of
 * its own instead, for as long as it lives. */
#include "step/folding.h"

#include <stdlib.h>

/* ---- roles ---- */

static int by_role(const void *a, const void *b, void *user) {
    const folding *f = user;
    const folded_item *x = &f->items[*(const int *)a], *y = &f->items[*(const int *)b];
    return x->role != y->role ? (x->role < y->role ? -1 : 1) : x->micro_batch - y->micro_batch;
}

/* Links order[first, end), which have one role, if one of them lives on into the next one in the bodies. */
static void link_role(folding *f, int first, int end) {
    bool rotates = false;
    for (int i = first, k = first; i < end; i++) {
        folded_item *x = &f->items[f->order[i]];
        while (k < end && f->items[f->order[k]].micro_batch < x->micro_batch + f->micro_batches)
            k++;
        if (k == end || f->items[f->order[k]].micro_batch != x->micro_batch + f->micro_batches)
            continue;
        folded_item *y = &f->items[f->order[k]];
        x->next = f->order[k], y->before = f->order[i];
        rotates |=
            x->life.last >= y->life.first && x->life.last >= ndp_fold_body(f) && y->life.first < ndp_fold_rest(f);
    }
    for (int i = first; i < end; i++)
        f->items[f->order[i]].rotates = rotates;
}

static void link_roles(folding *f) {
    f->n_order = 0;
    for (int i = 0; i < f->n_items; i++)
        if (f->items[i].role != NDP_NONE && f->items[i].life.first >= 0)
            f->order[f->n_order++] = i;
    qsort_r(f->order, (size_t)f->n_order, sizeof *f->order, by_role, f);
    for (int first = 0, end; first < f->n_order; first = end) {
        for (end = first; end < f->n_order && f->items[f->order[end]].role == f->items[f->order[first]].role;)
            end++;
        link_role(f, first, end);
    }
}

/* ---- pools ---- */

/* Items of one pool: blocks of one class and size, or messages of one role. 0: of the same. */
static int compare_pools(const folding *f, int i, int k) {
    const ndp_block *a = &f->p->blocks[i], *b = &f->p->blocks[k];
    if (f->by_role || !ndp_fold_is_block(f, i) || !ndp_fold_is_block(f, k))
        return ndp_fold_is_block(f, i) != ndp_fold_is_block(f, k) ? (ndp_fold_is_block(f, i) ? -1 : 1)
                                                                  : f->items[i].role - f->items[k].role;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return (int)a->class - (int)b->class;
}

static int by_pool_and_start(const void *a, const void *b, void *user) {
    const folding *f = user;
    int i = *(const int *)a, k = *(const int *)b, pools = compare_pools(f, i, k);
    if (pools != 0)
        return pools;
    int x = f->items[i].life.first, y = f->items[k].life.first;
    return x != y ? (x < y ? -1 : 1) : i - k;
}

static int by_end(const void *a, const void *b, void *user) {
    const folding *f = user;
    int i = *(const int *)a, k = *(const int *)b, x = f->items[i].life.last, y = f->items[k].life.last;
    return x != y ? (x > y ? -1 : 1) : i - k;
}

/* Items order[first, end), by their starts, and the slots from `base` on, up to the latest of the folding. */
typedef struct pool {
    folding *f;
    int first, end, base;
} pool;

static folded_item *item_at(const pool *p, int i) { return &p->f->items[p->f->order[i]]; }

/* A slot that is free from `start` on, the first or the last one; n_slots: none is. What lives on after the body takes
 * the first ones, which were held at its start, so that few more are held. */
static int find_slot(const pool *p, int start, bool first) {
    const folding *f = p->f;
    int found = f->n_slots;
    for (int s = p->base; s < f->n_slots && !(first && found < f->n_slots); s++)
        found = f->slots[s].life.last < start ? s : found;
    return found;
}

/* Slots for what lives in the body. */
static void fill_body(const pool *p) {
    folding *f = p->f;
    for (int i = p->first; i < p->end; i++) {
        folded_item *x = item_at(p, i);
        if (x->life.last < ndp_fold_body(f) || x->life.first >= ndp_fold_copy(f))
            continue;
        int s = find_slot(p, x->life.first, x->life.last >= ndp_fold_copy(f));
        if (s == f->n_slots)
            f->slots[f->n_slots++] = (folded_slot){.next = NDP_NONE, .life = {x->life.first, x->life.last, 0, 0}};
        f->slots[s].life.last = x->life.last;
        x->slot = s;
    }
}

/* The first slot that is the next one of none. */
static int first_free(const pool *p) {
    for (int s = p->base, of; s < p->f->n_slots; s++) {
        for (of = p->base; of < p->f->n_slots && p->f->slots[of].next != s;)
            of++;
        if (of == p->f->n_slots)
            return s;
    }
    return NDP_NONE;
}

/* `next` of the slots at the start of the body, and of others so that it is a permutation. Takes the slots that are not
 * held from their items. */
static bool permute(const pool *p) {
    folding *f = p->f;
    for (int i = p->first; i < p->end; i++) {
        const folded_item *x = item_at(p, i);
        if (!ndp_fold_crosses(f, f->order[i], ndp_fold_body(f)))
            continue;
        if (x->next == NDP_NONE || f->items[x->next].slot == NDP_NONE)
            return false;
        f->slots[x->slot].next = f->items[x->next].slot;
        f->slots[x->slot].held = f->slots[f->items[x->next].slot].held = true;
    }
    for (int i = p->first; i < p->end; i++) {
        folded_item *x = item_at(p, i);
        x->slot = x->slot != NDP_NONE && f->slots[x->slot].held ? x->slot : NDP_NONE;
    }
    for (int s = p->base; s < f->n_slots; s++)
        f->slots[s].next = f->slots[s].held ? f->slots[s].next : s;
    for (int s = p->base; s < f->n_slots; s++)
        if (f->slots[s].next == NDP_NONE)
            f->slots[s].next = first_free(p);
    return true;
}

static void find_cycles(const pool *p) {
    folded_slot *slots = p->f->slots;
    for (int s = p->base; s < p->f->n_slots; s++) {
        int turns = 0, at = s;
        if (slots[s].turns > 0)
            continue;
        do {
            slots[at].cycle = s;
            turns++;
            at = slots[at].next;
        } while (at != s);
        do {
            slots[at].turns = turns;
            at = slots[at].next;
        } while (at != s);
    }
}

static int after_turns(const folding *f, int s, int turns) {
    for (int k = turns % f->slots[s].turns; k > 0; k--)
        s = f->slots[s].next;
    return s;
}

/* Items that end before the body take slots too, the latest first, where one is free; the others have memory of their
 * own. */
static void fill_before(const pool *p) {
    folding *f = p->f;
    int n = 0, *items = f->order + p->first;
    qsort_r(items, (size_t)(p->end - p->first), sizeof *items, by_end, f);
    while (n < p->end - p->first && f->items[items[n]].life.last >= ndp_fold_body(f))
        n++;
    for (; n < p->end - p->first; n++) {
        folded_item *x = &f->items[items[n]];
        int s = p->base;
        while (s < f->n_slots && !(f->slots[s].held && f->slots[s].life.first > x->life.last))
            s++;
        if (s == f->n_slots)
            continue;
        f->slots[s].life.first = x->life.first;
        x->slot = s;
    }
}

/* What leaves body' has the slot of its place after all iterations; items that begin later take those that are free. */
static bool fill_after(const pool *p) {
    folding *f = p->f;
    for (int s = p->base; s < f->n_slots; s++)
        if (f->slots[s].held)
            f->slots[s].life.last = ndp_fold_rest(f) - 1;
    for (int i = p->first; i < p->end; i++) {
        folded_item *x = item_at(p, i);
        if (x->life.last < ndp_fold_rest(f))
            continue;
        int s = p->base;
        if (x->life.first < ndp_fold_rest(f)) {
            if (x->before == NDP_NONE || f->items[x->before].slot == NDP_NONE)
                return false;
            s = after_turns(f, f->items[x->before].slot, f->times - 1);
        }
        while (x->life.first >= ndp_fold_rest(f) && s < f->n_slots &&
               !(f->slots[s].held && f->slots[s].life.last < x->life.first))
            s++;
        if (s == f->n_slots)
            continue;
        f->slots[s].life.last = x->life.last;
        x->last_slot = s;
    }
    return true;
}

/* A slot is taken from the first use of any of its cycle: checks number the turns before the body in another way
 * (ndp_visits). */
static void join_lives(const pool *p) {
    folded_slot *slots = p->f->slots;
    for (int s = p->base; s < p->f->n_slots; s++) {
        folded_slot *first = &slots[slots[s].cycle];
        first->life.first = slots[s].life.first < first->life.first ? slots[s].life.first : first->life.first;
    }
    for (int s = p->base; s < p->f->n_slots; s++)
        slots[s].life.first = slots[slots[s].cycle].life.first;
}

/* Where one role rotates, all of its pool do; else none has links. */
static bool joins(const pool *p) {
    bool rotates = false;
    for (int i = p->first; i < p->end; i++)
        rotates |= item_at(p, i)->rotates;
    for (int i = p->first; i < p->end; i++) {
        folded_item *x = item_at(p, i);
        x->rotates = rotates;
        if (!rotates)
            x->next = x->before = NDP_NONE;
    }
    return rotates;
}

static bool fill(const pool *p) {
    fill_body(p);
    if (!permute(p))
        return false;
    find_cycles(p);
    if (!fill_after(p))
        return false;
    fill_before(p); /* sorts the items by their ends */
    join_lives(p);
    return true;
}

bool ndp_fold_rotate(folding *f) {
    link_roles(f);
    qsort_r(f->order, (size_t)f->n_order, sizeof *f->order, by_pool_and_start, f);
    bool ok = true;
    for (int first = 0, end; ok && first < f->n_order; first = end) {
        for (end = first; end < f->n_order && compare_pools(f, f->order[first], f->order[end]) == 0;)
            end++;
        pool p = {f, first, end, f->n_slots};
        ok = !joins(&p) || fill(&p);
    }
    return ok;
}
