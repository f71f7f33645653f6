/* Ranks of a world that take turns on one thread, for tests: each is a fiber, a wait lets another one run, and a seed
 * shuffles who is next. So nothing depends on how busy the machine is, a wait costs a jump instead of two switches of
 * threads, and an order that fails can be run again. */
#ifndef NDP_BASE_TURNS_H
#define NDP_BASE_TURNS_H

#include "base/status.h"

/* Runs body(args[i]) for all i < n, in turns, until all have returned. Each has its own error, fault points and number
 * of OpenMP threads, which begin as those of a new thread do (no error, none armed, the caller's number). NDP_ENOMEM:
 * no memory for a stack; then none has run. */
ndp_status ndp_turns_run(int n, void (*body)(void *), void *const *args, uint64_t seed);

/* Lets another one of them run, and returns true when this one's turn has come again. False, at once: the caller is not
 * one of several, so that only time, or another thread, can bring what it waits for. */
bool ndp_turn_pass(void);

/* Wait for a moment: a turn, else sched_yield or sleep of so many seconds. */
void ndp_yield(void);
void ndp_nap(double seconds);

#endif
