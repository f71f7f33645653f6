/* What is seen of a rank's process: a child of this one that is stopped, goes on, ends. The times are the test's own.
 */
#include "comm/watch/neighbour.h"

#include "check.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t begin(void) {
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    return child;
}

static void end(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* Sends it, and waits until the kernel has done what it asks for. */
static void send(pid_t child, int number) {
    siginfo_t info;
    kill(child, number);
    waitid(P_PID, (id_t)child, &info,
           (number == SIGCONT ? WCONTINUED : WSTOPPED) | (number == SIGKILL ? WEXITED : 0) | WNOWAIT);
}

static void a_stop_is_told_once_and_ends_it_after_the_limit(void **state) {
    (void)state;
    ndp_neighbour n = {.process = begin()};
    double now = 100, limit = 10;
    assert_int_equal(ndp_neighbour_look(&n, now, limit), NDP_NEIGHBOUR_SAME);
    send(n.process, SIGSTOP);
    assert_int_equal(ndp_neighbour_look(&n, now += 0.2, limit), NDP_NEIGHBOUR_SAME); /* a debugger may be attaching */
    assert_int_equal(ndp_neighbour_look(&n, now += 0.5, limit), NDP_NEIGHBOUR_STOPPED);
    for (int i = 0; i < 9; i++)
        assert_int_equal(ndp_neighbour_look(&n, now += 1, limit), NDP_NEIGHBOUR_SAME);
    assert_int_equal(ndp_neighbour_look(&n, now += 1, limit), NDP_NEIGHBOUR_STOPPED_LONG);
    end(n.process);
}

static void a_rank_that_goes_on_begins_anew(void **state) {
    (void)state;
    ndp_neighbour n = {.process = begin()};
    double now = 100, limit = 3;
    for (int turn = 0; turn < 3; turn++) {
        send(n.process, SIGSTOP);
        assert_int_equal(ndp_neighbour_look(&n, now += 1, limit), NDP_NEIGHBOUR_SAME);
        assert_int_equal(ndp_neighbour_look(&n, now += 2, limit), NDP_NEIGHBOUR_STOPPED);
        send(n.process, SIGCONT);
        assert_int_equal(ndp_neighbour_look(&n, now += 1, limit), NDP_NEIGHBOUR_GOES_ON);
        assert_int_equal(ndp_neighbour_look(&n, now += 1, limit), NDP_NEIGHBOUR_SAME);
    }
    end(n.process);
}

/* A batch system suspends all of them, for as long as it likes. */
static void what_nobody_saw_does_not_count(void **state) {
    (void)state;
    ndp_neighbour n = {.process = begin()};
    double now = 100, limit = 10;
    send(n.process, SIGSTOP);
    assert_int_equal(ndp_neighbour_look(&n, now, limit), NDP_NEIGHBOUR_SAME);
    assert_int_equal(ndp_neighbour_look(&n, now += 5000, limit), NDP_NEIGHBOUR_SAME);
    assert_int_equal(ndp_neighbour_look(&n, now += 1, limit), NDP_NEIGHBOUR_STOPPED);
    end(n.process);
}

static void an_end_is_seen_whatever_became_of_the_number(void **state) {
    (void)state;
    ndp_process self;
    ndp_neighbour n = {.process = begin()};
    assert_int_equal(ndp_neighbour_look(&n, 100, 10), NDP_NEIGHBOUR_SAME);
    send(n.process, SIGKILL); /* it is a zombie */
    assert_int_equal(ndp_neighbour_look(&n, 101, 10), NDP_NEIGHBOUR_ENDED);
    waitpid(n.process, NULL, 0);
    assert_int_equal(ndp_neighbour_look(&n, 102, 10), NDP_NEIGHBOUR_ENDED);
    assert_true(ndp_process_read(getpid(), &self));
    ndp_neighbour given_again = {.process = getpid(), .started = self.started - 1};
    assert_int_equal(ndp_neighbour_look(&given_again, 100, 10), NDP_NEIGHBOUR_ENDED);
    assert_true(ndp_processes_are_shown());
}

/* It has a hundredth of a core, or less. */
static void a_slow_rank_is_not_named(void **state) {
    (void)state;
    ndp_neighbour n = {.process = begin()};
    for (double now = 100; now < 5000; now += 3)
        assert_int_equal(ndp_neighbour_look(&n, now, 10), NDP_NEIGHBOUR_SAME);
    end(n.process);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_is_told_once_and_ends_it_after_the_limit),
        cmocka_unit_test(a_rank_that_goes_on_begins_anew), cmocka_unit_test(what_nobody_saw_does_not_count),
        cmocka_unit_test(an_end_is_seen_whatever_became_of_the_number), cmocka_unit_test(a_slow_rank_is_not_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
