/* A curve as text: dots of Unicode's braille characters, two across and four down in a character, or asterisks. */
#ifndef NDP_REPORT_TEXT_CURVE_H
#define NDP_REPORT_TEXT_CURVE_H

#include "base/text.h"
#include "report/curve_columns.h"

/* Appends `rows` > 1 lines of at most `columns` characters: a line through the means of the curve's columns, at its
 * left the greatest and the least of them, and below it, as the last line, the first and the last x. `line`, `soft`:
 * escape sequences before the curve and before the rest, which `plain` ends; "": none. Nothing where the curve has no
 * points, or there is no room. Returns the number of lines. */
int ndp_text_curve_add(ndp_str *out, const ndp_curve_columns *c, int columns, int rows, bool ascii,
                       const char *const styles[3]);

#endif
