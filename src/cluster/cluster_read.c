/* Reads cluster.yaml: first where its sections are, in any order, then what they say, the devices before the node that
 * names one and the nodes before the network. Arrays of the file's sizes are allocated after all checks. */
#include "cluster/cluster.h"

#include "cluster/built_in.h"
#include "cluster/named_devices.h"
#include "cluster/network_read.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST_LENGTH = 253 };

typedef struct cluster_reading {
    ndp_cluster_file file;
    ndp_found_device device;
    ndp_option_reading of; /* of the file's keys outside `devices` and `network` */
    ndp_option_key nodes;  /* if it is a list; {0}: it is not, or not in the file */
    ndp_option_key node, network, devices, efficiency, measured; /* {0}: not in the file */
} cluster_reading;

/* The row of a key, and where its value is. */
static const ndp_option *row(const char *section, const char *key) {
    return &ndp_cluster_options.rows[ndp_cluster_row(section, key)];
}
static struct fy_node *value_of(const cluster_reading *r, const char *section, const char *key) {
    return r->of.value[ndp_cluster_row(section, key)];
}

/* Notes where the sections are. */
static ndp_status find_section(ndp_option_reading *of, const ndp_option_key *key, bool *taken) {
    cluster_reading *r = of->user;
    const struct {
        const char *name;
        ndp_option_key *at;
    } sections[] = {{"node", &r->node},
                    {"network", &r->network},
                    {"devices", &r->devices},
                    {"efficiency", &r->efficiency},
                    {"measured", &r->measured}};
    for (int i = 0; i < NDP_COUNT(sections) && !*key->section; i++)
        if (strcmp(key->name, sections[i].name) == 0) {
            *sections[i].at = *key;
            *taken = true;
        }
    struct fy_node *value = key->value;
    if (*key->section || strcmp(key->name, "nodes") != 0)
        return NDP_OK;
    NDP_TRY(ndp_yaml_follow(of->y, &value));
    if (value && fy_node_is_sequence(value)) {
        r->nodes = (ndp_option_key){"", "nodes", key->node, value};
        *taken = true;
    }
    return NDP_OK;
}

/* ---- nodes and hosts ---- */

/* One item of a list of nodes: how many devices that node has. */
static ndp_status read_node_devices(ndp_yaml *y, struct fy_node *item, int *out) {
    ndp_option devices = *row("node", "devices");
    devices.section = "";
    devices.key = "nodes";
    devices.offset = 0;
    return ndp_option_read(&devices, y, item, out);
}

static ndp_status check_nodes_list(ndp_yaml *y, cluster_reading *r) {
    int n = fy_node_sequence_item_count(r->nodes.value), devices, stated = ndp_cluster_row("node", "devices");
    void *place = NULL;
    if (r->of.stated[stated])
        return ndp_yaml_fail(y, r->of.key[stated],
                             "'nodes' is a list of how many devices each node has: remove 'node.devices'");
    if (n < 1 || n > NDP_MOST_NODES)
        return ndp_yaml_fail(y, r->nodes.value, "'nodes' is a list of %d nodes, expected 1 to %d", n, NDP_MOST_NODES);
    for (struct fy_node *item; (item = fy_node_sequence_iterate(r->nodes.value, &place));)
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
        if (r->nodes.value)
            NDP_TRY(read_node_devices(y, fy_node_sequence_iterate(r->nodes.value, &place), &c->devices_of[i]));
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
    struct fy_node *list = value_of(r, "", "hosts");
    void *place = NULL;
    if (hosts->n < 1)
        return NDP_OK;
    NDP_TRY(ndp_yaml_follow(y, &list));
    if (hosts->n != r->file.c.nodes)
        return ndp_yaml_fail(y, list, "%d hosts, but the cluster has %d nodes", hosts->n, r->file.c.nodes);
    for (int i = 0; i < hosts->n; i++) {
        struct fy_node *item = next_host(list, &place);
        NDP_TRY(ndp_yaml_follow(y, &item));
        NDP_TRY(ndp_cluster_check_name(y, item, "host", hosts->items[i], HOST_LENGTH, true));
    }
    return check_distinct(y, list, hosts);
}

