/* Attention tasks, 16 lanes. */
#include "ops/cpu/cpu_attention_lanes16.h"

#define TILE_VECS 4
#define TILE_ROWS(vecs) ((vecs) == 4 ? 4 : 8)
#define KERNELS ndp_att_avx512
#include "ops/cpu/cpu_attention_kernel.h"
