/* Inside repeats.c and rotation.c: a program while its copies of a body become one. */
#ifndef NDP_STEP_FOLDING_H
#define NDP_STEP_FOLDING_H

#include "step/program_parts.h"

/* A block, or a communication, which lives from its begin to its wait. */
typedef struct folded_item {
    ndp_life life;
    int next, before;      /* of body' for one of the body, and back; NDP_NONE */
    int role, micro_batch; /* role NDP_NONE: it never rotates */
    bool rotates;          /* its role does */
    int slot, last_slot;   /* up to the end of the body, and after body'; NDP_NONE: none */
    int becomes;           /* without a slot: a block, or the number of a communication */
} folded_item;

/* A place that items of one size take turns in. */
typedef struct folded_slot {
    int next;         /* the slot whose item of the next iteration is like the one here */
    bool held;        /* over the whole body; else an item of the body has it for a time */
    ndp_life life;    /* in the program with both copies */
    int cycle, turns; /* the first slot of its cycle, and how many the cycle has */
    int number;       /* of the block, or communication */
    ndp_ring ring;    /* of the cycle's numbers */
} folded_slot;

typedef struct folding {
    ndp_program *p;
    int first, n, times, micro_batches; /* the body; body' follows, for micro-batches that much later */
    bool by_role;                       /* each role has slots of its own */
    int n_items;
    int n_blocks, n_works; /* that remain */
    folded_item *items;    /* the blocks, then by instruction the communications that begin there */
    folded_slot *slots;
    int n_slots;
    int *order; /* items with a role */
    int n_order;
} folding;

/* The borders: the starts of the body, of body', and of what follows it. */
static inline int ndp_fold_body(const folding *f) { return f->first; }
static inline int ndp_fold_copy(const folding *f) { return f->first + f->n; }
static inline int ndp_fold_rest(const folding *f) { return f->first + 2 * f->n; }

static inline bool ndp_fold_is_block(const folding *f, int item) { return item < f->p->n_blocks; }

/* True if the item lives before instruction `border` and from there on. */
static inline bool ndp_fold_crosses(const folding *f, int item, int border) {
    return f->items[item].life.first < border && f->items[item].life.last >= border;
}

/* Links the items of each role, finds the roles that rotate, and gives their items slots. False: an item that enters
 * the body has none that enters body' in its place. */
bool ndp_fold_rotate(folding *f);

#endif
