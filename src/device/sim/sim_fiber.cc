/* Switches of stacks: by hand on x86-64, where a switch then costs nanoseconds, by ucontext elsewhere. AddressSanitizer
 * is notified of each. */
#include "device/sim/sim_fiber.hpp"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>
#include <ucontext.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer)
#define ASAN(call) call
#else
#define ASAN(call)
#endif

enum { STACK_BYTES = 128 << 10, GUARD_BYTES = 4 << 10 };

char *ndp_sim_stack_map(void) {
    void *base = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return nullptr;
    mprotect(base, GUARD_BYTES, PROT_NONE);
    return (char *)base + GUARD_BYTES;
}

/* What is mapped there next is not a stack: AddressSanitizer forgets the frames of this one. */
void ndp_sim_stack_unmap(char *stack) {
    ASAN(__asan_unpoison_memory_region(stack, STACK_BYTES));
    munmap(stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
}

#if defined __x86_64__ && !defined NDP_SIM_UCONTEXT
/* Saves this stack in *from and continues on `to`. */
extern "C" void ndp_sim_jump(void **from, void *to);
asm(".text\n.hidden ndp_sim_jump\n.globl ndp_sim_jump\n.type ndp_sim_jump,@function\nndp_sim_jump:\n"
    "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
    ".size ndp_sim_jump,.-ndp_sim_jump\n");

/* The switch pops six registers and returns to `entry`, whose stack is then aligned as after a call: 8 below 16. */
static void *begin_on(char *stack, void (*entry)(void)) {
    void **top = (void **)(stack + STACK_BYTES) - 1;
    *--top = (void *)entry;
    return top - 6;
}
#else
/* A fiber that waits keeps its context on its own stack. */
static void ndp_sim_jump(void **from, void *to) {
    ucontext_t mine;
    *from = &mine;
    swapcontext(&mine, (ucontext_t *)to);
}

static void *begin_on(char *stack, void (*entry)(void)) {
    ucontext_t *c = (ucontext_t *)(stack + STACK_BYTES) - 1;
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = (size_t)((char *)c - stack) / 64 * 64;
    c->uc_link = nullptr;
    makecontext(c, entry, 0);
    return c;
}
#endif

void ndp_sim_fiber_init(ndp_sim_fiber *f, char *stack, void (*entry)(void)) {
    *f = {begin_on(stack, entry), stack, STACK_BYTES, nullptr};
}

static thread_local ndp_sim_fiber *left; /* the one that ran before the last switch */

void ndp_sim_fiber_entered(void) { ASAN(__sanitizer_finish_switch_fiber(nullptr, &left->bottom, &left->bytes)); }

void ndp_sim_fiber_switch(ndp_sim_fiber *from, ndp_sim_fiber *to, bool last) {
    left = from;
    (void)last;
    ASAN(__sanitizer_start_switch_fiber(last ? nullptr : &from->fake, to->bottom, to->bytes));
    ndp_sim_jump(&from->at, to->at);
    ASAN(__sanitizer_finish_switch_fiber(from->fake, &left->bottom, &left->bytes));
}
