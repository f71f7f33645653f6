/* What calls cost in seconds, on some machine: the stage cut, the simulator and plans are sums of prices. A call has
 * its operations and bytes (call.h); a price makes seconds of them. */
#ifndef NDP_GRAPH_PRICE_H
#define NDP_GRAPH_PRICE_H

#include "graph/lower.h"

/* Seconds >= 0. `kernel` is asked for kernel calls, `comm` for the begin of a collective or message in `group`; both
 * sides of a message get the same price. */
typedef struct ndp_price {
    double (*kernel)(const void *user, const ndp_call *call);
    double (*comm)(const void *user, const ndp_call *call, const ndp_group *group);
    const void *user;
} ndp_price;

/* Rates that stand for a machine, in operations and bytes per second: of the processor, of its memory, of what leaves
 * the rank; `latency`: seconds of each communication. */
typedef struct ndp_rates {
    double flops, bytes, sent, latency;
} ndp_rates;
/* Stands for any machine where costs are compared with each other. */
#define NDP_RATES_INIT ((ndp_rates){1e12, 5e10, 1e10, 1e-5})

/* A kernel takes the longer of its operations and its bytes; a communication its latency and the bytes that leave the
 * rank, so gathers in memory that ranks share cost only latency, and a group of one rank nothing. `rates` is borrowed.
 */
NDP_API ndp_price ndp_price_by_rates(const ndp_rates *rates);

/* The sum over a list, one call after the other, those of a range as often as it is executed at most: communications of
 * the groups of `mesh` do not overlap. */
NDP_API double ndp_list_price(const ndp_list *list, const ndp_price *price, const ndp_mesh *mesh);

/* Bytes that a communication moves out of a rank, each counted once (ring or direct algorithm); those of a receive come
 * in; 0 for gathers in place and in a group of one rank. */
double ndp_call_moved(const ndp_call *c, int ranks);

#endif
