/* The scheduler of `sim`. A block's threads are fibers: each runs until it waits for its warp or its block, and the
 * next one continues. A thread that never waits leaves its stack to the next, so kernels without barriers cost a call a
 * thread. */
#include "device/sim/sim_block.hpp"

#include <cstdio>
#include <memory>
#include <sys/mman.h>
#include <vector>

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;
/* What kernels see as their dynamic shared memory; as much as a block of an H100 can have. */
enum { SHARED_BYTES = 227 << 10, STACK_BYTES = 128 << 10, WARP = 32 };
extern thread_local unsigned char ndp_shared_bytes[];
alignas(128) thread_local unsigned char ndp_shared_bytes[SHARED_BYTES];

/* ---- fibers ---- */

/* Saves this stack in *from and continues on `to`. */
extern "C" void ndp_sim_switch(void **from, void *to);
#ifdef __x86_64__
asm(".text\n.hidden ndp_sim_switch\n.globl ndp_sim_switch\n.type ndp_sim_switch,@function\nndp_sim_switch:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
    ".size ndp_sim_switch,.-ndp_sim_switch\n");
#else
#error "sim: a switch of stacks for this processor is missing"
#endif

namespace {

struct Stack {
    char *base;
    Stack()
        : base((char *)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            -1, 0)) {}
    ~Stack() { munmap(base, STACK_BYTES); }
    Stack(const Stack &) = delete;
};

enum State { READY, AT_WARP, AT_BLOCK, DONE };

struct Thread {
    State state;
    void *sp; /* NULL: not begun */
    Stack *stack;
    unsigned mask;      /* AT_WARP: the lanes it waits for */
    const char *what;   /* where it waits */
    unsigned exchanges; /* its next exchange uses slot exchanges % 2 */
};

/* The block that this thread of the host executes. */
struct Block {
    const std::function<void()> *body;
    int n, at; /* threads; the one that runs */
    std::vector<Thread> threads;
    std::vector<std::unique_ptr<Stack>> stacks;
    std::vector<Stack *> unused;
    std::vector<uint64_t> values[2]; /* published in exchanges, by thread */
    void *scheduler;                 /* its stack while a fiber runs */
};
thread_local Block block;

/* A fiber begins here. It is not resumed after the switch: the next thread that gets the stack begins anew. */
void fiber() {
    Block *b = &block;
    (*b->body)();
    Thread *t = &b->threads[(size_t)b->at];
    t->state = DONE;
    b->unused.push_back(t->stack);
    ndp_sim_switch(&t->sp, b->scheduler);
}

void *begin_on(Stack *s) {
    /* The switch pops six registers and returns to `fiber`, whose stack is then aligned as after a call: 8 bytes below
     * a multiple of 16. */
    void **top = (void **)(s->base + STACK_BYTES) - 1;
    *--top = (void *)fiber;
    return top - 6;
}

void set_index(int i) {
    unsigned t = (unsigned)i, x = blockDim.x, y = blockDim.y;
    threadIdx = {t % x, t / x % y, t / x / y};
}

void resume(Block *b, int i) {
    Thread *t = &b->threads[(size_t)i];
    if (!t->sp) {
        if (b->unused.empty()) {
            b->stacks.push_back(std::make_unique<Stack>());
            b->unused.push_back(b->stacks.back().get());
        }
        t->stack = b->unused.back();
        b->unused.pop_back();
        t->sp = begin_on(t->stack);
    }
    b->at = i;
    set_index(i);
    ndp_sim_switch(&b->scheduler, t->sp);
}

/* Leaves the fiber until the scheduler resumes it. */
void wait_in(State state, unsigned mask, const char *what) {
    Block *b = &block;
    Thread *t = &b->threads[(size_t)b->at];
    t->state = state, t->mask = mask, t->what = what;
    ndp_sim_switch(&t->sp, b->scheduler);
}

std::string place(int i, const char *what) {
    char text[160];
    snprintf(text, sizeof text, "block (%u,%u,%u) thread %d: %s", blockIdx.x, blockIdx.y, blockIdx.z, i, what);
    return text;
}

