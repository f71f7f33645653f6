/* SentencePiece's table of normalizations, as tokenizer.json keeps it in "Precompiled": base64 of a count of bytes,
 * that many bytes of a double-array trie (Darts-clone), and the replacements, each with a zero behind it. */
#ifndef NDP_TEXT_CHARSMAP_H
#define NDP_TEXT_CHARSMAP_H

#include "base/text.h"

typedef struct ndp_charsmap ndp_charsmap;

NDP_API ndp_status ndp_charsmap_create(const char *base64, const char *what, ndp_charsmap **out);
void ndp_charsmap_destroy(ndp_charsmap *m);
/* Appends the text with its replacements: of a grapheme below 6 bytes where the table has one, else of characters. Of
 * the table's entries that begin the grapheme the shortest counts, as in the reference. */
NDP_API ndp_status ndp_charsmap_apply(const ndp_charsmap *m, ndp_span text, ndp_str *out);

#endif
