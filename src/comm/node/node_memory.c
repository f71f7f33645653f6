/* The shared file of a node.
 *
 *   [ table | health | journals | segment 2 | segment 3 | ... ]     each at a multiple of 2 MiB; `end` only grows
 *
 * Any process may append a segment without a lock: it takes the next number, then the next range (both atomic), lets
 * the file grow to there, and fills in the entry before it names the segment to anyone. So a process that reads a
 * number it was sent finds a complete entry.
 *
 * Ranges are what a rank has registered; locate turns a buffer in one of them into (segment, offset), which peers
 * resolve. Stages are segments for copies of all other buffers, kept for reuse. */
#include "comm/node/node_memory.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/node/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, HEALTH = 0, JOURNALS = 1 };

/* A stage above this size returns its pages to the system while it is not in use. */
#define STAGE_KEEP_BYTES ((size_t)16 << 20)

/* ---- the file ---- */

/* Extends the file to offset + size; never shrinks it, since other processes also extend it. One page is taken for
 * this, the rest at its first use. Beyond RLIMIT_FSIZE the system would kill the process: hence the check. */
static ndp_status grow(int fd, int64_t offset, size_t size) {
    struct rlimit limit;
    char need[16], most[16];
    int64_t end = offset + (int64_t)size;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && (uint64_t)end > limit.rlim_cur)
        return NDP_FAIL(NDP_ENOMEM,
                        "the memory that ranks share needs a file of %s, and `ulimit -f` allows %s: raise it",
                        ndp_human_bytes((double)end, need), ndp_human_bytes((double)limit.rlim_cur, most));
    if (fallocate(fd, 0, end - PAGE, PAGE) != 0)
        return NDP_FAIL(NDP_ENOMEM, "cannot get %s of shared memory: %s", ndp_human_bytes((double)size, need),
                        strerror(errno));
    return NDP_OK;
}

/* ---- segments ---- */

static ndp_status map(ndp_node_memory *n, int segment) {
    int64_t before = n->capacity, offset = n->table->segment[segment].offset;
    size_t bytes = (size_t)n->table->segment[segment].bytes;
    void *data;
    NDP_TRY(ndp_array_reserve(&n->mappings, &n->capacity, segment + 1, sizeof *n->mappings));
    memset(n->mappings + before, 0, (size_t)(n->capacity - before) * sizeof *n->mappings);
    NDP_TRY(ndp_memory_map(n->fd, offset, bytes, &data));
    n->mappings[segment] = (ndp_node_mapping){data, bytes};
    return NDP_OK;
}

ndp_status ndp_node_memory_resolve(void *node, ndp_ref ref, void **out) {
    ndp_node_memory *n = node;
    if (ref.segment >= n->capacity || !n->mappings[ref.segment].data)
        NDP_TRY(map(n, ref.segment));
    *out = (char *)n->mappings[ref.segment].data + ref.offset;
    return NDP_OK;
}

ndp_status ndp_node_segment_create(ndp_node_memory *n, size_t bytes, int holders, ndp_ref *out) {
    ndp_node_table *t = n->table;
    size_t size = ndp_memory_round(bytes);
    int number = atomic_load(&t->segments);
    NDP_CHECK(size >= bytes && size < (size_t)1 << 62, "a shared segment of %zu bytes", bytes);
    while (number < NDP_NODE_SEGMENTS && !atomic_compare_exchange_weak(&t->segments, &number, number + 1))
        ;
    if (number >= NDP_NODE_SEGMENTS)
        return NDP_FAIL(NDP_ENOTSUP, "more than %d windows and communicators in one run", NDP_NODE_SEGMENTS);
    int64_t offset = atomic_fetch_add(&t->end, (int64_t)size);
    NDP_TRY(grow(n->fd, offset, size));
    t->segment[number].offset = offset;
    t->segment[number].bytes = (int64_t)bytes;
    atomic_store(&t->segment[number].holders, holders);
    NDP_TRY(map(n, number));
    *out = (ndp_ref){.segment = number};
    return NDP_OK;
}

static void return_pages(const ndp_node_memory *n, int segment) {
    (void)fallocate(n->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, n->table->segment[segment].offset,
                    (off_t)ndp_memory_round((size_t)n->table->segment[segment].bytes));
}

