/* A cluster: nodes, their devices, links and NICs, the network between them; cluster.yaml, which says all of it; and
 * for a group of ranks, which of these links its data cross and how fast.
 *
 * Levels of links, from the device outwards. A level has units; data that leave a unit cross its link:
 *
 *   level   unit      its link
 *   0       device    to the other devices of its node     links.bandwidth per direction
 *   1       node      its NICs, shared by its ranks        nics.count x nics.bandwidth / oversubscription of network[0]
 *   2 + i   rack ...  the uplink of a unit of network[i]   that of its members together / oversubscription of
 *                                                          network[i + 1]; outside the last level: 1
 *
 * So an oversubscription is that of the switches which join the members of a level: what the members can send together,
 * to what these switches carry. */
#ifndef NDP_CLUSTER_CLUSTER_H
#define NDP_CLUSTER_CLUSTER_H

#include "base/text.h"
#include "mesh/mesh.h"

enum {
    NDP_NETWORK_LEVELS = 6,
    NDP_LINK_LEVELS = NDP_NETWORK_LEVELS + 2,
    NDP_MOST_NODES = 1 << 17,
    NDP_MOST_NODE_DEVICES = 1024,
    NDP_MOST_NAMED_DEVICES = 64 /* keys of `devices` in a file */
};
/* The first levels of links; the uplinks of network[i] are level NDP_LINK_UPLINKS + i. */
enum { NDP_LINK_DEVICES, NDP_LINK_NICS, NDP_LINK_UPLINKS };

/* How the devices of a node are joined. `bandwidth` is what a device sends (and receives) altogether:
 *     switch   to any others at once (NVSwitch, shared memory)
 *     ring     half of it to each of its two neighbours; others are reached through these
 *     mesh     an equal part to each other device (MI300X)
 *     host     over PCIe through the host's memory: as a switch, and twice the latency */
#define NDP_LINK_SHAPES(X) X(SWITCH, switch) X(RING, ring) X(MESH, mesh) X(HOST, host)
#define NDP_LINK_SHAPE_ENUMERATOR(NAME, name) NDP_LINK_##NAME,
typedef enum ndp_link_shape { NDP_LINK_SHAPES(NDP_LINK_SHAPE_ENUMERATOR) NDP_LINK_SHAPES_BUILT } ndp_link_shape;

/* Bandwidths are bytes per second and direction, latencies seconds. */
typedef struct ndp_link_facts {
    char *kind; /* "nvlink" */
    double bandwidth, latency;
    int shape; /* ndp_link_shape */
} ndp_link_facts;

typedef struct ndp_nic_facts {
    char *kind;                /* "infiniband" */
    int count;                 /* of a node */
    double bandwidth, latency; /* of one NIC */
} ndp_nic_facts;

typedef enum ndp_rate_type { NDP_RATE_FP32, NDP_RATE_BF16, NDP_RATE_FP8, NDP_RATES } ndp_rate_type;

/* Shares of the data sheet that calls reach, in (0, 1]. */
typedef struct ndp_efficiency {
    double matmul, attention, memory;
    double links, nics; /* collectives inside a node; between nodes */
} ndp_efficiency;

typedef struct ndp_device_facts {
    double flops[NDP_RATES]; /* dense, per second; 0: it has no such unit */
    double memory_bytes;     /* as its driver reports it. 0, of built-in `cpu`: unknown until measured */
    double runtime_bytes;    /* of them, what the runtime takes for a process: its context, libraries */
    double memory_bandwidth; /* 0: as above */
    int multiprocessors;     /* of a CPU: cores, or 0 as above */
    double call_seconds;     /* what a call costs before it computes */
    ndp_link_facts links;    /* of a node of such devices, unless it says otherwise */
    ndp_nic_facts nics;
    ndp_efficiency efficiency; /* of a built-in device: where a file that has its numbers states none; all 0: 1 */
    char *full_name;           /* what its driver, or the processor, says that it is; NULL: not stated */
} ndp_device_facts;

typedef struct ndp_network_level {
    char *name;              /* of its units: "rack" */
    int members;             /* units of the level inside it that one has: nodes of a rack, racks of a pod */
    double oversubscription; /* of what its members can send, to what they can send to each other; at least 1 */
} ndp_network_level;

