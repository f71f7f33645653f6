/* The built-in chat templates: a table whose rows say what a template writes around messages, and what it does with
 * contents and roles. Used by chat.c, which chooses a row, and by chat_render.c. */
#ifndef NDP_TEXT_CHAT_CHAT_TABLE_H
#define NDP_TEXT_CHAT_CHAT_TABLE_H

#include "text/chat/chat.h"

/* How a chain of thought in <think> tags in an assistant's content is rendered. */
typedef enum ndp_thinking {
    NDP_THINK_AS_IS,
    NDP_THINK_DROPPED, /* everything up to the last </think> is dropped */
    NDP_THINK_RECENT   /* normalized in turns after the last question, dropped before */
} ndp_thinking;

typedef enum ndp_beginning {
    NDP_BEGIN_EMPTY,
    NDP_BEGIN_BOS,     /* the tokenizer's begin token */
    NDP_BEGIN_AS_TEXTS /* the same, if the tokenizer puts it before every text */
} ndp_beginning;

/* Where the tokenizer's end token is written. */
typedef enum ndp_eos_place {
    NDP_EOS_NOWHERE,
    NDP_EOS_ANSWER,  /* at the end of the assistant's messages */
    NDP_EOS_MESSAGE, /* at the end of all messages */
    NDP_EOS_TEXT     /* at the end of a text without a generation prompt */
} ndp_eos_place;

/* From which contents the white space around them is removed. */
typedef enum ndp_stripping { NDP_STRIP_NONE, NDP_STRIP_ANSWERS, NDP_STRIP_ALL } ndp_stripping;

/* Where a system prompt that is the first message is written. */
typedef enum ndp_system_place {
    NDP_SYSTEM_MESSAGE, /* as a message of its own */
    NDP_SYSTEM_FIRST,   /* before the content of the first turn */
    NDP_SYSTEM_LAST,    /* before the content of the last message if that is the user's, otherwise nowhere */
    NDP_SYSTEM_START    /* at the start of the text, and the last one of several */
} ndp_system_place;

typedef struct ndp_chat_template {
    const char *name;
    ndp_beginning begins;
    /* A message is before, content, end, after. The assistant generates content and end, and what `before` has after
     * the generation prompt. */
    const char *before[NDP_ROLES], *end[NDP_ROLES], *after[NDP_ROLES];
    const char *prompt;   /* generation prompt: the assistant continues here */
    const char *system;   /* default system prompt; NULL: none */
    const char *preamble; /* starts the first system prompt, which is written also if it is missing; NULL: none */
    bool dated;           /* the date ends the preamble, and then an empty line */
    bool skips_empty;     /* no message for an empty system prompt */
    bool joins;           /* an answer behind an answer goes on: without `before` */
    ndp_stripping strips;
    ndp_eos_place eos;
    ndp_system_place system_place;
    ndp_thinking thinking;
    /* Why the template refuses a conversation, in its own words; NULL: it does not. */
    const char *alternates;  /* turns do not alternate, user first */
    const char *no_system;   /* the first message is a system prompt */
    const char *late_system; /* a later one is */
} ndp_chat_template;

/* Row `i`; NULL: behind the last one. */
const ndp_chat_template *ndp_chat_template_at(int i);
/* The row of that name; NULL: there is none. */
const ndp_chat_template *ndp_chat_template_named(const char *name);
/* The row that renders a template with this text, given by the XXH3-64 of its bytes without white space at the end;
 * NULL: the text is unknown. */
const ndp_chat_template *ndp_chat_template_of(uint64_t hash);
/* A row all of whose special tokens `has` accepts; NULL if no row qualifies. */
const ndp_chat_template *ndp_chat_template_fitting(bool (*has)(const void *user, const char *token), const void *user);
/* ndp_chat_render by a row: c->template. */
ndp_status ndp_chat_template_render(const ndp_chat *c, const ndp_conversation *conversation, bool generation_prompt,
                                    ndp_rendering *out);
/* Appends what starts the first system prompt, with the date; nothing where the row has none. */
void ndp_chat_template_add_preamble(const ndp_chat *c, ndp_str *text);
/* Appends a template in Jinja that writes and refuses what the row c->template does (chat_text.c). The tokens of the
 * tokenizer and the date are those of `c`, as texts. */
void ndp_chat_template_text(const ndp_chat *c, ndp_str *out);
/* Sets c->template to the row with that text, as it was written for this tokenizer, or for one without texts of its
 * tokens (c->bare), and c->date to the date there. False: no row does. */
bool ndp_chat_template_find_text(ndp_chat *c, ndp_span text);
/* Appends the names of all rows. */
void ndp_chat_template_names(ndp_str *out);

#endif
