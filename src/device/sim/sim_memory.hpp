/* Memory of the simulated GPUs: the host can follow its addresses only while a kernel or a copy of that GPU runs. */
#ifndef NDP_DEVICE_SIM_SIM_MEMORY_HPP
#define NDP_DEVICE_SIM_SIM_MEMORY_HPP

#include <cstddef>

/* Before and after a GPU's kernels and copies; nests. */
void ndp_sim_memory_open(int gpu);
void ndp_sim_memory_close(int gpu);

/* Whether an address is in memory of any GPU. */
bool ndp_sim_memory_has(const void *at);

/* Allocations of device and pinned memory, streams and events so far, of all threads. */
long ndp_sim_allocations(void);
void ndp_sim_count_allocation(void);
/* Bytes of addresses that are reserved now for memory that the driver maps. */
size_t ndp_sim_reserved(void);

#endif