typedef struct ndp_cluster {
    char *name;
    int nodes;
    int *devices_of;   /* by node; owned */
    ndp_strings hosts; /* names, by node; empty: not stated */
    char *device;      /* its name: built in, or of `devices` in the file */
    char *like;        /* the built-in device whose numbers it has where the file states none; NULL: none */
    ndp_device_facts facts;
    ndp_link_facts links;
    ndp_nic_facts nics;
    double price, power; /* of a node: per hour; watts. 0: not stated */
    ndp_network_level network[NDP_NETWORK_LEVELS];
    int levels; /* of them */
    ndp_efficiency efficiency;
    char *measured_on, *measured_by; /* when, by which program; NULL: nothing is measured */
    bool built_in;                   /* some numbers are those of `like` */
} ndp_cluster;

/* cluster_read.c: reads cluster.yaml. NDP_EINVAL, with file, line, column and a caret: an unknown key or device, a
 * value out of range, a cluster that cannot be. Allocates nothing by the file's numbers before all of them are checked.
 * The caller releases it, unless this fails. */
NDP_API ndp_status ndp_cluster_read(const char *path, ndp_cluster *out);
NDP_API ndp_status ndp_cluster_parse(const char *text, size_t size, const char *what, ndp_cluster *out);
/* What a command line names: NODESxDEVICES:DEVICE, of a built-in device ("2x8:h100-sxm"), or the path of a
 * cluster.yaml. Errors as above; of the short form in one line. */
NDP_API ndp_status ndp_cluster_find(const char *text, ndp_cluster *out);
/* Makes it one of so many nodes, each as its first, which have no names. NDP_EINVAL: more than NDP_MOST_NODES;
 * NDP_ENOMEM. */
NDP_API ndp_status ndp_cluster_resize(ndp_cluster *c, int nodes);
/* Its devices are processors: programs work on the memory of the host. */
bool ndp_cluster_of_hosts(const ndp_cluster *c);
/* Appends it as YAML that reads back to the same cluster, up to the 1 MiB that a file may have. */
void ndp_cluster_write(const ndp_cluster *c, ndp_str *out);
/* Rounds all numbers to four digits, which are more than a measurement has. */
void ndp_cluster_round(ndp_cluster *c);
/* Accepts {0}. */
void ndp_cluster_release(ndp_cluster *c);
/* "measured on 2026-11-26 by ndparallel 0.1", "built in" or "mixed: ..." */
void ndp_cluster_source(const ndp_cluster *c, ndp_str *out);

/* Appends all keys with their meaning, values and defaults, for people (cluster_table.c). */
void ndp_cluster_keys_help(ndp_str *out);

int ndp_cluster_devices(const ndp_cluster *c); /* of all nodes */
/* How many levels of links data can cross: 2, and those of the network whose units are several. */
int ndp_cluster_levels(const ndp_cluster *c);
/* "nvlink", "infiniband", "rack uplink" */
char *ndp_cluster_level_name(const ndp_cluster *c, int level, char *out, size_t size);

/* "118 MB/s", "2.51 MB/s", "400 GB/s" */
enum { NDP_RATE_TEXT = 24 };
char *ndp_rate_text(double bytes_per_second, char out[NDP_RATE_TEXT]);

/* ---- built-in devices (built_in.c) ---- */

/* What CUDA takes of a GPU for a process: kernels and their stacks, cuBLASLt, NCCL. An estimate; free memory that is
 * measured leaves it out. */
#define NDP_CUDA_RUNTIME_BYTES (640LL << 20)

/* The name of the i-th; NULL: there are no more. */
const char *ndp_built_in_name(int i);
/* The facts of a built-in device; NULL: no device has that name. */
const ndp_device_facts *ndp_built_in_device(const char *name);

/* ---- ranks on nodes ---- */

typedef struct ndp_rank_map {
    int world;
    int *node, *device; /* by rank: its node, and its device of that node. Owned */
} ndp_rank_map;

