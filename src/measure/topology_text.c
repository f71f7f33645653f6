/* What a topology found, as lines for people (topology_text.h). */
#include "measure/topology_text.h"

#include "base/json_write.h"
#include <math.h>

enum { SHOWN_HOSTS = 16 };

static void add_rate(double rate, ndp_str *out) {
    char text[NDP_RATE_TEXT];
    ndp_str_add(out, ndp_rate_text(rate, text));
}

static void describe_nodes(const ndp_topology_run *t, ndp_str *out) {
    char memory[16];
    ndp_str_addf(out, "%d host%s, %d rank%s; a host: %d socket%s, %d core%s, %s", t->hosts.n,
                 t->hosts.n == 1 ? "" : "s", t->hosts.world, t->hosts.world == 1 ? "" : "s", t->first.sockets,
                 t->first.sockets == 1 ? "" : "s", t->first.cores, t->first.cores == 1 ? "" : "s",
                 ndp_human_bytes(t->first.memory_bytes, memory));
    if (t->first.gpus)
        ndp_str_addf(out, ", %d GPU%s", t->first.gpus, t->first.gpus == 1 ? "" : "s");
    if (t->first.nics)
        ndp_str_addf(out, ", %d NIC%s", t->first.nics, t->first.nics == 1 ? "" : "s");
    ndp_str_add(out, t->unlike ? "; other hosts differ\n" : "\n");
}

static void describe_devices(const ndp_topology_run *t, ndp_str *out) {
    double best = 0;
    const ndp_device_facts *f = &t->first.device;
    if (f->flops[NDP_RATE_FP32] == 0)
        return;
    ndp_str_addf(out, "device %s: fp32 %.3g TFLOP/s, bf16 %.3g, memory ", t->cluster.device,
                 f->flops[NDP_RATE_FP32] * 1e-12, f->flops[NDP_RATE_BF16] * 1e-12);
    add_rate(f->memory_bandwidth, out);
    ndp_str_addf(out, ", a call %.3g us; of these products reach %.2f, attention %.2f\n", f->call_seconds * 1e6,
                 t->first.efficiency.matmul, t->first.efficiency.attention);
    for (int r = 0; r < t->hosts.world; r++)
        best = t->rates[r] > best ? t->rates[r] : best;
    for (int r = 0; r < t->hosts.world; r++)
        if (t->rates[r] < best / 2)
            ndp_str_addf(out, "slow device: rank %d on %s, %.3g TFLOP/s, the fastest %.3g\n", r,
                         t->hosts.names[t->hosts.of[r]], t->rates[r] * 1e-12, best * 1e-12);
}

static void describe_matrix(const ndp_topology_run *t, ndp_str *out) {
    const ndp_host_links *l = &t->links;
    ndp_str_addf(out, "MB/s from the host of a line to that of a column, all hosts at once\n  %-12s", "");
    for (int i = 0; i < l->n; i++)
        ndp_str_addf(out, " %10.10s", t->hosts.names[i]);
    for (int i = 0; i < l->n; i++) {
        ndp_str_addf(out, "\n  %-12.12s", t->hosts.names[i]);
        for (int k = 0; k < l->n; k++)
            if (i == k)
                ndp_str_addf(out, " %10s", "-");
            else
                ndp_str_addf(out, " %10.4g", l->together[i * l->n + k] * 1e-6);
    }
    ndp_str_add(out, "\n");
}

/* A host whose NIC passes less than half of what the others' do. */
static void name_slow(const ndp_topology_run *t, ndp_str *out) {
    double usual = ndp_topology_nic(&t->links);
    for (int i = 0; i < t->links.n && t->links.n > 2; i++) {
        double nic = ndp_host_links_nic(&t->links, i);
        if (nic >= usual / 2)
            continue;
        ndp_str_addf(out, "slow: %s, whose links pass ", t->hosts.names[i]);
        add_rate(nic, out);
        ndp_str_add(out, " at best; the median of all hosts is ");
        add_rate(usual, out);
        ndp_str_add(out, "\n");
    }
}

static void describe_racks(const ndp_topology_run *t, ndp_str *out) {
    const ndp_host_links *l = &t->links;
    for (int rack = 0; rack < l->racks && l->racks > 1; rack++) {
        int n = 0;
        ndp_str_addf(out, "%s", rack ? " | " : "racks: ");
        for (int i = 0; i < l->n; i++)
            if (l->rack_of[i] == rack)
                ndp_str_addf(out, "%s%s", n++ ? ", " : "", t->hosts.names[i]);
    }
    if (l->racks == 1)
        return;
    ndp_str_add(out, "; between two ");
    add_rate(l->trunk, out);
    ndp_str_addf(out, ", oversubscription %.3g\n", t->cluster.network[1].oversubscription);
}

