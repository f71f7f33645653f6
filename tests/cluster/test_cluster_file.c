/* cluster.yaml: what it says is read, what is wrong is refused at its place, and what is written reads back. */
#include "cluster/cluster.h"

#include "base/rng.h"
#include "check.h"
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static ndp_status parse(const char *text, ndp_cluster *c) {
    return ndp_cluster_parse(text, strlen(text), "cluster.yaml", c);
}

static char *written(const ndp_cluster *c) {
    ndp_str s = {0};
    ndp_cluster_write(c, &s);
    char *text = ndp_str_detach(&s);
    assert_non_null(text);
    return text;
}

static void check_source(const char *text, const char *source) {
    ndp_cluster c;
    ndp_str s = {0};
    CHECK_OK(parse(text, &c));
    ndp_cluster_source(&c, &s);
    assert_string_equal(s.data, source);
    ndp_str_release(&s);
    ndp_cluster_release(&c);
}

/* ---- the same cluster ---- */

static void check_text(const char *a, const char *b) {
    assert_int_equal(a == NULL, b == NULL);
    if (a)
        assert_string_equal(a, b);
}

static void check_number(double a, double b) { assert_true(a == b); }

static void check_links(const ndp_link_facts *a, const ndp_link_facts *b) {
    check_text(a->kind, b->kind);
    check_number(a->bandwidth, b->bandwidth);
    check_number(a->latency, b->latency);
    assert_int_equal(a->shape, b->shape);
}

static void check_nics(const ndp_nic_facts *a, const ndp_nic_facts *b) {
    check_text(a->kind, b->kind);
    assert_int_equal(a->count, b->count);
    check_number(a->bandwidth, b->bandwidth);
    check_number(a->latency, b->latency);
}

static void check_facts(const ndp_device_facts *a, const ndp_device_facts *b) {
    for (int i = 0; i < NDP_RATES; i++)
        check_number(a->flops[i], b->flops[i]);
    check_number(a->memory_bytes, b->memory_bytes);
    check_number(a->runtime_bytes, b->runtime_bytes);
    check_number(a->memory_bandwidth, b->memory_bandwidth);
    assert_int_equal(a->multiprocessors, b->multiprocessors);
    check_number(a->call_seconds, b->call_seconds);
    check_links(&a->links, &b->links);
    check_nics(&a->nics, &b->nics);
}

static void check_same(const ndp_cluster *a, const ndp_cluster *b) {
    check_text(a->name, b->name);
    assert_int_equal(a->nodes, b->nodes);
    assert_memory_equal(a->devices_of, b->devices_of, (size_t)a->nodes * sizeof *a->devices_of);
    assert_int_equal(a->hosts.n, b->hosts.n);
    for (int i = 0; i < a->hosts.n; i++)
        check_text(a->hosts.items[i], b->hosts.items[i]);
    check_text(a->device, b->device);
    check_text(a->like, b->like);
    check_facts(&a->facts, &b->facts);
    check_links(&a->links, &b->links);
    check_nics(&a->nics, &b->nics);
    check_number(a->price, b->price);
    check_number(a->power, b->power);
    assert_int_equal(a->levels, b->levels);
    for (int i = 0; i < a->levels; i++) {
        check_text(a->network[i].name, b->network[i].name);
        assert_int_equal(a->network[i].members, b->network[i].members);
        check_number(a->network[i].oversubscription, b->network[i].oversubscription);
    }
    check_number(a->efficiency.matmul, b->efficiency.matmul);
    check_number(a->efficiency.attention, b->efficiency.attention);
    check_number(a->efficiency.memory, b->efficiency.memory);
    check_number(a->efficiency.links, b->efficiency.links);
    check_number(a->efficiency.nics, b->efficiency.nics);
    check_text(a->measured_on, b->measured_on);
    check_text(a->measured_by, b->measured_by);
    assert_int_equal(a->built_in, b->built_in);
}

static void check_round_trip(const ndp_cluster *c) {
    ndp_cluster back;
    char *text = written(c);
    if (parse(text, &back) != NDP_OK)
        fail_msg("%s\n%s", ndp_error_message(), text);
    check_same(c, &back);
    char *again = written(&back);
    assert_string_equal(text, again);
    ndp_cluster_release(&back);
    free(text);
    free(again);
}

/* ---- what is read ---- */

static const char lab[] = "name: lab\n"
                          "nodes: 16  # or a list of devices per node: [8, 8, 4]\n"
                          "node:\n"
                          "  device: mine\n"
                          "  devices: 8\n"
                          "  links: {kind: nvlink, bandwidth: 400.0e9, latency: 2.5e-6, shape: ring}\n"
                          "  nics: {count: 4, bandwidth: 50.0e9, latency: 7.0e-6, kind: ethernet}\n"
                          "  price: 98.0\n"
                          "  power: 10200\n"
                          "network:\n"
                          "  - {level: rack, nodes: 4, oversubscription: 1}\n"
                          "  - {level: pod, racks: 4, oversubscription: 3}\n"
                          "devices:\n"
                          "  mine: {like: h100-sxm, memory_bytes: 96.0e9, memory_bandwidth: 2.4e12}\n"
                          "efficiency: {matmul: 0.7, nics: 0.8}\n"
                          "measured: {on: 2026-11-26, by: ndparallel 0.1}\n";

