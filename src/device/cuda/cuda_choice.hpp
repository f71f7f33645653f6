/* Which GPU of its node a rank uses. */
#ifndef NDP_DEVICE_CUDA_CUDA_CHOICE_HPP
#define NDP_DEVICE_CUDA_CUDA_CHOICE_HPP

/* The GPU of rank `rank` of the `ranks` of a node with `gpus` GPUs, without two ranks on one as long as there are
 * enough. nodes[i]: the NUMA node of GPU i, -1: unknown. Ranks are bound to the node's cores in order (launch.h), so
 * the first ones are near the first NUMA node. */
int ndp_gpu_of_rank(int rank, int ranks, const int *nodes, int gpus);

#endif
