#include "base/cpu.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ndp_cpu_cores(void) {
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) { /* EINVAL: the machine has more than fit the set */
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int n = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (n > 0)
            return n;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

enum { GENERIC, AVX512, AVX512_BF16 };

static int isa_limit(void) {
    const char *word = getenv("NDP_ISA");
    if (word && strcmp(word, "generic") == 0)
        return GENERIC;
    return word && strcmp(word, "avx512") == 0 ? AVX512 : AVX512_BF16;
}

bool ndp_cpu_has_avx512(void) {
    return isa_limit() >= AVX512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool ndp_cpu_has_avx512_bf16(void) {
    return isa_limit() >= AVX512_BF16 && ndp_cpu_has_avx512() && __builtin_cpu_supports("avx512bf16");
}