static void a_whole_cluster(void **state) {
    (void)state;
    ndp_cluster c;
    CHECK_OK(parse(lab, &c));
    const ndp_device_facts *h100 = ndp_built_in_device("h100-sxm");
    assert_string_equal(c.name, "lab");
    assert_int_equal(c.nodes, 16);
    assert_int_equal(c.devices_of[0], 8);
    assert_int_equal(c.devices_of[15], 8);
    assert_int_equal(ndp_cluster_devices(&c), 128);
    assert_int_equal(c.hosts.n, 0);
    assert_string_equal(c.device, "mine");
    assert_string_equal(c.like, "h100-sxm");
    check_number(c.facts.memory_bytes, 96e9);
    check_number(c.facts.memory_bandwidth, 2.4e12);
    check_number(c.facts.flops[NDP_RATE_BF16], h100->flops[NDP_RATE_BF16]);
    check_links(&c.facts.links, &h100->links);
    check_links(&c.links, &(ndp_link_facts){"nvlink", 400e9, 2.5e-6, NDP_LINK_RING});
    check_nics(&c.nics, &(ndp_nic_facts){"ethernet", 4, 50e9, 7e-6});
    check_number(c.price, 98);
    check_number(c.power, 10200);
    assert_int_equal(c.levels, 2);
    assert_string_equal(c.network[1].name, "pod");
    assert_int_equal(c.network[1].members, 4);
    check_number(c.network[1].oversubscription, 3);
    check_number(c.efficiency.matmul, 0.7);
    check_number(c.efficiency.attention, c.built_in ? ndp_built_in_device(c.like)->efficiency.attention : 1);
    check_number(c.efficiency.nics, 0.8);
    assert_string_equal(c.measured_on, "2026-11-26");
    assert_string_equal(c.measured_by, "ndparallel 0.1");
    assert_true(c.built_in);
    check_round_trip(&c);
    ndp_cluster_release(&c);
    ndp_cluster_release(&c);
}

static void defaults(void **state) {
    (void)state;
    ndp_cluster c;
    CHECK_OK(parse("node: {device: mi300x}", &c));
    const ndp_device_facts *built_in = ndp_built_in_device("mi300x");
    assert_string_equal(c.name, "cluster");
    assert_int_equal(c.nodes, 1);
    assert_int_equal(ndp_cluster_devices(&c), 1);
    check_facts(&c.facts, built_in);
    check_links(&c.links, &built_in->links);
    check_nics(&c.nics, &built_in->nics);
    assert_int_equal(c.levels, 0);
    check_number(c.efficiency.links, ndp_built_in_device(c.device)->efficiency.links);
    assert_null(c.measured_on);
    char *text = written(&c);
    assert_string_equal(text, "name: cluster\nnodes: 1\nnode:\n  device: mi300x\n  devices: 1\n");
    free(text);
    ndp_cluster_release(&c);
}

/* Sections in any order, empty ones, aliases, one host without a list, chains of `like`. */
static void other_forms(void **state) {
    (void)state;
    ndp_cluster c;
    CHECK_OK(parse("devices:\n  a: {like: b, call_seconds: 1}\n  b: {like: h200, nics: &n {count: 2}}\n"
                   "  h200: {memory_bytes: 1e9}\nnetwork:\nefficiency: ~\nmeasured:\nhosts: node-1\n"
                   "node: {nics: *n, device: a, links: }\nnodes: 1\n",
                   &c));
    assert_string_equal(c.like, "h200");
    check_number(c.facts.call_seconds, 1);
    check_number(c.facts.memory_bytes, 1e9);
    check_number(c.facts.memory_bandwidth, 4.8e12);
    assert_int_equal(c.nics.count, 2);
    assert_string_equal(c.hosts.items[0], "node-1");
    check_round_trip(&c);
    ndp_cluster_release(&c);
    CHECK_OK(parse("nodes: [8, 8, 4]\nhosts: [a, b, c]\nnode: {device: cpu}", &c));
    assert_int_equal(c.nodes, 3);
    assert_int_equal(c.devices_of[2], 4);
    assert_int_equal(ndp_cluster_devices(&c), 20);
    char *text = written(&c);
    assert_non_null(strstr(text, "nodes: [8, 8, 4]\nhosts: [a, b, c]\nnode:\n  device: cpu\n"));
    free(text);
    check_round_trip(&c);
    ndp_cluster_release(&c);
    /* the last rack has fewer nodes than the others */
    CHECK_OK(parse("nodes: 10\nnode: {device: cpu}\nnetwork: [{level: rack, nodes: 4}, {level: pod, racks: 3}]", &c));
    ndp_cluster_release(&c);
    /* a node that is alone needs no NICs */
    CHECK_OK(
        parse("node: {device: x, devices: 2, links: {kind: bus, bandwidth: 3e9}}\ndevices:\n  x: {memory_bytes: 1, "
              "memory_bandwidth: 1, multiprocessors: 1, flops: {fp32: 1}}\n",
              &c));
    check_number(c.nics.bandwidth, 3e9);
    check_round_trip(&c);
    ndp_cluster_release(&c);
    CHECK_OK(parse("nodes: 131072\nnode: {device: cpu, devices: 1024}", &c));
    assert_int_equal(ndp_cluster_devices(&c), 1 << 27);
    ndp_cluster_release(&c);
}

