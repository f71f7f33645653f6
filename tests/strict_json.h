/* ndp_json_parse against json-c's strict mode, which it does not use: what one accepts the other accepts. */
#ifndef NDP_TESTS_STRICT_JSON_H
#define NDP_TESTS_STRICT_JSON_H

#include "base/json.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Since 0.18 strict mode also refuses whole numbers beyond 64 bits, and bytes above 0x7f, here all written as x. */
static inline bool strict_json_knows(const char *text, size_t size) {
    size_t digits = 0, most = 0;
    for (size_t i = 0; i < size; i++) {
        digits = isdigit((unsigned char)text[i]) ? digits + 1 : 0;
        most = digits > most ? digits : most;
    }
    return most < 19 || json_c_version_num() < (18 << 8);
}

static inline bool strict_json_accepts(const char *text, size_t size) {
    char *copy = malloc(size + 1);
    for (size_t i = 0; i < size; i++)
        copy[i] = text[i] & 0x80 ? 'x' : text[i];
    struct json_tokener *tok = json_tokener_new_ex(128);
    json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
    struct json_object *o = json_tokener_parse_ex(tok, copy, (int)size);
    if (json_tokener_get_error(tok) == json_tokener_continue)
        o = json_tokener_parse_ex(tok, "", 1);
    bool accepted = json_tokener_get_error(tok) == json_tokener_success;
    json_object_put(o);
    json_tokener_free(tok);
    free(copy);
    return accepted;
}

/* NULL, or how they disagree. What strict mode accepts is refused for these reasons alone. */
static inline const char *strict_json_disagrees(const char *text, size_t size) {
    static const char *const ours[] = {"a control character in JSON text", "JSON strings need double quotes",
                                       "a key with a zero character", "an object has the same key twice",
                                       "not valid UTF-8"};
    struct json_object *o = NULL;
    bool taken = ndp_json_parse(text, size, "text", &o) == NDP_OK;
    json_object_put(o);
    if (!strict_json_knows(text, size) || taken == strict_json_accepts(text, size))
        return NULL;
    for (int i = 0; i < NDP_COUNT(ours) && !taken; i++)
        if (strstr(ndp_error_message(), ours[i]))
            return NULL;
    return taken ? "strict mode refuses what we accept" : ndp_error_message();
}

#endif
