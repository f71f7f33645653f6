/* Devices: kernels, their memory, and the queues they are submitted to.
 *
 * A device is a const table of functions; a context is one rank's use of it. Work is submitted to a queue and runs in
 * the order of submission. `cpu` (fast kernels) and `ref` (plain loops in fp64, the reference) run each operation
 * before the submission returns, so their queues are empty tokens and marks cost nothing. `null` only plans (a dry
 * run). A device loaded at run time supplies its own table. */
#ifndef NDP_DEVICE_DEVICE_H
#define NDP_DEVICE_DEVICE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ndp_op_call; /* ops/op.h */

typedef struct ndp_device_context ndp_device_context;
typedef struct ndp_queue ndp_queue;

/* A point in a queue: everything submitted before it. */
typedef struct ndp_mark {
    void *state; /* of the device; NULL where operations run immediately */
} ndp_mark;

/* A point in a queue whose time is known once the queue has reached it. Stamped again, it has the later time. */
typedef struct ndp_stamp {
    void *event;    /* of the device; NULL where operations run immediately */
    double seconds; /* there: the clock */
} ndp_stamp;

/* How a device runs an op. Kernels allocate nothing; the program plans their scratch memory. */
typedef struct ndp_kernel {
    ndp_status (*run)(const struct ndp_op_call *call);   /* submitted to call->queue */
    size_t (*scratch)(const struct ndp_op_call *shapes); /* bytes; NULL: none */
    ndp_status (*prepare)(struct ndp_op_call *shapes);   /* before the first run: sets shapes->plan; NULL: not needed */
} ndp_kernel;

typedef enum ndp_memory_kind {
    NDP_MEMORY_DEVICE, /* zeroed; kernels work on it */
    NDP_MEMORY_HOST    /* of the host, with fast copies to and from the device (pinned) */
} ndp_memory_kind;

/* A source of host memory that peers on this node can access in place (comm/comm.h). */
typedef struct ndp_memory_source {
    void *user;
    ndp_status (*map)(void *user, size_t bytes, void **out); /* zeroed */
    void (*unmap)(void *user, void *data, size_t bytes);
} ndp_memory_source;

typedef struct ndp_device_opts {
    int local_rank;                  /* among the ranks of this node */
    int node_ranks;                  /* how many ranks this node has; 0: one */
    bool share;                      /* several ranks may use one GPU */
    const ndp_memory_source *source; /* for devices that work on host memory; NULL: private memory. Borrowed */
} ndp_device_opts;

/* A sum of the same elements of several ranks, in rank order: for every o < outs and i < count
 * out[o][i] = ((in[0][i] + in[1][i]) + ...) + (accumulate ? out[0][i] : nothing). An `in` may be one of `out`. */
typedef struct ndp_rank_sum {
    int type; /* an ndp_dtype: fp32, fp64, i64, or bf16, summed in fp32 and rounded once */
    bool max; /* the maximum, in which a NaN stays */
    bool accumulate;
    int ranks, outs;              /* at most NDP_MOST_SUMMED each */
    void *const *in, *const *out; /* the device's addresses; read before the call returns */
    int64_t count;
} ndp_rank_sum;
enum { NDP_MOST_SUMMED = 128 };

enum { NDP_DEVICE_NAME = 256 };

typedef struct ndp_device {
    const char *name;
    bool executes;                    /* false: programs are built and planned, never run; nothing below is called */
    bool host_memory;                 /* the host may dereference NDP_MEMORY_DEVICE */
    bool fp64;                        /* its kernels compute in fp64 where operands are stored so */
    const ndp_kernel *const *kernels; /* by op (ops/op.h); NULL where the device has none */
    const char *(*variant)(void);     /* which of its sets of kernels this machine runs; NULL: there is one set */
    const void *user;                 /* of a device that wraps another one */

    ndp_status (*open)(const struct ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out);
    void (*close)(ndp_device_context *c);
    ndp_status (*memory_map)(ndp_device_context *c, size_t bytes, ndp_memory_kind kind, void **out);
    void (*memory_unmap)(ndp_device_context *c, void *data, size_t bytes, ndp_memory_kind kind);
    ndp_status (*queue_create)(ndp_device_context *c, ndp_queue **out);
    /* The same, for operations that others wait for: the device prefers it where work of several queues is ready. NULL:
     * it has none (ndp_urgent_queue_create). */
    ndp_status (*urgent_queue_create)(ndp_device_context *c, ndp_queue **out);
    void (*queue_destroy)(ndp_queue *q); /* its context may have been closed */
    /* Copies `rows` rows of `width` bytes that start `pitch` bytes apart. Either side may be memory of the device or of
     * the host; the caller leaves the host's unchanged until the queue is drained. */
    ndp_status (*copy)(ndp_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                       size_t rows);
    ndp_status (*mark)(ndp_queue *q, ndp_mark *out);
    /* Work submitted to `q` from now on runs after the mark, which may be in another queue of the context. */
    ndp_status (*after)(ndp_queue *q, const ndp_mark *mark);
    /* Waits until all submitted work has run; returns the error of the first operation that failed. */
    ndp_status (*drain)(ndp_queue *q);
    /* *out: everything before the mark has run. Does not wait. Errors as `drain`. */
    ndp_status (*passed)(ndp_queue *q, const ndp_mark *mark, bool *out);
    /* Stamps are for queues of the context. `stamp` is submitted, and allocates nothing. `between`: from one to the
     * other, in seconds by the device's clock; after both were reached, by a drain of their queues. */
    ndp_status (*stamp_create)(ndp_device_context *c, ndp_stamp *out);
    void (*stamp_destroy)(ndp_stamp *s); /* its context may have been closed */
    ndp_status (*stamp)(ndp_queue *q, ndp_stamp *s);
    ndp_status (*between)(ndp_device_context *c, const ndp_stamp *from, const ndp_stamp *to, double *seconds);
    /* Bytes of its memory that are free now, and all of it; *total 0: it works on the host's memory. */
    ndp_status (*memory)(ndp_device_context *c, size_t *free, size_t *total);
    /* What its driver, or the processor, says that it is: "NVIDIA H100 80GB HBM3"; "" where it does not. */
    void (*full_name)(ndp_device_context *c, char text[NDP_DEVICE_NAME]);
    /* Where on the PCI bus it is, for libraries that measure it; "" for all but the first rank of this node that uses
     * it. NULL: it works on the host's processors. */
    void (*bus_id)(ndp_device_context *c, char text[NDP_DEVICE_NAME]);

    /* For collectives on queues. `sum` is NULL where the host moves the data; collectives are staged then, unless
     * host_memory is true. */
    ndp_status (*sum)(ndp_queue *q, const ndp_rank_sum *s);
    /* Writes a word of NDP_MEMORY_HOST in the order of the queue, so that the host can see how far it is. NDP_ENOTSUP:
     * the GPU or its driver cannot; other work goes on. */
    ndp_status (*write_word)(ndp_queue *q, uint32_t *word, uint32_t value);
    void *(*stream)(ndp_queue *q); /* what a library of the device takes: CUDA's cudaStream_t */
    /* How many products of this process the device's library had no algorithm for, so that a slow kernel computed them;
     * writes what the first one was to `first`, if there is one. NULL: no product is that slow. */
    long (*plain_products)(char *first, size_t room);
} ndp_device;

