/* The transports between processes. CTest runs this with several rank counts by `ndparallel launch`, which is shm, and
 * by mpirun with and without shared memory; alone it is a world of one rank, by MPI. A world is joined once by a
 * process, so all tests share one transport.
 *
 * With an argument it plays one failure and prints what each rank was told; CTest looks for the words. */
#include "comm/impl.h"
#include "comm/launched.h"
#include "comm/messages.h"

#include "check.h"
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SKIPPED = 77 };

static ndp_transport *transport;

static bool is_shm(void) { return ndp_launched_on_host(&(int){0}); }
static ndp_status join_world(ndp_transport **out) { return is_shm() ? ndp_transport_shm(out) : ndp_transport_mpi(out); }

static int join(void **state) {
    *state = transport;
    return 0;
}

static int leave(void **state) {
    ndp_transport_destroy(*state);
    return 0;
}

/* The others would wait for a rank whose test failed: that ends the run. */
static void want_ok(ndp_transport *t, ndp_status st) {
    if (st != NDP_OK) {
        print_error("rank %d: %s (%s)\n", ndp_transport_rank(t), ndp_error_message(), ndp_error_trail());
        fflush(stderr);
        ndp_transport_abort(t, ndp_error_message());
    }
    assert_int_equal(st, NDP_OK);
}

static void every_operation(void **state) { want_ok(*state, check_transport(*state, NULL)); }
static void operations_overlap(void **state) { want_ok(*state, check_outstanding(*state, NULL)); }

static void many_communicators(void **state) {
    want_ok(*state, check_many(*state, NULL));
    want_ok(*state, check_many(*state, &(memory_kind){HEAP})); /* peers cannot reach it: copies, or MPI */
}

static void uneven_windows(void **state) { want_ok(*state, check_uneven_windows(*state, NULL)); }

/* Shared memory must be there exactly where it was not switched off. */
static bool wants_shared_memory(void) {
    const char *shm = getenv("NDP_SHM");
    bool one_node = !getenv("NDP_NODE_RANKS") && !getenv("NDP_NODE_OF");
    return is_shm() || (!(shm && strcmp(shm, "off") == 0) && one_node);
}

static void shared_windows(void **state) {
    bool supported;
    want_ok(*state, check_shared_window(*state, &supported));
    assert_int_equal(supported, wants_shared_memory() || ndp_transport_world(*state) == 1);
}

/* Large buffers of the heap, and messages of them, many times: what is staged is used again. */
static void heap_buffers(void **state) { want_ok(*state, check_heap(*state)); }

static void a_rank_joins_once(void **state) {
    ndp_transport *again;
    (void)state;
    if (is_shm())
        CHECK_FAILS(ndp_transport_shm(&again), NDP_EINVAL, "has joined as rank");
}

static void windows_are_read_in_place(void **state) {
    bool wanted = wants_shared_memory();
    if (ndp_transport_world(*state) > 1)
        want_ok(*state, check_in_place(*state, &wanted));
}

static void messages(void **state) {
    want_ok(*state, check_streams(*state, NULL));
    want_ok(*state, check_large_messages(*state, NULL));
    want_ok(*state, check_message_limits(*state, NULL));
}

/* Also in a group that spans nodes. Ranks of a pair are on one node, unless NDP_NODE_OF says otherwise. */
static void neighbours_read_messages_in_memory(void **state) {
    const char *shm = getenv("NDP_SHM");
    if ((!shm || strcmp(shm, "off") != 0) && !getenv("NDP_NODE_OF"))
        want_ok(*state, check_pairs(*state, NULL));
}

static void the_world_is_what_the_launcher_says(void **state) {
    int ranks = 1;
    bool launched = ndp_launched(&ranks);
    assert_int_equal(ndp_transport_world(*state), ranks);
    assert_true(launched || ranks == 1);
    assert_string_equal(ndp_transport_name(*state), is_shm() ? "shm" : "mpi");
}

