/* The jump between stacks on x86-64. */
#include "base/fiber_jump.h"

__asm__(".text\n.hidden ndp_fiber_jump\n.globl ndp_fiber_jump\n.type ndp_fiber_jump,@function\nndp_fiber_jump:\n"
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n"
        ".size ndp_fiber_jump,.-ndp_fiber_jump\n");

/* The jump pops six registers and returns to `entry`, whose stack is then aligned as after a call: 8 below 16. */
void *ndp_fiber_begin_on(char *stack, size_t bytes, void (*entry)(void)) {
    void **top = (void **)(stack + bytes) - 1;
    *--top = (void *)entry;
    return top - 6;
}
