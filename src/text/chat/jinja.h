/* Chat templates that Jinja itself renders, in processes of Python (text/chat/jinja.py): any template that
 * transformers renders, with the same result. */
#ifndef NDP_TEXT_CHAT_JINJA_H
#define NDP_TEXT_CHAT_JINJA_H

#include "text/chat/chat.h"

typedef struct ndp_jinja ndp_jinja;

/* `what` names the template in messages. `variables`: what the template finds beside the conversation, such as
 * bos_token. `special`: a list of the tokenizer's special tokens, of which the one right after an answer is trained
 * on; NULL: those of the variables. `date`: what strftime_now takes for today, "2024-07-26". Starts nothing. */
ndp_status ndp_jinja_create(const char *what, ndp_span text, struct json_object *variables, struct json_object *special,
                            const char *date, ndp_jinja **out);
/* NULL is allowed. No thread may be rendering with it. */
void ndp_jinja_destroy(ndp_jinja *j);

/* As ndp_chat_render. Any number of threads may render at the same time; each has a process of its own, which is kept.
 * NDP_EINVAL: Python or Jinja is missing, or the template needs more than 10 s of CPU time, which another machine might
 * not. NDP_EFORMAT: the template is damaged, refuses the conversation, or needs more than the memory or the length of
 * the text that jinja.py allows. */
ndp_status ndp_jinja_render(ndp_jinja *j, const ndp_conversation *c, bool generation_prompt, ndp_rendering *out);

/* The text of the template, borrowed. */
ndp_span ndp_jinja_template(const ndp_jinja *j);

/* Appends what a rendering depends on besides the conversation: the version of Jinja, which is asked for, the template
 * with its variables, and the program that finds what the assistant wrote. */
ndp_status ndp_jinja_add_key(ndp_jinja *j, ndp_str *out);
/* Appends a phrase for the user: which template, which Jinja, and the date if the template writes one. */
void ndp_jinja_describe(ndp_jinja *j, ndp_str *out);
/* A hash of the template with its variables. Starts nothing. */
ndp_hash128 ndp_jinja_hash(const ndp_jinja *j);

#endif
