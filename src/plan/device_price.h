/* What the calls of a step cost on the devices and links of a cluster: one row for each kind of call, each with what
 * its data sheet says and the share of it that such calls reach. Inside plan. */
#ifndef NDP_PLAN_DEVICE_PRICE_H
#define NDP_PLAN_DEVICE_PRICE_H

#include "plan/cluster_plan.h"
#include "step/simulate.h"

/* What data sheets do not say, and a cluster's `efficiency` neither. All of it is 0 on processors, whose calls are
 * measured as they run. */
typedef struct ndp_price_facts {
    double ramp;      /* terms of a product's sums at which it reaches half of its rate */
    double queries;   /* keys that a query sees on average at which attention reaches half of its rate */
    double head;      /* columns of a head at which it does */
    double backward;  /* the rate of attention's backward, of that of its forward */
    double call;      /* of call_seconds, what kernels that are queued ahead of time still pay */
    double beside;    /* kernels are so much slower while something moves */
    double fixed;     /* seconds of a step outside its program: the host reads the loss and hands over the next batch */
    double fp8_share; /* of efficiency.matmul, what products in fp8 reach */
    double fp8_casts; /* bytes moved for each element that enters a product in fp8 */
} ndp_price_facts;
extern const ndp_price_facts ndp_price_of_gpus;

enum { NDP_KNOWN_PRICES = 1 << 13 };
typedef struct ndp_priced_call {
    const ndp_call *call;
    double seconds;
} ndp_priced_call;

/* Prices of one job on a cluster. `links` is not const: it keeps the links of groups that were asked for. */
typedef struct ndp_device_price {
    ndp_cluster_plan *links;
    const ndp_price_facts *facts;
    bool gpu;
    int64_t rows, length;            /* of a micro-batch; of a sample */
    bool fp8;                        /* products of blocks are */
    double gradient_bytes, tp_bytes; /* of what sums of gradients and over tp send, the part that is sent */
    ndp_priced_call *known;          /* NDP_KNOWN_PRICES prices of calls, by their addresses */
} ndp_device_price;

/* `links` is borrowed. NDP_ENOMEM. The caller releases it, unless this fails. */
ndp_status ndp_device_price_init(const ndp_dry_run *d, ndp_cluster_plan *links, ndp_device_price *out);
/* Forgets the prices of calls, whose programs are gone. */
void ndp_device_price_forget(const ndp_device_price *p);
void ndp_device_price_release(ndp_device_price *p);

/* What a kernel is bound by. */
typedef enum ndp_kernel_kind { NDP_KERNEL_MATMUL, NDP_KERNEL_ATTENTION, NDP_KERNEL_MEMORY } ndp_kernel_kind;
ndp_kernel_kind ndp_op_kernel_kind(int op); /* an ndp_op_id, of no collective */
ndp_kernel_kind ndp_kernel_kind_of(const ndp_call *c);

/* Floating point operations of a kernel: of attention, those of the pairs that samples of the job's length have. */
double ndp_priced_flops(const ndp_device_price *p, const ndp_call *c);
/* What every kernel pays before it computes. */
double ndp_priced_launch(const ndp_device_price *p);

/* Bytes that a communication sends out of the rank. */
double ndp_priced_bytes(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_call *c);

/* Seconds of a kernel (`block`: of a unit's list); of a communication where it has its links for itself. */
double ndp_device_kernel(const ndp_device_price *p, bool block, const ndp_call *c);
double ndp_device_comm(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_call *c);

/* For ndp_step_costs, with `user` an ndp_device_price: one or the other. */
double ndp_device_seconds(const void *user, const ndp_program *program, const ndp_instr *in, const ndp_call *call);
/* The links of its group; NULL: it has none. */
const ndp_group_links *ndp_priced_links(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_call *c);
/* All of it, for ndp_simulate; `p` is borrowed. */
ndp_step_costs ndp_device_costs(const ndp_device_price *p);
/* How long a communication keeps each level of links busy. */
void ndp_priced_busy(const ndp_device_price *p, const ndp_mesh *mesh, const ndp_call *c, double busy[NDP_BUSY_LINKS]);
void ndp_device_links(const void *user, const ndp_program *program, const ndp_call *call, double busy[NDP_BUSY_LINKS]);

#endif
