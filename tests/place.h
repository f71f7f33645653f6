/* Where a message about a YAML text points. */
#ifndef NDP_TESTS_PLACE_H
#define NDP_TESTS_PLACE_H

#include "check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The message of this thread's last error contains `expected`. If that begins with "FILE:LINE:COLUMN: ", the message
 * begins with "FILE:LINE: " (for --set with "--set: "), and its caret is below this column. A long line is shown from
 * 70 characters before the caret on. */
static inline void check_points_at(const char *expected) {
    enum { MOST = 71, INDENT = 2 };
    const char *message = ndp_error_message(), *rest = strstr(expected, ": ");
    char file[100], want[1000];
    int line, column;
    if (!rest || sscanf(expected, "%99[^: ]:%d:%d: ", file, &line, &column) != 3) {
        if (!strstr(message, expected))
            fail_msg("the message lacks '%s': %s", expected, message);
        return;
    }
    if (file[0] == '-')
        snprintf(want, sizeof want, "%s%s", file, rest);
    else
        snprintf(want, sizeof want, "%s:%d%s", file, line, rest);
    if (strncmp(message, want, strlen(want)))
        fail_msg("the message does not begin with '%s': %s", want, message);
    const char *caret = NULL, *start = NULL;
    for (const char *at = strchr(message, '\n'); at && !caret; at = strchr(at + 1, '\n')) {
        start = at + 1;
        caret = start[strspn(start, " \t")] == '^' ? start + strspn(start, " \t") : NULL;
    }
    if (!caret || caret - start - INDENT != (column < MOST ? column : MOST) - 1)
        fail_msg("the caret is not below column %d: %s", column, message);
}

#endif
