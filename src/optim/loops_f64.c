/* fp64 loops, for the `ref` device. */
#define REAL double
#define SQRT sqrt
#define NAME(stem) stem##_f64
#include "optim/loops.h"

const ndp_optim_kernels ndp_optim_f64 = {adamw_f64, sgd_f64, squares_f64};
