/* For measure_device.c: one shape as calls of ops, and their time on a device. */
#ifndef NDP_MEASURE_MEASURE_CALLS_H
#define NDP_MEASURE_MEASURE_CALLS_H

#include "measure/measure_device.h"
#include "ops/op.h"

/* ---- shapes (measure_calls.c) ---- */

typedef struct ndp_timed_shape {
    ndp_timing_kind kind;
    const ndp_op *op; /* attention: its forward */
    ndp_dtype type;
    int64_t m, n, k; /* as in ndp_timing */
    int halved;      /* of a product: how many sizes were tried */
} ndp_timed_shape;

enum { NDP_TIMING_CALLS = 2 };
/* The calls of a shape; their attributes are the struct's, so it stays where it is. */
typedef struct ndp_timed_calls {
    ndp_op_attr attr;
    int n;
    ndp_op_call call[NDP_TIMING_CALLS];
    double flops, bytes;
} ndp_timed_calls;

/* Operands without data, and what they cost. */
ndp_status ndp_timed_calls_of(const ndp_timed_shape *s, const ndp_exec *exec, ndp_timed_calls *out);
/* The next smaller shape; false: it is the smallest. */
bool ndp_timed_halve(ndp_timed_shape *s);

/* ---- runs (measure_run.c) ---- */

enum { NDP_TIMING_OPERANDS = 24 };
typedef struct ndp_timing_run {
    const ndp_device *device;
    ndp_device_context *context;
    ndp_queue *queue;
    ndp_stamp from, to;
    void *pattern; /* random numbers of the host */
    struct {
        void *data;
        size_t bytes;
    } mapped[NDP_TIMING_OPERANDS];
    int n_mapped;
} ndp_timing_run;

/* Opens the device. The caller closes it, also when this fails. */
ndp_status ndp_timing_run_open(const ndp_exec *exec, const ndp_device_opts *opts, ndp_timing_run *out);
void ndp_timing_run_close(ndp_timing_run *r);
/* Gives the operands memory, runs the calls at least four times and until about `share` seconds are over, and takes the
 * memory back. *seconds: of the calls together, the best repetition. */
ndp_status ndp_timing_run_calls(ndp_timing_run *r, ndp_timed_calls *calls, double share, double *seconds);
/* Whether the device has kernels for all of them. */
bool ndp_timing_can_run(const ndp_timing_run *r, const ndp_timed_calls *calls);

#endif