/* The node of a rank, as the environment says it: NDP_NODE_OF has one digit for each rank. */
static int node_number(int rank) {
    const char *list = getenv("NDP_NODE_OF"), *per_node = getenv("NDP_NODE_RANKS");
    return list ? list[2 * rank] - '0' : per_node ? rank / atoi(per_node) : 0;
}

static void ranks_know_their_node(void **state) {
    enum { MOST = 16 };
    const char *shm = getenv("NDP_SHM");
    int world = ndp_transport_world(*state), rank = ndp_transport_rank(*state), host_of[MOST], here = 0, before = 0;
    assert_in_range(world, 1, MOST);
    for (int r = 0; r < world; r++) {
        for (host_of[r] = 0; node_number(host_of[r]) != node_number(r);)
            host_of[r]++;
        assert_int_equal(ndp_transport_host_of(*state, r), host_of[r]);
        here += node_number(r) == node_number(rank);
        before += node_number(r) == node_number(rank) && r < rank;
    }
    assert_int_equal(ndp_transport_host_ranks(*state), here);
    assert_int_equal(ndp_transport_host_rank(*state), before);
    bool shares = !shm || strcmp(shm, "off") != 0;
    assert_int_equal(ndp_transport_node_ranks(*state), shares ? ndp_node_block(host_of, world) : 1);
}

/* ---- failures ---- */

static ndp_status reduce(ndp_comm *c, int64_t count) {
    float x[2048] = {0};
    ndp_work w;
    NDP_TRY(ndp_all_reduce_begin(c, x, count, NDP_F32, NDP_SUM, &w));
    return ndp_wait(&w);
}

/* Gathers two layers of one size; the chosen rank in another order. */
static ndp_status gather_layers(ndp_comm *c, bool swapped) {
    static const char *const layers[] = {"layers.0", "layers.1"};
    float x[2][16] = {{0}}, y[2][16 * 16];
    ndp_work w[2];
    for (int k = 0; k < 2; k++) {
        int layer = swapped ? 1 - k : k;
        ndp_comm_at(c, layers[layer], 116 + layer, 7);
        NDP_TRY(ndp_all_gather_begin(c, x[layer], y[layer], 16, NDP_F32, &w[k]));
    }
    NDP_TRY(ndp_wait(&w[0]));
    return ndp_wait(&w[1]);
}

/* Once. */
static void give_up(ndp_transport *t) {
    static bool given_up;
    if (given_up)
        return;
    given_up = true;
    printf("rank %d says: %s\n", ndp_transport_rank(t), ndp_error_message());
    fflush(stdout);
    ndp_transport_abort(t, ndp_error_message());
}

/* Two groups of the same ranks; the chosen rank takes them in another order. */
static ndp_status two_groups(ndp_transport *t, ndp_comm *c, bool swapped) {
    ndp_comm *other;
    NDP_TRY(ndp_comm_create(t, world_group(t), "tp", &other));
    ndp_comm_at(swapped ? other : c, "layers.3", 116, -1);
    ndp_status st = reduce(swapped ? other : c, 10);
    if (st == NDP_OK)
        st = reduce(swapped ? c : other, 10);
    if (st != NDP_OK)
        give_up(t);
    ndp_comm_destroy(other);
    return st;
}

static ndp_status another_kind(ndp_comm *c) {
    double x[5] = {0}, y[5];
    ndp_work w;
    ndp_comm_at(c, "block", 9, -1);
    NDP_TRY(ndp_shift_begin(c, x, y, sizeof x, &w));
    return ndp_wait(&w);
}

/* Rank r meets rank r + 1 in group number r first, and then rank r - 1 in number r - 1: each waits for the next, over
 * nodes and inside them. */
