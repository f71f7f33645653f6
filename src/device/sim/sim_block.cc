/* The scheduler of `sim`. A block's threads are fibers: each runs until it waits for its warp or its block, and the
 * next one continues. A thread that never waits leaves its stack to the next, so kernels without barriers cost a call a
 * thread. */
#include "device/sim/sim_block.hpp"
#include "base/fiber.h"
#include "device/sim/sim_race.hpp"

#include <cstdio>
#include <memory>
#include <sanitizer/asan_interface.h>
#include <vector>

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;
enum { WARP = 32, STACK_BYTES = 128 << 10 };
/* What kernels see as their dynamic shared memory. */
extern thread_local unsigned char ndp_shared_bytes[];
alignas(128) thread_local unsigned char ndp_shared_bytes[NDP_SIM_MOST_SHARED];

/* ---- threads ---- */

namespace {

struct Stack {
    char *base = ndp_fiber_stack_map(STACK_BYTES);
    ~Stack() { ndp_fiber_stack_unmap(base, STACK_BYTES); }
    Stack() = default;
    Stack(const Stack &) = delete;
};

enum State { READY, AT_WARP, AT_BLOCK, DONE };
enum { EVERYONE = -1 };

struct Thread {
    State state;
    bool begun;
    ndp_fiber fiber;
    Stack *stack;
    /* AT_WARP: the lanes it waits for, and what they exchange. */
    unsigned mask;
    const char *what; /* where it waits */
    uint64_t mine, got;
    int from; /* the lane whose value it gets; EVERYONE: a bit of each, whether the value is not 0 */
};

/* The block that this thread of the host executes. */
struct Block {
    const std::function<void()> *body;
    int n, at; /* threads; the one that runs */
    std::vector<Thread> threads;
    std::vector<std::unique_ptr<Stack>> stacks;
    std::vector<Stack *> unused;
    ndp_fiber scheduler;
};
thread_local Block *block; /* a pointer: reaching it checks no constructor */

/* A fiber begins here. It is not resumed after the switch: the next thread that gets the stack begins anew. */
void run_thread() {
    ndp_fiber_entered();
    Block *b = block;
    (*b->body)();
    Thread *t = &b->threads[(size_t)b->at];
    t->state = DONE;
    b->unused.push_back(t->stack);
    ndp_fiber_switch(&t->fiber, &b->scheduler, true);
}

void set_index(int i) {
    unsigned t = (unsigned)i, x = blockDim.x, y = blockDim.y;
    threadIdx = {t % x, t / x % y, t / x / y};
}

void resume(Block *b, int i) {
    Thread *t = &b->threads[(size_t)i];
    if (!t->begun) {
        if (b->unused.empty()) {
            b->stacks.push_back(std::make_unique<Stack>());
            b->unused.push_back(b->stacks.back().get());
        }
        t->stack = b->unused.back();
        b->unused.pop_back();
        ndp_fiber_init(&t->fiber, t->stack->base, STACK_BYTES, run_thread);
        t->begun = true;
    }
    b->at = i;
    set_index(i);
    if (ndp_sim_race_thread)
        ndp_sim_race_thread(i);
    ndp_fiber_switch(&b->scheduler, &t->fiber, false);
}

/* Leaves the fiber until the scheduler resumes it. */
Thread *wait_in(State state, unsigned mask, const char *what) {
    Block *b = block;
    Thread *t = &b->threads[(size_t)b->at];
    t->state = state, t->mask = mask, t->what = what;
    ndp_fiber_switch(&t->fiber, &b->scheduler, false);
    return t;
}

/* A bit of each lane that met. */
uint64_t ballot(const Thread *warp, unsigned mask) {
    uint64_t bits = 0;
    for (int i = 0; i < WARP; i++)
        bits |= mask >> i & 1 && warp[i].mine ? 1ull << i : 0;
    return bits;
}

/* Gives the lanes of `mask`, which met, what they get. What a lane outside of it would give is undefined: a NaN. */
void exchange(Thread *warp, unsigned mask) {
    uint64_t bits = ballot(warp, mask);
    for (unsigned left = mask; left; left &= left - 1) {
        Thread *t = &warp[__builtin_ctz(left)];
        t->got = t->from == EVERYONE ? bits : mask >> t->from & 1 ? warp[t->from].mine : 0x7ff7deadfff7deadull;
        t->state = READY;
    }
}

/* Releases the lanes of a warp that have all met. */
bool release_warp(Thread *warp, int lanes) {
    bool released = false;
    for (int i = 0; i < lanes; i++) {
        const Thread *t = &warp[i];
        if (t->state != AT_WARP)
            continue;
        unsigned there = 0;
        for (int j = 0; j < lanes; j++)
            there |= warp[j].state == AT_WARP && warp[j].mask == t->mask && warp[j].what == t->what ? 1u << j : 0;
        if (there != t->mask)
            continue;
        released = true;
        if (ndp_sim_race_warp && strcmp(t->what, "__syncwarp") == 0)
            ndp_sim_race_warp((int)(warp - block->threads.data()), there);
        exchange(warp, there);
    }
    return released;
}

void run_warp(Block *b, int first, int lanes, bool down) {
    Thread *warp = &b->threads[(size_t)first];
    do {
        for (int i = 0; i < lanes; i++) {
            int lane = down ? lanes - 1 - i : i;
            if (warp[lane].state == READY)
                resume(b, first + lane);
        }
    } while (release_warp(warp, lanes));
}

/* Whether `t`, thread i, waits for thread j, which does not come. */
bool waits_in_vain(const Block *b, const Thread *t, int i, int j) {
    const Thread *o = &b->threads[(size_t)j];
    if (t->state == AT_BLOCK)
        return o->state != AT_BLOCK;
    return i / WARP == j / WARP && t->mask >> j % WARP & 1 &&
           (o->state != AT_WARP || o->mask != t->mask || o->what != t->what);
}

/* What blocks this block: a thread of a kind that waits, where, and for which one. "": no thread of this kind waits. */
std::string blocked(const Block *b, State kind) {
    for (int i = 0; i < b->n; i++)
        for (int j = 0; b->threads[(size_t)i].state == kind && j < b->n; j++) {
            const Thread *t = &b->threads[(size_t)i], *o = &b->threads[(size_t)j];
            if (!waits_in_vain(b, t, i, j))
                continue;
            char text[256];
            snprintf(text, sizeof text, "block (%u,%u,%u): thread %d waits in %s for thread %d, which %s%s", blockIdx.x,
                     blockIdx.y, blockIdx.z, i, t->what, j, o->state == DONE ? "has left" : "waits in ",
                     o->state == DONE ? "" : o->what);
            return text;
        }
    return "";
}

/* All have left, or all wait for the block. Otherwise it returns who blocks whom; a warp first, since a block may wait
 * for it. */
std::string end_of_round(Block *b, bool *over) {
    int done = 0, barrier = 0;
    for (const Thread &t : b->threads)
        done += t.state == DONE, barrier += t.state == AT_BLOCK;
    *over = done == b->n;
    if (*over)
        return "";
    if (barrier == b->n) {
        for (Thread &t : b->threads)
            t.state = READY;
        if (ndp_sim_race_barrier)
            ndp_sim_race_barrier();
        return "";
    }
    std::string who = blocked(b, AT_WARP);
    if (who.empty())
        who = blocked(b, AT_BLOCK);
    return !who.empty() ? who : "a lane waits with a mask that leaves it out";
}

std::string run_block(Block *b, size_t shared, bool down) {
    int warps = (b->n + WARP - 1) / WARP;
    for (Thread &t : b->threads)
        t = Thread{};
    memset(ndp_shared_bytes, 0xff, shared); /* NaN: what is read before it is written shows */
    ndp_sim_tensor_begin();
    for (bool over = false; !over;) {
        for (int w = 0; w < warps; w++) {
            int first = (down ? warps - 1 - w : w) * WARP;
            run_warp(b, first, b->n - first < WARP ? b->n - first : WARP, down);
        }
        std::string wrong = end_of_round(b, &over);
        if (!wrong.empty())
            return wrong;
    }
    return "";
}

} // namespace

