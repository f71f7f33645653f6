/* Inside the score room: the file with the log-probabilities of the documents of a token cache under a reference model,
 * beside that cache. Its name and its header have a key of contents: the tokens, the rows that are made of them, the
 * weights, and the types that computed it. A number that is not known yet is NaN, so a part of a pass is such a file.
 */
#ifndef NDP_SCORE_REFERENCE_FILE_H
#define NDP_SCORE_REFERENCE_FILE_H

#include "score/score.h"

typedef struct ndp_reference_file {
    char *path; /* owned */
    ndp_hash128 key;
    int64_t n; /* documents */
} ndp_reference_file;

/* On rank 0. The caller releases *out. NDP_ENOMEM; NDP_EIO: there is no folder for it. */
ndp_status ndp_reference_file_find(const ndp_score *s, const ndp_token_cache *tokens, ndp_reference_file *out);
/* Accepts {0}. */
void ndp_reference_file_release(ndp_reference_file *f);
/* Reads `values`, f->n of them. False, and they are as they were, if there is no whole file of that key. */
bool ndp_reference_file_read(const ndp_reference_file *f, double *values);
/* Replaces the file, atomically. NDP_EIO, NDP_ENOMEM. */
ndp_status ndp_reference_file_write(const ndp_reference_file *f, const double *values);

#endif
