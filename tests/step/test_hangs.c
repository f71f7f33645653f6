/* Steps on devices that fail, hang or die, on `sim`: the rank at fault is named, with the instruction and the tensor,
 * and every process ends.
 *
 * Ranks that are threads run as cases here. CTest also runs this by `ndparallel launch` and mpirun, with the library of
 * tests/comm/fake_nccl in NCCL's place and an argument that says what rank 1 plays in its second step; each rank prints
 * what it was told, and after how many seconds. */
#include "comm/launched.h"
#include "comm/watch/health.h"
#include "device/cuda/cuda_load.h"
#include "ops/op.h"

#include "check.h"
#include "step/tiny.h"

#include "base/clock.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROWS = 13, AT_FAULT = 1, LAYER = 1, LAYERS = 2 };

/* What a rank does in its second step. FAIL, STICK: an operation of its device, in the attention of the last layer.
 * REFUSE: the submission of that attention. ERROR, LOST: an operation of NCCL, in either step; the second on all ranks.
 */
typedef enum fault { NONE, FAIL, STICK, REFUSE, KILL, STOP, IDLE, ERROR, LOST } fault;

static ndp_device device;
static ndp_kernel attention;
static const ndp_kernel *kernels[NDP_OP_COUNT];
static int (*submit_when)(void *stream, int (*try_run)(void *), void *user);
static _Atomic bool released; /* operations that stick may end */

/* Of this rank. */
static _Thread_local fault playing;
static _Thread_local int until; /* calls of attention until it plays */

/* ---- a device that fails ---- */

static int fails(void *user) { return (void)user, -1; }
static int sticks(void *user) { return (void)user, atomic_load(&released); }

static ndp_status run_attention(const ndp_op_call *call) {
    bool now = until > 0 && --until == 0;
    if (now && playing == KILL)
        raise(SIGKILL);
    if (now && playing == STOP)
        raise(SIGSTOP);
    if (now && (playing == FAIL || playing == STICK))
        submit_when(device.stream(call->queue), playing == FAIL ? fails : sticks, NULL);
    if (now && playing == REFUSE)
        return NDP_FAIL(NDP_EIO, "a launch is refused");
    return attention.run(call);
}

