/* fp32 loops for every machine. */
#define REAL float
#define SQRT sqrtf
#define NAME(stem) stem##_f32
#include "optim/loops.h"

const ndp_optim_kernels ndp_optim_f32 = {adamw_f32, sgd_f32, squares_f32};
