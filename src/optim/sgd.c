#include "optim/kernels.h"

void ndp_sgd(const ndp_optim_call *c) { ndp_optim_run(c, ndp_optim_kernels_for(c->type)->sgd); }
