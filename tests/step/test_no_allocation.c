/* Proof 5: nothing in the step allocates. This program's malloc counts; from the third step on the count stands still,
 * on all ranks, inside the libraries too. (A sanitizer brings its own malloc: there the proof is skipped.) */
#include "device/cuda/cuda_load.h"
#include "guarded.h"
#include "step/tiny.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_long calls;
static atomic_bool counting;

#if !SANITIZED
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
    ndp_parallel parallel;
    int threads;
    ndp_optimizer_name optimizer;
    const ndp_device *device;
    const ndp_cuda_api *plugin; /* of the device; NULL: it is built in */
    long allocated[2];          /* memory of the device and pinned memory: after step 2, after step 6 */
} job;

static ndp_status run_steps(job *j, ndp_engine *e, int rank) {
    for (int u = 0; u < 6; u++) {
        for (int m = 0; m < 2; m++)
            tiny_batch(e, m, 2 * ndp_mesh_group(&ndp_engine_program(e)->opts.step.mesh, NDP_GROUP_DATA).rank + m);
        if (u == 3 && rank == 0)
            atomic_store(&counting, !j->plugin);
        if (u == 2 && rank == 0 && j->plugin)
            j->allocated[0] = j->plugin->allocations();
        ndp_step_result r;
        NDP_TRY(ndp_engine_step(e, 1e-3, u, true, &r));
    }
    if (rank == 0 && j->plugin)
        j->allocated[1] = j->plugin->allocations();
    return NDP_OK;
}

static ndp_status body(ndp_transport *t, void *arg) {
    job *j = arg;
    const ndp_exec exec = {.device = j->device, .threads = j->threads, .share = true};
    ndp_engine_opts o = {
        .model = j->model,
        .step =
            {.parallel = j->parallel,
             .exec = &exec,
             .accumulation = 2,
             .reshard = true,
             .recompute = true,
             .optimizer = {.name = j->optimizer, .betas = {0.9, 0.95}, .eps = 1e-8, .momentum = 0.95, .max_norm = 1.0}},
        .transport = t};
    NDP_TRY(ndp_mesh_init(&j->layout, ndp_transport_rank(t),
                          &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(j->model)}, &o.step.mesh));
    ndp_engine *e;
    NDP_TRY(ndp_engine_create(&o, &e));
    tiny_fill(e);
    NDP_TRY(ndp_engine_record(e)); /* records of steps are allocated before them, and so are stamps */
    NDP_TRY(ndp_engine_profile_reset(e, true));
    ndp_status st = run_steps(j, e, ndp_transport_rank(t));
    if (ndp_transport_rank(t) == 0) /* the last step's end met all ranks: none is in a step now */
        atomic_store(&counting, false);
    ndp_engine_destroy(e);
    return st;
}

/* On a layout of so many dp_replicate, dp_shard, cp, sp, tp. */
static void check_on(const ndp_device *device, ndp_dtype compute, ndp_optimizer_name optimizer, const int size[5],
                     ndp_parallel how, int threads) {
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(compute, 40);
    ndp_model m;
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    tiny_code(&m, 100);
    job j = {&m, NDP_LAYOUT_ONE, how, threads, optimizer, device, NULL, {0}};
    int world = 1;
    for (int k = 0; k < 5; k++)
        world *= j.layout.size[NDP_DP_REPLICATE + k] = size[k];
    atomic_store(&calls, 0);
    CHECK_OK(ndp_local_world(world, body, &j));
    char text[128];
    if (atomic_load(&calls) != 0)
        fail_msg("%ld allocations in steps 4 to 6 of %s, %s", atomic_load(&calls),
                 ndp_layout_text(&j.layout, text, sizeof text), ndp_dtype_name(compute));
    ndp_model_release(&m);
}

static const ndp_parallel standard = NDP_PARALLEL_INIT;

static void check_layout(ndp_dtype compute, ndp_optimizer_name optimizer, const int size[5], ndp_parallel how,
                         int threads) {
    check_on(&ndp_device_cpu, compute, optimizer, size, how, threads);
}

static void check_both(const int size[5], ndp_parallel how, int threads) {
    check_layout(NDP_F32, NDP_ADAMW, size, how, threads);
    check_layout(NDP_BF16, NDP_MUON, size, how, threads);
    check_layout(NDP_BF16, NDP_ADAMW8BIT, size, how, threads);
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
    check_both((const int[]){1, 1, 1, 1, 1}, standard, 2);
}

static void data_axes(void **state) {
    (void)state;
    check_both((const int[]){2, 2, 1, 1, 1}, standard, 1);
}

static void tensor_axis(void **state) {
    (void)state;
    check_both((const int[]){1, 1, 1, 1, 2}, standard, 2);
    check_both((const int[]){1, 1, 1, 1, 2}, (ndp_parallel){false, NDP_CP_RING, true, 0, 0, 1.5}, 1);
}

static void context_axis(void **state) {
    (void)state;
    check_both((const int[]){1, 1, 2, 1, 1}, standard, 2);
    check_both((const int[]){1, 1, 2, 1, 1}, (ndp_parallel){true, NDP_CP_ALL_GATHER, true, 0, 0, 1.5}, 1);
}

static void sequence_axis(void **state) {
    (void)state;
    check_both((const int[]){1, 1, 1, 2, 1}, standard, 2);
}

static void all_axes(void **state) {
    (void)state;
    check_both((const int[]){1, 2, 2, 2, 2}, standard, 1);
}

/* Where the host cannot access the device's memory: operands of collectives are copied to places that were planned. */
static void staged(void **state) {
    (void)state;
    const ndp_device *guard = guarded(&ndp_device_cpu);
    check_on(guard, NDP_F32, NDP_ADAMW, (const int[]){1, 2, 2, 1, 2}, standard, 1);
    unguard(guard);
}

/* The simulated runtime counts what is allocated on the device and pinned; its own lists are of the host. */
static void on_sim(void **state) {
    (void)state;
    ndp_facts f = tiny_facts(true);
    ndp_model_opts mo = tiny_opts(NDP_F32, 12);
    ndp_model m;
    job j = {&m, NDP_LAYOUT_ONE, standard, 1, NDP_ADAMW, NULL, NULL, {0}};
    if (ndp_cuda_load(true, true, &j.plugin) != NDP_OK) {
        print_message("SKIPPED: %s\n", ndp_error_message());
        skip();
    }
    CHECK_OK(ndp_decoder_build(&f, &mo, &m));
    j.device = j.plugin->device;
    j.layout.size[NDP_DP_SHARD] = j.layout.size[NDP_TP] = 2;
    CHECK_OK(ndp_local_world(4, body, &j));
    assert_true(j.allocated[0] > 0);
    assert_int_equal(j.allocated[0], j.allocated[1]);
    ndp_model_release(&m);
}

int main(void) {
    if (SANITIZED) {
        printf("SKIPPED: a sanitizer owns malloc here\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_count_counts), cmocka_unit_test(one_rank),     cmocka_unit_test(data_axes),
        cmocka_unit_test(tensor_axis),      cmocka_unit_test(context_axis), cmocka_unit_test(sequence_axis),
        cmocka_unit_test(all_axes),         cmocka_unit_test(staged),       cmocka_unit_test(on_sim)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
