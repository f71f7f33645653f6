/* The claims of a real run: the same functions by which an engine fills memory, so what the placement check proves is
 * what runs. */
#include "step/claims.h"

#include "parallel/apply.h"
#include "parallel/held.h"
#include <string.h>

/* A table that two stages use is held by both. */
static void hold_tied(const ndp_program *p, const ndp_mesh *mesh, int buffer, ndp_segments *s) {
    int pair[2];
    bool more;
    if (!ndp_stages_pair(p->opts.whole, &p->opts.step.stages, buffer, pair, &more))
        return;
    ndp_group_kind kind = ndp_mesh_pair(mesh, pair);
    for (int k = 0; kind != NDP_GROUPS && k < s->n; k++)
        ndp_held_by(&s->items[k], mesh, kind, true);
}

static ndp_status table(void *user, const ndp_program *p, const ndp_mesh *mesh, int buffer, ndp_arena *arena,
                        ndp_segments *out) {
    (void)user;
    const ndp_model *whole = p->opts.whole;
    int i = 0;
    while (strcmp(whole->buffers[i].name, p->opts.model->buffers[buffer].name) != 0)
        i++;
    NDP_TRY(ndp_parallel_segments(&whole->buffers[i].segments, mesh, &p->opts.step.parallel, arena, out));
    hold_tied(p, mesh, i, out);
    return NDP_OK;
}

static int64_t row(void *user, const ndp_program *p, const ndp_mesh *mesh, ndp_extent extent, int64_t i) {
    (void)user;
    ndp_row_cut cut = ndp_cut_rows(p->opts.whole->opts.rows, mesh, &p->opts.step.parallel);
    return ndp_row_cut_at(&cut, extent, i);
}

static int64_t pieces(void *user, const ndp_program *p, const ndp_segments *of, int buffer, int shards, int index,
                      int64_t *out) {
    (void)user, (void)buffer;
    if (out)
        ndp_pieces_fill(&p->groups, of, shards, index, out);
    return ndp_pieces_count(&p->groups, of, shards, index).all;
}

/* As data/sampler.h numbers them: block m x ranks + r is micro-batch m of data rank r. */
static void samples(void *user, const ndp_program *p, const ndp_mesh *mesh, int micro_batch, int64_t *first,
                    int64_t *count, int64_t *total) {
    (void)user;
    ndp_group data = ndp_mesh_group(mesh, NDP_GROUP_DATA);
    *first = (int64_t)micro_batch * data.count + data.rank;
    *count = 1;
    *total = (int64_t)p->opts.step.accumulation * data.count;
}

static ndp_address input_at(void *user, const ndp_program *p, int input, int micro_batch) {
    (void)user;
    return ndp_program_input(p, input, micro_batch);
}

const ndp_claims ndp_engine_claims = {NULL, table, row, pieces, input_at, samples};
