/* fp32 loops for AVX-512; compiled with -march=x86-64-v4. */
#define REAL float
#define SQRT sqrtf
#define NAME(stem) stem##_f32_avx512
#include "optim/loops.h"

const ndp_optim_kernels ndp_optim_f32_avx512 = {adamw_f32_avx512, sgd_f32_avx512, squares_f32_avx512};