#define WHOLE                                                                                                          \
    "devices: {x: {flops: {bf16: 1e15}, memory_bytes: 1e10, memory_bandwidth: 1e12, multiprocessors: 9, "              \
    "links: {bandwidth: 1e9}, nics: {bandwidth: 1e9}}}\n"

static void sources(void **state) {
    (void)state;
    check_source("node: {device: b200}", "built in");
    check_source("node: {device: x}\n" WHOLE, "stated");
    check_source("node: {device: b200, nics: {count: 4}}", "mixed: stated, and built in of b200");
    check_source("node: {device: b200}\ndevices: {b200: {memory_bytes: 1}}", "mixed: stated, and built in of b200");
    check_source("node: {device: x}\nmeasured: {on: 2026-11-26, by: ndparallel 0.1}\n" WHOLE,
                 "measured on 2026-11-26 by ndparallel 0.1");
    check_source("node: {device: cpu}\nmeasured: {by: me}", "mixed: measured by me, and built in of cpu");
    /* all numbers of cpu that are known are stated: nothing is built in */
    check_source(
        "node: {device: cpu, links: {bandwidth: 1e9, latency: 0}, nics: {count: 1, bandwidth: 1e9, latency: 0}}",
        "stated");
}

/* ---- what is refused ---- */

typedef struct refusal {
    const char *text;
    int line;
    const char *at;    /* what the caret points at */
    const char *words; /* of the message */
} refusal;

#define NODE "node: {device: h100-sxm}\n"
#define NETWORK "nodes: 16\n" NODE "network:\n"

