/* What the race detector of `sim` is told (sim_race.cc). It is part of the plugin that is built with it (build/race/),
 * and elsewhere these are NULL. */
#ifndef NDP_DEVICE_SIM_SIM_RACE_HPP
#define NDP_DEVICE_SIM_SIM_RACE_HPP

#include <cstddef>
#include <string>

#define NDP_SIM_RACE __attribute__((weak, visibility("hidden")))

/* A launch begins, of blocks of `threads` threads; a block; thread `thread` of it goes on. */
NDP_SIM_RACE void ndp_sim_race_launch(void);
NDP_SIM_RACE void ndp_sim_race_block(unsigned block);
NDP_SIM_RACE void ndp_sim_race_thread(int thread);
/* All threads of the block have met; lanes of the warp that begins with thread `first` have met in a __syncwarp. */
NDP_SIM_RACE void ndp_sim_race_barrier(void);
NDP_SIM_RACE void ndp_sim_race_warp(int first, unsigned lanes);
/* The running thread begins or ends an asynchronous copy. */
NDP_SIM_RACE void ndp_sim_race_copy(void *to, const void *from, size_t bytes);
/* The first race of the launch, which ends; "": there was none. */
NDP_SIM_RACE std::string ndp_sim_race_end(void);

#endif
