/* What an aarch64 processor has, as Linux tells in the auxiliary vector. */
#include "base/cpu.h"

#include <stdio.h>
#include <sys/auxv.h>

const ndp_isa_word ndp_isa_words[] = {{"generic", NDP_ISA_GENERIC}, {"sve", NDP_ISA_SVE}, {NULL, NDP_ISA_GENERIC}};

bool ndp_cpu_supports(ndp_isa isa) {
    switch (isa) {
    case NDP_ISA_GENERIC:
        return true;
    case NDP_ISA_SVE:
        return getauxval(AT_HWCAP) & HWCAP_SVE;
    case NDP_ISA_BFMMLA:
        return getauxval(AT_HWCAP2) & HWCAP2_BF16;
    default:
        return false;
    }
}

/* The register that names the processor; Linux answers where it sets HWCAP_CPUID. */
const char *ndp_cpu_name(char out[NDP_CPU_NAME]) {
    static const struct {
        unsigned long code;
        const char *name;
    } makers[] = {{0x41, "Arm"},      {0x46, "Fujitsu"}, {0x48, "HiSilicon"}, {0x4e, "NVIDIA"},  {0x50, "APM"},
                  {0x51, "Qualcomm"}, {0x61, "Apple"},   {0x6d, "Microsoft"}, {0x70, "Phytium"}, {0xc0, "Ampere"}};
    unsigned long id = 0;
    if (getauxval(AT_HWCAP) & HWCAP_CPUID)
        __asm__("mrs %0, midr_el1" : "=r"(id));
    const char *maker = "unknown";
    for (int i = 0; i < NDP_COUNT(makers); i++)
        if (makers[i].code == id >> 24)
            maker = makers[i].name;
    snprintf(out, NDP_CPU_NAME, "%s, part 0x%03lx variant %lu revision %lu", maker, id >> 4 & 0xfff, id >> 20 & 0xf,
             id & 0xf);
    return out;
}

bool ndp_cpu_describes_tiles(void) { return false; }

ndp_bf16_way ndp_cpu_bf16_way(void) { return NDP_BF16_LIBRARY; }
