/* The delta rule in 4 lanes of any processor. */
#include "ops/cpu/cpu_attention_lanes4.h"

#define TILE_VECS 2
#define TILE_ROWS(vecs) 4
#define KERNELS ndp_delta_generic
#include "ops/cpu/cpu_delta_rule_kernel.h"