/* ---- the node ---- */

/* Gives the node the links and NICs of its device. */
static ndp_status take_links(ndp_cluster *c) {
    ndp_device_facts own;
    NDP_TRY(ndp_device_facts_copy(&c->facts, &own));
    free(c->links.kind);
    free(c->nics.kind);
    free(own.full_name);
    c->links = own.links;
    c->nics = own.nics;
    return NDP_OK;
}

/* Nothing leaves a node that is alone: NICs that are not stated are as its links, and carry nothing. */
static ndp_status complete_nics(ndp_cluster *c) {
    ndp_nic_facts *n = &c->nics;
    if (n->bandwidth > 0)
        return NDP_OK;
    n->bandwidth = c->links.bandwidth, n->latency = c->links.latency;
    n->count = n->count > 0 ? n->count : 1;
    return n->kind || !c->links.kind ? NDP_OK : ndp_option_copy_text(c->links.kind, &n->kind);
}

/* What neither the device nor the node states, and has no default. */
static ndp_status check_links(ndp_yaml *y, struct fy_node *name_of_device, const ndp_cluster_file *file) {
    for (int i = 0; i < ndp_cluster_options.n; i++) {
        const ndp_option *o = &ndp_cluster_options.rows[i];
        const char *part = strncmp(o->section, "node.", 5) == 0 ? o->section + 5 : NULL;
        if (part && ndp_cluster_is_unknown(o, file))
            return ndp_yaml_fail(y, name_of_device, "device '%s' has no %s.%s: state it, or %s.%s", file->c.device,
                                 part, o->key, o->section, o->key);
    }
    return NDP_OK;
}

/* The node is read twice: to find its device, and over the links and NICs of the device. */
static ndp_status read_node(ndp_yaml *y, cluster_reading *r) {
    ndp_cluster *c = &r->file.c;
    ndp_named_devices devices;
    NDP_TRY(ndp_named_devices_read(y, r->devices.value, &devices));
    y->near = r->node.node;
    NDP_TRY(ndp_option_read_section(&r->of, "node", r->node.value));
    struct fy_node *name = value_of(r, "node", "device");
    if (!c->device)
        return ndp_yaml_fail(y, r->node.value,
                             "the cluster has no device: state node.device, such as 'node: {device: h100-sxm}'");
    NDP_TRY(ndp_yaml_follow(y, &name));
    NDP_TRY(ndp_named_devices_find(y, &devices, c->device, name, &r->device));
    c->facts = r->device.facts;
    NDP_TRY(r->device.like ? ndp_option_copy_text(r->device.like, &c->like) : NDP_OK);
    NDP_TRY(take_links(c));
    NDP_TRY(ndp_option_read_section(&r->of, "node", r->node.value));
    if (c->nodes == 1 && !r->nodes.value)
        NDP_TRY(complete_nics(c));
    return check_links(y, name, &r->file);
}

static bool is_number(const ndp_option *o) { return o->type == NDP_OPTION_INT || o->type == NDP_OPTION_NUMBER; }

static bool is_zero(const ndp_option *o, const void *from) {
    const void *at = (const char *)from + o->offset;
    return o->type == NDP_OPTION_INT ? *(const int *)at == 0 : *(const double *)at == 0;
}

/* True if a number comes from a built-in device; a 0 there means unknown, and does not count. */
static bool uses_built_in(const cluster_reading *r) {
    bool uses = false;
    for (int i = 0; i < ndp_cluster_options.n && r->device.like; i++) {
        const ndp_option *o = &ndp_cluster_options.rows[i];
        if (strncmp(o->section, NDP_SECTION_DEVICE, strlen(NDP_SECTION_DEVICE)) != 0 || !is_number(o))
            continue;
        const ndp_option *of_node = ndp_cluster_row_of_node(o);
        bool stated = r->device.stated[i] || (of_node && r->of.stated[of_node - ndp_cluster_options.rows]);
        uses |= !stated && !is_zero(o, &r->file.c.facts);
    }
    return uses;
}

