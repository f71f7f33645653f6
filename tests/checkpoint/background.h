/* A save in the background, from its beginning to its end, with what is saved overwritten as soon as it may be. */
#ifndef TESTS_CHECKPOINT_BACKGROUND_H
#define TESTS_CHECKPOINT_BACKGROUND_H

#include "checkpoint/checkpoint.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static inline void change_pieces(const ndp_save_request *r) {
    for (int i = 0; i < r->n_pieces; i++)
        for (int64_t k = 0, by = r->pieces[i].stride > 1 ? r->pieces[i].stride : 1; k < r->pieces[i].count; k++)
            ((float *)(uintptr_t)r->pieces[i].data)[k * by] = -1;
}

/* The request's pieces are fp32 in memory. `waits`: as a run does, only goes on once its thread has ended. */
static inline ndp_status save_in_background(ndp_comm *world, const ndp_save_request *r, bool waits,
                                            ndp_save_cost *cost) {
    ndp_background_save *b;
    int64_t bytes;
    bool ended = false;
    NDP_TRY(ndp_background_save_bytes(world, r, &bytes));
    void *space = malloc((size_t)bytes + 1);
    ndp_status st = ndp_background_save_begin(world, r, space, bytes, &b);
    if (st == NDP_OK)
        change_pieces(r);
    while (st == NDP_OK && !ended) {
        while (!waits && ndp_background_save_works(b))
            sched_yield();
        st = ndp_background_save_go_on(b, &ended, cost);
    }
    free(space);
    return st;
}

#endif
