/* Pictures as SVG text. They are readable on light and on dark pages: the background, and all that has one of the
 * classes below, follows the reader's colour scheme.
 *
 *   text  on the background; soft: less important text; on: text on a filled rectangle of any colour
 *   card  a box with a thin border; empty: the unused part of a bar; gap: a rectangle with a line in the background's
 * colour
 *
 * A colour of the picture makes two more: NAME fills, NAME-line draws an outline. */
#ifndef NDP_BASE_SVG_H
#define NDP_BASE_SVG_H

#include "base/text.h"

typedef struct ndp_svg_colour {
    const char *name, *light, *dark;
} ndp_svg_colour;

/* Appends a text for XML or HTML, in an element or a quoted attribute. Control characters, but for tabs and line
 * breaks, and bytes that are not UTF-8 become U+FFFD. */
void ndp_svg_escape(ndp_str *out, const char *text);

/* Appends the head of a picture in a page, which has the background and the rules of its classes. */
void ndp_svg_begin_part(ndp_str *out, int width, int height, const char *title);
/* Appends the head of a picture and its background. `title`: for readers who do not see it. */
void ndp_svg_begin(ndp_str *out, int width, int height, const char *title, const ndp_svg_colour *colours, int n);
void ndp_svg_end(ndp_str *out);

/* A text, formatted as by printf, whose first letter stands at (x, y); `attributes`: more of them (class, fill,
 * text-anchor), or "". */
void ndp_svg_text(ndp_str *out, double x, double y, const char *attributes, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* A rectangle; `title`: what a reader sees who points at it; NULL: nothing. */
void ndp_svg_box(ndp_str *out, double x, double y, double width, double height, const char *attributes,
                 const char *title);

#endif
