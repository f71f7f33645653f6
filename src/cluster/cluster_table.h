/* The option table of cluster.yaml: its sections and keys, and the structs that their rows describe. Inside this room
 * only. */
#ifndef NDP_CLUSTER_CLUSTER_TABLE_H
#define NDP_CLUSTER_CLUSTER_TABLE_H

#include "cluster/cluster.h"
#include "config/option.h"

/* Sections whose names depend on the file are called as the help calls them. */
#define NDP_SECTION_NETWORK "network"
#define NDP_SECTION_DEVICE "devices.NAME"

/* What a file says. Rows of the sections "", `node` and `measured` describe members of this; those of other sections
 * the struct of that section. */
typedef struct ndp_cluster_file {
    ndp_cluster c;
    int devices; /* of each node */
} ndp_cluster_file;

typedef struct ndp_cluster_section {
    const char *name; /* "": the keys that are in none */
    const char *help;
    const char *otherwise; /* what its keys have that the file does not state, before their rows' defaults: "that of the
                            * device"; NULL: nothing */
} ndp_cluster_section;

enum { NDP_CLUSTER_MOST_ROWS = 64 };
extern const ndp_cluster_section ndp_cluster_sections[];
extern const int ndp_cluster_section_count;
extern const ndp_option ndp_cluster_rows[];
extern const int ndp_cluster_row_count;

/* The part of a section's name after the one that contains it, if that is `parent`: "links" of "node.links" for "node";
 * otherwise NULL. */
const char *ndp_cluster_subsection(const char *section, const char *parent);

/* The section of rows that describe an ndp_device_facts, and where. The row `like` of an entry is the exception: its
 * reader and writer know it. */
typedef struct ndp_device_part {
    const char *section, *key; /* key of the section in an entry of `devices`; NULL: the entry itself */
    size_t offset;
} ndp_device_part;
enum { NDP_DEVICE_PARTS = 4 };
extern const ndp_device_part ndp_device_parts[NDP_DEVICE_PARTS];

/* The same for what a node may have of its own, in ndp_cluster. */
typedef struct ndp_own_part {
    const char *section, *key, *of_device; /* the section, its key in `node`, and the section of the device's */
    size_t offset, device_offset;          /* in ndp_cluster, in ndp_device_facts */
} ndp_own_part;
enum { NDP_OWN_PARTS = 2 };
extern const ndp_own_part ndp_own_parts[NDP_OWN_PARTS];

/* Whether row i belongs to a section and describes a member of the section's struct. */
bool ndp_cluster_row_is_of(int i, const char *section);
/* Sets the members that the rows of a section describe to the rows' defaults; what has none is left. NDP_ENOMEM. */
NDP_API ndp_status ndp_cluster_defaults(const char *section, void *into);
/* True if `from` has no value there that the row could read: a bandwidth of 0 that is unknown. */
bool ndp_cluster_is_unknown(const ndp_option *o, const void *from);
/* Whether the values are the same. */
bool ndp_cluster_is_same(const ndp_option *o, const void *a, const void *b);

#endif
