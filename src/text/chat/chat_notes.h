/* Notes about a chat template and a tokenizer with which training would go wrong without an error. */
#ifndef NDP_TEXT_CHAT_CHAT_NOTES_H
#define NDP_TEXT_CHAT_CHAT_NOTES_H

#include "text/chat/chat.h"

/* Appends lines "note: ..." for the user, each with what to set, found by rendering a question and an answer: the
 * template was chosen, and writes special tokens that the tokenizer does not have; it writes no end token after an
 * answer; it leaves out the answer. Nothing if the template cannot render. `source`: what the tokenizer was made from.
 */
void ndp_chat_add_notes(const ndp_chat *c, const ndp_tokenizer *t, const char *source, ndp_str *out);
/* Appends a line with the special tokens that a question and an answer are rendered with and that are several tokens
 * for this tokenizer; nothing if there are none. */
void ndp_chat_add_split_tokens(const ndp_chat *c, const ndp_tokenizer *t, ndp_str *out);

#endif
