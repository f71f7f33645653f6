/* Devices that a file names. An entry starts from the device that it is `like`, which is another entry or a built-in
 * device; without `like` from the built-in device of its own name; or from nothing, and then it states all that has no
 * default. */
#include "cluster/named_devices.h"

#include "cluster/built_in.h"

#include <string.h>

enum { NAME_LENGTH = 64 };

static int find_entry(const ndp_named_devices *d, const char *name) {
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->of[i].name, name) == 0)
            return i;
    return -1;
}

static ndp_status fail_unknown(ndp_yaml *y, const ndp_named_devices *d, struct fy_node *node, const char *name) {
    const char *names[NDP_MOST_NAMED_DEVICES];
    for (int i = 0; i < d->n; i++)
        names[i] = d->of[i].name;
    const char *meant = ndp_nearest_device(name, names, d->n);
    ndp_str s = {0};
    ndp_str_addf(&s, "unknown device '%.60s'", name);
    if (meant)
        ndp_str_addf(&s, "; did you mean '%s'?", meant);
    else
        ndp_str_add(&s, "; describe it in 'devices'. Built in are");
    for (int i = 0; ndp_built_in_name(i) && !meant; i++)
        ndp_str_addf(&s, "%s %s", i ? "," : "", ndp_built_in_name(i));
    return ndp_yaml_fail_str(y, node, &s);
}

/* `like` names a device, and is no number of this one. */
static ndp_status read_like(ndp_option_reading *r, const ndp_option_key *key, bool *taken) {
    ndp_named_device *d = r->user;
    if (strcmp(key->section, NDP_SECTION_DEVICE) != 0 || strcmp(key->name, "like") != 0)
        return NDP_OK;
    *taken = true;
    d->like_node = key->value;
    NDP_TRY(ndp_yaml_follow(r->y, &d->like_node));
    d->like = ndp_yaml_text(d->like_node);
    return d->like && !ndp_yaml_is_null(d->like_node)
               ? NDP_OK
               : ndp_yaml_fail(r->y, d->like_node, "'like' of device '%s': expected the name of a device", d->name);
}

/* Reads what an entry states over the facts of the device that it is like. */
static ndp_status read_entry(ndp_yaml *y, ndp_named_device d, ndp_found_device *out, ndp_named_device *seen) {
    ndp_option_reading r = {
        .table = &ndp_cluster_options, .y = y, .into = &out->facts, .other = read_like, .user = seen ? seen : &d};
    NDP_TRY(ndp_option_read_section(&r, NDP_SECTION_DEVICE, d.value));
    for (int i = 0; i < NDP_MOST_ROWS; i++)
        out->stated[i] |= r.stated[i];
    return NDP_OK;
}

/* A device that is like no other has all facts that do not have a default. Those of links and NICs a node may state. */
static ndp_status check_whole(ndp_yaml *y, struct fy_node *key, const char *name, const ndp_device_facts *f) {
    const char *missing = f->memory_bytes == 0                                           ? "memory_bytes"
                          : f->memory_bandwidth == 0                                     ? "memory_bandwidth"
                          : f->multiprocessors == 0                                      ? "multiprocessors"
                          : f->flops[NDP_RATE_FP32] == 0 && f->flops[NDP_RATE_BF16] == 0 ? "flops of fp32 or bf16"
                                                                                         : NULL;
    if (!missing)
        return NDP_OK;
    return ndp_yaml_fail(y, key, "device '%s' has no %s: state it, or a device that it is 'like'", name, missing);
}

static ndp_status start_from_built_in(ndp_yaml *y, const ndp_named_devices *d, const char *name, struct fy_node *node,
                                      ndp_found_device *out) {
    const ndp_device_facts *built_in = ndp_built_in_device(name);
    if (!built_in)
        return fail_unknown(y, d, node, name);
    NDP_TRY(ndp_device_facts_copy(built_in, &out->facts));
    for (int k = 0; ndp_built_in_name(k); k++)
        if (strcmp(ndp_built_in_name(k), name) == 0)
            out->like = ndp_built_in_name(k);
    return NDP_OK;
}

static ndp_status find(ndp_yaml *y, const ndp_named_devices *d, int entry, int depth, ndp_found_device *out);

