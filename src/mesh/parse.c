/* A layout as users write it on a command line: "tp=2,dp_shard=4". */
#include "mesh/mesh.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The size of this name; -1: none. */
static int find_size(const char *name, size_t length) {
    for (int axis = 0; axis < NDP_SIZES; axis++) {
        const char *known = ndp_axis_name((ndp_axis)axis);
        if (strlen(known) == length && strncmp(known, name, length) == 0)
            return axis;
    }
    return -1;
}

/* The name of a configuration key, an axis with "_size", counts as the axis. */
static ndp_status unknown_axis(const char *text, const char *name, size_t length) {
    enum { LONGEST = 40 };
#define NAME_OF(NAME, name, ...) #name,
#define NAMED(NAME, name, ...) ", " #name
    static const char suffix[] = "_size", all[] = NDP_AXES_LIST(NAMED);
    static const char *const known[] = {NDP_AXES_LIST(NAME_OF)};
    char word[LONGEST + 1];
    length = length < LONGEST ? length : LONGEST;
    memcpy(word, name, length);
    word[length] = '\0';
    char *end = strstr(word, suffix);
    if (end)
        *end = '\0';
    int exact = find_size(word, strlen(word));
    const char *meant = exact >= 0 ? known[exact] : ndp_nearest(word, known, NDP_SIZES);
    if (meant)
        return NDP_FAIL(NDP_EINVAL, "unknown axis '%.*s' in the layout '%.80s'; did you mean '%s'?", (int)length, name,
                        text, meant);
    return NDP_FAIL(NDP_EINVAL, "unknown axis '%.*s' in the layout '%.80s'; known are %s", (int)length, name, text,
                    all + strlen(", "));
}

static ndp_status parse(const char *text, int rest, ndp_layout *out) {
    enum { LARGEST = 1 << 20 };
    ndp_layout layout = NDP_LAYOUT_ONE;
    bool seen[NDP_SIZES] = {false};
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, "=,");
        NDP_CHECK(length > 0 && at[length] == '=',
                  "the layout '%.80s': expected AXIS=SIZE, ..., such as dp_shard=4,tp=2", text);
        int axis = find_size(at, length);
        if (axis < 0)
            return unknown_axis(text, at, length);
        NDP_CHECK(!seen[axis], "the layout '%.80s' has %.*s twice", text, (int)length, at);
        seen[axis] = true;
        const char *value = at + length + 1;
        char *end = NULL;
        errno = 0;
        long size = isdigit((unsigned char)*value) ? strtol(value, &end, 10) : 0;
        NDP_CHECK(size >= 1 && size <= LARGEST && !errno && (*end == ',' || !*end),
                  "the layout '%.80s': %.*s=%.*s is not a size; expected a whole number from 1 to %d", text,
                  (int)length, at, (int)strcspn(value, ","), value, LARGEST);
        layout.size[axis] = (int)size;
        at = end;
        if (!*at)
            break;
    }
    if (!seen[NDP_DP_SHARD])
        layout.size[NDP_DP_SHARD] = rest;
    *out = layout;
    return NDP_OK;
}

ndp_status ndp_layout_parse(const char *text, ndp_layout *out) { return parse(text, 1, out); }
ndp_status ndp_layout_parse_open(const char *text, ndp_layout *out) { return parse(text, 0, out); }
