/* What range kernels (ops/cpu/cpu_rows.h) are written with. Each file of this folder is plain C for the kernels of one
 * family, and is compiled twice: for any CPU, and for AVX-512 or SVE. NDP_ROWS_ISA, the last word of the functions'
 * names, comes from CMakeLists.txt: generic, avx512, sve.
 *
 * Pointers of different operands never overlap, save where an op works in place. */
#ifndef NDP_OPS_CPU_ROWS_RANGE_KERNEL_H
#define NDP_OPS_CPU_ROWS_RANGE_KERNEL_H

#include "ops/cpu/cpu_rows.h"
#include "ops/cpu/cpu_vector.h"

#define NDP_RANGE_NAME_OF(op, isa) ndp_cpu_##op##_##isa
#define NDP_RANGE_NAME(op, isa) NDP_RANGE_NAME_OF(op, isa)
/* The name of an op's kernel here: ndp_cpu_gelu_avx512. */
#define NDP_RANGE_KERNEL(op) NDP_RANGE_NAME(op, NDP_ROWS_ISA)

#define SIMD _Pragma("omp simd")

#endif
