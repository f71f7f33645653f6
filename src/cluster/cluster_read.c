/* Reads cluster.yaml: first where its sections are, in any order, then what they say, the devices before the node that
 * names one and the nodes before the network. Arrays of the file's sizes are allocated after all checks. */
#include "cluster/cluster.h"

#include "cluster/built_in.h"
#include "cluster/cluster_keys.h"
#include "cluster/named_devices.h"
#include "cluster/network_read.h"

#include <stdlib.h>

enum { HOST_LENGTH = 253 };

typedef struct cluster_reading {
    ndp_cluster_file file;
    ndp_found_device device;
    bool given[NDP_CLUSTER_MOST_ROWS];
    struct fy_node *nodes_list, *hosts, *name_of_device, *devices_key; /* NULL: not in the file */
    struct fy_node *node_key, *node, *network, *devices, *efficiency, *measured;
    struct fy_node *parts[NDP_OWN_PARTS]; /* of node */
} cluster_reading;

/* ---- where things are ---- */

static ndp_status find_section(void *user, ndp_yaml *y, const ndp_cluster_key *key, bool *taken) {
    cluster_reading *r = user;
    const struct {
        const char *name;
        struct fy_node **at;
    } sections[] = {{"node", &r->node},
                    {"network", &r->network},
                    {"devices", &r->devices},
                    {"efficiency", &r->efficiency},
                    {"measured", &r->measured}};
    for (int i = 0; i < NDP_COUNT(sections); i++)
        if (strcmp(key->name, sections[i].name) == 0) {
            *sections[i].at = key->value;
            *taken = true;
        }
    if (strcmp(key->name, "node") == 0)
        r->node_key = key->node;
    if (strcmp(key->name, "hosts") == 0)
        r->hosts = key->value;
    struct fy_node *value = key->value;
    NDP_TRY(ndp_yaml_follow(y, &value));
    if (strcmp(key->name, "nodes") == 0 && value && fy_node_is_sequence(value)) {
        r->nodes_list = value;
        *taken = true;
    }
    return NDP_OK;
}

static ndp_status find_node_part(void *user, ndp_yaml *y, const ndp_cluster_key *key, bool *taken) {
    cluster_reading *r = user;
    (void)y;
    for (int i = 0; i < NDP_OWN_PARTS; i++)
        if (strcmp(key->name, ndp_own_parts[i].key) == 0) {
            r->parts[i] = key->value;
            *taken = true;
        }
    if (strcmp(key->name, "device") == 0)
        r->name_of_device = key->value;
    if (strcmp(key->name, "devices") == 0)
        r->devices_key = key->node;
    return NDP_OK;
}

/* ---- nodes and hosts ---- */

/* One item of a list of nodes: how many devices that node has. */
static ndp_status read_node_devices(ndp_yaml *y, struct fy_node *item, int *out) {
    ndp_option row = *ndp_option_among(ndp_cluster_rows, ndp_cluster_row_count, "node", "devices");
    row.section = "";
    row.key = "nodes";
    row.offset = 0;
    return ndp_option_read(&row, y, item, out);
}

static ndp_status check_nodes_list(ndp_yaml *y, cluster_reading *r) {
    int n = fy_node_sequence_item_count(r->nodes_list), devices;
    void *place = NULL;
    if (r->devices_key)
        return ndp_yaml_fail(y, r->devices_key,
                             "'nodes' is a list of how many devices each node has: remove 'node.devices'");
    if (n < 1 || n > NDP_MOST_NODES)
        return ndp_yaml_fail(y, r->nodes_list, "'nodes' is a list of %d nodes, expected 1 to %d", n, NDP_MOST_NODES);
    for (struct fy_node *item; (item = fy_node_sequence_iterate(r->nodes_list, &place));)
        NDP_TRY(read_node_devices(y, item, &devices));
    r->file.c.nodes = n;
    return NDP_OK;
}

static ndp_status allocate_nodes(ndp_yaml *y, cluster_reading *r) {
    ndp_cluster *c = &r->file.c;
    void *place = NULL;
    c->devices_of = calloc((size_t)c->nodes, sizeof *c->devices_of);
    if (!c->devices_of)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %d nodes", y->what, c->nodes);
    for (int i = 0; i < c->nodes; i++) {
        c->devices_of[i] = r->file.devices;
        if (r->nodes_list)
            NDP_TRY(read_node_devices(y, fy_node_sequence_iterate(r->nodes_list, &place), &c->devices_of[i]));
    }
    return NDP_OK;
}

