/* The jump between stacks on aarch64. */
#include "base/fiber_jump.h"

#include <string.h>

enum { SAVED = 20, RETURN = 11 }; /* 8-byte registers on the stack; which of them the jump returns to */

/* What a function keeps: x19 to x30, and the lower halves of v8 to v15. */
__asm__(".text\n.hidden ndp_fiber_jump\n.globl ndp_fiber_jump\n.type ndp_fiber_jump,%function\nndp_fiber_jump:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp, #0]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n"
        "stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
        "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
        "ldp x19, x20, [sp, #0]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n"
        "ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\n ret\n"
        ".size ndp_fiber_jump,.-ndp_fiber_jump\n");

/* The jump loads the registers, of which the frame pointer is 0 where a stack begins, and returns to `entry`. */
void *ndp_fiber_begin_on(char *stack, size_t bytes, void (*entry)(void)) {
    void **top = (void **)(stack + bytes) - SAVED;
    memset(top, 0, SAVED * sizeof *top);
    top[RETURN] = (void *)entry;
    return top;
}
