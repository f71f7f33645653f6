/* Waits of a rank with a device: they publish where the device is, and end by the time limit only where it stays. The
 * device is made up: its queue goes on when the test says so. tests/step/test_hangs.c has steps on the simulated GPU.
 */
#include "comm/watch/wait.h"
#include "comm/watch/waypoints.h"
#include "device/device.h"

#include "check.h"
#include "comm/cases.h"

enum { MOST = 2048 };

/* ---- a device whose operations are words ---- */

struct ndp_queue {
    uint32_t *word, words[MOST];
    int submitted, written;
    bool runs;         /* it goes on by one operation whenever it is asked how far it is */
    ndp_status broken; /* what it then returns */
};

static void go_on(ndp_queue *q) {
    if (q->written < q->submitted)
        __atomic_store_n(q->word, q->words[q->written++], __ATOMIC_RELEASE);
}

static ndp_status queue_create(ndp_device_context *c, ndp_queue **out) {
    (void)c;
    *out = calloc(1, sizeof **out);
    return *out ? NDP_OK : NDP_FAIL(NDP_ENOMEM, "test memory");
}

static void queue_destroy(ndp_queue *q) { free(q); }

static ndp_status write_word(ndp_queue *q, uint32_t *word, uint32_t value) {
    q->word = word;
    q->words[q->submitted++] = value;
    return NDP_OK;
}

static ndp_status passed(ndp_queue *q, const ndp_mark *mark, bool *out) {
    (void)mark;
    if (q->runs)
        go_on(q);
    *out = q->written == q->submitted;
    return q->broken ? NDP_FAIL(q->broken, "a kernel") : NDP_OK;
}

static ndp_status drain(ndp_queue *q) {
    while (q->written < q->submitted)
        go_on(q);
    return NDP_OK;
}

static const ndp_device device = {.name = "made up",
                                  .executes = true,
                                  .memory_map = ndp_host_memory_map,
                                  .memory_unmap = ndp_host_memory_unmap,
                                  .queue_create = queue_create,
                                  .queue_destroy = queue_destroy,
                                  .mark = ndp_host_mark,
                                  .passed = passed,
                                  .drain = drain,
                                  .write_word = write_word};

/* ---- a rank with one ---- */

typedef struct with_device {
    ndp_transport *host, *t;
    ndp_device_context *context;
    ndp_queue *queue;
} with_device;

static ndp_status rank_open(with_device *r, ndp_transport *host) {
    *r = (with_device){.host = host};
    NDP_TRY(ndp_host_open(&device, &(ndp_device_opts){0}, &r->context));
    NDP_TRY(queue_create(r->context, &r->queue));
    return ndp_transport_staged(host, &device, r->context, &r->t);
}

static ndp_status rank_close(with_device *r, ndp_status st) {
    ndp_transport_destroy(r->t);
    queue_destroy(r->queue);
    ndp_host_close(r->context);
    return st;
}

typedef struct one {
    ndp_status (*check)(with_device *r);
} one;

/* The body of a world of one rank. */
static ndp_status run(ndp_transport *host, void *arg) {
    with_device r;
    NDP_TRY(rank_open(&r, host));
    return rank_close(&r, ((const one *)arg)->check(&r));
}

/* Instruction `n` of the unit x, of one operation. */
static ndp_status submit(with_device *r, int n) {
    return ndp_transport_at(
        r->t, r->queue, &(ndp_queue_place){.doing = "forward", .what = "x", .instr = n, .call = -1, .operations = 1});
}

static ndp_device_place place_of(const ndp_transport *host, int of) {
    return ndp_journal_read(&host->journals[of]).place;
}

/* ---- where the device is ---- */

static ndp_status check_place(const with_device *r) {
    ndp_device_place p = place_of(r->host, r->host->rank);
    uint32_t word = *r->queue->word;
    WANT(p.waypoint == word, "the queue is at %u, the journal says %u", word, p.waypoint);
    return NDP_OK;
}

/* A submission that waits ends as soon as the queue is near enough. */
static ndp_status goes_ahead(with_device *r) {
    r->queue->runs = true;
    for (int n = 0; n < 1000; n++)
        NDP_TRY(submit(r, n));
    WANT(r->queue->written > 0, "nothing has waited");
    return check_place(r);
}

static void a_host_far_ahead_publishes(void **state) {
    (void)state;
    CHECK_OK(ndp_local_world(1, run, &(one){goes_ahead}));
}

/* The first question whether the queue has passed is answered by its error. */
static ndp_status breaks(with_device *r) {
    for (int n = 0; n < 10; n++)
        NDP_TRY(submit(r, n));
    for (int n = 0; n < 5; n++)
        go_on(r->queue);
    r->queue->broken = NDP_EIO;
    WANT(ndp_transport_drain(r->t, r->queue) == NDP_EIO, "no error");
    NDP_TRY(check_place(r));
    return NDP_EIO;
}

static void a_wait_that_fails_publishes(void **state) {
    (void)state;
    CHECK_FAILS(ndp_local_world(1, run, &(one){breaks}), NDP_EIO, "a kernel, at #4 forward x (");
}

