/* Switches of stacks: by hand on x86-64, where a switch then costs nanoseconds, by ucontext elsewhere. AddressSanitizer
 * is notified of each. */
#include "base/fiber.h"

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

enum { GUARD_BYTES = 4 << 10 };

char *ndp_fiber_stack_map(size_t bytes) {
    void *base =
        mmap(NULL, GUARD_BYTES + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    mprotect(base, GUARD_BYTES, PROT_NONE);
    return (char *)base + GUARD_BYTES;
}

/* What is mapped there next is not a stack: AddressSanitizer forgets the frames of this one. */
void ndp_fiber_stack_unmap(char *stack, size_t bytes) {
    ASAN(__asan_unpoison_memory_region(stack, bytes));
    munmap(stack - GUARD_BYTES, GUARD_BYTES + bytes);
}

#if defined __x86_64__ && !defined NDP_FIBER_UCONTEXT
/* Saves this stack in *from and continues on `to`. */
void ndp_fiber_jump(void **from, void *to);
__asm__(".text\n.hidden ndp_fiber_jump\n.globl ndp_fiber_jump\n.type ndp_fiber_jump,@function\nndp_fiber_jump:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
        ".size ndp_fiber_jump,.-ndp_fiber_jump\n");

/* The switch pops six registers and returns to `entry`, whose stack is then aligned as after a call: 8 below 16. */
static void *begin_on(char *stack, size_t bytes, void (*entry)(void)) {
    void **top = (void **)(stack + bytes) - 1;
    *--top = (void *)entry;
    return top - 6;
}
#else
/* A fiber that waits keeps its context on its own stack. */
static void ndp_fiber_jump(void **from, void *to) {
    ucontext_t mine;
    *from = &mine;
    swapcontext(&mine, (ucontext_t *)to);
}

static void *begin_on(char *stack, size_t bytes, void (*entry)(void)) {
    ucontext_t *c = (ucontext_t *)(stack + bytes) - 1;
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = (size_t)((char *)c - stack) / 64 * 64;
    c->uc_link = NULL;
    makecontext(c, entry, 0);
    return c;
}
#endif

void ndp_fiber_init(ndp_fiber *f, char *stack, size_t bytes, void (*entry)(void)) {
    *f = (ndp_fiber){begin_on(stack, bytes, entry), stack, bytes, NULL};
}

static _Thread_local ndp_fiber *left; /* the one that ran before the last switch */

void ndp_fiber_entered(void) { ASAN(__sanitizer_finish_switch_fiber(NULL, &left->bottom, &left->bytes)); }

void ndp_fiber_switch(ndp_fiber *from, ndp_fiber *to, bool last) {
    left = from;
    (void)last;
    ASAN(__sanitizer_start_switch_fiber(last ? NULL : &from->fake, to->bottom, to->bytes));
    ndp_fiber_jump(&from->at, to->at);
    ASAN(__sanitizer_finish_switch_fiber(from->fake, &left->bottom, &left->bytes));
}
