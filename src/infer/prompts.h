/* Inside the infer room: the prompts of a JSONL file. */
#ifndef NDP_INFER_PROMPTS_H
#define NDP_INFER_PROMPTS_H

#include "infer/infer.h"

typedef struct ndp_prompt {
    ndp_ids ids;
    char *id; /* the record's "id", as JSON; NULL: it has none */
} ndp_prompt;

typedef struct ndp_prompts {
    ndp_prompt *items;
    int64_t n, capacity;
} ndp_prompts;

/* Reads and encodes all records. `chat_template`: as in ndp_generate_opts. NDP_EFORMAT and NDP_EINVAL name the file and
 * the line; a prompt that leaves no room for an answer is one. */
NDP_API ndp_status ndp_prompts_read(ndp_prompts *p, const ndp_infer *f, const char *chat_template, const char *path);
void ndp_prompts_release(ndp_prompts *p);

#endif