/* Ranks fill the nodes in order. NDP_EINVAL: more ranks than devices. */
NDP_API ndp_status ndp_rank_map_fill(const ndp_cluster *c, int world, ndp_rank_map *out);
/* Ranks go around the nodes, one to each that has a device left. NDP_EINVAL: as above. */
NDP_API ndp_status ndp_rank_map_deal(const ndp_cluster *c, int world, ndp_rank_map *out);
/* The same from the node of each rank; the devices of a node are taken in the order of ranks. */
NDP_API ndp_status ndp_rank_map_take(const ndp_cluster *c, int world, const int *node, ndp_rank_map *out);
/* The largest n such that ranks 0 .. n-1, n .. 2n-1, ... each lie on one node: what the programs of all ranks may
 * assume of shared memory. */
int ndp_rank_map_block(const ndp_rank_map *m);
void ndp_rank_map_release(ndp_rank_map *m);

/* ---- groups on links (link_use.c) ---- */

/* To whom a rank of a group sends the bytes that it sends. */
typedef enum ndp_send_pattern {
    NDP_SENDS_DIRECT, /* equal parts to all others: all_to_all everywhere, and the other collectives of MPI */
    NDP_SENDS_RING,   /* half to each neighbour: NCCL's collectives */
    NDP_SENDS_NEXT,   /* all to the next one: shifts, activations of a pipeline */
    NDP_SENDS_BEFORE, /* all to the one before: gradients of a pipeline */
    NDP_SEND_PATTERNS
} ndp_send_pattern;

/* What a group has of one level's links when all groups of its kind send at once. Of units that differ, the one that
 * takes longest. */
typedef struct ndp_link_use {
    int level;
    int ranks;       /* of the group in a unit of this level (of a device: 1) */
    double crosses;  /* bytes that leave the unit for each byte that a rank of the group sends */
    double share;    /* of the bytes that all groups send over that link, those of this group */
    double capacity; /* of the link, bytes/s */
    double
        rate; /* bytes/s that each rank of the group sends if this link alone limits it: capacity x share / crosses */
    double latency;
} ndp_link_use;

typedef struct ndp_group_links {
    int n; /* of the levels that its data cross; 0: a group of one rank */
    ndp_link_use of[NDP_LINK_LEVELS];
    int slowest;          /* of `of` */
    int least, most;      /* ranks of the group on a node that has any */
    double rate, latency; /* of the slowest link; the largest latency */
} ndp_group_links;

/* `groups`: all of the kind, which send at once, `g` among them; their ranks are of the map. NDP_ENOMEM. */
NDP_API ndp_status ndp_cluster_links(const ndp_cluster *c, const ndp_rank_map *m, ndp_group g, const ndp_group *groups,
                                     int n, ndp_send_pattern pattern, ndp_group_links *out);
/* The highest level whose links data cross from one rank to another; inside a node that of devices. */
int ndp_cluster_level_between(const ndp_cluster *c, const ndp_rank_map *m, int a, int b);
/* Of a group's links, those that a message uses which crosses this level. */
ndp_group_links ndp_group_links_through(const ndp_group_links *l, int level);
/* The number of links of a level, one for each unit; of level 0, one for each rank, or two for each device of a ring.
 */
int ndp_cluster_link_count(const ndp_cluster *c, const ndp_rank_map *m, int level);
/* Adds to loads[link] what leaves over each link of a level when every rank r of `groups` sends bytes[r] in its group.
 * NDP_ENOMEM. */
NDP_API ndp_status ndp_cluster_add_loads(const ndp_cluster *c, const ndp_rank_map *m, const ndp_group *groups, int n,
                                         ndp_send_pattern pattern, const double *bytes, int level, double *loads);
/* Bytes per second of a link of such a list, when all ranks of its unit send. */
double ndp_cluster_link_capacity(const ndp_cluster *c, const ndp_rank_map *m, int level, int link);
/* All groups of `world` ranks with this stride and count, as those of an axis are; the caller frees the list.
 * NDP_EINVAL: they do not divide the ranks. */
NDP_API ndp_status ndp_groups_alike(int world, int stride, int count, ndp_group **groups, int *n);

#endif
