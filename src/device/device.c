/* Threads of a rank. The devices themselves are tables beside their kernels, in ops/. */
#include "device/device.h"

#include "base/cpu.h"

int ndp_device_threads(int ranks) {
    int threads = ndp_cpu_cores() / (ranks > 0 ? ranks : 1);
    return threads > 0 ? threads : 1;
}
