/* Links of layouts on hosts that are made up. */
#ifndef TESTS_MEASURE_USED_LINKS_H
#define TESTS_MEASURE_USED_LINKS_H

#include "check.h"
#include "measure/link_check.h"

enum { MOST_RANKS = 4096 };

/* Rank r is on the host node-<host_of[r]>. */
static inline void take_hosts(const int *host_of, int world, ndp_link_check *c) {
    static char names[MOST_RANKS][NDP_HOST_TEXT];
    assert_in_range(world, 1, MOST_RANKS);
    for (int r = 0; r < world; r++)
        snprintf(names[r], sizeof *names, "node-%d", host_of[r]);
    CHECK_OK(ndp_world_hosts_take(names, world, &c->hosts));
}

static inline ndp_layout layout_of(const char *text) {
    ndp_layout l;
    CHECK_OK(ndp_layout_parse(text, &l));
    return l;
}

static inline int world_of(const ndp_layout *l) {
    int world = 1;
    for (int axis = 0; axis < NDP_AXES; axis++)
        world *= l->size[axis];
    return world;
}

/* `each` ranks on every host. */
static inline ndp_link_check list_on(const char *layout, int each, const ndp_mesh_facts *facts) {
    ndp_link_check c = {0};
    const ndp_layout l = layout_of(layout);
    static int host_of[MOST_RANKS];
    for (int r = 0; r < world_of(&l); r++)
        host_of[r] = r / each;
    take_hosts(host_of, world_of(&l), &c);
    CHECK_OK(ndp_link_check_list(&l, facts, &c));
    return c;
}

#endif