static ndp_status go_round(ndp_transport *t) {
    static const char *const names[] = {"north", "east", "south", "west"};
    int rank = ndp_transport_rank(t), n = ndp_transport_world(t);
    ndp_comm *next = NULL, *before = NULL;
    ndp_status st = NDP_OK;
    for (int g = 0; g < n && st == NDP_OK; g++) {
        int low = g == n - 1 ? 0 : g, high = g == n - 1 ? n - 1 : g + 1;
        if (rank == low || rank == high)
            st = ndp_comm_create(t, (ndp_group){low, high - low, 2, rank == high}, names[g % 4],
                                 g == rank ? &next : &before);
    }
    if (st == NDP_OK) {
        ndp_comm_at(next, "round", 40 + rank, -1);
        st = reduce(next, 10);
    }
    if (st == NDP_OK)
        st = reduce(before, 10);
    if (st != NDP_OK)
        give_up(t);
    ndp_comm_destroy(next);
    ndp_comm_destroy(before);
    return st;
}

/* Every rank receives from the next before it sends to the one before. */
static ndp_status receive_first(ndp_transport *t, ndp_comm *c) {
    int rank = ndp_transport_rank(t), n = ndp_transport_world(t);
    double x[5] = {0};
    ndp_work w;
    ndp_comm_at(c, "stage", 60 + rank, -1);
    NDP_TRY(ndp_recv_begin(c, x, sizeof x, (rank + 1) % n, 3, &w));
    NDP_TRY(ndp_wait(&w));
    NDP_TRY(ndp_send_begin(c, x, sizeof x, (rank + n - 1) % n, 3, &w));
    return ndp_wait(&w);
}

enum { LATE = 10 }; /* seconds: a rank that comes so late comes after the limit of 3 that CMakeLists.txt sets */

/* Rank 1 sends 10 bytes after `seconds`, rank 0 receives another number. */
static ndp_status send_message(ndp_transport *t, ndp_comm *c, int64_t received, unsigned seconds) {
    char x[20] = {0};
    ndp_work w;
    int rank = ndp_transport_rank(t);
    if (rank > 1)
        return reduce(c, 10);
    if (rank == 1)
        sleep(seconds);
    ndp_comm_at(c, "acts", 9 - rank, -1);
    NDP_TRY(rank == 1 ? ndp_send_begin(c, x, 10, 0, 3, &w) : ndp_recv_begin(c, x, received, 1, 3, &w));
    NDP_TRY(ndp_wait(&w));
    return reduce(c, 10);
}

static void nap(double seconds) { usleep((useconds_t)(seconds * 1e6)); }

/* No rank waits forever here, but all wait for long, for several communicators in different orders: no rank may take
 * that for a ring. */
static ndp_status dawdle(ndp_transport *t, ndp_comm *c) {
    int rank = ndp_transport_rank(t), n = ndp_transport_world(t);
    ndp_comm *other;
    float x[3][2048] = {{0}};
    double in[8] = {0}, out[8];
    ndp_status st = ndp_comm_create(t, world_group(t), "tp", &other);
    for (int k = 0; k < 4 && st == NDP_OK; k++) {
        ndp_work w[3], to, from;
        nap((k + rank) % n * 0.45);
        NDP_TRY(ndp_all_reduce_begin(c, x[0], 2048, NDP_F32, NDP_SUM, &w[0]));
        NDP_TRY(ndp_all_reduce_begin(other, x[1], 2048, NDP_F32, NDP_SUM, &w[1]));
        NDP_TRY(ndp_recv_begin(c, out, sizeof out, (rank + 1) % n, k, &from));
        nap((k + 2 * rank) % n * 0.3);
        NDP_TRY(ndp_send_begin(c, in, sizeof in, (rank + n - 1) % n, k, &to));
        NDP_TRY(ndp_wait(&w[rank % 2]));
        NDP_TRY(ndp_wait(rank % 2 ? &from : &w[1 - rank % 2]));
        NDP_TRY(ndp_wait(rank % 2 ? &w[1 - rank % 2] : &from));
        st = ndp_wait(&to);
    }
    ndp_comm_destroy(other);
    return st;
}

