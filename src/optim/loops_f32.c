/* fp32 loops for every machine. */
#define REAL float
#define SQRT sqrtf
#define NAME(stem) stem##_f32
#define KERNELS ndp_optim_f32
#include "optim/loops.h"
