/* Proof 5: nothing in the step allocates. This program's malloc counts; from the third step on the count stands still,
 * on all ranks, inside the libraries too. (A sanitizer brings its own malloc: there the proof is skipped.) */
#include "check.h"
#include "step/tiny.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

static atomic_long calls;
static atomic_bool counting;

#ifndef SANITIZED
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static void count(void) {
    if (atomic_load(&counting))
        atomic_fetch_add(&calls, 1);
}

void *malloc(size_t n) { return count(), __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return count(), __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return count(), __libc_realloc(p, n); }
void *memalign(size_t alignment, size_t n);
void *memalign(size_t alignment, size_t n) { return count(), __libc_memalign(alignment, n); }
void *aligned_alloc(size_t alignment, size_t n) { return count(), __libc_memalign(alignment, n); }
int posix_memalign(void **out, size_t alignment, size_t n) {
    count();
    *out = __libc_memalign(alignment, n);
    return *out ? 0 : ENOMEM;
}
#endif

typedef struct job {
    const ndp_model *model;
    ndp_layout layout;
    int threads;
} job;

static ndp_status run_steps(ndp_engine *e, int rank) {
    for (int u = 0; u < 6; u++) {
        for (int m = 0; m < 2; m++)
            tiny_batch(e, m, 2 * rank + m);
        if (u == 3 && rank == 0)
            atomic_store(&counting, true);
        ndp_step_result r;
        NDP_TRY(ndp_engine_step(e, 1e-3, u, true, &r));
    }
    return NDP_OK;
}

static ndp_status body(ndp_transport *t, void *arg) {
    const job *j = arg;
    ndp_engine_opts o = {
        .model = j->model,
        .transport = t,
        .device = &ndp_device_cpu,
        .threads = j->threads,
        .accumulation = 2,
        .reshard = true,
        .recompute = true,
        .optimizer = {.kind = NDP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .max_norm = 1.0}};
    NDP_TRY(ndp_mesh_init(&j->layout, ndp_transport_rank(t), &o.mesh));
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    ndp_status st = run_steps(e, ndp_transport_rank(t));
    if (ndp_transport_rank(t) == 0) /* the last step's end met all ranks: none is in a step now */
        atomic_store(&counting, false);
    ndp_engine_destroy(e);
    return st;
}

static void check_model(ndp_dtype compute, int replicate, int shard, int threads) {
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(compute, 40);
    ndp_model m;
    CHECK_OK(ndp_model_build(&f, &mo, &m));
    job j = {&m, NDP_LAYOUT_ONE, threads};
    j.layout.size[NDP_DP_REPLICATE] = replicate, j.layout.size[NDP_DP_SHARD] = shard;
    atomic_store(&calls, 0);
    CHECK_OK(ndp_local_world(replicate * shard, body, &j));
    if (atomic_load(&calls) != 0)
        fail_msg("%ld allocations in steps 4 to 6 of %d x %d ranks, %s", atomic_load(&calls), replicate, shard,
                 ndp_dtype_name(compute));
    ndp_model_release(&m);
}

static void the_count_counts(void **state) {
    (void)state;
    atomic_store(&calls, 0);
    atomic_store(&counting, true);
    void *volatile p = malloc(10);
    atomic_store(&counting, false);
    free(p);
    assert_int_equal(atomic_load(&calls), 1);
}

static void one_rank(void **state) {
    (void)state;
    check_model(NDP_F32, 1, 1, 2);
    check_model(NDP_BF16, 1, 1, 2);
}

static void four_ranks(void **state) {
    (void)state;
    check_model(NDP_F32, 2, 2, 1);
    check_model(NDP_BF16, 2, 2, 1);
}

int main(void) {
#ifdef SANITIZED
    printf("SKIPPED: a sanitizer owns malloc here\n");
    return 77;
#endif
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_count_counts), cmocka_unit_test(one_rank),
                                       cmocka_unit_test(four_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
