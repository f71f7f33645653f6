/* Inside the verify room: what a doctor finds in a run folder. */
#ifndef NDP_VERIFY_RUN_DOCTOR_H
#define NDP_VERIFY_RUN_DOCTOR_H

#include "launch/checkup.h"

/* Appends what happened to the run, and what to do. Only reads. NDP_EINVAL: the folder is no run's. */
NDP_API ndp_status ndp_run_examine(const char *folder, ndp_findings *out);

#endif
