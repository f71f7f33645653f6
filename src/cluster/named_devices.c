/* Devices that a file names. An entry starts from the device that it is `like`, which is another entry or a built-in
 * device; without `like` from the built-in device of its own name; or from nothing, and then it states all that has no
 * default. */
#include "cluster/named_devices.h"

#include "cluster/built_in.h"
#include "cluster/cluster_keys.h"

enum { NAME_LENGTH = 64 };

static int find_entry(const ndp_named_devices *d, const char *name) {
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->name[i], name) == 0)
            return i;
    return -1;
}

static ndp_status fail_unknown(ndp_yaml *y, const ndp_named_devices *d, struct fy_node *node, const char *name) {
    const char *meant = ndp_nearest_device(name, d->name, d->n);
    ndp_str s = {0};
    ndp_str_addf(&s, "unknown device '%.60s'", name);
    if (meant)
        ndp_str_addf(&s, "; did you mean '%s'?", meant);
    else
        ndp_str_add(&s, "; describe it in 'devices'. Built in are");
    for (int i = 0; ndp_built_in_name(i) && !meant; i++)
        ndp_str_addf(&s, "%s %s", i ? "," : "", ndp_built_in_name(i));
    ndp_status st = ndp_yaml_fail(y, node, "%s", s.failed ? "unknown device" : s.data);
    ndp_str_release(&s);
    return st;
}

