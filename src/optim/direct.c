/* Updates and sums of squares as functions: calls of the ops, on the device of the storage type. */
#include "optim/optim.h"

#include "ops/pieces.h"

static ndp_status run(const ndp_op *op, ndp_dtype type, int threads, const ndp_view *in, int n_in, ndp_view *out) {
    ndp_exec exec = {.device = type == NDP_F64 ? &ndp_device_ref : &ndp_device_cpu, .threads = threads};
    ndp_op_call call = {.op = op, .attr = &(ndp_op_attr){0}, .exec = &exec, .out = {out[0], out[1]}};
    memcpy(call.in, in, sizeof *in * (size_t)n_in);
    return exec.device->kernels[op->id]->run(&call);
}

static ndp_view row(const void *data, ndp_dtype type, int64_t n) {
    return data ? (ndp_view){(void *)data, type, 1, n, n} : (ndp_view){0};
}

void ndp_optimizer_update(ndp_optimizer_name name, const ndp_update *u) {
    int64_t piece[NDP_PIECE_COLUMNS] = {0, u->n, 1, u->decays};
    ndp_view in[NDP_UPDATE_OPERANDS] = {
        row(u->weight, u->type, u->n),          row(u->grad, u->type, u->n),
        row(piece, NDP_I64, NDP_PIECE_COLUMNS), row(u->constants, NDP_F64, NDP_OPTIMIZER_CONSTANTS),
        row(&u->grad_scale, NDP_F64, 1),        row(u->state[0], u->type, u->n),
        row(u->state[1], u->type, u->n)};
    ndp_view out[] = {in[0], row(u->copy, NDP_BF16, u->n)};
    run(ndp_optimizers[name]->op, u->type, u->threads, in, NDP_UPDATE_OPERANDS, out);
}

double ndp_sum_squares(const void *x, ndp_dtype type, int64_t n, int threads) {
    double sum = 0;
    int64_t piece[NDP_PIECE_COLUMNS] = {0, n, 1, 0};
    ndp_view in[] = {row(x, type, n), row(piece, NDP_I64, NDP_PIECE_COLUMNS)}, out[] = {row(&sum, NDP_F64, 1), {0}};
    run(&ndp_op_square_sum, type, threads, in, 2, out);
    return sum;
}

double ndp_clip_factor(double norm, double max_norm) {
    if (max_norm == 0 || norm == 0)
        return 1;
    double factor = max_norm / norm;
    return factor > 1 ? 1 : factor;
}
