/* What hwloc says of one node: its sockets, memory, GPUs and NICs, and for each GPU the socket and the NIC that are
 * nearest to it. */
#ifndef NDP_MEASURE_NODE_TREE_H
#define NDP_MEASURE_NODE_TREE_H

#include "base/text.h"

enum { NDP_MOST_SOCKETS = 32, NDP_MOST_NODE_GPUS = 64, NDP_MOST_NODE_NICS = 64 };

typedef struct ndp_node_socket {
    int cores, threads;  /* hardware threads: of all its cores */
    int numa_nodes;      /* memories of its own */
    double memory_bytes; /* of these */
} ndp_node_socket;

typedef struct ndp_node_nic {
    char name[32];        /* of the system: "mlx5_0", or "eth0" where it is Ethernet alone */
    const char *kind;     /* "infiniband", "roce", "efa", "slingshot", "ethernet" */
    char address[16];     /* PCI: "0000:18:00.0" */
    int socket;           /* the nearest; -1: not known */
    double pci_bandwidth; /* of its PCIe link, bytes/s and direction; 0: not known */
} ndp_node_nic;

/* What a GPU's data cross on the way to a NIC, the nearest first. */
#define NDP_NODE_PATHS(X)                                                                                              \
    X(SWITCH, "behind the same PCIe switch")                                                                           \
    X(BRIDGE, "at the same PCIe root")                                                                                 \
    X(SOCKET, "at the same socket")                                                                                    \
    X(NODE, "at another socket")
#define NDP_NODE_PATH_ENUMERATOR(NAME, text) NDP_NODE_PATH_##NAME,
typedef enum ndp_node_path { NDP_NODE_PATHS(NDP_NODE_PATH_ENUMERATOR) NDP_NODE_PATHS_BUILT } ndp_node_path;

typedef struct ndp_node_gpu {
    char model[64];       /* "NVIDIA H100 80GB HBM3"; "": not known */
    char name[32];        /* by the library that found it: "cuda0", "nvml0", "rsmi0"; "": found on the PCI bus alone */
    char address[16];     /* PCI; "": not known */
    int socket;           /* the nearest; -1: not known */
    int nic;              /* of `nics`: the nearest; -1: there is none */
    ndp_node_path path;   /* to that NIC */
    double pci_bandwidth; /* of its PCIe link, bytes/s and direction; 0: not known */
} ndp_node_gpu;

typedef struct ndp_node_tree {
    int n_sockets, n_gpus, n_nics;
    ndp_node_socket sockets[NDP_MOST_SOCKETS];
    ndp_node_gpu gpus[NDP_MOST_NODE_GPUS]; /* socket by socket, by PCI address */
    ndp_node_nic nics[NDP_MOST_NODE_NICS]; /* likewise */
    int numa_nodes;
    double memory_bytes; /* of the whole node */
} ndp_node_tree;

/* Reads this node, or with `xml` the file of a node that hwloc has written (lstopo node.xml); NULL: the file that
 * HWLOC_XMLFILE names, as hwloc itself does, else this node.
 *
 * A GPU is a PCI device that CUDA, NVML or RSMI lists, or a display or accelerator of NVIDIA or AMD; without PCI
 * addresses (some containers hide them), a device of CUDA or RSMI. OpenCL alone makes none: it also lists the graphics
 * of processors. A NIC is a PCI device with a network or an OpenFabrics device; both are one NIC, and so are several
 * ports of one PCI device. Devices without a PCI parent (lo, docker0, veth) are virtual.
 *
 * The nearest NIC of a GPU is the one whose data cross the least; of equals one that fewer GPUs have. A node whose NICs
 * are not all plain Ethernet has that for its management: then GPUs do not choose it.
 *
 * NDP_EIO: hwloc cannot load the file or the node. NDP_ENOTSUP: more sockets, GPUs or NICs than the arrays hold. */
NDP_API ndp_status ndp_node_tree_read(const char *xml, ndp_node_tree *out);

#endif
