/* mmap with alignment, and with huge pages where the system grants them. Memory is reserved without being taken, so a
 * dry run can map a quarter of a TiB; ndp_memory_touch takes it. */
#include "comm/node/mapping.h"
#include "base/text.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE ((size_t)2 << 20)
#define PAGE ((size_t)4096)

size_t ndp_memory_round(size_t bytes) { return bytes ? (bytes + HUGE - 1) / HUGE * HUGE : HUGE; }

static ndp_status no_memory(size_t bytes, int error) {
    char text[16];
    return NDP_FAIL(NDP_ENOMEM, "not enough memory for a window of %s: %s", ndp_human_bytes((double)bytes, text),
                    strerror(error));
}

ndp_status ndp_memory_map(int fd, int64_t offset, size_t bytes, void **out) {
    size_t size = ndp_memory_round(bytes);
    if (size < bytes || size > SIZE_MAX - HUGE)
        return no_memory(bytes, EOVERFLOW);
    /* Reserves enough to contain a 2 MiB boundary, maps there, and unmaps the rest. */
    unsigned char *room = mmap(NULL, size + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return no_memory(bytes, errno);
    size_t before = (HUGE - (uintptr_t)room % HUGE) % HUGE;
    unsigned char *data = room + before;
    int flags = MAP_FIXED | MAP_NORESERVE | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    if (mmap(data, size, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset) == MAP_FAILED) {
        int error = errno;
        munmap(room, size + HUGE);
        return no_memory(bytes, error);
    }
    if (before)
        munmap(room, before);
    munmap(data + size, HUGE - before);
    madvise(data, size, MADV_HUGEPAGE); /* only advice: a kernel without huge pages uses small ones */
    *out = data;
    return NDP_OK;
}

void ndp_memory_unmap(void *data, size_t bytes) {
    if (data)
        munmap(data, ndp_memory_round(bytes));
}

/* Asks for a huge page for every whole 2 MiB. Advice is not enough for shared memory: shmem_enabled is `never` by
 * default. MADV_COLLAPSE needs one page to be present; the kernel zeroes the rest. If it is refused, small pages are
 * used. */
static void take_huge_pages(uintptr_t first, uintptr_t last) {
    enum { COLLAPSE = 25 }; /* MADV_COLLAPSE of Linux 6.1 */
    for (uintptr_t at = (first + HUGE - 1) / HUGE * HUGE; at + HUGE <= last; at += HUGE)
        if (madvise((void *)at, PAGE, MADV_POPULATE_WRITE) != 0 || madvise((void *)at, HUGE, COLLAPSE) != 0)
            return;
}

ndp_status ndp_memory_touch(void *data, size_t bytes) {
    uintptr_t first = (uintptr_t)data / PAGE * PAGE, last = ((uintptr_t)data + bytes + PAGE - 1) / PAGE * PAGE;
    if (bytes == 0)
        return NDP_OK;
    take_huge_pages(first, last);
    if (madvise((void *)first, last - first, MADV_POPULATE_WRITE) != 0 && (errno == ENOMEM || errno == EFAULT))
        return no_memory(bytes, errno);
    return NDP_OK; /* EINVAL before Linux 5.14: pages are taken at their first use */
}

ndp_status ndp_memory_touch_part(void *data, size_t bytes, int part, int parts) {
    size_t size = (bytes + (size_t)parts - 1) / (size_t)parts, first = size * (size_t)part;
    if (first >= bytes)
        return NDP_OK;
    return ndp_memory_touch((char *)data + first, first + size <= bytes ? size : bytes - first);
}
