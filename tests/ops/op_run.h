/* Running a call of an op on a device. A program has one context and one queue of each device, and operands of a device
 * with memory of its own are copied there and back: into blocks that all calls use, or, with NDP_GPU_GUARD=1, each into
 * a piece of its own of exactly its bytes. */
#ifndef NDP_TESTS_OP_RUN_H
#define NDP_TESTS_OP_RUN_H

#include "check.h"
#include "device/cuda/cuda_load.h"
#include "ops/devices.h"
#include "ops/op.h"

#include <stdlib.h>

static inline void require_ok(ndp_status st) {
    if (st != NDP_OK)
        fail_msg("%s (%s)", ndp_error_message(), ndp_error_trail());
}

/* The device under test: NDP_TEST_DEVICE, or `cpu`. */
static inline const ndp_device *tested(void) {
    const char *name = getenv("NDP_TEST_DEVICE");
    const ndp_device *d = &ndp_device_cpu;
    if (name)
        require_ok(ndp_device_find(name, &d));
    return d;
}

/* NDP_TEST_SMALL: the smallest sizes only, for tools that slow kernels down. */
static inline bool small_sizes(void) { return getenv("NDP_TEST_SMALL") != NULL; }

/* ---- the program's context of a device ---- */

enum { MOST_PLACES = 4, MOST_BLOCKS = 40 };
typedef struct op_place {
    const ndp_device *device;
    const ndp_cuda_api *plugin; /* NULL: its memory is the host's */
    ndp_device_context *context;
    ndp_queue *queue;
    struct {
        char *data;
        size_t bytes, used;
    } blocks[MOST_BLOCKS]; /* each at least twice as large as the one before */
    int n_blocks;
} op_place;
static op_place op_places[MOST_PLACES];

static inline op_place *place_of(const ndp_device *d) {
    op_place *p = op_places;
    while (p < op_places + MOST_PLACES && p->device && p->device != d)
        p++;
    if (p == op_places + MOST_PLACES)
        fail_msg("a test program has at most %d devices", MOST_PLACES);
    if (p->device)
        return p;
    if (!d->host_memory)
        require_ok(ndp_cuda_load(strcmp(d->name, "cuda") != 0, true, &p->plugin));
    require_ok(d->open(d, &(ndp_device_opts){0}, &p->context));
    require_ok(d->queue_create(p->context, &p->queue));
    p->device = d;
    return p;
}

/* Of a place's blocks, for one call. 256-byte aligned. */
static inline void *room_for(op_place *p, size_t bytes) {
    enum { FIRST = 1 << 20 };
    size_t whole = (bytes + 255) / 256 * 256;
    int i = 0;
    while (i < p->n_blocks && p->blocks[i].used + whole > p->blocks[i].bytes)
        i++;
    if (i == p->n_blocks) {
        size_t size = i ? 2 * p->blocks[i - 1].bytes : FIRST;
        while (size < whole)
            size *= 2;
        if (i == MOST_BLOCKS)
            fail_msg("operands need more than %d blocks", MOST_BLOCKS);
        require_ok(p->device->memory_map(p->context, size, NDP_MEMORY_DEVICE, (void **)&p->blocks[i].data));
        p->blocks[i].bytes = size, p->blocks[i].used = 0;
        p->n_blocks++;
    }
    p->blocks[i].used += whole;
    return p->blocks[i].data + p->blocks[i].used - whole;
}

static inline void close_place(op_place *p) {
    for (int i = 0; i < p->n_blocks; i++)
        p->device->memory_unmap(p->context, p->blocks[i].data, p->blocks[i].bytes, NDP_MEMORY_DEVICE);
    p->device->queue_destroy(p->queue);
    p->device->close(p->context);
}

/* The last call of a program: closes what it opened. Its exit code, for `failures` of tests. */
static inline int end_of_ops(int failures) {
    for (op_place *p = op_places; p < op_places + MOST_PLACES && p->device; p++) {
        long opens = p->plugin ? p->plugin->opens() : 1;
        close_place(p);
        if (p->plugin)
            printf("contexts of %s: %ld\n", p->device->name, opens);
        if (opens > 1)
            fprintf(stderr, "this program opened %ld contexts of %s, and one is enough\n", opens, p->device->name);
        failures += opens > 1;
    }
    memset(op_places, 0, sizeof op_places);
    return failures;
}

/* ---- operands ---- */

