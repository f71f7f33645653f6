#include "optim/kernels.h"

void ndp_adamw(const ndp_optim_call *c) { ndp_optim_run(c, ndp_optim_kernels_for(c->type)->adamw); }

int ndp_optim_states(ndp_optim_kind kind, double momentum) {
    if (kind == NDP_OPTIM_ADAMW)
        return 2;
    return momentum != 0 ? 1 : 0;
}
