/* libFuzzer: data that ranks send each other, as another build or damaged memory might write it. The first byte
 * chooses: state requests, replies and failure notices of other nodes with a journal in shared memory, on which the
 * watchdog then runs; forming a crew that builds a token cache; records as text. */
#include "base/text.h"
#include "comm/watch/health.h"
#include "comm/watch/state_query.h"
#include "comm/watch/watchdog.h"
#include "data/cache/crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORLD = 4 };

/* What is left of the input; what lies beyond is zeros. */
typedef struct input {
    const uint8_t *data;
    size_t n;
    int gathers;
} input;

static input *the_input; /* MPI's table has no place for it */

static void check(bool fine) {
    if (!fine)
        __builtin_trap();
}

static void take(input *in, void *out, size_t n) {
    size_t have = n < in->n ? n : in->n;
    memset(out, 0, n);
    memcpy(out, in->data, have);
    in->data += have;
    in->n -= have;
}

static uint8_t take_byte(input *in) {
    uint8_t byte;
    take(in, &byte, 1);
    return byte;
}

/* ---- state queries ---- */

static const char *comm_create(int base, int stride, int count, void **out) {
    (void)base, (void)stride, (void)count;
    *out = NULL;
    return NULL;
}

static void comm_destroy(void *comm) { (void)comm; }

static const char *send_bytes(void *comm, const void *buffer, int64_t bytes, int to, int tag, uint64_t *request) {
    (void)comm, (void)tag;
    check(to >= 0 && to < WORLD);
    free(memcpy(malloc((size_t)bytes), buffer, (size_t)bytes)); /* all of it can be read */
    *request = 0;
    return NULL;
}

static const char *recv_bytes(void *comm, void *buffer, int64_t bytes, int from, int tag, uint64_t *request) {
    (void)comm, (void)from, (void)tag;
    take(the_input, buffer, (size_t)bytes);
    if (bytes == sizeof(ndp_state_reply))
        ((ndp_state_reply *)buffer)->wait = 1; /* of the present wait: others are dropped */
    *request = 0;
    return NULL;
}

static const char *test(uint64_t *request, int *done, int64_t *received) {
    (void)received;
    *request = 0;
    *done = 1;
    return NULL;
}

static const char *probe(void *comm, int *there, int *from, int *tag) {
    (void)comm;
    uint8_t byte = take_byte(the_input);
    *there = the_input->n > 0;
    if (*there) {
        *from = byte % 8 - 1;
        *tag = byte / 8 % 8 - 1;
    }
    return NULL;
}

static const ndp_mpi_api api = {.comm_create = comm_create,
                                .comm_destroy = comm_destroy,
                                .send = send_bytes,
                                .recv = recv_bytes,
                                .test = test,
                                .probe = probe};

/* Rank 1 shares this node's memory, 2 and 3 are remote. */
static void query(input *in, ndp_transport *t, ndp_comm *c) {
    static const int node_of[WORLD] = {0, 0, 2, 3};
    const ndp_expected_op expected = {.base = 0, .comm = 1, .sequence = 1, .to = -1};
    ndp_work w = {.comm = c, .count = 10, .kind = NDP_WORK_ALL_REDUCE, .type = NDP_F32};
    ndp_watchdog watchdog = {0};
    check(ndp_state_query_create(&api, t, node_of, &t->state_query) == NDP_OK);
    ndp_journal_begin(&t->journals[0], &w);
    ndp_journal_wait_begin(&t->journals[0], &w, -1);
    ndp_journal *local = &t->journals[1];
    take(in, &local->polls, take_byte(in) % 2 * (sizeof *local - offsetof(ndp_journal, polls)) / 16);
    ndp_status st = ndp_state_query_serve(t->state_query, &expected);
    for (int k = 0; k < 4 && st == NDP_OK; k++) {
        (void)!ndp_watchdog_find_missing(&watchdog, &expected, &w, 1e9 + k);
        (void)!ndp_state_query_send(t->state_query, 2 + k % 2);
        st = ndp_state_query_serve(t->state_query, &expected);
    }
    watchdog.next = 0;
    (void)!ndp_watchdog_find_cycle(&watchdog, t, 1e9);
    (void)!ndp_watchdog_timeout(&w, take_byte(in) % 5 - 1);
    (void)!ndp_health_check(t->health);
    ndp_state_query_destroy(t->state_query, false);
}

/* ---- crews ---- */

static ndp_status agree_team(void *user, ndp_status mine) {
    input *in = user;
    return mine != NDP_OK ? mine : in->gathers > 8 ? NDP_FAIL(NDP_ECOMM, "another rank failed") : NDP_OK;
}

static ndp_status gather_team(void *user, const void *mine, void *all, int64_t bytes) {
    input *in = user;
    in->gathers++;
    take(in, all, (size_t)bytes * WORLD);
    memcpy((char *)all + (in->gathers % 3 == 0 ? 0 : bytes), mine, (size_t)bytes);
    return in->gathers > 8 ? NDP_FAIL(NDP_ECOMM, "another rank failed") : NDP_OK;
}

static ndp_status otherwise(void *user, char name[NDP_CREW_NAME]) {
    (void)user;
    snprintf(name, NDP_CREW_NAME, "there.tokens");
    return NDP_OK;
}

static void form_crew(input *in) {
    char folder[] = "/dev/shm/ndp-fuzz-XXXXXX";
    const ndp_team team = {1, WORLD, agree_team, gather_team, in};
    ndp_crew c;
    check(mkdtemp(folder) != NULL);
    if (ndp_crew_form(&team, folder, otherwise, NULL, &c) == NDP_OK) {
        check(c.rank >= 0 && c.rank < WORLD && c.size > 0 && c.size <= WORLD);
        check(!c.work || !strncmp(c.work, folder, strlen(folder)));
        ndp_crew_dissolve(&c);
    }
    check(ndp_folder_remove(folder) == NDP_OK);
}

/* ---- records ---- */

static void compare(input *in) {
    ndp_record a, b;
    char text[160];
    take(in, &a, sizeof a);
    take(in, &b, sizeof b);
    if (!ndp_record_is_sound(&a, WORLD) || !ndp_record_is_sound(&b, WORLD))
        return;
    size_t size = 40 + take_byte(in) % 120u;
    char *exact = malloc(size); /* so that writing beyond is seen */
    check(strlen(ndp_record_text(&a, exact, size)) < size &&
          strlen(ndp_record_text(&b, text, sizeof text)) < sizeof text);
    check(ndp_record_matches(&a, &a) && ndp_record_matches(&a, &b) == ndp_record_matches(&b, &a));
    free(exact);
}

/* ---- the whole ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size, 0};
    uint8_t what = take_byte(&in) % 16;
    ndp_transport t = {.rank = 0, .world = WORLD, .node_ranks = 2, .timeout = 1};
    ndp_comm c;
    size_t health = (ndp_health_bytes(WORLD) + 63) / 64 * 64;
    the_input = &in;
    t.health = aligned_alloc(64, health);
    t.journals = aligned_alloc(64, WORLD * sizeof *t.journals);
    memset(t.health, 0, health);
    memset(t.journals, 0, WORLD * sizeof *t.journals);
    t.health->world = WORLD;
    ndp_comm_init(&c, &t, (ndp_group){.base = 0, .stride = 1, .count = WORLD, .rank = what % 2}, "fuzz");
    if (what < 8)
        query(&in, &t, &c);
    else if (what < 15)
        compare(&in);
    else
        form_crew(&in);
    free(t.health);
    free(t.journals);
    return 0;
}
