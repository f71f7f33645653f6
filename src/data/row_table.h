/* Inside the data room: which tokens make up which row. Documents are cut into pieces, and rows are filled with pieces;
 * packing.h defines rows. */
#ifndef NDP_DATA_ROW_TABLE_H
#define NDP_DATA_ROW_TABLE_H

#include "data/cache/cache_file.h"

/* What happens to a document of more than S tokens: it continues in other rows, is an error, is left out, or keeps its
 * first S tokens, the last of which then predicts nothing. `auto`: it continues, and one that begins with something
 * that is not trained on is cut between turns, so that no answer is in a row without its whole question; what has no
 * place in a row with its question is left out. */
typedef enum ndp_overlong {
    NDP_OVERLONG_AUTO,
    NDP_OVERLONG_CUT,
    NDP_OVERLONG_ERROR,
    NDP_OVERLONG_DROP,
    NDP_OVERLONG_TRUNCATE
} ndp_overlong;

typedef struct ndp_row_opts {
    int64_t length;     /* S */
    bool document_mask; /* attention stays inside documents */
    bool single;        /* no packing */
    bool pairs;         /* documents 2 k and 2 k + 1 stay together, as rows 2 r and 2 r + 1; with `single` */
    bool apart;         /* with `pairs`: each has a row for itself, if it is not empty */
    ndp_overlong overlong;
    int64_t least_tokens;     /* of a document: shorter ones are left out */
    int64_t most_documents;   /* of each source, the first ones, or pairs; 0: all */
    bool unique;              /* documents, or pairs, that are like an earlier one of any source are left out */
    double held_out;          /* fraction of the documents, or pairs, held out for validation */
    bool validation;          /* rows of held-out documents; otherwise, of all others */
    bool by_source;           /* no row mixes documents of several sources */
    const char *const *names; /* of the sources, for messages; may be NULL */
} ndp_row_opts;

typedef struct ndp_row_piece {
    int64_t first; /* tokens [first, first + n) of the cache */
    int64_t next;  /* the token predicted by its last one; -1: none */
    int32_t n;
    bool begins; /* a document */
} ndp_row_piece;

/* Documents that these rows do not have, or not all of. */
typedef struct ndp_row_losses {
    int64_t overlong;       /* more than S tokens: dropped or truncated */
    int64_t scant;          /* less than least_tokens: left out */
    int64_t emptied;        /* of the truncated ones: nothing to predict is left, so they have no row */
    int64_t beyond;         /* not among the first of their source (most_documents) */
    int64_t repeated;       /* like an earlier one */
    int64_t between_turns;  /* cut between turns, not where a row was full; they may be in these rows whole */
    int64_t unasked;        /* turns of which answers, or parts of them, have no place in a row with their question, */
    int64_t unasked_labels; /* and their tokens to predict */
} ndp_row_losses;

/* Row r is pieces [rows[r], rows[r + 1]). Source i is rows [sources[i], sources[i + 1]); there is one without
 * by_source. */
typedef struct ndp_row_table {
    ndp_row_piece *pieces;
    int64_t *rows, n_rows;
    int64_t *sources;
    int64_t *source_documents; /* of each source, those in these rows */
    int n_sources;
    int64_t documents, tokens, labels; /* in these rows */
    ndp_row_losses lost;
} ndp_row_table;

/* Whether a document is held out. A function of its number alone: the same for every seed, layout and row length. */
bool ndp_held_out(double part, int64_t document);

/* Fills the rows in O(documents x open rows). Every rank gets the same table. */
NDP_API ndp_status ndp_row_table_build(const ndp_token_cache *c, const ndp_row_opts *o, ndp_row_table *out);
void ndp_row_table_release(ndp_row_table *t);

#endif