static const refusal refusals[] = {
    /* devices */
    {"nodes: 1\nnode:\n  device: h100-smx\n", 3, "h100-smx", "unknown device 'h100-smx'; did you mean 'h100-sxm'?"},
    {"node:\n  device: abacus\n", 2, "abacus", "describe it in 'devices'. Built in are a100-sxm-40, a100-sxm-80, "},
    {"node: {device: minr}\n"
     "devices:\n  mine: {like: cpu}\n",
     1, "minr", "did you mean 'mine'?"},
    {"nodes: 1\n", 1, "nodes", "the cluster has no device: state node.device"},
    {"node:\n  devices: 1\n", 2, "devices", "the cluster has no device: state node.device"},
    {"node: {device: }\n", 1, "device", "'node.device' is empty, expected a string"},
    {"node: {device: [cpu]}\n", 1, "[cpu]", "'node.device' is a list, expected a string"},
    {NODE "devices:\n  mine: {like: h100}\n", 3, "h100", "unknown device 'h100'; did you mean"},
    {NODE "devices:\n  mine: {like: mine}\n", 3, "mine}", "device 'mine' is 'like' itself"},
    {NODE "devices:\n  h200: {like: h200}\n", 3, "h200}", "without 'like', it has the numbers of the built-in device"},
    {NODE "devices:\n  a: {like: b}\n  b: {like: c}\n  c: {like: a}\n", 5, "a}", "is 'like' itself, through others"},
    {NODE "devices:\n  d: {like: a}\n  a: {like: b}\n  b: {like: a}\n", 5, "a}", "is 'like' itself, through others"},
    {NODE "devices:\n  mine: {like: [cpu]}\n", 3, "[cpu]", "'like' of device 'mine': expected the name of a device"},
    {NODE "devices:\n  mine: {memory_bytes: 1}\n", 3, "mine", "device 'mine' has no memory_bandwidth: state it, or a"},
    {NODE "devices:\n  mine: 3\n", 3, "3", "device 'mine': expected KEY: VALUE below it"},
    {NODE "devices: [a]\n", 2, "[a]", "'devices' is a section"},
    {NODE "devices:\n  \"a b\": {like: cpu}\n", 3, "a b\"",
     "'a b' is no name of a device: expected at most 64 letters"},
    {NODE "devices:\n  a: {like: cpu, memory_bytes: 0}\n", 3, "0}", "'devices.NAME.memory_bytes' is '0', expected"},
    {NODE "devices:\n  a: {like: cpu, flops: {fp16: 1}}\n", 3, "fp16",
     "unknown key 'fp16' in 'devices.NAME.flops'; did"},
    {"node:\n  device: x\ndevices:\n  x: {memory_bytes: 1, memory_bandwidth: 1, multiprocessors: 1, flops: {fp32: "
     "1}}\n",
     2, "x", "device 'x' has no links.bandwidth: state it, or node.links.bandwidth"},
    {"nodes: 2\nnode:\n  device: x\n  links: {bandwidth: 1}\ndevices:\n  x: {memory_bytes: 1, memory_bandwidth: 1, "
     "multiprocessors: 1, flops: {fp32: 1}}\n",
     3, "x", "device 'x' has no nics.bandwidth: state it"},
    /* numbers */
    {"node:\n  device: cpu\n  links: {bandwidth: 0}\n", 3, "0}",
     "'node.links.bandwidth' is '0', expected a number in (0, "},
    {"node:\n  device: cpu\n  nics:\n    latency: -1e-6\n", 4, "-1e-6", "'node.nics.latency' is '-1e-6', expected"},
    {"node:\n  device: cpu\n  nics: {bandwidth: .nan}\n", 3, ".nan", "'node.nics.bandwidth' is '.nan', expected"},
    {"node:\n  device: cpu\n  nics: {bandwidth: nan}\n", 3, "nan", "'node.nics.bandwidth' is 'nan', expected"},
    {"node:\n  device: cpu\n  nics: {bandwidth: inf}\n", 3, "inf", "'node.nics.bandwidth' is 'inf', expected"},
    {"node:\n  device: cpu\n  nics: {bandwidth: 1e999}\n", 3, "1e999", "'node.nics.bandwidth' is '1e999', expected"},
    {"node:\n  device: cpu\n  nics: {count: 0}\n", 3, "0}", "'node.nics.count' is '0', expected a whole number from 1"},
    {"node:\n  device: cpu\n  links: {bandwidth: [1]}\n", 3, "[1]",
     "'node.links.bandwidth' is a list, expected a number"},
    {"node:\n  device: cpu\n  links: {bandwidth: {a: 1}}\n", 3, "{a", "'node.links.bandwidth' is a mapping, expected"},
    {"node:\n  device: cpu\n  links: {shape: swich}\n", 3, "swich", "mesh or host; did you mean 'switch'?"},
    {"node:\n  device: cpu\n  price: -1\n", 3, "-1", "'node.price' is '-1', expected a number in (0, "},
    {"node:\n  device: cpu\n  price: 0\n", 3, "0", "'node.price' is '0', expected a number in (0, "},
    {"node:\n  device: cpu\n  price: .nan\n", 3, ".nan", "'node.price' is '.nan', expected a number in (0, "},
    {"node:\n  device: cpu\n  power: 0.0\n", 3, "0.0", "'node.power' is '0.0', expected a number in (0, "},
    {"node:\n  device: cpu\n  devices: 0\n", 3, "0", "'node.devices' is '0', expected a whole number from 1 to 1024"},
    {NODE "efficiency: {matmul: 1.01}\n", 2, "1.01", "'efficiency.matmul' is '1.01', expected a number in (0, 1]"},
    {NODE "efficiency: {matmul: 0}\n", 2, "0}", "'efficiency.matmul' is '0', expected a number in (0, 1]"},
    /* nodes and hosts */
    {NODE "nodes: 0\n", 2, "0", "'nodes' is '0', expected a whole number from 1 to 131072, or a list"},
    {NODE "nodes: 131073\n", 2, "131073", "'nodes' is '131073', expected a whole number from 1 to 131072"},
    {NODE "nodes: 99999999999999999999\n", 2, "9999", "expected a whole number from 1 to 131072"},
    {NODE "nodes: [8, 0, 8]\n", 2, "0, 8]", "'nodes' is '0', expected a whole number from 1 to 1024"},
    {NODE "nodes: [8, [8]]\n", 2, "[8]]", "'nodes' is a list, expected a whole number from 1 to 1024"},
    {NODE "nodes: []\n", 2, "[]", "'nodes' is a list of 0 nodes, expected 1 to 131072"},
    {"node:\n  device: cpu\n  devices: 8\nnodes: [8, 8]\n", 3, "devices", "remove 'node.devices'"},
    {NODE "nodes: 2\nhosts: [a]\n", 3, "[a]", "1 hosts, but the cluster has 2 nodes"},
    {NODE "nodes: 3\nhosts:\n- a\n- b\n- a\n", 6, "a", "host 'a' is listed twice: as node 0 and as node 2"},
    {NODE "nodes: 2\nhosts: [a, \"b c\"]\n", 3, "b c\"", "'b c' is no name of a host"},
    {NODE "nodes: 2\nhosts: [a, ]\n", 3, "[a", "1 hosts"},
    {NODE "hosts: {a: b}\n", 2, "{a", "'hosts' is a mapping, expected"},
    /* the network */
    {NETWORK "- {level: rack, nodes: 17}\n", 4, "17}", "17 nodes in a rack, but the cluster has 16"},
    {NETWORK "- {level: rack, nodes: 4}\n- level: pod\n  racks: 5\n", 6, "5",
     "5 racks in a pod, but the cluster has 4"},
    {NETWORK "- {level: rack, nodes: 4, oversubscription: 0.5}\n", 4, "0.5", "expected a number in [1, 1e6]"},
    {NETWORK "- {level: rack, nodes: 0}\n", 4, "0}", "'network.nodes' is '0', expected a whole number from 1"},
    {NETWORK "- {level: rack, nodes: 4}\n- {level: pod, racks: 0}\n", 5, "0}", "'network.racks' is '0', expected"},
    {NETWORK "- {level: rack, nodes: 4}\n- {level: pod, nodes: 4}\n", 5, "nodes",
     "'nodes' is not the level inside this one: its members are 'racks'"},
    {NETWORK "- {level: rack, nodes: 4}\n- {level: pod, pods: 4}\n", 5, "pods", "its members are 'racks'"},
    {NETWORK "- {level: rack, racks: 4}\n", 4, "racks", "its members are 'nodes'"},
    {NETWORK "- {level: rack, nodes: 4}\n- {level: rack, racks: 4}\n", 5, "rack,", "two levels are called 'rack'"},
    {NETWORK "- {level: node, nodes: 4}\n", 4, "node,", "two levels are called 'node'"},
    {NETWORK "- {level: a, nodes: 1}\n- {level: b, as: 1}\n- {level: c, bs: 1}\n- {level: d, cs: 1}\n"
             "- {level: e, ds: 1}\n- {level: f, es: 1}\n- {level: g, fs: 1}\n",
     10, "{level: g", "more than 6 levels"},
    {NETWORK "- {nodes: 4}\n", 4, "{nodes", "a level without a name: expected {level: NAME, nodes: COUNT}"},
    {NETWORK "- {level: rack}\n", 4, "{level", "level 'rack' does not say how many nodes one has"},
    {NETWORK "- {level: rack, nodez: 4}\n", 4, "nodez", "unknown key 'nodez' in 'network'; did you mean 'nodes'?"},
    {NETWORK "- {level: rack, nodes: 4}\n- {level: pod, rakcs: 4}\n", 5, "rakcs", "did you mean 'racks'?"},
    {NETWORK "- {level: \"a b\", nodes: 4}\n", 4, "a b\"", "'a b' is no name of a level"},
    {NETWORK "- rack\n", 4, "rack", "expected a level: {level: NAME, nodes: COUNT, oversubscription: NUMBER}"},
    {NODE "network: {level: rack}\n", 2, "{level", "'network' is a list of levels"},
    /* keys */
    {NODE "nodez: 3\n", 2, "nodez", "unknown key 'nodez'; did you mean 'nodes'?"},
    {NODE "networks: {a: b}\n", 2, "networks", "unknown section 'networks'; did you mean 'network'?"},
    {NODE "bandwidth: 3\n", 2, "bandwidth", "unknown key 'bandwidth'; did you mean 'node.links.bandwidth'?"},
    {"node:\n  device: cpu\n  links: {bandwith: 1}\n", 3, "bandwith",
     "unknown key 'bandwith' in 'node.links'; did you mean 'bandwidth'?"},
    {"node:\n  device: cpu\n  zzz: 1\n", 3, "zzz",
     "unknown key 'zzz' in 'node'; known are device, devices, price, power, links, nics"},
    {NODE "measured: {when: now}\n", 2, "when", "unknown key 'when' in 'measured'"},
    {NODE "nodes: 2\nnodes: 3\n", 3, "nodes", "duplicate key"},
    {NODE "? [a]\n: 3\n", 2, "[a]", "expected a word as the key"},
    {"node: 3\n", 1, "3", "'node' is a section: expected KEY: VALUE below it"},
    {"[a]\n", 1, "[a]", "expected keys and sections such as 'nodes:' and 'node:'"},
    {"", 1, "", "the cluster has no device"},
    {"node: {device: *missing}\n", 1, "missing", "no anchor has this name"},
    {NODE "nodes: [\n", 2, "", "flow sequence without a closing bracket"},
};

