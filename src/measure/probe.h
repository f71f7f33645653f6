/* Measuring links between pairs of ranks, by messages of a communicator of the host. */
#ifndef NDP_MEASURE_PROBE_H
#define NDP_MEASURE_PROBE_H

#include "comm/comm.h"

/* Two ranks, and what the link between them does: seconds of a small message one way, bytes/s of a large one each way
 * while both send. */
typedef struct ndp_probe {
    int a, b;
    double latency, to_a, to_b;
    double core; /* the share of a core that the two ranks had, the smaller one: below 1 where others run */
} ndp_probe;

typedef struct ndp_probe_opts {
    double seconds; /* that the large message lasts at least, if `most` bytes do */
    int64_t most;
    double nap;  /* seconds that ranks without a link sleep: they would take cores from the others by waiting */
    int repeats; /* of it, at least 1, of which the median counts: the best would be above what there is */
} ndp_probe_opts;

/* Measures all of `probes` at once; no rank is in two of them. A message grows until it lasts long enough: what a
 * switch lets pass at once must not count. Only rank `a` of a pair knows its results afterwards (ndp_probes_share).
 * Collective over the communicator. NDP_ENOMEM, NDP_ECOMM. */
NDP_API ndp_status ndp_probes_run(ndp_comm *c, ndp_probe *probes, int n, const ndp_probe_opts *o);
/* Gives all ranks the results. Collective; each probe was measured once. */
NDP_API ndp_status ndp_probes_share(ndp_comm *c, ndp_probe *probes, int n);

#endif
