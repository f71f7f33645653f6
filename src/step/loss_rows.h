/* Inside the step room: the op row_slopes, which the host runs (ops/op.h): rows of logits to a function of the step's
 * (ndp_step_input.loss), and its answer back, through host memory that is planned with the program. */
#ifndef NDP_STEP_LOSS_ROWS_H
#define NDP_STEP_LOSS_ROWS_H

#include "step/engine_parts.h"

/* Bytes of host memory that calls of the program's lists need; 0: there is none. */
size_t ndp_loss_rows_bytes(const ndp_program *p);
/* Runs a call of the run `in`, which the engine is at. What the function finds wrong it keeps itself. */
ndp_status ndp_loss_rows_run(ndp_engine *e, const ndp_instr *in, const ndp_call *c, const ndp_op_call *operands);

#endif
