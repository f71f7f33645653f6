/* Which loops run, and how an update is shared between threads. */
#include "optim/kernels.h"

#include "base/cpu.h"
#include "tensor/segments.h"
#include <omp.h>

const ndp_optim_kernels *ndp_optim_kernels_for(ndp_dtype type) {
    if (type == NDP_F64)
        return &ndp_optim_f64;
    return ndp_cpu_has_avx512() ? &ndp_optim_f32_avx512 : &ndp_optim_f32;
}

int ndp_optim_threads(int64_t n, int threads) {
    enum { FEW = 1 << 14 }; /* below, waking a team costs more than the work */
    return n < FEW || threads < 1 ? 1 : threads;
}

/* Bounds are multiples of the alignment, so that only the very end of a call is a remainder of a vector loop: each
 * element goes through the same instructions whatever the number of threads. */
static int64_t bound(int64_t n, int part, int parts) {
    int64_t blocks = (n + NDP_SEGMENT_ALIGN - 1) / NDP_SEGMENT_ALIGN;
    int64_t at = blocks * part / parts * NDP_SEGMENT_ALIGN;
    return at < n ? at : n;
}

void ndp_optimizer_update(ndp_optimizer_name name, const ndp_update *u) {
    ndp_optim_loop *loop = ndp_optim_kernels_for(u->type)->update[name];
    int threads = ndp_optim_threads(u->n, u->threads);
    if (u->n <= 0)
        return;
    if (threads == 1) { /* not a team of one: OpenMP makes a new team whenever the size changes */
        loop(u, 0, u->n);
        return;
    }
#pragma omp parallel num_threads(threads)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        loop(u, bound(u->n, part, parts), bound(u->n, part + 1, parts));
    }
}
