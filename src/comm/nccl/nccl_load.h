/* Loads the plugin ndp_nccl.so. */
#ifndef NDP_COMM_NCCL_NCCL_LOAD_H
#define NDP_COMM_NCCL_NCCL_LOAD_H

#include "base/status.h"
#include "comm/nccl/nccl_api.h"

/* The plugin, with NVIDIA's library loaded. NDP_ENOTSUP: what is missing or too old, and what to do. */
ndp_status ndp_nccl_load(const ndp_nccl_api **out);

#endif