/* ---- the whole ---- */

static ndp_status read_file(ndp_yaml *y, cluster_reading *r) {
    static const char *const sections[] = {"", "node", "efficiency"};
    r->of =
        (ndp_option_reading){.table = &ndp_cluster_options, .y = y, .into = &r->file, .other = find_section, .user = r};
    for (int i = 0; i < NDP_COUNT(sections); i++)
        NDP_TRY(ndp_option_defaults(&ndp_cluster_options, sections[i], &r->file));
    NDP_TRY(ndp_option_read_section(&r->of, "", y->root));
    NDP_TRY(read_node(y, r));
    if (r->nodes.value)
        NDP_TRY(check_nodes_list(y, r));
    NDP_TRY(check_hosts(y, r));
    NDP_TRY(ndp_network_read(y, r->network.value, &r->file.c));
    r->file.c.built_in = uses_built_in(r);
    if (r->file.c.built_in && r->device.facts.efficiency.matmul > 0)
        r->file.c.efficiency = r->device.facts.efficiency;
    NDP_TRY(ndp_option_read_section(&r->of, "efficiency", r->efficiency.value));
    NDP_TRY(ndp_option_read_section(&r->of, "measured", r->measured.value));
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
    return NDP_FILE_PARSE(NDP_FILE_CLUSTER, path, text, size, ndp_cluster_parse(text, size, path, out));
}

/* "2x8:h100-sxm"; a text that does not begin so is a path. */
ndp_status ndp_cluster_find(const char *text, ndp_cluster *out) {
    int nodes, devices, end = 0;
    if (!isdigit((unsigned char)*text) || sscanf(text, "%9dx%9d:%n", &nodes, &devices, &end) != 2 || !end)
        return ndp_cluster_read(text, out);
    const char *name = text + end, *meant = ndp_nearest_device(name, NULL, 0);
    NDP_CHECK(nodes >= 1 && nodes <= NDP_MOST_NODES && devices >= 1 && devices <= NDP_MOST_NODE_DEVICES,
              "'%.80s': a cluster has 1 to %d nodes of 1 to %d devices", text, NDP_MOST_NODES, NDP_MOST_NODE_DEVICES);
    NDP_CHECK(ndp_built_in_device(name), "'%.80s': there is no built-in device '%.60s'; %s%s%s", text, name,
              meant ? "did you mean '" : "describe it in a cluster.yaml", meant ? meant : "", meant ? "'?" : "");
    ndp_str yaml = {0};
    ndp_str_addf(&yaml, "name: %dx%d-%s\nnodes: %d\nnode: {device: %s, devices: %d}\n", nodes, devices, name, nodes,
                 name, devices);
    ndp_status st = yaml.data ? ndp_cluster_parse(yaml.data, strlen(yaml.data), text, out)
                              : NDP_FAIL(NDP_ENOMEM, "not enough memory for a cluster");
    ndp_str_release(&yaml);
    return st;
}

ndp_status ndp_cluster_resize(ndp_cluster *c, int nodes) {
    NDP_CHECK(nodes >= 1 && nodes <= NDP_MOST_NODES, "%d nodes: a cluster has 1 to %d", nodes, NDP_MOST_NODES);
    NDP_CHECK(nodes == 1 || c->nics.count > 0, "%s has no NICs (nics), which %d nodes need", c->name, nodes);
    int *devices = malloc((size_t)nodes * sizeof *devices);
    NDP_CHECK_MEMORY(devices, "for %d nodes", nodes);
    for (int i = 0; i < nodes; i++)
        devices[i] = c->devices_of[0];
    free(c->devices_of);
    ndp_strings_release(&c->hosts);
    c->devices_of = devices, c->nodes = nodes;
    return NDP_OK;
}

bool ndp_cluster_of_hosts(const ndp_cluster *c) { return strcmp(c->like ? c->like : c->device, "cpu") == 0; }

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
