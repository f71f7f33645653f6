/* SVG elements as text. A colour is a class with a rule for light and one for dark pages; text is escaped here alone.
 * */
#include "base/svg.h"

#include <stdlib.h>
#include <string.h>

static bool is_plain(char c) {
    return ((unsigned char)c >= ' ' || c == '\t' || c == '\n' || c == '\r') && c != 0x7f && !strchr("<>&\"'", c);
}

void ndp_svg_escape(ndp_str *out, const char *text) {
    for (; *text; text++) {
        size_t plain = 0;
        while (is_plain(text[plain]))
            plain++;
        plain = ndp_utf8_valid_prefix(text, plain);
        ndp_str_add_bytes(out, text, plain);
        text += plain;
        if (!*text)
            return;
        ndp_str_add(out, *text == '<'    ? "&lt;"
                         : *text == '>'  ? "&gt;"
                         : *text == '&'  ? "&amp;"
                         : *text == '"'  ? "&quot;"
                         : *text == '\'' ? "&#39;"
                                         : "\xef\xbf\xbd");
    }
}

static void add_rules(ndp_str *out, const ndp_svg_colour *colours, int n, bool dark) {
    ndp_str_addf(out, "text { fill: %s } .soft { fill: %s } .page { fill: %s } .gap { stroke: %s }\n",
                 dark ? "#f0f6fc" : "#1f2328", dark ? "#9198a1" : "#59636e", dark ? "#0d1117" : "#ffffff",
                 dark ? "#0d1117" : "#ffffff");
    ndp_str_addf(out, ".card { fill: %s; stroke: %s } .empty { fill: %s }\n", dark ? "#151b23" : "#f6f8fa",
                 dark ? "#3d444d" : "#d1d9e0", dark ? "#3d444d" : "#d1d9e0");
    for (int i = 0; i < n; i++) {
        const char *colour = dark ? colours[i].dark : colours[i].light;
        ndp_str_addf(out, ".%s { fill: %s } .%s-line { fill: none; stroke: %s }\n", colours[i].name, colour,
                     colours[i].name, colour);
    }
}

void ndp_svg_begin_part(ndp_str *out, int width, int height, const char *title) {
    ndp_str_addf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                 "role=\"img\" font-family=\"sans-serif\" font-size=\"11\">\n<title>",
                 width, height, width, height);
    ndp_svg_escape(out, title);
    ndp_str_add(out, "</title>\n");
}

void ndp_svg_begin(ndp_str *out, int width, int height, const char *title, const ndp_svg_colour *colours, int n) {
    ndp_svg_begin_part(out, width, height, title);
    ndp_str_add(out, "<style>\n");
    add_rules(out, colours, n, false);
    ndp_str_add(out, "@media (prefers-color-scheme: dark) {\n");
    add_rules(out, colours, n, true);
    ndp_str_add(out, "}\n.on { fill: #1f2328 }\n</style>\n");
    ndp_svg_box(out, 0, 0, width, height, "class=\"page\" rx=\"6\"", NULL);
}

void ndp_svg_end(ndp_str *out) { ndp_str_add(out, "</svg>\n"); }

void ndp_svg_text(ndp_str *out, double x, double y, const char *attributes, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *text = ndp_vformat(fmt, args);
    va_end(args);
    out->failed |= !text;
    ndp_str_addf(out, "<text x=\"%.7g\" y=\"%.7g\"%s%s>", x, y, *attributes ? " " : "", attributes);
    ndp_svg_escape(out, text ? text : "");
    ndp_str_add(out, "</text>\n");
    free(text);
}

void ndp_svg_box(ndp_str *out, double x, double y, double width, double height, const char *attributes,
                 const char *title) {
    ndp_str_addf(out, "<rect x=\"%.7g\" y=\"%.7g\" width=\"%.7g\" height=\"%.7g\" %s", x, y, width, height, attributes);
    if (!title) {
        ndp_str_add(out, "/>\n");
        return;
    }
    ndp_str_add(out, "><title>");
    ndp_svg_escape(out, title);
    ndp_str_add(out, "</title></rect>\n");
}