/* The facts that an entry starts from. `depth`: of the entries that are like each other up to this one. */
static ndp_status start(ndp_yaml *y, const ndp_named_devices *d, int entry, int depth, ndp_found_device *out) {
    const ndp_named_device *own = &d->of[entry];
    if (own->like && strcmp(own->like, own->name) == 0)
        return ndp_yaml_fail(y, own->like_node, "device '%s' is 'like' itself; %s", own->like,
                             ndp_built_in_device(own->like)
                                 ? "without 'like', it has the numbers of the built-in device"
                                 : "name another device, or state all of its numbers");
    int next = own->like ? find_entry(d, own->like) : -1;
    if (next >= 0 && depth == d->n)
        return ndp_yaml_fail(y, own->like_node, "device '%s' is 'like' itself, through others", own->like);
    if (next >= 0)
        return find(y, d, next, depth + 1, out);
    if (own->like || ndp_built_in_device(own->name))
        return start_from_built_in(y, d, own->like ? own->like : own->name, own->like ? own->like_node : own->key, out);
    return ndp_option_defaults(&ndp_cluster_options, NDP_SECTION_DEVICE, &out->facts);
}

static ndp_status find(ndp_yaml *y, const ndp_named_devices *d, int entry, int depth, ndp_found_device *out) {
    const ndp_named_device *own = &d->of[entry];
    NDP_TRY(start(y, d, entry, depth, out));
    y->near = own->key;
    NDP_TRY(read_entry(y, *own, out, NULL));
    return out->like ? NDP_OK : check_whole(y, own->key, own->name, &out->facts);
}

ndp_status ndp_named_devices_find(ndp_yaml *y, const ndp_named_devices *d, const char *name, struct fy_node *node,
                                  ndp_found_device *out) {
    ndp_found_device found = {0};
    int entry = find_entry(d, name);
    ndp_status st = entry >= 0 ? find(y, d, entry, 1, &found) : start_from_built_in(y, d, name, node, &found);
    if (st == NDP_OK)
        *out = found;
    else
        ndp_device_facts_release(&found.facts);
    return st;
}

static ndp_status list_entry(ndp_yaml *y, struct fy_node *key, struct fy_node *value, ndp_named_devices *out) {
    ndp_found_device unused = {0};
    const char *name = ndp_yaml_text(key);
    y->near = key;
    if (!name)
        return ndp_yaml_fail(y, key, "expected a word as the name of a device");
    if (out->n == NDP_MOST_NAMED_DEVICES)
        return ndp_yaml_fail(y, key, "more than %d devices", NDP_MOST_NAMED_DEVICES);
    NDP_TRY(ndp_cluster_check_name(y, key, "device", name, NAME_LENGTH, false));
    NDP_TRY(ndp_yaml_follow(y, &value));
    if (!value || !fy_node_is_mapping(value))
        return ndp_yaml_fail(y, value, "device '%s': expected KEY: VALUE below it, such as 'like: h100-sxm'", name);
    ndp_named_device *d = &out->of[out->n++];
    *d = (ndp_named_device){.name = name, .key = key, .value = value};
    ndp_status st = read_entry(y, *d, &unused, d);
    ndp_device_facts_release(&unused.facts);
    return st;
}

ndp_status ndp_named_devices_read(ndp_yaml *y, struct fy_node *node, ndp_named_devices *out) {
    out->n = 0;
    NDP_TRY(ndp_yaml_follow(y, &node));
    if (!ndp_yaml_is_null(node) && !fy_node_is_mapping(node))
        return ndp_yaml_fail(y, node, "'devices' is a section: expected NAME: and a device's keys below it");
    void *place = NULL;
    for (struct fy_node_pair *pair; !ndp_yaml_is_null(node) && (pair = fy_node_mapping_iterate(node, &place));)
        NDP_TRY(list_entry(y, fy_node_pair_key(pair), fy_node_pair_value(pair), out));
    for (int i = 0; i < out->n; i++) {
        ndp_found_device found;
        NDP_TRY(ndp_named_devices_find(y, out, out->of[i].name, out->of[i].key, &found));
        ndp_device_facts_release(&found.facts);
    }
    return NDP_OK;
}
