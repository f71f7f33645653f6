/* Counts of joules: files of Linux, and NVIDIA's library, which is looked for when it is needed. */
#include "device/energy.h"

#include "base/clock.h"

#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS = 1 }; /* between two readings of packages */

/* ---- processors: /sys/class/powercap/intel-rapl:N, also of AMD ---- */

static bool read_number(const ndp_energy *e, int i, const char *file, double *out) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", e->powercap, e->packages[i].name, file);
    FILE *f = fopen(path, "r");
    bool read = f && fscanf(f, "%lf", out) == 1;
    if (f)
        fclose(f);
    return read;
}

/* "intel-rapl:0" is a package; "intel-rapl:0:1" is a part of one. */
static bool is_package(const char *name) {
    static const char prefix[] = "intel-rapl:";
    size_t n = sizeof prefix - 1;
    return strncmp(name, prefix, n) == 0 && name[n] && name[n + strspn(name + n, "0123456789")] == '\0';
}

/* Whether its count can be read. */
static bool add_package(ndp_energy *e, const char *name) {
    int i = e->n++;
    snprintf(e->packages[i].name, sizeof e->packages[i].name, "%.31s", name);
    return read_number(e, i, "energy_uj", &e->packages[i].last) &&
           read_number(e, i, "max_energy_range_uj", &e->packages[i].range);
}

/* All of them, or none: a part of the energy would be taken for the whole. */
static bool find_packages(ndp_energy *e) {
    DIR *d = opendir(e->powercap);
    bool all = d;
    for (struct dirent *entry; d && (entry = readdir(d));)
        if (is_package(entry->d_name))
            all = all && e->n < NDP_MOST_PACKAGES && add_package(e, entry->d_name);
    if (d)
        closedir(d);
    return all && e->n > 0;
}

static bool read_packages(ndp_energy *e) {
    for (int i = 0; i < e->n; i++) {
        double now;
        if (!read_number(e, i, "energy_uj", &now))
            return false;
        double since = now - e->packages[i].last;
        e->joules += 1e-6 * (since < 0 ? since + e->packages[i].range : since);
        e->packages[i].last = now;
    }
    return true;
}

/* ---- GPUs: nvmlDeviceGetTotalEnergyConsumption, since Volta ---- */

/* NVML's functions give 0 for success. */
static bool read_gpu(ndp_energy *e, double *joules) {
    unsigned long long millijoules;
    bool read = e->read_gpu(e->gpu, &millijoules) == 0;
    *joules = 1e-3 * (double)millijoules;
    return read;
}

/* The library stays: others of this process may count as well. */
static bool find_gpu(ndp_energy *e, const char *bus_id) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return false;
    int (*begin)(void);
    int (*find)(const char *, void **);
    *(void **)&begin = dlsym(library, "nvmlInit_v2");
    *(void **)&find = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&e->read_gpu = dlsym(library, "nvmlDeviceGetTotalEnergyConsumption");
    return begin && find && e->read_gpu && begin() == 0 && find(bus_id, &e->gpu) == 0 && read_gpu(e, &e->gpu_last);
}

/* ---- both ---- */

void ndp_energy_open(ndp_energy *e, const ndp_device *d, ndp_device_context *c, int local_rank, const char *powercap) {
    char bus_id[NDP_DEVICE_NAME] = "";
    *e = (ndp_energy){.powercap = powercap ? powercap : "/sys/class/powercap"};
    if (d->bus_id)
        d->bus_id(c, bus_id);
    e->others = d->bus_id ? bus_id[0] == '\0' : local_rank > 0;
    if (!e->others)
        e->known = d->bus_id ? find_gpu(e, bus_id) : find_packages(e);
}

double ndp_energy_read(ndp_energy *e) {
    double now = ndp_now(), joules = 0;
    if (e->others)
        return 0;
    if (!e->known)
        return NAN;
    if (e->read_gpu) {
        e->known = read_gpu(e, &joules);
        e->joules = joules - e->gpu_last;
    } else if (now >= e->next) {
        e->known = read_packages(e);
        e->next = now + SECONDS;
    }
    return e->known ? e->joules : NAN;
}
