/* The guard of guard_device.h. Invariant: while no kernel and no copy of a rank runs (its `running` is 0), every range
 * of that rank is PROT_NONE, and else readable and writable; the lock covers the lists, the counts and the protection.
 */
#include "guard_device.h"

#include "base/arena.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct guard_range {
    char *data;
    size_t bytes;
} guard_range;

enum { MOST_RANKS = 64 };

/* What the contexts of a rank have. */
typedef struct guard_rank {
    guard_range *ranges;
    int n;
    int64_t capacity;
    int running; /* kernels and copies */
} guard_rank;

typedef struct guard {
    ndp_device device; /* first: a guard is its device */
    const ndp_device *inner;
    ndp_kernel kernels[NDP_OP_COUNT];
    const ndp_kernel *table[NDP_OP_COUNT];
    pthread_mutex_t lock;
    guard_rank ranks[MOST_RANKS]; /* by their places on the node */
} guard;

typedef struct guard_context {
    guard *guard;
    guard_rank *rank;
    ndp_device_context *inner;
} guard_context;

typedef struct guard_queue {
    guard *guard;
    guard_rank *rank;
    ndp_queue *inner;
} guard_queue;

/* ---- opening and closing the memory ---- */

static ndp_status protect(const guard_range *r, int protection) {
    if (mprotect(r->data, r->bytes ? r->bytes : 1, protection) != 0)
        return NDP_FAIL(NDP_EBUG, "guard: cannot protect %zu bytes at %p: %s", r->bytes, (void *)r->data,
                        strerror(errno));
    return NDP_OK;
}

/* Adds `change` to the rank's kernels and copies that run; the first one opens its memory, the last one closes it. */
static ndp_status count_running(const guard_queue *q, int change) {
    guard_rank *r = q->rank;
    ndp_status st = NDP_OK;
    pthread_mutex_lock(&q->guard->lock);
    int before = r->running;
    r->running += change;
    if (before == 0 || r->running == 0)
        for (int i = 0; i < r->n && st == NDP_OK; i++)
            st = protect(&r->ranges[i], r->running ? PROT_READ | PROT_WRITE : PROT_NONE);
    pthread_mutex_unlock(&q->guard->lock);
    return st;
}

/* Closes the memory after an operation of the wrapped device, which returned `st`. */
static ndp_status finish(const guard_queue *q, ndp_status st) {
    if (st == NDP_OK)
        st = q->guard->inner->drain(q->inner);
    ndp_status closed = count_running(q, -1);
    return st == NDP_OK ? closed : st;
}

/* ---- kernels ---- */

static bool guards(const guard_rank *r, const void *data) {
    bool found = false;
    for (int i = 0; i < r->n && !found; i++)
        found = (const char *)data >= r->ranges[i].data && (const char *)data < r->ranges[i].data + r->ranges[i].bytes;
    return found;
}

static ndp_status check_address(const ndp_op_call *c, const char *what, int number, const void *data) {
    const guard_queue *q = (const guard_queue *)c->queue;
    pthread_mutex_lock(&q->guard->lock);
    bool known = !data || guards(q->rank, data);
    pthread_mutex_unlock(&q->guard->lock);
    return known ? NDP_OK
                 : NDP_FAIL(NDP_EBUG, "guard: %s %d of %s, at %p, is not memory of the rank's device", what, number,
                            c->op->name, data);
}

static ndp_status check_operands(const ndp_op_call *c) {
    for (int i = 0; i < c->op->n_in; i++)
        NDP_TRY(check_address(c, "input", i, c->in[i].data));
    for (int i = 0; i < c->op->n_out; i++)
        NDP_TRY(check_address(c, "output", i, c->out[i].data));
    return check_address(c, "scratch", 0, c->scratch);
}

