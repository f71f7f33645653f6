/* Lines for the user on stderr. A line is one write, so that lines of ranks that share stderr do not mix. */
#include "base/log.h"

#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool ndp_colours(int fd) {
    const char *none = getenv("NO_COLOR"), *kind = getenv("TERM");
    return isatty(fd) && !(none && *none) && !(kind && strcmp(kind, "dumb") == 0);
}

/* One write per line, as ranks share stderr. */
__attribute__((format(printf, 2, 0))) static void print_line(const char *prefix, const char *fmt, va_list args) {
    char *text = ndp_vformat(fmt, args);
    if (text)
        fprintf(stderr, "%s%s\n", prefix, text);
    free(text);
}

void ndp_info(const ndp_log *log, const char *fmt, ...) {
    if (log->level < NDP_LOG_INFO || log->rank != 0)
        return;
    va_list args;
    va_start(args, fmt);
    print_line("", fmt, args);
    va_end(args);
}

void ndp_warn(const ndp_log *log, const char *fmt, ...) {
    if (log->level < NDP_LOG_WARN)
        return;
    char prefix[64];
    bool colours = ndp_colours(STDERR_FILENO);
    snprintf(prefix, sizeof prefix, "%swarning (rank %d):%s ", colours ? "\033[1;33m" : "", log->rank,
             colours ? "\033[0m" : "");
    va_list args;
    va_start(args, fmt);
    print_line(prefix, fmt, args);
    va_end(args);
}

void ndp_say(void (*say)(void *user, const char *line), void *user, const char *fmt, ...) {
    char line[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (say)
        say(user, line);
}
