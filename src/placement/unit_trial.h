/* Inside the placement room: executing a unit's lists on all lanes of one place on pp, with contents for memory. */
#ifndef NDP_PLACEMENT_UNIT_TRIAL_H
#define NDP_PLACEMENT_UNIT_TRIAL_H

#include "placement/rule.h"
#include "placement/unit.h"

/* How a list first writes the gradient of a segment. */
typedef struct ndp_first_write {
    bool written, adds;
    int pgrad;
} ndp_first_write;

/* The memory of a lane while a unit is judged. */
typedef struct ndp_unit_memory {
    ndp_tile_map bases[NDP_BASES];
    ndp_first_write writes[NDP_SLOTS][NDP_MOST_SEGMENTS];
    ndp_sum_made sums[NDP_MADE_SUMS];
} ndp_unit_memory;

/* Sees the results of each call: for tables of placements. */
typedef void ndp_unit_observer(void *user, int lane, ndp_phase phase, const ndp_rule *r);

typedef struct ndp_unit_trial {
    const ndp_lanes *lanes;
    int first, n; /* lanes of the place on pp */
    int unit;     /* of their programs' models; alike units stand for each other */
    int graph;
    ndp_uses uses;
    ndp_unit_memory *memory; /* by lane - first */
    ndp_row_sets sets;
    ndp_arena arena;
    ndp_unit_observer *observer; /* NULL: none */
    void *user;
} ndp_unit_trial;

/* What sees what units make while they are proven. */
struct ndp_units_watcher {
    ndp_unit_observer *observer;
    void (*done)(void *user, int unit, int lane); /* after the phases of a unit, of the model of that lane */
    const char *unit;                             /* it is judged even if an alike one was; NULL: none */
    void *user;
};

/* ---- unit_contract.c ---- */

/* "rank 1 (tp 1): unit layers.0" */
ndp_text ndp_trial_text(const ndp_unit_trial *run, int lane);
/* NDP_EBUG: the same, and the text. */
#define ndp_trial_refuse(run, lane, ...) ndp_trial_refused(run, lane, NDP_FAIL(NDP_EBUG, __VA_ARGS__))
ndp_status ndp_trial_refused(const ndp_unit_trial *run, int lane, ndp_status st);
/* Fills memory with parameters, inputs, and the output of the unit before: `before`, by place in the stage. */
ndp_status ndp_trial_write_before(ndp_unit_trial *run, const ndp_content *before);
/* Writes the rows of a boundary, with that share, as another thing. */
ndp_status ndp_trial_write_boundary(ndp_unit_trial *run, int lane, int base, const ndp_content *from, ndp_thing what,
                                    ndp_share share);
/* The output, which must be complete. */
ndp_status ndp_trial_take_output(ndp_unit_trial *run, ndp_content *out);
/* The gradient of the input must be complete, and cut as the input is. */
ndp_status ndp_trial_check_grad_input(ndp_unit_trial *run, const ndp_content *before);
/* What the list added to gradients and the loss; each must be where its elements belong. */
ndp_status ndp_trial_take_made(ndp_unit_trial *run, int lane, ndp_arena *arena, ndp_unit_made *out);

/* ---- unit_trial.c ---- */

/* Runs the list of a phase on all lanes. NDP_EBUG: a rule refuses a call. */
ndp_status ndp_unit_trial_phase(ndp_unit_trial *run, ndp_phase phase);

#endif
