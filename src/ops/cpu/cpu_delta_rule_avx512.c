/* The delta rule in 16 lanes. */
#include "ops/cpu/cpu_attention_lanes16.h"

#define TILE_VECS 4
#define TILE_ROWS(vecs) ((vecs) == 4 ? 4 : 8)
#define KERNELS ndp_delta_avx512
#include "ops/cpu/cpu_delta_rule_kernel.h"
