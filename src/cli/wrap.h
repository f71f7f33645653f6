/* Lines that fit the terminal. */
#ifndef NDP_CLI_WRAP_H
#define NDP_CLI_WRAP_H

#include "base/text.h"

/* The most columns that a line on `fd`, stdout or stderr, may take: one less than its terminal has; 0: it is not a
 * terminal, and lines are left as they are, since programs read them. */
int cli_line_width(int fd);
/* Appends a text whose lines are at most `width` columns wide: what does not fit goes to further lines, four blanks
 * further in; a path that is longer than a line is cut at its left ("..."). width 0: as it is. */
void cli_wrap(ndp_str *out, const char *text, int width);

#endif
