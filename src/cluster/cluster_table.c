/* All sections and keys of cluster.yaml, in the order in which it is written and the help shows them; the help. */
#include "cluster/cluster_table.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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
#define COST "(0, 1e12]"

/* clang-format off */
#define LINK_ROWS(section, type) \
    {ROW(section, "kind", type, links.kind), TEXT("links"), HELP "what they are, for reports: nvlink, pcie"}, \
    {ROW(section, "bandwidth", type, links.bandwidth), NUMBER(NONE, BANDWIDTH), HELP "bytes/s that a device sends altogether; as much arrives at the same time"}, \
    {ROW(section, "latency", type, links.latency), NUMBER("2e-6", SECONDS), HELP "seconds until the first byte arrives"}, \
    {ROW(section, "shape", type, links.shape), NDP_OPTION_WORD, "switch", .words = shape_words, HELP "switch: to any others at once; ring: half to each of two neighbours; mesh: an equal part to each other; host: over PCIe through the host's memory"},
#define NIC_ROWS(section, type) \
    {ROW(section, "count", type, nics.count), INT("1", 1, NDP_MOST_NODE_DEVICES), HELP "NICs of a node, which its devices share"}, \
    {ROW(section, "bandwidth", type, nics.bandwidth), NUMBER(NONE, BANDWIDTH), HELP "bytes/s of one NIC in each direction"}, \
    {ROW(section, "latency", type, nics.latency), NUMBER("5e-6", SECONDS), HELP "seconds until the first byte arrives at another node"}, \
    {ROW(section, "kind", type, nics.kind), TEXT("nics"), HELP "what they are, for reports: infiniband, ethernet"},