/* What the caret of the last message points at. */
static const char *pointed_at(void) {
    const char *line = strchr(ndp_error_message(), '\n'), *below = line ? strchr(line + 1, '\n') : NULL;
    const char *caret = below ? strchr(below, '^') : NULL;
    return caret && caret - below <= below - line ? line + (caret - below) : "";
}

static void refusals_point_at_the_place(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(refusals); i++) {
        const refusal *r = &refusals[i];
        ndp_cluster c;
        char place[40];
        snprintf(place, sizeof place, "cluster.yaml:%d: ", r->line);
        CHECK_FAILS(parse(r->text, &c), NDP_EINVAL, r->words);
        if (strncmp(ndp_error_message(), place, strlen(place)) != 0)
            fail_msg("not at line %d: %s", r->line, ndp_error_message());
        if (strncmp(pointed_at(), r->at, strlen(r->at)) != 0)
            fail_msg("does not point at '%s': %s", r->at, ndp_error_message());
    }
}

static void too_many(void **state) {
    (void)state;
    ndp_cluster c;
    ndp_str s = {0};
    ndp_str_add(&s, NODE "devices:\n");
    for (int i = 0; i <= NDP_MOST_NAMED_DEVICES; i++)
        ndp_str_addf(&s, "  d%d: {like: cpu}\n", i);
    CHECK_FAILS(parse(s.data, &c), NDP_EINVAL, "cluster.yaml:67: more than 64 devices");
    ndp_str_release(&s);
    ndp_str_add(&s, "node: {device: cpu}\nnodes: [");
    for (int i = 0; i <= NDP_MOST_NODES; i++)
        ndp_str_add(&s, i ? ",8" : "8");
    ndp_str_add(&s, "]");
    CHECK_FAILS(parse(s.data, &c), NDP_EINVAL,
                "cluster.yaml:2: 'nodes' is a list of 131073 nodes, expected 1 to 131072");
    ndp_str_release(&s);
}

