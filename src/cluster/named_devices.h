/* The section `devices` of cluster.yaml: devices by name. Inside this room only. */
#ifndef NDP_CLUSTER_NAMED_DEVICES_H
#define NDP_CLUSTER_NAMED_DEVICES_H

#include "cluster/cluster_table.h"

/* An entry; all of it is borrowed from the document. */
typedef struct ndp_named_device {
    const char *name, *like; /* `like` NULL: none */
    struct fy_node *key, *value, *like_node;
} ndp_named_device;

typedef struct ndp_named_devices {
    int n;
    ndp_named_device of[NDP_MOST_NAMED_DEVICES];
} ndp_named_devices;

typedef struct ndp_found_device {
    ndp_device_facts facts;
    const char *like;           /* the built-in device that it starts from; NULL: none */
    bool stated[NDP_MOST_ROWS]; /* rows that the file states, of it or of those that it is like */
} ndp_found_device;

/* Lists the entries and reads each of them, so that none is wrong. */
NDP_API ndp_status ndp_named_devices_read(ndp_yaml *y, struct fy_node *node, ndp_named_devices *out);
/* The device of a name: an entry, or built in. NDP_EINVAL, pointing at `node`: there is none. Release its facts. */
NDP_API ndp_status ndp_named_devices_find(ndp_yaml *y, const ndp_named_devices *d, const char *name,
                                          struct fy_node *node, ndp_found_device *out);

#endif
