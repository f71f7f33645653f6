/* A document as ids, and which of them are learned. */
#ifndef NDP_DATA_CORPUS_ENCODE_H
#define NDP_DATA_CORPUS_ENCODE_H

#include "data/corpus/bin.h"
#include "data/corpus/record.h"

/* Appends the ids of a document. A text gets the special tokens that the tokenizer puts around one; a conversation has
 * them from its template. The ids are always those of the whole text.
 *
 * `end` (NULL: none): the token that ends a text, added once after its ids. Nothing is added where the text ends with
 * that token already, as an id or written out, where the tokenizer adds it, or where the text has no ids of its own:
 * nothing would be learned from an empty record but to stop at once. Conversations end as their template says.
 *
 * `borders`: where in `ids` the tokens of its spans begin and end, begin, end, begin, end, ...; left alone for a
 * document that is learned whole. A token that lies across a border belongs to what comes behind it: at the beginning
 * of the assistant's turn it holds what the assistant has to write, at its end what the template goes on with. More
 * exactly, behind a border is the first token that the text before the border does not give by itself. */
NDP_API ndp_status ndp_encode_document(const ndp_tokenizer *t, const ndp_document *d, const int32_t *end, ndp_ids *ids,
                                       ndp_places *borders);

#endif