void ndp_node_segment_drop(ndp_node_memory *n, ndp_ref ref) {
    if (ref.segment < 0)
        return;
    if (ref.segment < n->capacity && n->mappings[ref.segment].data) {
        ndp_memory_unmap(n->mappings[ref.segment].data, n->mappings[ref.segment].bytes);
        n->mappings[ref.segment].data = NULL;
    }
    if (atomic_fetch_sub(&n->table->segment[ref.segment].holders, 1) == 1)
        return_pages(n, ref.segment);
}

/* ---- registered memory ---- */

static bool contains(const void *start, size_t size, const void *data, size_t bytes) {
    const char *s = start, *d = data;
    return s && d >= s && d + bytes <= s + size;
}

static ndp_ref find_segment(const ndp_node_memory *n, const void *data, size_t bytes) {
    for (int64_t s = 0; s < n->capacity; s++)
        if (contains(n->mappings[s].data, n->mappings[s].bytes, data, bytes))
            return (ndp_ref){.segment = (int32_t)s, .offset = (const char *)data - (const char *)n->mappings[s].data};
    return (ndp_ref){.segment = -1};
}

ndp_status ndp_node_range_add(ndp_node_memory *n, const void *data, size_t bytes) {
    NDP_TRY(ndp_array_reserve(&n->ranges, &n->range_capacity, n->n_ranges + 1, sizeof *n->ranges));
    n->ranges[n->n_ranges++] = (ndp_node_range){data, bytes, find_segment(n, data, bytes)};
    return NDP_OK;
}

void ndp_node_range_remove(ndp_node_memory *n, const void *data, size_t bytes) {
    int64_t i = 0;
    while (i < n->n_ranges && !(n->ranges[i].data == data && n->ranges[i].bytes == bytes))
        i++;
    if (i < n->n_ranges)
        n->ranges[i] = n->ranges[--n->n_ranges];
}

/* Finds registered memory alone, and so searches a few ranges instead of all segments. */
static ndp_ref locate(void *node, const void *data, size_t bytes) {
    const ndp_node_memory *n = node;
    for (int64_t i = 0; i < n->n_ranges; i++) {
        const ndp_node_range *r = &n->ranges[i];
        if (r->ref.segment >= 0 && contains(r->data, r->bytes, data, bytes))
            return (ndp_ref){r->ref.segment, r->ref.offset + ((const char *)data - (const char *)r->data)};
    }
    return (ndp_ref){.segment = -1};
}

/* ---- stages ---- */

/* The smallest that is free and large enough; NULL: there is none. */
static ndp_node_stage *free_stage(const ndp_node_memory *n, size_t bytes) {
    ndp_node_stage *best = NULL;
    for (int64_t i = 0; i < n->n_stages; i++) {
        ndp_node_stage *s = &n->stages[i];
        if (!s->busy && s->bytes >= bytes && (!best || s->bytes < best->bytes))
            best = s;
    }
    return best;
}

/* Sizes are powers of two, so that a stage fits many operations. */
static ndp_status new_stage(ndp_node_memory *n, size_t bytes, ndp_node_stage **out) {
    size_t size = ndp_memory_round(1);
    while (size < bytes)
        size *= 2;
    NDP_TRY(ndp_array_reserve(&n->stages, &n->stage_capacity, n->n_stages + 1, sizeof *n->stages));
    ndp_node_stage *s = &n->stages[n->n_stages];
    *s = (ndp_node_stage){.bytes = size};
    NDP_TRY(ndp_node_segment_create(n, size, 1, &s->ref));
    NDP_TRY(ndp_node_memory_resolve(n, s->ref, &s->data));
    n->n_stages++;
    *out = s;
    return NDP_OK;
}

static ndp_status stage(void *node, size_t bytes, ndp_ref *ref, void **out) {
    ndp_node_stage *s = free_stage(node, bytes);
    if (!s)
        NDP_TRY(new_stage(node, bytes, &s));
    s->busy = true;
    *ref = s->ref;
    *out = s->data;
    return NDP_OK;
}

static void unstage(void *node, void *data) {
    ndp_node_memory *n = node;
    for (int64_t i = 0; i < n->n_stages; i++)
        if (n->stages[i].data == data) {
            n->stages[i].busy = false;
            if (n->stages[i].bytes > STAGE_KEEP_BYTES)
                return_pages(n, n->stages[i].ref.segment);
        }
}