static void describe_links(const ndp_topology_run *t, ndp_str *out) {
    const ndp_host_links *l = &t->links;
    if (l->inside > 0) {
        ndp_str_add(out, "inside a host: ");
        add_rate(l->inside, out);
        ndp_str_addf(out, " from rank to rank, %.3g us\n", l->inside_latency * 1e6);
    }
    if (l->n == 1)
        return;
    if (l->n <= SHOWN_HOSTS)
        describe_matrix(t, out);
    ndp_str_add(out, "NICs: ");
    add_rate(ndp_topology_nic(l), out);
    ndp_str_addf(out, ", %.3g us\n", t->cluster.nics.latency * 1e6);
    for (int i = 0; i < l->n && i < SHOWN_HOSTS; i++) {
        ndp_str_addf(out, "  %-12s alone ", t->hosts.names[i]);
        add_rate(l->alone[i], out);
        ndp_str_add(out, ", by all ranks ");
        add_rate(l->streams[i], out);
        ndp_str_add(out, "\n");
    }
    describe_racks(t, out);
    name_slow(t, out);
}

void ndp_topology_describe(const ndp_topology_run *t, ndp_str *out) {
    describe_nodes(t, out);
    describe_devices(t, out);
    describe_links(t, out);
    if (t->groups.n)
        ndp_str_addf(out, "collectives reach %.2f of the links inside a host, %.2f of those between hosts\n",
                     t->cluster.efficiency.links, t->cluster.efficiency.nics);
    if (t->device_misses.length || t->group_misses.length)
        ndp_str_addf(out, "measurements that this misses by more than 10%%:\n%s%s",
                     t->device_misses.length ? t->device_misses.data : "",
                     t->group_misses.length ? t->group_misses.data : "");
    if (t->opts->output)
        ndp_str_addf(out, "written: %s\n", t->opts->output);
    ndp_str_addf(out, "measured in %.1f s\n", t->seconds);
}

/* ---- JSON ---- */

static void put_measured(ndp_json_out *o, const char *key, double x) { ndp_json_put_number(o, key, x > 0 ? x : NAN); }

static void put_hosts(ndp_json_out *o, const ndp_topology_run *t) {
    const ndp_host_links *l = &t->links;
    ndp_json_open(o, "hosts", '[');
    for (int i = 0; i < t->hosts.n; i++) {
        int ranks = 0;
        for (int r = 0; r < t->hosts.world; r++)
            ranks += t->hosts.of[r] == i;
        ndp_json_open(o, NULL, '{');
        ndp_json_put_text(o, "name", t->hosts.names[i]);
        ndp_json_put_int(o, "ranks", ranks);
        ndp_json_put_int(o, "rack", l->rack_of[i]);
        put_measured(o, "alone", l->n > 1 ? l->alone[i] : 0);
        put_measured(o, "by_all_ranks", l->n > 1 ? l->streams[i] : 0);
        ndp_json_open(o, "to", '[');
        for (int k = 0; k < l->n && l->n > 1; k++)
            put_measured(o, NULL, i == k ? 0 : l->together[i * l->n + k]);
        ndp_json_close(o, ']');
        ndp_json_close(o, '}');
    }
    ndp_json_close(o, ']');
}

static void put_device(ndp_json_out *o, const ndp_topology_run *t) {
    const ndp_device_facts *f = &t->first.device;
    ndp_json_open(o, "device", '{');
    ndp_json_put_text(o, "name", t->cluster.device);
    put_measured(o, "fp32_flops", f->flops[NDP_RATE_FP32]);
    put_measured(o, "bf16_flops", f->flops[NDP_RATE_BF16]);
    put_measured(o, "memory_bandwidth", f->memory_bandwidth);
    put_measured(o, "call_seconds", f->call_seconds);
    ndp_json_open(o, "ranks", '[');
    for (int r = 0; r < t->hosts.world; r++)
        put_measured(o, NULL, t->rates[r]);
    ndp_json_close(o, ']');
    ndp_json_close(o, '}');
}

void ndp_topology_json(const ndp_topology_run *t, ndp_str *out) {
    ndp_json_out o = {0};
    const ndp_rank_facts *f = &t->first;
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_int(&o, "ranks", t->hosts.world);
    ndp_json_open(&o, "host", '{');
    ndp_json_put_int(&o, "sockets", f->sockets);
    ndp_json_put_int(&o, "cores", f->cores);
    ndp_json_put_int(&o, "gpus", f->gpus);
    ndp_json_put_int(&o, "nics", f->nics);
    ndp_json_put_number(&o, "memory_bytes", f->memory_bytes);
    ndp_json_put_bool(&o, "all_alike", !t->unlike);
    ndp_json_close(&o, '}');
    put_hosts(&o, t);
    put_device(&o, t);
    ndp_json_open(&o, "links", '{');
    put_measured(&o, "inside", t->links.inside);
    put_measured(&o, "inside_seconds", t->links.inside_latency);
    put_measured(&o, "nic", t->links.n > 1 ? ndp_topology_nic(&t->links) : 0);
    put_measured(&o, "nic_seconds", t->links.n > 1 ? t->cluster.nics.latency : 0);
    put_measured(&o, "between_racks", t->links.racks > 1 ? t->links.trunk : 0);
    ndp_json_close(&o, '}');
    ndp_json_put_text(&o, "cluster", t->opts->output);
    ndp_json_put_number(&o, "seconds", t->seconds);
    ndp_json_close(&o, '}');
    ndp_str_add(out, o.text.data ? o.text.data : "");
    out->failed |= o.text.failed;
    ndp_str_release(&o.text);
}