static inline ndp_status ndp_urgent_queue_create(const ndp_device *d, ndp_device_context *c, ndp_queue **out) {
    return (d->urgent_queue_create ? d->urgent_queue_create : d->queue_create)(c, out);
}

/* How kernels sum. FAST: in any order of their choice. SPLIT: in two parts, as two ranks would, at one of NDP_SPLITS
 * places (ops/op.h). */
typedef enum ndp_sums { NDP_SUMS_FAST, NDP_SUMS_SPLIT } ndp_sums;

/* How ops are executed. Everything that lowers or runs a program holds a pointer to one. */
typedef struct ndp_exec {
    const ndp_device *device;
    int threads;
    ndp_sums sums;
    int split_place; /* NDP_SUMS_SPLIT: 1 .. NDP_SPLITS */
    bool share;      /* several ranks of a node may use one GPU */
    bool tf32;       /* GPUs may round the operands of fp32 products to 10 bits */
    bool staged;     /* collectives on a device work on copies in the host's memory (comm/staged.h) */
} ndp_exec;
/* Collectives work on copies in the host's memory, since the host cannot access the device's, and no queue moves it. */
static inline bool ndp_exec_stages(const ndp_exec *e) {
    return !e->device->host_memory && (e->staged || !e->device->sum);
}
/* Sums are split at `split_place`; 0: fast ones. */
static inline ndp_exec ndp_exec_of(const ndp_device *device, int threads, int split_place) {
    return (ndp_exec){device, threads, split_place ? NDP_SUMS_SPLIT : NDP_SUMS_FAST, split_place, false, false, false};
}

/* Initialisers: the functions of devices on host memory, for `cpu`, `ref` and `null`. */
#define NDP_HOST_DEVICE                                                                                                \
    .host_memory = true, .open = ndp_host_open, .close = ndp_host_close, .memory_map = ndp_host_memory_map,            \
    .memory_unmap = ndp_host_memory_unmap, .queue_create = ndp_host_queue_create,                                      \
    .queue_destroy = ndp_host_queue_destroy, .copy = ndp_host_copy, .mark = ndp_host_mark, .after = ndp_host_after,    \
    .drain = ndp_host_drain, .passed = ndp_host_passed, .stamp_create = ndp_host_stamp_create,                         \
    .stamp_destroy = ndp_host_stamp_destroy, .stamp = ndp_host_stamp, .between = ndp_host_between,                     \
    .memory = ndp_host_memory, .full_name = ndp_host_full_name
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
ndp_status ndp_host_passed(ndp_queue *q, const ndp_mark *mark, bool *out);
ndp_status ndp_host_stamp_create(ndp_device_context *c, ndp_stamp *out);
void ndp_host_stamp_destroy(ndp_stamp *s);
ndp_status ndp_host_stamp(ndp_queue *q, ndp_stamp *s);
ndp_status ndp_host_between(ndp_device_context *c, const ndp_stamp *from, const ndp_stamp *to, double *seconds);
ndp_status ndp_host_memory(ndp_device_context *c, size_t *free, size_t *total);
void ndp_host_full_name(ndp_device_context *c, char text[NDP_DEVICE_NAME]);

/* Defined in ops/, where their kernels are. `null` plans for `cpu`. ops/devices.h has all devices, by name. */
extern const ndp_device ndp_device_cpu, ndp_device_ref, ndp_device_null;
/* A device that plans for `d` and executes nothing. */
static inline ndp_device ndp_device_plan(const ndp_device *d) {
    ndp_device plan = *d;
    plan.executes = false;
    return plan;
}
/* Threads per rank if `ranks` share this node: usable cores / ranks, at least 1. */
int ndp_device_threads(int ranks);

#endif
