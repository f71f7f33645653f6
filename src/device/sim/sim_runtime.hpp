/* What tests ask the simulated runtime. */
#ifndef NDP_DEVICE_SIM_SIM_RUNTIME_HPP
#define NDP_DEVICE_SIM_SIM_RUNTIME_HPP

/* Allocations of device and pinned memory so far, of all threads. */
long ndp_sim_allocations(void);

#endif
