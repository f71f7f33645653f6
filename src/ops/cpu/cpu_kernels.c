/* The devices `cpu` and `null`: a table of kernels made from the list of ops. Ops by rows, by columns and by pieces
 * have range kernels (cpu_rows.h), and get the function that spreads them over the threads here. */
#include "ops/cpu/cpu_kernels.h"
#include "base/cpu.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/ref/ref_kernels.h"

/* All outputs of an op by rows have as many rows; an absent one has none. */
static int64_t rows_of(const ndp_op_call *c) {
    int i = 0;
    while (i < c->op->n_out - 1 && !ndp_present(&c->out[i]))
        i++;
    return c->out[i].rows;
}

#define ROWS(op)                                                                                                       \
    static ndp_status run_##op(const ndp_op_call *c) { return ndp_rows_run(c, rows_of(c), ndp_rows_best()->op); }      \
    const ndp_kernel ndp_cpu_##op = {.run = run_##op};

#define COLUMNS(op)                                                                                                    \
    static ndp_status run_##op(const ndp_op_call *c) {                                                                 \
        return ndp_rows_run(c, ndp_column_blocks(c->out[0].cols), ndp_rows_best()->op);                                \
    }                                                                                                                  \
    const ndp_kernel ndp_cpu_##op = {.run = run_##op};

#define PIECES(op)                                                                                                     \
    static ndp_status run_##op(const ndp_op_call *c) { return ndp_pieces_run(c, ndp_rows_best()->op); }                \
    const ndp_kernel ndp_cpu_##op = {.run = run_##op};

NDP_OP_LIST(ROWS, COLUMNS, PIECES, NDP_OP_NONE, NDP_OP_NONE, NDP_OP_NONE, NDP_OP_NONE)

const ndp_kernel ndp_cpu_kv_append = {.run = ndp_ref_run_kv_append};
const ndp_kernel ndp_cpu_reduce_sum = {.run = ndp_ref_run_reduce_sum};
const ndp_kernel ndp_cpu_route_order = {.run = ndp_ref_run_route_order};
const ndp_kernel ndp_cpu_route_exchange = {.run = ndp_ref_run_route_exchange, .scratch = ndp_ref_exchange_scratch};
const ndp_kernel ndp_cpu_choice_counts = {.run = ndp_ref_run_choice_counts};
const ndp_kernel ndp_cpu_choice_loads = {.run = ndp_ref_run_choice_counts};
const ndp_kernel ndp_cpu_router_bias_step = {.run = ndp_ref_run_router_bias_step};
const ndp_kernel ndp_cpu_row_score = {.run = ndp_ref_run_row_score};
const ndp_kernel ndp_cpu_document_sums = {.run = ndp_ref_run_document_sums};
const ndp_kernel ndp_cpu_pair_loss = {.run = ndp_ref_run_pair_loss};
const ndp_kernel ndp_cpu_pair_rows = {.run = ndp_ref_run_pair_rows};
const ndp_kernel ndp_cpu_count_valid = {.run = ndp_ref_run_count_valid};
const ndp_kernel ndp_cpu_zero = {.run = ndp_ref_run_zero};
const ndp_kernel ndp_cpu_loss_scale = {.run = ndp_ref_run_loss_scale};
const ndp_kernel ndp_cpu_clip_factor = {.run = ndp_ref_run_clip_factor};

#define KERNEL(op) [NDP_OP_##op] = &ndp_cpu_##op,
static const ndp_kernel *const kernels[NDP_OP_COUNT] = {NDP_KERNEL_OPS(KERNEL)};

const ndp_device ndp_device_cpu = {
    .name = "cpu", .executes = true, .kernels = kernels, .variant = ndp_cpu_isa, NDP_HOST_DEVICE};

/* Plans with the scratch sizes of `cpu`. */
const ndp_device ndp_device_null = {.name = "null", .kernels = kernels, NDP_HOST_DEVICE};
