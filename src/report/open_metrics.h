/* Numbers of a run in the text format of OpenMetrics 1.0, which Prometheus reads. */
#ifndef NDP_REPORT_OPEN_METRICS_H
#define NDP_REPORT_OPEN_METRICS_H

#include "report/run.h"

#define NDP_OPEN_METRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Appends all of them, each with the label run="NAME", and the end of the text. A number that the run does not have is
 * left out. */
void ndp_open_metrics_add(ndp_str *out, const ndp_run_view *r, const char *name);

#endif