/* The longest chain of devices that are like each other. */
static void a_long_chain(void **state) {
    (void)state;
    ndp_cluster c;
    ndp_str s = {0};
    ndp_str_add(&s, "node: {device: d0}\ndevices:\n");
    for (int i = 0; i < NDP_MOST_NAMED_DEVICES; i++)
        ndp_str_addf(&s, i + 1 < NDP_MOST_NAMED_DEVICES ? "  d%d: {like: d%d}\n" : "  d%d: {like: l40s} # %d\n", i,
                     i + 1);
    CHECK_OK(parse(s.data, &c));
    assert_string_equal(c.like, "l40s");
    check_facts(&c.facts, ndp_built_in_device("l40s"));
    check_round_trip(&c);
    ndp_cluster_release(&c);
    ndp_str_release(&s);
}

static int64_t peak_bytes(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_maxrss * 1024;
}

static double cpu_seconds(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)r.ru_utime.tv_sec + (double)r.ru_utime.tv_usec * 1e-6;
}

/* Lists of ten aliases of the list before, which would be gigabytes if aliases were copied, wherever they are used.
 * They are defined in the section that is read last. */
static void alias_bombs_stay_small(void **state) {
    (void)state;
    static const char *const uses[][2] = {
        {"node: {device: cpu}\nnodes: *a29", "'nodes' is a list, expected a whole number"},
        {"node: {device: cpu}\nhosts: *a29", "'hosts' is a list, expected a string"},
        {"node: {device: cpu}\nnetwork: *a29", "expected a level"},
        {"node: {device: cpu}\ndevices: {x: *a29}", "device 'x': expected KEY: VALUE"},
        {"node: {device: cpu}\ndevices: {x: {like: *a29}}", "expected the name of a device"},
        {"node: {device: cpu, links: *a29}", "'node.links' is a section"},
        {"node: *a29", "'node' is a section"},
        {"node: {device: cpu}", "'efficiency' is a section"},
    };
    ndp_str bomb = {0};
    ndp_str_add(&bomb, "efficiency: [&a0 [x, x, x, x, x, x, x, x, x, x]");
    for (int i = 1; i < 30; i++) {
        ndp_str_addf(&bomb, ", &a%d [", i);
        for (int k = 0; k < 10; k++)
            ndp_str_addf(&bomb, "%s*a%d", k ? ", " : "", i - 1);
        ndp_str_add(&bomb, "]");
    }
    int64_t before = peak_bytes();
    double start = cpu_seconds();
    for (int i = 0; i < NDP_COUNT(uses); i++) {
        ndp_cluster c;
        char *text = ndp_format("%s]\n%s\n", bomb.data, uses[i][0]);
        assert_non_null(text);
        CHECK_FAILS(parse(text, &c), NDP_EINVAL, uses[i][1]);
        free(text);
    }
    assert_true(peak_bytes() - before < (16 << 20) || SANITIZED);
    assert_true(cpu_seconds() - start < 10);
    ndp_str_release(&bomb);
}

/* Files as large as they may be, of hosts, nodes, levels, keys, anchors and brackets. */
static void large_files_end_fast(void **state) {
    (void)state;
    static const char *const parts[][3] = {{"node: {device: cpu}\nhosts: [", "a", ", "},
                                           {"node: {device: cpu}\nnodes: [", "", ", "},
                                           {"node: {device: cpu}\nnetwork: [", "{level: l", ", nodes: 1}, "},
                                           {"node: {device: cpu}\ndevices: {", "d", ": {like: cpu}, "},
                                           {"node: {device: cpu}\nhosts: [", "&a", " x, "},
                                           {"node: {device: cpu}\nnetwork: ", "[", ", "}};
    for (int p = 0; p < NDP_COUNT(parts); p++) {
        ndp_cluster c;
        ndp_str s = {0};
        ndp_str_add(&s, parts[p][0]);
        for (int i = 0; s.length < (1 << 20) - 64; i++)
            ndp_str_addf(&s, "%s%d%s", parts[p][1], p == 1 ? i % 1000 + 1 : i, parts[p][2]);
        ndp_str_add(&s, p == 3 ? "}" : "]");
        double start = cpu_seconds();
        CHECK_FAILS(parse(s.data, &c), NDP_EINVAL, "cluster.yaml");
        assert_true(cpu_seconds() - start < 20);
        ndp_str_release(&s);
    }
}

static void files(void **state) {
    (void)state;
    ndp_cluster c;
    char path[] = "/tmp/ndp_test_XXXXXX";
    assert_int_not_equal(mkstemp(path), -1);
    CHECK_OK(ndp_file_write_atomic(path, lab, strlen(lab)));
    CHECK_OK(ndp_cluster_read(path, &c));
    check_round_trip(&c);
    ndp_cluster_release(&c);
    char *huge = malloc((1 << 20) + 2);
    memset(huge, '\n', (1 << 20) + 1);
    huge[(1 << 20) + 1] = '\0';
    CHECK_FAILS(parse(huge, &c), NDP_EINVAL, "at most 1048576");
    CHECK_OK(ndp_file_write_atomic(path, huge, (1 << 20) + 1));
    CHECK_FAILS(ndp_cluster_read(path, &c), NDP_EFORMAT, "a description of a cluster has 1.0 MiB at most");
    free(huge);
    remove(path);
    CHECK_FAILS(ndp_cluster_read(path, &c), NDP_EINVAL, path);
}

/* ---- round trips ---- */

