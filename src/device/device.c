#include "device/device.h"

#include "base/cpu.h"

const ndp_device ndp_device_cpu = {.name = "cpu", .backend = 0, .executes = true, NDP_HOST_DEVICE};
const ndp_device ndp_device_ref = {.name = "ref", .backend = 1, .executes = true, NDP_HOST_DEVICE};
const ndp_device ndp_device_null = {.name = "null", .backend = 0, NDP_HOST_DEVICE};

int ndp_device_threads(int ranks) {
    int threads = ndp_cpu_cores() / (ranks > 0 ? ranks : 1);
    return threads > 0 ? threads : 1;
}