/* A host and where it is in the list, to be sorted by name. */
typedef struct listed_host {
    const char *name;
    int at;
} listed_host;

static int by_name(const void *a, const void *b) {
    const listed_host *one = a, *other = b;
    int order = strcmp(one->name, other->name);
    return order ? order : one->at - other->at;
}

/* The next of a list of hosts, or the only one. `place`: NULL before the first. */
static struct fy_node *next_host(struct fy_node *hosts, void **place) {
    return fy_node_is_sequence(hosts) ? fy_node_sequence_iterate(hosts, place) : hosts;
}

static ndp_status check_distinct(ndp_yaml *y, struct fy_node *hosts, const ndp_strings *names) {
    listed_host *sorted = calloc((unsigned)names->n, sizeof *sorted);
    if (!sorted)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory for %d hosts", y->what, names->n);
    for (int i = 0; i < names->n; i++)
        sorted[i] = (listed_host){names->items[i], i};
    qsort(sorted, (size_t)names->n, sizeof *sorted, by_name);
    ndp_status st = NDP_OK;
    for (int i = 1; i < names->n && st == NDP_OK; i++)
        if (strcmp(sorted[i].name, sorted[i - 1].name) == 0)
            st = ndp_yaml_fail(y, fy_node_sequence_get_by_index(hosts, sorted[i].at),
                               "host '%s' is listed twice: as node %d and as node %d", sorted[i].name, sorted[i - 1].at,
                               sorted[i].at);
    free(sorted);
    return st;
}

static ndp_status check_hosts(ndp_yaml *y, cluster_reading *r) {
    const ndp_strings *hosts = &r->file.c.hosts;
    void *place = NULL;
    if (hosts->n < 1)
        return NDP_OK;
    NDP_TRY(ndp_yaml_follow(y, &r->hosts));
    if (hosts->n != r->file.c.nodes)
        return ndp_yaml_fail(y, r->hosts, "%d hosts, but the cluster has %d nodes", hosts->n, r->file.c.nodes);
    for (int i = 0; i < hosts->n; i++) {
        struct fy_node *item = next_host(r->hosts, &place);
        NDP_TRY(ndp_yaml_follow(y, &item));
        NDP_TRY(ndp_cluster_check_name(y, item, "host", hosts->items[i], HOST_LENGTH, true));
    }
    return check_distinct(y, r->hosts, hosts);
}

/* ---- the node ---- */

/* Links and NICs are those of the device, but for what the node states. */
static ndp_status read_node_part(ndp_yaml *y, cluster_reading *r, int part) {
    const ndp_own_part *p = &ndp_own_parts[part];
    void *into = (char *)&r->file.c + p->offset, *from = (char *)&r->file.c.facts + p->device_offset;
    for (int i = 0; i < ndp_cluster_row_count; i++)
        if (ndp_cluster_row_is_of(i, p->section))
            NDP_TRY(ndp_option_copy(&ndp_cluster_rows[i], from, into));
    NDP_TRY(ndp_cluster_read_section(y, p->section, r->parts[part], into, r->given, NULL, NULL));
    for (int i = 0; i < ndp_cluster_row_count; i++)
        if (ndp_cluster_row_is_of(i, p->section) && ndp_cluster_is_unknown(&ndp_cluster_rows[i], into))
            return ndp_yaml_fail(y, r->name_of_device, "device '%s' has no %s.%s: state it, or %s.%s", r->file.c.device,
                                 p->key, ndp_cluster_rows[i].key, p->section, ndp_cluster_rows[i].key);
    return NDP_OK;
}

static ndp_status read_node(ndp_yaml *y, cluster_reading *r) {
    ndp_cluster *c = &r->file.c;
    ndp_named_devices devices;
    NDP_TRY(ndp_named_devices_read(y, r->devices, &devices));
    y->near = r->node_key;
    NDP_TRY(ndp_cluster_read_section(y, "node", r->node, &r->file, r->given, find_node_part, r));
    if (!c->device)
        return ndp_yaml_fail(y, r->name_of_device ? r->name_of_device : r->node,
                             "the cluster has no device: state node.device, such as 'node: {device: h100-sxm}'");
    NDP_TRY(ndp_yaml_follow(y, &r->name_of_device));
    NDP_TRY(ndp_named_devices_find(y, &devices, c->device, r->name_of_device, &r->device));
    c->facts = r->device.facts;
    c->links = c->facts.links;
    c->links.kind = NULL;
    c->nics = c->facts.nics;
    c->nics.kind = NULL;
    NDP_TRY(r->device.like ? ndp_option_copy_text(r->device.like, &c->like) : NDP_OK);
    for (int i = 0; i < NDP_OWN_PARTS; i++)
        NDP_TRY(read_node_part(y, r, i));
    return NDP_OK;
}

