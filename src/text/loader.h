/* Reading tokenizer.json: helpers for its files. Anything not understood is rejected by name, since a skipped stage
 * would change ids. */
#ifndef NDP_TEXT_LOADER_H
#define NDP_TEXT_LOADER_H

#include "base/json_lists.h"
#include "text/tokenizer_parts.h"

typedef struct ndp_loader {
    ndp_tokenizer *t;
    const char *what, *text;     /* the file, for messages, and its text */
    ndp_json_part vocab, merges; /* of the model; read by cursor, empty in the parsed tree */
} ndp_loader;

/* Rejects members that are not in `known` (NULL-terminated), and a value that is not an object. `where` names it. */
NDP_API ndp_status ndp_load_keys(const ndp_loader *l, const char *where, struct json_object *o,
                                 const char *const *known);
#define NDP_LOAD_KEYS(l, where, o, ...) ndp_load_keys((l), (where), (o), (const char *const[]){__VA_ARGS__, NULL})
/* A required member. */
NDP_API ndp_status ndp_load_need(const ndp_loader *l, const char *where, struct json_object *o, const char *key,
                                 enum json_type type, struct json_object **out);
NDP_API ndp_status ndp_load_string(const ndp_loader *l, const char *where, struct json_object *o, const char *key,
                                   const char **out);
/* A copy in the tokenizer's arena. */
NDP_API ndp_status ndp_load_keep(const ndp_loader *l, const char *text, const char **out);
NDP_API ndp_status ndp_load_fail_type(const ndp_loader *l, const char *where, const char *type);

/* Each reads one member of the file; `o` is NULL if it is missing. */
NDP_API ndp_status ndp_load_normalizers(const ndp_loader *l, struct json_object *o);
NDP_API ndp_status ndp_load_pretokenizers(const ndp_loader *l, struct json_object *o);
NDP_API ndp_status ndp_load_decoders(const ndp_loader *l, struct json_object *o);
NDP_API ndp_status ndp_load_model(const ndp_loader *l, struct json_object *model);
/* Call after the normalizers and the model: tokens enter the vocabulary, and their texts are normalized. */
NDP_API ndp_status ndp_load_added(const ndp_loader *l, struct json_object *list);

/* The text of a tokenizer.json equivalent to vocab.json and merges.txt. */
NDP_API ndp_status ndp_load_pair(const char *vocab, size_t vocab_size, const char *merges, const char *folder,
                                 ndp_str *out);

/* A stage of the file, while it is read. */
typedef struct ndp_stage {
    const char *where; /* for messages: "the normalizer Replace" */
    struct json_object *o;
    int kind;            /* of its type */
    ndp_text_steps *out; /* the list to which its steps are added */
} ndp_stage;
/* A type of stages. `load` reads one, which has no other options than these, and appends its parts to the tokenizer. */
typedef struct ndp_stage_type {
    const char *name;
    ndp_status (*load)(const ndp_loader *l, const ndp_stage *s);
    int kind;               /* for a `load` of several types */
    const char *options[6]; /* ends with NULL */
} ndp_stage_type;
/* One stage or a Sequence of them (a list under `list`), nested to any depth that JSON allows. `where` names the kind.
 */
typedef struct ndp_stage_types {
    const char *where, *list;
    const ndp_stage_type *types;
    int n;
} ndp_stage_types;
NDP_API ndp_status ndp_load_stages(const ndp_loader *l, const ndp_stage_types *known, ndp_text_steps *out,
                                   struct json_object *o);

#endif
