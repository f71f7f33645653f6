/* Data of other processes is used only if all of it is sound. The fuzzers fuzz_handshake and fuzz_agree search
 * further. */
#include "check.h"
#include "comm/watch/health.h"
#include "comm/watch/state_query.h"

#include <stdlib.h>

enum { WORLD = 4 };

static ndp_record good(void) {
    return (ndp_record){.group = "shard",
                        .base = 1,
                        .stride = 2,
                        .members = 2,
                        .kind = NDP_WORK_ALL_REDUCE,
                        .type = NDP_F32,
                        .count = 10,
                        .at.what = "layers.3"};
}

#define SPOILED(change)                                                                                                \
    do {                                                                                                               \
        ndp_record r = good();                                                                                         \
        change;                                                                                                        \
        assert_false(ndp_record_is_sound(&r, WORLD));                                                                  \
    } while (0)

static void records(void **state) {
    (void)state;
    ndp_record fine = good();
    assert_true(ndp_record_is_sound(&fine, WORLD));
    SPOILED(memset(r.group, 'x', sizeof r.group));
    SPOILED(memset(r.at.what, 'x', sizeof r.at.what));
    SPOILED(r.kind = NDP_WORK_KINDS);
    SPOILED(r.kind = -1);
    SPOILED(r.type = NDP_DTYPES);
    SPOILED(r.type = -1);
    SPOILED(r.count = -1);
    SPOILED(r.count = INT64_MAX);
    SPOILED(r.members = INT32_MAX);
    SPOILED(r.stride = 3);
    SPOILED(r.base = WORLD);
    ndp_rank_state s = {.known = true, .waiting = true, .blocked_on = 3, .record = fine};
    assert_true(ndp_rank_state_is_sound(&s, WORLD));
    s.blocked_on = WORLD;
    assert_false(ndp_rank_state_is_sound(&s, WORLD));
    s.blocked_on = -1;
    memset(&s.known, 2, 1);
    assert_false(ndp_rank_state_is_sound(&s, WORLD));
}

/* ---- messages, by an MPI that brings one ---- */

static struct {
    int from, tag, left;
    char bytes[sizeof(ndp_failure_notice)];
} message;

static const char *create(int base, int stride, int count, void **out) {
    (void)base, (void)stride, (void)count, (void)out;
    return NULL;
}
static void destroy(void *comm) { (void)comm; }
static const char *send_nothing(void *comm, const void *b, int64_t n, int to, int tag, uint64_t *request) {
    (void)comm, (void)b, (void)n, (void)to, (void)tag;
    *request = 0;
    return NULL;
}
static const char *receive(void *comm, void *buffer, int64_t n, int from, int tag, uint64_t *request) {
    (void)comm, (void)from, (void)tag;
    memcpy(buffer, message.bytes, (size_t)n);
    *request = 0;
    return NULL;
}
static const char *is_done(uint64_t *request, int *done, int64_t *received) {
    (void)received;
    *request = 0;
    *done = 1;
    return NULL;
}
static const char *probe(void *comm, int *there, int *from, int *tag) {
    (void)comm;
    *there = message.left-- > 0;
    if (*there)
        *from = message.from, *tag = message.tag;
    return NULL;
}

/* One message to rank 0; what it makes of it. */
static void check_message(int from, int tag, const void *bytes, size_t n, ndp_status want, const char *says) {
    static const ndp_mpi_api api = {.comm_create = create,
                                    .comm_destroy = destroy,
                                    .send = send_nothing,
                                    .recv = receive,
                                    .test = is_done,
                                    .probe = probe};
    static const int node_of[WORLD] = {0, 1, 2, 3};
    ndp_transport t = {.world = WORLD, .node_ranks = 1};
    size_t health = (ndp_health_bytes(WORLD) + 63) / 64 * 64;
    t.health = aligned_alloc(64, health);
    t.journals = aligned_alloc(64, WORLD * sizeof *t.journals);
    memset(t.health, 0, health);
    memset(t.journals, 0, WORLD * sizeof *t.journals);
    t.health->world = WORLD;
    message.from = from, message.tag = tag, message.left = 1;
    memcpy(message.bytes, bytes, n);
    CHECK_OK(ndp_state_query_create(&api, &t, node_of, &t.state_query));
    ndp_status st = ndp_state_query_serve(t.state_query, NULL);
    if (st == NDP_OK)
        st = ndp_health_check(t.health);
    if (want == NDP_OK)
        assert_int_equal(st, NDP_OK);
    else
        CHECK_FAILS(st, want, says);
    ndp_state_query_destroy(t.state_query, false);
    free(t.health);
    free(t.journals);
}

static void messages(void **state) {
    (void)state;
    enum { REQUEST, REPLY, FAILURE };
    ndp_state_request request = {.about = INT32_MAX};
    ndp_state_reply reply = {.about = 1, .state.record.kind = -1};
    ndp_failure_notice failure = {.rank = 2};
    memset(failure.message, 'y', sizeof failure.message);
    check_message(1, REQUEST, &request, sizeof request, NDP_OK, "");
    check_message(1, REPLY, &reply, sizeof reply, NDP_OK, "");
    reply.state.blocked_on = 77;
    check_message(1, REPLY, &reply, sizeof reply, NDP_ECOMM, "rank 1 sent a damaged reply");
    check_message(3, FAILURE, &failure, sizeof failure, NDP_ECOMM, "rank 2 failed: yyy");
    failure.rank = WORLD;
    check_message(3, FAILURE, &failure, sizeof failure, NDP_ECOMM, "rank 3 sent a damaged failure");
    check_message(1, 3, &request, sizeof request, NDP_ECOMM, "rank 1 sent a damaged message");
    check_message(WORLD, REQUEST, &request, sizeof request, NDP_ECOMM, "rank 4 sent a damaged message");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(records), cmocka_unit_test(messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
