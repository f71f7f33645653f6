/* Writes a cluster as cluster.yaml. A node has what differs from its device, and a device what differs from the
 * built-in one that it is like, so that the text says what is special about the cluster. If no number is built in, the
 * device has all of them. */
#include "cluster/cluster_table.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* A text as a plain word if YAML programs read it as a text, otherwise in quotes. */
static void add_text(const char *text, ndp_str *out) {
    static const char *const others[] = {"null", "true", "false", "yes", "no", "on", "off"};
    bool plain = text && isalpha((unsigned char)text[0]);
    for (const char *c = text; plain && *c; c++)
        plain = isalnum((unsigned char)*c) || strchr("-_.", *c);
    for (int i = 0; i < NDP_COUNT(others) && plain; i++)
        plain = strcasecmp(text, others[i]) != 0;
    if (plain)
        ndp_str_add(out, text);
    else
        ndp_option_write_text(text, out);
}

static void add_value(const ndp_option *o, const void *from, ndp_str *out) {
    if (o->type == NDP_OPTION_TEXT)
        add_text(*(char *const *)(const void *)((const char *)from + o->offset), out);
    else
        ndp_option_write(o, from, out);
}

/* How a section is written: what is before its first key, before the others, after the last. */
typedef struct section_style {
    const char *before, *between, *after;
} section_style;

/* The rows of a section whose values are known, as a mapping; nothing if there are none. Of those that `base` has too
 * nothing is written, unless `base` is NULL: a struct like `from`, or of a node's links and NICs a device. */
static void add_rows(const char *section, const void *from, const void *base, section_style style, ndp_str *out) {
    bool any = false;
    for (int i = 0; i < ndp_cluster_options.n; i++) {
        const ndp_option *o = &ndp_cluster_options.rows[i];
        if (strcmp(o->section, section) != 0 || ndp_cluster_is_unknown(o, from))
            continue;
        const ndp_option *as = strncmp(section, "node.", 5) == 0 ? ndp_cluster_row_of_device(o) : o;
        if (base && ndp_option_is_same(o, from, as, base))
            continue;
        ndp_str_addf(out, "%s%s: ", any ? style.between : style.before, o->key);
        add_value(o, from, out);
        any = true;
    }
    if (any)
        ndp_str_add(out, style.after);
}

/* ---- parts ---- */

static bool all_alike(const ndp_cluster *c) {
    for (int i = 1; i < c->nodes; i++)
        if (c->devices_of[i] != c->devices_of[0])
            return false;
    return true;
}

static void add_cluster(const ndp_cluster *c, ndp_str *out) {
    ndp_str_add(out, "name: ");
    add_text(c->name, out);
    ndp_str_addf(out, all_alike(c) ? "\nnodes: %d\n" : "\nnodes: [", c->nodes);
    if (!all_alike(c)) {
        for (int i = 0; i < c->nodes; i++)
            ndp_str_addf(out, "%s%d", i ? ", " : "", c->devices_of[i]);
        ndp_str_add(out, "]\n");
    }
    for (int i = 0; i < c->hosts.n; i++) {
        ndp_str_add(out, i ? ", " : "hosts: [");
        add_text(c->hosts.items[i], out);
    }
    ndp_str_add(out, c->hosts.n ? "]\n" : "");
}

static void add_node(const ndp_cluster *c, ndp_str *out) {
    ndp_str_add(out, "node:\n  device: ");
    add_text(c->device, out);
    if (all_alike(c))
        ndp_str_addf(out, "\n  devices: %d", c->devices_of[0]);
    ndp_str_add(out, "\n");
    add_rows("node.links", c, &c->facts, (section_style){"  links: {", ", ", "}\n"}, out);
    add_rows("node.nics", c, &c->facts, (section_style){"  nics: {", ", ", "}\n"}, out);
    const struct {
        const char *key;
        double value;
    } costs[] = {{"price", c->price}, {"power", c->power}};
    for (int i = 0; i < NDP_COUNT(costs); i++)
        if (costs[i].value != 0) {
            ndp_str_addf(out, "  %s: ", costs[i].key);
            ndp_str_add_number(out, costs[i].value);
            ndp_str_add(out, "\n");
        }
}

