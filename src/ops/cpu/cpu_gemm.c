/* Plans of matrix products, and running them.
 *
 * A plan is made for a shape and never changes. It is found by the shape, byte for byte, in one cache of the process,
 * whose lock is held while a plan is looked up or made, and while a context is taken or returned. There are four kinds:
 *   one of our kernels       where the processor has the instructions: needs nothing but scratch memory
 *   a oneDNN primitive       elsewhere. One execution needs a context of its own, so a plan keeps a list of idle ones
 *   a split product          two plans, for two parts of k, with fp32 results that are added (NDP_SUMS_SPLIT)
 *   a widened product        bf16 below AVX-512, or one operand in bf16: a plan in fp32, for operands that are
 * converted first The kernels of linear and xent make plans in `prepare`, so that no step makes one. */
#include "base/cpu.h"
#include "ops/cpu/cpu_gemm_kernel.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <uthash.h>

#if DNNL_VERSION_MAJOR < 3 /* the calls of oneDNN 3, where a description of memory is an object */
typedef dnnl_memory_desc_t *memory_desc;
#define dnnl_cpu_isa_default dnnl_cpu_isa_all
#define dnnl_post_ops_append_sum(ops, scale, zero, type) (dnnl_post_ops_append_sum)(ops, scale)

static dnnl_status_t dnnl_memory_desc_clone(memory_desc *out, const dnnl_memory_desc_t *from) {
    *out = malloc(sizeof **out);
    if (*out)
        **out = *from;
    return *out ? dnnl_success : dnnl_out_of_memory;
}

static void dnnl_memory_desc_destroy(memory_desc d) { free(d); }

static dnnl_status_t dnnl_memory_desc_create_with_strides(memory_desc *out, int n, const dnnl_dims_t dims,
                                                          dnnl_data_type_t type, const dnnl_dims_t strides) {
    dnnl_status_t st = dnnl_memory_desc_clone(out, &(dnnl_memory_desc_t){0});
    return st == dnnl_success ? dnnl_memory_desc_init_by_strides(*out, n, dims, type, strides) : st;
}

static dnnl_status_t dnnl_matmul_primitive_desc_create(dnnl_primitive_desc_t *out, dnnl_engine_t engine, memory_desc a,
                                                       memory_desc b, memory_desc bias, memory_desc c,
                                                       dnnl_primitive_attr_t attr) {
    dnnl_matmul_desc_t desc;
    dnnl_status_t st = dnnl_matmul_desc_init(&desc, a, b, bias, c);
    return st == dnnl_success ? dnnl_primitive_desc_create(out, &desc, attr, engine, NULL) : st;
}
#else
typedef dnnl_memory_desc_t memory_desc;
#endif

enum { A, B, C, SCRATCH, OPERANDS };

/* What one execution needs for itself; kept for the next one, because oneDNN allocates memory to make it. */
typedef struct context {
    dnnl_stream_t stream;
    dnnl_memory_t memory[OPERANDS];
    struct context *next;
} context;

struct ndp_gemm {
    ndp_gemm_shape shape; /* the key; its padding is zero */
    size_t scratch_bytes;
    ndp_gemm *part[2];             /* of a split product, or [0] in fp32 of one in bf16; then nothing below */
    const ndp_gemm_kernel *kernel; /* ours; NULL: oneDNN's, which needs: */
    dnnl_primitive_t primitive;
    memory_desc md[OPERANDS];
    context **idle; /* as many as threads have asked for the plan; an execution that finds none idle makes one */
    pthread_t *users;
    int n_users;
    UT_hash_handle hh;
};

/* Plans live as long as the process: there are as many as distinct shapes. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t returned; /* a context */
    ndp_gemm *plans;
    dnnl_engine_t engine;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .returned = PTHREAD_COND_INITIALIZER};

/* In TSan builds: reports the memory that the library, masked vectors and tiles access, which TSan does not see. Sizes
 * are signed as gcc declares these built in. */
void __tsan_read_range(void *address, long size) __attribute__((weak));
void __tsan_write_range(void *address, long size) __attribute__((weak));

static dnnl_data_type_t type_of(ndp_dtype t) { return t == NDP_BF16 ? dnnl_bf16 : dnnl_f32; }

