/* Conversations as text: chat templates, and which bytes of the text the assistant wrote.
 *
 * Well-known templates are rows of a table (chat_table.h): the text before and after a message of each role, and what
 * is done with contents and roles. A row is chosen by name, or by the text of the tokenizer's own template
 * (chat_template.jinja, or chat_template in tokenizer_config.json): for a text listed in the table, its row gives the
 * same result byte for byte. All other templates are rendered by Jinja itself (jinja.h), which needs Python.
 */
#ifndef NDP_TEXT_CHAT_CHAT_H
#define NDP_TEXT_CHAT_CHAT_H

#include "base/json.h"
#include "text/tokenizer.h"

typedef enum ndp_role { NDP_ROLE_SYSTEM, NDP_ROLE_USER, NDP_ROLE_ASSISTANT, NDP_ROLE_TOOL, NDP_ROLES } ndp_role;
/* By its name in records: system, user or human, assistant or gpt, tool; false for any other. */
bool ndp_role_of(const char *name, ndp_role *out);
/* The name that templates have for it: "assistant". */
const char *ndp_role_name(ndp_role r);

typedef struct ndp_message {
    ndp_role role;
    ndp_span content;
    ndp_span reasoning;       /* data NULL: not separate from the content */
    struct json_object *json; /* the message as templates have it, borrowed; NULL: made of the members above */
    bool untrained;           /* the record says so: it is context alone */
} ndp_message;

typedef struct ndp_conversation {
    const ndp_message *messages;
    int64_t n;
    struct json_object *tools;     /* schemas of those that the assistant may call, borrowed; NULL: none */
    struct json_object *documents; /* that it may quote, a list; NULL: none */
    struct json_object *variables; /* what the template finds besides all this; NULL: nothing */
} ndp_conversation;

/* Bytes [begin, end) of a text. */
typedef struct ndp_range {
    size_t begin, end;
} ndp_range;

/* A conversation as text, and the ranges of it that the assistant wrote, each with the token that ends its turn;
 * sorted, non-empty. `{0}` is an empty one; it can be reused. */
typedef struct ndp_rendering {
    ndp_str text;
    ndp_str unsure; /* not empty: why it is not known what the assistant wrote; there are no ranges */
    ndp_range *spans;
    int64_t n, capacity;
    /* Bytes at which a later question begins: the answer before it is over, whether it is trained on or not; sorted. */
    size_t *questions;
    int64_t n_questions, question_capacity;
} ndp_rendering;
void ndp_rendering_release(ndp_rendering *r);

typedef struct ndp_chat {
    const struct ndp_chat_template *template; /* a row of the table */
    struct ndp_jinja *jinja;        /* another template; without both there is none, for the reason in `why` */
    const ndp_tokenizer *tokenizer; /* borrowed */
    ndp_span bos, eos;              /* texts of its tokens, borrowed; n = 0: none */
    bool adds_bos;                  /* the tokenizer puts its begin token before a text */
    bool chosen;                    /* by name, and not the tokenizer's own */
    bool bare;        /* a built-in one, written for a tokenizer whose tokens have no texts: bos and eos are empty */
    const char *date; /* what templates write as today, NULL: NDP_CHAT_DATE; borrowed */
    char *why, *name, *own_date; /* own_date: that of `date`, where the template has one of its own */
} ndp_chat;

/* The day that Llama's templates write where there is no clock. A fixed one, so that equal data gives equal tokens. */
#define NDP_CHAT_DATE "2024-07-26"

/* `source`: what the tokenizer was made from ("": no files); its folder may contain the tokenizer's own template.
 * `name`: NULL: the tokenizer's own, by the table if its text is known there; a built-in one; "jinja": the tokenizer's
 * own, by Jinja in any case; the name of another one of the tokenizer's templates, such as tool_use; or the path of a
 * file, *.jinja. `date`: what templates write as today; NULL: NDP_CHAT_DATE. NDP_EINVAL: there is no template of that
 * name (the message lists them). A tokenizer without a template is an error only when something is rendered. Borrows
 * the tokenizer. */
NDP_API ndp_status ndp_chat_init(ndp_chat *c, const ndp_tokenizer *t, const char *source, const char *name,
                                 const char *date);
void ndp_chat_release(ndp_chat *c);
/* The name of the chosen template, "jinja" and a hash of the template for one that is not built in, or "none". */
const char *ndp_chat_name(const ndp_chat *c);
/* Appends the template as a text in Jinja, which renders the same; nothing without a template. That of a built-in one
 * has the tokenizer's tokens and the date as texts, and ndp_chat_init with it beside that tokenizer chooses the
 * built-in one again. */
void ndp_chat_add_text(const ndp_chat *c, ndp_str *out);
/* The same, if beside the tokenizer that was made from `source` another template is the tokenizer's own, or one that
 * writes another date. */
ndp_status ndp_chat_add_other_text(const ndp_chat *c, const ndp_tokenizer *t, const char *source, ndp_str *out);
/* Appends a phrase for the user: which template renders, and by what. */
void ndp_chat_describe(const ndp_chat *c, ndp_str *out);
/* Appends all that a rendering depends on besides the conversation: for Jinja also its version, which is asked for.
 * A Jinja that is missing, or refuses the template, is an error only when a conversation is rendered. */
ndp_status ndp_chat_add_key(const ndp_chat *c, ndp_str *out);

/* Replaces the contents of `out`. `generation_prompt`: the text ends where the assistant is to continue, and no ranges
 * are looked for. NDP_ENOTSUP: no template is known, or what renders it is missing; the message says why and what to
 * do. NDP_EFORMAT: the template refuses this conversation, with the template's own reason. */
NDP_API ndp_status ndp_chat_render(const ndp_chat *c, const ndp_conversation *conversation, bool generation_prompt,
                                   ndp_rendering *out);

#endif
