/* Notes on an import: what became of each key, and remarks for the user. Inside this room only. */
#ifndef NDP_CONFIG_IMPORT_NOTES_H
#define NDP_CONFIG_IMPORT_NOTES_H

#include "base/arena.h"
#include "config/config.h"
#include "options/yaml.h"

typedef enum import_verdict { SEEN_CARRIED, SEEN_LEFT, SEEN_REFUSED, SEEN_UNKNOWN } import_verdict;

/* A key of the file and what became of it. */
typedef struct import_seen {
    import_verdict verdict;
    const char *name;       /* as written, "fsdp_config.fsdp_version" */
    ndp_yaml *y;            /* the text that `node` is in */
    struct fy_node *node;   /* the key; NULL: not in the file */
    const char *why, *ours; /* the reason; our key that settles it when the user sets it */
} import_seen;

typedef struct ndp_import_notes {
    const ndp_import_opts *o; /* borrowed: the user's assignments */
    ndp_yaml *file, *y;       /* the imported file; the text being read, which is that or a file that it names */
    import_seen *seen;
    int64_t seen_count, seen_capacity;
    ndp_str remarks; /* lines */
    ndp_arena arena; /* of all texts in `seen` */
    bool unloadable; /* one of the refusals is that of the model, whose family does not load */
} ndp_import_notes;
void ndp_import_release_notes(ndp_import_notes *n);

/* Notes what became of a key. `node`, `why` and `ours` may be NULL; name and reason are copied. */
NDP_API ndp_status ndp_import_note(ndp_import_notes *n, import_verdict verdict, const char *name, struct fy_node *node,
                                   const char *why, const char *ours);
/* Notes a refusal, with the start of the value: "adapter: lora". `value` may be NULL. */
ndp_status ndp_import_refuse(ndp_import_notes *n, const char *name, const char *value, struct fy_node *node,
                             const char *why, const char *ours);
/* The last key of this name in the file; NULL: none. */
const import_seen *ndp_import_find(const ndp_import_notes *n, const char *name);
/* The same as a node. */
struct fy_node *ndp_import_node(const ndp_import_notes *n, const char *name);
/* NDP_EINVAL, with the message pointing at the key of this name, if the file has it. */
ndp_status ndp_import_fail(ndp_import_notes *n, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* True if the user sets this key of ours with --set. */
bool ndp_import_is_set(const ndp_import_notes *n, const char *ours);
/* Ends a remark: ": set model.path, batch" with those of the keys and sections that the user does not set (the list
 * ends with NULL; nothing if all are set), and then `end`. */
void ndp_import_say_unset(ndp_import_notes *n, const char *const *ours, const char *end);

/* All notes, as lines of text; `kind` of file: "an Axolotl configuration". */
NDP_API ndp_status ndp_import_report(const ndp_import_notes *n, const char *kind, char **notes);
/* NDP_EINVAL with all refused and unknown keys and what to do about them, NDP_ENOTSUP if the model alone is; NDP_OK if
 * there are none, or with --force. */
NDP_API ndp_status ndp_import_judge(ndp_import_notes *n);

#endif