/* False: there is no sim. */
static bool find_device(void) {
    const ndp_cuda_api *api;
    Dl_info plugin;
    if (ndp_cuda_load(true, true, &api) != NDP_OK)
        return false;
    static const ndp_kernel failing = {.run = run_attention};
    static ndp_kernel replaced;
    device = *api->device;
    memcpy(kernels, device.kernels, sizeof kernels);
    attention = *kernels[NDP_OP_attention];
    replaced = (ndp_kernel){failing.run, attention.scratch, attention.prepare};
    kernels[NDP_OP_attention] = &replaced;
    device.kernels = kernels;
    assert_true(dladdr((void *)(intptr_t)api->device->open, &plugin));
    void *sim = dlopen(plugin.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(sim);
    submit_when = (__typeof__(submit_when))(intptr_t)dlsym(sim, "ndp_sim_submit_when");
    return submit_when != NULL;
}

/* ---- a rank ---- */

typedef struct job {
    const ndp_model *model;
    fault fault;
    char place[96], call[96]; /* of the attention of the last layer, in a step of rank 1 */
} job;

/* "#12 forward layers.1" and "#12.7 attention layers.1" */
static void name_places(const ndp_engine *e, job *j) {
    const ndp_program *p = ndp_engine_program(e);
    for (int i = 0; i < p->n; i++) {
        const ndp_instr *in = &p->instrs[i];
        if (in->code != NDP_DO_RUN || in->phase > NDP_FORWARD_DROP || in->unit != 1 + LAYER)
            continue;
        const ndp_list *list = ndp_program_list(p, in);
        for (int k = 0; k < list->n; k++)
            if (list->calls[k].op->id == NDP_OP_attention)
                snprintf(j->call, sizeof j->call, "#%d.%d attention %s", i, k, in->what);
        snprintf(j->place, sizeof j->place, "#%d %s %s", i, ndp_phase_name(in->phase), in->what);
    }
}

static ndp_status make_engine(ndp_transport *t, job *j, const ndp_exec *exec, ndp_engine **out) {
    ndp_engine_opts o = {.model = j->model,
                         .transport = t,
                         .step = {.exec = exec,
                                  .accumulation = 1,
                                  .reshard = true,
                                  .parallel = NDP_PARALLEL_INIT,
                                  .optimizer = {.name = NDP_ADAMW, .betas = {0.9, 0.95}, .eps = 1e-8, .max_norm = 1}}};
    ndp_layout layout = NDP_LAYOUT_ONE;
    layout.size[NDP_DP_SHARD] = ndp_transport_world(t);
    NDP_TRY(ndp_mesh_init(&layout, ndp_transport_rank(t), &(ndp_mesh_facts){.kv_heads = ndp_model_kv_heads(j->model)},
                          &o.step.mesh));
    NDP_TRY(ndp_engine_create(&o, out));
    tiny_fill(*out);
    return NDP_OK;
}

/* A rank that does not submit: its host does something else until the run has failed. */
static void idle(const ndp_transport *t) {
    while (atomic_load(&t->health->failed) != 2)
        usleep(1000);
}

static ndp_status run_steps(ndp_transport *t, job *j, ndp_engine *e) {
    bool plays = ndp_transport_rank(t) == AT_FAULT % ndp_transport_world(t);
    playing = plays ? j->fault : NONE;
    for (int u = 0; u < 2; u++) {
        ndp_step_result r;
        tiny_batch(e, 0, ndp_transport_rank(t));
        if (u == 1 && playing == IDLE)
            idle(t);
        if (u == 1)
            until = LAYERS; /* one call of attention each */
        NDP_TRY(ndp_engine_step(e, 1e-3, u, true, &r));
    }
    return NDP_OK;
}

static ndp_status run_rank(ndp_transport *t, void *arg) {
    job *j = arg;
    const ndp_exec exec = {.device = &device, .threads = 1, .share = true};
    ndp_engine *e = NULL;
    ndp_status st = make_engine(t, j, &exec, &e);
    if (st == NDP_OK && ndp_transport_rank(t) == AT_FAULT % ndp_transport_world(t))
        name_places(e, j);
    if (st == NDP_OK)
        st = run_steps(t, j, e);
    char why[1024];
    snprintf(why, sizeof why, "%s", ndp_error_message());
    ndp_engine_destroy(e);
    if (st != NDP_OK)
        ndp_error_set(st, why);
    return st;
}

static void build_model(ndp_model *m) {
    ndp_facts f = tiny_facts(false);
    ndp_model_opts mo = tiny_opts(NDP_F32, ROWS);
    CHECK_OK(ndp_decoder_build(&f, &mo, m));
}

/* ---- ranks that are threads ---- */

static int begin(void **state) {
    (void)state;
    if (!submit_when) {
        print_message("SKIPPED: %s\n", ndp_error_message());
        skip();
    }
    atomic_store(&released, false);
    return 0;
}

/* The message of the world; j->place and j->call are set. */
static const char *run_world(int ranks, fault f, job *j) {
    static ndp_model m;
    build_model(&m);
    *j = (job){.model = &m, .fault = f};
    assert_int_not_equal(ndp_local_world(ranks, run_rank, j), NDP_OK);
    ndp_model_release(&m);
    print_message("%s\n", ndp_error_message());
    return ndp_error_message();
}

static void has(const char *message, const char *words) {
    if (!strstr(message, words))
        fail_msg("the message lacks '%s': %s", words, message);
}

static void a_failure_names_its_instruction(void **state) {
    begin(state);
    job j;
    char words[256];
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        const char *text = run_world(ranks, FAIL, &j);
        snprintf(words, sizeof words, "rank %d: ", ranks > 1 ? AT_FAULT : 0);
        has(text, words);
        has(text, " on GPU 0: "); /* "a kernel or copy", or what was being submitted when it was seen */
        snprintf(words, sizeof words, ", at %s (NDP_GPU_CALLS=1 names the call)", j.place);
        has(text, words);
        setenv("NDP_GPU_CALLS", "1", 1);
        text = run_world(ranks, FAIL, &j);
        unsetenv("NDP_GPU_CALLS");
        snprintf(words, sizeof words, ", at %s", j.call);
        has(text, words);
    }
}

/* The device is at the end of the step before, or at an instruction up to the refused one. */
static bool reached(const char *text, int last) {
    int at;
    if (strncmp(text, "end of the step ", 16) == 0)
        return true;
    return sscanf(text, "#%d ", &at) == 1 && at <= last;
}

static void a_refused_submission_is_named(void **state) {
    begin(state);
    job j;
    char words[256];
    const char head[] = "rank 0: a launch is refused, at ", *text = run_world(1, REFUSE, &j);
    snprintf(words, sizeof words, "; the host was submitting %s", j.place);
    has(text, words);
    has(text, head);
    if (!reached(strstr(text, head) + strlen(head), atoi(j.place + 1)))
        fail_msg("the device cannot be past %s: %s", j.place, text);
}

/* Rank 1 says so itself, or another rank does that waits for it. */
static void a_kernel_that_hangs_is_named(void **state) {
    begin(state);
    job j;
    char own[256], others[256];
    setenv("NDP_COMM_TIMEOUT", "4", 1);
    const char *text = run_world(3, STICK, &j);
    unsetenv("NDP_COMM_TIMEOUT");
    atomic_store(&released, true);
    snprintf(own, sizeof own, "rank 1 is at %s on its device, for 4.", j.place);
    snprintf(others, sizeof others, "rank 1 has not arrived: it is at %s on its device, for ", j.place);
    has(text, strstr(text, own) ? own : others);
}