static const ndp_option_section sections[] = {
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

static const ndp_option rows[] = {
    {ROW("", "name", ndp_cluster_file, c.name), TEXT("cluster"), HELP "for reports"},
    {ROW("", "nodes", ndp_cluster_file, c.nodes), INT("1", 1, NDP_MOST_NODES), .also = "or a list: how many devices each node has", HELP "number of nodes"},
    {ROW("", "hosts", ndp_cluster_file, c.hosts), NDP_OPTION_LIST, "[]", HELP "names of the nodes, in order; none: not stated"},

    {ROW("node", "device", ndp_cluster_file, c.device), TEXT(STATED), HELP "a built-in device, or a key of devices"},
    {ROW("node", "devices", ndp_cluster_file, devices), INT("1", 1, NDP_MOST_NODE_DEVICES), HELP "devices of a node, unless nodes is a list"},
    {ROW("node", "price", ndp_cluster_file, c.price), NUMBER(NONE, COST), HELP "of a node per hour, in any currency; none: not stated"},
    {ROW("node", "power", ndp_cluster_file, c.power), NUMBER(NONE, COST), HELP "of a node, in watts; none: not stated"},
    LINK_ROWS("node.links", ndp_cluster)
    NIC_ROWS("node.nics", ndp_cluster)

    {ROW(NDP_SECTION_NETWORK, "level", ndp_network_level, name), TEXT(STATED), HELP "what a unit of this level is called: rack, pod"},
    {ROW(NDP_SECTION_NETWORK, "nodes", ndp_network_level, members), INT(NONE, 1, NDP_MOST_NODES), HELP "how many units of the level inside it one has; after a level rack, the key is racks"},
    {ROW(NDP_SECTION_NETWORK, "oversubscription", ndp_network_level, oversubscription), NUMBER("1", "[1, 1e6]"), HELP "bandwidth of a unit's members together / that of its own uplink"},

    {ROW(NDP_SECTION_DEVICE, "like", ndp_device_entry, like), TEXT(STATED), HELP "another device, whose numbers it has where it states none; without it, the built-in device of its name"},
    {ROW(NDP_SECTION_DEVICE, "full_name", ndp_device_facts, full_name), TEXT(NONE), HELP "what its driver, or the processor, says that it is: NVIDIA H100 80GB HBM3; plan --anchor takes no run of another one"},
    {ROW(NDP_SECTION_DEVICE, "memory_bytes", ndp_device_facts, memory_bytes), NUMBER(NONE, BANDWIDTH), HELP "bytes of its memory, as its driver reports them"},
    {ROW(NDP_SECTION_DEVICE, "runtime_bytes", ndp_device_facts, runtime_bytes), NUMBER("0", "[0, 1e18]"), HELP "of them, what a process takes for the device's context and libraries; measured memory leaves it out"},
    {ROW(NDP_SECTION_DEVICE, "memory_bandwidth", ndp_device_facts, memory_bandwidth), NUMBER(NONE, BANDWIDTH), HELP "bytes/s of its memory"},
    {ROW(NDP_SECTION_DEVICE, "multiprocessors", ndp_device_facts, multiprocessors), INT(NONE, 1, 1 << 20), HELP "streaming multiprocessors, compute units; of a CPU: cores"},
    {ROW(NDP_SECTION_DEVICE, "call_seconds", ndp_device_facts, call_seconds), NUMBER("4e-6", SECONDS), HELP "what a call costs before it computes"},
    {ROW(NDP_SECTION_DEVICE ".flops", "fp32", ndp_device_facts, flops[NDP_RATE_FP32]), NUMBER("0", FLOPS), HELP "of fp32, without TF32; 0: it has no such unit"},
    {ROW(NDP_SECTION_DEVICE ".flops", "bf16", ndp_device_facts, flops[NDP_RATE_BF16]), NUMBER("0", FLOPS), HELP "of bf16 with sums in fp32"},
    {ROW(NDP_SECTION_DEVICE ".flops", "fp8", ndp_device_facts, flops[NDP_RATE_FP8]), NUMBER("0", FLOPS), HELP "of fp8 with sums in fp32"},
    LINK_ROWS(NDP_SECTION_DEVICE ".links", ndp_device_facts)
    NIC_ROWS(NDP_SECTION_DEVICE ".nics", ndp_device_facts)

    {ROW("efficiency", "matmul", ndp_cluster_file, c.efficiency.matmul), NUMBER("1", "(0, 1]"), HELP "products of matrices, of flops"},
    {ROW("efficiency", "attention", ndp_cluster_file, c.efficiency.attention), NUMBER("1", "(0, 1]"), HELP "attention, of flops"},
    {ROW("efficiency", "memory", ndp_cluster_file, c.efficiency.memory), NUMBER("1", "(0, 1]"), HELP "other calls, of memory_bandwidth"},
    {ROW("efficiency", "links", ndp_cluster_file, c.efficiency.links), NUMBER("1", "(0, 1]"), HELP "collectives inside a node, of links.bandwidth"},
    {ROW("efficiency", "nics", ndp_cluster_file, c.efficiency.nics), NUMBER("1", "(0, 1]"), HELP "collectives between nodes, of nics.bandwidth and uplinks"},

    {ROW("measured", "on", ndp_cluster_file, c.measured_on), TEXT(NONE), HELP "the day: 2026-11-26"},
    {ROW("measured", "by", ndp_cluster_file, c.measured_by), TEXT(NONE), HELP "the program"},
};
/* clang-format on */
_Static_assert(NDP_COUNT(rows) <= NDP_MOST_ROWS, "a reading has a place for every row");
_Static_assert(offsetof(ndp_cluster_file, c) == 0 && offsetof(ndp_device_entry, facts) == 0,
               "a row of a cluster is one of its file, and a row of facts one of an entry");

static ndp_status refuse(ndp_yaml *y, const ndp_option_key *key) { return ndp_cluster_unknown_key(y, key, NULL); }

const ndp_option_table ndp_cluster_options = {.rows = rows,
                                              .n = NDP_COUNT(rows),
                                              .sections = sections,
                                              .section_count = NDP_COUNT(sections),
                                              .expected = "keys and sections such as 'nodes:' and 'node:'",
                                              .refuse = refuse};

int ndp_cluster_row(const char *section, const char *key) {
    return (int)(ndp_option_among(&ndp_cluster_options, section, key) - rows);
}

/* The row whose section is called `to` and what follows `from` in the section of another one. */
static const ndp_option *row_as(const ndp_option *o, const char *from, const char *to) {
    char section[64];
    snprintf(section, sizeof section, "%s%s", to, o->section + strlen(from));
    return ndp_option_among(&ndp_cluster_options, section, o->key);
}

const ndp_option *ndp_cluster_row_of_node(const ndp_option *of_device) {
    return row_as(of_device, NDP_SECTION_DEVICE, "node");
}

const ndp_option *ndp_cluster_row_of_device(const ndp_option *of_node) {
    return row_as(of_node, "node", NDP_SECTION_DEVICE);
}

bool ndp_cluster_is_unknown(const ndp_option *o, const void *from) {
    const char *at = (const char *)from + o->offset;
    if (o->type == NDP_OPTION_TEXT)
        return !*(char *const *)(const void *)at;
    if (o->type == NDP_OPTION_INT)
        return *(const int *)(const void *)at < o->low;
    return o->type == NDP_OPTION_NUMBER && o->interval[0] == '(' && *(const double *)(const void *)at == 0;
}

void ndp_cluster_round(ndp_cluster *c) {
    double *numbers[NDP_COUNT(rows) + NDP_NETWORK_LEVELS];
    int n = 0;
    for (int i = 0; i < NDP_COUNT(rows); i++) {
        bool device = strncmp(rows[i].section, NDP_SECTION_DEVICE, strlen(NDP_SECTION_DEVICE)) == 0;
        char *at = (device ? (char *)&c->facts : (char *)c) + rows[i].offset;
        if (rows[i].type == NDP_OPTION_NUMBER && strcmp(rows[i].section, NDP_SECTION_NETWORK) != 0)
            numbers[n++] = (double *)(void *)at;
    }
    for (int i = 0; i < c->levels; i++)
        numbers[n++] = &c->network[i].oversubscription;
    for (int i = 0; i < n; i++) {
        char digits[32];
        snprintf(digits, sizeof digits, "%.4g", *numbers[i]);
        *numbers[i] = strtod(digits, NULL);
    }
}

/* ---- names ---- */

ndp_status ndp_cluster_unknown_key(ndp_yaml *y, const ndp_option_key *key, const char *more) {
    ndp_str s = {0};
    ndp_option_unknown(&ndp_cluster_options, key, NULL, more, &s);
    return ndp_yaml_fail_str(y, key->node, &s);
}

ndp_status ndp_cluster_check_name(ndp_yaml *y, struct fy_node *node, const char *what, const char *name, int most,
                                  bool colons) {
    bool good = isalnum((unsigned char)name[0]) && strlen(name) <= (size_t)most;
    for (const char *c = name; *c && good; c++)
        good = isalnum((unsigned char)*c) || strchr("-_.", *c) || (colons && *c == ':');
    return good ? NDP_OK
                : ndp_yaml_fail(y, node, "'%.60s' is no name of a %s: expected at most %d letters, digits and - _ .%s",
                                name, what, most, colons ? " :" : "");
}

/* ---- help ---- */

/* "that of the device, or else 2e-6" */
static void explain_default(const ndp_option_section *s, const ndp_option *o, ndp_str *out) {
    const char *value = o->value && *o->value ? o->value : NULL;
    bool cost = strcmp(o->section, "node") == 0 && o->type == NDP_OPTION_NUMBER;
    if (strcmp(o->key, "like") == 0 || cost)
        ndp_str_add(out, "none");
    else if (s->otherwise)
        ndp_str_addf(out, "%s%s%s", s->otherwise, value ? ", or else " : "", value ? value : "");
    else if (o->type == NDP_OPTION_TEXT && !o->value)
        ndp_str_add(out, "null");
    else
        ndp_str_add(out, value ? value : "none: it must be stated");
}

static void explain_row(const ndp_option_section *s, const ndp_option *o, ndp_str *out) {
    enum { WIDTH = 18 };
    ndp_str_addf(out, "  %-*s %s\n  %-*s ", WIDTH, o->key, o->help, WIDTH, "");
    ndp_option_expects(o, out);
    ndp_str_add(out, "; default ");
    explain_default(s, o, out);
    ndp_str_add(out, "\n");
}

void ndp_cluster_keys_help(ndp_str *out) {
    for (int i = 0; i < NDP_COUNT(sections); i++) {
        const ndp_option_section *s = &sections[i];
        if (*s->name)
            ndp_str_addf(out, "\n%s: %s\n", s->name, s->help);
        for (int k = 0; k < NDP_COUNT(rows); k++)
            if (strcmp(rows[k].section, s->name) == 0)
                explain_row(s, &rows[k], out);
    }
}

ndp_status ndp_cluster_help(char **text) {
    NDP_NOT_NULL(text);
    ndp_str out = {0};
    ndp_cluster_keys_help(&out);
    *text = ndp_str_detach(&out);
    return NDP_MEMORY(*text, "for a text");
}
