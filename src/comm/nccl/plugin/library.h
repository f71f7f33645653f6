/* Where NVIDIA's libnccl.so.2 is looked for. */
#ifndef NDP_COMM_NCCL_PLUGIN_LIBRARY_H
#define NDP_COMM_NCCL_PLUGIN_LIBRARY_H

/* A handle for dlsym, or NULL and one line in `error`. The library is looked for where this process has loaded it
 * already, in $NDP_CUDA_PATH (folders separated by colons, or roots of toolkits), in the plugin's folder and its
 * nccl/lib, where the system's loader looks, and in the packages of the `python3` on PATH. Never unloaded. */
void *ndp_nccl_find(char *error, int room);

#endif
