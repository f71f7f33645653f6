/* The list of optimizers, and queries that work for any of them. */
#include "optim/optim.h"

#include <string.h>

#define NDP_OPTIMIZER_ENTRY(NAME, name, ...) [NDP_##NAME] = &ndp_optimizer_##name,
const ndp_optimizer *const ndp_optimizers[] = {NDP_OPTIMIZERS(NDP_OPTIMIZER_ENTRY)};
#undef NDP_OPTIMIZER_ENTRY

int ndp_optimizer_states(const ndp_optimizer_opts *o) {
    const ndp_optimizer *optimizer = ndp_optimizers[o->name];
    int n = 0;
    if (optimizer->stateless && optimizer->stateless(o))
        return 0;
    while (n < NDP_OPTIMIZER_STATES && optimizer->state[n])
        n++;
    return n;
}

const ndp_optimizer_option *ndp_optimizer_reads(const ndp_optimizer *o, const char *key) {
    for (int i = 0; i < NDP_OPTIMIZER_OPTIONS && o->reads[i].key; i++)
        if (strcmp(o->reads[i].key, key) == 0)
            return &o->reads[i];
    return NULL;
}
