/* Inside the train room: the links between the hosts of a run, measured before anything is read, and links.json. */
#ifndef NDP_TRAIN_LINKS_H
#define NDP_TRAIN_LINKS_H

#include "comm/comm.h"
#include "config/config.h"

/* Does nothing on one host. On several: measures the links of the layout (train.check_links), writes links.json to the
 * run folder, which rank 0 holds, and warns of slow links and of axes that are placed badly; with `fail` that is
 * NDP_EINVAL. Where nothing is measured, links.json has the hosts of the ranks alone. `say`: rank 0's; NULL on the
 * others. Collective over the world; all ranks return the same status. */
NDP_API ndp_status ndp_links_check(const ndp_config *c, ndp_comm *world, void (*say)(void *user, const char *line),
                                   void *user);

#endif