static void a_rank_that_does_not_submit_is_named(void **state) {
    begin(state);
    job j;
    setenv("NDP_COMM_TIMEOUT", "4", 1);
    const char *text = run_world(3, IDLE, &j);
    unsetenv("NDP_COMM_TIMEOUT");
    has(text, "rank 1 has not arrived: it has submitted nothing since #");
    has(text, ", and its device has nothing to do");
}

/* ---- how far a host goes ahead ---- */

typedef struct ahead {
    int submitted; /* places of one operation each, before the queue that is stuck ended it */
    ndp_status st;
} ahead;

/* More than a GPU's driver takes; then the same after the operation that stuck has ended. */
static ndp_status submit_much(ndp_transport *t, ndp_queue *q, ahead *a) {
    submit_when(device.stream(q), sticks, NULL);
    while (a->st == NDP_OK && a->submitted < 2000) {
        a->st = ndp_transport_at(
            t, q, &(ndp_queue_place){.doing = "op", .what = "x", .instr = a->submitted, .call = -1, .operations = 1});
        a->submitted += a->st == NDP_OK;
    }
    return a->st;
}

static ndp_status go_ahead(ndp_transport *host, void *arg) {
    ahead *a = arg;
    ndp_device_context *context;
    ndp_transport *t;
    ndp_queue *q;
    NDP_TRY(device.open(&device, &(ndp_device_opts){.share = true}, &context));
    NDP_TRY(device.queue_create(context, &q));
    NDP_TRY(ndp_transport_on_device(host, &device, context, &t));
    ndp_status st = submit_much(t, q, a);
    atomic_store(&released, true);
    ndp_transport_settles(t, q);
    ndp_transport_destroy(t);
    device.queue_destroy(q);
    device.close(context);
    return st;
}

/* A submission to a full queue would block the host in CUDA. */
static void a_host_does_not_run_away(void **state) {
    begin(state);
    ahead a = {.st = NDP_OK};
    setenv("NDP_COMM_TIMEOUT", "1", 1);
    CHECK_FAILS(ndp_local_world(1, go_ahead, &a), NDP_ECOMM, "for its device, which does not go on");
    print_message("%d operations ahead\n", a.submitted);
    assert_in_range(a.submitted, 512, 514);
    a = (ahead){.st = NDP_OK};
    CHECK_OK(ndp_local_world(1, go_ahead, &a));
    unsetenv("NDP_COMM_TIMEOUT");
    assert_int_equal(a.submitted, 2000);
}

static int cases(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_names_its_instruction), cmocka_unit_test(a_refused_submission_is_named),
        cmocka_unit_test(a_kernel_that_hangs_is_named), cmocka_unit_test(a_rank_that_does_not_submit_is_named),
        cmocka_unit_test(a_host_does_not_run_away)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ---- ranks that are processes ---- */

static const struct {
    const char *name;
    fault fault;
} plays[] = {{"fail", FAIL}, {"stick", STICK}, {"kill", KILL}, {"stop", STOP},
             {"idle", IDLE}, {"error", ERROR}, {"lost", LOST}, {"none", NONE}};

static ndp_status play(const char *what, double *begun) {
    ndp_transport *t;
    ndp_model m;
    job j = {.model = &m};
    for (int i = 0; i < NDP_COUNT(plays); i++)
        if (strcmp(what, plays[i].name) == 0)
            j.fault = plays[i].fault;
    if (j.fault == ERROR && ndp_launched_rank() == AT_FAULT)
        setenv("FAKE_NCCL_ERROR_AT", "12", 1);
    if (j.fault == LOST)
        setenv("FAKE_NCCL_STICK_AT", "12", 1);
    build_model(&m);
    NDP_TRY(ndp_launched_on_host(&(int){0}) ? ndp_transport_shm(&t) : ndp_transport_mpi(&t));
    *begun = ndp_now();
    ndp_status st = run_rank(t, &j);
    if (st != NDP_OK) {
        printf("rank %d says after %.1f s: %s\n", ndp_transport_rank(t), ndp_now() - *begun, ndp_error_message());
        fflush(stdout);
        ndp_transport_abort(t, ndp_error_message());
    }
    ndp_transport_destroy(t);
    ndp_model_release(&m);
    return st;
}

int main(int argc, char **argv) {
    bool found = find_device();
    double begun = 0;
    if (argc < 2)
        return cases();
    if (!found)
        return 77;
    ndp_status st = play(argv[1], &begun);
    if (st == NDP_OK)
        printf("all is well\n");
    return st != NDP_OK;
}
