/* All sections and keys of cluster.yaml, in the order in which it is written and the help shows them. */
#include "cluster/cluster_table.h"

#include <stdlib.h>

#define SHAPE_WORD(NAME, name) #name,
static const char *const shape_words[] = {NDP_LINK_SHAPES(SHAPE_WORD) NULL};

/* A row describes a member of a struct; its default is a YAML value or NONE. --resume does not compare these keys. */
#define ROW(section, key, type, member) section, key, offsetof(type, member), NDP_KEY_FREE, 0
#define NONE NULL
#define STATED "" /* a text without a default, which cannot be null */
#define TEXT(default) NDP_OPTION_TEXT, default
#define INT(default, from, to) NDP_OPTION_INT, default, from, to
#define NUMBER(default, within) NDP_OPTION_NUMBER, default, .interval = within
#define HELP .help =

#define BANDWIDTH "(0, 1e18]"
#define SECONDS "[0, 60]"
#define FLOPS "[0, 1e21]"
#define MONEY "[0, 1e12]"

/* clang-format off */
#define LINK_ROWS(section) \
    {ROW(section, "kind", ndp_link_facts, kind), TEXT("links"), HELP "what they are, for reports: nvlink, pcie"}, \
    {ROW(section, "bandwidth", ndp_link_facts, bandwidth), NUMBER(NONE, BANDWIDTH), HELP "bytes/s that a device sends altogether; as much arrives at the same time"}, \
    {ROW(section, "latency", ndp_link_facts, latency), NUMBER("2e-6", SECONDS), HELP "seconds until the first byte arrives"}, \
    {ROW(section, "shape", ndp_link_facts, shape), NDP_OPTION_WORD, "switch", .words = shape_words, HELP "switch: to any others at once; ring: half to each of two neighbours; mesh: an equal part to each other; host: over PCIe through the host's memory"},
#define NIC_ROWS(section) \
    {ROW(section, "count", ndp_nic_facts, count), INT("1", 1, NDP_MOST_NODE_DEVICES), HELP "NICs of a node, which its devices share"}, \
    {ROW(section, "bandwidth", ndp_nic_facts, bandwidth), NUMBER(NONE, BANDWIDTH), HELP "bytes/s of one NIC in each direction"}, \
    {ROW(section, "latency", ndp_nic_facts, latency), NUMBER("5e-6", SECONDS), HELP "seconds until the first byte arrives at another node"}, \
    {ROW(section, "kind", ndp_nic_facts, kind), TEXT("nics"), HELP "what they are, for reports: infiniband, ethernet"},

const ndp_cluster_section ndp_cluster_sections[] = {
    {"", "the cluster", NULL},
    {"node", "every node; its devices are of one kind", NULL},
    {"node.links", "between the devices of a node", "that of the device"},
    {"node.nics", "from a node to the network", "that of the device"},
    {NDP_SECTION_NETWORK, "a list of levels, from the nodes outwards: {level: rack, nodes: 4, oversubscription: 1}; none: one non-blocking network", NULL},
    {"devices", "devices of this file, by name", NULL},
    {NDP_SECTION_DEVICE, "a device that is not built in, or numbers of one that is", "that of `like`"},
    {NDP_SECTION_DEVICE ".flops", "dense products per second, as floating-point operations", "that of `like`"},
    {NDP_SECTION_DEVICE ".links", "as node.links", "that of `like`"},
    {NDP_SECTION_DEVICE ".nics", "as node.nics", "that of `like`"},
    {"efficiency", "shares of the stated rates that calls reach", NULL},
    {"measured", "where numbers come from that are measured", NULL},
};
const int ndp_cluster_section_count = NDP_COUNT(ndp_cluster_sections);

