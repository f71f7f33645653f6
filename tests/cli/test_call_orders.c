/* Calls of a trainer that should not be, generated from the public headers: any two of its functions in any order, on a
 * trainer of own batches and on one of the job's data, and one that a rank does not make. The first are refused with a
 * message or done, and the trainer goes on; of the last the others are told which rank is missing. */
#include "cli/public_calls.h"

#include <stdatomic.h>
#include <time.h>

static declared all[MOST_FUNCTIONS];
static int declarations;

/* Functions of a trainer that is there; those of the whole world are called as they do. */
static const row *row_of_trainer(int i) {
    const char *name = all[i].name;
    bool ends = strcmp(name, "ndp_trainer_create") == 0 || strcmp(name, "ndp_trainer_destroy") == 0;
    return (strncmp(name, "ndp_trainer_", 12) == 0 && !ends) || strcmp(name, "ndp_world_barrier") == 0 ? row_of(name)
                                                                                                       : NULL;
}

/* ---- orders ---- */

/* `has`: what the trainer has of what a call may need. */
static void check_call(calling *it, const row *r, int has, const char *before) {
    it->needs = 0;
    ndp_status st = r->call(it);
    if (it->needs > has && st == NDP_OK)
        fail_msg("%s after %s is done", r->name, before);
    bool refused = st == NDP_EINVAL || st == NDP_ENOTSUP;
    if (st != NDP_OK && (!refused || !ndp_error_message()[0]))
        fail_msg("%s after %s: status %d, %s", r->name, before, st, ndp_error_message());
    release_results(it);
}

/* What is always right, on a trainer of own batches or of data. */
static void check_trainer(calling *it, bool own, const char *first, const char *second) {
    ndp_update_info info = {0};
    if (!own) {
        CHECK_OK(ndp_trainer_step(it->trainer, &it->metrics));
        return;
    }
    CHECK_OK(ndp_trainer_begin(it->loop, NULL));
    CHECK_OK(ndp_trainer_forward_backward(it->loop, &batch, 1, NULL));
    CHECK_OK(ndp_trainer_update(it->loop, &info));
    if (!info.applied || !isfinite(info.loss) || info.tokens != 7)
        fail_msg("after %s and %s an update has loss %g of %lld tokens", first, second, info.loss,
                 (long long)info.tokens);
}

static void check_pairs(calling *it, bool own) {
    for (int i = 0; i < declarations; i++)
        for (int k = 0; k < declarations; k++) {
            const row *first = row_of_trainer(i), *second = row_of_trainer(k);
            if (!first || !second || left_out())
                continue;
            check_call(it, first, 0, "an update");
            check_call(it, second, own && strcmp(first->name, "ndp_trainer_begin") == 0, first->name);
            check_trainer(it, own, first->name, second->name);
        }
}

static ndp_status call_pairs(ndp_world *w, void *arg) {
    calling *it = arg;
    open_trainers(it, w);
    CHECK_OK(ndp_trainer_read(it->trainer, NDP_WEIGHT, 0, it->numbers)); /* what is written */
    it->as_it_is = true;
    ndp_trainer *both[] = {it->trainer, it->loop};
    for (int i = 0; i < 2; i++) {
        it->trainer = it->loop = both[i];
        check_pairs(it, i == 1);
    }
    it->trainer = both[0];
    close_trainers(it);
    return NDP_OK;
}

static void any_two_calls_are_done_or_refused(void **state) {
    calling it = {.null = ""};
    make_values(&it, *state, 1);
    CHECK_OK(ndp_world_run(it.config, call_pairs, &it));
    release_values(&it);
}

/* ---- a call that one rank does not make ---- */

typedef struct missing {
    const row *row;
    calling it[2];
    ndp_status status; /* of the call on rank 0 */
    char message[1024];
    atomic_bool over;
} missing;

/* Rank 1 brings its trainer into the state that the call is for; then NULL is refused before anything is sent. */
static ndp_status call_on_one(ndp_world *w, void *arg) {
    missing *m = arg;
    int rank = ndp_world_rank(w);
    calling *it = &m->it[rank];
    open_trainers(it, w);
    it->null = rank == 0 ? "" : strstr(m->row->name, "world") ? "w" : "t";
    ndp_status st = m->row->call(it);
    if (rank == 0) {
        m->status = st;
        snprintf(m->message, sizeof m->message, "%s", st ? ndp_error_message() : "");
        atomic_store(&m->over, true);
    }
    while (!atomic_load(&m->over))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    release_results(it);
    close_trainers(it);
    return st;
}

static void check_missing(const declared *d, const row *r, const char *folder) {
    missing *m = calloc(1, sizeof *m);
    m->row = r;
    m->it[0].null = m->it[1].null = "";
    make_values(&m->it[0], folder, 2);
    m->it[1] = m->it[0];
    (void)!ndp_world_run(m->it[0].config, call_on_one, m);
    bool named = m->status == NDP_ECOMM && strstr(m->message, "rank 1") && strstr(m->message, "waited 2 s");
    if (d->collective ? !named : m->status != NDP_OK)
        fail_msg("%s on rank 0 alone: status %d, %s", d->name, m->status, m->message);
    release_values(&m->it[0]);
    free(m);
}

static void a_call_that_is_missing_is_named(void **state) {
    setenv("NDP_COMM_TIMEOUT", "2", 1);
    for (int i = 0; i < declarations; i++) {
        const row *r = row_of_trainer(i);
        if (r && !left_out())
            check_missing(&all[i], r, *state);
    }
    unsetenv("NDP_COMM_TIMEOUT");
}

int main(void) {
    declarations = read_headers(all);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_two_calls_are_done_or_refused, make_job, tiny_teardown),
        cmocka_unit_test_setup_teardown(a_call_that_is_missing_is_named, make_job, tiny_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
