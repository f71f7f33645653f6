/* Folding: two copies of a body become one range that repeats. The builder calls ndp_program_fold.
 *
 *     before   prologue | body | body' | rest           what the builder wrote, for few micro-batches
 *     after    prologue | body x times | rest           what the step runs
 *
 * Items are blocks, and communications under way, which live from their begin to their wait.
 *
 * Rotation: the activations of one role live from a micro-batch's forward to its gradients, first in, first out. If R
 * of them live at once in the bodies, R slots are enough: micro-batch m has the slot m % R, a block. An
 * instruction names the first slot and means that of its own micro-batch, so the body is the same in every iteration.
 * Messages under way rotate in the same way. Before and after the bodies more may live at once, in blocks of their own.
 *
 * Comparison: the copies are the same where body' names, in place of an item x of the body, an item next(x), and all
 * else is equal but micro-batches and message tags, which are later by the same number. What enters the body at its
 * start must enter body' as next(x): then the state after an iteration is that before it, and any number of iterations
 * runs as two do. x and next(x) become one item, which may not live on when next(x) begins to: its life has a gap
 * between. */
#include "step/program_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct folded_item {
    ndp_life life;
    int next, before;      /* of body' for one of the body, and back; NDP_NONE */
    int role, micro_batch; /* NDP_NONE: it does not rotate */
    int ring, slots;       /* the first item of its rotation; NDP_NONE */
    int becomes;           /* a block, or the number of a communication */
} folded_item;

typedef struct folding {
    ndp_program *p;
    int first, n, micro_batches; /* the body; body' follows, for micro-batches that much later */
    int n_items, n_blocks;       /* n_blocks: those that remain */
    folded_item *items;          /* the blocks, then by instruction the communications that begin there */
    int *order;                  /* those with a role, by role and micro-batch */
    int n_order;
} folding;

static int item_of(const folding *f, int begin) { return f->p->n_blocks + begin; }

static bool is_block(const folding *f, int i) { return i < f->p->n_blocks; }

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
                                    .ring = NDP_NONE,
                                    .slots = 1};
        if (!is_block(f, i))
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

static int by_role(const void *a, const void *b, void *user) {
    const folding *f = user;
    const folded_item *x = &f->items[*(const int *)a], *y = &f->items[*(const int *)b];
    return x->role != y->role ? (x->role < y->role ? -1 : 1) : x->micro_batch - y->micro_batch;
}

static const ndp_life *life_of(const folding *f, int place) { return &f->items[f->order[place]].life; }

/* How many of order[first, end), which have one role, live at once in the bodies; 0: they are not first in, first out.
 * *low, *high: those that live there. */
static int count_slots(const folding *f, int first, int end, int *low, int *high) {
    int slots = 1, oldest = first;
    *low = *high = first;
    for (int i = first; i < end; i++) {
        const ndp_life *x = life_of(f, i);
        if (i > first && (x->first < life_of(f, i - 1)->first || x->last < life_of(f, i - 1)->last ||
                          f->items[f->order[i]].micro_batch != f->items[f->order[i - 1]].micro_batch + 1))
            return 0;
        if (x->last < f->first || x->first >= f->first + 2 * f->n)
            continue;
        *low = *high == first ? i : *low;
        *high = i + 1;
        oldest = oldest > *low ? oldest : *low;
        while (life_of(f, oldest)->last < (x->first > f->first ? x->first : f->first))
            oldest++;
        slots = i - oldest + 1 > slots ? i - oldest + 1 : slots;
    }
    return slots;
}

/* Makes a ring of the items order[first, end) if several live at once in the bodies. Those before and after belong to
 * it as far as its slots are free for them. */
