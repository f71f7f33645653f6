/* The part of base/fiber.c that is the processor's: fiber_x86.c, fiber_arm.c. */
#ifndef NDP_BASE_FIBER_JUMP_H
#define NDP_BASE_FIBER_JUMP_H

#include <stddef.h>

/* Saves this stack in *from and continues on `to`. */
void ndp_fiber_jump(void **from, void *to);

/* Writes onto an empty stack what the jump takes from it. The first jump there, to what is returned, begins in `entry`.
 */
void *ndp_fiber_begin_on(char *stack, size_t bytes, void (*entry)(void));

#endif
