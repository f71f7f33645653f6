/* Conversations as text: chat templates, and which bytes of the text the assistant wrote.
 *
 * There is no template engine. A template is a row of a table (chat_table.h): the text before and after a message of
 * each role, and what is done with contents and roles. It is chosen by name, or by the text of the tokenizer's own
 * template (chat_template.jinja, or chat_template in tokenizer_config.json): for a template text listed in the table,
 * its row gives the same result byte for byte.
 */
#ifndef NDP_DATA_CORPUS_CHAT_H
#define NDP_DATA_CORPUS_CHAT_H

#include "text/tokenizer.h"

typedef enum ndp_role { NDP_ROLE_SYSTEM, NDP_ROLE_USER, NDP_ROLE_ASSISTANT, NDP_ROLES } ndp_role;
/* By its name in records: system, user or human, assistant or gpt; false for any other. */
bool ndp_role_of(const char *name, ndp_role *out);

typedef struct ndp_message {
    ndp_role role;
    ndp_span content;
    ndp_span reasoning; /* data NULL: not separate from the content */
} ndp_message;

/* Bytes [begin, end) of a text. */
typedef struct ndp_range {
    size_t begin, end;
} ndp_range;

/* A conversation as text, and the ranges of it that the assistant wrote, each with the token that ends its turn;
 * sorted, non-empty. `{0}` is an empty one; it can be reused. */
typedef struct ndp_rendering {
    ndp_str text;
    ndp_range *spans;
    int64_t n, capacity;
} ndp_rendering;
void ndp_rendering_release(ndp_rendering *r);

typedef struct ndp_chat {
    const struct ndp_chat_template *template; /* NULL: none, for the reason in `why` */
    ndp_span bos, eos;                        /* texts of the tokenizer's tokens, borrowed; n = 0: none */
    bool adds_bos;                            /* the tokenizer puts its begin token before a text */
    const char *date;                         /* what templates write as today, "2024-07-26"; NULL: that day */
    char *why;
} ndp_chat;

/* `source`: what the tokenizer was made from; its folder may contain the tokenizer's own template. `name`: a built-in
 * template to use instead; NULL: the tokenizer's own. NDP_EINVAL: there is no template of that name (the message lists
 * them). A tokenizer without a known template is an error only when something is rendered. Borrows the tokenizer. */
NDP_API ndp_status ndp_chat_init(ndp_chat *c, const ndp_tokenizer *t, const char *source, const char *name);
void ndp_chat_release(ndp_chat *c);
/* The name of the chosen template, or "none". */
const char *ndp_chat_name(const ndp_chat *c);

/* Replaces the contents of `out`. `generation_prompt`: the text ends where the assistant is to continue. NDP_ENOTSUP:
 * no template is known; the message says why and what to do. NDP_EFORMAT: the template refuses this conversation, with
 * the template's own reason. */
NDP_API ndp_status ndp_chat_render(const ndp_chat *c, const ndp_message *messages, int64_t n, bool generation_prompt,
                                   ndp_rendering *out);

#endif
