/* Switches of stacks, of which AddressSanitizer is notified. The jump is written by hand for each kind of processor, so
 * that a switch costs nanoseconds: fiber_x86.c, fiber_arm.c. */
#include "base/fiber.h"
#include "base/fiber_jump.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined __SANITIZE_ADDRESS__ || __has_feature(address_sanitizer)
#define ASAN(call) call
#else
#define ASAN(call)
#endif

enum { GUARD_BYTES = 64 << 10 }; /* the largest page of these processors */

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

void ndp_fiber_init(ndp_fiber *f, char *stack, size_t bytes, void (*entry)(void)) {
    *f = (ndp_fiber){ndp_fiber_begin_on(stack, bytes, entry), stack, bytes, NULL};
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
