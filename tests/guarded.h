/* Tests run on a guard (guard_device.h): where the host follows an address of the device, cmocka reports the SIGSEGV as
 * that test's failure. Ranks that are threads share one. */
#ifndef NDP_TESTS_GUARDED_H
#define NDP_TESTS_GUARDED_H

#include "check.h"
#include "guard_device.h"

/* A guard around `device`. */
static inline const ndp_device *guarded(const ndp_device *device) {
    ndp_device *guard = NULL;
    CHECK_OK(ndp_guard_create(device, &guard));
    return guard;
}

/* Destroys what guarded() made. */
static inline void unguard(const ndp_device *device) {
    if (strcmp(device->name, "guard") == 0)
        ndp_guard_destroy((ndp_device *)device);
}

#endif
