/* Whether the programs of two ranks are the same list on the same memory. plan checks one program for each role. */
#include "step/program.h"

#include <string.h>

static bool same_bases(const ndp_operand *a, const ndp_operand *b, int n) {
    bool same = true;
    for (int k = 0; k < n; k++)
        same = same && a[k].base == b[k].base;
    return same;
}

static bool same_call(const ndp_call *a, const ndp_call *b) {
    return ndp_calls_alike(a, b) && a->attr.tag == b->attr.tag && a->partner == b->partner &&
           a->scratch == b->scratch && same_bases(a->in, b->in, a->n_in) && same_bases(a->out, b->out, a->n_out);
}

static bool same_instr(const ndp_instr *a, const ndp_instr *b) {
    if (a->code != b->code || a->buffer != b->buffer || a->micro_batch != b->micro_batch || a->role != b->role ||
        strcmp(a->what, b->what) != 0)
        return false;
    if (a->code == NDP_DO_RUN)
        return a->unit == b->unit && a->phase == b->phase && a->entry == b->entry && a->accumulate == b->accumulate &&
               memcmp(a->bases, b->bases, sizeof a->bases) == 0;
    return same_call(&a->call, &b->call) && a->work == b->work && a->works.first == b->works.first &&
           a->works.n == b->works.n;
}

static bool same_block(const ndp_block *a, const ndp_block *b) {
    return a->class == b->class && a->region == b->region && a->persistent == b->persistent && a->bytes == b->bytes &&
           a->offset == b->offset && a->ring.first == b->ring.first && a->ring.n == b->ring.n &&
           a->life.first == b->life.first && a->life.last == b->life.last && a->life.gap == b->life.gap &&
           a->life.gap_n == b->life.gap_n;
}

static bool same_repeats(const ndp_repeats *a, const ndp_repeats *b) {
    bool same = a->n == b->n;
    for (int i = 0; same && i < a->n; i++) {
        const ndp_repeat *x = &a->items[i], *y = &b->items[i];
        same = x->first == y->first && x->n == y->n && x->times == y->times && x->micro_batches == y->micro_batches;
    }
    return same;
}

static bool same_list(const ndp_list *a, const ndp_list *b) {
    bool same = a->n == b->n && a->work_bytes == b->work_bytes && same_repeats(&a->repeats, &b->repeats);
    for (int i = 0; same && i < a->n; i++)
        same = same_call(&a->calls[i], &b->calls[i]);
    return same;
}

/* The lists of all graphs. */
static bool same_units(const ndp_program *a, const ndp_program *b) {
    bool same = a->opts.model->n_units == b->opts.model->n_units && a->opts.model->n_graphs == b->opts.model->n_graphs;
    for (int u = 0; same && u < a->opts.model->n_units; u++)
        same = a->opts.model->units[u].graph == b->opts.model->units[u].graph;
    for (int g = 0; same && g < a->opts.model->n_graphs; g++)
        for (int phase = 0; same && phase < NDP_PHASES; phase++)
            same = same_list(&a->opts.units[g].lists[phase], &b->opts.units[g].lists[phase]);
    return same;
}

bool ndp_program_same(const ndp_program *a, const ndp_program *b) {
    bool same = a->n == b->n && a->n_blocks == b->n_blocks && a->n_works == b->n_works &&
                a->first_norm == b->first_norm && a->first_update == b->first_update &&
                same_repeats(&a->repeats, &b->repeats) && memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0 &&
                same_units(a, b);
    for (int i = 0; same && i < a->n_blocks; i++)
        same = same_block(&a->blocks[i], &b->blocks[i]);
    for (int i = 0; same && i < a->n; i++)
        same = same_instr(&a->instrs[i], &b->instrs[i]);
    return same;
}
