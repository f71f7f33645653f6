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
    int64_t n; /* values */
} ndp_reference_file;

/* On rank 0. The caller releases *out. NDP_ENOMEM; NDP_EIO: there is no folder for it. */
ndp_status ndp_reference_file_find(const ndp_score *s, const ndp_score_lists *lists, ndp_reference_file *out);
/* Accepts {0}. */
void ndp_reference_file_release(ndp_reference_file *f);
/* Reads the first of f->n `values`, as many as the file has, and returns how many; 0: there is no whole file of that
 * key. */
int64_t ndp_reference_file_read(const ndp_reference_file *f, double *values);
/* Replaces the file, atomically. NDP_EIO, NDP_ENOMEM. */
ndp_status ndp_reference_file_write(const ndp_reference_file *f, const double *values);

#endif