/* ---- opening the file ---- */

static void begin(ndp_node_memory *n, int fd) {
    *n = (ndp_node_memory){.fd = fd};
    n->space = (ndp_space){
        .context = n, .locate = locate, .resolve = ndp_node_memory_resolve, .stage = stage, .unstage = unstage};
}

static ndp_status map_first_segments(ndp_node_memory *n) {
    void *health, *journals;
    NDP_TRY(ndp_node_memory_resolve(n, (ndp_ref){.segment = HEALTH}, &health));
    NDP_TRY(ndp_node_memory_resolve(n, (ndp_ref){.segment = JOURNALS}, &journals));
    n->health = health;
    n->journals = journals;
    return NDP_OK;
}

static ndp_status fill(ndp_node_memory *n, int world) {
    ndp_ref ref;
    size_t size = ndp_memory_round(sizeof(ndp_node_table));
    void *table;
    NDP_TRY(grow(n->fd, 0, size));
    NDP_TRY(ndp_memory_map(n->fd, 0, size, &table));
    n->table = table;
    n->table->token = (uint64_t)(ndp_now() * 1e9) ^ (uint64_t)getpid() << 40;
    n->table->world = world;
    atomic_store(&n->table->end, (int64_t)size);
    NDP_TRY(ndp_node_segment_create(n, ndp_health_bytes(world), world, &ref));
    NDP_TRY(ndp_node_segment_create(n, (size_t)world * sizeof(ndp_journal), world, &ref));
    NDP_TRY(map_first_segments(n));
    n->health->world = world;
    return NDP_OK;
}

ndp_status ndp_node_memory_create(ndp_node_memory *n, int world, ndp_node_address *out) {
    begin(n, memfd_create("ndparallel", MFD_CLOEXEC));
    if (n->fd < 0)
        return NDP_FAIL(errno == EMFILE || errno == ENFILE ? NDP_ENOMEM : NDP_ENOTSUP,
                        "cannot create a file of shared memory: %s%s", strerror(errno),
                        errno == EMFILE ? " (raise ulimit -n)" : "");
    ndp_status st = fill(n, world);
    if (st != NDP_OK) {
        ndp_node_memory_release(n);
        return st;
    }
    *out = (ndp_node_address){.pid = getpid(), .fd = n->fd, .token = n->table->token};
    return NDP_OK;
}

/* Checks the file before anything in it is used. */
static ndp_status check(ndp_node_memory *n, uint64_t token, int world) {
    struct stat info;
    void *table;
    size_t size = ndp_memory_round(sizeof(ndp_node_table));
    if (fstat(n->fd, &info) != 0)
        return NDP_FAIL(NDP_EINVAL, "descriptor %d is not the memory that ranks share: %s", n->fd, strerror(errno));
    NDP_CHECK(S_ISREG(info.st_mode) && (size_t)info.st_size > size, "descriptor %d is not the memory that ranks share",
              n->fd);
    NDP_TRY(ndp_memory_map(n->fd, 0, size, &table));
    n->table = table;
    NDP_CHECK(n->table->token == token && n->table->world == world,
              "descriptor %d is the memory of another world than this one of %d ranks", n->fd, world);
    return map_first_segments(n);
}

ndp_status ndp_node_memory_attach(ndp_node_memory *n, int fd, uint64_t token, int world) {
    begin(n, fd);
    ndp_status st = check(n, token, world);
    if (st != NDP_OK)
        ndp_node_memory_release(n);
    return st;
}

ndp_status ndp_node_memory_open(ndp_node_memory *n, const ndp_node_address *address, int world) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", address->pid, address->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    begin(n, fd);
    if (fd < 0)
        return NDP_FAIL(NDP_ENOTSUP, "cannot open the memory of process %d (%s): %s", address->pid, path,
                        strerror(errno));
    return ndp_node_memory_attach(n, fd, address->token, world);
}

void ndp_node_memory_release(ndp_node_memory *n) {
    for (int64_t s = 0; s < n->capacity; s++)
        ndp_memory_unmap(n->mappings[s].data, n->mappings[s].bytes);
    free(n->mappings);
    free(n->stages);
    free(n->ranges);
    ndp_memory_unmap(n->table, sizeof *n->table);
    if (n->fd >= 0)
        close(n->fd);
    *n = (ndp_node_memory){.fd = -1};
}