static void built_in_devices_read_back(void **state) {
    (void)state;
    static const char *const names[] = {"a100-sxm-40", "a100-sxm-80", "a100-pcie-80", "h100-sxm", "h100-pcie", "h200",
                                        "b200",        "mi300x",      "l40s",         "rtx-4090", "cpu"};
    int n = 0;
    for (const char *name; (name = ndp_built_in_name(n)); n++) {
        assert_string_equal(name, names[n]);
        const ndp_device_facts *f = ndp_built_in_device(name);
        char text[80];
        ndp_cluster c;
        snprintf(text, sizeof text, "nodes: 4\nnode: {device: %s, devices: 8}", name);
        CHECK_OK(parse(text, &c));
        check_facts(&c.facts, f);
        assert_true(c.built_in);
        check_round_trip(&c);
        c.built_in = false; /* as if all of these numbers were stated */
        check_round_trip(&c);
        ndp_cluster_release(&c);
        bool cpu = strcmp(name, "cpu") == 0;
        assert_int_equal(f->flops[NDP_RATE_BF16] > 0, !cpu);
        assert_int_equal(f->memory_bytes > 0 && f->memory_bandwidth > 0 && f->multiprocessors > 0, !cpu);
        assert_true(f->flops[NDP_RATE_FP8] == 0 || fabs(f->flops[NDP_RATE_FP8] / f->flops[NDP_RATE_BF16] - 2) < 0.03);
        assert_true(f->links.bandwidth > 0 && f->nics.bandwidth > 0 && f->nics.count > 0);
    }
    assert_int_equal(n, NDP_COUNT(names));
    assert_null(ndp_built_in_name(-1));
    assert_null(ndp_built_in_device("h100"));
}

/* Draws that differ by case and by call. */
typedef struct draws {
    uint64_t seed, at;
} draws;

static int below(draws *d, int n) { return (int)ndp_rng_below(d->seed, 0, d->at++, (uint64_t)n); }
static bool chance(draws *d, int percent) { return below(d, 100) < percent; }
/* A number between powers of ten, with all digits or few. */
static double number(draws *d, int low, int high) {
    double v = pow(10, low + (high - low) * ndp_rng_uniform(d->seed, 0, d->at++));
    return chance(d, 50) ? v : round(v / pow(10, low)) * pow(10, low);
}
static double at_most_one(draws *d) { return 1 - ndp_rng_uniform(d->seed, 0, d->at++); }

static char *copy(const char *text) {
    char *s = strdup(text);
    assert_non_null(s);
    return s;
}

static void any_text(draws *d, char **out) {
    static const char *const texts[] = {"lab",  "null", "a b",    "true",   "x: y # z",  "\"quoted\"",  "h\xc3\xa4user",
                                        "1e9",  "~",    "{a: b}", "on",     "tab\there", "line\nbreak", "-",
                                        "\x01", "[",    "*a",     "nvlink", " padded "};
    free(*out);
    *out = copy(texts[below(d, NDP_COUNT(texts))]);
}

/* Each with the probability of `percent`. */
static void change_links(draws *d, int percent, ndp_link_facts *l) {
    if (chance(d, percent))
        any_text(d, &l->kind);
    if (chance(d, percent))
        l->bandwidth = number(d, 6, 13);
    if (chance(d, percent))
        l->latency = chance(d, 10) ? 0 : number(d, -8, -3);
    if (chance(d, percent))
        l->shape = below(d, NDP_LINK_SHAPES_BUILT);
}

/* The number of NICs stays, as one that is built in, unless all numbers change. */
static void change_nics(draws *d, int percent, ndp_nic_facts *n) {
    if (chance(d, percent))
        any_text(d, &n->kind);
    if (percent == 100)
        n->count = 1 + below(d, 1024);
    if (chance(d, percent))
        n->bandwidth = number(d, 6, 13);
    if (chance(d, percent))
        n->latency = chance(d, 10) ? 0 : number(d, -8, -3);
}

static void change_facts(draws *d, int percent, ndp_device_facts *f) {
    for (int i = 0; i < NDP_RATES; i++)
        if (chance(d, percent))
            f->flops[i] = i != NDP_RATE_BF16 && chance(d, 20) ? 0 : number(d, 9, 17);
    if (chance(d, percent))
        f->memory_bytes = number(d, 8, 13);
    if (chance(d, percent))
        f->runtime_bytes = chance(d, 10) ? 0 : number(d, 7, 10);
    if (chance(d, percent))
        f->memory_bandwidth = number(d, 8, 14);
    if (chance(d, percent))
        f->multiprocessors = 1 + below(d, 1 << 20);
    if (chance(d, percent))
        f->call_seconds = chance(d, 10) ? 0 : number(d, -8, -3);
    change_links(d, percent, &f->links);
    change_nics(d, percent, &f->nics);
}

static void any_network(draws *d, ndp_cluster *c) {
    int units = c->nodes;
    for (int most = below(d, NDP_NETWORK_LEVELS + 1); c->levels < most; c->levels++) {
        ndp_network_level *l = &c->network[c->levels];
        l->name = ndp_format("%s%d", chance(d, 50) ? "rack" : "p-o.d_", c->levels);
        assert_non_null(l->name);
        l->members = 1 + below(d, units);
        l->oversubscription = chance(d, 50) ? 1 : 1 + number(d, -3, 3);
        units = (units - 1) / l->members + 1;
    }
}

