/* Compiled with -march=x86-64-v4. */
#define NDP_ROWS_TABLE ndp_rows_avx512
#include "ops/cpu/rows_impl.h"
