/* Rows for training, cut out of the tokens of all documents.
 *
 * The tokens of all documents, in their order, are one stream; row r is its tokens [r S, (r + 1) S). A token's label is
 * the next token of its document, wherever that lies: at a row's end it is the first token of the next row, so that no
 * prediction is lost. The last token of a document has no label (-1).
 *
 *   documents   a b c d e | f g | h i j     S = 4
 *   row 0       a b c d   labels b c d e    positions 0 1 2 3    starts 0 0 0 0
 *   row 1       e f g h   labels - g - i    positions 0 0 1 0    starts 0 1 1 3
 *   row 2       i j . .   labels j - - -    positions 0 1 0 0    starts 0 0 2 3
 *
 * Positions restart with each document, and at the beginning of a row for a document that was cut there: a row knows
 * nothing of the row before. Without the document mask the stream is one text: labels cross its borders, and only rows
 * cut it. Padding at the end has no label, is a document of its own, and holds a legal id. A last row in which nothing
 * would be predicted is left out.
 */
#ifndef NDP_DATA_PACKING_H
#define NDP_DATA_PACKING_H

#include "data/cache.h"

typedef struct ndp_dataset ndp_dataset;

/* Maps a cache that ndp_dataset_prepare made. NDP_EINVAL when nothing in it can be predicted. */
NDP_API ndp_status ndp_dataset_open(const char *path, int64_t sequence_length, bool document_mask, ndp_dataset **out);
void ndp_dataset_close(ndp_dataset *d);

int64_t ndp_dataset_rows(const ndp_dataset *d);
int64_t ndp_dataset_tokens(const ndp_dataset *d);
int64_t ndp_dataset_documents(const ndp_dataset *d);
/* To be compared with the model's vocabulary before training. */
int32_t ndp_dataset_largest_id(const ndp_dataset *d);

/* Fills tokens, labels, positions and starts, each [S]; starts[t] is the first index in this row of t's document. Any
 * number of threads may call this; it allocates nothing and costs O(S). */
NDP_API ndp_status ndp_dataset_row(const ndp_dataset *d, int64_t row, int32_t *tokens, int32_t *labels,
                                   int32_t *positions, int32_t *starts);
/* The number of labels in a row that are not -1, without reading it; 0 for a row out of range. */
int64_t ndp_dataset_valid(const ndp_dataset *d, int64_t row);

#endif