static dnnl_status_t describe(memory_desc *md, int64_t rows, int64_t cols, int64_t ld, bool trans, ndp_dtype t) {
    return dnnl_memory_desc_create_with_strides(md, 2, (dnnl_dims_t){rows, cols}, type_of(t),
                                                trans ? (dnnl_dims_t){1, ld} : (dnnl_dims_t){ld, 1});
}

static dnnl_status_t set_attributes(dnnl_primitive_attr_t attr, bool accumulate) {
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (st == dnnl_success && accumulate)
        st = dnnl_post_ops_create(&ops);
    if (st == dnnl_success && accumulate)
        st = dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
    if (st == dnnl_success && accumulate)
        st = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (ops)
        dnnl_post_ops_destroy(ops);
    return st;
}

void ndp_gemm_set_threads(int threads) {
    if (omp_get_max_threads() != threads)
        omp_set_num_threads(threads);
}

static void destroy_context(context *x) {
    for (int i = 0; i < OPERANDS; i++)
        if (x->memory[i])
            dnnl_memory_destroy(x->memory[i]);
    if (x->stream)
        dnnl_stream_destroy(x->stream);
    free(x);
}

static context *create_context(const ndp_gemm *g) {
    context *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    dnnl_status_t st = dnnl_stream_create(&x->stream, cache.engine, dnnl_stream_default_flags);
    for (int i = 0; st == dnnl_success && i < OPERANDS; i++)
        st = dnnl_memory_create(&x->memory[i], g->md[i], cache.engine, DNNL_MEMORY_NONE);
    if (st == dnnl_success)
        return x;
    destroy_context(x);
    return NULL;
}

