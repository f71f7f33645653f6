/* Writing the row of one rank (row.h): the generators call these functions. */
#include "pipeline/row.h"

/* The column after a row's last cell. */
static int columns_of(const ndp_pipeline_row *row) { return row->n ? row->actions[row->n - 1].column + 1 : 0; }

int ndp_row_stage(const ndp_row_writer *w, int local) {
    if (w->map == NDP_STAGES_LOOP)
        return local * w->ranks + w->rank;
    return local ? 2 * w->ranks - 1 - w->rank : w->rank;
}

/* Counts a micro-batch; true: it is written. */
static bool count(ndp_row_writer *w, int local, ndp_action action, ndp_stage_action *out) {
    int *next = &w->next[local * NDP_ACTIONS];
    bool both = action == NDP_ACTION_BACKWARD;
    int mb = next[both ? NDP_ACTION_INPUT_GRADIENT : action]++;
    next[NDP_ACTION_WEIGHT_GRADIENT] += both;
    *out = (ndp_stage_action){
        .stage = ndp_row_stage(w, local), .micro_batch = mb, .action = action, .column = columns_of(w->row)};
    return mb < w->micro_batches;
}

void ndp_row_add(ndp_row_writer *w, int local, ndp_action action) {
    ndp_stage_action a;
    if (count(w, local, action, &a))
        w->row->actions[w->row->n++] = a;
}

void ndp_row_add_pair(ndp_row_writer *w, int forward_stage, int backward_stage) {
    ndp_stage_action f, b;
    bool forward = count(w, forward_stage, NDP_ACTION_FORWARD, &f);
    bool backward = count(w, backward_stage, NDP_ACTION_BACKWARD, &b);
    f.paired = forward && backward;
    if (forward)
        w->row->actions[w->row->n++] = f;
    if (backward)
        w->row->actions[w->row->n++] = b;
}
