/* What an x86-64 processor has, by CPUID. Answers that cost a system call or a trap in a virtual machine are computed
 * once. */
#include "base/cpu.h"

#include <cpuid.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char PAIRS[] = "dpbf16ps"; /* level avx512_bf16, always with pairs */

const ndp_isa_word ndp_isa_words[] = {{"generic", NDP_ISA_GENERIC},         {"avx512", NDP_ISA_AVX512},
                                      {"avx512_bf16", NDP_ISA_AVX512_BF16}, {PAIRS, NDP_ISA_AVX512_BF16},
                                      {"amx_bf16", NDP_ISA_AMX_BF16},       {NULL, NDP_ISA_GENERIC}};

static bool tiles_granted;
static pthread_once_t tiles_asked = PTHREAD_ONCE_INIT;

/* Linux saves the 8 KiB of tiles only for processes that request it (ARCH_REQ_XCOMP_PERM for XTILEDATA). */
static void ask_for_tiles(void) {
    enum { LEAF = 7, AMX_BF16_BIT = 1 << 22, AMX_TILE_BIT = 1 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    tiles_granted = __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & AMX_BF16_BIT) && (d & AMX_TILE_BIT) &&
                    syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool has_tiles(void) {
    pthread_once(&tiles_asked, ask_for_tiles);
    return tiles_granted;
}

bool ndp_cpu_supports(ndp_isa isa) {
    bool bf16 = has_avx512() && __builtin_cpu_supports("avx512bf16");
    switch (isa) {
    case NDP_ISA_GENERIC:
        return true;
    case NDP_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case NDP_ISA_AVX512:
        return has_avx512();
    case NDP_ISA_AVX512_BF16:
        return bf16;
    case NDP_ISA_AMX_BF16:
        return bf16 && has_tiles();
    default:
        return false;
    }
}

bool ndp_cpu_describes_tiles(void) {
    unsigned most_palettes, b, c, d;
    return __get_cpuid_count(0x1d, 0, &most_palettes, &b, &c, &d) && most_palettes > 0;
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

static bool pairs_are_asked_for(void) {
    const char *word = getenv("NDP_ISA");
    return word && strcmp(word, PAIRS) == 0;
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
