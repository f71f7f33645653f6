/* The screen of `watch`: a function of what was read of a run, and of the size of the terminal. */
#ifndef NDP_REPORT_SCREEN_H
#define NDP_REPORT_SCREEN_H

#include "report/run.h"

/* Appends at most o->rows lines, none of them wider than o->columns - 1. Every text of the run is without control
 * characters. */
void ndp_screen_add(ndp_str *out, const ndp_run_view *r, const char *name, const ndp_screen_opts *o);
/* Whether a process holds the run's folder, as far as this host sees. */
bool ndp_run_is_live(const ndp_run_view *r);

#endif
