/* The products of a mixture of experts beside one product of as many rows: linear_stack and its gradients with E groups
 * of the same number of rows, against linear with all rows and one matrix; also with all rows in one group of the E. A
 * group's matrix is read for few rows, so that the stack needs more memory traffic. Times are the best of several runs,
 * one of each product in turn. Usage: bench_stack [threads] [runs] [fp32|bf16] [groups] [rows of each] [K] [M] */
#include "clock.h"
#include "ops/devices.h"
#include "ops/op.h"

#include <sys/mman.h>

static void *memory(size_t bytes) {
    size_t page = 2 << 20, whole = (bytes + page) / page * page;
    void *p = aligned_alloc(page, whole);
    if (!p) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    madvise(p, whole, MADV_HUGEPAGE); /* as the program's memory */
    for (size_t i = 0; i < bytes / 4; i++)
        ((uint32_t *)p)[i] = 0x3c003c00u + (uint32_t)(i * 2654435761u) % 512u * 65537u; /* small in fp32 and bf16 */
    return p;
}

static ndp_view matrix(ndp_dtype t, int64_t rows, int64_t cols) {
    return (ndp_view){memory((size_t)(rows * cols) * ndp_dtype_size(t)), t, rows, cols, cols};
}

typedef struct timed_call {
    ndp_op_call call;
    const ndp_kernel *kernel;
    double best;
} timed_call;

static void require(ndp_status st) {
    if (st != NDP_OK) {
        fprintf(stderr, "%s\n", ndp_error_message());
        exit(1);
    }
}

/* With operands and result in memory. */
static timed_call timed(const ndp_op *op, const ndp_exec *exec, const ndp_view *in, int n, ndp_view out) {
    static const ndp_op_attr none;
    timed_call t = {.call = {.op = op, .attr = &none, .exec = exec}, .best = 1e30};
    memcpy(t.call.in, in, sizeof *in * (size_t)n);
    t.call.out[0] = out;
    t.kernel = exec->device->kernels[op->id];
    require(t.kernel->prepare(&t.call));
    t.call.scratch = memory(t.kernel->scratch(&t.call));
    return t;
}

static void run(timed_call *t, int threads) {
    double start = bench_now(threads);
    require(t->kernel->run(&t->call));
    double seconds = bench_now(threads) - start;
    t->best = seconds < t->best ? seconds : t->best;
}

typedef struct stack_sizes {
    int64_t groups, rows, k, m;
} stack_sizes;

/* Where groups begin: at even places, or, `hot`, the middle one has all rows. */
static ndp_view offsets_of(const stack_sizes *s, bool hot) {
    ndp_view v = matrix(NDP_I32, s->groups + 1, 1);
    for (int64_t e = 0; e <= s->groups; e++)
        ((int32_t *)v.data)[e] = (int32_t)(hot ? s->groups * s->rows * (e > s->groups / 2) : s->rows * e);
    return v;
}

static void bench_type(ndp_dtype type, const ndp_exec *exec, int runs, const stack_sizes *s) {
    int64_t n = s->groups * s->rows;
    ndp_view x = matrix(type, n, s->k), y = matrix(type, n, s->m), w = matrix(type, s->groups * s->m, s->k), one = w;
    ndp_view dw = matrix(NDP_F32, s->groups * s->m, s->k), one_dw = dw, dx = matrix(type, n, s->k);
    ndp_view even = offsets_of(s, false), hot = offsets_of(s, true);
    one.rows = one_dw.rows = s->m;
    const struct {
        const char *name;
        const ndp_op *plain, *stack;
        ndp_view a, b, stacked, out, stacked_out;
    } products[] = {{"y", &ndp_op_linear, &ndp_op_linear_stack, x, one, w, y, y},
                    {"dx", &ndp_op_linear_dx, &ndp_op_linear_stack_dx, y, one, w, dx, dx},
                    {"dw", &ndp_op_linear_dw, &ndp_op_linear_stack_dw, y, x, x, one_dw, dw}};
    for (int i = 0; i < NDP_COUNT(products); i++) {
        timed_call t[3] = {
            timed(products[i].plain, exec, (ndp_view[]){products[i].a, products[i].b}, 2, products[i].out),
            timed(products[i].stack, exec, (ndp_view[]){products[i].a, products[i].stacked, even}, 3,
                  products[i].stacked_out),
            timed(products[i].stack, exec, (ndp_view[]){products[i].a, products[i].stacked, hot}, 3,
                  products[i].stacked_out)};
        for (int r = 0; r < runs; r++)
            for (int k = 0; k < 3; k++)
                run(&t[k], exec->threads);
        double work = 2e-9 * (double)n * (double)s->k * (double)s->m;
        printf("  %-3s one product %7.1f GFLOP/s; a stack of %lld x %lld rows %7.1f, %5.1f%%; one hot group %7.1f, "
               "%5.1f%%\n",
               products[i].name, work / t[0].best, (long long)s->groups, (long long)s->rows, work / t[1].best,
               100 * t[0].best / t[1].best, work / t[2].best, 100 * t[0].best / t[2].best);
        for (int k = 0; k < 3; k++)
            free(t[k].call.scratch);
    }
    ndp_view all[] = {x, y, w, dw, dx, even, hot};
    for (int i = 0; i < NDP_COUNT(all); i++)
        free(all[i].data);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2, runs = argc > 2 ? atoi(argv[2]) : 5;
    const char *type = argc > 3 ? argv[3] : "both";
    stack_sizes s = {argc > 4 ? atoi(argv[4]) : 128, argc > 5 ? atoi(argv[5]) : 64, argc > 6 ? atoi(argv[6]) : 2048,
                     argc > 7 ? atoi(argv[7]) : 768};
    ndp_exec exec = ndp_exec_of(&ndp_device_cpu, threads, 0);
    bench_begin(argv);
    for (int t = 0; t < 2; t++) {
        ndp_dtype dtype = t ? NDP_BF16 : NDP_F32;
        if (strcmp(type, "both") != 0 && strcmp(type, ndp_dtype_name(dtype)) != 0)
            continue;
        printf("%s, %d threads, K %lld, M %lld\n", ndp_dtype_name(dtype), threads, (long long)s.k, (long long)s.m);
        bench_type(dtype, &exec, runs, &s);
    }
    return 0;
}
