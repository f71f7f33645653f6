/* fp64 loops, for the `ref` device. */
#define REAL double
#define SQRT sqrt
#define NAME(stem) stem##_f64
#define KERNELS ndp_optim_f64
#include "optim/loops.h"
