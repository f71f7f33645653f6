/* What this process may use of the processor, by the scheduler and NDP_ISA. What the processor has is read in the file
 * of its kind: cpu_x86.c, cpu_arm.c. */
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static bool kernels_may(ndp_isa isa) {
    const char *limit = getenv("NDP_ISA");
    for (const ndp_isa_word *w = ndp_isa_words; limit && w->word; w++)
        if (strcmp(limit, w->word) == 0 && w->isa < isa)
            return false;
    return ndp_cpu_supports(isa);
}

bool ndp_cpu_has_sve(void) { return kernels_may(NDP_ISA_SVE); }
bool ndp_cpu_has_avx512(void) { return kernels_may(NDP_ISA_AVX512); }
bool ndp_cpu_has_avx512_bf16(void) { return kernels_may(NDP_ISA_AVX512_BF16); }
bool ndp_cpu_has_amx_bf16(void) { return kernels_may(NDP_ISA_AMX_BF16); }

const char *ndp_cpu_isa(void) {
    const ndp_isa_word *best = ndp_isa_words;
    for (const ndp_isa_word *w = best + 1; w->word; w++)
        if (w->isa > best->isa && kernels_may(w->isa))
            best = w;
    return best->word;
}

const char *ndp_cpu_isa_words(bool runs, char out[NDP_CPU_NAME]) {
    int at = 0;
    out[0] = '\0';
    for (const ndp_isa_word *w = ndp_isa_words; w->word; w++)
        if (ndp_cpu_supports(w->isa) == runs)
            at += snprintf(out + at, (size_t)(NDP_CPU_NAME - at), "%s%s", at ? ", " : "", w->word);
    return out;
}

const char *ndp_cpu_bf16_way_text(void) {
    static const char *const texts[] = {[NDP_BF16_LIBRARY] = "in fp32 by oneDNN",
                                        [NDP_BF16_WIDENED] = "widened to fp32",
                                        [NDP_BF16_PAIRS] = "by dpbf16ps",
                                        [NDP_BF16_TILES] = "by AMX tiles"};
    return texts[ndp_cpu_bf16_way()];
}