static bool is_number(const ndp_option *o) { return o->type == NDP_OPTION_INT || o->type == NDP_OPTION_NUMBER; }

static bool is_zero(const ndp_option *o, const void *from) {
    const void *at = (const char *)from + o->offset;
    return o->type == NDP_OPTION_INT ? *(const int *)at == 0 : *(const double *)at == 0;
}

/* Whether the node states the number that a row of its device stands for. */
static bool node_states(const cluster_reading *r, const ndp_option *o) {
    for (int i = 0; i < NDP_OWN_PARTS; i++)
        if (strcmp(ndp_own_parts[i].of_device, o->section) == 0)
            return r
                ->given[ndp_option_among(ndp_cluster_rows, ndp_cluster_row_count, ndp_own_parts[i].section, o->key) -
                        ndp_cluster_rows];
    return false;
}

/* True if a number comes from a built-in device; a 0 there means unknown, and does not count. */
static bool uses_built_in(const cluster_reading *r) {
    bool uses = false;
    for (int i = 0; i < ndp_cluster_row_count && r->device.like; i++)
        for (int k = 0; k < NDP_DEVICE_PARTS; k++) {
            const ndp_option *o = &ndp_cluster_rows[i];
            if (ndp_cluster_row_is_of(i, ndp_device_parts[k].section) && is_number(o) && !r->device.given[i])
                uses |= !node_states(r, o) && !is_zero(o, (const char *)&r->file.c.facts + ndp_device_parts[k].offset);
        }
    return uses;
}

/* ---- the whole ---- */

static ndp_status read_file(ndp_yaml *y, cluster_reading *r) {
    ndp_cluster *c = &r->file.c;
    NDP_TRY(ndp_cluster_defaults("", &r->file));
    NDP_TRY(ndp_cluster_defaults("node", &r->file));
    NDP_TRY(ndp_cluster_defaults("efficiency", &c->efficiency));
    NDP_TRY(ndp_cluster_read_section(y, "", y->root, &r->file, r->given, find_section, r));
    NDP_TRY(read_node(y, r));
    if (r->nodes_list)
        NDP_TRY(check_nodes_list(y, r));
    NDP_TRY(check_hosts(y, r));
    NDP_TRY(ndp_network_read(y, r->network, c));
    NDP_TRY(ndp_cluster_read_section(y, "efficiency", r->efficiency, &c->efficiency, NULL, NULL, NULL));
    NDP_TRY(ndp_cluster_read_section(y, "measured", r->measured, &r->file, NULL, NULL, NULL));
    c->built_in = uses_built_in(r);
    return allocate_nodes(y, r);
}

ndp_status ndp_cluster_parse(const char *text, size_t size, const char *what, ndp_cluster *out) {
    ndp_yaml y;
    cluster_reading r = {0};
    ndp_status st = ndp_yaml_open(&y, what, text, size, 0);
    if (st == NDP_OK)
        st = read_file(&y, &r);
    ndp_yaml_close(&y);
    if (st == NDP_OK)
        *out = r.file.c;
    else
        ndp_cluster_release(&r.file.c);
    return st;
}

ndp_status ndp_cluster_read(const char *path, ndp_cluster *out) {
    char *text;
    size_t size;
    NDP_TRY(ndp_file_read_as(NDP_FILE_CLUSTER, path, &text, &size));
    ndp_status st = ndp_cluster_parse(text, size, path, out);
    free(text);
    return st;
}

void ndp_cluster_release(ndp_cluster *c) {
    char *const texts[] = {c->name, c->device, c->like, c->links.kind, c->nics.kind, c->measured_on, c->measured_by};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        free(texts[i]);
    for (int i = 0; i < c->levels; i++)
        free(c->network[i].name);
    ndp_strings_release(&c->hosts);
    ndp_device_facts_release(&c->facts);
    free(c->devices_of);
    *c = (ndp_cluster){0};
}