static dnnl_status_t create_primitive(ndp_gemm *g) {
    const ndp_gemm_shape *s = &g->shape;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = describe(&g->md[A], s->m, s->k, s->lda, s->trans_a, s->a);
    if (st == dnnl_success)
        st = describe(&g->md[B], s->k, s->n, s->ldb, s->trans_b, s->b);
    if (st == dnnl_success)
        st = describe(&g->md[C], s->m, s->n, s->ldc, false, s->c);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_create(&attr);
    if (st == dnnl_success)
        st = set_attributes(attr, s->accumulate);
    if (st == dnnl_success)
        st = dnnl_matmul_primitive_desc_create(&pd, cache.engine, g->md[A], g->md[B], NULL, g->md[C], attr);
    if (st == dnnl_success)
        st = dnnl_memory_desc_clone(&g->md[SCRATCH], dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    if (st == dnnl_success) {
        g->scratch_bytes = dnnl_memory_desc_get_size(g->md[SCRATCH]);
        st = dnnl_primitive_create(&g->primitive, pd);
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return st;
}

/* The library goes no higher than our own kernels may: a system can refuse tiles that the processor has. It configures
 * tiles by CPUID's description of them; without one its kernels end by SIGILL. */
static dnnl_status_t create_engine(void) {
    bool tiles = ndp_cpu_has_amx_bf16() && ndp_cpu_describes_tiles();
    (void)dnnl_set_max_cpu_isa(tiles                       ? dnnl_cpu_isa_default
                               : ndp_cpu_has_avx512_bf16() ? dnnl_cpu_isa_avx512_core_bf16
                               : ndp_cpu_has_avx512()      ? dnnl_cpu_isa_avx512_core
                                                           : dnnl_cpu_isa_avx2);
    return dnnl_engine_create(&cache.engine, dnnl_cpu, 0);
}

ndp_status ndp_gemm_ready(void) {
    pthread_mutex_lock(&cache.lock);
    dnnl_status_t st = cache.engine ? dnnl_success : create_engine();
    pthread_mutex_unlock(&cache.lock);
    return st == dnnl_success ? NDP_OK : NDP_FAIL(NDP_ENOTSUP, "oneDNN does not start (its status %d)", (int)st);
}

/* The part of a plan that oneDNN makes. The library picks blocks by the thread count that is set meanwhile. */
static dnnl_status_t create_library_plan(ndp_gemm *g) {
    dnnl_status_t st = cache.engine ? dnnl_success : create_engine();
    ndp_gemm_set_threads(g->shape.threads);
    if (st == dnnl_success)
        st = create_primitive(g);
    if (st == dnnl_success) {
        g->idle = malloc(sizeof(context *));
        context *first = g->idle ? create_context(g) : NULL;
        if (first) {
            *g->idle = first;
            return dnnl_success;
        }
        free(g->idle);
        dnnl_primitive_destroy(g->primitive);
        st = dnnl_out_of_memory;
    }
    for (int i = 0; i < OPERANDS; i++)
        dnnl_memory_desc_destroy(g->md[i]);
    return st;
}

static ndp_status check(const ndp_gemm_shape *s) {
    const ndp_dtype types[] = {s->a, s->b, s->c};
    bool typed = s->c == NDP_F32 || s->a == NDP_BF16 || s->b == NDP_BF16;
    for (int i = 0; i < NDP_COUNT(types); i++)
        typed &= types[i] == NDP_F32 || types[i] == NDP_BF16;
    bool strided = s->lda >= (s->trans_a ? s->m : s->k) && s->ldb >= (s->trans_b ? s->k : s->n) && s->ldc >= s->n;
    if (s->m < 1 || s->n < 1 || s->k < 1 || s->threads < 1 || !typed || !strided)
        return NDP_FAIL(NDP_EBUG, "gemm: m %lld n %lld k %lld, strides %lld %lld %lld, %s x %s -> %s, %d threads",
                        (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->lda, (long long)s->ldb,
                        (long long)s->ldc, ndp_dtype_name(s->a), ndp_dtype_name(s->b), ndp_dtype_name(s->c),
                        s->threads);
    return NDP_OK;
}

/* Field by field: padding of the caller's struct must not reach the hash. */
static void set_key(ndp_gemm_shape *key, const ndp_gemm_shape *s) {
    memset(key, 0, sizeof *key);
    key->m = s->m, key->n = s->n, key->k = s->k;
    key->lda = s->lda, key->ldb = s->ldb, key->ldc = s->ldc;
    key->trans_a = s->trans_a, key->trans_b = s->trans_b;
    key->a = s->a, key->b = s->b, key->c = s->c;
    key->accumulate = s->accumulate;
    key->threads = s->threads;
    key->split = s->k > 1 ? s->split : 0;
    key->library = s->library;
}

const ndp_gemm_kernel *ndp_gemm_kernel_for(ndp_dtype t) {
    static const ndp_gemm_kernel *const of_bf16[] = {[NDP_BF16_LIBRARY] = NULL,
                                                     [NDP_BF16_WIDENED] = &ndp_bgemm_avx512,
                                                     [NDP_BF16_PAIRS] = &ndp_bgemm_avx512bf16,
                                                     [NDP_BF16_TILES] = &ndp_bgemm_amx};
    if (t == NDP_F32)
        return ndp_cpu_has_avx512() ? &ndp_sgemm_avx512 : NULL;
    return of_bf16[ndp_cpu_bf16_way()];
}

/* A context for this thread, which may be a rank of its own, so that none is made in a step. With the cache locked. */
static ndp_status add_user(ndp_gemm *g) {
    for (int i = 0; i < g->n_users; i++)
        if (pthread_equal(g->users[i], pthread_self()))
            return NDP_OK;
    pthread_t *users = realloc(g->users, ((size_t)g->n_users + 1) * sizeof *users);
    g->users = users ? users : g->users;
    context *x = !users ? NULL : g->n_users == 0 && *g->idle ? *g->idle : create_context(g);
    if (!x)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a matrix product's memories");
    if (x != *g->idle) {
        x->next = *g->idle;
        *g->idle = x;
    }
    g->users[g->n_users++] = pthread_self();
    return NDP_OK;
}

static ndp_status find_plan(const ndp_gemm_shape *key, ndp_gemm **out);

/* This thread will run the plan, and so those that it consists of. */
static ndp_status use_plan(ndp_gemm *g) {
    for (int i = 0; i < 2 && g->part[i]; i++)
        NDP_TRY(use_plan(g->part[i]));
    return g->primitive ? add_user(g) : NDP_OK;
}

static int64_t split_at(const ndp_gemm_shape *s) { return ndp_split_at(s->k, s->split); }

static size_t part_floats(const ndp_gemm_shape *s) { return ndp_gemm_floats(s->m, s->n); }

static ndp_status plan_parts(ndp_gemm *g) {
    ndp_gemm_shape part = g->shape;
    size_t most = 0;
    part.c = NDP_F32, part.ldc = part.n;
    part.split = 0, part.accumulate = false;
    for (int i = 0; i < 2; i++) {
        part.k = i == 0 ? split_at(&g->shape) : g->shape.k - split_at(&g->shape);
        NDP_TRY(find_plan(&part, &g->part[i]));
        most = g->part[i]->scratch_bytes > most ? g->part[i]->scratch_bytes : most;
    }
    g->scratch_bytes = 2 * part_floats(&g->shape) * sizeof(float) + most;
    return NDP_OK;
}

/* In fp32: oneDNN has products of bf16 only where there is AVX-512, and so kernels of ours; and none has both types. */
static ndp_status plan_widened(ndp_gemm *g) {
    ndp_gemm_shape s = g->shape;
    s.a = s.b = s.c = NDP_F32;
    s.lda = s.trans_a ? s.m : s.k, s.ldb = s.trans_b ? s.k : s.n, s.ldc = s.n;
    NDP_TRY(find_plan(&s, &g->part[0]));
    g->scratch_bytes = (ndp_gemm_floats(s.m, s.k) + ndp_gemm_floats(s.k, s.n) + part_floats(&s)) * sizeof(float) +
                       g->part[0]->scratch_bytes;
    return NDP_OK;
}

static ndp_status plan_whole(ndp_gemm *g) {
    const ndp_gemm_shape *s = &g->shape;
    g->kernel = s->library ? NULL : ndp_gemm_kernel_for(s->a);
    if (s->a != s->b || (!g->kernel && !s->library && s->a == NDP_BF16)) {
        g->kernel = NULL;
        return plan_widened(g);
    }
    dnnl_status_t st = g->kernel ? dnnl_success : create_library_plan(g);
    if (st != dnnl_success)
        return NDP_FAIL(NDP_ENOTSUP, "oneDNN has no matrix product for m %lld n %lld k %lld in %s (its status %d)",
                        (long long)s->m, (long long)s->n, (long long)s->k, ndp_dtype_name(s->a), (int)st);
    if (g->kernel)
        g->scratch_bytes = g->kernel->scratch(s);
    return NDP_OK;
}

/* With the cache locked. */
static ndp_status find_plan(const ndp_gemm_shape *key, ndp_gemm **out) {
    ndp_gemm *g = NULL;
    HASH_FIND(hh, cache.plans, key, sizeof *key, g);
    *out = g;
    if (g)
        return NDP_OK;
    g = calloc(1, sizeof *g);
    if (!g)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a matrix product's plan");
    memcpy(&g->shape, key, sizeof *key);
    ndp_status st = key->split ? plan_parts(g) : plan_whole(g);
    if (st != NDP_OK) {
        free(g);
        return st;
    }
    HASH_ADD(hh, cache.plans, shape, sizeof g->shape, g);
    *out = g;
    return NDP_OK;
}

ndp_status ndp_gemm_plan(const ndp_gemm_shape *shape, const ndp_gemm **out) {
    ndp_gemm_shape key;
    ndp_gemm *g;
    NDP_TRY(check(shape));
    set_key(&key, shape);
    pthread_mutex_lock(&cache.lock);
    ndp_status st = find_plan(&key, &g);
    if (st == NDP_OK)
        st = use_plan(g);
    pthread_mutex_unlock(&cache.lock);
    NDP_TRY(st);
    *out = g;
    return NDP_OK;
}

size_t ndp_gemm_scratch(const ndp_gemm *plan) { return plan->scratch_bytes; }

/* Rows of a matrix as stored. */
static void announce(void (*report)(void *, long), const void *p, int64_t rows, int64_t cols, int64_t ld, ndp_dtype t) {
    size_t size = ndp_dtype_size(t);
    for (int64_t r = 0; report && r < rows; r++)
        report((char *)p + (size_t)(r * ld) * size, (long)cols * (long)size);
}

static context *take_context(const ndp_gemm *g) {
    pthread_mutex_lock(&cache.lock);
    context *x = *g->idle ? NULL : create_context(g);
    while (!x && !*g->idle)
        pthread_cond_wait(&cache.returned, &cache.lock);
    if (!x) {
        x = *g->idle;
        *g->idle = x->next;
    }
    pthread_mutex_unlock(&cache.lock);
    return x;
}

static void return_context(const ndp_gemm *g, context *x) {
    pthread_mutex_lock(&cache.lock);
    x->next = *g->idle;
    *g->idle = x;
    pthread_cond_broadcast(&cache.returned);
    pthread_mutex_unlock(&cache.lock);
}

static void run_library(const ndp_gemm *g, const void *a, const void *b, void *c, void *scratch) {
    static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    void *data[OPERANDS] = {(void *)a, (void *)b, c, scratch};
    const ndp_gemm_shape *s = &g->shape;
    ndp_gemm_set_threads(s->threads);
    context *x = take_context(g);
    dnnl_exec_arg_t args[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        dnnl_memory_set_data_handle(x->memory[i], data[i]);
        args[i] = (dnnl_exec_arg_t){names[i], x->memory[i]};
    }
    dnnl_primitive_execute(g->primitive, x->stream, OPERANDS, args);
    return_context(g, x);
}

void ndp_gemm_add_parts(const ndp_gemm_shape *s, float *x, float *y, char *c) {
    for (int64_t i = 0; i < s->m; i++, x += s->n, y += s->n, c += (size_t)s->ldc * ndp_dtype_size(s->c)) {
        for (int64_t j = 0; j < s->n; j++)
            x[j] += y[j];
        if (s->accumulate)
            ndp_convert(c, s->c, y, NDP_F32, s->n);
        for (int64_t j = 0; s->accumulate && j < s->n; j++)
            x[j] += y[j];
        ndp_convert(x, NDP_F32, c, s->c, s->n);
    }
}

static void run_parts(const ndp_gemm *plan, const char *a, const char *b, void *c, float *scratch) {
    const ndp_gemm_shape *s = &plan->shape;
    float *sums[2] = {scratch, scratch + part_floats(s)}, *rest = scratch + 2 * part_floats(s);
    size_t first = (size_t)split_at(s);
    ndp_gemm_run(plan->part[0], a, b, sums[0], rest);
    ndp_gemm_run(plan->part[1], a + first * ndp_dtype_size(s->a) * (size_t)(s->trans_a ? s->lda : 1),
                 b + first * ndp_dtype_size(s->b) * (size_t)(s->trans_b ? 1 : s->ldb), sums[1], rest);
    ndp_gemm_add_parts(s, sums[0], sums[1], c);
}

static void convert_rows(const void *from, ndp_dtype type, int64_t ld, void *to, ndp_dtype to_type, int64_t to_ld,
                         int64_t rows, int64_t cols, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        ndp_convert((const char *)from + (size_t)(i * ld) * ndp_dtype_size(type), type,
                    (char *)to + (size_t)(i * to_ld) * ndp_dtype_size(to_type), to_type, cols);
}

static void run_widened(const ndp_gemm *plan, const void *a, const void *b, void *c, float *scratch) {
    const ndp_gemm_shape *s = &plan->shape, *wide = &plan->part[0]->shape;
    float *wide_a = scratch, *wide_b = wide_a + ndp_gemm_floats(s->m, s->k),
          *wide_c = wide_b + ndp_gemm_floats(s->k, s->n);
    convert_rows(a, s->a, s->lda, wide_a, NDP_F32, wide->lda, s->trans_a ? s->k : s->m, wide->lda, s->threads);
    convert_rows(b, s->b, s->ldb, wide_b, NDP_F32, wide->ldb, s->trans_b ? s->n : s->k, wide->ldb, s->threads);
    if (s->accumulate)
        convert_rows(c, s->c, s->ldc, wide_c, NDP_F32, s->n, s->m, s->n, s->threads);
    ndp_gemm_run(plan->part[0], wide_a, wide_b, wide_c, wide_c + part_floats(s));
    convert_rows(wide_c, NDP_F32, s->n, c, s->c, s->ldc, s->m, s->n, s->threads);
}

void ndp_gemm_announce(const ndp_gemm_shape *s, const void *a, const void *b, const void *c) {
    announce(__tsan_read_range, a, s->trans_a ? s->k : s->m, s->trans_a ? s->m : s->k, s->lda, s->a);
    announce(__tsan_read_range, b, s->trans_b ? s->n : s->k, s->trans_b ? s->k : s->n, s->ldb, s->b);
    announce(__tsan_write_range, c, s->m, s->n, s->ldc, s->c);
}

void ndp_gemm_run(const ndp_gemm *plan, const void *a, const void *b, void *c, void *scratch) {
    const ndp_gemm_shape *s = &plan->shape;
    ndp_gemm_announce(s, a, b, c);
    if (s->split)
        run_parts(plan, a, b, c, scratch);
    else if (plan->part[0])
        run_widened(plan, a, b, c, scratch);
    else if (plan->kernel)
        plan->kernel->run(s, a, b, c, scratch);
    else
        run_library(plan, a, b, c, scratch);
}