/* Bytes of a view, its padding included, except after the last row. */
static inline size_t extent_of(const ndp_view *v) {
    return v->rows > 0 ? (size_t)((v->rows - 1) * v->ld + v->cols) * ndp_dtype_size(v->dtype) : 0;
}

/* Operands of a device whose memory is not the host's. Equal addresses stay equal, and their distances from multiples
 * of `alignment` stay. */
typedef struct staged_operands {
    op_place *place;
    bool guarded;
    size_t alignment;
    struct {
        void *host, *data;
        size_t bytes, shift;
    } items[NDP_OP_MAX_IN + NDP_OP_MAX_OUT + 1];
    int n;
} staged_operands;

static inline staged_operands staged_on(op_place *p) {
    bool guarded = p->plugin && p->plugin->guarded();
    for (int i = 0; i < p->n_blocks; i++)
        p->blocks[i].used = 0;
    return (staged_operands){.place = p, .guarded = guarded, .alignment = guarded ? 16 : 64};
}

static inline void stage_operand(staged_operands *s, ndp_view *v) {
    if (!v->data)
        return;
    for (int i = 0; i < s->n; i++)
        if (s->items[i].host == v->data) {
            v->data = s->items[i].data;
            return;
        }
    op_place *p = s->place;
    size_t bytes = extent_of(v), shift = (uintptr_t)v->data % s->alignment;
    void *data;
    if (s->guarded)
        require_ok(p->device->memory_map(p->context, bytes + shift, NDP_MEMORY_DEVICE, &data));
    else
        data = room_for(p, bytes + shift);
    data = (char *)data + shift;
    require_ok(p->device->copy(p->queue, data, bytes, v->data, bytes, bytes, 1));
    s->items[s->n].host = v->data, s->items[s->n].data = data;
    s->items[s->n].bytes = bytes, s->items[s->n++].shift = shift;
    v->data = data;
}

/* A kernel that wrote beside a guarded operand breaks the context when that is given back. */
static inline void unstage_operands(staged_operands *s, const ndp_op *op) {
    op_place *p = s->place;
    for (int i = 0; i < s->n; i++)
        require_ok(p->device->copy(p->queue, s->items[i].host, s->items[i].bytes, s->items[i].data, s->items[i].bytes,
                                   s->items[i].bytes, 1));
    require_ok(p->device->drain(p->queue));
    for (int i = 0; s->guarded && i < s->n; i++) {
        p->device->memory_unmap(p->context, (char *)s->items[i].data - s->items[i].shift,
                                s->items[i].bytes + s->items[i].shift, NDP_MEMORY_DEVICE);
        if (p->device->drain(p->queue) != NDP_OK)
            fail_msg("%s, operand %d: %s", op->name, i, ndp_error_message());
    }
}

/* ---- calls ---- */

/* Ops that ran in this program: on the reference, on another device. */
static bool op_ran[2][NDP_OP_COUNT];

/* Runs the call's op on the device of its exec, with exactly as much scratch memory as the kernel asks for, so that a
 * sanitizer sees one byte too many. */
static inline void run_call(ndp_op_call *call) {
    const ndp_device *d = call->exec->device;
    const ndp_kernel *kernel = d->kernels[call->op->id];
    if (!kernel)
        fail_msg("%s has no kernel on %s", call->op->name, d->name);
    op_place *p = place_of(d);
    staged_operands s = staged_on(p);
    call->queue = p->queue;
    size_t bytes = kernel->scratch ? kernel->scratch(call) : 0;
    ndp_view scratch = {.dtype = NDP_U8, .rows = 1, .cols = (int64_t)bytes, .ld = (int64_t)bytes};
    void *room = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    if (bytes)
        memset(room, 0xff, bytes);
    scratch.data = room;
    for (int i = 0; !d->host_memory && i < call->op->n_in; i++)
        stage_operand(&s, &call->in[i]);
    for (int i = 0; !d->host_memory && i < call->op->n_out; i++)
        stage_operand(&s, &call->out[i]);
    if (!d->host_memory)
        stage_operand(&s, &scratch);
    call->scratch = scratch.data;
    if (kernel->prepare)
        require_ok(kernel->prepare(call));
    require_ok(kernel->run(call));
    op_ran[d != &ndp_device_ref][call->op->id] = true;
    unstage_operands(&s, call->op);
    free(room);
}

#endif