/* The chosen rank has no room for a copy that its peers read, and goes on with another operation. */
static ndp_status begin_nothing(ndp_comm *c, bool chosen) {
    enum { COUNT = 1 << 18 };
    float *x = calloc(COUNT, sizeof *x);
    ndp_work w;
    if (chosen)
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, RLIM_INFINITY});
    ndp_status st = ndp_all_reduce_begin(c, x, COUNT, NDP_F32, NDP_SUM, &w);
    if (st == NDP_OK)
        st = ndp_wait(&w);
    else
        st = reduce(c, 10);
    free(x);
    return st;
}

static ndp_status play(ndp_transport *t, ndp_comm *c, const char *what) {
    bool chosen = ndp_transport_rank(t) == 1;
    ndp_comm_at(c, "layers.2", 115, -1);
    NDP_TRY(reduce(c, 10));
    if (strcmp(what, "order") == 0)
        return gather_layers(c, chosen);
    if (strcmp(what, "groups") == 0)
        return two_groups(t, c, chosen);
    if (strcmp(what, "round") == 0)
        return go_round(t);
    if (strcmp(what, "receive") == 0)
        return receive_first(t, c);
    if (strcmp(what, "short") == 0 || strcmp(what, "long") == 0)
        return send_message(t, c, strcmp(what, "short") == 0 ? 11 : 9, 0);
    if (strcmp(what, "mute") == 0)
        return send_message(t, c, 10, LATE);
    if (strcmp(what, "dawdle") == 0)
        return dawdle(t, c);
    if (strcmp(what, "room") == 0)
        return begin_nothing(c, chosen);
    if (strcmp(what, "kind") == 0 && chosen)
        return another_kind(c);
    if (strcmp(what, "fail") == 0 && chosen)
        return NDP_FAIL(NDP_EFORMAT, "the file ends early");
    if (strcmp(what, "leave") == 0 && chosen)
        return NDP_OK;
    if (strcmp(what, "late") == 0 && chosen)
        sleep(LATE);
    if (strcmp(what, "stop") == 0 && chosen)
        raise(SIGSTOP);
    if (strcmp(what, "die") == 0 && chosen)
        _exit(1);
    if (strcmp(what, "kill") == 0 && chosen)
        raise(SIGKILL);
    return reduce(c, strcmp(what, "differ") == 0 && chosen ? 100 : 10);
}

static int play_failure(const char *what) {
    ndp_transport *t;
    ndp_comm *c = NULL;
    ndp_status st = join_world(&t);
    if (st != NDP_OK) {
        printf("%s\n", ndp_error_message());
        return 1;
    }
    st = ndp_comm_create(t, world_group(t), "shard", &c);
    if (st == NDP_OK)
        st = play(t, c, what);
    if (st != NDP_OK)
        give_up(t);
    ndp_comm_destroy(c);
    ndp_transport_destroy(t);
    if (st == NDP_OK)
        printf("all is well\n");
    return st == NDP_OK ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc > 1)
        return play_failure(argv[1]);
    ndp_status st = join_world(&transport);
    if (st != NDP_OK)
        printf("%s%s\n", st == NDP_ENOTSUP ? "skipped: " : "", ndp_error_message());
    if (st != NDP_OK)
        return st == NDP_ENOTSUP && !ndp_launched(&(int){0}) ? SKIPPED : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_what_the_launcher_says),
        cmocka_unit_test(ranks_know_their_node),
        cmocka_unit_test(every_operation),
        cmocka_unit_test(shared_windows),
        cmocka_unit_test(operations_overlap),
        cmocka_unit_test(many_communicators),
        cmocka_unit_test(uneven_windows),
        cmocka_unit_test(windows_are_read_in_place),
        cmocka_unit_test(messages),
        cmocka_unit_test(neighbours_read_messages_in_memory),
        cmocka_unit_test(heap_buffers),
        cmocka_unit_test(a_rank_joins_once),
    };
    return cmocka_run_group_tests(tests, join, leave);
}
