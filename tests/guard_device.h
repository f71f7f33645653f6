/* A device for tests: it wraps another one and keeps the host out of its memory.
 *
 * On `cpu` and `ref` the host could follow any address of the device, and a line that does so works until the first
 * device with memory of its own. The guard takes all its NDP_MEMORY_DEVICE memory away from the process (mprotect)
 * except while a kernel or a copy of the wrapped device runs, so such a line is a SIGSEGV at its place. The other way
 * round, a kernel that is given an address outside that memory fails with NDP_EBUG and its op's name. Memory of kind
 * NDP_MEMORY_HOST stays open.
 *
 * host_memory is false, so neither comm nor a peer works on it: collectives are staged (step/staging.h).
 *
 * One guard serves any number of contexts, of ranks that are threads. Memory is a rank's: a kernel that is given
 * another rank's fails, and it stays closed while only other ranks compute. The ranges of a rank's contexts are opened
 * together, since its engines lend each other memory. A wrapped device that runs later than it was called is drained
 * before the memory is closed.
 *
 * A device that only simulates one (other times, other failures) can wrap in the same way: a table of kernels that
 * call the wrapped one's, and queues that forward to its queues. */
#ifndef NDP_TESTS_GUARD_DEVICE_H
#define NDP_TESTS_GUARD_DEVICE_H

#include "ops/op.h"

/* Wraps `inner`, which is borrowed, executes, and has host_memory. NDP_ENOMEM; NDP_EBUG: it is not such a device. */
ndp_status ndp_guard_create(const ndp_device *inner, ndp_device **out);
/* After all contexts of the guard were closed. NULL is fine. */
void ndp_guard_destroy(ndp_device *guard);

#endif
