/* What a device reaches: matrix products, attention, memory and the calls themselves, measured with the kernels that
 * training uses; and the facts and efficiencies of a cluster that fit the measurements. */
#ifndef NDP_MEASURE_MEASURE_DEVICE_H
#define NDP_MEASURE_MEASURE_DEVICE_H

#include "cluster/cluster.h"
#include "device/device.h"

typedef enum ndp_timing_kind {
    NDP_TIMING_CALL,     /* the smallest op, over and over */
    NDP_TIMING_MEMORY,   /* an op by elements, on matrices of m rows and k columns, far larger than caches */
    NDP_TIMING_PRODUCT,  /* of a layer with weight [n,k], for m rows: y, dx or dw */
    NDP_TIMING_ATTENTION /* forward and backward of m rows, causal, n heads of k columns */
} ndp_timing_kind;
enum { NDP_TIMING_KINDS = NDP_TIMING_ATTENTION + 1 };

typedef struct ndp_timing {
    char name[64]; /* "linear_dx 1024 x 2048 x 512, bf16" */
    ndp_timing_kind kind;
    ndp_rate_type type;
    int64_t m, n, k;
    int calls;      /* of ops: of attention two */
    double flops;   /* of attention those of pairs that see each other */
    double bytes;   /* of operands, each once: read or written */
    double seconds; /* of all of it, the best of several repetitions */
    double rate;    /* flop/s; MEMORY: bytes/s; CALL: calls/s */
} ndp_timing;

enum { NDP_MOST_TIMINGS = 64 };
typedef struct ndp_timings {
    int n;
    ndp_timing of[NDP_MOST_TIMINGS];
    double memory_bytes; /* free before anything is measured: of the device, or of the host that it works on */
    int multiprocessors; /* threads of a device on the host; 0: not known */
    bool host;           /* processors measured it: host_share.h holds */
    char full_name[NDP_DEVICE_NAME]; /* as device/device.h has it */
} ndp_timings;

/* Measures a device within about `budget` seconds (NDP_MEASURE_SECONDS is enough for facts that are to be kept).
 *
 * Each measurement has a share of the seconds that are left, products and attention in fp32 and in bf16. It takes at
 * least four runs. If these would take longer than the share, by the best rate so far of the kind and type, or if the
 * operands need more than a quarter of the memory, then the shape is halved until they do not: of a product m, n and k
 * in turn, down to 64; of attention the heads, down to 4, then the rows, down to 64, then the heads, down to 1; of
 * memory the rows, down to 16. A shape that has been measured already is skipped, and so is one whose op the device
 * lacks. The smallest shapes are always measured, so very slow devices take longer than `budget`.
 *
 * Opens the device for itself, as `opts` says; NULL: the first one. NDP_EINVAL: the device executes nothing. Its errors
 * are passed on. */
enum { NDP_MEASURE_SECONDS = 4 };
NDP_API ndp_status ndp_measure_device(const ndp_exec *exec, const ndp_device_opts *opts, double budget,
                                      ndp_timings *out);

/* ---- the fit (fit_device.c) ----
 *
 * Of each type, flops is the best rate of all products and attention (on processors that which large ones would reach,
 * by host_share.h, which then is in no share); matmul and attention are the medians of the
 * shares of it that they reach, over all types. memory_bandwidth and memory are the same of the rates of memory.
 * Rates of products and attention are those of the seconds without `call_seconds` of each call, but of at least half of
 * the seconds. `facts`: links and nics stay as they are; `e`: likewise.
 *
 * NDP_EINVAL: calls, memory, products or attention were not measured, or a measurement is not a positive number. */
NDP_API ndp_status ndp_fit_device(const ndp_timings *measures, ndp_device_facts *facts, ndp_efficiency *e,
                                  ndp_str *misses);
/* By the fit: flops / (rate x efficiency) + calls x call_seconds, or bytes / (memory_bandwidth x efficiency), whichever
 * is longer. */
double ndp_fit_seconds(const ndp_timing *m, bool host, const ndp_device_facts *facts, const ndp_efficiency *e);

/* The facts of this host's `cpu` with so many threads, measured in less than a second; links and nics stay as they
 * are. */
NDP_API ndp_status ndp_measure_cpu(int threads, ndp_device_facts *facts, ndp_efficiency *e);

/* Measures this host's processor where the device is `cpu` and its numbers are not known, in less than a second, once
 * in a process for each number of threads. Does nothing for other devices. */
NDP_API ndp_status ndp_cluster_complete(ndp_cluster *c);

#endif
