/* The race detector of `sim`: kernels that the host's compiler has instrumented (-fsanitize=thread) call the functions
 * __tsan_... here, in place of TSan's, at each access to memory.
 *
 * Each byte of shared memory and of a GPU's memory knows its last write and its last reads in this launch. Two accesses
 * of different threads, one of them a write, are a race unless both are of one block, and between them all its threads
 * have met in __syncthreads, or the two in __syncwarp. Blocks are never ordered. Shuffles, ballots and products order
 * nothing, though their lanes meet. So a race is found whatever the order is in which `sim` runs threads.
 *
 * An asynchronous copy writes when it begins and again when it is waited for: between the two every access races. */
#include "device/sim/sim_race.hpp"
#include "device/sim/sim_memory.hpp"

#include <cstdint>
#include <cstdio>
#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <memory>
#include <unordered_map>

namespace {

enum { WARP = 32, PAGE = 4096, MOST_THREADS = 1024 };
/* Who has read a byte since reads were last in order: one thread, lanes of one warp, threads of a block, of several. */
enum Readers : uint8_t { NONE, ONE, LANES, THREADS, BLOCKS };

struct Access {
    uint32_t launch = 0, block = 0;
    uint64_t when = 0; /* the number of meetings before it */
    const void *code = nullptr;
    uint16_t thread = 0;
};
struct Byte {
    Access write, read;
    uint32_t lanes = 0; /* that have read it, where they are LANES */
    Readers readers = NONE;
};
/* Shared memory is another one in each block. */
struct Page {
    bool shared;
    Byte bytes[PAGE];
};

/* Of the thread of the host that executes the block. */
struct State {
    bool running = false;
    uint32_t launch = 0, block = 0;
    int thread = 0;
    uint64_t meetings = 0, barrier = 0;                 /* the number of the block's last */
    uint64_t met[MOST_THREADS / WARP][WARP][WARP] = {}; /* by warp, by two of its lanes */
    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
    uintptr_t last_number = 0;
    Page *last = nullptr;
    std::string race;
};
thread_local std::unique_ptr<State> state;

/* ---- order ---- */

bool meets(const State &s, int a, int b, uint64_t when) {
    return a / WARP == b / WARP && s.met[a / WARP][a % WARP][b % WARP] > when;
}

/* Whether the running thread comes after an access of the same launch. */
bool is_after(const State &s, const Access &a) {
    return a.launch != s.launch ||
           (a.block == s.block && (a.thread == s.thread || s.barrier > a.when || meets(s, a.thread, s.thread, a.when)));
}

bool is_after_reads(const State &s, const Byte &b) {
    if (b.readers == NONE || b.read.launch != s.launch)
        return true;
    if (b.readers == BLOCKS || b.read.block != s.block)
        return false;
    if (s.barrier > b.read.when || (b.readers == ONE && b.read.thread == s.thread))
        return true;
    bool all = b.readers != THREADS;
    int first = b.read.thread / WARP * WARP;
    for (int lane = 0; all && b.readers == LANES && lane < WARP; lane++)
        if (b.lanes >> lane & 1 && first + lane != s.thread)
            all = meets(s, first + lane, s.thread, b.read.when);
    return all && (b.readers == LANES || meets(s, b.read.thread, s.thread, b.read.when));
}

/* ---- what is told ---- */

std::string place(const void *code) {
    Dl_info i;
    char text[64];
    if (!dladdr(code, &i))
        return "?";
    snprintf(text, sizeof text, "+0x%zx", (size_t)((const char *)code - (const char *)i.dli_fbase) - 1);
    return text;
}

void tell(State *s, const char *at, const Access &before, const char *first, const char *second, const void *code) {
    if (!s->race.empty())
        return;
    s->race = "a race at " + std::to_string((uintptr_t)at) + ": block " + std::to_string(before.block) + " thread " +
              std::to_string(before.thread) + " " + first + " it (" + place(before.code) + "), block " +
              std::to_string(s->block) + " thread " + std::to_string(s->thread) + " " + second + " it (" + place(code) +
              "), and nothing orders the two";
}

/* ---- memory ---- */

/* Shared memory is thread-local here: this plugin's part of it. */
struct Range {
    uintptr_t begin = 0, end = 0;
};
int find_part(dl_phdr_info *info, size_t, void *user) {
    auto *out = (Range *)user;
    uintptr_t own = (uintptr_t)&find_part;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto &h = info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + h.p_vaddr;
        if (h.p_type == PT_LOAD && own >= begin && own < begin + h.p_memsz)
            for (int k = 0; k < info->dlpi_phnum; k++)
                if (info->dlpi_phdr[k].p_type == PT_TLS && info->dlpi_tls_data)
                    *out = {(uintptr_t)info->dlpi_tls_data,
                            (uintptr_t)info->dlpi_tls_data + info->dlpi_phdr[k].p_memsz};
    }
    return 0;
}
bool is_shared(uintptr_t at) {
    static thread_local Range part;
    if (part.end == 0)
        dl_iterate_phdr(find_part, &part);
    return at >= part.begin && at < part.end;
}

