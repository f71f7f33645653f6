#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Per thread, not per process, since ranks may be threads. */
static _Thread_local struct {
    char message[2048];
    char trail[1024];
} error;

ndp_status ndp_fail_at(const char *file, int line, ndp_status code, const char *fmt, ...) {
    char message[sizeof error.message]; /* the earlier message may be an argument */
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    memcpy(error.message, message, strlen(message) + 1);
    error.trail[0] = '\0';
    ndp_trail_add(file, line);
    return code;
}

void ndp_trail_add(const char *file, int line) {
    size_t used = strlen(error.trail);
    snprintf(error.trail + used, sizeof error.trail - used, "%s%s:%d", used ? " < " : "", file, line);
}

void ndp_error_set(ndp_status code, const char *message) {
    if (code == NDP_OK)
        error.message[0] = '\0';
    else
        snprintf(error.message, sizeof error.message, "%s", message);
    error.trail[0] = '\0';
}

const char *ndp_error_message(void) { return error.message; }
const char *ndp_error_trail(void) { return error.trail; }
