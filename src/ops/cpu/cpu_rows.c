/* Range kernels: which of the two sets this CPU runs, and how a call's pieces are spread over the threads. A thread
 * gets one run of neighbouring pieces, and a piece is computed by one thread, so the number of threads changes no bit.
 */
#include "ops/cpu/cpu_rows.h"

#include "base/cpu.h"
#include <omp.h>

#define GENERIC(name) .name = ndp_cpu_##name##_generic,
#define AVX512(name) .name = ndp_cpu_##name##_avx512,

const ndp_row_kernels *ndp_rows_best(void) {
    static const ndp_row_kernels generic = {NDP_RANGE_KERNELS(GENERIC)}, avx512 = {NDP_RANGE_KERNELS(AVX512)};
    return ndp_cpu_has_avx512() ? &avx512 : &generic;
}

/* All threads or one: OpenMP makes a new team, and so allocates, whenever its size changes. */
ndp_status ndp_rows_run(const ndp_op_call *call, int64_t pieces, ndp_range_kernel kernel) {
    int threads = call->exec->threads;
    if (threads <= 1 || pieces <= 1) {
        if (pieces > 0)
            kernel(call, 0, pieces);
        return NDP_OK;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t n = omp_get_num_threads(), i = omp_get_thread_num();
        int64_t first = pieces * i / n, last = pieces * (i + 1) / n;
        if (first < last)
            kernel(call, first, last);
    }
    return NDP_OK;
}
