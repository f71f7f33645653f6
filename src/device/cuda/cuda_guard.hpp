/* The guard of a GPU's memory, NDP_GPU_GUARD=1: each piece ends where its pages end, as far as its alignment allows,
 * and the addresses after them are not mapped, so a kernel that reads or writes past the end faults. What is left over
 * of the pages holds a pattern, which shows a write there when the piece is given back. Without it a piece begins where
 * its pages begin. */
#ifndef NDP_DEVICE_CUDA_CUDA_GUARD_HPP
#define NDP_DEVICE_CUDA_CUDA_GUARD_HPP

#include <cstddef>

/* NDP_GPU_GUARD=1. It holds for the whole process. */
bool ndp_gpu_guarded(void);

/* A piece begins `front` bytes after the start of `pages` bytes of whole pages; `behind` more bytes of addresses are
 * reserved and never mapped. */
struct ndp_gpu_place {
    size_t pages, front, behind;
};
ndp_gpu_place ndp_gpu_place_of(size_t bytes, size_t page);

/* Makes AddressSanitizer find each access to what is around a piece in its pages, and takes that back. Defined by each
 * device: sim_memory.cc; on `cuda` (cuda_driver.cc) they do nothing. */
void ndp_gpu_enclose(const void *data, const ndp_gpu_place &place, size_t bytes);
void ndp_gpu_disclose(const void *data, const ndp_gpu_place &place);

/* Writes the pattern around a piece that was just mapped on the thread's GPU. Does nothing without the guard. */
void ndp_gpu_guard_paint(const ndp_gpu_place &place, void *data, size_t bytes);
/* Reads the pattern, after all work on the piece. Returns NULL, or what was written: a text that is valid until the
 * thread's next call. A GPU that cannot be read has failed before, so that is no finding. */
const char *ndp_gpu_guard_check(int gpu, const ndp_gpu_place &place, const void *data, size_t bytes);

#endif
