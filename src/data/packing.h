/* Rows for training, made of the documents of a cache.
 *
 * A document of more than a row's length S is cut into pieces of S tokens and a rest; a token's label is the next token
 * of its document, wherever that lies, so that no prediction is lost where a document is cut. The last token of a
 * document has no label (-1), nor has one before a token that is not learned (cache.h).
 *
 *   documents   a b c d e | f g | h i j     S = 4
 *   row 0       a b c d   labels b c d e    positions 0 1 2 3    document_start 0 0 0 0
 *   row 1       f g . .   labels g - - -    positions 0 1 0 0    document_start 0 0 2 3
 *   row 2       h i j .   labels i j - -    positions 0 1 2 0    document_start 0 0 0 3
 *
 * Packing is first fit: a piece goes into the first row that has room for it, of the last rows that were begun and not
 * filled; when there are too many of those, the fullest is closed. Pieces in which nothing is predicted (e above) are
 * left out; all others are in exactly one row. Which piece lies in which row depends on the documents and S alone, not
 * on the seed, the epoch or a layout; the order of the rows is the sampler's (sampler.h).
 *
 * Positions restart with each piece, and attention stays inside it: a row knows nothing of the row before. Without the
 * document mask all documents are one text: rows cut it every S tokens, labels cross the borders of documents, and
 * positions restart with the rows. Padding at the end of a row has no label, is a document of its own, and holds a
 * legal id. Without packing every piece has a row of its own.
 */
#ifndef NDP_DATA_PACKING_H
#define NDP_DATA_PACKING_H

#include "data/row_table.h"

typedef struct ndp_dataset ndp_dataset;

/* Maps a cache that ndp_dataset_prepare made. NDP_EINVAL when nothing in it can be predicted, when a document is too
 * long and that is refused, and when none is held out that should be. */
NDP_API ndp_status ndp_dataset_open(const char *path, const ndp_row_opts *o, ndp_dataset **out);
/* The same of an open cache, which is borrowed. That the head of a data set (cache.h) has no rows is no error. */
NDP_API ndp_status ndp_dataset_create(const ndp_token_cache *cache, const ndp_row_opts *o, ndp_dataset **out);
void ndp_dataset_close(ndp_dataset *d);

int64_t ndp_dataset_rows(const ndp_dataset *d);
/* Of these rows: tokens, and documents that they have a piece of. */
int64_t ndp_dataset_tokens(const ndp_dataset *d);
int64_t ndp_dataset_documents(const ndp_dataset *d);
/* Tokens that are predicted in an epoch. */
int64_t ndp_dataset_labels(const ndp_dataset *d);
/* Does the cache hold texts, and not only conversations and files of ids? */
bool ndp_dataset_has_texts(const ndp_dataset *d);
/* The part of the rows' places that holds tokens, not padding; 0 without rows. */
double ndp_dataset_fill(const ndp_dataset *d);
/* Parts of the rows that the sampler may take unequally often: the sources, or one. Part i has rows [first, first + n).
 */
int ndp_dataset_parts(const ndp_dataset *d);
void ndp_dataset_part(const ndp_dataset *d, int i, int64_t *first, int64_t *n);

/* Fills tokens, labels, positions and document_start, each [S]; document_start[t] is the first index in this row of t's
 * document. Any number of threads may call this; it allocates nothing and costs O(S). */
NDP_API ndp_status ndp_dataset_row(const ndp_dataset *d, int64_t row, int32_t *tokens, int32_t *labels,
                                   int32_t *positions, int32_t *document_start);
/* NDP_EIO when bytes of the cache were lost since it was opened: after the rows of a batch, before they are used. */
NDP_API ndp_status ndp_dataset_check(const ndp_dataset *d);
/* The number of labels in a row that are not -1; 0 for a row out of range. */
int64_t ndp_dataset_valid(const ndp_dataset *d, int64_t row);

#endif
