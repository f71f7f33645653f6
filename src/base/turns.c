/* A switch takes along what else is a thread's own: its error, its fault points and OpenMP's number of threads. */
#include "base/turns.h"
#include "base/fault.h"
#include "base/fiber.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { STACK_BYTES = 8 << 20 };

typedef struct turn {
    ndp_fiber fiber;
    char *stack;
    void *arg;
    ndp_error_state error;
    ndp_faults faults;
    int threads;
} turn;

typedef struct turns {
    void (*body)(void *);
    uint64_t chance;
    turn caller;
    int n, alive;
    turn **ready; /* [alive], in any order; the first is the one that runs */
    turn turn[];
} turns;

/* The world whose rank this thread runs; NULL: none. */
static _Thread_local turns *running;

static void jump(turn *from, turn *to, bool last) {
    from->error = ndp_error_swap(to->error);
    from->faults = ndp_faults_swap(to->faults);
    from->threads = omp_get_max_threads();
    if (to->threads != from->threads)
        omp_set_num_threads(to->threads);
    ndp_fiber_switch(&from->fiber, &to->fiber, last);
}

/* xorshift64. */
static uint64_t draw(uint64_t *state) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state >> 11;
}

static turn *make_first(turns *t, int k) {
    turn *next = t->ready[k];
    t->ready[k] = t->ready[0];
    return t->ready[0] = next;
}

static void begin(void) {
    ndp_fiber_entered();
    turns *t = running;
    turn *self = t->ready[0];
    t->body(self->arg);
    ndp_error_forget();
    t->ready[0] = t->ready[--t->alive];
    jump(self, t->alive ? make_first(t, (int)(draw(&t->chance) % (uint64_t)t->alive)) : &t->caller, true);
}

static void stacks_unmap(turns *t) {
    for (int i = 0; i < t->n; i++)
        if (t->turn[i].stack)
            ndp_fiber_stack_unmap(t->turn[i].stack, STACK_BYTES);
}

static ndp_status stacks_map(turns *t, void *const *args) {
    for (int i = 0; i < t->n; i++) {
        turn *of = t->ready[i] = &t->turn[i];
        *of = (turn){.stack = ndp_fiber_stack_map(STACK_BYTES), .arg = args[i], .threads = omp_get_max_threads()};
        NDP_CHECK_MEMORY(of->stack, "for the stack of rank %d of %d", i, t->n);
        ndp_fiber_init(&of->fiber, of->stack, STACK_BYTES, begin);
    }
    return NDP_OK;
}

ndp_status ndp_turns_run(int n, void (*body)(void *), void *const *args, uint64_t seed) {
    turns *t = calloc(1, sizeof *t + (size_t)n * sizeof t->turn[0]), *outer = running;
    turn **ready = malloc((size_t)n * sizeof(turn *));
    ndp_status st = NDP_MEMORY(t && ready, "for %d ranks that take turns", n);
    if (st == NDP_OK) {
        *t = (turns){.body = body, .chance = (seed + 1) * 0x9E3779B97F4A7C15u, .n = n, .alive = n, .ready = ready};
        st = stacks_map(t, args);
    }
    if (st == NDP_OK) {
        running = t;
        jump(&t->caller, make_first(t, (int)(draw(&t->chance) % (uint64_t)n)), false);
        running = outer;
    }
    if (t)
        stacks_unmap(t);
    free(ready);
    free(t);
    return st;
}

bool ndp_turn_pass(void) {
    turns *t = running;
    if (!t || t->alive < 2)
        return false;
    turn *self = t->ready[0];
    jump(self, make_first(t, 1 + (int)(draw(&t->chance) % (uint64_t)(t->alive - 1))), false);
    return true;
}

void ndp_yield(void) {
    if (!ndp_turn_pass())
        sched_yield();
}

void ndp_nap(double seconds) {
    if (!ndp_turn_pass())
        nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}
