/* Reading the sections of cluster.yaml by their rows. Inside this room only. */
#ifndef NDP_CLUSTER_CLUSTER_KEYS_H
#define NDP_CLUSTER_CLUSTER_KEYS_H

#include "cluster/cluster_table.h"

/* A key of a section, whose value may be an alias. */
typedef struct ndp_cluster_key {
    const char *section, *name;
    struct fy_node *node, *value;
} ndp_cluster_key;

/* Reads a key that is no row's, or not only: sets *taken if it did. */
typedef ndp_status ndp_cluster_key_reader(void *user, ndp_yaml *y, const ndp_cluster_key *key, bool *taken);

/* Reads a mapping by the rows of a section into the struct that they describe, and sets the flags of the rows that it
 * states (`given`: one for each of ndp_cluster_rows; NULL: not wanted). Each key is first shown to `other`, unless
 * that is NULL. An empty section states nothing. */
NDP_API ndp_status ndp_cluster_read_section(ndp_yaml *y, const char *section, struct fy_node *node, void *into,
                                            bool *given, ndp_cluster_key_reader *other, void *user);
/* NDP_EINVAL for a key that a section does not have, with the key that was probably meant. `more`: one that it has
 * besides its rows; NULL: none. */
ndp_status ndp_cluster_unknown_key(ndp_yaml *y, const ndp_cluster_key *key, const char *more);
/* NDP_EINVAL unless the text can name a host, a device or a level: at most `most` of a-z, A-Z, 0-9 and - _ . (and,
 * where `colons`, :), the first of them none of these marks. `what` it should name. */
NDP_API ndp_status ndp_cluster_check_name(ndp_yaml *y, struct fy_node *node, const char *what, const char *name,
                                          int most, bool colons);

#endif
