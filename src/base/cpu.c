/* What the processor has, by CPUID, and what this process may use of it, by the scheduler and NDP_ISA. Answers that
 * cost a system call or a trap in a virtual machine are computed once. */
#include "base/cpu.h"

#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

/* Calls `use` with the set of cores that the calling thread may run on; 0 if the system does not tell. */
static uint64_t with_affinity(uint64_t (*use)(const cpu_set_t *set, size_t bytes)) {
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 20;
         cpus *= 2) { /* EINVAL: the machine has more cores than fit into the set */
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        uint64_t result = sched_getaffinity(0, bytes, set) == 0 ? use(set, bytes) : 0;
        CPU_FREE(set);
        if (result > 0)
            return result;
    }
    return 0;
}

static uint64_t count(const cpu_set_t *set, size_t bytes) { return (uint64_t)CPU_COUNT_S(bytes, set); }

int ndp_cpu_cores(void) {
    int n = (int)with_affinity(count);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : online > 0 ? (int)online : 1;
}

static uint64_t hash_set(const cpu_set_t *set, size_t bytes) { return XXH3_64bits(set, bytes); }

uint64_t ndp_cpu_place(void) {
    char boot[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    size_t n = f ? fread(boot, 1, sizeof boot, f) : 0;
    if (f)
        fclose(f);
    return XXH3_64bits_withSeed(boot, n, with_affinity(hash_set));
}

static const char *const level_names[] = {"generic", "avx512", "avx512_bf16", "amx_bf16"};

static const char PAIRS[] = "dpbf16ps"; /* level avx512_bf16, always with pairs */

static bool pairs_are_asked_for(void) {
    const char *word = getenv("NDP_ISA");
    return word && strcmp(word, PAIRS) == 0;
}

static ndp_isa isa_limit(void) {
    const char *word = getenv("NDP_ISA");
    if (pairs_are_asked_for())
        return NDP_ISA_AVX512_BF16;
    for (int i = 0; word && i < NDP_COUNT(level_names); i++)
        if (strcmp(word, level_names[i]) == 0)
            return (ndp_isa)i;
    return NDP_ISA_AMX_BF16;
}

static bool tiles_granted;
static pthread_once_t tiles_asked = PTHREAD_ONCE_INIT;

/* Linux saves the 8 KiB of tiles only for processes that request it (ARCH_REQ_XCOMP_PERM for XTILEDATA). */
static void ask_for_tiles(void) {
    enum { LEAF = 7, AMX_BF16_BIT = 1 << 22, AMX_TILE_BIT = 1 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    tiles_granted = __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & AMX_BF16_BIT) && (d & AMX_TILE_BIT) &&
                    syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool ndp_cpu_supports(ndp_isa isa) {
    if (isa >= NDP_ISA_AVX512 && !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
        return false;
    if (isa >= NDP_ISA_AVX512_BF16 && !__builtin_cpu_supports("avx512bf16"))
        return false;
    if (isa < NDP_ISA_AMX_BF16)
        return true;
    pthread_once(&tiles_asked, ask_for_tiles);
    return tiles_granted;
}

static bool kernels_may(ndp_isa isa) { return isa_limit() >= isa && ndp_cpu_supports(isa); }

bool ndp_cpu_has_avx512(void) { return kernels_may(NDP_ISA_AVX512); }
bool ndp_cpu_has_avx512_bf16(void) { return kernels_may(NDP_ISA_AVX512_BF16); }
bool ndp_cpu_has_amx_bf16(void) { return kernels_may(NDP_ISA_AMX_BF16); }

bool ndp_cpu_describes_tiles(void) {
    unsigned most_palettes, b, c, d;
    return __get_cpuid_count(0x1d, 0, &most_palettes, &b, &c, &d) && most_palettes > 0;
}

const char *ndp_cpu_isa(void) {
    int isa = NDP_ISA_AMX_BF16;
    while (!kernels_may((ndp_isa)isa))
        isa--;
    return level_names[isa];
}

const char *ndp_cpu_isa_words(bool runs, char out[NDP_CPU_NAME]) {
    static const struct {
        const char *word;
        ndp_isa isa;
    } words[] = {{"generic", NDP_ISA_GENERIC},
                 {"avx512", NDP_ISA_AVX512},
                 {"avx512_bf16", NDP_ISA_AVX512_BF16},
                 {PAIRS, NDP_ISA_AVX512_BF16},
                 {"amx_bf16", NDP_ISA_AMX_BF16}};
    int at = 0;
    out[0] = '\0';
    for (int i = 0; i < NDP_COUNT(words); i++)
        if (ndp_cpu_supports(words[i].isa) == runs)
            at += snprintf(out + at, (size_t)(NDP_CPU_NAME - at), "%s%s", at ? ", " : "", words[i].word);
    return out;
}

static unsigned family_of(unsigned signature) {
    unsigned family = signature >> 8 & 0xf;
    return family + (family == 0xf ? signature >> 20 & 0xff : 0);
}

const char *ndp_cpu_name(char out[NDP_CPU_NAME]) {
    enum { FIRST = 0x80000002u, PARTS = 3 };
    unsigned r[4], brand[PARTS * 4 + 1] = {0};
    for (unsigned i = 0; i < PARTS; i++)
        if (!__get_cpuid(FIRST + i, &brand[i * 4], &brand[i * 4 + 1], &brand[i * 4 + 2], &brand[i * 4 + 3]))
            memcpy(brand, "unknown", sizeof "unknown");
    const char *name = (const char *)brand;
    name += strspn(name, " ");
    if (__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]))
        snprintf(out, NDP_CPU_NAME, "%.48s, family %u model %u", name, family_of(r[0]),
                 (r[0] >> 4 & 0xf) | (r[0] >> 12 & 0xf0));
    else
        snprintf(out, NDP_CPU_NAME, "%.48s", name);
    return out;
}

static bool fast_pairs;
static pthread_once_t pairs_asked = PTHREAD_ONCE_INIT;

/* Whether dpbf16ps is faster than multiplying numbers widened to fp32. It does two multiply-adds per lane. AMD's Zen 4
 * and 5 start one for each fp32 multiply-add: twice the rate. Intel's Sapphire and Emerald Rapids start one where they
 * start four: half the rate. Other processors are unmeasured and use fp32, which is never much slower. */
static void ask_for_pairs(void) {
    enum { ZEN_4 = 0x19 }; /* also the family of Zen 3, which has no AVX-512 */
    unsigned a, b, c, d;
    char vendor[13] = "";
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return;
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    if (strcmp(vendor, "AuthenticAMD") != 0 || !__get_cpuid(1, &a, &b, &c, &d))
        return;
    fast_pairs = family_of(a) >= ZEN_4;
}

static bool pairs_are_fast(void) { /* cached: CPUID takes some 10 us in a virtual machine */
    pthread_once(&pairs_asked, ask_for_pairs);
    return fast_pairs;
}

ndp_bf16_way ndp_cpu_bf16_way(void) {
    if (ndp_cpu_has_amx_bf16())
        return NDP_BF16_TILES;
    if (ndp_cpu_has_avx512_bf16() && (pairs_are_asked_for() || pairs_are_fast()))
        return NDP_BF16_PAIRS;
    return ndp_cpu_has_avx512() ? NDP_BF16_WIDENED : NDP_BF16_LIBRARY;
}

const char *ndp_cpu_bf16_way_text(void) {
    static const char *const texts[] = {[NDP_BF16_LIBRARY] = "in fp32 by oneDNN",
                                        [NDP_BF16_WIDENED] = "widened to fp32",
                                        [NDP_BF16_PAIRS] = "by dpbf16ps",
                                        [NDP_BF16_TILES] = "by AMX tiles"};
    return texts[ndp_cpu_bf16_way()];
}
