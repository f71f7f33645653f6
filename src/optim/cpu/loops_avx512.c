/* fp32 loops for AVX-512; compiled with -march=x86-64-v4. */
#define REAL float
#define SQRT sqrtf
#define NAME(stem) stem##_f32_avx512
#define KERNELS ndp_optim_f32_avx512
#include "optim/loops.h"