const ndp_option ndp_cluster_rows[] = {
    {ROW("", "name", ndp_cluster_file, c.name), TEXT("cluster"), HELP "for reports"},
    {ROW("", "nodes", ndp_cluster_file, c.nodes), INT("1", 1, NDP_MOST_NODES), .also = "or a list: how many devices each node has", HELP "number of nodes"},
    {ROW("", "hosts", ndp_cluster_file, c.hosts), NDP_OPTION_LIST, "[]", HELP "names of the nodes, in order; none: not stated"},

    {ROW("node", "device", ndp_cluster_file, c.device), TEXT(STATED), HELP "a built-in device, or a key of devices"},
    {ROW("node", "devices", ndp_cluster_file, devices), INT("1", 1, NDP_MOST_NODE_DEVICES), HELP "devices of a node, unless nodes is a list"},
    {ROW("node", "price", ndp_cluster_file, c.price), NUMBER("0", MONEY), HELP "of a node per hour, in any currency; 0: not stated"},
    {ROW("node", "power", ndp_cluster_file, c.power), NUMBER("0", MONEY), HELP "of a node, in watts; 0: not stated"},
    LINK_ROWS("node.links")
    NIC_ROWS("node.nics")

    {ROW(NDP_SECTION_NETWORK, "level", ndp_network_level, name), TEXT(STATED), HELP "what a unit of this level is called: rack, pod"},
    {ROW(NDP_SECTION_NETWORK, "nodes", ndp_network_level, members), INT(NONE, 1, NDP_MOST_NODES), HELP "how many units of the level inside it one has; after a level rack, the key is racks"},
    {ROW(NDP_SECTION_NETWORK, "oversubscription", ndp_network_level, oversubscription), NUMBER("1", "[1, 1e6]"), HELP "bandwidth of a unit's members together / that of its own uplink"},

    {ROW(NDP_SECTION_DEVICE, "like", ndp_cluster, like), TEXT(STATED), HELP "another device, whose numbers it has where it states none; without it, the built-in device of its name"},
    {ROW(NDP_SECTION_DEVICE, "memory_bytes", ndp_device_facts, memory_bytes), NUMBER(NONE, BANDWIDTH), HELP "bytes of its memory"},
    {ROW(NDP_SECTION_DEVICE, "memory_bandwidth", ndp_device_facts, memory_bandwidth), NUMBER(NONE, BANDWIDTH), HELP "bytes/s of its memory"},
    {ROW(NDP_SECTION_DEVICE, "multiprocessors", ndp_device_facts, multiprocessors), INT(NONE, 1, 1 << 20), HELP "streaming multiprocessors, compute units; of a CPU: cores"},
    {ROW(NDP_SECTION_DEVICE, "call_seconds", ndp_device_facts, call_seconds), NUMBER("4e-6", SECONDS), HELP "what a call costs before it computes"},
    {ROW(NDP_SECTION_DEVICE ".flops", "fp32", ndp_device_facts, flops[NDP_RATE_FP32]), NUMBER("0", FLOPS), HELP "of fp32, without TF32; 0: it has no such unit"},
    {ROW(NDP_SECTION_DEVICE ".flops", "bf16", ndp_device_facts, flops[NDP_RATE_BF16]), NUMBER("0", FLOPS), HELP "of bf16 with sums in fp32"},
    {ROW(NDP_SECTION_DEVICE ".flops", "fp8", ndp_device_facts, flops[NDP_RATE_FP8]), NUMBER("0", FLOPS), HELP "of fp8 with sums in fp32"},
    LINK_ROWS(NDP_SECTION_DEVICE ".links")
    NIC_ROWS(NDP_SECTION_DEVICE ".nics")

    {ROW("efficiency", "matmul", ndp_efficiency, matmul), NUMBER("1", "(0, 1]"), HELP "products of matrices, of flops"},
    {ROW("efficiency", "attention", ndp_efficiency, attention), NUMBER("1", "(0, 1]"), HELP "attention, of flops"},
    {ROW("efficiency", "memory", ndp_efficiency, memory), NUMBER("1", "(0, 1]"), HELP "other calls, of memory_bandwidth"},
    {ROW("efficiency", "links", ndp_efficiency, links), NUMBER("1", "(0, 1]"), HELP "collectives inside a node, of links.bandwidth"},
    {ROW("efficiency", "nics", ndp_efficiency, nics), NUMBER("1", "(0, 1]"), HELP "collectives between nodes, of nics.bandwidth and uplinks"},

    {ROW("measured", "on", ndp_cluster_file, c.measured_on), TEXT(NONE), HELP "the day: 2026-11-26"},
    {ROW("measured", "by", ndp_cluster_file, c.measured_by), TEXT(NONE), HELP "the program"},
};
/* clang-format on */
const int ndp_cluster_row_count = NDP_COUNT(ndp_cluster_rows);
_Static_assert(NDP_COUNT(ndp_cluster_rows) <= NDP_CLUSTER_MOST_ROWS, "flags of all rows fit");

