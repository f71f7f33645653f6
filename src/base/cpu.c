#include "base/cpu.h"

#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
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

enum { GENERIC, AVX512, AVX512_BF16, AMX_BF16, LEVELS };

static const char *const level_names[LEVELS] = {"generic", "avx512", "avx512_bf16", "amx_bf16"};

static int isa_limit(void) {
    const char *word = getenv("NDP_ISA");
    for (int i = 0; word && i < LEVELS; i++)
        if (strcmp(word, level_names[i]) == 0)
            return i;
    return LEVELS - 1;
}

bool ndp_cpu_has_avx512(void) {
    return isa_limit() >= AVX512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool ndp_cpu_has_avx512_bf16(void) {
    return isa_limit() >= AVX512_BF16 && ndp_cpu_has_avx512() && __builtin_cpu_supports("avx512bf16");
}

static bool tiles_granted;
static pthread_once_t tiles_asked = PTHREAD_ONCE_INIT;

/* Linux saves the 8 KiB of tiles only for processes that ask (ARCH_REQ_XCOMP_PERM for XTILEDATA). */
static void ask_for_tiles(void) {
    enum { LEAF = 7, AMX_BF16_BIT = 1 << 22, AMX_TILE_BIT = 1 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    tiles_granted = __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & AMX_BF16_BIT) && (d & AMX_TILE_BIT) &&
                    syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool ndp_cpu_has_amx_bf16(void) {
    if (isa_limit() < AMX_BF16 || !ndp_cpu_has_avx512_bf16())
        return false;
    pthread_once(&tiles_asked, ask_for_tiles);
    return tiles_granted;
}

const char *ndp_cpu_isa(void) {
    return level_names[ndp_cpu_has_amx_bf16()      ? AMX_BF16
                       : ndp_cpu_has_avx512_bf16() ? AVX512_BF16
                       : ndp_cpu_has_avx512()      ? AVX512
                                                   : GENERIC];
}
