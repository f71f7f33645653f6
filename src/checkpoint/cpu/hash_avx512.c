/* Compiled with -march=x86-64-v4. */
#define NDP_HASH_TABLE ndp_hash_avx512
#include "checkpoint/cpu/hash_impl.h"