const ndp_device_part ndp_device_parts[NDP_DEVICE_PARTS] = {
    {NDP_SECTION_DEVICE, NULL, 0},
    {NDP_SECTION_DEVICE ".flops", "flops", 0},
    {NDP_SECTION_DEVICE ".links", "links", offsetof(ndp_device_facts, links)},
    {NDP_SECTION_DEVICE ".nics", "nics", offsetof(ndp_device_facts, nics)},
};

const ndp_own_part ndp_own_parts[NDP_OWN_PARTS] = {
    {"node.links", "links", NDP_SECTION_DEVICE ".links", offsetof(ndp_cluster, links),
     offsetof(ndp_device_facts, links)},
    {"node.nics", "nics", NDP_SECTION_DEVICE ".nics", offsetof(ndp_cluster, nics), offsetof(ndp_device_facts, nics)},
};

const char *ndp_cluster_subsection(const char *section, const char *parent) {
    const char *dot = strrchr(section, '.');
    size_t n = dot ? (size_t)(dot - section) : 0;
    return *section && strlen(parent) == n && strncmp(section, parent, n) == 0 ? section + n + (dot ? 1 : 0) : NULL;
}

static ndp_status set_default(const ndp_option *o, void *into) {
    void *at = (char *)into + o->offset;
    if (!*o->value)
        return NDP_OK;
    if (o->type == NDP_OPTION_TEXT)
        return ndp_option_copy_text(o->value, at);
    if (o->type == NDP_OPTION_LIST)
        return NDP_OK; /* an empty one */
    if (o->type == NDP_OPTION_WORD) {
        for (int i = 0; o->words[i]; i++)
            if (strcmp(o->words[i], o->value) == 0)
                *(int *)at = i;
        return NDP_OK;
    }
    return ndp_option_digits(o, o->value, into)
               ? NDP_OK
               : NDP_FAIL(NDP_EBUG, "the default of %s.%s is %s", o->section, o->key, o->value);
}

bool ndp_cluster_row_is_of(int i, const char *section) {
    const ndp_option *o = &ndp_cluster_rows[i];
    return strcmp(o->section, section) == 0 && strcmp(o->key, "like") != 0;
}

ndp_status ndp_cluster_defaults(const char *section, void *into) {
    for (int i = 0; i < ndp_cluster_row_count; i++)
        if (ndp_cluster_rows[i].value && ndp_cluster_row_is_of(i, section))
            NDP_TRY(set_default(&ndp_cluster_rows[i], into));
    return NDP_OK;
}

bool ndp_cluster_is_unknown(const ndp_option *o, const void *from) {
    const char *at = (const char *)from + o->offset;
    if (o->type == NDP_OPTION_TEXT)
        return !*(char *const *)(const void *)at;
    if (o->type == NDP_OPTION_INT)
        return *(const int *)(const void *)at < o->low;
    return o->type == NDP_OPTION_NUMBER && o->interval[0] == '(' && *(const double *)(const void *)at == 0;
}

bool ndp_cluster_is_same(const ndp_option *o, const void *a, const void *b) {
    ndp_str one = {0}, other = {0};
    ndp_option_write(o, a, &one);
    ndp_option_write(o, b, &other);
    bool same = !one.failed && !other.failed && strcmp(one.data, other.data) == 0;
    ndp_str_release(&one);
    ndp_str_release(&other);
    return same;
}
