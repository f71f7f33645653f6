/* Energy that a rank's device draws, where the machine counts it: the processors' packages by RAPL, a GPU by NVML. */
#ifndef NDP_DEVICE_ENERGY_H
#define NDP_DEVICE_ENERGY_H

#include "device/device.h"

enum { NDP_MOST_PACKAGES = 16 };

typedef struct ndp_energy {
    bool known;    /* the machine counts it */
    bool others;   /* another rank of this node counts this device */
    double joules; /* since it was opened */
    double next;   /* the time before which the packages are not read again */
    int (*read_gpu)(void *gpu, unsigned long long *millijoules); /* NVML's; NULL: packages */
    void *gpu;
    double gpu_last;      /* joules, by the GPU's own count */
    const char *powercap; /* borrowed */
    int n;
    struct {
        char name[32];      /* "intel-rapl:0" */
        double last, range; /* microjoules; the count begins again at `range` */
    } packages[NDP_MOST_PACKAGES];
} ndp_energy;

/* Begins to count what the device of `c` draws. The first rank of a node counts its processors (those of `powercap`,
 * NULL: /sys/class/powercap), the first rank on a GPU that GPU. Not known: without such counters, or without the right
 * to read them. */
void ndp_energy_open(ndp_energy *e, const ndp_device *d, ndp_device_context *c, int local_rank, const char *powercap);

/* Joules since it was opened: 0 if another rank counts them, NaN if they are not known. To be asked at least once in
 * the time in which a package's count begins again (minutes). */
double ndp_energy_read(ndp_energy *e);

#endif
