/* Collectives of processes on a device's queues, by NCCL (the plugin ndp_nccl.so). One process a GPU. */
#ifndef NDP_COMM_NCCL_NCCL_TRANSPORT_H
#define NDP_COMM_NCCL_NCCL_TRANSPORT_H

#include "comm/impl.h"

/* ndp_transport_on_device for `host`, whose ranks are processes. */
ndp_status ndp_nccl_transport(ndp_transport *host, const ndp_device *d, ndp_device_context *context,
                              ndp_transport **out);

#endif