static bool make_ring(folding *f, int first, int end) {
    int low, high, slots = count_slots(f, first, end, &low, &high);
    while (slots > 1 && low > first &&
           (low - 1 + slots >= high || life_of(f, low - 1)->last < life_of(f, low - 1 + slots)->first))
        low--;
    while (slots > 1 && high < end && (high - slots < low || life_of(f, high)->first > life_of(f, high - slots)->last))
        high++;
    for (int i = low; i < high && slots > 1; i++) {
        folded_item *x = &f->items[f->order[i]], *ring = &f->items[f->order[low]];
        x->ring = f->order[low];
        ring->slots = slots;
    }
    return slots > 0;
}

static bool make_rings(folding *f) {
    bool ok = true;
    for (int i = 0; i < f->n_items; i++) {
        const folded_item *x = &f->items[i];
        if (x->role != NDP_NONE && x->life.first >= 0)
            f->order[f->n_order++] = i;
    }
    qsort_r(f->order, (size_t)f->n_order, sizeof *f->order, by_role, f);
    for (int first = 0, end; ok && first < f->n_order; first = end) {
        for (end = first; end < f->n_order && f->items[f->order[end]].role == f->items[f->order[first]].role;)
            end++;
        ok = make_ring(f, first, end);
    }
    return ok;
}

/* ---- comparing ---- */

/* Items x and y, which instructions for micro-batches m and m + f->micro_batches name. */
static bool pair(folding *f, int x, int y, int m) {
    if (x == NDP_NONE || y == NDP_NONE)
        return x == y;
    folded_item *a = &f->items[x], *b = &f->items[y];
    if (a->ring != NDP_NONE || b->ring != NDP_NONE)
        return a->ring == b->ring && a->micro_batch == m && b->micro_batch == m + f->micro_batches;
    if (a->next == NDP_NONE && b->before == NDP_NONE)
        a->next = y, b->before = x;
    return a->next == y && b->before == x;
}

static bool same_operands(folding *f, const ndp_operand *a, const ndp_operand *b, int n, int m) {
    for (int k = 0; k < n; k++) {
        const ndp_view *x = &a[k].view, *y = &b[k].view;
        if (a[k].offset != b[k].offset || x->dtype != y->dtype || x->rows != y->rows || x->cols != y->cols ||
            x->ld != y->ld || !pair(f, a[k].base, b[k].base, m))
            return false;
    }
    return true;
}

static bool is_message(const ndp_instr *in) { return in->role != NDP_NONE; }

static bool same_attr(const ndp_op_attr *a, const ndp_op_attr *b) {
#define SAME(type, name) &&a->name == b->name
    return a->accumulate == b->accumulate NDP_OP_ATTRS(SAME);
#undef SAME
}

static bool same_call(folding *f, const ndp_instr *a, const ndp_instr *b) {
    const ndp_call *x = &a->call, *y = &b->call;
    int m = a->micro_batch;
    ndp_op_attr attr = y->attr;
    if (is_message(a)) {
        ndp_walk later = {.micro_batch = f->micro_batches};
        if (ndp_tag_at(x, &later) != y->attr.tag)
            return false;
        attr.tag = x->attr.tag;
    }
    bool same = x->kind == y->kind && x->op == y->op && same_attr(&x->attr, &attr) && x->n_in == y->n_in &&
                x->n_out == y->n_out && x->channel == y->channel && x->in_place == y->in_place &&
                x->scratch_offset == y->scratch_offset && pair(f, x->scratch, y->scratch, m);
    if (same && x->kind != NDP_CALL_KERNEL)
        same = pair(f, item_of(f, a->work), item_of(f, b->work), m);
    return same && same_operands(f, x->in, y->in, x->n_in, m) && same_operands(f, x->out, y->out, x->n_out, m);
}

