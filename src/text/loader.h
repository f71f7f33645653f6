/* Reading tokenizer.json: what its files share. Whatever is not understood is refused by name: a stage left out would
 * give other ids. */
#ifndef NDP_TEXT_LOADER_H
#define NDP_TEXT_LOADER_H

#include "base/json_lists.h"
#include "text/tokenizer_parts.h"

typedef struct ndp_loader {
    ndp_tokenizer *t;
    const char *what, *text;     /* the file, for messages, and its text */
    ndp_json_part vocab, merges; /* of the model, which are empty in the tree */
} ndp_loader;

/* A member, or NULL when it is missing or null. */
struct json_object *ndp_load_member(struct json_object *o, const char *key);
/* Refuses members that are not in `known` (NULL at the end), and what is no object. `where` names it. */
NDP_API ndp_status ndp_load_keys(const ndp_loader *l, const char *where, struct json_object *o,
                                 const char *const *known);
#define NDP_LOAD_KEYS(l, where, o, ...) ndp_load_keys((l), (where), (o), (const char *const[]){__VA_ARGS__, NULL})
/* A member that has to be there. */
NDP_API ndp_status ndp_load_need(const ndp_loader *l, const char *where, struct json_object *o, const char *key,
                                 enum json_type type, struct json_object **out);
NDP_API ndp_status ndp_load_string(const ndp_loader *l, const char *where, struct json_object *o, const char *key,
                                   const char **out);
/* A copy in the tokenizer's arena. */
NDP_API ndp_status ndp_load_keep(const ndp_loader *l, const char *text, const char **out);
NDP_API ndp_status ndp_load_fail_type(const ndp_loader *l, const char *where, const char *type);

/* One member of the file each; `o` is NULL where it is missing. */
NDP_API ndp_status ndp_load_normalizers(const ndp_loader *l, struct json_object *o);
NDP_API ndp_status ndp_load_pretokenizers(const ndp_loader *l, struct json_object *o);
NDP_API ndp_status ndp_load_decoders(const ndp_loader *l, struct json_object *o);
NDP_API ndp_status ndp_load_model(const ndp_loader *l, struct json_object *model);
/* Behind the normalizers and the model: tokens enter the vocabulary, and their texts are normalized. */
NDP_API ndp_status ndp_load_added(const ndp_loader *l, struct json_object *list);

/* The text of a tokenizer.json that says what vocab.json and merges.txt say. */
NDP_API ndp_status ndp_load_pair(const char *vocab, size_t vocab_size, const char *merges, const char *folder,
                                 ndp_str *out);

/* A stage of the file, of the type `name`: reads it and appends what it is made of to the tokenizer. */
typedef struct ndp_stage_type {
    const char *name;
    ndp_status (*load)(const ndp_loader *l, struct json_object *o);
} ndp_stage_type;
/* One stage, or a Sequence of them (a list under `list`), at any depth that JSON allows. `where`: what it is called. */
typedef struct ndp_stage_types {
    const char *where, *list;
    const ndp_stage_type *types;
    int n;
} ndp_stage_types;
NDP_API ndp_status ndp_load_stages(const ndp_loader *l, const ndp_stage_types *known, struct json_object *o);

#endif
