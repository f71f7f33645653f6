/* Which tokens make which row: documents are cut into pieces of at most a row, and rows are filled with pieces. Inside
 * the data room; packing.h says what a row is. */
#ifndef NDP_DATA_ROW_TABLE_H
#define NDP_DATA_ROW_TABLE_H

#include "data/cache/cache_file.h"

typedef struct ndp_row_opts {
    int64_t length;           /* S */
    bool document_mask;       /* attention inside documents */
    bool single;              /* no packing */
    bool refuse_overlong;     /* documents of more than S tokens are an error */
    double held_out;          /* part of the documents that is kept for validation */
    bool validation;          /* the rows of those; otherwise those of all others */
    bool by_source;           /* no row has documents of several sources */
    const char *const *names; /* of the sources, for messages; may be NULL */
} ndp_row_opts;

typedef struct ndp_row_piece {
    int64_t first; /* tokens [first, first + n) of the cache */
    int64_t next;  /* the token that its last one predicts; -1: none */
    int32_t n;
} ndp_row_piece;

/* Row r is pieces [rows[r], rows[r + 1]). Part i of the data is rows [parts[i], parts[i + 1]). */
typedef struct ndp_row_table {
    ndp_row_piece *pieces;
    int64_t *rows, n_rows;
    int64_t *parts;
    int n_parts;
    int64_t documents, tokens, labels; /* in these rows */
} ndp_row_table;

/* Is a document held out? A function of its number alone: the same for every seed, layout and row length. */
bool ndp_held_out(double part, int64_t document);

/* Fills the rows. O(documents x open rows); every rank makes the same table. */
NDP_API ndp_status ndp_row_table_build(const ndp_token_cache *c, const ndp_row_opts *o, ndp_row_table *out);
void ndp_row_table_release(ndp_row_table *t);

#endif