/* A device that is built in, is like one in part, is stated whole, or is like one in name only. */
static void any_device(draws *d, ndp_cluster *c) {
    int built_in = below(d, 11), percent = (const int[]){0, 30, 100, 100}[below(d, 4)];
    bool whole = percent == 100 && chance(d, 50);
    const ndp_device_facts *from = ndp_built_in_device(ndp_built_in_name(built_in));
    c->like = whole ? NULL : copy(ndp_built_in_name(built_in));
    c->device = copy(!whole && chance(d, 50) ? c->like : chance(d, 50) ? "mine" : "9.x_y-z");
    if (!whole && percent == 100 && chance(d, 50)) {
        free(c->device);
        c->device = copy("a100-pcie-80"); /* of the name of one built in, and like another */
    }
    c->facts = *from;
    c->facts.links.kind = copy(from->links.kind);
    c->facts.nics.kind = copy(from->nics.kind);
    c->facts.full_name = from->full_name ? copy(from->full_name) : NULL;
    if (percent && chance(d, 50))
        any_text(d, &c->facts.full_name);
    change_facts(d, percent, &c->facts);
    c->built_in = percent < 100;
    c->links = c->facts.links;
    c->links.kind = copy(c->links.kind);
    c->nics = c->facts.nics;
    c->nics.kind = copy(c->nics.kind);
    change_links(d, chance(d, 50) ? 0 : 50, &c->links);
    change_nics(d, chance(d, 50) ? 0 : 50, &c->nics);
}

static void any_cluster(draws *d, ndp_cluster *c) {
    *c = (ndp_cluster){.nodes = 1 + below(d, chance(d, 5) ? 5000 : 40)};
    any_text(d, &c->name);
    c->devices_of = malloc((size_t)c->nodes * sizeof *c->devices_of);
    assert_non_null(c->devices_of);
    int alike = chance(d, 50) ? 1 + below(d, 1024) : 0;
    for (int i = 0; i < c->nodes; i++)
        c->devices_of[i] = alike ? alike : 1 + below(d, 9);
    for (int i = 0, n = chance(d, 50) ? c->nodes : 0; i < n; i++) {
        char host[40];
        snprintf(host, sizeof host, chance(d, 50) ? "node-%d.lab" : chance(d, 50) ? "10.0.0.%d" : "fe80::%d", i);
        CHECK_OK(ndp_strings_add(&c->hosts, host));
    }
    any_device(d, c);
    any_network(d, c);
    c->price = chance(d, 50) ? 0 : number(d, -2, 4);
    c->power = chance(d, 50) ? 0 : number(d, 2, 5);
    double *const shares[] = {&c->efficiency.matmul, &c->efficiency.attention, &c->efficiency.memory,
                              &c->efficiency.links, &c->efficiency.nics};
    for (int i = 0; i < NDP_COUNT(shares); i++)
        *shares[i] = chance(d, 50) ? 1 : at_most_one(d);
    if (chance(d, 50))
        any_text(d, &c->measured_on);
    if (chance(d, 50))
        any_text(d, &c->measured_by);
}

static void what_is_written_reads_back_the_same(void **state) {
    (void)state;
    for (int i = 0; i < (SANITIZED ? 300 : 2000); i++) {
        draws d = {(uint64_t)i, 0};
        ndp_cluster c;
        any_cluster(&d, &c);
        check_round_trip(&c);
        ndp_cluster_release(&c);
    }
}

static void help_has_every_key(void **state) {
    (void)state;
    static const char *const lines[] = {"\n  nodes  ",
                                        "or a list: how many devices each node has; default 1\n",
                                        "\nnode.links: ",
                                        "  shape  ",
                                        "switch, ring, mesh or host; default that of the device, or else switch\n",
                                        "a number in (0, 1e18]; default that of the device\n",
                                        "\nnetwork: ",
                                        "  oversubscription   ",
                                        "a number in [1, 1e6]; default 1\n",
                                        "a string; default none: it must be stated\n",
                                        "\ndevices.NAME.flops: ",
                                        "  fp8  ",
                                        "\nefficiency: ",
                                        "\nmeasured: ",
                                        "a string or null; default null\n"};
    ndp_str help = {0};
    ndp_cluster_keys_help(&help);
    for (int i = 0; i < NDP_COUNT(lines); i++)
        if (!strstr(help.data, lines[i]))
            fail_msg("help lacks '%s':\n%s", lines[i], help.data);
    ndp_str_release(&help);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_cluster),
                                       cmocka_unit_test(defaults),
                                       cmocka_unit_test(other_forms),
                                       cmocka_unit_test(sources),
                                       cmocka_unit_test(refusals_point_at_the_place),
                                       cmocka_unit_test(too_many),
                                       cmocka_unit_test(a_long_chain),
                                       cmocka_unit_test(alias_bombs_stay_small),
                                       cmocka_unit_test(large_files_end_fast),
                                       cmocka_unit_test(files),
                                       cmocka_unit_test(built_in_devices_read_back),
                                       cmocka_unit_test(what_is_written_reads_back_the_same),
                                       cmocka_unit_test(help_has_every_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