/* The parts of an entry that are sections; `like` was read before. */
static ndp_status read_part(void *user, ndp_yaml *y, const ndp_cluster_key *key, bool *taken) {
    ndp_found_device *out = user;
    if (strcmp(key->name, "like") == 0) {
        *taken = true;
        return NDP_OK;
    }
    for (int i = 0; i < NDP_DEVICE_PARTS && !*taken; i++) {
        const ndp_device_part *p = &ndp_device_parts[i];
        if (!p->key || strcmp(p->key, key->name) != 0)
            continue;
        *taken = true;
        NDP_TRY(ndp_cluster_read_section(y, p->section, key->value, (char *)&out->facts + p->offset, out->given, NULL,
                                         NULL));
    }
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

static ndp_status start_from_nothing(ndp_device_facts *f) {
    *f = (ndp_device_facts){0};
    for (int i = 0; i < NDP_DEVICE_PARTS; i++)
        NDP_TRY(ndp_cluster_defaults(ndp_device_parts[i].section, (char *)f + ndp_device_parts[i].offset));
    return NDP_OK;
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

static ndp_status start(ndp_yaml *y, const ndp_named_devices *d, int entry, ndp_found_device *out) {
    const char *own = d->name[entry];
    if (d->like[entry])
        return start_from_built_in(y, d, d->like[entry], d->like_node[entry], out);
    return ndp_built_in_device(own) ? start_from_built_in(y, d, own, d->key[entry], out)
                                    : start_from_nothing(&out->facts);
}

/* The entries from the one asked for to the one that is like no other entry: each is like the next. */
static ndp_status follow_likes(ndp_yaml *y, const ndp_named_devices *d, int entry, int chain[NDP_MOST_NAMED_DEVICES],
                               int *n) {
    *n = 0;
    for (int next = entry; next >= 0;) {
        chain[(*n)++] = next;
        const char *like = d->like[next];
        if (like && strcmp(like, d->name[next]) == 0)
            return ndp_yaml_fail(y, d->like_node[next], "device '%s' is 'like' itself; %s", like,
                                 ndp_built_in_device(like) ? "without 'like', it has the numbers of the built-in device"
                                                           : "name another device, or state all of its numbers");
        next = like ? find_entry(d, like) : -1;
        if (next >= 0 && *n == d->n)
            return ndp_yaml_fail(y, d->like_node[chain[*n - 1]], "device '%s' is 'like' itself, through others", like);
    }
    return NDP_OK;
}

static ndp_status find(ndp_yaml *y, const ndp_named_devices *d, int entry, ndp_found_device *out) {
    int chain[NDP_MOST_NAMED_DEVICES], n;
    NDP_TRY(follow_likes(y, d, entry, chain, &n));
    NDP_TRY(start(y, d, chain[n - 1], out));
    while (n--) {
        int i = chain[n];
        y->near = d->key[i];
        NDP_TRY(ndp_cluster_read_section(y, NDP_SECTION_DEVICE, d->value[i], &out->facts, out->given, read_part, out));
        if (!out->like)
            NDP_TRY(check_whole(y, d->key[i], d->name[i], &out->facts));
    }
    return NDP_OK;
}

ndp_status ndp_named_devices_find(ndp_yaml *y, const ndp_named_devices *d, const char *name, struct fy_node *node,
                                  ndp_found_device *out) {
    ndp_found_device found = {0};
    int entry = find_entry(d, name);
    ndp_status st = entry >= 0 ? find(y, d, entry, &found) : start_from_built_in(y, d, name, node, &found);
    if (st == NDP_OK)
        *out = found;
    else
        ndp_device_facts_release(&found.facts);
    return st;
}

/* What an entry is like, before anything else of it is read. */
static ndp_status read_like(ndp_yaml *y, ndp_named_devices *d, int i) {
    void *place = NULL;
    for (struct fy_node_pair *pair; (pair = fy_node_mapping_iterate(d->value[i], &place));) {
        struct fy_node *key = fy_node_pair_key(pair), *value = fy_node_pair_value(pair);
        const char *name = ndp_yaml_text(key);
        if (!name || strcmp(name, "like") != 0)
            continue;
        y->near = key;
        NDP_TRY(ndp_yaml_follow(y, &value));
        d->like[i] = ndp_yaml_text(value);
        d->like_node[i] = value;
        if (!d->like[i] || ndp_yaml_is_null(value))
            return ndp_yaml_fail(y, value, "'like' of device '%s': expected the name of a device", d->name[i]);
    }
    return NDP_OK;
}

static ndp_status list_entry(ndp_yaml *y, struct fy_node *key, struct fy_node *value, ndp_named_devices *out) {
    int i = out->n;
    const char *name = ndp_yaml_text(key);
    y->near = key;
    if (!name)
        return ndp_yaml_fail(y, key, "expected a word as the name of a device");
    if (i == NDP_MOST_NAMED_DEVICES)
        return ndp_yaml_fail(y, key, "more than %d devices", NDP_MOST_NAMED_DEVICES);
    NDP_TRY(ndp_cluster_check_name(y, key, "device", name, NAME_LENGTH, false));
    NDP_TRY(ndp_yaml_follow(y, &value));
    if (!value || !fy_node_is_mapping(value))
        return ndp_yaml_fail(y, value, "device '%s': expected KEY: VALUE below it, such as 'like: h100-sxm'", name);
    out->name[i] = name;
    out->key[i] = key;
    out->value[i] = value;
    out->n++;
    return read_like(y, out, i);
}

ndp_status ndp_named_devices_read(ndp_yaml *y, struct fy_node *node, ndp_named_devices *out) {
    ndp_named_devices d = {0};
    NDP_TRY(ndp_yaml_follow(y, &node));
    if (!ndp_yaml_is_null(node) && !fy_node_is_mapping(node))
        return ndp_yaml_fail(y, node, "'devices' is a section: expected NAME: and a device's keys below it");
    void *place = NULL;
    for (struct fy_node_pair *pair; !ndp_yaml_is_null(node) && (pair = fy_node_mapping_iterate(node, &place));)
        NDP_TRY(list_entry(y, fy_node_pair_key(pair), fy_node_pair_value(pair), &d));
    for (int i = 0; i < d.n; i++) {
        ndp_found_device found;
        NDP_TRY(ndp_named_devices_find(y, &d, d.name[i], d.key[i], &found));
        ndp_device_facts_release(&found.facts);
    }
    *out = d;
    return NDP_OK;
}
