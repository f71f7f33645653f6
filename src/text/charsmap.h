/* SentencePiece's normalization table, as tokenizer.json stores it in "Precompiled". It is base64 of: the size in bytes
 * of a double-array trie (Darts-clone), the trie, and the replacements, each zero-terminated. */
#ifndef NDP_TEXT_CHARSMAP_H
#define NDP_TEXT_CHARSMAP_H

#include "base/text.h"

typedef struct ndp_charsmap ndp_charsmap;

NDP_API ndp_status ndp_charsmap_create(const char *base64, const char *what, ndp_charsmap **out);
void ndp_charsmap_destroy(ndp_charsmap *m);
/* Appends the text with its replacements. A grapheme of less than 6 bytes is replaced as a whole where the table has an
 * entry for it, otherwise character by character. Of the entries that begin it, the shortest wins, as in the reference.
 */
NDP_API ndp_status ndp_charsmap_apply(const ndp_charsmap *m, ndp_span text, ndp_str *out);

#endif
