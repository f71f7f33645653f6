/* oneDNN's matrix products. A plan is a primitive; one execution needs a context of its own, so a plan keeps a list of
 * idle ones, as many as threads have asked for it. One lock is held while a plan is made, and while a context is taken
 * or returned. Called by cpu_gemm.c, which keeps the plans. */
#include "ops/cpu/cpu_gemm_library.h"

#include "base/cpu.h"
#include "ops/cpu/cpu_gemm_kernel.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>

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

struct ndp_library_plan {
    dnnl_primitive_t primitive;
    memory_desc md[OPERANDS];
    context *idle; /* an execution that finds none makes one */
    pthread_t *users;
    int n_users;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t returned; /* a context */
    dnnl_engine_t engine;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER, .returned = PTHREAD_COND_INITIALIZER};

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

static context *create_context(const ndp_library_plan *g) {
    context *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    dnnl_status_t st = dnnl_stream_create(&x->stream, library.engine, dnnl_stream_default_flags);
    for (int i = 0; st == dnnl_success && i < OPERANDS; i++)
        st = dnnl_memory_create(&x->memory[i], g->md[i], library.engine, DNNL_MEMORY_NONE);
    if (st == dnnl_success)
        return x;
    destroy_context(x);
    return NULL;
}

static dnnl_status_t create_primitive(ndp_library_plan *g, const ndp_gemm_shape *s, size_t *scratch_bytes) {
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
        st = dnnl_matmul_primitive_desc_create(&pd, library.engine, g->md[A], g->md[B], NULL, g->md[C], attr);
    if (st == dnnl_success)
        st = dnnl_memory_desc_clone(&g->md[SCRATCH], dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    if (st == dnnl_success) {
        *scratch_bytes = dnnl_memory_desc_get_size(g->md[SCRATCH]);
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
    return dnnl_engine_create(&library.engine, dnnl_cpu, 0);
}

/* Under the lock. */
static dnnl_status_t start(void) { return library.engine ? dnnl_success : create_engine(); }

ndp_status ndp_gemm_ready(void) {
    pthread_mutex_lock(&library.lock);
    dnnl_status_t st = start();
    pthread_mutex_unlock(&library.lock);
    return st == dnnl_success ? NDP_OK : NDP_FAIL(NDP_ENOTSUP, "oneDNN does not start (its status %d)", (int)st);
}

/* Under the lock. The library picks blocks by the thread count that is set meanwhile. */
static dnnl_status_t fill_plan(ndp_library_plan *g, const ndp_gemm_shape *s, size_t *scratch_bytes) {
    dnnl_status_t st = start();
    ndp_gemm_set_threads(s->threads);
    if (st == dnnl_success)
        st = create_primitive(g, s, scratch_bytes);
    if (st == dnnl_success && !(g->idle = create_context(g))) {
        dnnl_primitive_destroy(g->primitive);
        st = dnnl_out_of_memory;
    }
    for (int i = 0; st != dnnl_success && i < OPERANDS; i++)
        dnnl_memory_desc_destroy(g->md[i]);
    return st;
}

ndp_status ndp_library_plan_make(const ndp_gemm_shape *s, ndp_library_plan **out, size_t *scratch_bytes) {
    ndp_library_plan *g = calloc(1, sizeof *g);
    pthread_mutex_lock(&library.lock);
    dnnl_status_t st = g ? fill_plan(g, s, scratch_bytes) : dnnl_out_of_memory;
    pthread_mutex_unlock(&library.lock);
    if (st == dnnl_success) {
        *out = g;
        return NDP_OK;
    }
    free(g);
    return NDP_FAIL(NDP_ENOTSUP, "oneDNN has no matrix product for m %lld n %lld k %lld in %s (its status %d)",
                    (long long)s->m, (long long)s->n, (long long)s->k, ndp_dtype_name(s->a), (int)st);
}

/* A context for this thread, which may be a rank of its own, so that none is made in a step. Under the lock. */
static bool add_user(ndp_library_plan *g) {
    for (int i = 0; i < g->n_users; i++)
        if (pthread_equal(g->users[i], pthread_self()))
            return true;
    pthread_t *users = realloc(g->users, ((size_t)g->n_users + 1) * sizeof *users);
    g->users = users ? users : g->users;
    context *x = !users ? NULL : g->n_users == 0 && g->idle ? g->idle : create_context(g);
    if (!x)
        return false;
    if (x != g->idle) {
        x->next = g->idle;
        g->idle = x;
    }
    g->users[g->n_users++] = pthread_self();
    return true;
}

ndp_status ndp_library_use(ndp_library_plan *plan) {
    pthread_mutex_lock(&library.lock);
    bool added = add_user(plan);
    pthread_mutex_unlock(&library.lock);
    return NDP_MEMORY(added, "for a matrix product's memories");
}

static context *take_context(ndp_library_plan *g) {
    pthread_mutex_lock(&library.lock);
    context *x = g->idle ? NULL : create_context(g);
    while (!x && !g->idle)
        pthread_cond_wait(&library.returned, &library.lock);
    if (!x) {
        x = g->idle;
        g->idle = x->next;
    }
    pthread_mutex_unlock(&library.lock);
    return x;
}

static void return_context(ndp_library_plan *g, context *x) {
    pthread_mutex_lock(&library.lock);
    x->next = g->idle;
    g->idle = x;
    pthread_cond_broadcast(&library.returned);
    pthread_mutex_unlock(&library.lock);
}

void ndp_library_run(ndp_library_plan *plan, const ndp_gemm_shape *s, const void *a, const void *b, void *c,
                     void *scratch) {
    static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD};
    void *data[OPERANDS] = {(void *)a, (void *)b, c, scratch};
    ndp_gemm_set_threads(s->threads);
    context *x = take_context(plan);
    dnnl_exec_arg_t args[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        dnnl_memory_set_data_handle(x->memory[i], data[i]);
        args[i] = (dnnl_exec_arg_t){names[i], x->memory[i]};
    }
    dnnl_primitive_execute(plan->primitive, x->stream, OPERANDS, args);
    return_context(plan, x);
}
