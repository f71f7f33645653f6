/* How generators write the row of one rank: action by action, on its local stages 0, 1, ... in the order of stages.
 *
 * Micro-batches are counted per local stage and action, so they come in order. Those from `micro_batches` on are
 * counted but not written: a form that needs a least number of micro-batches gives the row of a smaller number too,
 * since a table without deadlock has none after all actions of a micro-batch are taken out. */
#ifndef NDP_PIPELINE_ROW_H
#define NDP_PIPELINE_ROW_H

#include "pipeline/pipeline.h"

typedef struct ndp_row_writer {
    int rank, ranks, local_stages, micro_batches;
    ndp_stage_map map;
    ndp_pipeline_row *row;
    int *next; /* [local_stages][NDP_ACTIONS]: the next micro-batch */
} ndp_row_writer;

/* The stage that a local stage is. */
int ndp_row_stage(const ndp_row_writer *w, int local);
/* The next action of this kind on a local stage. A backward counts as both gradients. */
void ndp_row_add(ndp_row_writer *w, int local, ndp_action action);
/* A forward and a backward in one cell; if one of them is not written, the other stands alone. */
void ndp_row_add_pair(ndp_row_writer *w, int forward_stage, int backward_stage);

/* The generators, each of one row. The row is empty and has room for all actions. */
typedef void ndp_row_generator(ndp_row_writer *w);
#define NDP_ROW_DECLARE(NAME, name, ...) ndp_row_generator ndp_row_##name;
NDP_GENERATED_PIPELINES(NDP_ROW_DECLARE)
#undef NDP_ROW_DECLARE

/* A table of `ranks` empty rows, each with room for `room` actions, and without stage map. NDP_ENOMEM. */
NDP_API ndp_status ndp_pipeline_init(const char *name, int ranks, int stages, int micro_batches, size_t room,
                                     ndp_pipeline *out);

#endif
