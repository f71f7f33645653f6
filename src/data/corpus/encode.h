/* A document as ids, and which of these are trained on. */
#ifndef NDP_DATA_CORPUS_ENCODE_H
#define NDP_DATA_CORPUS_ENCODE_H

#include "data/corpus/bin.h"
#include "data/corpus/record.h"

/* Appends the ids of a document. A text gets the special tokens that the tokenizer puts around it; a conversation gets
 * them from its template. The ids are always those of the text as a whole.
 *
 * `end` (NULL: none): the token that ends a text, added once after its ids. It is not added if the text already ends
 * with it, as an id or written out, if the tokenizer adds it, or if the text has no ids of its own: an empty record
 * would teach the model only to stop at once. Conversations end as their template says.
 *
 * The tokens after a text belong to a span that ends with it: an answer in a text is trained on with its end token.
 *
 * `borders`: the positions in `ids` at which the document's spans begin and end: begin, end, begin, end, ...; unchanged
 * for a document that is trained on whole. A token that crosses a border belongs to what follows it: at the start of
 * the assistant's turn it contains text that the assistant has to write, at the end text of the template. Precisely,
 * the first token after a border is the first one that the text before the border does not produce by itself.
 *
 * `questions` (NULL: not wanted): the positions at which later questions begin, found in the same way. */
NDP_API ndp_status ndp_encode_document(const ndp_tokenizer *t, const ndp_document *d, const int32_t *end, ndp_ids *ids,
                                       ndp_places *borders, ndp_places *questions);

#endif
