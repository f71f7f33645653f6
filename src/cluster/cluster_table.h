/* The option table of cluster.yaml: its sections and keys, and the structs that their rows describe. Inside this room
 * only. */
#ifndef NDP_CLUSTER_CLUSTER_TABLE_H
#define NDP_CLUSTER_CLUSTER_TABLE_H

#include "cluster/cluster.h"
#include "options/option_table.h"

/* Sections whose names depend on the file are called as the help calls them. Their rows describe members of
 * ndp_network_level, and of ndp_device_entry; all other rows of ndp_cluster_file. */
#define NDP_SECTION_NETWORK "network"
#define NDP_SECTION_DEVICE "devices.NAME"

/* What a file says. */
typedef struct ndp_cluster_file {
    ndp_cluster c;
    int devices; /* of each node */
} ndp_cluster_file;

/* An entry of the section `devices`. */
typedef struct ndp_device_entry {
    ndp_device_facts facts;
    char *like; /* the device that it starts from; NULL: none */
} ndp_device_entry;

extern const ndp_option_table ndp_cluster_options;

/* The number of a key's row. */
int ndp_cluster_row(const char *section, const char *key);
/* The row of a device's section that is the node's own, "node.links.bandwidth" of "devices.NAME.links.bandwidth", or
 * the reverse; NULL: no such row. */
const ndp_option *ndp_cluster_row_of_node(const ndp_option *of_device);
const ndp_option *ndp_cluster_row_of_device(const ndp_option *of_node);
/* True if `from` has no value there that the row could read: a bandwidth of 0 that is unknown. */
bool ndp_cluster_is_unknown(const ndp_option *o, const void *from);
/* NDP_EINVAL for a key that a section does not have, with the key that was probably meant. `more`: one that it has
 * besides its rows; NULL: none. */
ndp_status ndp_cluster_unknown_key(ndp_yaml *y, const ndp_option_key *key, const char *more);
/* NDP_EINVAL unless the text can name a host, a device or a level: at most `most` of a-z, A-Z, 0-9 and - _ . (and,
 * where `colons`, :), the first of them none of these marks. `what` it should name. */
NDP_API ndp_status ndp_cluster_check_name(ndp_yaml *y, struct fy_node *node, const char *what, const char *name,
                                          int most, bool colons);

#endif
