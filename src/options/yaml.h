/* A YAML text with positions: every error in it, the parser's and ours, is shown with file:line, the text of the line
 * and a caret. */
#ifndef NDP_OPTIONS_YAML_H
#define NDP_OPTIONS_YAML_H

#include "base/text.h"
#include <libfyaml.h>

typedef struct ndp_yaml {
    const char *what, *text; /* borrowed; `what` names the text in messages */
    size_t size;
    int start; /* offset of the document in the text: above 0 for the value of KEY=VALUE, which is on the first line,
                * after ASCII, and whose errors name no line */
    struct fy_diag *diag;
    struct fy_parser *parser;
    struct fy_document *document;
    struct fy_node *root; /* NULL: an empty document */
    struct fy_node *near; /* the last key, which an error about an empty value points at */
} ndp_yaml;

/* Parses one document of valid UTF-8 without duplicate keys. Close it even if this fails. */
NDP_API ndp_status ndp_yaml_open(ndp_yaml *y, const char *what, const char *text, size_t size, int start);
void ndp_yaml_close(ndp_yaml *y);

/* NDP_EINVAL, with the message pointing at the node. */
ndp_status ndp_yaml_fail(ndp_yaml *y, struct fy_node *node, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same for a message that was put together, which is released. */
ndp_status ndp_yaml_fail_str(ndp_yaml *y, struct fy_node *node, ndp_str *message);
/* The same at a position: line and column from 1, columns in characters. */
ndp_status ndp_yaml_fail_at(const ndp_yaml *y, int line, int column, const char *message);

/* Follows an alias to the node that its anchor names. */
NDP_API ndp_status ndp_yaml_follow(ndp_yaml *y, struct fy_node **node);
/* The text of a scalar node, borrowed from the document; NULL for a list or mapping, and for text with a zero byte. */
const char *ndp_yaml_text(struct fy_node *node);
/* True if written without quotes: 1 is a number, "1" is not. */
bool ndp_yaml_is_plain(struct fy_node *node);
/* The first character of a text that may hold any bytes: its length, and whether it is seen when printed, which invalid
 * bytes, controls and the like are not. */
size_t ndp_yaml_character(const char *text, uint32_t *character, bool *visible);
/* Nothing, ~ or null. */
bool ndp_yaml_is_null(struct fy_node *node);

#endif
