/* Notes on an import: a list of the keys seen, with a verdict each, and remarks. */
#include "import/import_notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ndp_status ndp_import_note(ndp_import_notes *n, import_verdict verdict, const char *name, struct fy_node *node,
                           const char *why, const char *ours) {
    enum { MOST = 4096 };
    NDP_CHECK(n->seen_count < MOST, "%s: more than %d keys; a configuration has a few dozen", n->file->what, MOST);
    const char *kept = ndp_arena_strdup(&n->arena, name), *reason = ndp_arena_strdup(&n->arena, why ? why : "");
    if (!kept || !reason)
        return NDP_FAIL(NDP_ENOMEM, "%s: not enough memory to import it", n->file->what);
    NDP_TRY(ndp_array_reserve(&n->seen, &n->seen_capacity, n->seen_count + 1, sizeof *n->seen));
    n->seen[n->seen_count++] = (import_seen){verdict, kept, n->y, node, reason, ours};
    return NDP_OK;
}

ndp_status ndp_import_refuse(ndp_import_notes *n, const char *name, const char *value, struct fy_node *node,
                             const char *why, const char *ours) {
    char shown[200];
    snprintf(shown, sizeof shown, value && *value ? "%.100s: %.90s" : "%.100s", name, value);
    return ndp_import_note(n, SEEN_REFUSED, shown, node, why, ours);
}

const import_seen *ndp_import_find(const ndp_import_notes *n, const char *name) {
    for (int64_t i = n->seen_count; i-- > 0;)
        if (strcmp(n->seen[i].name, name) == 0)
            return &n->seen[i];
    return NULL;
}

struct fy_node *ndp_import_node(const ndp_import_notes *n, const char *name) {
    const import_seen *seen = ndp_import_find(n, name);
    return seen ? seen->node : NULL;
}

ndp_status ndp_import_fail(ndp_import_notes *n, const char *name, const char *fmt, ...) {
    const import_seen *seen = ndp_import_find(n, name);
    va_list args;
    va_start(args, fmt);
    char *message = ndp_vformat(fmt, args);
    va_end(args);
    const char *said = message ? message : "not enough memory for an error message";
    ndp_status st = seen && seen->node ? ndp_yaml_fail(seen->y, seen->node, "%s", said)
                                       : NDP_FAIL(NDP_EINVAL, "%s: %s", n->file->what, said);
    free(message);
    return st;
}

static bool sets(const ndp_import_notes *n, const char *ours, const char *ends) {
    size_t length = ours ? strlen(ours) : 0;
    for (int i = 0; length && i < n->o->assignment_count; i++) {
        const char *assignment = n->o->assignments[i];
        if (strncmp(assignment, ours, length) == 0 && assignment[length] && strchr(ends, assignment[length]))
            return true;
    }
    return false;
}

bool ndp_import_is_set(const ndp_import_notes *n, const char *ours) { return sets(n, ours, "="); }

void ndp_import_say_unset(ndp_import_notes *n, const char *const *ours, const char *end) {
    const char *between = ": set ";
    for (; *ours; ours++) {
        bool set = sets(n, *ours, "=.") || (strcmp(*ours, "model.path") == 0 && sets(n, "model.config", "="));
        if (!set)
            ndp_str_addf(&n->remarks, "%s%s", between, *ours);
        between = set ? between : ", ";
    }
    ndp_str_add(&n->remarks, end);
}

void ndp_import_release_notes(ndp_import_notes *n) {
    free(n->seen);
    ndp_str_release(&n->remarks);
    ndp_arena_release(&n->arena);
}
