/* What is asked of the routers of a model, beside the loss of tokens (ops/router_losses.c). */
#ifndef NDP_OPS_ROUTER_LOSSES_H
#define NDP_OPS_ROUTER_LOSSES_H

/* What keeps experts evenly used; AUTO: what the model's configuration says. */
typedef enum ndp_balance { NDP_BALANCE_AUTO, NDP_BALANCE_NONE, NDP_BALANCE_SEQUENCE } ndp_balance;

typedef struct ndp_router_opts {
    ndp_balance balance;
    double balance_coef; /* of the balance loss of each layer; 0: what the configuration says */
    double z_loss;       /* of the z-loss of each layer; 0: none */
    double bias_rate;    /* of the bias that is added where experts are chosen, after each update; 0: it stays */
} ndp_router_opts;

/* Columns of the losses. */
enum { NDP_ROUTER_BALANCE, NDP_ROUTER_Z, NDP_ROUTER_LOSSES };

#endif
