/* Rows for training, made from the documents of a cache.
 *
 * A document longer than a row's length S is cut into pieces of S tokens and a remainder. A token's label is the next
 * token of its document, even if that lies in the next piece, so no prediction is lost at a cut. There is no label (-1)
 * for the last token of a document, nor where the next token is not trained on (ndp_token_cache_trained).
 *
 *   documents   a b c d e | f g | h i j     S = 4
 *   row 0       a b c d   labels b c d e    positions 0 1 2 3    document_start 0 0 0 0
 *   row 1       f g . .   labels g - - -    positions 0 1 0 0    document_start 0 0 2 3
 *   row 2       h i j .   labels i j - -    positions 0 1 2 0    document_start 0 0 0 3
 *
 * Packing is first fit: a piece goes into the first open row with room for it. Rows stay open until they are full; if
 * there are too many, the fullest is closed. Pieces without a label (e above) are dropped; every other piece is in
 * exactly one row. Which piece lies in which row depends on the documents and S alone, not on seed, epoch or layout;
 * the order of the rows is the sampler's (sampler.h).
 *
 * Positions restart with each piece, and attention stays inside it: nothing carries over from a row to the next.
 * Without the document mask, all documents form one text: rows cut it every S tokens, labels cross document boundaries,
 * and positions restart with each row. Padding at the end of a row has no label, is a document of its own, and holds a
 * legal id. Without packing, every piece has a row of its own.
 *
 * A longer document that begins with something that is not trained on, such as a conversation, is cut between turns
 * instead: a piece has as many whole turns as fit. Of a turn longer than a row, the first S tokens are a piece if some
 * of an answer is among them, and the rest is left out (NDP_OVERLONG_AUTO; with NDP_OVERLONG_CUT it is cut as a text).
 *
 * Documents of more than S tokens may instead be left out or truncated, with or without the mask. A truncated document
 * without a label among its first S tokens is also left out.
 */
#ifndef NDP_DATA_PACKING_H
#define NDP_DATA_PACKING_H

#include "data/row_table.h"

typedef struct ndp_dataset ndp_dataset;

/* Maps a cache that ndp_dataset_prepare made. NDP_EINVAL: it has nothing to predict, a document is too long and that is
 * refused, or the validation set is empty. */
NDP_API ndp_status ndp_dataset_open(const char *path, const ndp_row_opts *o, ndp_dataset **out);
/* The same for an open cache, which is borrowed. A cache of heads (ndp_token_cache.head) may have no rows. */
NDP_API ndp_status ndp_dataset_create(const ndp_token_cache *cache, const ndp_row_opts *o, ndp_dataset **out);
void ndp_dataset_close(ndp_dataset *d);

int64_t ndp_dataset_rows(const ndp_dataset *d);
/* Tokens in these rows, and documents with a piece in them. */
int64_t ndp_dataset_tokens(const ndp_dataset *d);
int64_t ndp_dataset_documents(const ndp_dataset *d);
/* Tokens predicted per epoch. */
int64_t ndp_dataset_labels(const ndp_dataset *d);
/* Documents that were left out or truncated (row_table.h). */
ndp_row_losses ndp_dataset_losses(const ndp_dataset *d);
/* True if the cache contains texts, not just conversations and files of ids. */
bool ndp_dataset_has_texts(const ndp_dataset *d);
/* Fraction of the rows' positions that hold tokens instead of padding; 0 without rows. */
double ndp_dataset_fill(const ndp_dataset *d);
/* Groups of rows that the sampler may weight: the sources, or all rows as one. Source i has rows [first, first + n). */
int ndp_dataset_sources(const ndp_dataset *d);
void ndp_dataset_source(const ndp_dataset *d, int i, int64_t *first, int64_t *n);
/* Documents with a piece in the rows of source i. */
int64_t ndp_dataset_source_documents(const ndp_dataset *d, int i);
/* Calls `each` with every token that these rows predict; place: its index in its document if it is in the document's
 * first piece, otherwise -1. */
NDP_API ndp_status ndp_dataset_visit_labels(const ndp_dataset *d, int64_t first_row, int64_t n_rows,
                                            ndp_status (*each)(void *user, int32_t id, int64_t place), void *user);

/* Fills tokens, labels, positions and document_start, each [S]; document_start[t] is the index in this row at which the
 * document of token t starts. Any number of threads may call this; it allocates nothing and takes O(S). */
NDP_API ndp_status ndp_dataset_row(const ndp_dataset *d, int64_t row, int32_t *tokens, int32_t *labels,
                                   int32_t *positions, int32_t *document_start);
/* Of a row's S positions, those that hold tokens: the first ones. */
int64_t ndp_dataset_row_tokens(const ndp_dataset *d, int64_t row);
/* Calls `each` with every piece of a row, in the order of rows. */
void ndp_dataset_visit_pieces(const ndp_dataset *d, void (*each)(void *user, int64_t row, const ndp_row_piece *p),
                              void *user);
/* The token that stands at a position of a row, by its number in the cache; -1: padding. */
int64_t ndp_dataset_token(const ndp_dataset *d, int64_t row, int64_t position);
/* The document that has that token, by its number in the cache. */
int64_t ndp_dataset_document_of(const ndp_dataset *d, int64_t token);
/* Of pairs, whose rows have one document each: its number in the cache, and its tokens. */
int64_t ndp_dataset_document(const ndp_dataset *d, int64_t row, int64_t *tokens);
/* The prompt of a row's document, which is not trained on, followed by the answer of another row's, as much of it as S
 * tokens have room for; written as ndp_dataset_row does. Of pairs. */
NDP_API ndp_status ndp_dataset_mismatched(const ndp_dataset *d, int64_t prompt_row, int64_t answer_row, int32_t *tokens,
                                          int32_t *labels, int32_t *positions, int32_t *document_start);
/* How many tokens that has. */
int64_t ndp_dataset_mismatched_tokens(const ndp_dataset *d, int64_t prompt_row, int64_t answer_row);
/* NDP_EIO if bytes of the cache were lost since it was opened. Call it after reading the rows of a batch, before use.
 */
NDP_API ndp_status ndp_dataset_check(const ndp_dataset *d);

#endif
