/* Fibers: several stacks that one thread of the host runs in turn. */
#ifndef NDP_DEVICE_SIM_SIM_FIBER_HPP
#define NDP_DEVICE_SIM_SIM_FIBER_HPP

#include <cstddef>

struct ndp_sim_fiber {
    void *at;           /* where it continues, on its own stack */
    const void *bottom; /* its stack, for ASan; that of the host's thread becomes known with the first switch */
    size_t bytes;
    void *fake; /* of ASan */
};

/* A stack of 128 KiB above a page that faults, and back. NULL: no memory. */
char *ndp_sim_stack_map(void);
void ndp_sim_stack_unmap(char *stack);

/* The fiber will begin in `entry` on `stack`. `entry` calls ndp_sim_fiber_entered first, and never returns. */
void ndp_sim_fiber_init(ndp_sim_fiber *f, char *stack, void (*entry)(void));
void ndp_sim_fiber_entered(void);

/* Continues `to`; returns when another fiber continues `from`. `last`: none will. */
void ndp_sim_fiber_switch(ndp_sim_fiber *from, ndp_sim_fiber *to, bool last);

#endif
