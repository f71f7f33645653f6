/* Devices: which kernels run, where their memory is, and the queue they are submitted to.
 *
 * A device is a const table of functions; a context is one rank's hold on it. Work is submitted to a queue and runs in
 * the order of submission. `cpu` (fast kernels) and `ref` (plain loops in fp64, the reference) run each operation
 * before the submission returns, so their queues are empty tokens and marks cost nothing. `null` plans and never runs
 * (a dry run). A device loaded at run time fills in a table of its own.
 */
#ifndef NDP_DEVICE_DEVICE_H
#define NDP_DEVICE_DEVICE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct ndp_op_call; /* ops/op.h */

typedef struct ndp_device_context ndp_device_context;
typedef struct ndp_queue ndp_queue;

/* A point in a queue: all that was submitted before it. */
typedef struct ndp_mark {
    void *state; /* the device's; NULL where operations run at once */
} ndp_mark;

/* How a device runs an op. Kernels allocate nothing: they get scratch memory, whose size is known beforehand. */
typedef struct ndp_kernel {
    ndp_status (*run)(const struct ndp_op_call *call);   /* submitted to call->queue */
    size_t (*scratch)(const struct ndp_op_call *shapes); /* bytes; NULL: none */
    ndp_status (*prepare)(struct ndp_op_call *shapes);   /* makes shapes->plan before any run; NULL: not needed */
} ndp_kernel;

typedef enum ndp_memory_kind {
    NDP_MEMORY_DEVICE, /* zeroed; what kernels work on */
    NDP_MEMORY_HOST    /* the host's, from which copies are fast (pinned) */
} ndp_memory_kind;

/* Host memory whose pages the peers on this node can read where they are (comm/comm.h). */
typedef struct ndp_memory_source {
    void *user;
    ndp_status (*map)(void *user, size_t bytes, void **out); /* zeroed */
    void (*unmap)(void *user, void *data, size_t bytes);
} ndp_memory_source;

typedef struct ndp_device_opts {
    int local_rank;                  /* among the ranks of this node */
    const ndp_memory_source *source; /* of host memory, for devices that work on it; NULL: private memory. Borrowed */
} ndp_device_opts;

typedef struct ndp_device {
    const char *name;
    bool executes;                    /* false: programs are built and planned, never run; nothing below is called */
    bool host_memory;                 /* the host may follow the addresses of NDP_MEMORY_DEVICE */
    bool fp64;                        /* its kernels compute in fp64 where operands are stored so */
    const ndp_kernel *const *kernels; /* by op (ops/op.h); NULL where the device has none */
    const char *(*variant)(void);     /* which of its sets of kernels this machine runs; NULL: there is one set */
    const void *user;                 /* of a device that wraps another one */

    ndp_status (*open)(const struct ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out);
    void (*close)(ndp_device_context *c);
    ndp_status (*memory_map)(ndp_device_context *c, size_t bytes, ndp_memory_kind kind, void **out);
    void (*memory_unmap)(ndp_device_context *c, void *data, size_t bytes, ndp_memory_kind kind);
    ndp_status (*queue_create)(ndp_device_context *c, ndp_queue **out);
    void (*queue_destroy)(ndp_queue *q);
    /* Copies `rows` rows of `width` bytes, which begin `pitch` bytes apart. Either side may be memory of the device or
     * of the host; the host's is left alone until the queue is drained. */
    ndp_status (*copy)(ndp_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                       size_t rows);
    ndp_status (*mark)(ndp_queue *q, ndp_mark *out);
    /* What is submitted to `q` from now on runs after the mark, which may be of another queue of the context. */
    ndp_status (*after)(ndp_queue *q, const ndp_mark *mark);
    /* Waits until all that was submitted has run; the error of the first operation that failed. */
    ndp_status (*drain)(ndp_queue *q);
} ndp_device;

/* How sums are made. FAST: as kernels like. SPLIT: in two parts, as ranks would, at one of NDP_SPLITS places
 * (ops/op.h). */
typedef enum ndp_sums { NDP_SUMS_FAST, NDP_SUMS_SPLIT } ndp_sums;

/* How ops are executed: held by pointer by all that lowers or runs a program. */
typedef struct ndp_exec {
    const ndp_device *device;
    int threads;
    ndp_sums sums;
    int split_place; /* NDP_SUMS_SPLIT: 1 .. NDP_SPLITS */
} ndp_exec;

/* The device functions of the host's own memory, which `cpu`, `ref` and `null` share: initialisers of a device. */
#define NDP_HOST_DEVICE                                                                                                \
    .host_memory = true, .open = ndp_host_open, .close = ndp_host_close, .memory_map = ndp_host_memory_map,            \
    .memory_unmap = ndp_host_memory_unmap, .queue_create = ndp_host_queue_create,                                      \
    .queue_destroy = ndp_host_queue_destroy, .copy = ndp_host_copy, .mark = ndp_host_mark, .after = ndp_host_after,    \
    .drain = ndp_host_drain
ndp_status ndp_host_open(const ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out);
void ndp_host_close(ndp_device_context *c);
ndp_status ndp_host_memory_map(ndp_device_context *c, size_t bytes, ndp_memory_kind kind, void **out);
void ndp_host_memory_unmap(ndp_device_context *c, void *data, size_t bytes, ndp_memory_kind kind);
ndp_status ndp_host_queue_create(ndp_device_context *c, ndp_queue **out);
void ndp_host_queue_destroy(ndp_queue *q);
ndp_status ndp_host_copy(ndp_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                         size_t rows);
ndp_status ndp_host_mark(ndp_queue *q, ndp_mark *out);
ndp_status ndp_host_after(ndp_queue *q, const ndp_mark *mark);
ndp_status ndp_host_drain(ndp_queue *q);

/* Defined in ops/, where their kernels are. */
extern const ndp_device ndp_device_cpu, ndp_device_ref, ndp_device_null;
/* The devices that execute, and their names, NULL at the end: what a user can choose from. */
extern const ndp_device *const ndp_devices[];
extern const char *const ndp_device_names[];
/* The device of that name. NDP_EINVAL: there is none; the message has the names. */
NDP_API ndp_status ndp_device_find(const char *name, const ndp_device **out);

/* Threads of a rank when `ranks` share this node: usable cores / ranks, at least 1. */
int ndp_device_threads(int ranks);

#endif
