/* A document as ids, and which of them are learned. */
#ifndef NDP_DATA_ENCODE_H
#define NDP_DATA_ENCODE_H

#include "data/bin.h"
#include "data/record.h"

/* Appends the ids of a document. A text gets the special tokens that the tokenizer puts around one; a conversation has
 * them from its template. The ids are always those of the whole text.
 *
 * `borders`: where in `ids` the tokens of its spans begin and end, begin, end, begin, end, ...; left alone for a
 * document that is learned whole. A token that lies across a border belongs to what comes behind it: at the beginning
 * of the assistant's turn it holds what the assistant has to write, at its end what the template goes on with. More
 * exactly, behind a border is the first token that the text before the border does not give by itself. */
NDP_API ndp_status ndp_encode_document(const ndp_tokenizer *t, const ndp_document *d, ndp_ids *ids,
                                       ndp_places *borders);

#endif