static ndp_status run_kernel(const ndp_op_call *c) {
    const guard_queue *q = (const guard_queue *)c->queue;
    const ndp_device *inner = q->guard->inner;
    ndp_exec exec = *c->exec;
    ndp_op_call call = *c;
    exec.device = inner;
    call.exec = &exec;
    call.queue = q->inner;
    NDP_TRY(check_operands(c));
    NDP_TRY(count_running(q, 1));
    return finish(q, inner->kernels[c->op->id]->run(&call));
}

/* ---- contexts and their memory ---- */

/* Without the source of memory that peers work on in place: there are none. */
static ndp_status guard_open(const ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out) {
    guard *g = (guard *)d->user;
    NDP_CHECK(opts->local_rank < MOST_RANKS, "a guard for rank %d; %d at most", opts->local_rank, MOST_RANKS);
    guard_context *c = malloc(sizeof *c);
    if (!c)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for the device %s", d->name);
    ndp_device_opts own = *opts;
    own.source = NULL;
    c->guard = g;
    c->rank = &g->ranks[opts->local_rank];
    ndp_status st = g->inner->open(g->inner, &own, &c->inner);
    if (st == NDP_OK)
        *out = (ndp_device_context *)c;
    else
        free(c);
    return st;
}

static void guard_close(ndp_device_context *context) {
    guard_context *c = (guard_context *)context;
    c->guard->inner->close(c->inner);
    free(c);
}

/* Adds a range to the list, closed unless a kernel of another thread runs. */
static ndp_status add_range(const guard_context *c, void *data, size_t bytes) {
    guard_rank *r = c->rank;
    pthread_mutex_lock(&c->guard->lock);
    ndp_status st = ndp_array_reserve(&r->ranges, &r->capacity, r->n + 1, sizeof *r->ranges);
    if (st == NDP_OK) {
        r->ranges[r->n] = (guard_range){data, bytes};
        st = r->running ? NDP_OK : protect(&r->ranges[r->n], PROT_NONE);
        r->n += st == NDP_OK;
    }
    pthread_mutex_unlock(&c->guard->lock);
    return st;
}

static void remove_range(const guard_context *c, const void *data) {
    guard_rank *r = c->rank;
    pthread_mutex_lock(&c->guard->lock);
    for (int i = 0; i < r->n; i++)
        if (r->ranges[i].data == data)
            r->ranges[i] = r->ranges[--r->n];
    pthread_mutex_unlock(&c->guard->lock);
}

static ndp_status guard_memory_map(ndp_device_context *context, size_t bytes, ndp_memory_kind kind, void **out) {
    guard_context *c = (guard_context *)context;
    void *data;
    NDP_TRY(c->guard->inner->memory_map(c->inner, bytes, kind, &data));
    ndp_status st = kind == NDP_MEMORY_DEVICE ? add_range(c, data, bytes) : NDP_OK;
    if (st == NDP_OK)
        *out = data;
    else
        c->guard->inner->memory_unmap(c->inner, data, bytes, kind);
    return st;
}

static void guard_memory_unmap(ndp_device_context *context, void *data, size_t bytes, ndp_memory_kind kind) {
    guard_context *c = (guard_context *)context;
    if (data && kind == NDP_MEMORY_DEVICE)
        remove_range(c, data);
    c->guard->inner->memory_unmap(c->inner, data, bytes, kind);
}

/* ---- queues ---- */

static ndp_status guard_queue_create(ndp_device_context *context, ndp_queue **out) {
    guard_context *c = (guard_context *)context;
    guard_queue *q = malloc(sizeof *q);
    if (!q)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a queue");
    q->guard = c->guard;
    q->rank = c->rank;
    ndp_status st = c->guard->inner->queue_create(c->inner, &q->inner);
    if (st == NDP_OK)
        *out = (ndp_queue *)q;
    else
        free(q);
    return st;
}

static void guard_queue_destroy(ndp_queue *queue) {
    guard_queue *q = (guard_queue *)queue;
    q->guard->inner->queue_destroy(q->inner);
    free(q);
}

