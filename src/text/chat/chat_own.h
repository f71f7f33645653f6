/* The chat templates that come with a tokenizer, in the files of its folder. Used by chat.c. */
#ifndef NDP_TEXT_CHAT_CHAT_OWN_H
#define NDP_TEXT_CHAT_CHAT_OWN_H

#include "text/chat/chat.h"

/* Reads a template into `text`, which stays empty if there is none. `name`: NULL: the one for conversations
 * (chat_template.jinja, or chat_template in tokenizer_config.json); otherwise one of a list there, or the file
 * additional_chat_templates/NAME.jinja. */
ndp_status ndp_chat_own_text(const char *folder, const char *name, ndp_str *text);
/* What a template finds beside the conversation: the tokens that tokenizer_config.json names (bos_token, pad_token,
 * ...). `folder`: NULL: none. */
ndp_status ndp_chat_own_variables(const char *folder, const ndp_chat *c, struct json_object **out);
/* A list of the texts of the tokenizer's special tokens. */
ndp_status ndp_chat_own_special(const ndp_tokenizer *t, struct json_object **out);

#endif
