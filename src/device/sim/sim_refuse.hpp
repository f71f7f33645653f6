/* NDP_SIM_REFUSES: functions of CUDA that refuse their calls, so that tests see what is done then. */
#ifndef NDP_DEVICE_SIM_SIM_REFUSE_HPP
#define NDP_DEVICE_SIM_SIM_REFUSE_HPP

/* NDP_SIM_REFUSES=NAME[=CODE],...: what the function `name` answers instead of being executed: its code, that of "not
 * supported" (`otherwise`) without one; NDP_SIM_ABSENT where the library does not have it (NAME=absent);
 * NDP_SIM_EXECUTES where it is not in the list. */
enum { NDP_SIM_EXECUTES = -1, NDP_SIM_ABSENT = -2 };
int ndp_sim_answer(const char *name, int otherwise);

#endif