static ndp_status guard_copy(ndp_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                             size_t width, size_t rows) {
    guard_queue *q = (guard_queue *)queue;
    NDP_TRY(count_running(q, 1));
    return finish(q, q->guard->inner->copy(q->inner, to, to_pitch, from, from_pitch, width, rows));
}

static ndp_status guard_mark(ndp_queue *queue, ndp_mark *out) {
    guard_queue *q = (guard_queue *)queue;
    return q->guard->inner->mark(q->inner, out);
}

static ndp_status guard_after(ndp_queue *queue, const ndp_mark *mark) {
    guard_queue *q = (guard_queue *)queue;
    return q->guard->inner->after(q->inner, mark);
}

static ndp_status guard_drain(ndp_queue *queue) {
    guard_queue *q = (guard_queue *)queue;
    return q->guard->inner->drain(q->inner);
}

static ndp_status guard_passed(ndp_queue *queue, const ndp_mark *mark, bool *out) {
    guard_queue *q = (guard_queue *)queue;
    return q->guard->inner->passed(q->inner, mark, out);
}

static ndp_status guard_stamp_create(ndp_device_context *context, ndp_stamp *out) {
    guard_context *c = (guard_context *)context;
    return c->guard->inner->stamp_create(c->inner, out);
}

static ndp_status guard_stamp(ndp_queue *queue, ndp_stamp *s) {
    guard_queue *q = (guard_queue *)queue;
    return q->guard->inner->stamp(q->inner, s);
}

static ndp_status guard_between(ndp_device_context *context, const ndp_stamp *from, const ndp_stamp *to,
                                double *seconds) {
    guard_context *c = (guard_context *)context;
    return c->guard->inner->between(c->inner, from, to, seconds);
}

static ndp_status guard_memory(ndp_device_context *c, size_t *free, size_t *total) {
    (void)c;
    *free = *total = 0;
    return NDP_OK;
}

/* ---- the device ---- */

/* The wrapped kernels, by way of run_kernel. */
static void wrap_kernels(guard *g) {
    for (int i = 0; i < NDP_OP_COUNT; i++) {
        if (!g->inner->kernels[i])
            continue;
        g->kernels[i] = *g->inner->kernels[i];
        g->kernels[i].run = run_kernel;
        g->table[i] = &g->kernels[i];
    }
}

ndp_status ndp_guard_create(const ndp_device *inner, ndp_device **out) {
    if (!inner->executes || !inner->host_memory)
        return NDP_FAIL(NDP_EBUG, "a guard around %s: it runs no kernels or its memory is not the host's", inner->name);
    guard *g = calloc(1, sizeof *g);
    if (!g)
        return NDP_FAIL(NDP_ENOMEM, "not enough memory for a guard");
    g->inner = inner;
    pthread_mutex_init(&g->lock, NULL);
    wrap_kernels(g);
    g->device = (ndp_device){.name = "guard",
                             .executes = true,
                             .kernels = g->table,
                             .user = g,
                             .open = guard_open,
                             .close = guard_close,
                             .memory_map = guard_memory_map,
                             .memory_unmap = guard_memory_unmap,
                             .queue_create = guard_queue_create,
                             .queue_destroy = guard_queue_destroy,
                             .copy = guard_copy,
                             .mark = guard_mark,
                             .after = guard_after,
                             .drain = guard_drain,
                             .passed = guard_passed,
                             .stamp_create = guard_stamp_create,
                             .stamp_destroy = inner->stamp_destroy,
                             .stamp = guard_stamp,
                             .between = guard_between,
                             .memory = guard_memory,
                             .full_name = ndp_host_full_name};
    *out = &g->device;
    return NDP_OK;
}

void ndp_guard_destroy(ndp_device *device) {
    guard *g = (guard *)device;
    if (!g)
        return;
    pthread_mutex_destroy(&g->lock);
    for (int i = 0; i < MOST_RANKS; i++)
        free(g->ranks[i].ranges);
    free(g);
}
