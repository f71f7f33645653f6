/* What the table of the device `sim` needs beside CUDA's runtime. */
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_host.hpp"
#include "device/sim/sim_memory.hpp"

#include <cstdio>

extern const char *const ndp_cuda_name = "sim";
ndp_status ndp_cuda_begin(void) { return NDP_OK; }
long ndp_cuda_allocations(void) { return ndp_sim_allocations(); }
void ndp_cuda_describe(char *text, size_t room) { snprintf(text, room, "sim           CUDA's kernels on the host\n"); }
void ndp_cuda_full_name(int, char text[NDP_DEVICE_NAME]) { snprintf(text, NDP_DEVICE_NAME, "simulated GPU"); }