static void add_network(const ndp_cluster *c, ndp_str *out) {
    for (int i = 0; i < c->levels; i++) {
        ndp_str_add(out, i ? "  - {level: " : "network:\n  - {level: ");
        add_text(c->network[i].name, out);
        ndp_str_addf(out, ", %ss: %d, oversubscription: ", i ? c->network[i - 1].name : "node", c->network[i].members);
        ndp_str_add_number(out, c->network[i].oversubscription);
        ndp_str_add(out, "}\n");
    }
}

/* What the entry of a device states beside the facts of `base`, which may be NULL. */
static void add_facts(const ndp_device_entry *entry, const ndp_device_facts *base, ndp_str *out) {
    ndp_device_entry other = {0};
    if (base)
        other.facts = *base;
    const struct {
        const char *section;
        section_style style;
    } parts[] = {{NDP_SECTION_DEVICE, {"    ", "\n    ", "\n"}},
                 {NDP_SECTION_DEVICE ".flops", {"    flops: {", ", ", "}\n"}},
                 {NDP_SECTION_DEVICE ".links", {"    links: {", ", ", "}\n"}},
                 {NDP_SECTION_DEVICE ".nics", {"    nics: {", ", ", "}\n"}}};
    for (int i = 0; i < NDP_COUNT(parts); i++)
        add_rows(parts[i].section, entry, base ? &other : NULL, parts[i].style, out);
}

/* The entry of the device, if it is not a built-in device as it is. */
static void add_device(const ndp_cluster *c, ndp_str *out) {
    bool other_name = c->like && strcmp(c->like, c->device) != 0;
    const ndp_device_entry entry = {.facts = c->facts, .like = other_name ? c->like : NULL};
    ndp_str keys = {0};
    add_facts(&entry, c->like && c->built_in ? ndp_built_in_device(c->like) : NULL, &keys);
    if (keys.length) {
        ndp_str_add(out, "devices:\n  ");
        add_text(c->device, out);
        ndp_str_add(out, ":\n");
        ndp_str_add(out, keys.data);
    }
    out->failed |= keys.failed;
    ndp_str_release(&keys);
}

void ndp_cluster_write(const ndp_cluster *c, ndp_str *out) {
    const ndp_efficiency own = c->facts.efficiency, one = {1, 1, 1, 1, 1};
    const ndp_cluster_file file = {.c = *c}, whole = {.c.efficiency = c->built_in && own.matmul > 0 ? own : one};
    add_cluster(c, out);
    add_node(c, out);
    add_network(c, out);
    add_device(c, out);
    add_rows("efficiency", &file, &whole, (section_style){"efficiency: {", ", ", "}\n"}, out);
    add_rows("measured", &file, NULL, (section_style){"measured: {", ", ", "}\n"}, out);
}

/* ---- where the numbers come from ---- */

/* Whether the file states no number of the device, its links or its NICs. */
static bool is_as_built_in(const ndp_cluster *c) {
    const ndp_device_facts *base = c->like ? ndp_built_in_device(c->like) : NULL;
    ndp_str stated = {0};
    const section_style style = {"", "", ""};
    if (base) {
        add_facts(&(ndp_device_entry){.facts = c->facts}, base, &stated);
        add_rows("node.links", c, base, style, &stated);
        add_rows("node.nics", c, base, style, &stated);
    }
    bool same = base && stated.length == 0;
    ndp_str_release(&stated);
    return same;
}

void ndp_cluster_source(const ndp_cluster *c, ndp_str *out) {
    bool measured = c->measured_on || c->measured_by;
    if (!measured && c->built_in && is_as_built_in(c)) {
        ndp_str_add(out, "built in");
        return;
    }
    ndp_str_add(out, c->built_in ? "mixed: " : "");
    ndp_str_add(out, measured ? "measured" : "stated");
    if (c->measured_on)
        ndp_str_addf(out, " on %s", c->measured_on);
    if (c->measured_by)
        ndp_str_addf(out, " by %s", c->measured_by);
    if (c->built_in)
        ndp_str_addf(out, ", and built in of %s", c->like);
}
