/* Inside the step room: the stages of ndp_program_build. */
#ifndef NDP_STEP_BUILD_H
#define NDP_STEP_BUILD_H

#include "step/program.h"

/* Gives every block its region's offset and sets program->bytes. */
NDP_API ndp_status ndp_memory_plan(ndp_program *p);

#endif