Byte *byte_of(State *s, uintptr_t at) {
    uintptr_t number = at / PAGE;
    if (number != s->last_number || !s->last) {
        if (!is_shared(at) && !ndp_sim_memory_has((const void *)at))
            return nullptr;
        auto &page = s->pages[number];
        if (!page)
            page = std::make_unique<Page>(is_shared(at));
        s->last_number = number, s->last = page.get();
    }
    return &s->last->bytes[at % PAGE];
}

void note_read(State *s, Byte *b, const Access &now) {
    bool fresh = b->read.launch != s->launch || is_after_reads(*s, *b);
    if (fresh || b->readers == NONE)
        b->readers = ONE, b->lanes = 0;
    else if (b->read.block != s->block)
        b->readers = BLOCKS;
    else if (b->readers != BLOCKS)
        b->readers = b->read.thread / WARP == s->thread / WARP && b->readers != THREADS ? LANES : THREADS;
    if (!fresh && b->readers == LANES && b->lanes == 0)
        b->lanes = 1u << b->read.thread % WARP;
    b->lanes |= 1u << s->thread % WARP;
    b->read = now;
}

void access(const void *data, size_t bytes, bool writes, const void *code) {
    State *s = state.get();
    if (!s || !s->running)
        return;
    const Access now = {s->launch, s->block, s->meetings, code, (uint16_t)s->thread};
    for (size_t i = 0; i < bytes; i++) {
        Byte *b = byte_of(s, (uintptr_t)data + i);
        if (!b)
            return;
        if (s->last->shared && b->write.block != s->block)
            b->write.launch = 0;
        if (s->last->shared && b->read.block != s->block)
            b->readers = NONE;
        if (!is_after(*s, b->write))
            tell(s, (const char *)data + i, b->write, "writes", writes ? "writes" : "reads", code);
        if (writes && !is_after_reads(*s, *b))
            tell(s, (const char *)data + i, b->read, "reads", "writes", code);
        if (writes)
            b->write = now, b->readers = NONE;
        else
            note_read(s, b, now);
    }
}

} // namespace

/* ---- the scheduler's ---- */

void ndp_sim_race_launch(void) {
    if (!state)
        state = std::make_unique<State>();
    state->running = true;
    state->launch++;
    state->race.clear();
    state->last = nullptr;
}
void ndp_sim_race_block(unsigned block) {
    state->block = block;
    state->barrier = 0;
    state->meetings++;
}
void ndp_sim_race_thread(int thread) { state->thread = thread; }
void ndp_sim_race_barrier(void) { state->barrier = ++state->meetings; }
void ndp_sim_race_warp(int first, unsigned lanes) {
    state->meetings++;
    for (int a = 0; a < WARP; a++)
        for (int b = 0; b < WARP; b++)
            if (lanes >> a & 1 && lanes >> b & 1)
                state->met[first / WARP][a][b] = state->meetings;
}
void ndp_sim_race_copy(void *to, const void *from, size_t bytes) {
    access(from, bytes, false, __builtin_return_address(0));
    access(to, 16, true, __builtin_return_address(0));
}
std::string ndp_sim_race_end(void) {
    state->running = false;
    return state->race;
}

/* ---- the compiler's ---- */

#define EXPORT extern "C" __attribute__((visibility("hidden")))
#define HERE __builtin_return_address(0)
#define SIZE(N)                                                                                                        \
    EXPORT void __tsan_read##N(void *at) { access(at, N, false, HERE); }                                               \
    EXPORT void __tsan_write##N(void *at) { access(at, N, true, HERE); }                                               \
    EXPORT void __tsan_unaligned_read##N(void *at) { access(at, N, false, HERE); }                                     \
    EXPORT void __tsan_unaligned_write##N(void *at) { access(at, N, true, HERE); }                                     \
    EXPORT void __tsan_volatile_read##N(void *at) { access(at, N, false, HERE); }                                      \
    EXPORT void __tsan_volatile_write##N(void *at) { access(at, N, true, HERE); }
SIZE(1) SIZE(2) SIZE(4) SIZE(8) SIZE(16) EXPORT void __tsan_read_range(void *at, size_t bytes) {
    access(at, bytes, false, HERE);
}
EXPORT void __tsan_write_range(void *at, size_t bytes) { access(at, bytes, true, HERE); }
EXPORT void __tsan_init(void) {}
EXPORT void __tsan_func_entry(void *) {}
EXPORT void __tsan_func_exit(void) {}
EXPORT void __tsan_vptr_update(void **, void *) {}
EXPORT void __tsan_vptr_read(void **) {}
