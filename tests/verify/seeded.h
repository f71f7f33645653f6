/* Bugs on purpose that several tests put into the program of an engine. */
#ifndef TESTS_VERIFY_SEEDED_H
#define TESTS_VERIFY_SEEDED_H

#include "ops/pieces.h"
#include "step/engine.h"
#include <string.h>

/* Makes of an instruction one that may be done again: the scale of the loss. */
static inline void harmless(const ndp_program *p, ndp_instr *in) {
    int i = 0;
    while (p->instrs[i].code != NDP_DO_CALL || p->instrs[i].call.op != &ndp_op_loss_scale)
        i++;
    *in = p->instrs[i];
}

/* Puts another kernel into the calls of an op. */
static inline void replace_kernel(ndp_program *p, int graph, ndp_phase phase, const ndp_op *op,
                                  ndp_status (*run)(const ndp_op_call *call)) {
    ndp_kernel *bad = ndp_arena_alloc(&((ndp_model *)p->opts.model)->arena, sizeof *bad);
    bad->run = run;
    const ndp_list *list = &p->opts.units[graph].lists[phase];
    for (int i = 0; i < list->n; i++)
        if (list->calls[i].op == op)
            list->calls[i].kernel = bad;
}

/* attr.peer, of which this op knows nothing: the piece of the rank's slice that counts again; NDP_NONE: it has none of
 * the tensor. */
static ndp_status sum_squares_again(const ndp_op_call *c) {
    const ndp_kernel *kernel = c->exec->device->kernels[NDP_OP_square_sum];
    ndp_op_attr again = *c->attr;
    ndp_op_call one = *c;
    NDP_TRY(kernel->run(c));
    if (c->attr->peer == NDP_NONE)
        return NDP_OK;
    again.accumulate = true;
    one.attr = &again;
    one.in[1].data = (void *)ndp_piece_at(&c->in[1], c->attr->peer);
    one.in[1].rows = 1;
    return kernel->run(&one);
}

/* A tensor of a buffer counts twice in the norm. */
static inline void count_tensor_twice(ndp_program *p, int buffer, const char *tensor) {
    static const ndp_kernel kernel = {.run = sum_squares_again};
    const ndp_shard *s = &p->owned[buffer].shard;
    const ndp_buffer *b = &p->opts.model->buffers[buffer];
    ndp_piece piece;
    int counted_again = NDP_NONE;
    for (int cursor = 0, i = 0; ndp_segments_piece(&b->segments, s->shards, s->index, &cursor, &piece); i++)
        if (strstr(piece.segment->name, tensor))
            counted_again = i;
    for (int i = 0; i < p->n; i++)
        if (p->instrs[i].code == NDP_DO_CALL && p->instrs[i].call.op == &ndp_op_square_sum &&
            strcmp(p->instrs[i].what, b->name) == 0)
            p->instrs[i].call.kernel = &kernel, p->instrs[i].call.attr.peer = counted_again;
}

#endif
