/* What this process may use of the processor. */
#ifndef NDP_BASE_CPU_H
#define NDP_BASE_CPU_H

#include "base/status.h"

/* Cores on which the scheduler lets this process run (its affinity), at least 1. */
int ndp_cpu_cores(void);

/* A number that is equal for processes that run under one kernel and may use the same cores, and differs for others. */
uint64_t ndp_cpu_place(void);

/* Instruction set levels. A level includes the lower ones of its processor. */
typedef enum ndp_isa {
    NDP_ISA_GENERIC,     /* SSE2 of every x86-64, NEON of every aarch64 */
    NDP_ISA_SVE,         /* aarch64 */
    NDP_ISA_AVX512,      /* x86-64: F, BW, DQ, VL */
    NDP_ISA_AVX512_BF16, /* and dpbf16ps */
    NDP_ISA_AMX_BF16,    /* and tiles of bf16, if the system permits this process to use them */
    /* No levels: the peak is measured with them, and no kernel is compiled for them. */
    NDP_ISA_AVX2,   /* and FMA */
    NDP_ISA_BFMMLA, /* products of bf16 in NEON */
} ndp_isa;

/* Whether the processor has it, regardless of NDP_ISA. */
bool ndp_cpu_supports(ndp_isa isa);

/* The words of NDP_ISA on this kind of processor, the lowest level first; the last word is NULL. */
typedef struct ndp_isa_word {
    const char *word;
    ndp_isa isa;
} ndp_isa_word;
extern const ndp_isa_word ndp_isa_words[];

/* The levels that kernels use. The environment variable NDP_ISA, on x86-64 generic|avx512|avx512_bf16|amx_bf16, on
 * aarch64 generic|sve, lowers the level, never raises it, so that tests reach every path; dpbf16ps is avx512_bf16 with
 * products by pairs (below). Any other value has no effect. */
bool ndp_cpu_has_sve(void);
bool ndp_cpu_has_avx512(void);
bool ndp_cpu_has_avx512_bf16(void);
bool ndp_cpu_has_amx_bf16(void);
/* Whether CPUID describes the tiles (leaf 0x1D). Some hypervisors leave that out; our kernels do not need it. */
bool ndp_cpu_describes_tiles(void);

/* "Intel(R) Xeon(R) Processor, family 6 model 207" or "Arm, part 0xd40 variant 1 revision 1" into `out`, which is
 * returned. Many virtual machines hide the model. */
enum { NDP_CPU_NAME = 96 };
const char *ndp_cpu_name(char out[NDP_CPU_NAME]);

/* The highest of these levels, by its name in NDP_ISA. */
const char *ndp_cpu_isa(void);

/* The words of NDP_ISA that this machine can run, or that it cannot, into `out`: "generic, avx512"; "" for none. */
const char *ndp_cpu_isa_words(bool runs, char out[NDP_CPU_NAME]);

/* How matrix products of bf16 are computed, among the ways that the level offers. The choice depends on vendor and
 * model, never on timing: results must not depend on a measurement. */
typedef enum ndp_bf16_way {
    NDP_BF16_LIBRARY, /* oneDNN in fp32: without NDP_ISA_AVX512 there are no kernels of our own */
    NDP_BF16_WIDENED, /* in fp32; bf16 is widened while packing */
    NDP_BF16_PAIRS,   /* by dpbf16ps, where it is known to be faster, and with NDP_ISA=dpbf16ps */
    NDP_BF16_TILES    /* by AMX */
} ndp_bf16_way;
ndp_bf16_way ndp_cpu_bf16_way(void);
/* For messages: "widened to fp32". */
const char *ndp_cpu_bf16_way_text(void);

#endif
