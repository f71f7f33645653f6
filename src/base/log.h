/* Messages for the user, on stderr. A log is passed, never global: a rank may be a thread. */
#ifndef NDP_BASE_LOG_H
#define NDP_BASE_LOG_H

#include "base/status.h"

typedef enum ndp_log_level { NDP_LOG_QUIET, NDP_LOG_WARN, NDP_LOG_INFO } ndp_log_level;

typedef struct ndp_log {
    ndp_log_level level;
    int rank; /* only rank 0 prints INFO; any rank prints warnings, with its number */
} ndp_log;

void ndp_info(const ndp_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ndp_warn(const ndp_log *log, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Passes a line to a callback; NULL: none. */
void ndp_say(void (*say)(void *user, const char *line), void *user, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
