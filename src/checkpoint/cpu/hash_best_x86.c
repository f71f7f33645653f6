/* Which hash an x86-64 runs. */
#include "base/cpu.h"
#include "checkpoint/hash.h"

const ndp_hash_kernel *ndp_hash_best(void) { return ndp_cpu_has_avx512() ? &ndp_hash_avx512 : &ndp_hash_generic; }