/* Releases the lanes of a warp that have all met. */
bool release_warp(Block *b, int first, int lanes) {
    bool released = false;
    for (int i = 0; i < lanes; i++) {
        Thread *t = &b->threads[(size_t)(first + i)];
        if (t->state != AT_WARP)
            continue;
        unsigned there = 0;
        for (int j = 0; j < lanes; j++) {
            const Thread *o = &b->threads[(size_t)(first + j)];
            there |= o->state == AT_WARP && o->mask == t->mask && o->what == t->what ? 1u << j : 0;
        }
        if (there != t->mask)
            continue;
        released = true;
        for (int j = 0; j < lanes; j++)
            if (there >> j & 1)
                b->threads[(size_t)(first + j)].state = READY;
    }
    return released;
}

void run_warp(Block *b, int first, int lanes) {
    do {
        for (int i = 0; i < lanes; i++)
            if (b->threads[(size_t)(first + i)].state == READY)
                resume(b, first + i);
    } while (release_warp(b, first, lanes));
}

/* All have left, or all wait for the block. Otherwise it names one that waits in vain. */
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
        return "";
    }
    for (int i = 0; i < b->n; i++) {
        const Thread *t = &b->threads[(size_t)i];
        if (t->state != DONE)
            return place(i, t->what) + ": other threads that must take part have left or wait elsewhere";
    }
    return "";
}

std::string run_block(Block *b, size_t shared, bool down) {
    int warps = (b->n + WARP - 1) / WARP;
    for (Thread &t : b->threads)
        t = Thread{READY, nullptr, nullptr, 0, "", 0};
    b->unused.clear(); /* what a failed block left is not used again */
    for (auto &s : b->stacks)
        b->unused.push_back(s.get());
    memset(ndp_shared_bytes, 0xff, shared); /* NaN: what is read before it is written shows */
    ndp_sim_tensor_begin();
    for (bool over = false; !over;) {
        for (int w = 0; w < warps; w++) {
            int first = (down ? warps - 1 - w : w) * WARP;
            run_warp(b, first, b->n - first < WARP ? b->n - first : WARP);
        }
        std::string wrong = end_of_round(b, &over);
        if (!wrong.empty())
            return wrong;
    }
    return "";
}

} // namespace

std::string ndp_sim_run(const cudaLaunchConfig_t &c, const std::function<void()> &body, bool down) {
    Block *b = &block;
    size_t blocks = (size_t)c.gridDim.x * c.gridDim.y * c.gridDim.z, n = c.blockDim.x * c.blockDim.y * c.blockDim.z;
    gridDim = c.gridDim, blockDim = c.blockDim;
    b->body = &body, b->n = (int)n;
    b->threads.resize(n);
    for (auto &v : b->values)
        v.resize(n);
    for (size_t i = 0; i < blocks; i++) {
        unsigned k = (unsigned)(down ? blocks - 1 - i : i);
        blockIdx = {k % gridDim.x, k / gridDim.x % gridDim.y, k / gridDim.x / gridDim.y};
        std::string wrong = run_block(b, c.dynamicSmemBytes, down);
        if (!wrong.empty())
            return wrong;
    }
    return "";
}

int ndp_sim_lane(void) { return block.at % WARP; }
void ndp_sim_sync_block(void) { wait_in(AT_BLOCK, 0, "__syncthreads"); }
void ndp_sim_sync_warp(unsigned mask, const char *what) {
    int first = block.at / WARP * WARP, lanes = block.n - first < WARP ? block.n - first : WARP;
    /* Lanes that a block does not have are not waited for. */
    wait_in(AT_WARP, lanes == WARP ? mask : mask & ((1u << lanes) - 1), what);
}

uint64_t ndp_sim_exchange(unsigned mask, uint64_t mine, int from, const char *what) {
    Block *b = &block;
    int me = b->at, first = me / WARP * WARP;
    unsigned slot = b->threads[(size_t)me].exchanges++ % 2;
    b->values[slot][(size_t)me] = mine;
    ndp_sim_sync_warp(mask, what);
    int other = first + from;
    return other < b->n && (mask >> from & 1) ? b->values[slot][(size_t)other] : 0x7ff7deadfff7deadull;
}

unsigned ndp_sim_ballot(unsigned mask, bool predicate) {
    Block *b = &block;
    int me = b->at, first = me / WARP * WARP;
    unsigned slot = b->threads[(size_t)me].exchanges++ % 2, bits = 0;
    b->values[slot][(size_t)me] = predicate;
    ndp_sim_sync_warp(mask, "__ballot_sync");
    for (int i = 0; i < WARP && first + i < b->n; i++)
        if (mask >> i & 1 && b->values[slot][(size_t)(first + i)])
            bits |= 1u << i;
    return bits;
}
