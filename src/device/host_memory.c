/* The functions of devices that work on host memory. Every operation runs before its submission returns, so a queue
 * only names the context, and marks are empty. */
#include "device/device.h"

#include "base/clock.h"
#include "base/cpu.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct ndp_device_context {
    const ndp_memory_source *source;
};

struct ndp_queue {
    ndp_device_context *context;
};

ndp_status ndp_host_open(const ndp_device *d, const ndp_device_opts *opts, ndp_device_context **out) {
    ndp_device_context *c = calloc(1, sizeof *c);
    NDP_CHECK_MEMORY(c, "for the device %s", d->name);
    c->source = opts->source;
    *out = c;
    return NDP_OK;
}

void ndp_host_close(ndp_device_context *c) { free(c); }

static ndp_status map_private(size_t bytes, void **out) {
    void *data = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return NDP_FAIL(NDP_ENOMEM, "cannot map %zu bytes: %s", bytes, strerror(errno));
    *out = data;
    return NDP_OK;
}

ndp_status ndp_host_memory_map(ndp_device_context *c, size_t bytes, ndp_memory_kind kind, void **out) {
    bool shared = kind == NDP_MEMORY_DEVICE && c->source;
    return shared ? c->source->map(c->source->user, bytes, out) : map_private(bytes, out);
}

void ndp_host_memory_unmap(ndp_device_context *c, void *data, size_t bytes, ndp_memory_kind kind) {
    if (!data)
        return;
    if (kind == NDP_MEMORY_DEVICE && c->source)
        c->source->unmap(c->source->user, data, bytes);
    else
        munmap(data, bytes ? bytes : 1);
}

ndp_status ndp_host_queue_create(ndp_device_context *c, ndp_queue **out) {
    *out = malloc(sizeof **out);
    NDP_CHECK_MEMORY(*out, "for a queue");
    (*out)->context = c;
    return NDP_OK;
}

void ndp_host_queue_destroy(ndp_queue *q) { free(q); }

/* Strided copies: constant sizes let the compiler replace memcpy by a load and a store. */
static void copy_apart(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t rows) {
    for (size_t r = 0; r < rows; r++, to += to_pitch, from += from_pitch)
        switch (width) {
        case 2:
            memcpy(to, from, 2);
            break;
        case 4:
            memcpy(to, from, 4);
            break;
        case 8:
            memcpy(to, from, 8);
            break;
        default:
            memcpy(to, from, width);
        }
}

ndp_status ndp_host_copy(ndp_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                         size_t rows) {
    (void)q;
    if (width == 0 || rows == 0)
        return NDP_OK;
    if (rows == 1)
        memmove(to, from, width);
    else
        copy_apart(to, to_pitch, from, from_pitch, width, rows);
    return NDP_OK;
}

ndp_status ndp_host_mark(ndp_queue *q, ndp_mark *out) {
    (void)q;
    *out = (ndp_mark){0};
    return NDP_OK;
}

ndp_status ndp_host_after(ndp_queue *q, const ndp_mark *mark) {
    (void)q, (void)mark;
    return NDP_OK;
}

ndp_status ndp_host_drain(ndp_queue *q) {
    (void)q;
    return NDP_OK;
}

ndp_status ndp_host_passed(ndp_queue *q, const ndp_mark *mark, bool *out) {
    (void)q, (void)mark;
    *out = true;
    return NDP_OK;
}

ndp_status ndp_host_stamp_create(ndp_device_context *c, ndp_stamp *out) {
    (void)c;
    *out = (ndp_stamp){0};
    return NDP_OK;
}

void ndp_host_stamp_destroy(ndp_stamp *s) { (void)s; }

ndp_status ndp_host_stamp(ndp_queue *q, ndp_stamp *s) {
    (void)q;
    s->seconds = ndp_now();
    return NDP_OK;
}

ndp_status ndp_host_between(ndp_device_context *c, const ndp_stamp *from, const ndp_stamp *to, double *seconds) {
    (void)c;
    *seconds = to->seconds - from->seconds;
    return NDP_OK;
}

ndp_status ndp_host_memory(ndp_device_context *c, size_t *free, size_t *total) {
    (void)c;
    *free = *total = 0;
    return NDP_OK;
}

void ndp_host_full_name(ndp_device_context *c, char text[NDP_DEVICE_NAME]) {
    char name[NDP_CPU_NAME];
    (void)c;
    snprintf(text, NDP_DEVICE_NAME, "%s", ndp_cpu_name(name));
}
