/* How the pieces of a call of a range kernel are spread over the threads. A thread
 * gets one run of neighbouring pieces, and a piece is computed by one thread, so the number of threads changes no bit.
 */
#include "ops/cpu/cpu_rows.h"

#include <omp.h>

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