/* Rank 1 waits for rank 0 on the host while its device goes on. */
static ndp_queue *_Atomic queue_of_1;

static ndp_status watch_1(const ndp_transport *host) {
    ndp_journal *j = &host->journals[1];
    while (!queue_of_1 || !ndp_journal_read(j).waiting)
        usleep(1000);
    go_on(queue_of_1);
    for (uint32_t polls = ndp_journal_read(j).polls; ndp_journal_read(j).polls - polls < 3;)
        usleep(1000);
    ndp_device_place p = place_of(host, 1);
    WANT(p.waypoint && p.at.instr == 0, "rank 1 waits and does not say where its device is");
    return NDP_OK;
}

static ndp_status meet(ndp_transport *host, void *arg) {
    (void)arg;
    with_device r;
    ndp_comm *c;
    ndp_status st = NDP_OK;
    NDP_TRY(rank_open(&r, host));
    NDP_TRY(ndp_comm_create(host, (ndp_group){0, 1, 2, host->rank}, "both", &c));
    if (host->rank == 0)
        st = watch_1(host);
    else if ((st = submit(&r, 0)) == NDP_OK)
        queue_of_1 = r.queue;
    if (st == NDP_OK)
        st = ndp_barrier(c);
    ndp_comm_destroy(c);
    return rank_close(&r, st);
}

static void a_wait_on_the_host_publishes(void **state) {
    (void)state;
    queue_of_1 = NULL;
    CHECK_OK(ndp_local_world(2, meet, NULL));
}

/* ---- errors ---- */

static ndp_status explains(with_device *r) {
    NDP_TRY(submit(r, 0));
    WANT(ndp_transport_explain_submission(r->t, NDP_FAIL(NDP_ENOTSUP, "too large")) == NDP_ENOTSUP, "the status");
    WANT(strcmp(ndp_error_message(), "too large; the host was submitting #0 forward x") == 0, "%s",
         ndp_error_message());
    for (int n = 1; n < 10; n++)
        NDP_TRY(submit(r, n));
    for (int n = 0; n < 5; n++)
        go_on(r->queue);
    WANT(ndp_transport_explain_submission(r->t, NDP_FAIL(NDP_EIO, "broken")) == NDP_EIO, "the status");
    WANT(strcmp(ndp_error_message(), "broken, at #4 forward x (NDP_GPU_CALLS=1 names the call); the host was "
                                     "submitting #9 forward x") == 0,
         "%s", ndp_error_message());
    NDP_TRY(check_place(r));
    /* what is in words already stays */
    WANT(ndp_transport_explain_submission(r->t, NDP_FAIL(NDP_EIO, "broken")) == NDP_EIO, "the status");
    WANT(strcmp(ndp_error_message(), "broken") == 0, "%s", ndp_error_message());
    return NDP_OK;
}

/* The first of the device ends the run. */
static void an_error_of_a_submission_names_it(void **state) {
    (void)state;
    assert_int_not_equal(ndp_local_world(1, run, &(one){explains}), NDP_OK);
    assert_string_equal(
        ndp_error_message(),
        "rank 0: broken, at #4 forward x (NDP_GPU_CALLS=1 names the call); the host was submitting #9 forward x");
}

/* ---- the time limit ---- */

typedef struct mover {
    ndp_progress_fn fn;
    ndp_queue *queue;
} mover;

/* Between two looks at the device: longer than the rank waits before it looks at the other ranks again. */
static ndp_status move(ndp_progress_fn *fn) {
    usleep(60000);
    go_on(((mover *)fn)->queue);
    return NDP_OK;
}

/* The wait lasts longer than the limit, and the queue goes on all the time; what sees that first is not what compares
 * the time with the limit. */
static ndp_status is_slow(with_device *r) {
    mover m = {.fn.run = move, .queue = r->queue};
    for (int n = 0; n < 25; n++)
        NDP_TRY(submit(r, n));
    ndp_progress_fn_add(r->t, &m.fn);
    r->t->pending_shares++;
    ndp_status st = ndp_transport_drain(r->t, r->queue);
    r->t->pending_shares--;
    ndp_progress_fn_remove(r->t, &m.fn);
    return st;
}

static ndp_status stays(with_device *r) {
    NDP_TRY(submit(r, 0));
    go_on(r->queue);
    NDP_TRY(submit(r, 1));
    return ndp_transport_drain(r->t, r->queue);
}

static void the_limit_is_for_one_place(void **state) {
    (void)state;
    setenv("NDP_COMM_TIMEOUT", "1", 1);
    CHECK_OK(ndp_local_world(1, run, &(one){is_slow}));
    CHECK_FAILS(ndp_local_world(1, run, &(one){stays}), NDP_ECOMM, "is at #0 forward x on its device, for ");
    unsetenv("NDP_COMM_TIMEOUT");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_far_ahead_publishes),   cmocka_unit_test(a_wait_that_fails_publishes),
        cmocka_unit_test(a_wait_on_the_host_publishes), cmocka_unit_test(an_error_of_a_submission_names_it),
        cmocka_unit_test(the_limit_is_for_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
