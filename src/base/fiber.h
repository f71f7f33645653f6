/* Fibers: several stacks that one thread of the host runs in turn. `sim` runs the threads of a block on them,
 * base/turns.h the ranks of a world. */
#ifndef NDP_BASE_FIBER_H
#define NDP_BASE_FIBER_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ndp_fiber {
    void *at;           /* where it continues, on its own stack */
    const void *bottom; /* its stack, for ASan; that of the host's thread becomes known with the first switch */
    size_t bytes;
    void *fake; /* of ASan */
} ndp_fiber;

/* A stack of `bytes` (a multiple of the page size) above a page that faults, and back. NULL: no memory. */
char *ndp_fiber_stack_map(size_t bytes);
void ndp_fiber_stack_unmap(char *stack, size_t bytes);

/* The fiber will begin in `entry` on `stack`. `entry` calls ndp_fiber_entered first, and never returns. */
void ndp_fiber_init(ndp_fiber *f, char *stack, size_t bytes, void (*entry)(void));
void ndp_fiber_entered(void);

/* Continues `to`; returns when another fiber continues `from`. `last`: none will. */
void ndp_fiber_switch(ndp_fiber *from, ndp_fiber *to, bool last);

#ifdef __cplusplus
}
#endif

#endif