static bool same_run(folding *f, const ndp_instr *a, const ndp_instr *b) {
    bool same = a->unit == b->unit && a->phase == b->phase && a->accumulate == b->accumulate;
    for (int i = 0; same && i < NDP_BASE_DATA; i++)
        same = pair(f, a->bases[i], b->bases[i], a->micro_batch);
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

static bool crosses(const folding *f, int i, int border) {
    return f->items[i].life.first < border && f->items[i].life.last >= border;
}

/* True if what enters the body enters body' in its place, and nothing else does, and what leaves body' left the body in
 * its place. Items that neither names stay. */
static bool same_borders(const folding *f) {
    int body = f->first, copy = f->first + f->n, rest = copy + f->n;
    for (int i = 0; i < f->n_items; i++) {
        const folded_item *x = &f->items[i];
        bool stays = x->next == NDP_NONE && x->before == NDP_NONE;
        int later = stays ? i : x->next, earlier = stays ? i : x->before;
        if (x->ring != NDP_NONE)
            continue;
        if (is_block(f, i) && f->p->blocks[i].persistent) {
            if (!stays && x->next != i)
                return false;
            continue;
        }
        bool in = !crosses(f, i, body) || (later != NDP_NONE && crosses(f, later, copy));
        bool out = !crosses(f, i, copy) || (earlier != NDP_NONE && crosses(f, earlier, body));
        bool left = !crosses(f, i, rest) || earlier == NDP_NONE || crosses(f, earlier, copy);
        bool apart = x->next == NDP_NONE || x->next == i || x->life.last < f->items[x->next].life.first;
        if (!in || !out || !left || !apart)
            return false;
    }
    return true;
}

/* ---- the folded program ---- */

/* The number of an instruction after body' was removed. */
static int folded_at(const folding *f, int at) { return at < f->first + f->n ? at : at - f->n; }

/* What item `i` lives over, the first of those that become one. */
static ndp_life folded_life(const folding *f, int i) {
    const folded_item *x = &f->items[i];
    int end = f->first + f->n - 1;
    ndp_life life = {folded_at(f, x->life.first), folded_at(f, x->life.last), 0, 0};
    if (x->next == NDP_NONE || x->next == i || !crosses(f, i, f->first))
        return life;
    const folded_item *next = &f->items[x->next];
    life.gap = x->life.last + 1;
    life.gap_n = next->life.first - life.gap;
    int after = next->next == NDP_NONE ? end : folded_at(f, f->items[next->next].life.last);
    life.last = after > end ? after : end;
    return life;
}

/* The first of the items that become one: of a ring, or of a chain x, next(x), ... */
static int first_of(const folding *f, int i) {
    if (f->items[i].ring != NDP_NONE)
        return f->items[i].ring;
    while (f->items[i].before != NDP_NONE && f->items[i].before != i)
        i = f->items[i].before;
    return i;
}

/* The life of slot `slot` of a ring: from the first use of any slot (checks number the micro-batches before the bodies
 * in another way, ndp_visits) to its own last use after the bodies, or their end. Micro-batches there are `later` than
 * the builder numbered them. */
static ndp_life slot_life(const folding *f, int ring, int slot, int later) {
    int slots = f->items[ring].slots, rest = f->first + 2 * f->n;
    ndp_life life = {f->first, f->first + f->n - 1, 0, 0};
    for (int i = 0; i < f->n_order; i++) {
        const folded_item *x = &f->items[f->order[i]];
        if (x->ring != ring)
            continue;
        life.first = x->life.first < life.first ? x->life.first : life.first;
        if ((x->micro_batch + later) % slots == slot && x->life.last >= rest && folded_at(f, x->life.last) > life.last)
            life.last = folded_at(f, x->life.last);
    }
    return life;
}

/* Numbers what remains, without gaps, and makes the list of blocks again. */
static void number_items(folding *f, int later, ndp_block *blocks) {
    ndp_program *p = f->p;
    int n = 0;
    p->n_works = 0;
    for (int i = 0; i < f->n_items; i++) {
        folded_item *x = &f->items[i];
        if (first_of(f, i) != i || (!is_block(f, i) && x->life.first < 0))
            continue;
        x->becomes = is_block(f, i) ? n : p->n_works;
        if (!is_block(f, i))
            p->n_works += x->slots;
        for (int slot = 0; is_block(f, i) && slot < x->slots; slot++) {
            blocks[n] = p->blocks[i];
            blocks[n].slots = slot == 0 ? x->slots : 1;
            blocks[n++].life = x->slots > 1 ? slot_life(f, i, slot, later) : folded_life(f, i);
        }
    }
    free(p->blocks);
    p->blocks = blocks;
    p->block_capacity = p->n_blocks;
    f->n_blocks = n;
}

static void rename_block(const folding *f, int *block) {
    if (*block != NDP_NONE)
        *block = f->items[first_of(f, *block)].becomes;
}

static void rename_blocks(const folding *f, ndp_instr *in) {
    for (int i = 0; in->code == NDP_DO_RUN && i < NDP_BASE_DATA; i++)
        rename_block(f, &in->bases[i]);
    if (in->code != NDP_DO_CALL)
        return;
    rename_block(f, &in->call.scratch);
    if (in->call.kind == NDP_CALL_WAIT) /* shares the operands of its begin */
        return;
    for (int k = 0; k < in->call.n_in; k++)
        rename_block(f, &in->call.in[k].base);
    for (int k = 0; k < in->call.n_out; k++)
        rename_block(f, &in->call.out[k].base);
}

static void rename_work(const folding *f, ndp_instr *in) {
    const folded_item *x = &f->items[first_of(f, item_of(f, in->work))];
    in->work = x->becomes;
    in->works = x->slots;
    in->call.partner = folded_at(f, in->call.partner);
}

static void rewrite(folding *f, int times) {
    ndp_program *p = f->p;
    int rest = f->first + 2 * f->n, later = (times - 2) * f->micro_batches;
    for (int i = 0; i < p->n; i++) {
        ndp_instr *in = &p->instrs[i];
        rename_blocks(f, in);
        if (ndp_instr_is(in, NDP_CALL_BEGIN) || ndp_instr_is(in, NDP_CALL_WAIT))
            rename_work(f, in);
        if (i >= rest && is_message(in)) {
            ndp_walk w = {.micro_batch = later};
            in->call.attr.tag = ndp_tag_at(&in->call, &w);
        }
        if (i >= rest && has_micro_batch(in))
            in->micro_batch += later;
    }
    memmove(p->instrs + f->first + f->n, p->instrs + rest, (size_t)(p->n - rest) * sizeof *p->instrs);
    p->n -= f->n;
    p->first_update = folded_at(f, p->first_update);
    p->repeats.items[0] = (ndp_repeat){f->first, f->n, times, f->micro_batches};
    p->repeats.n = 1;
}

ndp_status ndp_program_fold(ndp_program *p, int first, int n, int times, int micro_batches, bool *folded) {
    folding f = {.p = p, .first = first, .n = n, .micro_batches = micro_batches, .n_items = p->n_blocks + p->n};
    f.items = malloc(((size_t)f.n_items + 1) * sizeof *f.items);
    f.order = malloc(((size_t)f.n_items + 1) * sizeof *f.order);
    p->repeats.items = calloc(1, sizeof *p->repeats.items);
    ndp_block *blocks = malloc(((size_t)p->n_blocks + 1) * sizeof *blocks);
    ndp_status st = f.items && f.order && blocks && p->repeats.items
                        ? NDP_OK
                        : NDP_FAIL(NDP_ENOMEM, "no memory to fold a program of %d instructions", p->n);
    *folded = false;
    if (st == NDP_OK) {
        list_items(&f);
        *folded = n > 0 && make_rings(&f) && same_bodies(&f) && same_borders(&f);
    }
    if (*folded) {
        number_items(&f, (times - 2) * micro_batches, blocks);
        rewrite(&f, times);
        p->n_blocks = f.n_blocks;
    } else {
        free(blocks);
    }
    free(f.items);
    free(f.order);
    return st;
}
