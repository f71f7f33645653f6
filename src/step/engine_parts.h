/* Inside the step room: what an engine is made of, for engine.c, which builds it, and execute.c, which runs it. */
#ifndef NDP_STEP_ENGINE_PARTS_H
#define NDP_STEP_ENGINE_PARTS_H

#include "step/engine.h"

struct ndp_engine {
    ndp_engine_opts opts;
    ndp_model model; /* this rank's */
    ndp_unit_program units[NDP_MAX_GRAPHS];
    ndp_program program;
    ndp_comm *world, *comms[NDP_CHANNELS]; /* NULL: the program names no such group */
    ndp_window *windows[NDP_REGIONS];
    void **addresses; /* of blocks */
    /* Collectives under way: by begin instruction, then by begin call of the unit that runs. */
    ndp_work *works;
    double *begun; /* when */
    void **caches; /* by unit: keys, values */
    int32_t cache_row;
    int at; /* the instruction that runs, for messages */
    ndp_profile profile;
    bool profile_ops;
};

/* Where a place of the program lies; NULL: the program has none. */
void *ndp_engine_at(const ndp_engine *e, ndp_address place);

#endif
