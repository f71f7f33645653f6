#include "ops/cpu/rows.h"

#include "base/cpu.h"
#include <omp.h>

const ndp_rows *ndp_rows_best(void) { return ndp_cpu_has_avx512() ? &ndp_rows_avx512 : &ndp_rows_generic; }

void ndp_rows_run(const ndp_op_call *call, int64_t pieces, ndp_range_kernel kernel) {
    int threads = call->threads < pieces ? call->threads : (int)pieces;
    if (threads <= 1) {
        if (pieces > 0)
            kernel(call, 0, pieces);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int64_t n = omp_get_num_threads(), i = omp_get_thread_num();
        int64_t first = pieces * i / n, last = pieces * (i + 1) / n;
        if (first < last)
            kernel(call, first, last);
    }
}
