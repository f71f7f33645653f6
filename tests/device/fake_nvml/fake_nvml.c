/* In the place of NVIDIA's library: two GPUs, of which the second does not count its energy. */
#include <string.h>

__attribute__((visibility("default"))) int fake_nvml_joules;
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out);
int nvmlDeviceGetTotalEnergyConsumption(const void *gpu, unsigned long long *millijoules);

__attribute__((visibility("default"))) int nvmlInit_v2(void) { return 0; }

__attribute__((visibility("default"))) int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **out) {
    static const char *const gpus[] = {"0000:01:00.0", "0000:02:00.0"};
    for (int i = 0; i < 2; i++)
        if (strcmp(gpus[i], bus_id) == 0) {
            *out = (void *)&gpus[i];
            return 0;
        }
    return 6; /* not found */
}

__attribute__((visibility("default"))) int nvmlDeviceGetTotalEnergyConsumption(const void *gpu,
                                                                               unsigned long long *millijoules) {
    *millijoules = 1000ull * (unsigned long long)(7000000 + fake_nvml_joules);
    return strcmp(*(const char *const *)gpu, "0000:01:00.0") == 0 ? 0 : 3; /* not supported */
}
