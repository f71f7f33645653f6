/* Rotations: a repeated range names a block, or the number of a communication, and means the next one in every
 * iteration (ndp_ring). Two iterations meet some of them alone. So the memory of each is compared here with that of all
 * others that live meanwhile, whichever iterations are executed. */
#include "placement/step_buffer.h"

/* ---- blocks ---- */

static bool share_bytes(const ndp_block *a, const ndp_block *b) {
    return a->region == b->region && a->bytes > 0 && b->bytes > 0 && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static bool may_live_together(const ndp_block *a, const ndp_block *b) {
    bool lives = a->life.first >= 0 && b->life.first >= 0;
    return a->persistent || b->persistent || (lives && ndp_lives_meet(&a->life, &b->life));
}

static ndp_status check_block(const ndp_program *p, int block) {
    for (int i = 0; i < p->n_blocks; i++) {
        const ndp_block *a = &p->blocks[block], *b = &p->blocks[i];
        if (i != block && share_bytes(a, b) && may_live_together(a, b))
            return NDP_FAIL(NDP_EBUG,
                            "placement: rank %d: block %d, which takes turns with %d others, has bytes of block %d, "
                            "which is there at the same time",
                            p->opts.step.mesh.rank, block, a->ring.n - 1, i);
    }
    return NDP_OK;
}

/* ---- places in pinned memory ---- */

typedef struct pinned_work {
    ndp_life life;
    size_t bytes; /* 0: no communication has the number */
    int at;       /* its first begin */
} pinned_work;

/* A number of a range that is waited for at its start and begun again later is free between. One that rotates may be
 * under way in all of the range. */
static void extend(pinned_work *w, const ndp_instr *in, int at) {
    const ndp_call *c = &in->call;
    if (w->bytes == 0) {
        *w = (pinned_work){.life = {at, at, 0, 0}, .bytes = ndp_step_pinned_bytes(c), .at = at};
    } else if (c->kind == NDP_CALL_WAIT || in->works.n > 1) {
        w->life.last = at;
    } else {
        w->life.gap = w->life.last + 1;
        w->life.gap_n = at - w->life.gap;
    }
}

static void find_lives(const ndp_program *p, pinned_work *works) {
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        bool begins = ndp_instr_is(in, NDP_CALL_BEGIN), waits = ndp_instr_is(in, NDP_CALL_WAIT);
        for (int k = 0; (begins || waits) && k < in->works.n; k++)
            extend(&works[in->works.first + k], in, i);
    }
}

static ndp_status check_work(const ndp_program *p, const pinned_work *works, int work) {
    const pinned_work *a = &works[work];
    size_t start = p->staging.places[work], end = start + a->bytes;
    for (int i = 0; i < p->n_works; i++) {
        const pinned_work *b = &works[i];
        size_t first = p->staging.places[i], last = first + b->bytes;
        if (i != work && b->bytes > 0 && start < last && first < end && ndp_lives_meet(&a->life, &b->life))
            return NDP_FAIL(
                NDP_EBUG,
                "placement: rank %d: #%d %s %s, which takes turns in pinned memory, has bytes %zu to %zu of "
                "it, where #%d %s may be under way",
                p->opts.step.mesh.rank, a->at, p->instrs[a->at].call.op->name, p->instrs[a->at].what, start, end, b->at,
                p->instrs[b->at].call.op->name);
    }
    return NDP_OK;
}

ndp_status ndp_step_rings_check(const ndp_program *p, ndp_arena *arena) {
    pinned_work *works;
    for (int i = 0; i < p->n_blocks; i++)
        if (p->blocks[i].ring.n > 1)
            NDP_TRY(check_block(p, i));
    if (p->staging.bytes == 0)
        return NDP_OK;
    NDP_TRY(NDP_NEW(arena, p->n_works, works));
    find_lives(p, works);
    for (int i = 0; i < p->n_works; i++)
        if (works[i].bytes > 0 && p->instrs[works[i].at].works.n > 1)
            NDP_TRY(check_work(p, works, i));
    return NDP_OK;
}
