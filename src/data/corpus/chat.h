/* Conversations as text: chat templates, and which bytes of the text the assistant wrote.
 *
 * There is no template engine. A template is a row of a table: what stands before and behind a message of each role.
 * It is chosen by name, or by the text of the tokenizer's own template (chat_template.jinja, or chat_template in
 * tokenizer_config.json): a text that is in the table is known to give what the row gives, byte for byte.
 */
#ifndef NDP_DATA_CORPUS_CHAT_H
#define NDP_DATA_CORPUS_CHAT_H

#include "text/tokenizer.h"

typedef enum ndp_role { NDP_ROLE_SYSTEM, NDP_ROLE_USER, NDP_ROLE_ASSISTANT, NDP_ROLES } ndp_role;
/* By its name in records: system, user or human, assistant or gpt; false: none of them. */
bool ndp_role_of(const char *name, ndp_role *out);

typedef struct ndp_message {
    ndp_role role;
    ndp_span content;
    ndp_span reasoning; /* data NULL: not given apart from the content */
} ndp_message;

/* Bytes [begin, end) of a text. */
typedef struct ndp_range {
    size_t begin, end;
} ndp_range;

/* A conversation as text, and the ranges in it that the assistant wrote, each with the token that ends its turn; in
 * order, not empty. `{0}` is an empty one; it may be used again and again. */
typedef struct ndp_rendering {
    ndp_str text;
    ndp_range *spans;
    int64_t n, capacity;
} ndp_rendering;
void ndp_rendering_release(ndp_rendering *r);

typedef struct ndp_chat {
    const struct ndp_chat_template *template; /* NULL: none that is known, for the reason in `why` */
    ndp_span bos, eos;                        /* texts of the tokenizer's tokens, borrowed; n 0: it has none */
    bool adds_bos;                            /* the tokenizer puts its begin token before a text */
    char *why;
} ndp_chat;

/* `source`: what the tokenizer was made from, in whose folder its own template is looked for. `name`: a built-in
 * template instead; NULL for the tokenizer's own. NDP_EINVAL names the built-in ones when there is none of that name.
 * A tokenizer without a template that is known is no error before something is rendered. Borrows the tokenizer. */
NDP_API ndp_status ndp_chat_init(ndp_chat *c, const ndp_tokenizer *t, const char *source, const char *name);
void ndp_chat_release(ndp_chat *c);
/* The built-in template that was chosen, or "none". */
const char *ndp_chat_name(const ndp_chat *c);

/* Replaces what is in `out`. `generation_prompt`: ends where the assistant is to go on. NDP_ENOTSUP: no template is
 * known; the message says why and what to do. */
NDP_API ndp_status ndp_chat_render(const ndp_chat *c, const ndp_message *messages, int64_t n, bool generation_prompt,
                                   ndp_rendering *out);

#endif
