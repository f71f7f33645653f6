/* Levels of the network, from the nodes outwards. The key that says how many members a unit has is the name of the
 * level inside it and an s: nodes of a rack, racks of a pod. */
#include "cluster/network_read.h"

#include <string.h>

enum { NAME_LENGTH = 32 };

/* A level while it is read. */
typedef struct network_reading {
    ndp_cluster *c;
    int level;
    char members[NAME_LENGTH + 2]; /* the key of its members: "racks" */
    struct fy_node *name_at, *members_at;
} network_reading;

static const char *name_inside(const ndp_cluster *c, int level) { return level ? c->network[level - 1].name : "node"; }

/* Whether a key names the units of any level, so far or of this one, and an s. */
static bool names_members(const ndp_cluster *c, int level, const char *key) {
    size_t n = strlen(key);
    for (int i = 0; i <= level + 1; i++) {
        const char *unit = i > level && !c->network[level].name ? NULL : name_inside(c, i);
        if (unit && n == strlen(unit) + 1 && key[n - 1] == 's' && strncmp(key, unit, n - 1) == 0)
            return true;
    }
    return false;
}

static ndp_status read_members(ndp_option_reading *reading, const ndp_option_key *key, bool *taken) {
    network_reading *r = reading->user;
    ndp_option row = ndp_cluster_options.rows[ndp_cluster_row(NDP_SECTION_NETWORK, "nodes")];
    if (strcmp(key->name, "level") == 0)
        r->name_at = key->value;
    if (strcmp(key->name, r->members) == 0) {
        row.key = r->members;
        r->members_at = key->value;
        *taken = true;
        return ndp_option_read(&row, reading->y, key->value, reading->into);
    }
    if (names_members(r->c, r->level, key->name))
        return ndp_yaml_fail(reading->y, key->node, "'%s' is not the level inside this one: its members are '%s'",
                             key->name, r->members);
    return ndp_option_among(&ndp_cluster_options, NDP_SECTION_NETWORK, key->name)
               ? NDP_OK
               : ndp_cluster_unknown_key(reading->y, key, r->members);
}

static ndp_status check_level_name(ndp_yaml *y, const network_reading *r) {
    const ndp_cluster *c = r->c;
    const char *name = c->network[r->level].name;
    NDP_TRY(ndp_cluster_check_name(y, r->name_at, "level", name, NAME_LENGTH, false));
    for (int i = 0; i <= r->level; i++)
        if (strcmp(name, name_inside(c, i)) == 0)
            return ndp_yaml_fail(y, r->name_at, "two levels are called '%s'", name);
    return NDP_OK;
}

/* Units of the level inside this one; the last of them may have fewer members than the others. */
static int units_inside(const ndp_cluster *c, int level) {
    int units = c->nodes;
    for (int i = 0; i < level; i++)
        units = (units - 1) / c->network[i].members + 1;
    return units;
}

static ndp_status check_level(ndp_yaml *y, struct fy_node *node, const network_reading *r) {
    const ndp_network_level *level = &r->c->network[r->level];
    if (!level->name)
        return ndp_yaml_fail(y, node, "a level without a name: expected {level: NAME, %s: COUNT}", r->members);
    NDP_TRY(check_level_name(y, r));
    if (!r->members_at)
        return ndp_yaml_fail(y, node, "level '%s' does not say how many %s one has", level->name, r->members);
    int units = units_inside(r->c, r->level);
    if (level->members > units)
        return ndp_yaml_fail(y, r->members_at, "%d %s in a %s, but the cluster has %d", level->members, r->members,
                             level->name, units);
    return NDP_OK;
}

static ndp_status read_level(ndp_yaml *y, struct fy_node *node, ndp_cluster *c) {
    network_reading r = {.c = c, .level = c->levels};
    NDP_TRY(ndp_yaml_follow(y, &node));
    if (c->levels == NDP_NETWORK_LEVELS)
        return ndp_yaml_fail(y, node, "more than %d levels", NDP_NETWORK_LEVELS);
    snprintf(r.members, sizeof r.members, "%ss", name_inside(c, c->levels));
    if (!node || !fy_node_is_mapping(node))
        return ndp_yaml_fail(y, node, "expected a level: {level: NAME, %s: COUNT, oversubscription: NUMBER}",
                             r.members);
    c->network[c->levels++] = (ndp_network_level){0};
    ndp_option_reading reading = {
        .table = &ndp_cluster_options, .y = y, .into = &c->network[r.level], .other = read_members, .user = &r};
    NDP_TRY(ndp_option_defaults(&ndp_cluster_options, NDP_SECTION_NETWORK, reading.into));
    NDP_TRY(ndp_option_read_section(&reading, NDP_SECTION_NETWORK, node));
    return check_level(y, node, &r);
}

ndp_status ndp_network_read(ndp_yaml *y, struct fy_node *node, ndp_cluster *c) {
    NDP_TRY(ndp_yaml_follow(y, &node));
    if (ndp_yaml_is_null(node))
        return NDP_OK;
    if (!fy_node_is_sequence(node))
        return ndp_yaml_fail(y, node, "'network' is a list of levels: - {level: rack, nodes: 4, oversubscription: 1}");
    void *place = NULL;
    for (struct fy_node *item; (item = fy_node_sequence_iterate(node, &place));)
        NDP_TRY(read_level(y, item, c));
    return NDP_OK;
}
