/* The links that a layout uses, measured at launch: neighbours in every group exchange a small and a large message.
 * What is slow, and what is placed badly, is named. */
#ifndef NDP_MEASURE_LINK_CHECK_H
#define NDP_MEASURE_LINK_CHECK_H

#include "base/json_write.h"
#include "measure/probe.h"
#include "measure/world_hosts.h"

/* Neighbours in a group of the layout. Of those between the same two hosts one pair stands for all. */
typedef struct ndp_used_link {
    ndp_probe probe;
    int host_a, host_b;  /* equal: inside a host */
    ndp_group_kind kind; /* of the first group that uses it */
    ndp_group group;
    uint32_t kinds; /* of all of them, a bit each */
    int round;      /* links of a round have no host in common */
    int next;       /* of the list in the making */
    int alone;      /* how often it was measured while all others were silent */
    bool slow;
} ndp_used_link;

typedef struct ndp_link_check {
    ndp_world_hosts hosts;
    ndp_used_link *links; /* owned */
    int n, rounds;
    int unsure;       /* links that look slow, between hosts too busy to tell */
    double seconds;   /* that it took */
    ndp_str warnings; /* a line each */
} ndp_link_check;

/* Lists the links of a layout, in rounds. Needs no ranks. NDP_ENOMEM. */
NDP_API ndp_status ndp_link_check_list(const ndp_layout *l, const ndp_mesh_facts *facts, ndp_link_check *c);
/* Marks links between hosts that are slower than half the median of what the hosts' best links reach, each way. Of two
 * hosts, and of one, nothing is slow: there is nothing to compare with. */
void ndp_link_check_judge(ndp_link_check *c);
/* Appends a line for each slow link: which hosts, both rates, that of the others, which group, and the host that all of
 * them share. */
void ndp_link_check_explain(ndp_link_check *c);
/* Appends a line for each axis whose groups cross hosts while those of an axis outside it do not. */
void ndp_link_check_placement(const ndp_layout *l, ndp_link_check *c);

/* All of it: measures the links, those that look slow again, alone; in two seconds at most, unless a link is slower
 * than 300 kB/s. c->hosts is given. Collective over the world; all ranks get the same. */
NDP_API ndp_status ndp_link_check_run(ndp_comm *world, const ndp_layout *l, const ndp_mesh_facts *facts,
                                      ndp_link_check *c);
/* "links", "hosts", "host_of_rank", "seconds" of links.json. */
void ndp_link_check_put(const ndp_link_check *c, ndp_json_out *out);
/* Accepts {0}. */
void ndp_link_check_release(ndp_link_check *c);

#endif