static std::string run_grid(const cudaLaunchConfig_t &c, const std::function<void()> &body, bool down) {
    static thread_local Block own;
    Block *b = block = &own;
    size_t blocks = (size_t)c.gridDim.x * c.gridDim.y * c.gridDim.z, n = c.blockDim.x * c.blockDim.y * c.blockDim.z;
    gridDim = c.gridDim, blockDim = c.blockDim;
    ASAN_UNPOISON_MEMORY_REGION(ndp_shared_bytes, c.dynamicSmemBytes);
    ASAN_POISON_MEMORY_REGION(ndp_shared_bytes + c.dynamicSmemBytes, NDP_SIM_MOST_SHARED - c.dynamicSmemBytes);
    b->body = &body, b->n = (int)n;
    b->threads.resize(n);
    for (size_t i = 0; i < blocks; i++) {
        unsigned k = (unsigned)(down ? blocks - 1 - i : i);
        blockIdx = {k % gridDim.x, k / gridDim.x % gridDim.y, k / gridDim.x / gridDim.y};
        if (ndp_sim_race_block)
            ndp_sim_race_block(k);
        std::string wrong = run_block(b, c.dynamicSmemBytes, down);
        if (!wrong.empty()) {
            b->unused.clear(), b->stacks.clear(); /* threads that never end are still on some */
            return wrong;
        }
    }
    return "";
}

std::string ndp_sim_run(const cudaLaunchConfig_t &c, const std::function<void()> &body, bool down) {
    if (!ndp_sim_race_launch)
        return run_grid(c, body, down);
    ndp_sim_race_launch();
    std::string wrong = run_grid(c, body, down), race = ndp_sim_race_end();
    return wrong.empty() ? race : wrong;
}

int ndp_sim_lane(void) { return block->at % WARP; }
void ndp_sim_sync_block(void) { wait_in(AT_BLOCK, 0, "__syncthreads"); }

uint64_t ndp_sim_exchange(unsigned mask, uint64_t mine, int from, const char *what) {
    Block *b = block;
    int first = b->at / WARP * WARP, lanes = b->n - first < WARP ? b->n - first : WARP;
    Thread *t = &b->threads[(size_t)b->at];
    t->mine = mine, t->from = from;
    /* Lanes that a block does not have are not waited for. */
    return wait_in(AT_WARP, lanes == WARP ? mask : mask & ((1u << lanes) - 1), what)->got;
}
void ndp_sim_sync_warp(unsigned mask, const char *what) { ndp_sim_exchange(mask, 0, EVERYONE, what); }
unsigned ndp_sim_ballot(unsigned mask, bool predicate) {
    return (unsigned)ndp_sim_exchange(mask, predicate, EVERYONE, "__ballot_sync");
}
