/* Tests of one rank run on a guard (guard_device.h): where the host follows an address of the device, cmocka
 * reports the SIGSEGV as that test's failure. */
#ifndef NDP_TESTS_GUARDED_H
#define NDP_TESTS_GUARDED_H

#include "check.h"
#include "guard_device.h"

/* A guard around `device` for a world of one rank; larger worlds need memory of the host, and get `device` itself. */
static inline const ndp_device *guarded(int world, const ndp_device *device) {
    ndp_device *guard = NULL;
    if (world == 1)
        CHECK_OK(ndp_guard_create(device, &guard));
    return guard ? guard : device;
}

/* Destroys what guarded() made. */
static inline void unguard(const ndp_device *device) {
    if (strcmp(device->name, "guard") == 0)
        ndp_guard_destroy((ndp_device *)device);
}

#endif
